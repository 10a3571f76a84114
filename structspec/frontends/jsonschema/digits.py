"""Numbers as text: sets of numbers written as grammar rules.

`number_texts` turns a `NumberSet` into a node whose language is all plain decimal texts of its
numbers. Each maximal interval (`pieces`) becomes the automaton of its digits (`magnitudes`) in
right-linear rules; points become literals.

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

from collections.abc import Iterator
from decimal import Decimal
from typing import Literal

from structspec import ir
from structspec.frontends.jsonschema.budget import most_states, spend
from structspec.frontends.jsonschema.intervals import INTEGERS, REALS
from structspec.frontends.jsonschema.magnitudes import (
    Automaton,
    Scale,
    automaton_of,
    common_scale,
    reader_of,
)
from structspec.frontends.jsonschema.numbers import NumberSet
from structspec.frontends.jsonschema.pieces import Number, Piece, decimal_text, pieces
from structspec.frontends.jsonschema.text_automata import words_node

__all__ = ["Digits"]

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
        scale = common_scale(numbers)
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
                broken.append(decimal_text(piece.low).rstrip("0"))
            else:
                whole.append(decimal_text(piece.low))
        texts: list[ir.Node] = []
        if whole:
            texts.append(self._integer_suffix(_literals(whole)))
        if broken:
            node = _literals(broken)
            texts.append(self._with_variant(node, _ZEROS) if self.spelling == "any" else node)
        return texts, others

    def point(self, value: Number) -> ir.Node:
        """The texts of one number."""
        text = ir.Bytes(decimal_text(value).encode())
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

    def _piece(self, piece: Piece, scale: Scale | None) -> ir.Node | None:
        texts: list[ir.Node] = []
        for negative in (False, True):
            reader = reader_of(piece, negative, scale)
            if reader is None:
                continue
            automaton = automaton_of(reader)
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


def _lower(automaton: Automaton, rules: dict[str, ir.Node], bodies: dict[ir.Node, str]) -> ir.Node:
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
