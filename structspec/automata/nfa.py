"""Thompson automata of single rules: the step between the IR and determinised networks.

A `Nfa` has byte edges (as 256-bit masks), call edges (to another rule), operation edges (on the
register of the running frame) and epsilon edges. One `Nfa` serves one rule of the network; the
`FragmentBuilder` asks its owner which rule a nested construct becomes.

Sibling: `dfa` determinises what is built here. Source: K. Thompson, "Regular expression search
algorithm", 1968.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from structspec import ir
from structspec.automata.utf8 import utf8_sequences

#: A set of byte values: bit b stands for byte b, bit 256 + i for special token i of the grammar.
ByteMask = int

ALL_BYTES: ByteMask = (1 << 256) - 1


def byte_mask(lo: int, hi: int) -> ByteMask:
    """The mask of the byte values `lo..hi`, both included."""
    return ((1 << (hi - lo + 1)) - 1) << lo


@dataclass(frozen=True, slots=True)
class Operation:
    """An edge that consumes nothing and works on the register of the running frame.

    kind "count": end of one copy of a loop body; `targets` = (exit, next copy).
    kind "member": end of the key of member `argument`; `targets` = (its value,).
    kind "rest": end of a member's value; `targets` = (exit, separator).
    """

    kind: str
    argument: int
    targets: tuple[int, ...]


@dataclass
class Nfa:
    """States are 0, 1, …; each list is indexed by state."""

    epsilon: list[list[int]] = field(default_factory=list)
    edges: list[list[tuple[ByteMask, int, bool]]] = field(default_factory=list)
    calls: list[list[tuple[int, int]]] = field(default_factory=list)
    operations: list[list[Operation]] = field(default_factory=list)

    def state(self) -> int:
        """A new state without edges."""
        self.epsilon.append([])
        self.edges.append([])
        self.calls.append([])
        self.operations.append([])
        return len(self.epsilon) - 1


class RuleTable(Protocol):
    """What a fragment needs to know about the rest of the grammar."""

    def call(self, node: ir.Node) -> int:
        """The index of the network rule whose language is the node's without the empty string."""

    def body(self, name: str) -> ir.Node:
        """The node of a named rule."""

    def nullable(self, node: ir.Node) -> bool:
        """Whether the empty string belongs to the node's language."""

    def special(self, name: str) -> int:
        """The number of a special token of the grammar."""

    def inlined(self, name: str) -> bool:
        """Whether references to the rule are replaced by its body."""

    def expanded(self, node: ir.Repeat) -> bool:
        """Whether the repeat is written out instead of counted."""

    def check(self, states: int) -> None:
        """Raise if a budget is passed; `states` are those of the fragment so far."""


class FragmentBuilder:
    """Adds the automaton of an IR node between two states of one `Nfa`.

    `flat=True` forbids calls: named rules and counted repeats are written out. Keys of `Members`
    are built so, since the automaton decides by the whole key text which member it names.
    """

    def __init__(self, nfa: Nfa, rules: RuleTable, *, flat: bool = False) -> None:
        self._nfa = nfa
        self._rules = rules
        self._flat = flat
        self._added = 0
        self._suffixes: dict[tuple[tuple[tuple[int, int], ...], int, bool], int] = {}

    def add(self, node: ir.Node, start: int, end: int, variant: bool = False) -> None:
        """Every text of `node` leads from `start` to `end`, and nothing else does."""
        nfa = self._nfa
        self._added += 1
        if self._added % 1024 == 0:  # shared nodes unfold: a small grammar can be a large one
            self._rules.check(len(nfa.epsilon))
        if isinstance(node, ir.Bytes):
            self._literal(node.value, start, end, variant)
        elif isinstance(node, ir.Chars):
            self._chars(node, start, end, variant)
        elif isinstance(node, ir.Special):
            nfa.edges[start].append((1 << 256 + self._rules.special(node.name), end, variant))
        elif isinstance(node, ir.Sequence):
            here = start
            for index, item in enumerate(node.items):
                there = end if index == len(node.items) - 1 else nfa.state()
                self.add(item, here, there, variant and index == 0)
                here = there
            if not node.items:
                nfa.epsilon[start].append(end)
        elif isinstance(node, ir.Choice):
            for item in node.items:
                self.add(item, start, end, variant)
        elif isinstance(node, ir.Variant):
            self.add(node.item, start, end, True)
        elif isinstance(node, ir.Repeat):
            self._repeat(node, start, end, variant)
        elif isinstance(node, ir.Rule):
            # Other spellings are rarely taken: a call keeps their states out of every caller.
            if self._flat or (not variant and self._rules.inlined(node.name)):
                self.add(self._rules.body(node.name), start, end, variant)
            else:
                self._call(node, start, end)
        elif isinstance(node, ir.Automaton):
            self._automaton(node, start, end, variant)
        else:
            self._call(node, start, end)

    def _automaton(self, node: ir.Automaton, start: int, end: int, variant: bool) -> None:
        nfa = self._nfa
        states = [nfa.state() for _ in node.edges]
        nfa.epsilon[start].append(states[0])
        for source, edges in enumerate(node.edges):
            for label, target in edges:
                self.add(label, states[source], states[target], variant and source == 0)
        for state in node.accepting:
            nfa.epsilon[states[state]].append(end)

    def _call(self, node: ir.Node, start: int, end: int) -> None:
        # Called rules never match the empty string (pops happen only after a byte), so the
        # empty string is an epsilon edge beside the call.
        nfa = self._nfa
        if self._rules.nullable(node):
            nfa.epsilon[start].append(end)
        nfa.calls[start].append((self._rules.call(node), end))

    def _literal(self, value: bytes, start: int, end: int, variant: bool) -> None:
        nfa = self._nfa
        if not value:
            nfa.epsilon[start].append(end)
            return
        here = start
        for index, byte in enumerate(value):
            there = end if index == len(value) - 1 else nfa.state()
            nfa.edges[here].append((1 << byte, there, variant and index == 0))
            here = there

    def _chars(self, node: ir.Chars, start: int, end: int, variant: bool) -> None:
        by_rest: dict[int, ByteMask] = {}
        for lo, hi in node.ranges:
            for sequence in utf8_sequences(lo, hi):
                rest = self._suffix(sequence[1:], end)
                by_rest[rest] = by_rest.get(rest, 0) | byte_mask(*sequence[0])
        for rest, mask in by_rest.items():
            self._nfa.edges[start].append((mask, rest, variant))

    def _suffix(self, sequence: tuple[tuple[int, int], ...], end: int) -> int:
        """The state from which the byte ranges of `sequence` lead to `end` (shared)."""
        if not sequence:
            return end
        key = (sequence, end, False)
        found = self._suffixes.get(key)
        if found is None:
            found = self._suffixes[key] = self._nfa.state()
            self._nfa.edges[found].append(
                (byte_mask(*sequence[0]), self._suffix(sequence[1:], end), False)
            )
        return found

    def _repeat(self, node: ir.Repeat, start: int, end: int, variant: bool) -> None:
        nfa = self._nfa
        if node.maximum is not None and node.maximum < node.minimum:
            return  # no number of copies will do
        counted = node.maximum is not None or node.minimum > 1
        if counted and not self._flat and not self._rules.expanded(node):
            self._call(node, start, end)
            return
        here = start
        for _ in range(node.minimum - (node.maximum is None)):
            there = nfa.state()
            self.add(node.item, here, there, variant)
            here, variant = there, False
        if node.maximum is None:
            # The last copy that must be there is the one that loops: one copy instead of two, or
            # nested repeats would double the states at every level.
            loop, done = nfa.state(), nfa.state()
            nfa.epsilon[here].append(loop)
            self.add(node.item, loop, done, variant)
            nfa.epsilon[done] += [loop, end]
            if node.minimum == 0:
                nfa.epsilon[loop].append(end)
            return
        nfa.epsilon[here].append(end)
        for _ in range(node.maximum - node.minimum):
            there = nfa.state()
            self.add(node.item, here, there, variant)
            nfa.epsilon[there].append(end)
            here = there
