"""The figures of the tool-call benchmark: counts and shares by way, and their table.

Sibling: `call_tools`, which makes the answers.

Example::

    >>> a = Answer("t", "greedy", True, True, False, 20, 4, "<tool_call>…")
    >>> summarise([a])["greedy"]["tokens_per_forward"]
    5.0
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["MARKER", "PAIR", "TIE", "Answer", "summarise", "table"]

#: What marks the table's place in a page, see `pages`.
MARKER = "bench.call_tools"
#: The two ways whose replies must be identical.
PAIR = ("greedy", "greedy, no drafts")
#: Two logits closer than this are a tie in float32: the rounding of a dot product of width 576.
TIE = 1e-3


@dataclass(frozen=True)
class Answer:
    """One reply: how it was made and what it is worth.

    error: why it is no call. gap: where the reply without drafts differs, the distance of the two
    logits at the first difference.
    """

    id: str
    way: str
    parsed: bool
    valid: bool
    accepted: bool
    tokens: int
    forwards: int
    text: str
    error: str = ""
    gap: float | None = None


def summarise(answers: Sequence[Answer]) -> dict[str, Any]:
    """Counts and shares by way; how many greedy replies agree with and without drafts."""
    summary: dict[str, Any] = {}
    for way in dict.fromkeys(a.way for a in answers):
        rows = [a for a in answers if a.way == way]
        summary[way] = {
            "tasks": len(rows),
            "parsed": sum(a.parsed for a in rows),
            "valid": sum(a.valid for a in rows),
            "accepted": sum(a.accepted for a in rows),
            "tokens": sum(a.tokens for a in rows),
            "tokens_per_forward": round(
                sum(a.tokens for a in rows) / max(1, sum(a.forwards for a in rows)), 3
            ),
        }
    found = {(a.id, a.way): a for a in answers}
    pairs = [(a, found.get((a.id, PAIR[1]))) for a in answers if a.way == PAIR[0]]
    both = [(a, b) for a, b in pairs if b is not None]
    apart = [a for a, b in both if a.text != b.text]
    ties = [a for a in apart if a.gap is not None and a.gap < TIE]
    summary["greedy_pairs"] = {
        "tasks": len(both),
        "identical": len(both) - len(apart),
        "ties": [{"id": a.id, "gap": a.gap} for a in ties],
        "different": [{"id": a.id, "gap": a.gap} for a in apart if a not in ties],
    }
    return summary


def table(report: Mapping[str, Any]) -> str:
    """The figures as Markdown."""
    machine, summary = report["machine"], report["summary"]
    lines = [
        f"{report['model']}, {machine['cores']}-core {machine['processor']}; "
        f"`{report['command']}`.",
        "",
        "| replies | tasks | read as calls | fit their schemas | match an accepted answer | "
        "tokens per forward |",
        "|" + "---|" * 6,
    ]
    for way, row in summary.items():
        if way == "greedy_pairs":
            continue
        shares = [
            f"{row[k]} ({row[k] / row['tasks']:.0%})" for k in ("parsed", "valid", "accepted")
        ]
        cells = [
            way,
            row["tasks"],
            *shares,
            f"{row['tokens_per_forward']:.2f}",
        ]
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    pairs = summary["greedy_pairs"]
    lines += ["", f"Greedy replies with and without drafts: {_said(pairs)}."]
    return "\n".join(lines)


def _said(pairs: Mapping[str, Any]) -> str:
    said = f"identical in {pairs['identical']} of {pairs['tasks']} tasks"
    for key, name in (("ties", "ties of two logits"), ("different", "different without a tie")):
        if pairs[key]:
            listed = ", ".join(
                row["id"] + ("" if row["gap"] is None else f" ({row['gap']:.1g} apart)")
                for row in pairs[key]
            )
            said += f"; {name}: {len(pairs[key])}, {listed}"
    return said
