"""A slow, plain recogniser of the grammar IR, random grammars, and random texts of a grammar.

The recogniser computes sets of end positions from the definition of each node, memoised by node and
position; it shares nothing with the automata but the node classes.
"""

from __future__ import annotations

import random
from collections.abc import Sequence as Listing

from structspec import ir

LETTERS = b"abc"
#: Characters of one to four bytes.
CHARACTERS = (0x61, 0x62, 0x63, 0x7F, 0x80, 0xE9, 0x7FF, 0x800, 0xD7FF, 0xE000, 0xFFFF, 0x10000)


class Recogniser:
    """Membership by sets of end positions, for grammars without left recursion."""

    def __init__(self, grammar: ir.GrammarIR) -> None:
        self._grammar = grammar

    def accepts(self, text: bytes) -> bool:
        """Whether the whole text belongs to the language."""
        self._text = text
        self._memo: dict[tuple[int, int], frozenset[int]] = {}
        return len(text) in self._ends(ir.Rule(self._grammar.start), 0)

    def _ends(self, node: ir.Node, at: int) -> frozenset[int]:
        while isinstance(node, ir.Rule | ir.Variant):
            node = self._grammar.rules[node.name] if isinstance(node, ir.Rule) else node.item
        key = (id(node), at)
        found = self._memo.get(key)
        if found is None:
            found = self._memo[key] = frozenset(self._compute(node, at))
        return found

    def _all_ends(self, node: ir.Node, places: Listing[int] | set[int]) -> set[int]:
        return {end for at in places for end in self._ends(node, at)}

    def _compute(self, node: ir.Node, at: int) -> set[int]:
        text = self._text
        if isinstance(node, ir.Bytes):
            return {at + len(node.value)} if text.startswith(node.value, at) else set()
        if isinstance(node, ir.Chars):
            for length in range(1, 5):
                try:
                    character = text[at : at + length].decode()
                except UnicodeDecodeError:
                    continue
                if len(character) == 1:
                    inside = any(lo <= ord(character) <= hi for lo, hi in node.ranges)
                    return {at + length} if inside else set()
            return set()
        if isinstance(node, ir.Sequence):
            places = {at}
            for item in node.items:
                places = self._all_ends(item, places)
            return places
        if isinstance(node, ir.Choice):
            return {end for item in node.items for end in self._ends(item, at)}
        if isinstance(node, ir.Repeat):
            return self._repeat(node, at)
        if isinstance(node, ir.Automaton):
            return self._automaton(node, at)
        assert isinstance(node, ir.Members)
        return self._members(node, at)

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
                for end in self._ends(label, here):
                    there = (target, end, after)
                    if there not in seen:
                        seen.add(there)
                        todo.append(there)
        return {here for state, here, _ in seen if state in node.accepting}

    def _repeat(self, node: ir.Repeat, at: int) -> set[int]:
        found: set[int] = set()
        here, copies = {at}, 0
        while True:
            if copies >= node.minimum:
                found |= here
            if not here or (node.maximum is not None and copies == node.maximum):
                return found
            following = self._all_ends(node.item, here)
            if following == here:  # further copies change nothing
                return found | here
            here, copies = following, copies + 1

    def _members(self, node: ir.Members, at: int) -> set[int]:
        required = frozenset(k for k, m in enumerate(node.members) if m.required)
        found = set() if required or node.minimum else {at}
        start: tuple[int, int, frozenset[int]] = (at, 0, frozenset())
        todo = [start]  # where a key begins, how many members came before, and which
        seen = set(todo)
        while todo:
            place, count, before = todo.pop()
            for k, value_at in self._keys(node, place):
                if not self._allowed(node, count, before, k):
                    continue
                after = before | {k}
                for end in self._ends(node.members[k].value, value_at):
                    if required <= after and count + 1 >= node.minimum:
                        found.add(end)
                    for following in self._ends(node.separator, end):
                        entry = (following, count + 1, after)
                        if entry not in seen:
                            seen.add(entry)
                            todo.append(entry)
        return found

    def _keys(self, node: ir.Members, at: int) -> list[tuple[int, int]]:
        owner: dict[int, int] = {}
        for k, member in enumerate(node.members):
            for end in self._ends(member.key, at):
                owner.setdefault(end, k)
        return [(k, end) for end, k in owner.items()]

    @staticmethod
    def _allowed(node: ir.Members, count: int, before: frozenset[int], k: int) -> bool:
        if count == node.maximum:
            return False
        if node.members[k].repeatable:
            return True
        return k not in before and (node.order == "any" or k > max(before, default=-1))


class RandomGrammars:
    """Random grammars without left recursion over `LETTERS` and a few longer characters."""

    def __init__(self, rng: random.Random, *, members: bool = True, wide: bool = True) -> None:
        self._rng = rng
        self._with_members = members
        self._wide = wide

    def grammar(self, n_rules: int, depth: int) -> ir.GrammarIR:
        """`r0` is the start; rules may call each other, recursively behind a byte."""
        self._n_rules = n_rules
        rules = {}
        for index in range(n_rules):
            self._own = index
            rules[f"r{index}"] = self._node(depth, guarded=False)
        return ir.GrammarIR(rules, "r0")

    def _node(self, depth: int, *, guarded: bool, calls: bool = True) -> ir.Node:
        rng = self._rng
        kinds = ["bytes"] * 3 + ["chars", "rule"]
        if depth > 0:
            kinds += (
                ["sequence"] * 3
                + ["choice"] * 3
                + ["repeat"] * 3
                + ["variant", "guard", "automaton"]
            )
            kinds += ["members"] * 2 if self._with_members and calls else []
        kind = rng.choice(kinds)
        if kind == "rule":
            first = 0 if guarded else self._own + 1
            if calls and first < self._n_rules:
                return ir.Rule(f"r{rng.randrange(first, self._n_rules)}")
            kind = "bytes"
        if kind == "bytes":
            length = rng.choice((0, 1, 1, 1, 2, 3))
            return ir.Bytes(bytes(rng.choice(LETTERS) for _ in range(length)))
        if kind == "chars":
            return self._chars()
        if kind == "guard":
            return ir.Sequence(
                (
                    ir.Bytes(bytes((rng.choice(LETTERS),))),
                    self._node(depth - 1, guarded=True, calls=calls),
                    self._node(depth - 1, guarded=True, calls=calls),
                )
            )
        if kind == "automaton":
            return self._automaton(depth, guarded=guarded, calls=calls)
        if kind in ("sequence", "choice"):
            count = rng.choice((0, 1, 2, 2, 2, 3, 3))
            items = tuple(self._node(depth - 1, guarded=guarded, calls=calls) for _ in range(count))
            return ir.Sequence(items) if kind == "sequence" else ir.Choice(items)
        item = self._node(depth - 1, guarded=guarded, calls=calls) if kind != "members" else None
        if kind == "variant":
            assert item is not None
            return ir.Variant(item)
        if kind == "repeat":
            assert item is not None
            minimum = rng.choice((0, 0, 0, 1, 1, 2, 3))
            maximum = rng.choice((None, minimum, minimum + 1, minimum + 2, minimum + 40))
            return ir.Repeat(item, minimum, maximum)
        return self._members(depth)

    def _automaton(self, depth: int, *, guarded: bool, calls: bool) -> ir.Automaton:
        rng = self._rng
        if calls and rng.random() < 0.5:
            return self._bounded()
        n = rng.choice((1, 2, 3))
        edges = []
        for _ in range(n):
            row = []
            for _ in range(rng.choice((0, 1, 2, 2))):
                first = ir.Bytes(bytes((rng.choice(LETTERS),)))
                rest = self._node(depth - 1, guarded=True, calls=calls)
                label = rng.choice((first, self._chars(), ir.Sequence((first, rest))))
                row.append((label, rng.randrange(n)))
            edges.append(tuple(row))
        accepting = frozenset(rng.sample(range(n), rng.randint(0, n)))
        return ir.Automaton(tuple(edges), accepting)

    def _bounded(self) -> ir.Automaton:
        """An automaton over characters, some with two spellings, that counts them."""
        rng = self._rng
        n = rng.choice((1, 2, 3))
        edges = []
        for _ in range(n):
            row = []
            for _ in range(rng.choice((1, 2, 2, 3))):
                first, second = (ir.Bytes(bytes((rng.choice(LETTERS),))) for _ in range(2))
                longer = ir.sequence((first, second))
                labels = (first, self._chars(), longer, ir.Choice((second, ir.Variant(longer))))
                row.append((rng.choice(labels), rng.randrange(n)))
            edges.append(tuple(row))
        accepting = frozenset(rng.sample(range(n), rng.randint(1, n)))
        return ir.Automaton(tuple(edges), accepting, rng.choice((0, 1, 2, 3, 5, 40)))

    def _chars(self) -> ir.Chars:
        if not self._wide:
            return ir.Chars(((0x61, self._rng.choice((0x61, 0x62, 0x63))),))
        points = sorted(self._rng.sample(CHARACTERS, self._rng.choice((2, 2, 4))))
        return ir.Chars(tuple(zip(points[::2], points[1::2], strict=True)))

    def _members(self, depth: int) -> ir.Members:
        rng = self._rng
        members = []
        for _ in range(rng.choice((1, 2, 2, 3, 4))):
            repeatable = rng.random() < 0.25
            key = ir.sequence(
                (
                    ir.Bytes(bytes((rng.choice(LETTERS),))),
                    self._node(1, guarded=True, calls=False) if rng.random() < 0.4 else ir.EPSILON,
                )
            )
            members.append(
                ir.Member(
                    key,
                    self._node(depth - 1, guarded=True),
                    required=not repeatable and rng.random() < 0.35,
                    repeatable=repeatable,
                )
            )
        members.sort(key=lambda member: member.repeatable)
        separator = ir.Bytes(rng.choice((b"", b"a", b"b", b"ca")))
        minimum = rng.choice((0, 0, 0, 0, 1, 2, 3))
        maximum = rng.choice((None, None, None, minimum, minimum + 1, minimum + 2))
        order = rng.choice(("declared", "any"))
        return ir.Members(tuple(members), separator, order, minimum, maximum)


class Writer:
    """Random texts of a grammar (none if it does not find one soon).

    Members with overlapping keys may come out wrong: which member owns a key is not looked at.
    """

    def __init__(self, grammar: ir.GrammarIR, rng: random.Random) -> None:
        self._grammar = grammar
        self._rng = rng

    def text(self) -> bytes | None:
        """One text of the language, short if possible."""
        self._left = 200
        return self._write(ir.Rule(self._grammar.start), 0)

    def _write(self, node: ir.Node, depth: int) -> bytes | None:
        self._left -= 1
        if self._left < 0 or depth > 40:
            return None
        rng = self._rng
        if isinstance(node, ir.Bytes):
            return node.value
        if isinstance(node, ir.Chars):
            ends = [p for span in node.ranges for p in span]
            return chr(rng.choice(ends)).encode() if ends else None
        if isinstance(node, ir.Sequence):
            return self._join(node.items, depth)
        if isinstance(node, ir.Choice):
            items = list(node.items)
            rng.shuffle(items)
            for item in items:
                found = self._write(item, depth + 1)
                if found is not None:
                    return found
            return None
        if isinstance(node, ir.Repeat):
            most = node.minimum + 3 if node.maximum is None else node.maximum
            count = min(rng.randint(node.minimum, most), node.minimum + 4)
            return self._join((node.item,) * count, depth)
        if isinstance(node, ir.Rule):
            return self._write(self._grammar.rules[node.name], depth + 1)
        if isinstance(node, ir.Variant):
            return self._write(node.item, depth + 1)
        if isinstance(node, ir.Automaton):
            return self._walk(node, depth)
        order = [
            k
            for k, member in enumerate(node.members)
            for _ in range(rng.randint(0, 2) if member.repeatable else 1)
            if member.required or rng.random() < 0.6
        ]
        if node.order == "any":
            rng.shuffle(order)
        parts: list[ir.Node] = []
        for k in order:
            parts += [node.separator] if parts else []
            parts += [node.members[k].key, node.members[k].value]
        return self._join(parts, depth)

    def _walk(self, node: ir.Automaton, depth: int) -> bytes | None:
        out, state = b"", 0
        for _ in range(12):
            if state in node.accepting and self._rng.random() < 0.4:
                return out
            if not node.edges[state]:
                break
            label, state = self._rng.choice(node.edges[state])
            found = self._write(label, depth + 1)
            if found is None:
                return None
            out += found
        return out if state in node.accepting else None

    def _join(self, items: Listing[ir.Node], depth: int) -> bytes | None:
        out = b""
        for item in items:
            found = self._write(item, depth + 1)
            if found is None:
                return None
            out += found
        return out


def mutated(text: bytes, rng: random.Random) -> bytes:
    """The text with a byte inserted, removed, replaced, doubled, or cut."""
    alphabet = LETTERS + b"\xc3\xa9\x80"
    at = rng.randint(0, len(text))
    how = rng.randrange(5)
    byte = bytes((rng.choice(alphabet),))
    if how == 0:
        return text[:at] + byte + text[at:]
    if how == 1:
        return text[:at] + text[at + 1 :]
    if how == 2:
        return text[:at] + byte + text[at + 1 :]
    if how == 3:
        other = rng.randint(0, len(text))
        return text[: max(at, other)] + text[min(at, other) :]
    return text[:at]
