"""Large rule bodies cut into rules, so that determinising each stays cheap.

The network determinises one rule at a time, and calls of other rules stay nondeterministic in it. A
body with many calls that can follow each other in many ways has exponentially many subsets of
places; the same body in several rules has few each, and the pushdown automaton follows all of them
at once. `split` gives composite parts of heavy bodies rules of their own; equal parts share one.

Invariant: the language is unchanged, and so is every rule with at most `MOST_CALLS` calls.
Cost: linear; a few more frames at run time. Without it some of the random grammars of
`tests/grammars` pass the time limit.

Example::

    >>> from structspec import ir
    >>> pair = ir.sequence([ir.Rule("x"), ir.Rule("x")])
    >>> body = ir.Repeat(ir.choice([ir.sequence([pair] * n) for n in range(1, 6)]), 0, None)
    >>> sorted(split({"r": body, "x": ir.Bytes(b"x")}))
    ['r', 'r:1', 'r:2', 'r:3', 'r:4', 'r:5', 'r:6', 'x']
"""

from __future__ import annotations

from collections.abc import Mapping

from structspec import ir

__all__ = ["MOST_CALLS", "split"]

#: Bodies with more calls than this are cut.
MOST_CALLS = 10


def split(rules: Mapping[str, ir.Node]) -> dict[str, ir.Node]:
    """The rules with heavy bodies cut; names of new rules end in ":number"."""
    found: dict[str, ir.Node] = {}
    for name, node in rules.items():
        found[name] = _Cutter(name, found, rules).body(node) if _calls(node) > MOST_CALLS else node
    return found


def _calls(node: ir.Node) -> int:
    """How many rules a body calls, counting repetitions."""
    match node:
        case ir.Rule():
            return 1
        case ir.Sequence(items) | ir.Choice(items):
            return sum(map(_calls, items))
        case ir.Repeat(item, minimum, maximum):
            # Small counts are written out.
            copies = maximum if maximum is not None else minimum
            return _calls(item) * min(max(copies, 1), 4)
        case ir.Variant(item):
            return _calls(item)
        case ir.Automaton(edges, _):
            return sum(_calls(label) for row in edges for label, _ in row)
    return 0


class _Cutter:
    def __init__(self, name: str, rules: dict[str, ir.Node], taken: Mapping[str, ir.Node]) -> None:
        self._name = name
        self._rules = rules
        self._taken = taken
        self._made: dict[ir.Node, ir.Rule] = {}

    def body(self, node: ir.Node) -> ir.Node:
        """The node with its heavy parts as rules; the node itself stays."""
        match node:
            case ir.Sequence(items):
                return ir.sequence(map(self._part, items))
            case ir.Choice(items):
                return ir.choice(map(self._part, items))
            case ir.Repeat(item, minimum, maximum):
                return ir.Repeat(self._part(item), minimum, maximum)
            case ir.Variant(item):
                return ir.Variant(self.body(item))
            case ir.Automaton(edges, accepting, longest):
                rows = tuple(
                    tuple((self._part(label), target) for label, target in row) for row in edges
                )
                return ir.Automaton(rows, accepting, longest)
        return node

    def _part(self, node: ir.Node) -> ir.Node:
        if _calls(node) < 2:
            return node
        found = self._made.get(node)
        if found is None:
            inner = self.body(node) if _calls(node) > MOST_CALLS // 2 else node
            number = len(self._made) + 1
            while f"{self._name}:{number}" in self._rules or (
                f"{self._name}:{number}" in self._taken
            ):
                number += 1
            found = self._made[node] = ir.Rule(f"{self._name}:{number}")
            self._rules[found.name] = inner
        return found
