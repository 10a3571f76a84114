"""A place in a pattern, the flags that hold there, and the errors that name it.

Owns `Cursor`: what the pattern's readers share, and the small steps that they take.

Invariants: `at` never passes the end; every error has the line and the column (1-based) of a place,
and the first 120 characters of the pattern. Cost: linear in what is read.

Siblings: `characters` reads single characters and sets of them, `parse` everything else. Grammars
have `rules.source`, whose errors show the line; patterns mostly stand inside other documents.

Example::

    >>> cursor = Cursor("a{2}", python=False, web=False)
    >>> cursor.take("a"), cursor.match("[{]([0-9]+)}")[1], cursor.at
    (True, '2', 4)
"""

from __future__ import annotations

import re
from typing import NoReturn

from structspec.errors import SchemaError, UnsupportedFeature

__all__ = ["Cursor"]


class Cursor:
    """`pattern` and the place `at` in it; `python` and `loose` say which syntax holds.

    flags: letters out of "imsxau", as given beside the pattern; those that hold at the place
    change with groups.
    """

    def __init__(self, pattern: str, python: bool, web: bool, flags: str = "") -> None:
        self.pattern = pattern
        self.python = python
        self.loose = python or web  # lone brackets and braces are characters
        self.at = 0
        self.flags = self.checked(flags, 0)

    def fail(self, message: str, at: int | None = None) -> NoReturn:
        """Raise `SchemaError` for the place `at` (default: here)."""
        place = self.at if at is None else at
        line = self.pattern.count("\n", 0, place) + 1
        column = place - (self.pattern.rfind("\n", 0, place) + 1) + 1
        raise SchemaError(
            f"in the pattern {self.pattern!r:.120}: {message}", line=line, column=column
        )

    def refuse(self, keyword: str, reason: str, at: int) -> NoReturn:
        """Raise `UnsupportedFeature` for a construct that starts at `at`."""
        raise UnsupportedFeature(
            keyword,
            "",
            f"{reason} (column {at + 1} of the pattern {self.pattern!r:.120})",
            line=self.pattern.count("\n", 0, at) + 1,
            column=at - self.pattern.rfind("\n", 0, at),
        )

    def peek(self, length: int = 1) -> str:
        """The next characters, fewer at the end."""
        return self.pattern[self.at : self.at + length]

    def take(self, text: str) -> bool:
        """Pass `text` if it stands here."""
        if self.pattern.startswith(text, self.at):
            self.at += len(text)
            return True
        return False

    def match(self, expression: str) -> re.Match[str] | None:
        """Pass what the expression matches here."""
        found = re.compile(expression).match(self.pattern, self.at)
        if found:
            self.at = found.end()
        return found

    def checked(self, letters: str, start: int) -> frozenset[str]:
        """The flags named by `letters`, as `re` allows them for text patterns."""
        if "L" in letters:
            self.fail("the flag L is for patterns of bytes", start)
        if set(letters) - set("aimsux"):
            self.fail(f"unknown flags {letters!r}", start)
        if "a" in letters and "u" in letters:
            self.fail("the flags a and u exclude each other", start)
        return frozenset(letters) - {"u"}
