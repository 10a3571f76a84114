"""How far one value reaches in a text that may not be finished yet.

Owns the finding of ends, for JSON values and for Python literals; what a value means is the
business of `json` and `ast`. `Unfinished` says that the text stops inside the value.

Cost: linear in the value.

Example::

    >>> skip_json('{"a": [1, "]"]}, 2', 0)
    15
"""

from __future__ import annotations

import re

__all__ = ["BLANKS", "Malformed", "Unfinished", "skip_blanks", "skip_json", "skip_literal"]

BLANKS = " \t\n\r"
_BLANKS = re.compile(r"[ \t\n\r]*")
_JSON_STRING = re.compile(r'"(?:[^"\\\x00-\x1f]|\\.)*"')
_JSON_SCALAR = re.compile(r"[-+.0-9A-Za-z]+")
_JSON_PLAIN = re.compile(r'[^"{}\[\]]*')
_STRING = re.compile(r"""[^"'\\\n]*(?:"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')""", re.DOTALL)
_PLAIN = re.compile(r"""[^"'(){}\[\],]*""")


class Unfinished(Exception):
    """The text ends where more is needed."""


class Malformed(Exception):
    """What stands at `position` cannot be right."""

    def __init__(self, position: int, message: str) -> None:
        self.position = position
        super().__init__(message)


def skip_blanks(text: str, at: int) -> int:
    """Behind the blanks of JSON."""
    found = _BLANKS.match(text, at)
    return found.end() if found else at


def skip_json(text: str, at: int) -> int:
    """Behind the JSON value at `at`; a number at the very end of the text may go on."""
    if at >= len(text):
        raise Unfinished
    if text[at] == '"':
        return _skip_string(text, at)
    if text[at] not in "{[":
        found = _JSON_SCALAR.match(text, at)
        if not found:
            raise Malformed(at, "a JSON value is expected")
        if found.end() == len(text):
            raise Unfinished
        return found.end()
    depth = 0
    while at < len(text):
        character = text[at]
        if character == '"':
            at = _skip_string(text, at)
            continue
        if character in "{[":
            depth += 1
        elif character in "}]":
            depth -= 1
            if not depth:
                return at + 1
        found = _JSON_PLAIN.match(text, at + 1)
        at = found.end() if found else at + 1
    raise Unfinished


def skip_literal(text: str, at: int) -> int:
    """Behind the Python literal at `at`: at the comma or bracket that ends it, outside of all."""
    depth = 0
    while at < len(text):
        character = text[at]
        if character in "\"'":
            found = _STRING.match(text, at)
            if not found or found.end() <= at:
                if "\n" in text[at:]:
                    raise Malformed(at, "a string goes over the end of its line")
                raise Unfinished
            at = found.end()
            continue
        if character in "([{":
            depth += 1
        elif character in ")]}":
            if not depth:
                return at
            depth -= 1
        elif character == "," and not depth:
            return at
        else:
            plain = _PLAIN.match(text, at)
            if plain and plain.end() > at:
                at = plain.end()
                continue
        at += 1
    raise Unfinished


def _skip_string(text: str, at: int) -> int:
    found = _JSON_STRING.match(text, at)
    if found:
        return found.end()
    for control in re.finditer(r"[\x00-\x1f]", text[at:]):
        raise Malformed(at + control.start(), "a control character in a string")
    raise Unfinished
