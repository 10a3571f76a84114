"""A source text that knows its lines: errors with line, column and a caret.

Every front end of a textual notation makes one `Source` and raises what `fail` and `refuse` give,
so all mistakes look alike. A `Source` may be a rewritten form of what the user wrote (see
`Source.rewritten`); places are then those of the original.

Cost: one search per error.

Example::

    >>> from structspec.frontends.rules.source import Source
    >>> print(Source("a: b\\nc: )").error(8, "there is no '(' for this"))
    line 2, column 4: there is no '(' for this
        c: )
           ^
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field

from structspec.errors import SchemaError, UnsupportedFeature

__all__ = ["Source"]

# A longer line is cut around the place of the mistake.
_WIDTH = 100


@dataclass(frozen=True, slots=True)
class Source:
    """`text` as read; `pieces` map places of a rewritten text to places of `text`.

    pieces: sorted (start in the rewritten text, start in `text`, copied); inside a piece that is
        not copied, every place maps to the start.
    """

    text: str
    pieces: Sequence[tuple[int, int, bool]] = field(default=((0, 0, True),))

    def original(self, offset: int) -> int:
        """The place in `text` of a place in the rewritten text."""
        index = bisect_right(self.pieces, offset, key=lambda piece: piece[0]) - 1
        start, origin, copied = self.pieces[max(index, 0)]
        return min(origin + (offset - start if copied else 0), len(self.text))

    def position(self, offset: int) -> tuple[int, int]:
        """Line and column, from 1, of a place in `text`."""
        line = self.text.count("\n", 0, offset) + 1
        return line, offset - (self.text.rfind("\n", 0, offset) + 1) + 1

    def caret(self, offset: int) -> str:
        """The line of a place in `text`, with a caret under it."""
        start = self.text.rfind("\n", 0, offset) + 1
        end = self.text.find("\n", start)
        line = self.text[start : len(self.text) if end < 0 else end].rstrip("\r")
        at = offset - start
        if len(line) > _WIDTH:
            cut = max(0, min(at - _WIDTH // 2, len(line) - _WIDTH))
            line, at = line[cut : cut + _WIDTH], at - cut
        shown = "".join(character if character.isprintable() else " " for character in line)
        return f"    {shown}\n    {' ' * min(at, len(shown))}^"

    def check_characters(self) -> None:
        """Raise the error of the first code point that no text has, if there is one."""
        try:
            self.text.encode("utf-8")
        except UnicodeEncodeError as error:
            code = ord(self.text[error.start])
            raise self.error(error.start, f"U+{code:04X} is not a character of any text") from None

    def error(self, offset: int, message: str) -> SchemaError:
        """The error of a mistake at `offset` of `text`."""
        line, column = self.position(offset)
        return SchemaError(f"{message}\n{self.caret(offset)}", line=line, column=column)

    def refusal(self, keyword: str, offset: int, reason: str) -> UnsupportedFeature:
        """The error of a legal construct at `offset` that cannot be compiled exactly."""
        line, column = self.position(offset)
        return UnsupportedFeature(
            keyword, "", f"{reason}\n{self.caret(offset)}", line=line, column=column
        )
