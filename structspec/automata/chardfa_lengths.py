"""Which lengths occur: sets of numbers that repeat with a period from some point on.

The lengths of a regular language are the language with all characters made equal, so they are
ultimately periodic: `LengthSet` holds the beginning and one period.

Invariant: the set is written as shortly as possible, so equal sets compare equal.
Cost: `lengths_from` follows sets of states until one comes again, at most 10,000 steps.

Example::

    >>> from structspec.automata.chardfa_lengths import LengthSet
    >>> odd_from_three = LengthSet.of([False, False], [False, True])
    >>> [n for n in range(8) if n in odd_from_three]
    [3, 5, 7]
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from structspec.errors import BudgetExceeded

__all__ = ["LengthSet", "lengths_from"]

_MOST_STEPS = 10_000


@dataclass(frozen=True, slots=True)
class LengthSet:
    """`head[n]` says whether n is in the set; behind it, `cycle` repeats without end."""

    head: tuple[bool, ...]
    cycle: tuple[bool, ...]

    @staticmethod
    def of(head: Sequence[bool], cycle: Sequence[bool]) -> LengthSet:
        """The set in its shortest form; an empty cycle is one of nothing."""
        around = list(cycle) or [False]
        for size in range(1, len(around)):
            if len(around) % size == 0 and around == around[:size] * (len(around) // size):
                around = around[:size]
                break
        front = list(head)
        while front and front[-1] == around[-1]:
            around = [front.pop(), *around[:-1]]
        return LengthSet(tuple(front), tuple(around))

    def __contains__(self, length: object) -> bool:
        if not isinstance(length, int) or length < 0:
            return False
        if length < len(self.head):
            return self.head[length]
        return self.cycle[(length - len(self.head)) % len(self.cycle)]

    @property
    def finite(self) -> bool:
        """Whether the set has a greatest number (or none at all)."""
        return not any(self.cycle)


def lengths_from(
    targets: Sequence[Sequence[int]], accepting: frozenset[int], state: int
) -> LengthSet:
    """The numbers of steps after which some way from `state` is at an accepting one."""
    here = frozenset((state,))
    seen: dict[frozenset[int], int] = {}
    found: list[bool] = []
    work = 0
    while here not in seen:
        seen[here] = len(found)
        found.append(not here.isdisjoint(accepting))
        work += 1 + len(here) // 64
        if work > _MOST_STEPS:
            raise BudgetExceeded("states", _MOST_STEPS, work)
        here = frozenset(target for source in here for target in targets[source])
    start = seen[here]
    return LengthSet.of(found[:start], found[start:])
