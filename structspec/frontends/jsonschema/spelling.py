"""How characters and strings are spelled in JSON text.

`Spelling` turns code points into nodes. Canonical: every character as itself, except ``"`` and
``\\`` (backslashed) and control characters (the shortest escape, as `json.dumps` writes them with
``ensure_ascii=False``). Spelling "any" adds every other legal escape of the same character, marked
as `ir.Variant`: ``\\/``, ``\\uXXXX`` in any case, pairs of surrogates beyond U+FFFF. A character
counts once however it is spelled.

Escapes for lone surrogates stand for no character. A generic string never contains one (such a
text is not interchangeable JSON); a key or constant of a schema that does is spelled by its escape.

Cost: a look-up per character, since nodes are kept for all compiles of a process; with `share`
(large documents) the escapes of a character are one rule, so that a literal costs one state per
character instead of one per possible byte.

Example::

    >>> from structspec.frontends.jsonschema.spelling import Spelling
    >>> Spelling("canonical", rules={}).text('a"')
    Bytes(value=b'"a\\\\""')
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Literal

from structspec import ir

__all__ = ["ALL_CHARACTERS", "Ranges", "Spelling", "spell", "spell_text"]

Ranges = tuple[tuple[int, int], ...]

#: Every Unicode scalar value.
ALL_CHARACTERS: Ranges = ((0, 0xD7FF), (0xE000, 0x10FFFF))

_SHORT = {
    0x22: b'\\"',
    0x5C: b"\\\\",
    0x08: b"\\b",
    0x0C: b"\\f",
    0x0A: b"\\n",
    0x0D: b"\\r",
    0x09: b"\\t",
}
_CANONICAL = {chr(code): f"\\u{code:04x}" for code in range(0x20)} | {
    chr(code): text.decode() for code, text in _SHORT.items()
}
_SOLIDUS = 0x2F
_ITSELF: Ranges = ((0x20, 0x21), (0x23, 0x5B), (0x5D, 0xD7FF), (0xE000, 0x10FFFF))
_QUOTE = ir.Bytes(b'"')
_BACKSLASH = ir.Bytes(b"\\")
_CHOICES = frozenset({ir.Choice})
# Texts up to this length are kept for later compiles.
_CACHED_TEXT = 64


class Spelling:
    """Spells characters and strings under one policy.

    Nodes are the same objects in every compile of the process, so builders may know them again by
    identity; only the rules that they call are entered into `rules`.
    """

    def __init__(
        self,
        spelling: Literal["any", "canonical"],
        rules: dict[str, ir.Node],
        share: bool = False,
    ) -> None:
        self.any = spelling == "any"
        self.rules = rules
        self.share = share
        #: Whether some strings have been written without the escapes that the policy allows.
        self.shortened = False
        self._entered: set[str] = set()

    def character(self, ranges: Ranges = ALL_CHARACTERS) -> ir.Node:
        """One character out of `ranges` (inclusive, sorted, disjoint code points)."""
        return spell(ranges, "any" if self.any else "canonical")

    def text(self, value: str) -> ir.Node:
        """The string `value` with its quotes."""
        if not self.any:
            return ir.Bytes(b'"' + _canonical_text(value) + b'"')
        if len(value) > _CACHED_TEXT:
            return ir.Sequence((_QUOTE, *self.characters(value), _QUOTE))
        if self.share:
            self._enter(value)
        return _text(value, self.share)

    def characters(self, value: str, apart: bool = False) -> tuple[ir.Node, ...]:
        """The characters of `value` as nodes to be put in sequence; `apart`: one node each."""
        if not self.any:
            if apart:
                return tuple(ir.Bytes(_canonical_text(character)) for character in value)
            return (ir.Bytes(_canonical_text(value)),)
        if self.share:
            self._enter(value)
        share = self.share
        return tuple([_one(character, share) for character in value])

    def followed(self, value: str, node: ir.Node) -> ir.Node:
        """The characters of `value` and `node` in sequence; neither may be empty."""
        characters = self.characters(value)
        if not self.any or not _CHOICES.issuperset(map(type, characters)):
            return ir.sequence((*characters, node))
        # PERF: choices run into nothing.
        following = node.items if type(node) is ir.Sequence else (node,)
        if not following and len(characters) == 1:
            return characters[0]
        return ir.Sequence((*characters, *following))

    def _enter(self, value: str) -> None:
        """Enter the rules that the characters of `value` call."""
        if self._entered.issuperset(value):
            return
        for character in dict.fromkeys(value):
            if character in self._entered:
                continue
            self._entered.add(character)
            escapes = _escapes(character)
            if escapes != ir.NOTHING:
                self.rules[_rule_name(character)] = escapes


def _canonical_text(value: str) -> bytes:
    special = not value.isprintable() or '"' in value or "\\" in value
    return ("".join(map(_escaped, value)) if special else value).encode()


def _escaped(character: str) -> str:
    text = _CANONICAL.get(character)
    if text is not None:
        return text
    return f"\\u{ord(character):04x}" if "\ud800" <= character <= "\udfff" else character


def _rule_name(character: str) -> str:
    return f"escape-{ord(character):04x}"


@lru_cache(maxsize=4096)
def _text(value: str, share: bool) -> ir.Node:
    return ir.Sequence((_QUOTE, *(_one(character, share) for character in value), _QUOTE))


@lru_cache(maxsize=4096)
def _one(character: str, share: bool) -> ir.Node:
    """One character in any spelling; with `share` the others are a rule that the caller enters."""
    code = ord(character)
    if 0xD800 <= code <= 0xDFFF:
        return _hexadecimal(code, code)
    canonical = ir.Bytes(_escaped(character).encode())
    escapes = _escapes(character)
    if escapes == ir.NOTHING:
        return canonical
    if share:
        escapes = ir.Rule(_rule_name(character))
    return ir.Choice((canonical, ir.Variant(escapes)))


@lru_cache(maxsize=4096)
def _escapes(character: str) -> ir.Node:
    """The spellings of a character besides its canonical one."""
    code = ord(character)
    if 0xD800 <= code <= 0xDFFF:
        return ir.NOTHING
    canonical = ir.Bytes(_escaped(character).encode())
    return ir.choice(escape for escape in _escapes_of(((code, code),)) if escape != canonical)


@lru_cache(maxsize=1024)
def spell(ranges: Ranges, spelling: Literal["any", "canonical"] = "any") -> ir.Node:
    """One character out of `ranges` as it may be spelled inside a JSON string."""
    options: list[ir.Node] = []
    plain = _clip(ranges, _ITSELF)
    if plain:
        options.append(ir.Chars(plain))
    short = [code for code in _SHORT if _holds(ranges, code)]
    control = [code for code in range(0x20) if code not in _SHORT and _holds(ranges, code)]
    letters = [_SHORT[code][1] for code in short]
    numeric: list[ir.Node] = []
    if spelling == "canonical":
        for first in {code >> 4: None for code in control}:
            digits = sorted(ord(f"{code & 15:x}") for code in control if code >> 4 == first)
            numeric.append(ir.sequence((ir.Bytes(b"u00%x" % first), ir.Chars(_runs(digits)))))
    else:
        if _holds(ranges, _SOLIDUS):
            letters.append(_SOLIDUS)
        numeric += (_without_backslash(node) for node in _numeric(ranges))
    # The backslash once: a state inside a string would otherwise have an edge for each escape.
    behind = [ir.Chars(_runs(sorted(letters)))] if letters else []
    if behind or numeric:
        escape = ir.sequence((_BACKSLASH, ir.choice([*behind, *numeric])))
        options.append(escape if short or control else ir.Variant(escape))
    return ir.choice(options)


def _without_backslash(node: ir.Node) -> ir.Node:
    """What follows the backslash of a numeric escape."""
    first, *rest = node.items if isinstance(node, ir.Sequence) else (node,)
    assert isinstance(first, ir.Bytes) and first.value[:2] == b"\\u"
    return ir.sequence((ir.Bytes(first.value[1:]), *rest))


def _runs(codes: list[int]) -> Ranges:
    """Sorted code points as ranges."""
    ranges: list[tuple[int, int]] = []
    for code in codes:
        if ranges and ranges[-1][1] == code - 1:
            ranges[-1] = (ranges[-1][0], code)
        else:
            ranges.append((code, code))
    return tuple(ranges)


def spell_text(value: str, spelling: Literal["any", "canonical"] = "any") -> ir.Node:
    """A whole JSON string, quotes included."""
    return Spelling(spelling, {}).text(value)


def _clip(ranges: Iterable[tuple[int, int]], within: Ranges) -> Ranges:
    return tuple(
        (max(low, first), min(high, last))
        for low, high in ranges
        for first, last in within
        if max(low, first) <= min(high, last)
    )


def _holds(ranges: Ranges, code: int) -> bool:
    return any(low <= code <= high for low, high in ranges)


def _escapes_of(ranges: Ranges) -> Iterator[ir.Node]:
    r"""``\/`` and the numeric escapes of all characters of `ranges`."""
    if _holds(ranges, _SOLIDUS):
        yield ir.Bytes(b"\\/")
    yield from _numeric(ranges)


def _numeric(ranges: Ranges) -> Iterator[ir.Node]:
    r"""``\uXXXX`` for all characters of `ranges`, pairs of surrogates beyond U+FFFF."""
    for low, high in _clip(ranges, ((0, 0xD7FF), (0xE000, 0xFFFF))):
        yield _hexadecimal(low, high)
    for low, high in _clip(ranges, ((0x10000, 0x10FFFF),)):
        yield from _pairs(low - 0x10000, high - 0x10000)


def _pairs(low: int, high: int) -> Iterator[ir.Node]:
    """Pairs of surrogates for the code points 0x10000 + `low` to 0x10000 + `high`."""
    first, last = low >> 10, high >> 10
    if first == last:
        yield _pair(first, first, low & 0x3FF, high & 0x3FF)
        return
    if low & 0x3FF:
        yield _pair(first, first, low & 0x3FF, 0x3FF)
        first += 1
    if high & 0x3FF != 0x3FF:
        yield _pair(last, last, 0, high & 0x3FF)
        last -= 1
    if first <= last:
        yield _pair(first, last, 0, 0x3FF)


@lru_cache(maxsize=4096)
def _pair(first: int, last: int, low: int, high: int) -> ir.Node:
    return ir.sequence(
        (
            _hexadecimal(0xD800 + first, 0xD800 + last),
            _hexadecimal(0xDC00 + low, 0xDC00 + high),
        )
    )


@lru_cache(maxsize=4096)
def _hexadecimal(low: int, high: int) -> ir.Node:
    r"""``\uXXXX`` for all code units from `low` to `high`."""
    node = ir.sequence((ir.Bytes(b"\\u"), _four(low, high, 4)))
    # Once more, so that the digits of a single code unit become one literal.
    return ir.sequence(node.items) if isinstance(node, ir.Sequence) else node


@lru_cache(maxsize=4096)
def _four(low: int, high: int, digits: int) -> ir.Node:
    """The numbers from `low` to `high` with exactly so many hexadecimal digits."""
    if digits == 0:
        return ir.EPSILON
    unit = 16 ** (digits - 1)
    first, last = low // unit, high // unit
    if first == last:
        return ir.sequence((_digits(first, first), _four(low % unit, high % unit, digits - 1)))
    options: list[ir.Node] = []
    if low % unit:
        options.append(
            ir.sequence((_digits(first, first), _four(low % unit, unit - 1, digits - 1)))
        )
        first += 1
    tail: list[ir.Node] = []
    if high % unit != unit - 1:
        tail.append(ir.sequence((_digits(last, last), _four(0, high % unit, digits - 1))))
        last -= 1
    if first <= last:
        rest = [_digits(0, 15)] * (digits - 1)
        options.append(ir.sequence((_digits(first, last), *rest)))
    return ir.choice(options + tail)


@lru_cache(maxsize=4096)
def _digits(first: int, last: int) -> ir.Node:
    codes = sorted(
        {ord(text) for digit in range(first, last + 1) for text in (f"{digit:x}", f"{digit:X}")}
    )
    if len(codes) == 1:
        return ir.Bytes(bytes(codes))
    return ir.Chars(_runs(codes))
