"""Which rules some text completes, and which the start rule reaches.

A rule that only ever leads to itself (`a: "x" a`) has no text. One that nothing reaches is dead
weight. Front ends report both; a start rule without a text is a mistake.

Cost: linear in the grammar.
"""

from __future__ import annotations

from collections.abc import Mapping

from structspec import ir
from structspec.frontends.rules.left_recursion import children, nullable_rules, references

__all__ = ["productive_rules", "reachable_rules"]


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


def productive_rules(rules: Mapping[str, ir.Node]) -> set[str]:
    """The rules that have at least one text."""
    found = {name for name, empty in nullable_rules(rules).items() if empty}
    users: dict[str, list[str]] = {name: [] for name in rules}
    for name, node in rules.items():
        for other in set(references(node)):
            users[other].append(name)
    pending = list(rules)
    while pending:
        name = pending.pop()
        if name not in found and _productive(rules[name], found):
            found.add(name)
            pending.extend(users[name])
        elif name in found and users[name]:
            pending.extend(user for user in users[name] if user not in found)
            users[name] = []
    return found


def _productive(node: ir.Node, rules: set[str]) -> bool:
    if isinstance(node, ir.Rule):
        return node.name in rules
    if isinstance(node, ir.Chars):
        return bool(node.ranges)
    if isinstance(node, ir.Sequence):
        return all(_productive(item, rules) for item in node.items)
    if isinstance(node, ir.Choice):
        return any(_productive(item, rules) for item in node.items)
    if isinstance(node, ir.Repeat):
        if node.maximum is not None and node.maximum < node.minimum:
            return False
        return node.minimum == 0 or _productive(node.item, rules)
    if isinstance(node, ir.Variant):
        return _productive(node.item, rules)
    if isinstance(node, ir.Automaton):
        seen, pending = {0}, [0]
        while pending:
            state = pending.pop()
            if state in node.accepting:
                return True
            for label, target in node.edges[state]:
                if target not in seen and _productive(label, rules):
                    seen.add(target)
                    pending.append(target)
        return False
    if isinstance(node, ir.Members):
        writable = [
            member
            for member in node.members
            if _productive(member.key, rules) and _productive(member.value, rules)
        ]
        if any(member.required and member not in writable for member in node.members):
            return False
        if len(writable) < node.minimum and not any(m.repeatable for m in writable):
            return False
        return node.minimum <= 1 or _productive(node.separator, rules)
    return True
