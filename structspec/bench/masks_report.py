"""Tables, and the plot, of the mask benchmark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from structspec.bench.machine import on_machine
from structspec.bench.pages import markdown_number, markdown_table
from structspec.errors import MissingExtra

__all__ = ["plot", "tables"]

_PERCENTILES = ("avg", "p50", "p90", "p99", "p99.9", "max")
_WRONG = ("false accept", "false reject", "inconsistent")
_FAILED = ("refused schemas", "refused", "timeout schemas", "crash schemas")


def _cells(figures: Mapping[str, float] | None) -> list[str]:
    if figures is None:
        return ["–"] * len(_PERCENTILES)
    return [markdown_number(figures[p]) for p in _PERCENTILES]


def _ratios(mine: Any, theirs: Any) -> list[str]:
    if mine is None or theirs is None:
        return ["–"] * len(_PERCENTILES)
    return [f"{mine[p] / theirs[p]:.2f}" for p in _PERCENTILES]


def tables(report: Mapping[str, Any]) -> str:
    """All tables as Markdown."""
    machine = report["machine"]
    parts = [f"{on_machine(machine)}; `{report['command']}`."]
    for name, figures in report["vocabularies"].items():
        parts += _vocabulary(name, figures)
    return "\n\n".join(parts)


def _vocabulary(name: str, figures: Mapping[str, Any]) -> list[str]:
    engines = figures["engines"]
    parts = [f"### {name} ({figures['tokens']:,} tokens)"]
    for title, key in (
        (
            f"Time per mask and token in µs, over the {figures['common_texts']} texts that the "
            "engines in common walk to the end",
            "mask_us",
        ),
        (
            f"Time from schema text to first mask in ms, over the {figures['common_schemas']} "
            "schemas that the engines in common compile",
            "common_first_mask_ms",
        ),
    ):
        rows = [[f"{e} {f['version']}", *_cells(f[key])] for e, f in engines.items()]
        mine = engines.get("structspec", {}).get(key)
        for other in ("llguidance", "xgrammar-strict"):
            if mine and engines.get(other, {}).get(key):
                label = f"structspec / {other}"
                rows.append([f"*{label}*", *_ratios(mine, engines[other][key])])
        counted = [str((f[key] or {}).get("n", 0)) for f in engines.values()]
        for row, n in zip(rows, counted, strict=False):
            row.append(n)
        for row in rows[len(counted) :]:
            row.append("")
        parts += [f"{title}:", markdown_table(["", *_PERCENTILES, "n"], rows)]
    rows = []
    for engine, f in engines.items():
        verdicts = f["verdicts"]
        rows.append(
            [
                engine,
                str(verdicts.get("right", 0)),
                *(str(verdicts.get(kind, 0)) for kind in (*_WRONG, *_FAILED)),
                str(f["not_reached"]),
                markdown_number(f["grown_mib"]),
            ]
        )
    head = ["", "right", *_WRONG, *_FAILED, "schemas not reached", "memory grown, MiB"]
    parts += ["Verdicts over all texts, failures and memory:", markdown_table(head, rows)]
    parts += _hard(figures["hard"])
    return parts


def _hard(hard: Mapping[str, Any]) -> list[str]:
    engines = list(next(iter(hard.values()), {}))
    rows = []
    for case, row in hard.items():
        cells = [case]
        for engine in engines:
            cell = row[engine]
            times = cell.get("mask_us")
            if cell["outcome"] == "accepted" and times:
                cells.append(
                    f"{markdown_number(times['p99'])} ({markdown_number(cell['first_mask_ms'])} ms)"
                )
            else:
                cells.append(cell["outcome"].split(":", 1)[0])
        rows.append(cells)
    return ["Hard schemas, mask p99 in µs (first mask):", markdown_table(["", *engines], rows)]


def plot(times: Mapping[str, Mapping[str, Sequence[float]]], path: Path) -> None:
    """One panel per vocabulary, one line per engine: the share of masks that take longer."""
    try:
        import matplotlib
    except ImportError as error:
        raise MissingExtra("matplotlib", "bench") from error
    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "structspec"
    from matplotlib import pyplot

    figure, panels = pyplot.subplots(
        1, len(times), figsize=(6 * len(times), 4.2), sharey=True, squeeze=False
    )
    for panel, (name, engines) in zip(panels[0], times.items(), strict=True):
        for engine, values in engines.items():
            ordered = sorted(values)
            if ordered:
                shares = [1 - i / len(ordered) for i in range(len(ordered))]
                step = max(1, len(ordered) // 500)
                # every point of the last hundredth, where the engines differ most
                kept = [
                    *range(0, len(ordered), step),
                    *range(len(ordered) * 99 // 100, len(ordered)),
                ]
                kept = sorted(set(kept))
                panel.plot([ordered[i] for i in kept], [shares[i] for i in kept], label=engine)
        panel.set(xscale="log", yscale="log", title=name, xlabel="µs per mask and token")
        panel.grid(True, which="major", alpha=0.3)
    panels[0][0].set_ylabel("share of masks that take longer")
    panels[0][-1].legend(fontsize="small")
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)
