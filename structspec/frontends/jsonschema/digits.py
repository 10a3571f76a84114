"""Numbers as text: exact automata over digits for intervals and multiples, lowered to the IR.

`number_texts` turns a `NumberSet` into a node whose language is all plain decimal texts of its
numbers. Each maximal interval becomes a small deterministic automaton that reads a magnitude from
the left: how many digits it has read and how they compare with the bounds' digits so far. Two
bounds of d digits cost O(d) states; a multiple k multiplies that by k (the remainder is tracked).
Points become literals.

Spelling "any" adds, marked as `Variant`: ``.0`` after integers, zeros after fractions, ``-0``, and
exponents for the set of all numbers and where only the sign is bounded. Everywhere else exponents
are left out.

Example::

    >>> from structspec.frontends.jsonschema.digits import Digits
    >>> digits = Digits(rules={}, spelling="canonical")
    >>> digits.point(Decimal("4.20"))
    Bytes(value=b'4.2')
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Literal, TypeAlias

from structspec import ir
from structspec.frontends.jsonschema.budget import most_states, spend
from structspec.frontends.jsonschema.intervals import (
    INTEGERS,
    REALS,
    Intervals,
    complement,
    contains,
    intersect,
)
from structspec.frontends.jsonschema.kept import Kept
from structspec.frontends.jsonschema.numbers import NumberSet, ceiling, floor
from structspec.frontends.jsonschema.text_automata import words_node

__all__ = ["Digits", "Piece", "pieces"]

Kind: TypeAlias = Literal["integer", "fraction", "any"]
Number: TypeAlias = int | Decimal

_DIGIT = ir.Chars(((48, 57),))
_NONZERO = ir.Chars(((49, 57),))
_DIGITS = ir.Repeat(_DIGIT, 0, None)
_MINUS = ir.Bytes(b"-")
_WHOLE = ir.Choice((ir.Bytes(b"0"), ir.Sequence((_NONZERO, _DIGITS))))
_ZEROS = ir.Repeat(ir.Bytes(b"0"), 1, None)
_DOT_ZEROS = ir.Sequence((ir.Bytes(b"."), _ZEROS))
_FRACTION = ir.Sequence((ir.Bytes(b"."), ir.Repeat(_DIGIT, 1, None)))
_EXPONENT = ir.Sequence(
    (
        ir.Chars(((69, 69), (101, 101))),
        ir.Choice((ir.EPSILON, ir.Chars(((43, 43), (45, 45))))),
        ir.Repeat(_DIGIT, 1, None),
    )
)

_ZERO = ir.sequence((ir.Bytes(b"0"), ir.Choice((ir.EPSILON, _DOT_ZEROS))))
_POSITIVE = ir.Choice(
    (
        ir.Sequence((_NONZERO, _DIGITS, ir.Choice((ir.EPSILON, _FRACTION)))),
        ir.Sequence((ir.Bytes(b"0."), ir.Repeat(ir.Bytes(b"0"), 0, None), _NONZERO, _DIGITS)),
    )
)
_PLAIN_NUMBER = ir.Sequence(
    (ir.Choice((ir.EPSILON, _MINUS)), _WHOLE, ir.Choice((ir.EPSILON, _FRACTION)))
)
#: All numbers, by whether exponents are written.
_ALL_NUMBERS = {
    False: _PLAIN_NUMBER,
    True: ir.sequence((_PLAIN_NUMBER, ir.Choice((ir.EPSILON, ir.Variant(_EXPONENT))))),
}
# More single numbers than this share their beginnings and ends.
_MANY_POINTS = 256
# A chain of states is cut into rules of this many characters, so that nodes stay shallow.
_CHAIN = 8
# Units for one automaton that is not known yet, beside those for its states.
_AUTOMATON = 200
#: The most states that the digits of one interval may cost.
MOST_STATES = 20_000


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


class Digits:
    """Lowers numbers; adds the rules that automata need to `rules`."""

    def __init__(
        self,
        rules: dict[str, ir.Node],
        spelling: Literal["any", "canonical"],
    ) -> None:
        self.rules = rules
        self.spelling = spelling
        #: Whether ``1.0`` spells an integer (in draft 4 it is none).
        self.zero_fractions = spelling == "any"
        #: Whether integers have to be spelled so.
        self.pointed = False
        # Rules by body: tails such as "any digits" are the same for most bounds.
        self._bodies: dict[ir.Node, str] = {}

    def number_texts(self, numbers: NumberSet) -> ir.Node | None:
        """The texts of a set of numbers; None if its multiples would cost too many states."""
        self.zero_fractions = self.spelling == "any" and not numbers.bare
        self.pointed = numbers.pointed
        if self.pointed and self.spelling != "any":
            return ir.NOTHING  # the canonical spelling writes integers without a point
        if not numbers.multiples and not numbers.others:
            if numbers.ints == INTEGERS and numbers.fracs == REALS:
                return _ALL_NUMBERS[self.spelling == "any"]
            if numbers.ints == INTEGERS and not numbers.fracs:
                return self._all_integers()
        scale = _common(numbers)
        texts: list[ir.Node] = []
        found = list(pieces(numbers.ints, numbers.fracs))
        if scale is None and len(found) > _MANY_POINTS:
            texts, found = self._points(found)
        for piece in found:
            spend()
            if piece.low is not None and piece.low == piece.high and scale is None:
                texts.append(self.point(piece.low))
                continue
            text = self._piece(piece, scale)
            if text is None:
                return None
            texts.append(text)
            if scale is None and self.spelling == "any":
                texts += self._signed_exponents(piece)
        return ir.choice(texts)

    def _signed_exponents(self, piece: Piece) -> Iterator[ir.Node]:
        """Spellings with an exponent of a piece that only bounds the sign: ``1e-06`` above 0."""
        if piece.kind != "any" or {piece.low, piece.high} != {0, None}:
            return
        sign = ir.EPSILON if piece.low is not None else _MINUS
        yield ir.Variant(ir.sequence((sign, _POSITIVE, _EXPONENT)))
        if piece.holds_zero:
            minus = ir.Choice((ir.EPSILON, _MINUS))
            yield ir.Variant(ir.sequence((minus, _ZERO, _EXPONENT)))

    def _points(self, every: list[Piece]) -> tuple[list[ir.Node], list[Piece]]:
        """The automata of very many single numbers, and the pieces that are none."""
        whole: list[str] = []
        broken: list[str] = []
        others = []
        for piece in every:
            if piece.low is None or piece.low != piece.high or piece.low == 0:
                others.append(piece)
            elif isinstance(piece.low, Decimal):
                broken.append(_plain(piece.low).rstrip("0"))
            else:
                whole.append(_plain(piece.low))
        texts: list[ir.Node] = []
        if whole:
            texts.append(self._integer_suffix(_literals(whole)))
        if broken:
            node = _literals(broken)
            texts.append(self._with_variant(node, _ZEROS) if self.spelling == "any" else node)
        return texts, others

    def point(self, value: Number) -> ir.Node:
        """The texts of one number."""
        text = ir.Bytes(_plain(value).encode())
        if isinstance(value, Decimal):
            text = ir.Bytes(text.value.rstrip(b"0"))
            return self._with_variant(text, _ZEROS) if self.spelling == "any" else text
        node: ir.Node = text
        if value == 0 and self.spelling == "any":
            node = ir.Choice((text, ir.Variant(ir.Bytes(b"-0"))))
        return self._integer_suffix(node)

    def _with_variant(self, node: ir.Node, suffix: ir.Node) -> ir.Node:
        return ir.sequence((node, ir.Choice((ir.EPSILON, ir.Variant(suffix)))))

    def _integer_suffix(self, node: ir.Node) -> ir.Node:
        if self.pointed:
            return ir.sequence((node, _DOT_ZEROS))
        return self._with_variant(node, _DOT_ZEROS) if self.zero_fractions else node

    def _all_integers(self) -> ir.Node:
        sign = ir.Choice((ir.EPSILON, _MINUS))
        texts: list[ir.Node] = [ir.Bytes(b"0"), ir.Sequence((sign, _NONZERO, _DIGITS))]
        if self.spelling == "any":
            return self._integer_suffix(ir.Choice((*texts, ir.Variant(ir.Bytes(b"-0")))))
        return ir.Choice(tuple(texts))

    def _piece(self, piece: Piece, scale: _Scale | None) -> ir.Node | None:
        texts: list[ir.Node] = []
        for negative in (False, True):
            reader = _reader(piece, negative, scale)
            if reader is None:
                continue
            automaton = _automaton_of(reader)
            if automaton is None:
                return None
            magnitude = _lower(automaton, self.rules, self._bodies)
            texts.append(ir.sequence((_MINUS, magnitude)) if negative else magnitude)
        holds_zero = piece.holds_zero and not (scale and scale.others)
        if holds_zero and self.spelling == "any":
            zero: ir.Node = ir.Bytes(b"-0")
            if piece.kind == "any":
                zero = ir.Sequence((zero, ir.Choice((ir.EPSILON, _DOT_ZEROS))))
            texts.append(ir.Variant(zero))
        node = ir.choice(texts)
        if piece.kind == "integer" and node != ir.NOTHING:
            return self._integer_suffix(node)
        return node


def _literals(texts: list[str]) -> ir.Node:
    """The minimal automaton of many ASCII texts."""
    spend(sum(map(len, texts)) >> 3)
    return words_node(texts, ir.Chars, most_states())


@dataclass(frozen=True, slots=True)
class _Scale:
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


def _common(numbers: NumberSet) -> _Scale | None:
    """The residues that decide; None if nothing has to divide or not to divide the numbers."""
    if not numbers.multiples and not numbers.others:
        return None
    both = [multiple for multiple, _ in (*numbers.multiples, *numbers.others)]
    places = max(-min(_exponent(multiple), 0) for multiple in both)
    units = [int(Fraction(multiple) * 10**places) for multiple in both]
    known = len(numbers.multiples)
    step = math.lcm(*units[:known]) if known else None
    return _Scale(math.lcm(*units), places, step, tuple(units[known:]))


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
        whole, _, fraction = _plain(value).partition(".")
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


def _plain(value: Number) -> str:
    """The value without an exponent (formatting an int with "f" would round it to a float)."""
    return format(value, "f") if isinstance(value, Decimal) else str(value)


def _sign(value: int) -> int:
    return (value > 0) - (value < 0)


# The remainder of numbers that lie between two units, so that nothing divides them.
_BETWEEN = -1

_State: TypeAlias = tuple[str, int, int, int, bool, int]
# phase ("start", "zero", "whole", "point", "fraction"), digits read in it, order with the low
# bound, order with the high bound, whether a nonzero digit stands behind the point, remainder


@dataclass(frozen=True, slots=True)
class _Reader:
    """The automaton of one interval of magnitudes, given by its transition function."""

    low: _Bound
    high: _Bound | None
    kind: Kind
    scale: _Scale | None

    def start(self) -> _State:
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


def _reader(piece: Piece, negative: bool, scale: _Scale | None) -> _Reader | None:
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
    return _Reader(_Bound.of(low, low_open), upper, piece.kind, scale)


@dataclass(frozen=True, slots=True)
class _Automaton:
    """A trimmed deterministic automaton; state 0 is the start. Symbol 10 is the point."""

    transitions: tuple[dict[int, int], ...]
    accepting: tuple[bool, ...]


# Minimal automata by what they read, for every compile of the process; weighed in states.
_MADE: Kept[_Reader, _Automaton] = Kept(100_000)


def _automaton_of(reader: _Reader) -> _Automaton | None:
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


def _explore(reader: _Reader) -> _Automaton | None:
    numbers: dict[_State, int] = {reader.start(): 0}
    order = [reader.start()]
    transitions: list[dict[int, int]] = []
    for state in order:
        spend(12)
        row: dict[int, int] = {}
        for symbol in range(11):
            following = reader.step(state, symbol)
            if following is None:
                continue
            if following not in numbers:
                if len(order) >= MOST_STATES:
                    return None
                numbers[following] = len(order)
                order.append(following)
            row[symbol] = numbers[following]
        transitions.append(row)
    return _Automaton(tuple(transitions), tuple(reader.accepts(state) for state in order))


def _minimise(automaton: _Automaton) -> _Automaton:
    """Moore's partition refinement on the states from which something is accepted."""
    size = len(automaton.transitions)
    sources: list[list[int]] = [[] for _ in range(size)]
    for state, row in enumerate(automaton.transitions):
        for target in row.values():
            sources[target].append(state)
    useful = {state for state in range(size) if automaton.accepting[state]}
    stack = list(useful)
    while stack:
        for source in sources[stack.pop()]:
            if source not in useful:
                useful.add(source)
                stack.append(source)
    if 0 not in useful:
        return _Automaton(({},), (False,))
    rows = {
        state: {s: t for s, t in automaton.transitions[state].items() if t in useful}
        for state in sorted(useful)
    }
    block: dict[int, int] = {state: int(automaton.accepting[state]) for state in rows}
    blocks = len(set(block.values()))
    while True:
        found: dict[Hashable, int] = {}
        refined: dict[int, int] = {}
        for state, row in rows.items():
            signature = (block[state], *((s, block[t]) for s, t in row.items()))
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
    return _Automaton(tuple(transitions), tuple(accepting))


def _lower(automaton: _Automaton, rules: dict[str, ir.Node], bodies: dict[ir.Node, str]) -> ir.Node:
    """Right-linear rules for the states that need a name, everything else written inline."""
    depth = {0: 0}
    entries = [0] * len(automaton.transitions)
    entries[0] = 1
    queue = [0]
    for state in queue:
        for target in dict.fromkeys(automaton.transitions[state].values()):
            if target != state:
                entries[target] += 1
            if target not in depth:
                depth[target] = depth[state] + 1
                queue.append(target)
    prefix = f"number-{len(rules)}"
    named = {
        state
        for state in queue
        if automaton.transitions[state]
        and (entries[state] > 1 or (state and depth[state] % _CHAIN == 0))
    }

    def body(state: int) -> ir.Node:
        loop: list[int] = []
        by_target: dict[int, list[int]] = {}
        for symbol, target in automaton.transitions[state].items():
            (loop if target == state else by_target.setdefault(target, [])).append(symbol)
        options: list[ir.Node] = [ir.EPSILON] if automaton.accepting[state] else []
        for target, symbols in by_target.items():
            options.append(ir.sequence((_symbols(symbols), reference(target))))
        following = ir.choice(options)
        if loop:
            following = ir.sequence((ir.Repeat(_symbols(loop), 0, None), following))
        return following

    def reference(state: int) -> ir.Node:
        if state not in named:
            return body(state)
        mentioned.add(state)
        return ir.Rule(names.get(state, f"{prefix}.{state}"))

    names: dict[int, str] = {}
    mentioned: set[int] = set()
    # The last states first: their names are settled when the states before them mention them.
    for state in sorted(named, key=lambda s: (-depth[s], s)):
        node = body(state)
        own = f"{prefix}.{state}"
        names[state] = bodies.setdefault(node, own)
        if names[state] == own or state in mentioned:
            names[state] = own
            rules[own] = node
    return reference(0)


def _symbols(symbols: list[int]) -> ir.Node:
    codes = sorted(46 if symbol == 10 else 48 + symbol for symbol in symbols)
    ranges: list[tuple[int, int]] = []
    for code in codes:
        if ranges and ranges[-1][1] == code - 1:
            ranges[-1] = (ranges[-1][0], code)
        else:
            ranges.append((code, code))
    if len(codes) == 1:
        return ir.Bytes(bytes(codes))
    return ir.Chars(tuple(ranges))
