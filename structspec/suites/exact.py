"""JSON with numbers exactly as written: `read` keeps the source text of each, `write` repeats it.

A suite that says ``1.0``, ``1e2`` or ``12345678901234567890.1`` means that spelling; a float would
lose it. Everything else is written as ``json.dumps(value, ensure_ascii=False)`` writes it, except
that half of a surrogate pair, which UTF-8 cannot hold, stays an escape.

Cost: linear. `write` does not recurse; `read` nests as deep as Python's parser does.

Example::

    >>> from structspec.suites.exact import read, write
    >>> write(read('{"a":[1.0, 1e2,"\\\\u00e9"]}'))
    '{"a": [1.0, 1e2, "é"]}'
"""

from __future__ import annotations

import json
import re
from typing import Any

from structspec.errors import SchemaError

__all__ = ["Numeral", "read", "write"]

_LONE = re.compile("[\ud800-\udfff]")


class Numeral:
    """A JSON number as its source text."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Numeral) and other.text == self.text

    def __hash__(self) -> int:
        return hash(self.text)

    def __repr__(self) -> str:
        return f"Numeral({self.text!r})"


def read(text: str, what: str = "the text") -> Any:
    """Parse JSON; numbers become `Numeral`. Raises SchemaError with line and column."""
    try:
        return json.loads(text, parse_int=Numeral, parse_float=Numeral, parse_constant=_no_constant)
    except json.JSONDecodeError as error:
        raise SchemaError(
            f"{what} is not JSON: {error.msg}", line=error.lineno, column=error.colno
        ) from error
    except RecursionError as error:
        raise SchemaError(f"{what} is nested deeper than the JSON parser can read") from error


def write(value: Any) -> str:
    """The JSON text of a value from `read` (plain ints, bools and strings may be mixed in)."""
    pieces: list[str] = []
    stack: list[Any] = [value]
    while stack:
        item = stack.pop()
        if isinstance(item, _Raw | Numeral):
            pieces.append(item.text)
        elif isinstance(item, dict):
            parts: list[Any] = [_Raw("{")]
            for i, (name, member) in enumerate(item.items()):
                parts += [_Raw((", " if i else "") + _string(name) + ": "), member]
            stack.extend(reversed([*parts, _Raw("}")]))
        elif isinstance(item, list):
            parts = [_Raw("[")]
            for i, member in enumerate(item):
                parts += [_Raw(", "), member] if i else [member]
            stack.extend(reversed([*parts, _Raw("]")]))
        elif isinstance(item, str):
            pieces.append(_string(item))
        elif item is None or isinstance(item, bool | int):
            pieces.append(json.dumps(item))
        else:
            raise TypeError(f"a {type(item).__name__} has no exact JSON text")
    return "".join(pieces)


class _Raw:
    """Finished text on the stack of `write`."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text


def _string(value: str) -> str:
    return _LONE.sub(lambda m: f"\\u{ord(m[0]):04x}", json.dumps(value, ensure_ascii=False))


def _no_constant(name: str) -> Any:
    raise SchemaError(f"{name} is not a JSON value")
