"""A slow reference recogniser for `structspec.ir`: sets of end positions, memoised.

It shares nothing with the automata, so front ends are tested without them. Left recursion is not
handled (no front end that uses this produces it). Cost: positions x nodes, in Python.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from structspec import ir


def accepts(grammar: ir.GrammarIR, text: str | bytes) -> bool:
    """Whether the whole text is in the language of the grammar."""
    data = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
    with _deep_recursion():
        return len(data) in _Recogniser(grammar, data).ends(ir.Rule(grammar.start), 0)


@contextmanager
def _deep_recursion() -> Iterator[None]:
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(max(before, 20_000))
    try:
        yield
    finally:
        sys.setrecursionlimit(before)


class _Recogniser:
    def __init__(self, grammar: ir.GrammarIR, data: bytes) -> None:
        self.grammar = grammar
        self.data = data
        self.memo: dict[tuple[int, int], frozenset[int]] = {}

    def ends(self, node: ir.Node, at: int) -> frozenset[int]:
        if isinstance(node, ir.Rule):
            node = self.grammar.rules[node.name]
        key = (id(node), at)
        known = self.memo.get(key)
        if known is None:
            known = self.memo[key] = frozenset(self._ends(node, at))
        return known

    def _ends(self, node: ir.Node, at: int) -> set[int] | frozenset[int]:
        if isinstance(node, ir.Bytes):
            return {at + len(node.value)} if self.data.startswith(node.value, at) else set()
        if isinstance(node, ir.Chars):
            return self._character(node, at)
        if isinstance(node, ir.Sequence):
            here = {at}
            for item in node.items:
                here = {end for start in here for end in self.ends(item, start)}
            return here
        if isinstance(node, ir.Choice):
            return {end for item in node.items for end in self.ends(item, at)}
        if isinstance(node, ir.Variant):
            return self.ends(node.item, at)
        if isinstance(node, ir.Repeat):
            return self._repeat(node, at)
        if isinstance(node, ir.Members):
            return self._members(node, at)
        if isinstance(node, ir.Automaton):
            return self._automaton(node, at)
        return self.ends(node, at)

    def _character(self, node: ir.Chars, at: int) -> set[int]:
        if at >= len(self.data):
            return set()
        first = self.data[at]
        size = 1 if first < 0x80 else 2 if first < 0xE0 else 3 if first < 0xF0 else 4
        try:
            code = ord(self.data[at : at + size].decode())
        except (UnicodeDecodeError, TypeError):
            return set()
        inside = any(low <= code <= high for low, high in node.ranges)
        return {at + size} if inside else set()

    def _repeat(self, node: ir.Repeat, at: int) -> set[int]:
        found: set[int] = set()
        here = {at}
        count = 0
        seen: set[int] = set()
        while here:
            if count >= node.minimum:
                found |= here
                if node.maximum is None and here <= seen:
                    break
                seen |= here
            if count == node.maximum:
                break
            following = {end for start in here for end in self.ends(node.item, start)}
            if following == here and count < node.minimum:
                count = node.minimum
                continue
            here = following
            count += 1
        return found

    def _automaton(self, node: ir.Automaton, at: int) -> set[int]:
        seen = {(0, at, 0)}
        todo = [(0, at, 0)]
        while todo:
            state, here, read = todo.pop()
            # How many edges were taken matters only under a bound.
            after = read if node.longest is None else read + 1
            if node.longest is not None and after > node.longest:
                continue
            for label, target in node.edges[state]:
                for end in self.ends(label, here):
                    assert end > here, "a label matches the empty string"
                    there = (target, end, after)
                    if there not in seen:
                        seen.add(there)
                        todo.append(there)
        return {here for state, here, _ in seen if state in node.accepting}

    def _members(self, node: ir.Members, at: int) -> set[int]:
        found: set[int] = set()
        # (position, how many members there are, the next one, which ones are used)
        start = (at, 0, 0, frozenset[int]())
        seen = {start}
        stack = [start]
        while stack:
            here, count, index, used = stack.pop()
            missing = any(
                member.required and (i >= index if node.order == "declared" else i not in used)
                for i, member in enumerate(node.members)
            )
            if not missing and count >= node.minimum:
                found.add(here)
            if count == node.maximum:
                continue
            entries = {here} if count == 0 else self.ends(node.separator, here)
            for entry in entries:
                for owner, key_end in self._owners(node, entry):
                    member = node.members[owner]
                    if node.order == "declared":
                        free = member.repeatable and index < len(node.members)
                        free = free and node.members[index].repeatable
                        skipped = node.members[index:owner]
                        if any(other.required for other in skipped) or (owner < index and not free):
                            continue
                        following = index if free else owner + (not member.repeatable)
                        state = (following, frozenset[int]())
                    else:
                        if owner in used:
                            continue
                        state = (0, used if member.repeatable else used | {owner})
                    for end in self.ends(member.value, key_end):
                        reached = (end, count + 1, *state)
                        if reached not in seen:
                            seen.add(reached)
                            stack.append(reached)
        return found

    def _owners(self, node: ir.Members, at: int) -> list[tuple[int, int]]:
        owners: dict[int, int] = {}
        for index, member in enumerate(node.members):
            for end in self.ends(member.key, at):
                owners.setdefault(end, index)
        return [(index, end) for end, index in owners.items()]
