"""How well a draft head covers the target: α by depth on tool-calling tasks that it never saw.

    python -m structspec.bench.draft_head --head eagle --json docs/results/draft_head.json

Samples answers to the first tasks of `structspec.bench.tasks` from the target's masked law at
temperature 1 (or reads them from the folder of a training run, `--states run/held_out`), then
measures α = Σ min(p, q) at every place and depth, see `structspec.drafting.acceptance`: raw and
masked, over all places and over those with more than one legal token, with 95 % bootstrap
intervals over tasks. From the same answers comes the number of tokens that a verifier keeps of a
draft ("masked": sampled under the grammar, "cut": without it). `--run` draws the curve of a
training run beside the figures.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from structspec.bench.machine import describe_machine
from structspec.bench.pages import write_report
from structspec.bench.tasks import read_tasks


def interval(values: Sequence[tuple[float, int]], draws: int = 1000) -> tuple[float, float]:
    """A 95 % bootstrap interval of Σ sums / Σ counts over tasks; the same resamples every time."""
    draw = random.Random(0)
    means = sorted(
        sum(s for s, _ in some) / max(1, sum(n for _, n in some))
        for some in (draw.choices(values, k=len(values)) for _ in range(draws))
    )
    return means[int(0.025 * draws)], means[int(0.975 * draws) - 1]


def summarise(alphas: Sequence[Any], depths: int) -> dict[str, Any]:
    """One row for each kind of α: means and intervals by depth; `alphas` has one item per task."""
    table: dict[str, Any] = {}
    for kind in ("masked", "raw", "masked_free", "raw_free"):
        rows = []
        for d in range(depths):
            sums = []
            for alpha in alphas:
                values = (alpha.masked if kind.startswith("masked") else alpha.raw)[d]
                if kind.endswith("free"):
                    values = values[alpha.free[d]]
                sums.append((float(values.sum()), len(values)))
            count = sum(n for _, n in sums)
            low, high = interval(sums)
            rows.append(
                {
                    "depth": d + 1,
                    "alpha": round(sum(s for s, _ in sums) / max(1, count), 4),
                    "interval_95": [round(low, 4), round(high, 4)],
                    "places": count,
                }
            )
        table[kind] = rows
    return table


def kept(alphas: Sequence[Any], depths: int) -> dict[str, Any]:
    """Tokens that are kept of a draft of 1 to `depths` tokens, by mask and verifier."""
    from structspec.drafting.acceptance import kept_tokens

    table: dict[str, Any] = {}
    for mask in ("masked", "cut"):
        for verifier in ("token", "block"):
            rows = []
            for d in range(1, depths + 1):
                sums = []
                for alpha in alphas:
                    ratios = (alpha.ratios if mask == "masked" else alpha.cut_ratios)[:, :d]
                    values = kept_tokens(ratios, verifier == "block")
                    sums.append((float(values.sum()), len(values)))
                low, high = interval(sums)
                mean = sum(s for s, _ in sums) / max(1, sum(n for _, n in sums))
                rows.append(
                    {
                        "length": d,
                        "kept": round(mean, 4),
                        "interval_95": [round(low, 4), round(high, 4)],
                    }
                )
            table[f"{mask} {verifier}"] = rows
    return table


def _groups(options: argparse.Namespace, model: Any, taps: tuple[int, ...]) -> Any:
    from structspec.drafting.answers import Task
    from structspec.drafting.sampler import AnswerSampler
    from structspec.drafting.states import StateStore

    if options.states is not None:
        return StateStore(options.states, taps)
    store = StateStore(Path(tempfile.mkdtemp(prefix="structspec-")), taps)
    sampler = AnswerSampler(model, taps, max_tokens=128, longest_prompt=10**6, seed=options.seed)
    tasks = [Task(t.id, t.messages, t.schema) for t in read_tasks(options.tasks)]
    for group in sampler.run(tasks, 1):
        store.add(group)
    return store


def draw(report: dict[str, Any], curve: Sequence[Any], path: Path) -> None:
    """α by depth with intervals and, where there is one, the curve of the training run."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "structspec"
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(
        1, 2 if curve else 1, figsize=(10 if curve else 5, 4), squeeze=False
    )
    left = axes[0][0]
    names = {"masked": "masked", "masked_free": "masked, free places", "raw": "raw"}
    for kind, name in names.items():
        rows = report["alpha"][kind]
        centre = [row["alpha"] for row in rows]
        low = [row["alpha"] - row["interval_95"][0] for row in rows]
        high = [row["interval_95"][1] - row["alpha"] for row in rows]
        depths = [row["depth"] for row in rows]
        left.errorbar(depths, centre, yerr=[low, high], marker="o", capsize=3, label=name)
    left.set(xlabel="depth", ylabel="α = Σ min(p, q)", ylim=(0, 1), xticks=depths)
    left.set_title(f"{report['tasks']} tool-calling tasks, functions not trained on", fontsize=9)
    left.grid(alpha=0.3)
    left.legend()
    if curve:
        right = axes[0][1]
        for d in range(len(curve[0]["acceptance"])):
            right.plot(
                [point["step"] for point in curve],
                [point["acceptance"][d] for point in curve],
                marker=".",
                label=f"depth {d + 1}",
            )
        right.set(xlabel="training step", ylabel="α, masked, free places", ylim=(0, 1))
        right.grid(alpha=0.3)
        right.legend()
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, metadata={"Date": None})


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    add = parser.add_argument
    add("--head", default="eagle", help="'eagle' (the one that ships) or a folder")
    add("--model", default="default")
    add("--tasks", type=int, default=100)
    add("--depths", type=int, default=4)
    add("--states", type=Path, default=None, help="answers with states, of a training run")
    add("--run", type=Path, nargs="*", default=[], help="folders of training runs, for the curve")
    add("--threads", type=int, default=1, help="torch threads")
    add("--seed", type=int, default=0)
    add("--json", type=Path, default=None)
    add("--svg", type=Path, default=None)
    return parser


def _plain(argument: str) -> str:
    """An argument as others can use it: paths of this machine lose what is in front."""
    path = Path(argument)
    return "/".join(path.parts[-2:]) if path.is_absolute() else argument


def main(arguments: list[str] | None = None) -> int:
    """Measure and print the table."""
    options = _parser().parse_args(arguments)
    import torch
    from rich.console import Console
    from rich.table import Table

    from structspec.drafting.acceptance import measure
    from structspec.drafting.eagle_head import EagleHead
    from structspec.drafting.head_files import SHIPPED
    from structspec.models import load

    torch.set_num_threads(options.threads)
    started = time.perf_counter()
    model = load(options.model, prefix_cache=0, history=False)
    folder = SHIPPED if options.head == "eagle" else Path(options.head)
    head = EagleHead.load(folder, model.model)
    groups = _groups(options, model, head.taps)
    alphas, places, free, covered = [], 0, 0, 0.0
    for name in groups.ids():
        found = measure(head, model, groups.group(name), depths=options.depths)
        alphas.append(found)
        places += len(found.free[0])
        free += int(found.free[0].sum())
        covered += float(found.covered[found.free[0]].sum())
    report: dict[str, Any] = {
        "command": "python -m structspec.bench.draft_head "
        + " ".join(_plain(a) for a in (sys.argv[1:] if arguments is None else arguments)),
        "machine": {**describe_machine(), "torch_threads": torch.get_num_threads()},
        "model": model.name,
        "tasks": len(alphas),
        "places": places,
        "share_of_free_places": round(free / max(1, places), 4),
        "mass_in_vocabulary_free": round(covered / max(1, free), 4),
        "parameters": sum(p.numel() for p in head.parameters()),
        "draft_vocabulary": len(head.draft_ids),
        "bytes": sum(f.stat().st_size for f in folder.iterdir() if f.is_file()),
        "alpha": summarise(alphas, options.depths),
        "kept_of_a_draft": kept(alphas, options.depths),
    }
    curve: list[Any] = []
    if options.run:
        report["training"] = []
    for run in options.run:
        # a later run goes on from the head of the one before
        done = curve[-1]["step"] if curve else 0
        points = json.loads((run / "curve.json").read_text("utf-8"))
        curve += [{**point, "step": done + point["step"]} for point in points if point["held_out"]]
        log = run / "collected.json"
        if log.is_file():
            trained = json.loads(log.read_text("utf-8"))
            report["training"].append({**trained, "steps_done": points[-1]["step"]})
    if curve:
        report["held_out_curve"] = curve
    report["seconds"] = round(time.perf_counter() - started, 1)
    table = Table(title=f"α by depth, {len(alphas)} tasks")
    for column in ("places", *(str(d + 1) for d in range(options.depths))):
        table.add_column(column)
    for kind, rows in report["alpha"].items():
        shown = (
            f"{r['alpha']:.3f} [{r['interval_95'][0]:.3f}, {r['interval_95'][1]:.3f}]" for r in rows
        )
        table.add_row(kind, *shown)
    for kind, rows in report["kept_of_a_draft"].items():
        shown = (
            f"{r['kept']:.2f} [{r['interval_95'][0]:.2f}, {r['interval_95'][1]:.2f}]" for r in rows
        )
        table.add_row(f"kept, {kind}", *shown)
    Console(width=120).print(table)
    if options.json is not None:
        write_report(options.json, report)
    if options.svg is not None:
        draw(report, curve, options.svg)
    return 0


if __name__ == "__main__":
    sys.exit(main())
