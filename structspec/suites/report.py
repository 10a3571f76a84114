"""Showing runs: a table by topic with engines side by side, JSON, JUnit XML.

`table` is plain text (topics down, outcomes of each engine across, then refusals by keyword and
the tests that went wrong); `as_json` holds everything; `junit` has a suite per engine and topic,
where wrong answers are failures, crashes, timeouts and files that cannot be read errors, and
refusals skipped.

Example: ``print(table([run_suite(suite, "structspec"), run_suite(suite, "xgrammar")]))``.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any
from xml.etree import ElementTree

from structspec.suites.outcome import GroupResult, Outcome, Run

__all__ = ["as_json", "junit", "quantiles", "table"]

# Columns that are shown even if they are zero everywhere.
_ALWAYS = (
    Outcome.RIGHT,
    Outcome.REFUSED,
    Outcome.FALSE_REJECT,
    Outcome.FALSE_ACCEPT,
)
# Narrower names where engines stand side by side.
_SHORT = {Outcome.FALSE_REJECT: "f.reject", Outcome.FALSE_ACCEPT: "f.accept"}
# What XML 1.0 cannot hold.
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def table(runs: Sequence[Run], *, by_topic: bool = True, show: int = 20) -> str:
    """The runs of one suite as text; at most `show` wrong tests of each engine are listed."""
    suite = runs[0].suite
    parts = [f"{suite.name}: {len(suite.groups)} schemas, {suite.n_tests} tests"]
    parts.append(_matrix(runs, by_topic))
    for run in runs:
        parts.append(_summary(run))
        refused = run.refusals()
        if refused:
            rows = [("refused for", "schemas", "tests")]
            rows += [(keyword, str(s), str(t)) for keyword, (s, t) in refused.items()]
            parts.append(_aligned(rows))
        parts.extend(_faults(run, show))
    return "\n\n".join(part for part in parts if part)


def quantiles(run: Run) -> dict[str, float]:
    """Compile seconds of the schemas that compiled: p50, p99 and max (empty if there are none)."""
    times = sorted(g.compile_seconds for g in run.groups if g.compile_seconds is not None)
    if not times:
        return {}
    last = len(times) - 1
    return {"p50": times[last // 2], "p99": times[(last * 99 + 99) // 100], "max": times[-1]}


def _matrix(runs: Sequence[Run], by_topic: bool) -> str:
    columns = [outcome for outcome in Outcome if _shown(outcome, runs)]
    tables = [run.by_topic() for run in runs]
    totals: list[Counter[Outcome]] = [run.counts() for run in runs]
    several = len(runs) > 1
    head = ["topic", "tests"]
    for _ in runs:
        head += [_SHORT.get(c, c) if several else c for c in columns]

    def row(name: str, counts: Iterable[Counter[Outcome]]) -> list[str]:
        cells = list(counts)
        return [name, str(cells[0].total()), *(str(c[o] or "·") for c in cells for o in columns)]

    rows = [head]
    if by_topic:
        rows += [row(topic, [t[topic] for t in tables]) for topic in tables[0]]
    rows.append(row("all", totals))
    if several:
        engines = [run.engine if i == 0 else "" for run in runs for i in range(len(columns))]
        rows.insert(0, ["", "", *engines])
    return _aligned(rows)


def _shown(outcome: Outcome, runs: Sequence[Run]) -> bool:
    return outcome in _ALWAYS or any(run.counts()[outcome] for run in runs)


def _summary(run: Run) -> str:
    counts = run.counts()
    total = counts.total()
    lines = [f"{run.engine} {run.version}, {run.seconds:.0f} s".strip()]
    if total:
        share = ", ".join(
            f"{counts[o]} {o} ({counts[o] / total:.1%})" for o in Outcome if counts[o]
        )
        lines.append(share)
    compiled = sum(group.compile_seconds is not None for group in run.groups)
    times = quantiles(run)
    if times:
        spent = ", ".join(f"{name} {1000 * value:.1f} ms" for name, value in times.items())
        lines.append(f"{compiled} of {len(run.groups)} schemas compiled: {spent}")
    lines += [f"note: {note}" for note in run.notes]
    return "\n".join(lines)


def _faults(run: Run, show: int) -> Iterable[str]:
    lines = [
        f"{result.outcome}: {result.id}{f' ({result.detail})' if result.detail else ''}"
        for result in sorted(run.bad(), key=lambda result: -result.outcome.rank)
    ]
    lines += [
        f"refused although the suite wants it compiled: {group.id} ({group.detail})"
        for group in run.groups
        if group.forbidden_refusal
    ]
    if lines:
        more = [f"… and {len(lines) - show} more; --json has them all"] if len(lines) > show else []
        yield "\n".join(lines[:show] + more)


def _aligned(rows: Sequence[Sequence[str]]) -> str:
    widths = [max(len(str(row[i])) for row in rows) for i in range(len(rows[0]))]
    return "\n".join(
        "  ".join(
            str(cell).ljust(width) if i == 0 else str(cell).rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    )


def as_json(runs: Sequence[Run]) -> dict[str, Any]:
    """Everything about the runs of one suite, as a JSON value."""
    suite = runs[0].suite
    return {
        "suite": suite.name,
        "sha256": suite.sha256,
        "schemas": len(suite.groups),
        "tests": suite.n_tests,
        "runs": [
            {
                "engine": run.engine,
                "version": run.version,
                "notes": list(run.notes),
                "options": {k: v for k, v in run.options.items() if k != "resources"},
                "seconds": round(run.seconds, 3),
                "compile_seconds": quantiles(run),
                "counts": {str(o): n for o, n in _ordered(run.counts())},
                "refusals": {k: {"schemas": s, "tests": t} for k, (s, t) in run.refusals().items()},
                "groups": [_group(group) for group in run.groups],
            }
            for run in runs
        ],
    }


def _ordered(counts: Counter[Outcome]) -> Iterable[tuple[Outcome, int]]:
    return ((outcome, counts[outcome]) for outcome in Outcome if counts[outcome])


def _group(group: GroupResult) -> dict[str, Any]:
    entry: dict[str, Any] = {"id": group.id, "topic": group.topic}
    if group.compile_seconds is not None:
        entry["compile_seconds"] = round(group.compile_seconds, 6)
    if group.refusal is not None:
        refusal = group.refusal
        entry["refusal"] = {
            "kind": refusal.kind,
            "keyword": refusal.keyword,
            "pointer": refusal.pointer,
            "reason": refusal.reason,
        }
    if group.failure is not None:
        entry["failure"] = str(group.failure)
        entry["detail"] = group.detail
    entry["tests"] = [
        {"id": t.id, "outcome": str(t.outcome), **({"detail": t.detail} if t.detail else {})}
        for t in group.tests
    ]
    return entry


def junit(runs: Sequence[Run]) -> str:
    """JUnit XML, as continuous-integration services read it."""
    root = ElementTree.Element("testsuites", name=_xml(runs[0].suite.name))
    for run in runs:
        topics: dict[str, ElementTree.Element] = {}
        for group in run.groups:
            holder = topics.get(group.topic)
            if holder is None:
                name = _xml(f"{run.engine}: {group.topic}")
                holder = topics[group.topic] = ElementTree.SubElement(root, "testsuite", name=name)
            for result in group.tests:
                case = ElementTree.SubElement(
                    holder, "testcase", classname=_xml(run.engine), name=_xml(result.id)
                )
                tag = _TAGS.get(result.outcome)
                if tag is not None:
                    message = f"{result.outcome}: {result.detail}".removesuffix(": ")
                    ElementTree.SubElement(case, tag, message=_xml(message))
        for holder in topics.values():
            for attribute, tag in (
                ("tests", "testcase"),
                ("failures", "testcase/failure"),
                ("errors", "testcase/error"),
                ("skipped", "testcase/skipped"),
            ):
                holder.set(attribute, str(len(holder.findall(tag))))
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


_TAGS = {
    Outcome.FALSE_ACCEPT: "failure",
    Outcome.FALSE_REJECT: "failure",
    Outcome.CRASH: "error",
    Outcome.TIMEOUT: "error",
    Outcome.UNREADABLE: "error",
    Outcome.REFUSED: "skipped",
    Outcome.DECLINED: "skipped",
}


def _xml(text: str) -> str:
    return _NOT_XML.sub("\ufffd", text)
