"""What stands for one character of a text, or for a set of them: escapes and classes.

Owns `CharacterReader`: the escapes of both dialects (see `parse`), class shorthands such as ``\\d``
and ``\\p{Lu}``, and ``[…]``.

Invariants: classes come out as normalised ranges (`classes`); under the flag i a class holds the
other cases of its members before it is negated. What no dialect has is refused with its place.

Cost: linear in what is read; a property costs the size of its table once.

Sibling: `parse`, whose terms are read with it.

Example::

    >>> reader = CharacterReader("a-c\\\\x2D]", python=False, web=False)
    >>> reader.character_class(0)
    ((45, 45), (97, 99))
"""

from __future__ import annotations

import unicodedata
from typing import Final

from structspec.frontends.regex import classes
from structspec.frontends.regex.case import ignoring_case
from structspec.frontends.regex.classes import Ranges
from structspec.frontends.regex.cursor import Cursor

__all__ = ["CharacterReader"]

_SYNTAX: Final = "^$\\.*+?()[]{}|/"
_CONTROLS: Final = {"t": 9, "n": 10, "v": 11, "f": 12, "r": 13}


class CharacterReader(Cursor):
    """A cursor that reads escapes and classes; `start` is where one begins, for errors."""

    def folded(self, ranges: Ranges) -> Ranges:
        """The ranges, with other cases where the flag i holds."""
        if "i" not in self.flags:
            return ranges
        return ignoring_case(ranges, ascii_only="a" in self.flags)

    def shorthand(self, start: int) -> Ranges | None:
        r"""`\d`, `\w`, `\s`, `\p{...}` and their negations, if one stands here."""
        sign = self.peek()
        if sign and sign in "dDwWsS":
            self.at += 1
            if self.python and "a" not in self.flags:
                found: Ranges = classes.python_shorthand(sign.lower())
            elif self.python and sign in "sS":
                found = classes.ASCII_SPACE
            else:
                found = {"d": classes.DIGIT, "w": classes.WORD, "s": classes.SPACE}[sign.lower()]
            return found if sign.islower() else classes.complement(found)
        if sign and sign in "pP" and not self.python:
            self.at += 1
            name = self.match(r"\{([A-Za-z0-9_]+(?:=[A-Za-z0-9_]+)?)\}")
            if not name:
                self.fail(f"\\{sign} must be followed by {{Property}} or {{Property=Value}}", start)
            ranges = classes.resolve_property(name[1])
            if ranges is None:
                self.refuse(
                    f"\\{sign}{{{name[1]}}}", "this Unicode property is not known here", start
                )
            return ranges if sign == "p" else classes.complement(ranges)
        return None

    def character_escape(self, start: int, *, in_class: bool) -> int:
        """The code point of an escape for one character."""
        sign = self.peek()
        if not sign:
            self.fail("the pattern ends with a backslash", start)
        self.at += 1
        if sign in _CONTROLS:
            return _CONTROLS[sign]
        if sign == "x":
            return self._hexadecimal(r"[0-9a-fA-F]{2}", "\\x needs two hexadecimal digits", start)
        if sign == "u":
            return self._unicode_escape(start)
        if in_class and sign == "b":
            return 8
        if self.python:
            return self._python_escape(sign, start)
        if sign == "c":
            letter = self.match(r"[a-zA-Z]")
            if not letter:
                self.fail("\\c needs a letter", start)
            return ord(letter[0]) % 32
        if sign == "0":
            if self.peek() in set("0123456789"):
                self.fail("\\0 must not be followed by a digit; use \\x", start)
            return 0
        if sign in _SYNTAX or (in_class and sign == "-"):
            return ord(sign)
        if self.loose and not (sign.isascii() and sign.isalnum()):
            return ord(sign)
        self.fail(f"\\{sign} is not an escape of ECMA-262 with the u flag", start)

    def _unicode_escape(self, start: int) -> int:
        if not self.python and self.take("{"):
            code = self._hexadecimal(r"[0-9a-fA-F]+(?=\})", "\\u{ needs hexadecimal digits", start)
            self.at += 1
            if code > 0x10FFFF:
                self.fail(f"\\u{{{code:x}}} is beyond U+10FFFF", start)
            return code
        digits = r"[0-9a-fA-F]{4}"
        code = self._hexadecimal(digits, "\\u needs four hexadecimal digits", start)
        if not self.python and 0xD800 <= code <= 0xDBFF:
            low = self.match(r"\\u([dD][c-fC-F][0-9a-fA-F]{2})")
            if low:
                return 0x10000 + ((code - 0xD800) << 10) + (int(low[1], 16) - 0xDC00)
        return code

    def _hexadecimal(self, form: str, message: str, start: int) -> int:
        digits = self.match(form)
        if not digits:
            self.fail(message, start)
        return int(digits[0], 16)

    def _python_escape(self, sign: str, start: int) -> int:
        if sign == "a":
            return 7
        if sign == "U":
            code = self._hexadecimal(r"[0-9a-fA-F]{8}", "\\U needs eight hexadecimal digits", start)
            if code > 0x10FFFF:
                self.fail(f"\\U{code:08x} is beyond U+10FFFF", start)
            return code
        if sign == "N":
            name = self.match(r"\{([^}]+)\}")
            try:
                return ord(unicodedata.lookup(name[1])) if name else self.fail("\\N needs {name}")
            except (KeyError, TypeError):
                self.fail("\\N names no character", start)
        if sign in set("01234567"):
            digits = self.match(r"[0-7]{0,2}")
            return int(sign + (digits[0] if digits else ""), 8)
        if sign.isascii() and sign.isalnum():
            self.fail(f"\\{sign} is not an escape of Python's re", start)
        return ord(sign)

    # -- character classes -------------------------------------------------------------------

    def character_class(self, start: int) -> Ranges:
        """After `[`: the set of characters up to `]`."""
        negated = self.take("^")
        found: list[tuple[int, int]] = []
        first = True
        while True:
            if self.at >= len(self.pattern):
                self.fail("this '[' is never closed", start)
            if self.peek() == "]" and not (first and self.python):
                self.at += 1
                break
            first = False
            found.extend(self._class_item())
        ranges = classes.normalise(found)
        ranges = self.folded(ranges)
        return classes.complement(ranges) if negated else ranges

    def _class_item(self) -> Ranges:
        """One member: a character, a range or a class escape."""
        start = self.at
        low = self._class_atom()
        if self.peek() != "-" or self.peek(2) in ("-", "-]"):
            return low if isinstance(low, tuple) else ((low, low),)
        self.at += 1
        high = self._class_atom()
        if isinstance(low, tuple) or isinstance(high, tuple):
            if self.python or not self.loose:
                self.fail("a range of a class must be between two characters", start)
            parts = [x if isinstance(x, tuple) else ((x, x),) for x in (low, high)]
            return (*parts[0], (0x2D, 0x2D), *parts[1])
        if low > high:
            self.fail(f"the range is out of order: U+{low:04X} > U+{high:04X}", start)
        return ((low, high),)

    def _class_atom(self) -> int | Ranges:
        start = self.at
        sign = self.peek()
        if not sign:
            self.fail("a class is never closed", start)
        self.at += 1
        if sign != "\\":
            return ord(sign)
        shorthand = self.shorthand(start)
        if shorthand is not None:
            return shorthand
        return self.character_escape(start, in_class=True)
