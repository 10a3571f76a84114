"""The last step of every notation for grammars: rules checked, left recursion gone, a report.

Owns `finish`. Rules that nothing uses are left out. A start rule that no text completes is a
mistake in the grammar (an empty language on purpose is what schemas are for); other rules of that
kind are only reported, since the alternatives that use them are merely useless.

Cost: linear, except for left recursion (see `left_recursion`).
"""

from __future__ import annotations

from collections.abc import Mapping

from structspec import ir
from structspec.frontends.rules.left_recursion import rewrite_left_recursion
from structspec.frontends.rules.lengths import LONGEST, overlong
from structspec.frontends.rules.productive import productive_rules, reachable_rules
from structspec.frontends.rules.source import Source
from structspec.frontends.rules.split import split
from structspec.report import Entry

__all__ = ["finish"]


def finish(
    rules: Mapping[str, ir.Node],
    start: str,
    source: Source,
    places: Mapping[str, int],
    notes: Mapping[str, str],
    shown: str | None = None,
) -> tuple[ir.GrammarIR, list[Entry]]:
    """The grammar of `start`, and one entry per rule that has a place.

    places: where each rule is defined in `source.text`; rules without one are not reported.
    notes: more to say about a rule.
    shown: what the user calls the start rule, if not `start`.

    Raises `SchemaError` if no text completes the start rule and `UnsupportedFeature` if the
    shortest one is absurdly long.
    """
    productive = productive_rules(rules)
    if start not in productive:
        raise source.error(
            places.get(shown or start, 0),
            f"no text completes the rule '{shown or start}': every way through it leads back into "
            "itself or to nothing; give it an alternative that ends",
        )
    length = overlong(rules, start)
    if length is not None:
        raise source.refusal(
            "repetition",
            places.get(shown or start, 0),
            f"the shortest text of '{shown or start}' would take {length:,} bytes, and {LONGEST:,} "
            "are the most; lower the counts, which multiply where they stand inside of each other",
        )
    used = reachable_rules(rules, start)
    rewritten = rewrite_left_recursion(
        ir.GrammarIR({name: node for name, node in rules.items() if name in used}, start)
    )
    grammar = ir.GrammarIR(split(rewritten.rules), start)
    entries = []
    for name, place in places.items():
        said = [notes[name]] if name in notes else []
        if name not in used:
            said.append(f"not used by '{shown or start}'")
        elif name not in productive:
            said.append("no text completes it, so alternatives with it are never taken")
        elif rewritten.rules[name] is not rules[name]:
            said.append("left recursion rewritten")
        line, _ = source.position(place)
        entries.append(Entry(f"line {line}", name, "exact", "; ".join(said)))
    return grammar, entries
