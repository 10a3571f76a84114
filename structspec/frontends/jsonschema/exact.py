"""JSON values with exact numbers, out of texts and out of Python values.

Owns the plain values that the rest of the front end sees: every number is an `int` (if integral, so
``1.0`` is 1) or an exact `Decimal`, floats being read by their shortest repr.

Invariants: no value is a float; all object keys are strings; surrogate pairs in strings are joined.

Cost: linear; nothing here recurses, so nesting is limited by the JSON parser alone.

Example::

    >>> from structspec.frontends.jsonschema.exact import plain, read_text
    >>> read_text('{"const": 2.0}'), plain([0.1, (1e2,)])
    ({'const': 2}, [Decimal('0.1'), [100]])
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from structspec.errors import SchemaError, UnsupportedFeature
from structspec.frontends.jsonschema.budget import spend
from structspec.frontends.jsonschema.pointers import escape

__all__ = ["plain", "read_text"]

# A number such as 1e999999999 is short to write and endless to spell out.
_MOST_DIGITS = 4096
_SHORT_NUMBER = 18
_SMALL = 1 << 62


def read_text(source: str) -> Any:
    """Parse the JSON text of a schema exactly. Raises SchemaError with line and column."""
    try:
        if source.startswith("\ufeff"):
            json.loads(source)  # says what is wrong with it
        value = _DECODER.decode(source)
    except UnsupportedFeature:
        # A number that is too long: read it again to say where it stands.
        value = json.loads(source, parse_float=Decimal, parse_int=Decimal)
        return plain(value)
    except json.JSONDecodeError as error:
        raise SchemaError(
            f"the schema is not JSON: {error.msg}", line=error.lineno, column=error.colno
        ) from error
    except RecursionError as error:
        raise SchemaError(
            "the schema's JSON text is nested deeper than the JSON parser can read; "
            "flatten it with $defs and $ref"
        ) from error
    # Only escapes can make halves of surrogate pairs (or a str that UTF-8 cannot hold).
    return plain(value) if "\\u" in source or _has_surrogates(source) else value


def _parsed(text: str) -> int | Decimal:
    return _number(Decimal(text), "", None)


def _parsed_int(text: str) -> int | Decimal:
    return int(text) if len(text) < _SHORT_NUMBER else _number(Decimal(text), "", None)


def _no_constant(name: str) -> Any:
    raise SchemaError(f"the schema is not JSON: {name} is not a JSON value")


_DECODER = json.JSONDecoder(parse_float=_parsed, parse_int=_parsed_int, parse_constant=_no_constant)


def plain(source: Any, pointer: str = "") -> Any:
    """A copy of a JSON value whose numbers are ints and Decimals. Iterative, linear.

    The copy is a tree even if the source shares containers; one that becomes too large raises
    BudgetExceeded.
    """
    box: list[Any] = [None]
    # (where to store, under which key, the source value, its pointer as a linked list)
    stack: list[tuple[Any, Any, Any, Any]] = [(box, 0, source, None)]
    made = 0
    while stack:
        holder, key, value, path = stack.pop()
        if isinstance(value, Mapping):
            copy: dict[str, Any] = {}
            holder[key] = copy
            for name, item in value.items():
                if not isinstance(name, str):
                    raise SchemaError(
                        f"the key {name!r} is not a string", pointer=_join(pointer, path)
                    )
                name = _text(name)
                kind = type(item)
                if kind is str:
                    copy[name] = item if item.isascii() else _text(item)
                elif kind is bool or item is None:
                    copy[name] = item
                elif kind is dict or kind is list or isinstance(item, Mapping | list | tuple):
                    copy[name] = None  # keeps the order of the keys
                    stack.append((copy, name, item, (path, name)))
                else:
                    copy[name] = _scalar(item, pointer, (path, name))
        elif isinstance(value, list | tuple):
            items: list[Any] = []
            holder[key] = items
            for i, item in enumerate(value):
                kind = type(item)
                if kind is str:
                    items.append(item if item.isascii() else _text(item))
                elif kind is bool or item is None:
                    items.append(item)
                elif isinstance(item, Mapping | list | tuple):
                    items.append(None)
                    stack.append((items, i, item, (path, str(i))))
                else:
                    items.append(_scalar(item, pointer, (path, str(i))))
        else:
            holder[key] = _scalar(value, pointer, path)
        made += 1
        if made % 1024 == 0:
            spend(1024)
    return box[0]


def _scalar(value: Any, pointer: str, path: Any) -> Any:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, int):
        if type(value) is int and -_SMALL < value < _SMALL:
            return value
        if value.bit_length() > 3 * _MOST_DIGITS:
            return _number(Decimal(value), pointer, path)
        return int(value)
    if isinstance(value, float):
        if not math.isfinite(value):
            raise SchemaError(f"{value} is not a JSON number", pointer=_join(pointer, path))
        value = Decimal(repr(value))
    if isinstance(value, Decimal):
        if not value.is_finite():
            raise SchemaError(f"{value} is not a JSON number", pointer=_join(pointer, path))
        return _number(value, pointer, path)
    raise SchemaError(f"a {type(value).__name__} is not a JSON value", pointer=_join(pointer, path))


def _number(value: Decimal, pointer: str, path: Any) -> int | Decimal:
    if not value:
        return 0
    sign, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int)
    if max(len(digits) + max(exponent, 0), -exponent) > _MOST_DIGITS:
        raise UnsupportedFeature(
            "number",
            _join(pointer, path),
            f"written out it has more than {_MOST_DIGITS} digits",
        )
    # Not Decimal.normalize: that rounds to the precision of the current context.
    text = "".join(map(str, digits))
    kept = text.rstrip("0")
    exponent += len(text) - len(kept)
    if exponent >= 0:
        magnitude = int(Decimal((0, tuple(map(int, kept)), exponent)))
        return -magnitude if sign else magnitude
    return Decimal((sign, tuple(map(int, kept)), exponent))


def _text(value: str) -> str:
    """Join surrogate pairs: a pair spells one character, and only lone halves stay."""
    if value.isascii() or not any("\ud800" <= character <= "\udfff" for character in value):
        return value
    return value.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")


def _has_surrogates(text: str) -> bool:
    if text.isascii():
        return False
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False


def _join(pointer: str, path: Any) -> str:
    segments: list[str] = []
    while path is not None:
        path, segment = path
        segments.append("/" + escape(segment))
    return pointer + "".join(reversed(segments))
