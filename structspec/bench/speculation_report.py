"""What the speculation benchmark shows: rows, paired comparisons, tables and the plot.

Intervals are bootstrap intervals over tasks, with the same resamples every time. Comparisons are
paired: both settings answer the same tasks, and a resample takes a task with both of its answers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from structspec.bench.bootstrap import interval
from structspec.errors import MissingExtra

__all__ = ["Answer", "Setting", "comparisons", "plot", "summarise", "tables"]

UNTRAINED = ("auto", "forced", "forks", "lookup")
"""Drafts without a model: no masks, counts or lengths to choose."""


@dataclass(frozen=True)
class Setting:
    """One configuration. `kind`: "structspec", "assisted" or "peer"; the rest as it applies."""

    kind: str
    draft: str = "none"
    masked: bool = True
    verifier: str = "block"
    count: int = 1
    length: int = 0
    temperature: float = 0.0

    @property
    def name(self) -> str:
        """A short name for tables."""
        if self.kind != "structspec":
            return f"{self.kind} {self.draft}"
        if self.draft in ("none", *UNTRAINED):
            return self.draft
        mask = "masked" if self.masked else "cut"
        return f"{self.draft} {mask} {self.verifier} K={self.count} L={self.length}"


@dataclass(frozen=True)
class Answer:
    """One task answered under one setting; seconds by the clock."""

    task: str
    tokens: tuple[int, ...] = field(repr=False)
    seconds: float
    forwards: int
    drafted: int = 0
    accepted: int = 0
    model_seconds: float = 0.0
    draft_seconds: float = 0.0
    mask_seconds: float = 0.0
    verify_seconds: float = 0.0
    error: str | None = None
    kind: str = ""


Statistic = Callable[[Sequence[Answer]], float]


def accepted_per_forward(answers: Sequence[Answer]) -> float:
    """Drafted tokens kept per target forward."""
    return sum(a.accepted for a in answers) / max(1, sum(a.forwards for a in answers))


def tokens_per_forward(answers: Sequence[Answer]) -> float:
    """Output tokens per target forward."""
    return sum(len(a.tokens) for a in answers) / max(1, sum(a.forwards for a in answers))


def tokens_per_second(answers: Sequence[Answer]) -> float:
    """Output tokens per second, prompts included."""
    return sum(len(a.tokens) for a in answers) / max(1e-9, sum(a.seconds for a in answers))


def _answered(answers: Sequence[Answer]) -> list[Answer]:
    return [a for a in answers if a.error is None and a.tokens and a.forwards]


def summarise(
    setting: Setting, answers: Sequence[Answer], plain: Sequence[Answer]
) -> dict[str, Any]:
    """One row of the table. `plain`: the same tasks decoded without a draft."""
    done = [answer for answer in answers if answer.error is None and answer.tokens]
    row: dict[str, Any] = {
        "name": setting.name,
        **asdict(setting),
        "tasks": len(done),
        "failed": len(answers) - len(done),
        "errors": sorted({answer.error for answer in answers if answer.error}),
    }
    if not done:
        return row
    seconds = sum(a.seconds for a in done)
    row |= {
        "tokens": sum(len(a.tokens) for a in done),
        "forwards": sum(a.forwards for a in done),
        "seconds": seconds,
        "tokens_per_second": tokens_per_second(done),
        "tokens_per_forward": tokens_per_forward(done),
        "tokens_per_forward_95": interval(_answered(done), tokens_per_forward),
    }
    if setting.kind == "structspec":
        parts = ("model", "draft", "mask", "verify")
        share = {p: sum(getattr(a, f"{p}_seconds") for a in done) / seconds for p in parts}
        row |= {
            "accepted_per_forward": accepted_per_forward(done),
            "accepted_per_forward_95": interval(_answered(done), accepted_per_forward),
            "accepted_per_drafted": sum(a.accepted for a in done)
            / max(1, sum(a.drafted for a in done)),
            "share_of_time": {**share, "rest": 1.0 - sum(share.values())},
        }
    if setting.temperature == 0 and plain:
        texts = {a.task: a.tokens for a in plain}
        row["identical_to_plain"] = sum(texts.get(a.task) == a.tokens for a in done)
    return row


def comparisons(answers: Mapping[Setting, Sequence[Answer]]) -> list[dict[str, Any]]:
    """Ratios of the accepted length that theory orders, and of the wall-clock, each paired.

    masked / cut, block / token and layered / block with everything else equal; and each setting's
    tokens per second over those of the fastest other engine's plain generation and of assisted
    generation, at its temperature.
    """
    found = []
    for setting in answers:
        for what, other in _opponents(setting):
            if other in answers:
                found.append(
                    _ratio(what, setting, other, answers[setting], answers[other], length=True)
                )
    for setting, given in answers.items():
        if setting.kind != "structspec" or not _answered(given):
            continue
        same = {s: a for s, a in answers.items() if s.temperature == setting.temperature}
        for kind, what in (("peer", "fastest other engine"), ("assisted", "assisted generation")):
            rivals = {s: a for s, a in same.items() if s.kind == kind and _answered(a)}
            if rivals:
                best = max(rivals, key=lambda s: tokens_per_second(_answered(rivals[s])))
                found.append(_ratio(what, setting, best, given, rivals[best], length=False))
    return [row for row in found if row]


def _opponents(setting: Setting) -> list[tuple[str, Setting]]:
    """What a setting's accepted length is compared with."""
    if setting.kind != "structspec" or setting.draft in ("none", *UNTRAINED):
        return []
    found = []
    if setting.masked:
        found.append(("masked / cut", replace(setting, masked=False)))
    if setting.verifier == "block":
        found.append(("block / token", replace(setting, verifier="token")))
    if setting.count > 1:
        one = replace(setting, verifier="block", count=1)
        found.append((f"{setting.verifier} K={setting.count} / block K=1", one))
    return found


def _ratio(
    what: str,
    setting: Setting,
    other: Setting,
    left: Sequence[Answer],
    right: Sequence[Answer],
    *,
    length: bool,
) -> dict[str, Any]:
    mine = {a.task: a for a in _answered(left)}
    theirs = {a.task: a for a in _answered(right)}
    pairs = [(mine[task], theirs[task]) for task in mine if task in theirs]
    if not pairs:
        return {}
    statistic = accepted_per_forward if length else tokens_per_second

    def ratio(some: Sequence[tuple[Answer, Answer]]) -> float:
        below = statistic([b for _, b in some])
        return statistic([a for a, _ in some]) / below if below else float("nan")

    return {
        "what": what,
        "of": "accepted per forward" if length else "tokens per second",
        "setting": setting.name,
        "other": other.name,
        "temperature": setting.temperature,
        "tasks": len(pairs),
        "ratio": ratio(pairs),
        "ratio_95": interval(pairs, ratio),
    }


def tables(rows: Sequence[dict[str, Any]], ratios: Sequence[dict[str, Any]]) -> list[Any]:
    """Rich tables of the rows and of the comparisons."""
    from rich.table import Table

    parts = ("model", "draft", "mask", "verify", "rest")
    shown = Table(title="settings, by temperature; shares of the time")
    for column in ("T", "setting", "tok/fwd", "acc/fwd", "tok/s", *parts, "= plain"):
        shown.add_column(column, justify="left" if column == "setting" else "right")
    for row in rows:
        if "tokens" not in row:
            error = (row["errors"] or ["no answer"])[0]
            shown.add_row(f"{row['temperature']:g}", row["name"], "failed", error[:40])
            continue
        low, high = row["tokens_per_forward_95"]
        share = row.get("share_of_time", {})
        same = row.get("identical_to_plain")
        shown.add_row(
            f"{row['temperature']:g}",
            row["name"],
            f"{row['tokens_per_forward']:.2f} [{low:.2f}, {high:.2f}]",
            f"{row['accepted_per_forward']:.2f}" if "accepted_per_forward" in row else "",
            f"{row['tokens_per_second']:.1f}",
            *(f"{share[part]:.0%}" if part in share else "" for part in parts),
            "" if same is None else f"{same}/{row['tasks']}",
        )
    compared = Table(title="ratios over the same tasks, 95 % bootstrap intervals")
    for column in ("T", "ratio of", "setting", "over", "tasks", "ratio"):
        compared.add_column(
            column, justify="right" if column in ("T", "tasks", "ratio") else "left"
        )
    for row in ratios:
        low, high = row["ratio_95"]
        compared.add_row(
            f"{row['temperature']:g}",
            f"{row['of']}: {row['what']}",
            row["setting"],
            row["other"],
            str(row["tasks"]),
            f"{row['ratio']:.2f} [{low:.2f}, {high:.2f}]",
        )
    return [shown, compared]


def plot(rows: Sequence[dict[str, Any]], path: Path) -> None:
    """Tokens per forward with intervals beside tokens per second, a panel per temperature."""
    try:
        import matplotlib
    except ImportError as error:
        raise MissingExtra("matplotlib", "bench") from error
    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "structspec"
    from matplotlib import pyplot

    done = [row for row in rows if "tokens" in row]
    temperatures = sorted({row["temperature"] for row in done})
    if not temperatures:
        return
    most = max(sum(row["temperature"] == t for row in done) for t in temperatures)
    figure, panels = pyplot.subplots(
        len(temperatures),
        2,
        figsize=(11, len(temperatures) * (1.2 + 0.28 * most)),
        squeeze=False,
    )
    for (left, right), temperature in zip(panels, temperatures, strict=True):
        some = [row for row in done if row["temperature"] == temperature][::-1]
        names = [row["name"] for row in some]
        values = [row["tokens_per_forward"] for row in some]
        bounds = [row["tokens_per_forward_95"] for row in some]
        below = [max(0.0, v - low) for v, (low, _) in zip(values, bounds, strict=True)]
        above = [max(0.0, high - v) for v, (_, high) in zip(values, bounds, strict=True)]
        colours = ["C0" if row["kind"] == "structspec" else "C7" for row in some]
        left.barh(names, values, xerr=[below, above], color=colours)
        left.set(xlabel="tokens per target forward", title=f"temperature {temperature:g}")
        right.barh(names, [row["tokens_per_second"] for row in some], color=colours)
        right.set(xlabel="tokens per second, prompt included")
        right.set_yticklabels([])
        for panel in (left, right):
            panel.tick_params(labelsize="small")
            panel.grid(True, axis="x", alpha=0.3)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)
