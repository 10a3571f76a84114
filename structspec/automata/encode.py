"""A grammar as flat arrays that compiled code can walk.

`encode` visits every node of a `GrammarIR` once and writes it into a `Program`; everything after
that (`analysis`, `fragments`, `subsets`) is numba over these arrays. Nodes that are shared, by
identity, are one entry, so a grammar costs what it holds, not what it unfolds to.

Invariants
- entry 0 is the reference to the start rule; a rule's name has one entry, wherever it is used;
- the children of an entry are `child[first[n]:last[n]]`;
- repeats that no text can satisfy have become the empty choice, upper limits that no text can reach
  none.

Cost: one Python step per distinct node and child. Sibling: `network`, which drives the build.

    >>> from structspec import ir
    >>> ab = ir.Sequence((ir.Bytes(b"a"), ir.Chars(((0x62, 0x63),))))
    >>> program = encode(ir.GrammarIR({"root": ab}, "root"))
    >>> program.kind.tolist() == [RULE, SEQUENCE, BYTES, CHARS]
    True
"""

from __future__ import annotations

from functools import lru_cache
from itertools import chain
from struct import pack
from typing import Any

import numpy as np
from numpy.typing import NDArray

from structspec import ir
from structspec.automata.utf8 import ByteRange, utf8_sequences
from structspec.errors import BudgetExceeded
from structspec.records import record

__all__ = ["Program", "encode"]

IntArray = NDArray[np.int32]

#: Kinds of entries.
BYTES, CHARS, SPECIAL, SEQUENCE, CHOICE, REPEAT, RULE, VARIANT, AUTOMATON, MEMBERS = range(10)

#: Registers and costs are 32-bit. No text holds more copies than this (the memory of a cache ends
#: far earlier), so a higher upper limit is none.
MOST_COPIES = 1 << 27

#: Byte sets below this number are the single bytes; see `Program.masks`.
FIRST_MASK = 256

# A byte set (256 bits) and what follows it, as sets of byte values.
_Suffix = tuple[ByteRange, ...]


@record
class Program:
    """The arrays of one grammar; N entries.

    kind[N]; first[N], last[N]: the children, for BYTES the text in `text`, for CHARS the part of
    `char_mask`, `char_suffix` (a byte set and the suffix that follows, 0: none).
    low[N], high[N]: REPEAT the bounds (high −1: none); CHARS: low is the weight; SPECIAL: low is
    the number of the token; AUTOMATON: the part of `accepting`; MEMBERS: low is the number in
    `lists`, high is 1 if it may be empty.
    size[N], longest[N]: states of an AUTOMATON, most edges on a path (−1: any number). source,
    target: per child, the states that an AUTOMATON's label connects. The children of MEMBERS: the
    separator, then key and value of each member.
    suffix_mask, suffix_next: chains of byte sets; suffix 0 is the empty one.
    masks: uint64[M, 4], the byte set FIRST_MASK + i; lower numbers are single bytes.
    """

    kind: NDArray[np.uint8]
    first: IntArray
    last: IntArray
    low: IntArray
    high: IntArray
    size: IntArray
    longest: IntArray
    child: IntArray
    source: IntArray
    target: IntArray
    text: NDArray[np.uint8]
    char_mask: IntArray
    char_suffix: IntArray
    accepting: IntArray
    suffix_mask: IntArray
    suffix_next: IntArray
    masks: NDArray[np.uint64]
    lists: list[ir.Members]
    specials: tuple[str, ...]


def encode(grammar: ir.GrammarIR) -> Program:
    """The program of everything that the start rule needs."""
    return _Encoder(grammar).encode()


class _Encoder:
    def __init__(self, grammar: ir.GrammarIR) -> None:
        self._rules = grammar.rules
        self._order: list[Any] = [ir.Rule(grammar.start)]  # nodes; `Any`: asked by their class
        # id of a node, name of a rule, or (item, bounds) of a repeat
        self._numbers: dict[object, int] = {grammar.start: 0}
        self._masks: dict[int, int] = {}
        self._suffixes: dict[_Suffix, int] = {(): 0}
        self._suffix_mask, self._suffix_next = [0], [0]
        self._char_mask: list[int] = []
        self._char_suffix: list[int] = []
        self._chars: dict[tuple[tuple[int, int], ...], tuple[int, int, int]] = {}

    def encode(self) -> Program:
        rules, order, number = self._rules, self._order, self._number
        numbers, known, later = self._numbers, self._numbers.get, self._order.append
        # PERF: most compiles spend much of their time here; `is` is the quickest question, local
        # names are quicker than others, and most entries need three numbers of seven.
        text_of, sequence, choice, rule = ir.Bytes, ir.Sequence, ir.Choice, ir.Rule
        repeat, variant, characters = ir.Repeat, ir.Variant, ir.Chars
        kind = bytearray()
        first: list[int] = []
        last: list[int] = []
        # entry, low, high, size, longest where they are not 0, 0, 0, -1
        rest: list[tuple[int, int, int, int, int]] = []
        child: list[int] = []
        edges: list[tuple[int, int, int]] = []  # (child index, source, target) of automata
        flat: list[tuple[int, ir.FlatEdges]] = []  # with the index of the first child
        accepting: list[int] = []
        text = bytearray()
        lists: list[ir.Members] = []
        specials: dict[str, int] = {}
        for entry, node in enumerate(order):  # grows while it is walked
            cls = type(node)
            if cls is text_of:
                kind.append(BYTES)
                first.append(len(text))
                text += node.value
                last.append(len(text))
                continue
            if cls is characters:
                start, end, weight = self._characters(node.ranges)
                kind.append(CHARS)
                first.append(start)
                last.append(end)
                rest.append((entry, weight, 0, 0, -1))
                continue
            first.append(len(child))
            items: Any = ()
            if cls is sequence or cls is choice:
                kind.append(SEQUENCE if cls is sequence else CHOICE)
                items = node.items
            elif cls is variant:
                kind.append(VARIANT)
                items = (node.item,)
            elif cls is rule:
                kind.append(RULE)
                items = (rules[node.name],)
                if node.called:
                    rest.append((entry, 1, 0, 0, -1))
            elif cls is repeat:
                upper = node.maximum
                most = -1 if upper is None or upper > MOST_COPIES else upper
                rest.append((entry, min(node.minimum, MOST_COPIES + 1), most, 0, -1))
                if upper is not None and upper < node.minimum:
                    kind.append(CHOICE)
                else:
                    kind.append(REPEAT)
                    items = (node.item,)
            elif cls is ir.Automaton:
                kind.append(AUTOMATON)
                bound = -1
                if node.longest is not None and node.longest <= MOST_COPIES:
                    bound = node.longest
                start = len(accepting)
                accepting += node.accepting
                rest.append((entry, start, len(accepting), len(node.edges), bound))
                by_state: Any = node.edges
                if type(by_state) is ir.FlatEdges:
                    flat.append((len(child), by_state))
                    ours = np.array([number(label) for label in by_state.labels], np.int32)
                    child += ours[by_state.label].tolist()
                    by_state = ()
                for source, row in enumerate(by_state):
                    for label, target in row:
                        found = known(id(label))
                        if found is None:
                            found = numbers[id(label)] = number(label)
                        edges.append((len(child), source, target))
                        child.append(found)
            elif cls is ir.Special:
                kind.append(SPECIAL)
                rest.append((entry, specials.setdefault(node.name, len(specials)), 0, 0, -1))
            else:
                kind.append(MEMBERS)
                rest.append((entry, len(lists), int(_may_be_empty(node)), 0, -1))
                lists.append(node)
                items = self._members(node)
            for item in items:
                key = id(item)
                found = known(key)
                if found is None:
                    its = type(item)
                    if its is rule or its is repeat:
                        found = number(item)
                    else:
                        found = len(order)
                        later(item)
                    numbers[key] = found
                child.append(found)
            last.append(len(child))
        ends = np.zeros((2, len(child)), np.int32)
        if edges:
            places = np.array(edges, np.int32)
            ends[:, places[:, 0]] = places[:, 1:].T
        for start, by_state in flat:
            here = slice(start, start + len(by_state.target))
            ends[0, here] = np.repeat(np.arange(len(by_state)), np.diff(by_state.cuts))
            ends[1, here] = by_state.target
        low, high, size, longest = bounds = np.zeros((4, len(kind)), np.int32)
        longest[:] = -1
        if rest:
            given = _ints(list(chain.from_iterable(rest))).reshape(-1, 5)
            bounds[:, given[:, 0]] = given[:, 1:].T
        return Program(
            np.frombuffer(kind, np.uint8), _ints(first), _ints(last), low, high, size, longest,
            _ints(child), ends[0], ends[1],
            np.frombuffer(text, np.uint8), _ints(self._char_mask),
            _ints(self._char_suffix), _ints(accepting), _ints(self._suffix_mask),
            _ints(self._suffix_next), _mask_words(list(self._masks)), lists, tuple(specials),
        )  # fmt: skip

    def _number(self, node: Any) -> int:
        key: object = id(node)
        cls = type(node)
        if cls is ir.Rule:
            key = (node.name, True) if node.called else node.name
        elif cls is ir.Repeat:
            key = (id(node.item), node.minimum, node.maximum)
        found = self._numbers.get(key)
        if found is None:
            found = self._numbers[key] = len(self._order)
            self._order.append(node)
        return found

    def _members(self, node: ir.Members) -> list[ir.Node]:
        """The separator, then key and value of each member; equal values are one object."""
        if node.minimum > MOST_COPIES:
            raise BudgetExceeded("states", MOST_COPIES, node.minimum)
        values: dict[ir.Node, ir.Node] = {}  # equal values share their states
        by_id: dict[int, ir.Node] = {}  # spares the hash of large nodes
        found: list[ir.Node] = [node.separator]
        repeated = False
        for member in node.members:
            if member.repeatable and member.required:
                raise ValueError("a repeatable member cannot be required")
            if repeated and not member.repeatable:
                raise ValueError("repeatable members must come last")
            repeated = member.repeatable
            value = by_id.get(id(member.value))
            if value is None:
                value = by_id[id(member.value)] = values.setdefault(member.value, member.value)
            found += (member.key, value)
        return found

    def _characters(self, ranges: tuple[tuple[int, int], ...]) -> tuple[int, int, int]:
        """The part of `char_mask` and the weight."""
        found = self._chars.get(ranges)
        if found is None:
            start = len(self._char_mask)
            parts, weight = _characters(ranges)
            for suffix, mask in parts:
                known = mask.bit_length() - 1 if mask & (mask - 1) == 0 else self._mask(mask)
                self._char_mask.append(known)
                self._char_suffix.append(self._suffix(suffix) if suffix else 0)
            found = self._chars[ranges] = start, len(self._char_mask), weight
        return found

    def _mask(self, mask: int) -> int:
        if mask & (mask - 1) == 0:
            return mask.bit_length() - 1
        return self._masks.setdefault(mask, FIRST_MASK + len(self._masks))

    def _suffix(self, suffix: _Suffix) -> int:
        found = self._suffixes.get(suffix)
        if found is None:
            following = self._suffix(suffix[1:])
            found = self._suffixes[suffix] = len(self._suffix_mask)
            self._suffix_mask.append(self._mask(_byte_mask(*suffix[0])))
            self._suffix_next.append(following)
        return found


def _may_be_empty(node: ir.Members) -> bool:
    return node.minimum == 0 and not any(member.required for member in node.members)


@lru_cache(maxsize=4096)
def _characters(ranges: tuple[tuple[int, int], ...]) -> tuple[tuple[tuple[_Suffix, int], ...], int]:
    """The first bytes of the characters, by what follows them; the weight of all."""
    found: dict[_Suffix, int] = {}
    for low, high in ranges:
        for sequence in utf8_sequences(low, high):
            rest = sequence[1:]
            found[rest] = found.get(rest, 0) | _byte_mask(*sequence[0])
    return tuple(found.items()), len(ranges) + 3 * sum([top > 0x7F for _, top in ranges])


def _byte_mask(low: int, high: int) -> int:
    return ((1 << (high - low + 1)) - 1) << low


def _mask_words(masks: list[int]) -> NDArray[np.uint64]:
    data = b"".join(mask.to_bytes(32, "little") for mask in masks)
    return np.frombuffer(data, "<u8").astype(np.uint64).reshape(-1, 4)


def _ints(values: list[int]) -> IntArray:
    # Four times as quick as np.array.
    return np.frombuffer(bytearray(pack(f"{len(values)}i", *values)), np.int32)
