"""Sets of intervals on a line: lengths, counts, integers and the gaps between them.

An interval is a pair of *cuts* ``(low, high)``, half open: it holds what lies between them. For
integers a cut is the integer before which it lies, so ``(2, 5)`` is 2, 3, 4. For reals a cut is
``(value, side)``, side 0 just before the value and 1 just after it, so open and closed ends need
no further flags. `math.inf` stands for both infinities.

Invariant: intervals are sorted, disjoint, non-empty and do not touch, so equality is set equality.
Cost: every operation is linear in the number of intervals (union: n log n).

Example::

    >>> from structspec.frontends.jsonschema.intervals import intersect, union
    >>> intersect(((0, 10),), union(((2, 4),), ((6, 20),)))
    ((2, 4), (6, 10))
"""

from __future__ import annotations

import math
from bisect import bisect_right
from typing import Any, TypeAlias

__all__ = [
    "INTEGERS",
    "LENGTHS",
    "REALS",
    "Cut",
    "Intervals",
    "complement",
    "contains",
    "count",
    "intersect",
    "union",
]

Cut: TypeAlias = Any
Intervals: TypeAlias = tuple[tuple[Cut, Cut], ...]

INTEGERS: Intervals = ((-math.inf, math.inf),)
LENGTHS: Intervals = ((0, math.inf),)
REALS: Intervals = (((-math.inf, 0), (math.inf, 0)),)


def union(*sets: Intervals) -> Intervals:
    """What lies in one of `sets`."""
    merged: list[tuple[Cut, Cut]] = []
    for low, high in sorted(pair for intervals in sets for pair in intervals):
        if merged and low <= merged[-1][1]:
            if high > merged[-1][1]:
                merged[-1] = (merged[-1][0], high)
        elif low < high:
            merged.append((low, high))
    return tuple(merged)


def intersect(left: Intervals, right: Intervals) -> Intervals:
    """What lies in both."""
    found: list[tuple[Cut, Cut]] = []
    i = j = 0
    while i < len(left) and j < len(right):
        low = max(left[i][0], right[j][0])
        high = min(left[i][1], right[j][1])
        if low < high:
            found.append((low, high))
        if left[i][1] < right[j][1]:
            i += 1
        else:
            j += 1
    return tuple(found)


def complement(intervals: Intervals, within: Intervals) -> Intervals:
    """What lies in `within` (one interval) but not in `intervals`."""
    low, end = within[0]
    found: list[tuple[Cut, Cut]] = []
    for start, stop in intervals:
        if low < start:
            found.append((low, start))
        low = max(low, stop)
    if low < end:
        found.append((low, end))
    return tuple(found)


def contains(intervals: Intervals, low: Cut, high: Cut) -> bool:
    """Whether the whole interval ``(low, high)`` lies in one of `intervals`."""
    at = bisect_right(intervals, low, key=lambda pair: pair[0]) - 1
    return at >= 0 and intervals[at][1] >= high


def count(intervals: Intervals) -> float:
    """How many integers there are (`math.inf` if unbounded)."""
    return sum(high - low for low, high in intervals)
