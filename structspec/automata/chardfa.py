"""Sets of strings as minimal automata over characters, closed under and, or, not and lengths.

`CharDfa` is what a string may be in JSON Schema: `pattern`, `format`, lengths, finite lists and
every combination of them. The alphabet is the Unicode scalar values; how JSON or UTF-8 writes a
character is no business of this module.

Invariants: an automaton is immutable and *the* minimal one of its language, with states numbered
breadth first and characters in the coarsest classes. So equal languages compare and hash equal.
Dead states are left out: a missing edge leads nowhere; the empty language is one state without
edges.

Cost: products take (pairs of states) x (classes), minimising n log n, both in compiled code. Every
operation takes a `Budget` (30,000 states) and raises `BudgetExceeded` beyond it.

Siblings: `chardfa_nfa` builds them from patterns, `chardfa_words` from lists of strings,
`chardfa_product` from two others; `chardfa_lengths` says which lengths occur; `subsets` is the
determinisation over bytes.
Source: Rabin and Scott 1959 (products).

Example::

    >>> from structspec.automata.chardfa import CharDfa
    >>> words = CharDfa.of_strings(["cat", "cats", "dog"])
    >>> words.complement().accepts("cow"), words.with_length(4, None).shortest()
    (True, 'cats')
    >>> words.complement().complement() == words
    True
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from structspec.automata.chardfa_alphabet import (
    SCALARS,
    Budget,
    Meter,
    Ranges,
    merged,
    outside,
)
from structspec.automata.chardfa_lengths import LengthSet, lengths_from
from structspec.automata.chardfa_minimise import MOST_EDGES, Rows, Table, canonical, spans
from structspec.automata.chardfa_nfa import CharNfa, determinise
from structspec.automata.chardfa_product import Needs, chain, product
from structspec.automata.chardfa_words import minimal_words
from structspec.errors import BudgetExceeded

__all__ = ["Budget", "CharDfa", "CharNfa", "LengthSet", "Ranges", "prepare"]

#: `with_length` builds at most this many pairs of a state and a length.
MOST_PAIRS = 50_000

_ready: list[bool] = []


def prepare() -> None:
    """Compile the kernels, if that has not been done: takes seconds, once for each machine."""
    if not _ready:
        nfa = CharNfa()
        start, end = nfa.state(), nfa.state()
        nfa.read(start, ((97, 98),), end)
        letter = CharDfa.of_nfa(nfa, start, end)
        letter.union(CharDfa.of_strings(["ab"])).with_length(2, None)
        _ready.append(True)


class CharDfa:
    """A regular set of strings; see the module.

    `classes`: sets of characters that no state tells apart; `rows[s]`: (class, target) pairs;
    `table` is the same as arrays; state 0 is the start. Build one with the class methods, not with
    the constructor.
    """

    def __init__(self, table: Table, *, minimal: bool = False) -> None:
        self.table = canonical(table, minimal=minimal)

    @property
    def classes(self) -> tuple[Ranges, ...]:
        """Sets of characters that no state tells apart."""
        return self.table.classes

    @property
    def n_states(self) -> int:
        """The number of states."""
        return len(self.table)

    @cached_property
    def rows(self) -> Rows:
        """The (class, target) pairs of each state."""
        return self.table.rows()

    @cached_property
    def accepting(self) -> frozenset[int]:
        """The states in which a string may end."""
        return frozenset(np.flatnonzero(self.table.accepts).tolist())

    @cached_property
    def _content(self) -> tuple[bytes, ...]:
        table = self.table
        arrays = (table.cuts, table.labels, table.targets, table.accepts)
        return tuple([array.tobytes() for array in arrays])

    @cached_property
    def _hash(self) -> int:
        return hash((self.classes, self._content))

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, CharDfa):
            return NotImplemented
        return (
            len(self.table) == len(other.table)
            and self._hash == other._hash
            and self._content == other._content
            and self.classes == other.classes
        )

    def __repr__(self) -> str:
        return f"<CharDfa: {self.n_states} states, {len(self.classes)} classes>"

    # -- making --------------------------------------------------------------------------------

    @classmethod
    def of_nfa(cls, nfa: CharNfa, start: int, end: int, budget: Budget | None = None) -> CharDfa:
        """The texts along the paths from `start` to `end`."""
        return cls(determinise(nfa, start, end, _meter(budget)))

    @classmethod
    def of_strings(cls, strings: Iterable[str], budget: Budget | None = None) -> CharDfa:
        """Exactly these strings. Linear in their total length.

        A lone surrogate is no Unicode scalar value and raises `SchemaError`.
        """
        words = sorted(set(strings))
        if not any(words):
            return _EMPTY_STRING if words else _NOTHING
        return cls._of(minimal_words(words, _meter(budget)))

    @classmethod
    def of_parts(
        cls, classes: tuple[Ranges, ...], rows: Rows, accepting: frozenset[int]
    ) -> CharDfa:
        """The automaton that has had these attributes; nothing is looked at."""
        return cls._of(Table.of_rows(classes, rows, accepting))

    @classmethod
    def _of(cls, table: Table) -> CharDfa:
        made = cls.__new__(cls)
        made.table = table
        return made

    @classmethod
    def of_length(cls, low: int, high: int | None, ranges: Ranges = SCALARS) -> CharDfa:
        """All strings over `ranges` of `low` to `high` (None: any number of) characters."""
        return _repetition(merged(ranges), low, high)

    @classmethod
    def everything(cls) -> CharDfa:
        """All strings."""
        return _EVERYTHING

    @classmethod
    def nothing(cls) -> CharDfa:
        """No string."""
        return _NOTHING

    # -- algebra -------------------------------------------------------------------------------

    def intersect(self, other: CharDfa, budget: Budget | None = None) -> CharDfa:
        """The strings in both sets."""
        if self is other or other == _EVERYTHING or self == _NOTHING:
            return self
        if self == _EVERYTHING or other == _NOTHING:
            return other
        return self._product(other, Needs.BOTH, budget)

    def union(self, other: CharDfa, budget: Budget | None = None) -> CharDfa:
        """The strings in one of the sets."""
        if self is other or other == _NOTHING or self == _EVERYTHING:
            return self
        if self == _NOTHING or other == _EVERYTHING:
            return other
        return self._product(other, Needs.EITHER, budget)

    def difference(self, other: CharDfa, budget: Budget | None = None) -> CharDfa:
        """The strings of this set that are not in `other`."""
        if other == _NOTHING or self == _NOTHING:
            return self
        if self is other or other == _EVERYTHING:
            return _NOTHING
        return self._product(other, Needs.LEFT_ONLY, budget)

    def complement(self, budget: Budget | None = None) -> CharDfa:
        """The strings that are not in this set (equal to ``everything() - self``)."""
        if self == _NOTHING:
            return _EVERYTHING
        table, rest = self.table, outside(self.classes)
        classes = sorted([*self.classes, rest] if rest else self.classes)
        # Every state gets an edge for every class; the last state is where dead texts end.
        n, width = len(table) + 1, len(classes)
        if n * width > MOST_EDGES:
            raise BudgetExceeded("edges of an automaton", MOST_EDGES, n * width)
        place = {ranges: number for number, ranges in enumerate(classes)}
        number = np.array([place[ranges] for ranges in self.classes], np.int32)
        targets = np.full((n, width), n - 1, np.int32)
        source = np.repeat(np.arange(n - 1), np.diff(table.cuts))
        targets[source, number[table.labels]] = table.targets
        complete = Table(
            tuple(classes),
            np.arange(0, n * width + 1, width, dtype=np.int32),
            np.tile(np.arange(width, dtype=np.int32), n),
            targets.ravel(),
            np.append(1 - table.accepts, np.uint8(1)),
        )
        # The sink is the only dead state, and complete minimal automata stay so.
        return CharDfa(complete, minimal=True)

    def with_length(self, low: int, high: int | None, budget: Budget | None = None) -> CharDfa:
        """The strings of this set with `low` to `high` characters.

        Raises `BudgetExceeded` if that takes more than 50,000 pairs of a state and a length; the
        lowering of JSON Schema's strings keeps plain repetitions apart and needs no such product.
        """
        shortest, longest = self.length_range
        if shortest > longest or (high is not None and high < shortest) or longest < low:
            return _NOTHING
        if low <= shortest and (high is None or longest <= high):
            return self
        if self.classes and self.n_states == 1 and self.table.accepts[0]:
            return _repetition(self.classes[0], low, high)
        last = low if high is None else high
        if last >= MOST_PAIRS:
            raise BudgetExceeded("states", MOST_PAIRS, last + 1)
        meter = (budget or Budget(states=MOST_PAIRS)).meter()
        bound, room = chain(SCALARS, low, high)
        least, _ = self._spans
        return CharDfa(product(self.table, bound, Needs.BOTH, meter, least=least, room=room))

    def _product(self, other: CharDfa, needs: Needs, budget: Budget | None) -> CharDfa:
        return CharDfa(product(self.table, other.table, needs, _meter(budget)))

    # -- questions -----------------------------------------------------------------------------

    def accepts(self, text: str) -> bool:
        """Whether `text` is in the set. Lone surrogates are in no set."""
        starts, numbers = self._lookup
        maps = self._maps
        state = 0
        for character in text:
            at = bisect_right(starts, ord(character)) - 1
            following = maps[state].get(numbers[at]) if at >= 0 else None
            if following is None:
                return False
            state = following
        return state in self.accepting

    def edges(self, state: int) -> tuple[tuple[Ranges, int], ...]:
        """The edges of a state: one set of characters per target, in the order of targets."""
        by_target: dict[int, list[int]] = {}
        for label, target in self.rows[state]:
            by_target.setdefault(target, []).append(label)
        return tuple(
            (
                self.classes[labels[0]]
                if len(labels) == 1
                else merged(pair for label in labels for pair in self.classes[label]),
                target,
            )
            for target, labels in sorted(by_target.items())
        )

    @property
    def is_empty(self) -> bool:
        """Whether no string is in the set."""
        return not self.table.accepts.any()

    @property
    def is_everything(self) -> bool:
        """Whether every string is in the set."""
        return self == _EVERYTHING

    @property
    def is_finite(self) -> bool:
        """Whether there are finitely many strings."""
        return self.length_range[1] != math.inf

    @cached_property
    def _spans(self) -> tuple[NDArray[np.int32], int]:
        return spans(self.table)

    @cached_property
    def distances(self) -> tuple[int, ...]:
        """Per state, how many characters the shortest way to acceptance takes.

        A state of the empty language has 0, though nothing follows.
        """
        return (0,) if self.is_empty else tuple(self._spans[0].tolist())

    @cached_property
    def length_range(self) -> tuple[float, float]:
        """The least and the greatest length (`math.inf` if unbounded); (inf, -inf) if empty."""
        if self.is_empty:
            return math.inf, -math.inf
        # Every state reaches acceptance, so any circle makes strings of any length.
        least, longest = self._spans
        return int(least[0]), math.inf if longest < 0 else longest

    def shortest(self) -> str | None:
        """A shortest string (the first by code points among them); None if there is none."""
        if self.is_empty:
            return None
        state, text = 0, []
        while state not in self.accepting:
            label, state = min(
                (
                    (label, target)
                    for label, target in self.rows[state]
                    if self.distances[target] == self.distances[state] - 1
                ),
                key=lambda edge: self.classes[edge[0]][0][0],
            )
            text.append(chr(self.classes[label][0][0]))
        return "".join(text)

    def lengths(self, state: int = 0) -> LengthSet:
        """How many characters may follow in `state`: an ultimately periodic set."""
        targets = [tuple({target for _, target in row}) for row in self.rows]
        return lengths_from(targets, self.accepting, state)

    def count(self, length: int) -> int:
        """How many strings have exactly `length` characters."""
        sizes = [sum(high - low + 1 for low, high in ranges) for ranges in self.classes]
        ways = {0: 1}
        for _ in range(length):
            following: dict[int, int] = {}
            for state, number in ways.items():
                for label, target in self.rows[state]:
                    following[target] = following.get(target, 0) + number * sizes[label]
            ways = following
        return sum(number for state, number in ways.items() if state in self.accepting)

    @cached_property
    def _maps(self) -> dict[int, dict[int, int]]:
        return {state: dict(row) for state, row in enumerate(self.rows)}

    @cached_property
    def _lookup(self) -> tuple[list[int], list[int]]:
        turns: dict[int, int] = {}
        for number, ranges in enumerate(self.classes):
            for low, high in ranges:
                turns[low] = number
                turns.setdefault(high + 1, -1)
        starts = sorted(turns)
        return starts, [turns[start] for start in starts]


def _meter(budget: Budget | None) -> Meter:
    return (budget or Budget()).meter()


def _repetition(ranges: Ranges, low: int, high: int | None) -> CharDfa:
    last = low if high is None else high
    if high is not None and high < low:
        return _NOTHING
    if last >= MOST_PAIRS:
        raise BudgetExceeded("states", MOST_PAIRS, last + 1)
    if not ranges:
        return _NOTHING if low else _EMPTY_STRING
    return CharDfa(chain(ranges, low, high)[0], minimal=True)


_NOTHING = CharDfa.of_parts((), ((),), frozenset())
_EMPTY_STRING = CharDfa.of_parts((), ((),), frozenset({0}))
_EVERYTHING = CharDfa.of_parts((SCALARS,), (((0, 0),),), frozenset({0}))
