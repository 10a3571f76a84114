"""The length of the shortest text of a grammar, and a refusal where it is absurd.

Counts inside counts multiply: `(("a"{10000}){10000}){10000}` has one text, of 10^12 bytes. Automata
count what is missing up to a bound, so a grammar whose shortest text is longer would look empty;
it is refused by name instead.

Invariant: `shortest_text` is never more than the true length (of members in any order it counts the
required ones only). Cost: a glance at the counts where they are small; else a fixed point over the
rules.

Example::

    >>> shortest_text({"s": ir.Repeat(ir.Rule("t"), 3, None), "t": ir.Bytes(b"ab")}, "s")
    6
"""

from __future__ import annotations

from collections.abc import Mapping

from structspec import ir
from structspec.frontends.rules.left_recursion import children, references

__all__ = ["LONGEST", "overlong", "shortest_text"]

#: The longest shortest text that is taken, in bytes.
LONGEST = 1 << 27


def overlong(rules: Mapping[str, ir.Node], start: str) -> int | None:
    """The length of the shortest text of `start` if that is more than `LONGEST`, else None."""
    if _product(rules) <= 1 << 16:
        return None
    length = shortest_text(rules, start)
    return length if length is not None and length > LONGEST else None


def _product(rules: Mapping[str, ir.Node]) -> int:
    """What all counts of the grammar come to, multiplied, as far as that matters."""
    product = 1
    seen: set[int] = set()
    pending = list(rules.values())
    while pending and product <= 1 << 16:
        node = pending.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        if isinstance(node, ir.Repeat):
            product *= max(node.minimum, 1)
        pending.extend(children(node))
    return product


def shortest_text(rules: Mapping[str, ir.Node], start: str) -> int | None:
    """The bytes of the shortest text, special tokens as none; None if there is no text."""
    users: dict[str, set[str]] = {name: set() for name in rules}
    for name, node in rules.items():
        for other in references(node):
            users[other].add(name)
    found: dict[str, int] = {}
    pending = list(rules)
    while pending:
        name = pending.pop()
        length = _shortest(rules[name], found)
        if length is not None and length < found.get(name, length + 1):
            found[name] = length
            pending.extend(users[name])
    return found.get(start)


def _shortest(node: ir.Node, rules: Mapping[str, int]) -> int | None:
    match node:
        case ir.Rule(name):
            return rules.get(name)
        case ir.Bytes(value):
            return len(value)
        case ir.Chars(ranges):
            return len(chr(ranges[0][0]).encode("utf-8", "surrogatepass")) if ranges else None
        case ir.Sequence(items):
            return _sum([_shortest(item, rules) for item in items])
        case ir.Choice(items):
            return min((n for i in items if (n := _shortest(i, rules)) is not None), default=None)
        case ir.Repeat(item, minimum, _):
            one = _shortest(item, rules) if minimum else 0
            return None if one is None else minimum * one
        case ir.Variant(item):
            return _shortest(item, rules)
        case ir.Automaton():
            return _path(node, rules)
        case ir.Members(members):
            owed = [n for m in members if m.required for n in (m.key, m.value)]
            return _sum([_shortest(part, rules) for part in owed])
    return 0


def _sum(lengths: list[int | None]) -> int | None:
    total = 0
    for length in lengths:
        if length is None:
            return None
        total += length
    return total


def _path(node: ir.Automaton, rules: Mapping[str, int]) -> int | None:
    """The shortest way from state 0 to an accepting state."""
    best = {0: 0}
    pending = [0]
    while pending:
        state = pending.pop()
        for label, target in node.edges[state]:
            step = _shortest(label, rules)
            if step is not None and best[state] + step < best.get(target, best[state] + step + 1):
                best[target] = best[state] + step
                pending.append(target)
    return min((best[state] for state in node.accepting if state in best), default=None)
