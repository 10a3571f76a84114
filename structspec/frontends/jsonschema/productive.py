"""Rules that generate something, and the removal of all others.

A schema that nothing satisfies (a required member that requires itself without end, contradicting
bounds deep inside) leaves rules without any finite text. They become `ir.NOTHING`; if the start
rule is one of them, so does the grammar. Cost: a few passes over the rules.
"""

from __future__ import annotations

from structspec import ir
from structspec.frontends.jsonschema.budget import spend

__all__ = ["prune"]

_PASSES = 3


def prune(rules: dict[str, ir.Node], start: str) -> ir.GrammarIR:
    """The grammar of the rules, with unproductive ones emptied and what only they call removed."""
    good: set[str | int] = set()
    # Rules tend to be made before the rules that they call, so going backwards settles most.
    pending = list(reversed(rules))
    for _ in range(_PASSES):
        left = [name for name in pending if not _productive(rules[name], good, name)]
        if len(left) == len(pending):
            break
        pending = left
    if not pending:
        return ir.GrammarIR(rules, start)
    _settle(pending, rules, good)
    if start not in good:
        return ir.GrammarIR({start: ir.NOTHING}, start)
    kept: dict[str, ir.Node] = {}
    queue = [start]
    for name in queue:
        if name not in kept:
            kept[name] = rules[name] if name in good else ir.NOTHING
            queue.extend(_called(kept[name]))
    return ir.GrammarIR(kept, start)


def _settle(pending: list[str], rules: dict[str, ir.Node], good: set[str | int]) -> None:
    """Add the productive rules among `pending` to `good`, each as soon as what it calls is."""
    callers: dict[str, list[str]] = {name: [] for name in pending}
    for name in pending:
        for callee in _called(rules[name]):
            if callee in callers:
                callers[callee].append(name)
    queue = list(pending)
    for name in queue:
        if name not in good and _productive(rules[name], good, name):
            queue.extend(caller for caller in callers[name] if caller not in good)
        spend()


def _productive(node: ir.Node, good: set[str | int], name: str = "") -> bool:
    """Whether `node` generates some text, given what is known to.

    `good` holds the names of rules and the ids of nodes; the node is added if it does.
    """
    if isinstance(node, ir.Bytes | ir.Special):
        result = True
    elif isinstance(node, ir.Chars):
        result = bool(node.ranges)
    elif id(node) in good:
        result = True
    else:
        result = _generates(node, good)
        if result:
            good.add(id(node))
    if result and name:
        good.add(name)
    return result


def _generates(node: ir.Node, good: set[str | int]) -> bool:
    if isinstance(node, ir.Sequence):
        return all(_productive(item, good) for item in node.items)
    if isinstance(node, ir.Choice):
        return any(_productive(item, good) for item in node.items)
    if isinstance(node, ir.Repeat):
        empty = node.maximum is not None and node.maximum < node.minimum
        return not empty and (node.minimum == 0 or _productive(node.item, good))
    if isinstance(node, ir.Rule):
        return node.name in good
    if isinstance(node, ir.Variant):
        return _productive(node.item, good)
    if isinstance(node, ir.Automaton):
        return _reaches_acceptance(node, good)
    assert isinstance(node, ir.Members)
    return _enough_members(node, good)


def _reaches_acceptance(node: ir.Automaton, good: set[str | int]) -> bool:
    known: dict[int, bool] = {}
    seen = {0}
    stack = [0]
    while stack:
        state = stack.pop()
        if state in node.accepting:
            return True
        for label, target in node.edges[state]:
            if target in seen:
                continue
            if id(label) not in known:
                known[id(label)] = _productive(label, good)
            if known[id(label)]:
                seen.add(target)
                stack.append(target)
    return False


def _enough_members(node: ir.Members, good: set[str | int]) -> bool:
    most = float("inf") if node.maximum is None else node.maximum
    if most < max(node.minimum, sum(member.required for member in node.members)):
        return False
    possible = 0
    for member in node.members:
        if member.required or possible < node.minimum:
            if _productive(member.key, good) and _productive(member.value, good):
                possible += node.minimum if member.repeatable else 1
            elif member.required:
                return False
    return possible >= node.minimum


def _called(node: ir.Node) -> list[str]:
    names: dict[str, None] = {}
    seen: set[int] = set()
    stack = [node]
    while stack:
        top = stack.pop()
        if id(top) in seen:
            continue
        seen.add(id(top))
        if isinstance(top, ir.Rule):
            names[top.name] = None
        elif isinstance(top, ir.Sequence | ir.Choice):
            stack.extend(top.items)
        elif isinstance(top, ir.Repeat | ir.Variant):
            stack.append(top.item)
        elif isinstance(top, ir.Automaton):
            stack.extend(label for edges in top.edges for label, _ in edges)
        elif isinstance(top, ir.Members):
            stack.append(top.separator)
            for member in top.members:
                stack.extend((member.key, member.value))
    return list(names)
