"""Sets of strings as minimal automata over characters, closed under and, or, not and lengths.

`CharDfa` is what a string may be in JSON Schema: `pattern`, `format`, lengths, finite lists and
every combination of them. The alphabet is the Unicode scalar values; how JSON or UTF-8 writes a
character is no business of this module.

Invariants: an automaton is immutable and *the* minimal one of its language, with states numbered
breadth first and characters in the coarsest classes. So equal languages compare and hash equal.
Dead states are left out: a missing edge leads nowhere; the empty language is one state without
edges.

Cost: products take (pairs of states) x (classes), minimising n log n. Every operation takes a
`Budget` (30,000 states, 10 s) and raises `BudgetExceeded` beyond it.

Siblings: `chardfa_nfa` builds them from patterns, `chardfa_words` from lists of strings;
`chardfa_lengths` says which lengths occur; `subsets` is the determinisation over bytes.
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
from collections.abc import Iterable, Sequence
from functools import cached_property

from structspec.automata.chardfa_alphabet import (
    SCALARS,
    Budget,
    Meter,
    Ranges,
    joint,
    merged,
    outside,
)
from structspec.automata.chardfa_lengths import LengthSet, lengths_from
from structspec.automata.chardfa_minimise import Rows, Table, canonical
from structspec.automata.chardfa_nfa import CharNfa, determinise
from structspec.automata.chardfa_words import minimal_words
from structspec.errors import BudgetExceeded

__all__ = ["Budget", "CharDfa", "CharNfa", "LengthSet", "Ranges"]

#: `with_length` builds at most this many pairs of a state and a length.
MOST_PAIRS = 50_000

_DEAD = -1


class CharDfa:
    """A regular set of strings; see the module.

    `classes`: sets of characters that no state tells apart; `rows[s]`: (class, target) pairs;
    state 0 is the start. Build one with the class methods, not with the constructor.
    """

    classes: tuple[Ranges, ...]
    rows: Rows
    accepting: frozenset[int]

    def __init__(self, table: Table, meter: Meter, *, minimal: bool = False) -> None:
        self.classes, self.rows, self.accepting = canonical(table, meter, minimal=minimal)

    @cached_property
    def _hash(self) -> int:
        return hash((self.classes, self.rows, self.accepting))

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, CharDfa):
            return NotImplemented
        return (
            len(self.rows) == len(other.rows)
            and self._hash == other._hash
            and self.rows == other.rows
            and self.accepting == other.accepting
            and self.classes == other.classes
        )

    def __repr__(self) -> str:
        return f"<CharDfa: {len(self.rows)} states, {len(self.classes)} classes>"

    # -- making --------------------------------------------------------------------------------

    @classmethod
    def of_nfa(cls, nfa: CharNfa, start: int, end: int, budget: Budget | None = None) -> CharDfa:
        """The texts along the paths from `start` to `end`."""
        meter = _meter(budget)
        return cls(determinise(nfa, start, end, meter), meter)

    @classmethod
    def of_strings(cls, strings: Iterable[str], budget: Budget | None = None) -> CharDfa:
        """Exactly these strings. Linear in their total length.

        A lone surrogate is no Unicode scalar value and raises `SchemaError`.
        """
        made = cls.__new__(cls)
        words = sorted(set(strings))
        if not any(words):
            return _EMPTY_STRING if words else _NOTHING
        found = minimal_words(words, _meter(budget))
        made.classes, made.accepting = found.classes, found.accepting
        made.rows = found.rows()
        return made

    @classmethod
    def of_parts(
        cls, classes: tuple[Ranges, ...], rows: Rows, accepting: frozenset[int]
    ) -> CharDfa:
        """The automaton that has had these attributes; nothing is looked at."""
        made = cls.__new__(cls)
        made.classes, made.rows, made.accepting = classes, rows, accepting
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
        return self._product(other, True, True, budget)

    def union(self, other: CharDfa, budget: Budget | None = None) -> CharDfa:
        """The strings in one of the sets."""
        if self is other or other == _NOTHING or self == _EVERYTHING:
            return self
        if self == _NOTHING or other == _EVERYTHING:
            return other
        return self._product(other, False, False, budget)

    def difference(self, other: CharDfa, budget: Budget | None = None) -> CharDfa:
        """The strings of this set that are not in `other`."""
        if other == _NOTHING or self == _NOTHING:
            return self
        if self is other or other == _EVERYTHING:
            return _NOTHING
        return self._product(other, True, False, budget)

    def complement(self, budget: Budget | None = None) -> CharDfa:
        """The strings that are not in this set (equal to ``everything() - self``)."""
        rest = outside(self.classes)
        table = Table([*self.classes, *([rest] if rest else [])])
        sink = len(self.rows)
        labels = range(len(table.classes))
        if self == _NOTHING:
            return _EVERYTHING
        for state, row in enumerate(self.rows):
            full = dict.fromkeys(labels, sink)
            full.update(row)
            table.rows.append(full)
            table.accepting.append(state not in self.accepting)
        table.rows.append(dict.fromkeys(labels, sink))
        table.accepting.append(True)
        # The sink is the only dead state, and complete minimal automata stay so.
        return CharDfa(table, _meter(budget), minimal=True)

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
        if self.classes and len(self.rows) == 1 and 0 in self.accepting:
            return _repetition(self.classes[0], low, high)
        budget = budget or Budget(states=MOST_PAIRS)
        return self._counted(low, high, budget.meter())

    def _product(
        self, other: CharDfa, needs_left: bool, needs_right: bool, budget: Budget | None
    ) -> CharDfa:
        """Pairs of states; a side that is not needed may be dead.

        needs both: intersection; only left: difference; none: union.
        """
        meter = _meter(budget)
        table = Table([])
        pairs: list[tuple[int, int]] = []
        for first, second, ranges in joint(self.classes, other.classes):
            if not (needs_left and first < 0) and not (needs_right and second < 0):
                pairs.append((first, second))
                table.classes.append(ranges)
        mine, theirs = self._maps, other._maps
        # States mostly have few of the classes: what is not needed is not even looked at.
        labels: Sequence[int] = range(len(pairs))
        of_first: dict[int, list[int]] = {}
        for label, (first, _) in enumerate(pairs):
            of_first.setdefault(first, []).append(label)
        order = [(0, 0)]
        index = {(0, 0): 0}
        for left, right in order:
            in_left = left in self.accepting
            in_right = right in other.accepting
            if needs_right:
                table.accepting.append(in_left and in_right)
            elif needs_left:
                table.accepting.append(in_left and not in_right)
            else:
                table.accepting.append(in_left or in_right)
            row: dict[int, int] = {}
            table.rows.append(row)
            from_left, from_right = mine[left], theirs[right]
            if needs_left:
                labels = [label for part in from_left for label in of_first.get(part, ())]
            for label in labels:
                first, second = pairs[label]
                a = from_left.get(first, _DEAD)
                b = from_right.get(second, _DEAD)
                if (a < 0 and (needs_left or b < 0)) or (needs_right and b < 0):
                    continue
                found = index.get((a, b))
                if found is None:
                    found = index[a, b] = len(order)
                    order.append((a, b))
                    meter.check(found + 1)
                row[label] = found
        return CharDfa(table, meter)

    def _counted(self, low: int, high: int | None, meter: Meter) -> CharDfa:
        """Pairs of a state and the characters read, counted no further than matters."""
        cap = low if high is None else high
        least = self.distances
        table = Table(list(self.classes))
        order = [(0, 0)]
        index = {(0, 0): 0}
        for state, read in order:
            table.accepting.append(state in self.accepting and read >= low)
            row: dict[int, int] = {}
            table.rows.append(row)
            after = read + 1 if high is not None else min(read + 1, cap)
            for label, target in self.rows[state]:
                if high is not None and after + least[target] > high:
                    continue
                pair = (target, after)
                found = index.get(pair)
                if found is None:
                    found = index[pair] = len(order)
                    order.append(pair)
                    meter.check(found + 1)
                row[label] = found
        return CharDfa(table, meter)

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
        return not self.accepting

    @property
    def is_everything(self) -> bool:
        """Whether every string is in the set."""
        return self == _EVERYTHING

    @property
    def is_finite(self) -> bool:
        """Whether there are finitely many strings."""
        return self.length_range[1] != math.inf

    @cached_property
    def distances(self) -> tuple[int, ...]:
        """Per state, how many characters the shortest way to acceptance takes.

        A state of the empty language has 0, though nothing follows.
        """
        before: list[list[int]] = [[] for _ in self.rows]
        for state, row in enumerate(self.rows):
            for _, target in row:
                before[target].append(state)
        found = [0 if state in self.accepting else -1 for state in range(len(self.rows))]
        queue = sorted(self.accepting)
        for state in queue:
            for source in before[state]:
                if found[source] < 0:
                    found[source] = found[state] + 1
                    queue.append(source)
        return tuple(found) if queue else (0,)

    @cached_property
    def length_range(self) -> tuple[float, float]:
        """The least and the greatest length (`math.inf` if unbounded); (inf, -inf) if empty."""
        if self.is_empty:
            return math.inf, -math.inf
        # Every state reaches acceptance, so any circle makes strings of any length.
        pending = [0] * len(self.rows)
        for row in self.rows:
            for target in {target for _, target in row}:
                pending[target] += 1
        longest = [0] * len(self.rows)
        queue = [0] if not pending[0] else []
        for state in queue:
            for target in {target for _, target in self.rows[state]}:
                longest[target] = max(longest[target], longest[state] + 1)
                pending[target] -= 1
                if not pending[target]:
                    queue.append(target)
        if len(queue) < len(self.rows):
            return self.distances[0], math.inf
        return self.distances[0], max(longest[state] for state in self.accepting)

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
        maps = {state: dict(row) for state, row in enumerate(self.rows)}
        maps[_DEAD] = {}
        return maps

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
    table = Table([ranges] if ranges else [])
    for read in range(last + 1):
        target = read if read == last and high is None else read + 1
        table.rows.append({0: target} if ranges and target <= last else {})
        table.accepting.append(read >= low)
    return CharDfa(table, Budget(states=MOST_PAIRS).meter(), minimal=True)


_NOTHING = CharDfa(Table([], [{}], [False]), Budget().meter())
_EMPTY_STRING = CharDfa(Table([], [{}], [True]), Budget().meter())
_EVERYTHING = CharDfa(Table([SCALARS], [{0: 0}], [True]), Budget().meter())
