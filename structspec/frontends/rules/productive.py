"""Which rules some text completes, which the start rule reaches, and the removal of all others.

A rule that only ever leads to itself (`a: "x" a`) has no text. One that nothing reaches is dead
weight. Front ends of notations report both, and a start rule without a text is a mistake there.
A schema that nothing satisfies (a required member that requires itself without end, contradicting
bounds deep inside) is an honest empty language: `prune` leaves `ir.NOTHING` where it is used.

Cost: a few passes over the grammar; nodes that rules share are looked at until they are known to
have a text, once after that.

Example::

    >>> from structspec import ir
    >>> endless = ir.Sequence((ir.Bytes(b"x"), ir.Rule("a")))
    >>> sorted(productive_rules({"a": endless, "b": ir.Choice((ir.Rule("a"), ir.EPSILON))}))
    ['b']
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from structspec import ir
from structspec.frontends.rules.left_recursion import children, references

__all__ = ["productive_rules", "prune", "reachable_rules"]

# How often all rules are tried in turn before dependencies are followed one by one.
_PASSES = 3


def reachable_rules(rules: Mapping[str, ir.Node], start: str) -> set[str]:
    """The rules that the start rule can come to call, itself included."""
    found = {start}
    pending: list[ir.Node] = [rules[start]]
    seen: set[int] = set()
    while pending:
        node = pending.pop()
        if isinstance(node, ir.Rule):
            if node.name not in found:
                found.add(node.name)
                pending.append(rules[node.name])
        elif id(node) not in seen:
            seen.add(id(node))
            pending.extend(children(node))
    return found


def prune(
    rules: Mapping[str, ir.Node], start: str, tick: Callable[[], None] | None = None
) -> ir.GrammarIR:
    """The grammar of the rules, with unproductive ones emptied and what only they call removed."""
    productive = productive_rules(rules, tick)
    if len(productive) == len(rules):
        return ir.GrammarIR(rules, start)
    if start not in productive:
        return ir.GrammarIR({start: ir.NOTHING}, start)
    kept: dict[str, ir.Node] = {}
    queue = [start]
    for name in queue:
        if name not in kept:
            kept[name] = rules[name] if name in productive else ir.NOTHING
            queue.extend(references(kept[name]))
    return ir.GrammarIR(kept, start)


def productive_rules(
    rules: Mapping[str, ir.Node], tick: Callable[[], None] | None = None
) -> set[str]:
    """The rules that have at least one text; `tick` is called now and then and may raise."""
    search = _Search(rules)
    # Rules tend to be made before the rules that they call, so going backwards settles most.
    pending = list(rules)[::-1]
    for _ in range(_PASSES):
        left = [name for name in pending if not search.try_rule(name)]
        if not left or len(left) == len(pending):
            break
        pending = left
    if left:
        _follow(left, search, tick)
    return search.found


def _follow(pending: list[str], search: _Search, tick: Callable[[], None] | None) -> None:
    """Try the `pending` rules, each again as soon as one that it calls has a text."""
    callers: dict[str, list[str]] = {name: [] for name in pending}
    for name in pending:
        for callee in set(references(search.rules[name])):
            if callee in callers:
                callers[callee].append(name)
    queue = list(pending)
    for name in queue:
        if name not in search.found and search.try_rule(name):
            queue.extend(caller for caller in callers[name] if caller not in search.found)
        if tick is not None:
            tick()


class _Search:
    """The rules found so far, and the nodes (by id) known to have a text: both only ever grow."""

    def __init__(self, rules: Mapping[str, ir.Node]) -> None:
        self.rules = rules
        self.found: set[str] = set()
        self._nodes: set[int] = set()

    def try_rule(self, name: str) -> bool:
        """Whether the rule has a text, given what is known."""
        if self._productive(self.rules[name]):
            self.found.add(name)
            return True
        return False

    def _productive(self, node: Any) -> bool:
        # PERF: asked of most nodes of every grammar; the type is the quickest question.
        cls = type(node)
        if cls is ir.Bytes or cls is ir.Special:
            return True
        if cls is ir.Rule:
            return node.name in self.found
        if cls is ir.Chars:
            return bool(node.ranges)
        nodes = self._nodes
        if id(node) in nodes:
            return True
        if cls is ir.Sequence:
            for item in node.items:
                kind = type(item)
                if kind is ir.Bytes or (
                    # A character, mostly.
                    kind is ir.Choice and item.items and type(item.items[0]) is ir.Bytes
                ):
                    continue
                if kind is ir.Rule:
                    if item.name in self.found:
                        continue
                    return False
                if id(item) not in nodes and not self._productive(item):
                    return False
        elif cls is ir.Choice:
            for item in node.items:
                if type(item) is ir.Bytes or id(item) in nodes or self._productive(item):
                    break
            else:
                return False
        elif not self._generates(node, cls):
            return False
        nodes.add(id(node))
        return True

    def _generates(self, node: Any, cls: type) -> bool:
        if cls is ir.Repeat:
            empty = node.maximum is not None and node.maximum < node.minimum
            return not empty and (node.minimum == 0 or self._productive(node.item))
        if cls is ir.Variant:
            return self._productive(node.item)
        if cls is ir.Automaton:
            return self._reaches_acceptance(node)
        assert cls is ir.Members
        return self._enough_members(node)

    def _reaches_acceptance(self, node: ir.Automaton) -> bool:
        if isinstance(node.edges, ir.FlatEdges):
            return self._reaches_flat(node.edges, node.accepting)
        known: dict[int, bool] = {}
        seen, stack = {0}, [0]
        while stack:
            state = stack.pop()
            if state in node.accepting:
                return True
            for label, target in node.edges[state]:
                if target in seen:
                    continue
                if id(label) not in known:
                    known[id(label)] = self._productive(label)
                if known[id(label)]:
                    seen.add(target)
                    stack.append(target)
        return False

    def _reaches_flat(self, edges: ir.FlatEdges, accepting: frozenset[int]) -> bool:
        usable = [self._productive(label) for label in edges.labels]
        cuts, labels, targets = edges.cuts.tolist(), edges.label.tolist(), edges.target.tolist()
        seen, stack = {0}, [0]
        while stack:
            state = stack.pop()
            if state in accepting:
                return True
            for k in range(cuts[state], cuts[state + 1]):
                if usable[labels[k]] and targets[k] not in seen:
                    seen.add(targets[k])
                    stack.append(targets[k])
        return False

    def _enough_members(self, node: ir.Members) -> bool:
        needed = max(node.minimum, sum(member.required for member in node.members))
        if node.maximum is not None and node.maximum < needed:
            return False
        if needed > 1 and not self._productive(node.separator):
            return False
        possible = 0
        for member in node.members:
            if member.required or possible < needed:
                if self._productive(member.key) and self._productive(member.value):
                    possible += needed if member.repeatable else 1
                elif member.required:
                    return False
        return possible >= needed
