"""Exact automata over the digits of magnitudes: one interval, and what divides its numbers.

Owns `Reader`, the transition function of one interval on one side of zero. It reads a number from
the left: how many digits it has read, how they compare with the bounds' digits so far, and the
remainder by what has to divide the number. `automaton_of` explores and minimises it.

Invariants: automata are minimal and trimmed, with state 0 as the start; bounds are compared digit
by digit, so nothing is rounded.

Cost: two bounds of d digits take O(d) states, a multiple of k multiplies that by k; at most
`MOST_STATES`. Automata are kept for every compile of the process.

Siblings: `pieces` makes the intervals, `digits` writes automata as rules.

Example::

    >>> reader = reader_of(Piece(10, False, 99, False, "integer"), negative=False, scale=None)
    >>> automaton_of(reader).accepting
    (False, False, True)
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from itertools import pairwise
from typing import TypeAlias

from structspec.frontends.jsonschema.budget import spend
from structspec.frontends.jsonschema.kept import Kept
from structspec.frontends.jsonschema.numbers import NumberSet
from structspec.frontends.jsonschema.pieces import Kind, Number, Piece, decimal_text
from structspec.frontends.reaching import reaching

__all__ = [
    "MOST_STATES",
    "Automaton",
    "Reader",
    "Scale",
    "automaton_of",
    "common_scale",
    "reader_of",
]

# Units for one automaton that is not known yet, beside those for its states.
_AUTOMATON = 200
#: The most states that the digits of one interval may cost.
MOST_STATES = 20_000


@dataclass(frozen=True, slots=True)
class Scale:
    """Residues: the numbers are counted in units of 10**-`places`, modulo `modulus`.

    `step` divides them (None: nothing has to), no one of `others` does.
    """

    modulus: int
    places: int
    step: int | None
    others: tuple[int, ...]

    def accepts(self, rest: int) -> bool:
        """Whether a number with this residue is in the set."""
        if self.step is not None and rest % self.step:
            return False
        return all(rest % other for other in self.others)


def common_scale(numbers: NumberSet) -> Scale | None:
    """The residues that decide; None if nothing has to divide or not to divide the numbers."""
    if not numbers.multiples and not numbers.others:
        return None
    both = [multiple for multiple, _ in (*numbers.multiples, *numbers.others)]
    places = max(-min(_exponent(multiple), 0) for multiple in both)
    units = [int(Fraction(multiple) * 10**places) for multiple in both]
    known = len(numbers.multiples)
    step = math.lcm(*units[:known]) if known else None
    return Scale(math.lcm(*units), places, step, tuple(units[known:]))


def _exponent(value: Number) -> int:
    return int(Decimal(value).as_tuple().exponent)


@dataclass(frozen=True, slots=True)
class _Bound:
    """A bound's digits; compares them with digits that arrive one by one."""

    whole: str
    fraction: str
    open: bool

    @classmethod
    def of(cls, value: Number, is_open: bool) -> _Bound:
        whole, _, fraction = decimal_text(value).partition(".")
        return cls(whole, fraction.rstrip("0"), is_open)

    def whole_step(self, count: int, order: int, digit: int) -> int:
        """The order of the first `count + 1` digits, given that of the first `count`."""
        if order or count >= len(self.whole):
            return order
        return _sign(digit - int(self.whole[count]))

    def after_whole(self, count: int, order: int) -> int:
        """The order of the integer parts, once the text's has ended after `count` digits."""
        return order if count == len(self.whole) else _sign(count - len(self.whole))

    def fraction_step(self, count: int, order: int, digit: int) -> int:
        """The order after `count + 1` digits behind the point."""
        if order:
            return order
        return _sign(digit - (int(self.fraction[count]) if count < len(self.fraction) else 0))

    def final(self, count: int, order: int) -> int:
        """The order of the values, if the text ends after `count` digits behind the point."""
        return -1 if order == 0 and count < len(self.fraction) else order


def _sign(value: int) -> int:
    return (value > 0) - (value < 0)


# The remainder of numbers that lie between two units, so that nothing divides them.
_BETWEEN = -1

_State: TypeAlias = tuple[str, int, int, int, bool, int]
# phase ("start", "zero", "whole", "point", "fraction"), digits read in it, order with the low
# bound, order with the high bound, whether a nonzero digit stands behind the point, remainder


@dataclass(frozen=True, slots=True)
class Reader:
    """The automaton of one interval of magnitudes, given by its transition function."""

    low: _Bound
    high: _Bound | None
    kind: Kind
    scale: Scale | None

    def start(self) -> _State:
        """The state before any digit."""
        return ("start", 0, 0, 0, False, 0)

    def step(self, state: _State, symbol: int) -> _State | None:
        """The state after a digit 0 to 9, or after the point (10)."""
        phase, count, low, high, nonzero, rest = state
        if symbol == 10:
            if self.kind == "integer" or phase not in ("zero", "whole"):
                return None
            low = self.low.after_whole(count, low)
            high = -1 if self.high is None else self.high.after_whole(count, high)
            return self._pruned(("point", 0, low, high, False, rest))
        if phase == "zero":
            return None
        if self.scale is not None:
            if phase in ("point", "fraction") and count >= self.scale.places:
                if symbol and self.scale.step is not None:
                    return None
                if symbol:
                    rest = _BETWEEN
            elif rest != _BETWEEN:
                rest = (rest * 10 + symbol) % self.scale.modulus
        if phase in ("start", "whole"):
            low = self.low.whole_step(count, low, symbol)
            high = -1 if self.high is None else self.high.whole_step(count, high, symbol)
            following = "zero" if phase == "start" and symbol == 0 else "whole"
            return self._pruned((following, count + 1, low, high, False, rest))
        low = self.low.fraction_step(count, low, symbol)
        high = -1 if self.high is None else self.high.fraction_step(count, high, symbol)
        return self._pruned(("fraction", count + 1, low, high, nonzero or symbol > 0, rest))

    def alike(self, state: _State) -> Iterator[tuple[int, int]]:
        """Runs of digits, from the first up to before the second, that lead to one state each."""
        phase, count, low, high, _, _ = state
        if self.scale is not None:
            return pairwise(range(11))
        cuts = {0, 1, 10}
        for bound, order in ((self.low, low), (self.high, high)):
            if bound is not None and order == 0:
                digits = bound.whole if phase in ("start", "whole") else bound.fraction
                digit = int(digits[count]) if count < len(digits) else 0
                cuts |= {digit, digit + 1}
        return pairwise(sorted(cuts))

    def _pruned(self, state: _State) -> _State | None:
        """The state with counts cut down to what still matters; None if nothing can follow."""
        phase, count, low, high, nonzero, rest = state
        if phase == "whole":
            longest = len(self.low.whole)
            if self.high is not None:
                longest = max(longest, len(self.high.whole))
                if count > len(self.high.whole) or (count == len(self.high.whole) and high > 0):
                    return None
            if count > longest:
                count, low = longest + 1, 1
        elif phase != "zero":
            if low < 0 or high > 0:
                return None
            longest = max(
                len(self.low.fraction) if low == 0 else 0,
                len(self.high.fraction) if self.high is not None and high == 0 else 0,
                self.scale.places if self.scale is not None else 0,
                1,
            )
            count = min(count, longest)
        return phase, count, low, high, nonzero and self.kind == "fraction", rest

    def accepts(self, state: _State) -> bool:
        """Whether the text may end here."""
        phase, count, low, high, nonzero, rest = state
        if phase in ("start", "point") or (self.kind == "fraction" and not nonzero):
            return False
        if phase in ("zero", "whole"):
            low = self.low.after_whole(count, low)
            high = -1 if self.high is None else self.high.after_whole(count, high)
            count = 0
        if self.scale is not None and rest != _BETWEEN:
            places = self.scale.places
            if not self.scale.accepts(rest * 10 ** (places - min(count, places))):
                return False
        low = self.low.final(count, low)
        if low < 0 or (low == 0 and self.low.open):
            return False
        if self.high is None:
            return True
        high = self.high.final(count, high)
        return high < 0 or (high == 0 and not self.high.open)


def _negated(value: int | Decimal | None) -> int | Decimal | None:
    # Unary minus on a Decimal rounds to the precision of the current context.
    return value.copy_negate() if isinstance(value, Decimal) else None if value is None else -value


def reader_of(piece: Piece, negative: bool, scale: Scale | None) -> Reader | None:
    """The reader of a piece's magnitudes on one side of zero; None if there are none."""
    low, low_open, high, high_open = piece.low, piece.low_open, piece.high, piece.high_open
    if negative:
        low, low_open, high, high_open = (
            _negated(high), high_open, _negated(low), low_open
        )  # fmt: skip
        if low is None or low <= 0:
            low, low_open = 0, True  # -0 is a spelling of zero and handled apart
    elif low is None or low < 0:
        low, low_open = 0, False
    if high is not None and (high < low or (high == low and (low_open or high_open))):
        return None
    upper = None if high is None else _Bound.of(high, high_open)
    return Reader(_Bound.of(low, low_open), upper, piece.kind, scale)


@dataclass(frozen=True, slots=True)
class Automaton:
    """A trimmed deterministic automaton; state 0 is the start. Symbol 10 is the point."""

    transitions: tuple[dict[int, int], ...]
    accepting: tuple[bool, ...]


# Minimal automata by what they read, for every compile of the process; weighed in states.
_MADE: Kept[Reader, Automaton] = Kept(100_000)


def automaton_of(reader: Reader) -> Automaton | None:
    """The minimal automaton of a reader; None if it has too many states."""
    found = _MADE.get(reader)
    if found is None:
        spend(_AUTOMATON)
        explored = _explore(reader)
        if explored is None:
            return None
        found = _minimise(explored)
        found = _MADE.put(reader, found, len(found.transitions))
    return found


def _explore(reader: Reader) -> Automaton | None:
    numbers: dict[_State, int] = {reader.start(): 0}
    order = [reader.start()]
    transitions: list[dict[int, int]] = []
    for state in order:
        spend(12)
        row: dict[int, int] = {}
        for first, past in (*reader.alike(state), (10, 11)):
            following = reader.step(state, first)
            if following is None:
                continue
            if following not in numbers:
                if len(order) >= MOST_STATES:
                    return None
                numbers[following] = len(order)
                order.append(following)
            row.update(dict.fromkeys(range(first, past), numbers[following]))
        transitions.append(row)
    return Automaton(tuple(transitions), tuple(reader.accepts(state) for state in order))


def _minimise(automaton: Automaton) -> Automaton:
    """Moore's partition refinement on the states from which something is accepted."""
    ends = [state for state, accepts in enumerate(automaton.accepting) if accepts]
    useful = reaching([row.values() for row in automaton.transitions], ends)
    if 0 not in useful:
        return Automaton(({},), (False,))
    rows = {
        state: {s: t for s, t in automaton.transitions[state].items() if t in useful}
        for state in sorted(useful)
    }
    edges = [(state, tuple(row), tuple(row.values())) for state, row in rows.items()]
    block = [int(accepts) for accepts in automaton.accepting]
    blocks = len({block[state] for state in rows})
    while True:
        found: dict[Hashable, int] = {}
        refined = block.copy()
        of = block.__getitem__
        for state, symbols, targets in edges:
            signature = (block[state], symbols, *map(of, targets))
            refined[state] = found.setdefault(signature, len(found))
        block = refined
        if len(found) == blocks:
            break
        blocks = len(found)
    # State 0 comes first in `rows`, so its block has number 0.
    transitions: list[dict[int, int]] = [{} for _ in range(blocks)]
    accepting = [False] * blocks
    for state, row in rows.items():
        transitions[block[state]] = {s: block[t] for s, t in row.items()}
        accepting[block[state]] = automaton.accepting[state]
    return Automaton(tuple(transitions), tuple(accepting))
