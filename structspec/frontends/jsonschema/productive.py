"""Rules that generate something, and the removal of all others.

A schema that nothing satisfies (a required member that requires itself without end, contradicting
bounds deep inside) leaves rules without any finite text. They become `ir.NOTHING`; if the start
rule is one of them, so does the grammar. Cost: a few passes over the rules.
"""

from __future__ import annotations

from structspec import ir

__all__ = ["prune"]


def prune(rules: dict[str, ir.Node], start: str) -> ir.GrammarIR:
    """The grammar of the rules that `start` reaches, with unproductive rules emptied."""
    good: set[str] = set()
    # Rules tend to be made before the rules that they call, so going backwards settles most.
    pending = list(reversed(rules))
    while True:
        left = [name for name in pending if not _productive(rules[name], good, name)]
        if len(left) == len(pending):
            break
        pending = left
    if start not in good:
        return ir.GrammarIR({start: ir.NOTHING}, start)
    kept: dict[str, ir.Node] = {}
    queue = [start]
    for name in queue:
        if name not in kept:
            kept[name] = rules[name] if name in good else ir.NOTHING
            queue.extend(_called(kept[name]))
    return ir.GrammarIR(kept, start)


def _productive(node: ir.Node, good: set[str], name: str = "") -> bool:
    """Whether `node` generates some text, given the rules known to; adds `name` if it does."""
    if isinstance(node, ir.Bytes | ir.Special):
        result = True
    elif isinstance(node, ir.Chars):
        result = bool(node.ranges)
    elif isinstance(node, ir.Sequence):
        result = all(_productive(item, good) for item in node.items)
    elif isinstance(node, ir.Choice):
        result = any(_productive(item, good) for item in node.items)
    elif isinstance(node, ir.Repeat):
        empty = node.maximum is not None and node.maximum < node.minimum
        result = not empty and (node.minimum == 0 or _productive(node.item, good))
    elif isinstance(node, ir.Rule):
        result = node.name in good
    elif isinstance(node, ir.Variant):
        result = _productive(node.item, good)
    elif isinstance(node, ir.Automaton):
        result = _reaches_acceptance(node, good)
    else:
        result = _enough_members(node, good)
    if result and name:
        good.add(name)
    return result


def _reaches_acceptance(node: ir.Automaton, good: set[str]) -> bool:
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


def _enough_members(node: ir.Members, good: set[str]) -> bool:
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
