"""Grammar IR as JSON values and back, for saved grammars that keep their rules.

Owns `encode` and `decode`. Equal nodes are written once: a node is a list of its kind and fields,
and children are numbers of nodes written before it, so shared parts stay shared and depth costs
nothing. Cost: linear in the number of different nodes.

Invariant: `decode(encode(grammar)) == grammar`. Sibling: `masks.serial`, which writes networks.

Example::

    >>> from structspec import ir
    >>> grammar = ir.GrammarIR({"s": ir.Repeat(ir.Bytes(b"a"), 1, None)}, "s")
    >>> encode(grammar)["nodes"]
    [['Bytes', 'a'], ['Repeat', 0, 1, None]]
    >>> decode(encode(grammar)) == grammar
    True
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from structspec import ir
from structspec.errors import SerializationError

__all__ = ["decode", "encode"]


def encode(grammar: ir.GrammarIR) -> dict[str, Any]:
    """The grammar as a JSON value."""
    writer = _Writer()
    rules = {name: writer.number(node) for name, node in grammar.rules.items()}
    return {"nodes": writer.nodes, "rules": rules, "start": grammar.start}


def decode(value: Mapping[str, Any]) -> ir.GrammarIR:
    """What `encode` was given. Raises `SerializationError` for anything else."""
    nodes: list[ir.Node] = []
    try:
        for item in value["nodes"]:
            nodes.append(_node(item, nodes))
        rules = {str(name): nodes[_place(number, nodes)] for name, number in value["rules"].items()}
        grammar = ir.GrammarIR(rules, str(value["start"]))
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        raise SerializationError(f"the saved rules are inconsistent: {error!r}") from error
    if grammar.start not in rules:
        raise SerializationError(f"the saved rules lack their start rule {grammar.start!r}")
    return grammar


class _Writer:
    def __init__(self) -> None:
        self.nodes: list[list[Any]] = []
        self._numbers: dict[ir.Node, int] = {}
        self._known: dict[int, int] = {}
        self._alive: list[ir.Node] = []  # keeps the nodes whose id is a key

    def number(self, root: ir.Node) -> int:
        """The number of a node; nodes below it get theirs first, without recursion."""
        stack = [root]
        while stack:
            node = stack[-1]
            if id(node) in self._known:
                stack.pop()
                continue
            missing = [child for child in _children(node) if id(child) not in self._known]
            if missing:
                stack.extend(missing)
                continue
            written = [self._known[id(child)] for child in _children(node)]
            row = _row(node, written)
            number = self._numbers.setdefault(_key(row), len(self.nodes))
            if number == len(self.nodes):
                self.nodes.append(row)
            self._known[id(node)] = number
            self._alive.append(node)
            stack.pop()
        return self._known[id(root)]


def _key(row: list[Any]) -> Any:
    return tuple(_key(item) if isinstance(item, list) else item for item in row)


def _children(node: ir.Node) -> Sequence[ir.Node]:
    match node:
        case ir.Sequence(items) | ir.Choice(items):
            return items
        case ir.Repeat(item, _, _) | ir.Variant(item):
            return (item,)
        case ir.Automaton(edges, _):
            return [label for row in edges for label, _ in row]
        case ir.Members(members, separator):
            return [*(n for m in members for n in (m.key, m.value)), separator]
    return ()


def _row(node: ir.Node, children: list[int]) -> list[Any]:
    kind = type(node).__name__
    match node:
        case ir.Bytes(value):
            return [kind, value.decode("latin-1")]
        case ir.Chars(ranges):
            return [kind, [list(pair) for pair in ranges]]
        case ir.Special(name):
            return [kind, name]
        case ir.Rule(name, called):
            return [kind, name, called] if called else [kind, name]
        case ir.Repeat(_, minimum, maximum):
            return [kind, children[0], minimum, maximum]
        case ir.Variant():
            return [kind, children[0]]
        case ir.Automaton(edges, accepting):
            labels = iter(children)
            rows = [[[next(labels), target] for _, target in row] for row in edges]
            return [kind, rows, sorted(accepting)]
        case ir.Members(members, _, order, minimum, maximum):
            pairs = [
                [children[2 * i], children[2 * i + 1], m.required, m.repeatable]
                for i, m in enumerate(members)
            ]
            return [kind, pairs, children[-1], order, minimum, maximum]
    return [kind, children]  # a sequence or a choice


def _place(number: Any, nodes: Sequence[ir.Node]) -> int:
    if not isinstance(number, int) or not 0 <= number < len(nodes):
        raise ValueError(f"{number!r} is no node written before")
    return number


def _node(row: Sequence[Any], nodes: Sequence[ir.Node]) -> ir.Node:
    def at(number: Any) -> ir.Node:
        return nodes[_place(number, nodes)]

    match row:
        case ["Bytes", str(value)]:
            return ir.Bytes(value.encode("latin-1"))
        case ["Chars", list(ranges)]:
            return ir.Chars(tuple((int(low), int(high)) for low, high in ranges))
        case ["Special", str(name)]:
            return ir.Special(name)
        case ["Rule", str(name)]:
            return ir.Rule(name)
        case ["Rule", str(name), True]:
            return ir.Rule(name, called=True)
        case ["Sequence", list(items)]:
            return ir.Sequence(tuple(map(at, items)))
        case ["Choice", list(items)]:
            return ir.Choice(tuple(map(at, items)))
        case ["Repeat", item, int(minimum), maximum]:
            return ir.Repeat(at(item), minimum, None if maximum is None else int(maximum))
        case ["Variant", item]:
            return ir.Variant(at(item))
        case ["Automaton", list(rows), list(accepting)]:
            edges = tuple(tuple((at(label), int(target)) for label, target in r) for r in rows)
            return ir.Automaton(edges, frozenset(map(int, accepting)))
        case ["Members", list(pairs), separator, "declared" | "any" as order, int(least), most]:
            members = tuple(
                ir.Member(at(key), at(value), bool(required), bool(repeatable))
                for key, value, required, repeatable in pairs
            )
            most = None if most is None else int(most)
            return ir.Members(members, at(separator), order, least, most)
    raise ValueError(f"{str(row)[:60]!r} is no node")
