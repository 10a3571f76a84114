"""Sets of characters: range algebra, the shorthand classes and Unicode properties.

Owns `Ranges` (sorted, disjoint, inclusive pairs of Unicode scalar values) and everything that a
class or a property escape can name. General categories come from the interpreter's own Unicode
data (`unicodedata.unidata_version`); scripts and derived properties from `properties`.

Cost: the first property escape scans all code points once (about 0.1 s).

Example::

    >>> difference(((97, 122),), ((101, 101),))
    ((97, 100), (102, 122))
    >>> general_category("Lu")[0]
    (65, 90)
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Final, TypeAlias

__all__ = [
    "SCALARS",
    "Ranges",
    "complement",
    "difference",
    "general_category",
    "intersection",
    "normalise",
    "python_shorthand",
    "resolve_property",
    "where",
]

Ranges: TypeAlias = tuple[tuple[int, int], ...]

SCALARS: Final[Ranges] = ((0, 0xD7FF), (0xE000, 0x10FFFF))

DIGIT: Final[Ranges] = ((0x30, 0x39),)
WORD: Final[Ranges] = ((0x30, 0x39), (0x41, 0x5A), (0x5F, 0x5F), (0x61, 0x7A))
SPACE: Final[Ranges] = (
    (0x09, 0x0D),
    (0x20, 0x20),
    (0xA0, 0xA0),
    (0x1680, 0x1680),
    (0x2000, 0x200A),
    (0x2028, 0x2029),
    (0x202F, 0x202F),
    (0x205F, 0x205F),
    (0x3000, 0x3000),
    (0xFEFF, 0xFEFF),
)
"""ECMAScript's WhiteSpace and LineTerminator together."""

ASCII_SPACE: Final[Ranges] = ((0x09, 0x0D), (0x20, 0x20))
"""What Python's `\\s` matches with the flag a."""

LINE_ENDS: Final[Ranges] = ((0x0A, 0x0A), (0x0D, 0x0D), (0x2028, 0x2029))
"""What ECMAScript's dot does not match."""

_WHITE_SPACE: Final[Ranges] = tuple(sorted({*SPACE, (0x85, 0x85)} - {(0xFEFF, 0xFEFF)}))
_NONCHARACTERS: Final[Ranges] = (
    (0xFDD0, 0xFDEF),
    *((plane + 0xFFFE, plane + 0xFFFF) for plane in range(0, 0x110000, 0x10000)),
)
_CATEGORIES: Final = {
    "Cased_Letter": "LC", "Close_Punctuation": "Pe", "Connector_Punctuation": "Pc",
    "Control": "Cc", "Currency_Symbol": "Sc", "Dash_Punctuation": "Pd",
    "Decimal_Number": "Nd", "Enclosing_Mark": "Me", "Final_Punctuation": "Pf",
    "Format": "Cf", "Initial_Punctuation": "Pi", "Letter": "L", "Letter_Number": "Nl",
    "Line_Separator": "Zl", "Lowercase_Letter": "Ll", "Mark": "M", "Math_Symbol": "Sm",
    "Modifier_Letter": "Lm", "Modifier_Symbol": "Sk", "Nonspacing_Mark": "Mn",
    "Number": "N", "Open_Punctuation": "Ps", "Other": "C", "Other_Letter": "Lo",
    "Other_Number": "No", "Other_Punctuation": "Po", "Other_Symbol": "So",
    "Paragraph_Separator": "Zp", "Private_Use": "Co", "Punctuation": "P",
    "Separator": "Z", "Space_Separator": "Zs", "Spacing_Mark": "Mc", "Surrogate": "Cs",
    "Symbol": "S", "Titlecase_Letter": "Lt", "Unassigned": "Cn", "Uppercase_Letter": "Lu",
    "cntrl": "Cc", "digit": "Nd", "punct": "P", "Combining_Mark": "M",
}  # fmt: skip
_BINARY_ALIASES: Final = {
    "Alpha": "Alphabetic", "AHex": "ASCII_Hex_Digit", "Hex": "Hex_Digit", "Lower": "Lowercase",
    "NChar": "Noncharacter_Code_Point", "Upper": "Uppercase", "XIDC": "XID_Continue",
    "XIDS": "XID_Start", "space": "White_Space", "IDC": "ID_Continue", "IDS": "ID_Start",
}  # fmt: skip


def normalise(ranges: Iterable[tuple[int, int]]) -> Ranges:
    """Sorted and merged, without surrogates (no text contains them)."""
    merged: list[tuple[int, int]] = []
    for low, high in sorted(ranges):
        if merged and low <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(merged[-1][1], high))
        else:
            merged.append((low, high))
    return _cut(tuple(merged), SCALARS)


def complement(ranges: Ranges) -> Ranges:
    """All scalar values that are not in `ranges`."""
    return difference(SCALARS, ranges)


def intersection(a: Ranges, b: Ranges) -> Ranges:
    """The characters in both."""
    return _cut(a, b)


def difference(a: Ranges, b: Ranges) -> Ranges:
    """The characters of `a` that are not in `b`."""
    gaps: list[tuple[int, int]] = []
    at = 0
    for low, high in b:
        if at < low:
            gaps.append((at, low - 1))
        at = high + 1
    if at <= 0x10FFFF:
        gaps.append((at, 0x10FFFF))
    return _cut(a, tuple(gaps))


def _cut(a: Ranges, b: Ranges) -> Ranges:
    found: list[tuple[int, int]] = []
    i = j = 0
    while i < len(a) and j < len(b):
        low, high = max(a[i][0], b[j][0]), min(a[i][1], b[j][1])
        if low <= high:
            found.append((low, high))
        if a[i][1] < b[j][1]:
            i += 1
        else:
            j += 1
    return tuple(found)


def where(test: Callable[[str], bool]) -> Ranges:
    """The characters that pass a test."""
    found: list[tuple[int, int]] = []
    for low, high in SCALARS:
        start = -1
        for code in range(low, high + 1):
            if test(chr(code)):
                start = code if start < 0 else start
            elif start >= 0:
                found.append((start, code - 1))
                start = -1
        if start >= 0:
            found.append((start, high))
    return normalise(found)


@lru_cache(maxsize=1)
def _by_category() -> dict[str, Ranges]:
    """All scalar values by two-letter category."""
    found: dict[str, list[tuple[int, int]]] = {}
    for low, high in SCALARS:
        start, current = low, unicodedata.category(chr(low))
        for code in range(low + 1, high + 1):
            category = unicodedata.category(chr(code))
            if category != current:
                found.setdefault(current, []).append((start, code - 1))
                start, current = code, category
        found.setdefault(current, []).append((start, high))
    return {category: normalise(ranges) for category, ranges in found.items()}


def general_category(name: str) -> Ranges | None:
    """The characters of a general category, by short or long name; None if there is none."""
    name = _CATEGORIES.get(name, name)
    table = _by_category()
    if name == "Cs":
        return ()
    if name == "LC":
        parts = ["Lu", "Ll", "Lt"]
    elif len(name) == 1:
        parts = [category for category in table if category[0] == name]
    else:
        parts = [name] if name in table else []
    return normalise(pair for part in parts for pair in table[part]) if parts else None


@lru_cache(maxsize=64)
def resolve_property(expression: str) -> Ranges | None:
    r"""What `\p{expression}` matches; None if the property or its value is not known here."""
    from structspec.frontends.regex import properties

    name, equals, value = expression.partition("=")
    if equals:
        if name in ("General_Category", "gc"):
            return general_category(value)
        if name in ("Script", "sc"):
            return properties.script(value)
        return None
    name = _BINARY_ALIASES.get(name, name)
    match name:
        case "Any":
            return SCALARS
        case "ASCII":
            return ((0, 0x7F),)
        case "Assigned":
            return complement(_by_category()["Cn"])
        case "ASCII_Hex_Digit":
            return ((0x30, 0x39), (0x41, 0x46), (0x61, 0x66))
        case "Hex_Digit":
            half = ((0x30, 0x39), (0x41, 0x46), (0x61, 0x66))
            return half + tuple((low + 0xFEE0, high + 0xFEE0) for low, high in half)
        case "White_Space":
            return _WHITE_SPACE
        case "Noncharacter_Code_Point":
            return _NONCHARACTERS
        case "Lowercase":
            return where(str.islower)
        case "Uppercase":
            return where(str.isupper)
        case "XID_Start":
            return where(lambda char: char != "_" and char.isidentifier())
        case "XID_Continue":
            return where(lambda char: f"a{char}".isidentifier())
    return properties.binary(name) or general_category(name)


@lru_cache(maxsize=4)
def python_shorthand(letter: str) -> Ranges:
    r"""Python's `\d`, `\w` and `\s` for text."""
    if letter == "d":
        return _by_category()["Nd"]
    if letter == "w":
        return where(lambda char: char.isalnum() or char == "_")
    return where(str.isspace)
