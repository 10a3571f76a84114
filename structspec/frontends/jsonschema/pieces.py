"""Sets of numbers as the fewest intervals of integers, of non-integers or of both.

Owns `Piece`: what one automaton over digits reads. A set of numbers keeps its integers and its
non-integers apart; where they cover one stretch, they are one piece, which takes half the states.

Cost: one step per interval.

Siblings: `numbers` has the sets, `magnitudes` the automata.

Example::

    >>> from structspec.frontends.jsonschema.numbers import bounded
    >>> half = bounded(Decimal("0.5"), False, 3, True)
    >>> [(piece.low, piece.high, piece.kind) for piece in pieces(half.ints, half.fracs)]
    [(Decimal('0.5'), 3, 'any')]
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Literal, TypeAlias

from structspec.frontends.jsonschema.intervals import (
    INTEGERS,
    Intervals,
    complement,
    contains,
    intersect,
)
from structspec.frontends.jsonschema.numbers import ceiling, floor

__all__ = ["Kind", "Number", "Piece", "decimal_text", "pieces"]

Kind: TypeAlias = Literal["integer", "fraction", "any"]
Number: TypeAlias = int | Decimal


@dataclass(frozen=True, slots=True)
class Piece:
    """One interval of numbers (None: unbounded), of integers, non-integers or both."""

    low: Number | None
    low_open: bool
    high: Number | None
    high_open: bool
    kind: Kind

    @property
    def holds_zero(self) -> bool:
        """Whether 0 is in the piece."""
        if self.kind == "fraction":
            return False
        above = self.low is None or self.low < 0 or (self.low == 0 and not self.low_open)
        below = self.high is None or self.high > 0 or (self.high == 0 and not self.high_open)
        return above and below


def pieces(ints: Intervals, fracs: Intervals) -> Iterator[Piece]:
    """The fewest intervals that make up a set of integers and non-integers."""
    for (low, low_side), (high, high_side) in fracs:
        first = low + 1 if isinstance(low, int) else _outward(low, ceiling)
        last = high - 1 if isinstance(high, int) else _outward(high, floor)
        bounds = None if low == -math.inf else low, None if high == math.inf else high
        if first <= last and not contains(ints, first, last + 1):
            yield Piece(bounds[0], low_side == 1, bounds[1], high_side == 0, "fraction")
            continue
        low_open, high_open = low_side == 1, high_side == 0
        if isinstance(low, int):
            low_open = not contains(ints, low, low + 1)
            first = first if low_open else low
        if isinstance(high, int):
            high_open = not contains(ints, high, high + 1)
            last = last if high_open else high
        yield Piece(bounds[0], low_open, bounds[1], high_open, "any")
        if first <= last:
            ints = intersect(ints, complement(((first, last + 1),), INTEGERS))
    for start, stop in ints:
        yield Piece(
            None if start == -math.inf else start,
            False,
            None if stop == math.inf else stop - 1,
            False,
            "integer",
        )


def _outward(value: Number | float, towards: object) -> int | float:
    if isinstance(value, float):
        return value
    return ceiling(value) if towards is ceiling else floor(value)


def decimal_text(value: Number) -> str:
    """The value without an exponent (formatting an int with "f" would round it to a float)."""
    return format(value, "f") if isinstance(value, Decimal) else str(value)
