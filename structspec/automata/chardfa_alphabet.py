"""Alphabets of characters cut into classes, and the budget of one operation on them.

Owns `partition` and `joint`: the coarsest cut of the code points that never separates characters
which every given set treats alike. Automata then work on class numbers, so a Unicode property of
700 ranges costs as much as a letter.

Invariants: a `Ranges` is sorted, disjoint, inclusive, without surrogates, and does not touch
itself; classes are disjoint, not empty and ordered by their first character. Characters that no
set holds are in no class. Cost: n log n in the number of ranges.

Example::

    >>> from structspec.automata.chardfa_alphabet import partition
    >>> partition([((48, 57),), ((53, 70),)])
    ([((48, 52),), ((53, 57),), ((58, 70),)], [[0, 1], [1, 2]])
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from structspec.errors import BudgetExceeded
from structspec.limits import Countdown

__all__ = ["MOST_WORK", "SCALARS", "Budget", "Ranges", "joint", "merged", "outside", "partition"]

Ranges: TypeAlias = tuple[tuple[int, int], ...]

#: Every Unicode scalar value.
SCALARS: Final[Ranges] = ((0, 0xD7FF), (0xE000, 0x10FFFF))


@dataclass(frozen=True, slots=True)
class Budget:
    """What one operation on a `CharDfa` may use: states of its result, and seconds."""

    states: int = 30_000  # `hostname`, the largest of our own, has 24,000
    seconds: float = 10.0

    def meter(self) -> Meter:
        """A running check of this budget, starting now."""
        return Meter(self)


#: Elements of sets that one operation may touch.
MOST_WORK = 20_000_000


class Meter:
    """Checks one `Budget` from inside long loops."""

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self._countdown = Countdown(budget.seconds)
        self._calls = 0
        self._work = 0

    @property
    def states(self) -> int:
        """How many states there may be."""
        return self._budget.states

    def work(self, amount: int) -> None:
        """Count elements that set operations touch: many in few calls of `check` take long."""
        self._work += amount
        if self._work > MOST_WORK:
            raise BudgetExceeded("steps", MOST_WORK, self._work)

    def check(self, states: int) -> None:
        """Raise `BudgetExceeded` if there are too many states or the time is up."""
        if states > self._budget.states:
            raise BudgetExceeded("states", self._budget.states, states)
        self._calls += 1
        if self._calls % 256 == 0 and self._countdown.over():
            raise BudgetExceeded("time", self._budget.seconds)


def merged(ranges: Iterable[tuple[int, int]]) -> Ranges:
    """Sorted and merged, without surrogates."""
    found: list[tuple[int, int]] = []
    for low, high in sorted(ranges):
        if found and low <= found[-1][1] + 1:
            if high > found[-1][1]:
                found[-1] = (found[-1][0], high)
        else:
            found.append((low, high))
    return tuple(
        (max(low, first), min(high, last))
        for low, high in found
        for first, last in SCALARS
        if max(low, first) <= min(high, last)
    )


def outside(sets: Iterable[Ranges]) -> Ranges:
    """The characters in none of the sets."""
    found: list[tuple[int, int]] = []
    at = 0
    for low, high in merged(pair for ranges in sets for pair in ranges):
        if at < low:
            found.append((at, low - 1))
        at = high + 1
    found.append((at, 0x110000))
    return merged(found)


def partition(sets: Sequence[Ranges]) -> tuple[list[Ranges], list[list[int]]]:
    """The coarsest classes of which each set is a union, and the classes of each set."""
    # At each of these places the sets named by the mask begin or end.
    turns: dict[int, int] = {}
    for index, ranges in enumerate(sets):
        bit = 1 << index
        for low, high in ranges:
            turns[low] = turns.get(low, 0) ^ bit
            turns[high + 1] = turns.get(high + 1, 0) ^ bit
    by_members: dict[int, list[tuple[int, int]]] = {}
    here, start = 0, 0
    for place in sorted(turns):
        if turns[place]:
            if here:
                by_members.setdefault(here, []).append((start, place - 1))
            here ^= turns[place]
            start = place
    parts: list[list[int]] = [[] for _ in sets]
    for number, mask in enumerate(by_members):
        while mask:
            lowest = mask & -mask
            parts[lowest.bit_length() - 1].append(number)
            mask ^= lowest
    return [tuple(ranges) for ranges in by_members.values()], parts


def joint(left: Sequence[Ranges], right: Sequence[Ranges]) -> list[tuple[int, int, Ranges]]:
    """Characters by (class of `left`, class of `right`); -1: in no class of that side."""
    # Every place where a class begins or ends: the classes that hold from there on.
    turns: dict[int, list[int | None]] = {}
    for side, classes in enumerate((left, right)):
        for number, ranges in enumerate(classes):
            for low, high in ranges:
                turns.setdefault(low, [None, None])[side] = number
                end = turns.setdefault(high + 1, [None, None])
                if end[side] is None:
                    end[side] = -1
    found: dict[tuple[int, int], list[tuple[int, int]]] = {}
    start, here = 0, (-1, -1)
    for place in sorted(turns):
        first, second = turns[place]
        there = (here[0] if first is None else first, here[1] if second is None else second)
        if there != here:
            if here != (-1, -1):
                found.setdefault(here, []).append((start, place - 1))
            start, here = place, there
    return [(*pair, tuple(ranges)) for pair, ranges in found.items()]
