"""Committed results of a suite, and the ratchet: outcomes may only get better.

A baseline is one JSON file: the suite's name and digest, the engine and its options, counts, the
table by topic, refusals by keyword, and the ids of all tests that were not right, by outcome (a
schema without tests counts by its own id). A run over part of the suite (a sample) is compared for
the tests that ran.

`compare` finds regressions (a test whose outcome ranks worse than before, see ``outcome``) and
improvements; a regression fails, an improvement asks to be committed. A suite whose content
changed, or other options, cannot be compared.

Example::

    >>> from structspec.suites.baseline import Comparison
    >>> Comparison((), ("a: refused -> right",)).summary
    '1 improvement: commit the new baseline'
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from structspec.errors import SchemaError
from structspec.suites.outcome import Outcome, Run

__all__ = ["Comparison", "baseline_of", "compare", "read_baseline", "write_baseline"]


@dataclass(frozen=True)
class Comparison:
    """What changed, one line per test."""

    regressions: tuple[str, ...] = ()
    improvements: tuple[str, ...] = ()

    @property
    def summary(self) -> str:
        """One line for people."""
        parts = []
        if self.regressions:
            parts.append(_number(len(self.regressions), "regression"))
        if self.improvements:
            better = _number(len(self.improvements), "improvement")
            parts.append(f"{better}: commit the new baseline")
        return ", ".join(parts) or "as in the baseline"


def baseline_of(run: Run) -> dict[str, Any]:
    """The baseline of a run over a whole suite."""
    not_right: dict[str, list[str]] = {}
    for result in run.entries():
        if result.outcome is not Outcome.RIGHT:
            not_right.setdefault(str(result.outcome), []).append(result.id)
    return {
        "suite": run.suite.name,
        "sha256": run.suite.sha256,
        "engine": run.engine,
        "options": _options(run),
        "schemas": len(run.groups),
        "tests": run.suite.n_tests,
        "counts": _names(run.counts()),
        "refusals": {k: {"schemas": s, "tests": t} for k, (s, t) in run.refusals().items()},
        "by_topic": {topic: _names(counts) for topic, counts in run.by_topic().items()},
        "not_right": {name: sorted(not_right[name]) for name in sorted(not_right)},
    }


def compare(baseline: Mapping[str, Any], run: Run) -> Comparison:
    """Compare a run with a baseline. Raises SchemaError if they are not about the same thing."""
    for what, before, now in (
        ("engine", baseline["engine"], run.engine),
        ("options", baseline["options"], _options(run)),
        ("suite content", baseline["sha256"], run.suite.sha256),
    ):
        if before != now:
            raise SchemaError(
                f"the baseline of {baseline['suite']} has another {what} ({before}, now {now}); "
                f"use the same or write a new baseline"
            )
    before = {test: Outcome(o) for o, tests in baseline["not_right"].items() for test in tests}
    regressions: list[str] = []
    improvements: list[str] = []
    for result in run.entries():
        old = before.get(result.id, Outcome.RIGHT)
        if result.outcome is not old:
            detail = f" ({result.detail})" if result.detail else ""
            line = f"{result.id}: {old} -> {result.outcome}{detail}"
            worse = result.outcome.rank > old.rank
            (regressions if worse else improvements).append(line)
    return Comparison(tuple(regressions), tuple(improvements))


def read_baseline(path: Path) -> dict[str, Any]:
    """Read a baseline file. Raises SchemaError if there is none or it is not one."""
    try:
        value = json.loads(path.read_text("utf-8"))
    except FileNotFoundError as error:
        raise SchemaError(
            f"there is no baseline '{path}'; write it with --update-baseline"
        ) from error
    except (OSError, ValueError) as error:
        said = getattr(error, "strerror", None) or error
        raise SchemaError(f"cannot read the baseline '{path}': {said}") from error
    if not isinstance(value, dict) or not {"suite", "sha256", "not_right"} <= set(value):
        raise SchemaError(f"'{path}' is not a baseline of a suite")
    return value


def write_baseline(path: Path, run: Run) -> None:
    """Write the baseline of a run over a whole suite, one id per line, for readable diffs."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(baseline_of(run), indent=1, ensure_ascii=False)
    path.write_text(text + "\n", encoding="utf-8")


def _options(run: Run) -> dict[str, Any]:
    return {k: v for k, v in sorted(run.options.items()) if k != "resources"}


def _names(counts: Mapping[Outcome, int]) -> dict[str, int]:
    return {str(outcome): counts[outcome] for outcome in Outcome if counts.get(outcome)}


def _number(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"
