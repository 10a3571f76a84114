"""Sets of numbers: a union of intervals of integers and of non-integers.

`NumberSet` keeps the integers and the non-integers of a set apart, so ``type: integer``, bounds and
their complements are closed under and, or, not. `multiples` and `others` hold what has to divide
them and what must not; `lower` decides whether that takes too many states.

Invariants: intervals of non-integers have closed ends at integral values and are never degenerate,
so equal sets are equal objects. All values are ints and Decimals; nothing is rounded.

Example::

    >>> from structspec.frontends.jsonschema.numbers import bounded
    >>> half = bounded(Decimal("0.5"), False, 3, True)
    >>> half.ints
    ((1, 3),)
"""

from __future__ import annotations

import math
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction

from structspec.frontends.jsonschema.budget import spend
from structspec.frontends.jsonschema.intervals import (
    INTEGERS,
    REALS,
    Intervals,
    complement,
    count,
    intersect,
    union,
)
from structspec.frontends.jsonschema.refusal import Refusal
from structspec.records import Hashed, record

__all__ = [
    "ALL_NUMBERS",
    "ONLY_INTEGERS",
    "NumberSet",
    "bounded",
    "ceiling",
    "floor",
    "number_points",
]

# Up to this many integers `multipleOf` is decided one by one.
_ENUMERATED = 10_000


@record
class NumberSet(Hashed):
    """The integers in `ints`, the non-integers in `fracs`, those that all `multiples` divide."""

    ints: Intervals = INTEGERS
    fracs: Intervals = REALS
    multiples: frozenset[tuple[int | Decimal, Refusal]] = frozenset()
    refusals: frozenset[Refusal] = frozenset()
    #: What divides none of the numbers.
    others: frozenset[tuple[int | Decimal, Refusal]] = frozenset()
    #: Integers are written without a point: in draft 4, ``1.0`` is no integer.
    bare: bool = False
    #: Integers are written with a point: what draft 4 does not call integers. There are no `fracs`.
    pointed: bool = False

    @property
    def empty(self) -> bool:
        """Whether no number is in the set."""
        return not self.ints and not self.fracs

    @property
    def plain(self) -> bool:
        """Whether the intervals say everything."""
        return not (self.multiples or self.others or self.refusals or self.bare or self.pointed)

    def refined(self) -> NumberSet:
        """The same set with canonical intervals, and multiples decided where that is possible."""
        fracs = _canonical(self.fracs)
        ints, multiples = self.ints, self.multiples
        if not multiples and not self.others:
            if not ints and not fracs:
                return _NONE
            return replace(self, ints=ints, fracs=fracs)
        for multiple, _ in self.multiples:
            step = Fraction(multiple)
            if step.denominator == 1:
                fracs = ()
        others = self.others
        if not fracs:
            multiples, others = _for_integers(multiples), _for_integers(others)
            if any(n == 1 for n, _ in others):
                return _NONE
            multiples = frozenset((n, refusal) for n, refusal in multiples if n != 1)
            if (multiples or others) and count(ints) <= _ENUMERATED:
                kept = (
                    (value, value + 1)
                    for low, high in ints
                    for value in range(low, high)
                    if all(value % int(n) == 0 for n, _ in multiples)
                    and all(value % int(n) for n, _ in others)
                )
                ints, multiples, others = union(tuple(kept)), frozenset(), frozenset()
        if not ints and not fracs:
            return _NONE
        if {multiple for multiple, _ in multiples} & {other for other, _ in others}:
            return _NONE
        return replace(self, ints=ints, fracs=fracs, multiples=multiples, others=others)

    def intersect(self, other: NumberSet) -> NumberSet:
        """The numbers in both sets."""
        listed = sum(map(len, (self.multiples, other.multiples, self.others, other.others)))
        if listed:  # plain intervals have been counted by whoever joins forms
            spend(12 + listed)
        bare, pointed = self.bare or other.bare, self.pointed or other.pointed
        return NumberSet(
            () if bare and pointed else intersect(self.ints, other.ints),
            intersect(self.fracs, other.fracs),
            self.multiples | other.multiples,
            self.refusals | other.refusals,
            self.others | other.others,
            bare,
            pointed,
        ).refined()

    def union(self, other: NumberSet) -> NumberSet:
        """The numbers in one of two plain sets."""
        return NumberSet(union(self.ints, other.ints), union(self.fracs, other.fracs)).refined()

    def complement(self, blame: Refusal) -> tuple[NumberSet, ...]:
        """Sets that together are all numbers outside; `blame` is refused if they are not known."""
        if self.refusals:
            return (replace(ALL_NUMBERS, refusals=self.refusals | {blame}),)
        beyond = NumberSet(complement(self.ints, INTEGERS), complement(self.fracs, REALS)).refined()
        found = [] if beyond.empty else [beyond]
        if self.bare and not self.pointed:
            found.append(NumberSet(self.ints, (), pointed=True))
        if self.pointed and not self.bare:
            found.append(NumberSet(self.ints, (), bare=True))
        found += (NumberSet(others=frozenset({multiple})).refined() for multiple in self.multiples)
        found += (NumberSet(multiples=frozenset({other})).refined() for other in self.others)
        return tuple(found)


def _for_integers(
    multiples: frozenset[tuple[int | Decimal, Refusal]],
) -> frozenset[tuple[int | Decimal, Refusal]]:
    """The same for integers alone: one is a multiple of n/d in lowest terms iff n divides it."""
    return frozenset((Fraction(multiple).numerator, refusal) for multiple, refusal in multiples)


ALL_NUMBERS = NumberSet()
ONLY_INTEGERS = NumberSet(INTEGERS, ())
_NONE = NumberSet((), ())


def bounded(
    low: int | Decimal | None, low_open: bool, high: int | Decimal | None, high_open: bool
) -> NumberSet:
    """All numbers between two bounds (None: unbounded)."""
    first: float = -math.inf
    last: float = math.inf
    start: tuple[float | int | Decimal, int] = (-math.inf, 0)
    stop: tuple[float | int | Decimal, int] = (math.inf, 0)
    if low is not None:
        first = ceiling(low) + (1 if low_open and ceiling(low) == low else 0)
        start = (low, int(low_open))
    if high is not None:
        last = floor(high) + (0 if high_open and floor(high) == high else 1)
        stop = (high, int(not high_open))
    ints: Intervals = ((first, last),) if first < last else ()
    fracs: Intervals = ((start, stop),) if start < stop else ()
    return NumberSet(ints, fracs).refined()


def number_points(values: list[int | Decimal]) -> NumberSet:
    """Exactly these numbers."""
    ints = tuple((value, value + 1) for value in values if isinstance(value, int))
    fracs = tuple(((v, 0), (v, 1)) for v in values if isinstance(v, Decimal))
    return NumberSet(union(ints), union(fracs)).refined()


def floor(value: int | Decimal) -> int:
    """The largest integer that is not above `value`."""
    return math.floor(value)


def ceiling(value: int | Decimal) -> int:
    """The smallest integer that is not below `value`."""
    return math.ceil(value)


def _canonical(fracs: Intervals) -> Intervals:
    if fracs == REALS:
        return fracs
    # No integer belongs to `fracs`, so ends at integral values may be closed without harm;
    # then neighbours such as (1, 2) and (2, 3) touch and merge.
    closed = (
        (
            (low[0], 0) if isinstance(low[0], int) else low,
            (high[0], 1) if isinstance(high[0], int) else high,
        )
        for low, high in fracs
    )
    merged = union(tuple(closed))
    return tuple(
        (low, high) for low, high in merged if low[0] != high[0] or not isinstance(low[0], int)
    )
