"""A place in a reply, and the small things that are read there.

Owns `Cursor`. The parts of a reply (texts, and `ir.Special` tokens, which are no text) become one
flat text in which every special token is a code point that no decoded text holds; markers are
looked up in the same form, so that a marker and text that looks like it stay different things.

Invariant: `at` only moves forward. What does not fit raises `scan.Malformed` with its place; a text
that stops too early raises `scan.Unfinished`. Cost: linear in what is read.

Siblings: `read_call`, which reads one call with it, and `reader`, which reads whole replies.

Example::

    >>> cursor = Cursor(["<a>", ir.Special("<b>")], Marking(frozenset({"<b>"})), final=True)
    >>> cursor.expect(cursor.literal(Mark("<a>"))); cursor.expect(cursor.literal(Mark("<b>")))
    >>> cursor.at == len(cursor.text)
    True
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from structspec import ir
from structspec.errors import ToolCallError
from structspec.frontends.tags import Token
from structspec.tools.grammar import Marking
from structspec.tools.layout import EndMark, Gap, Mark, Piece
from structspec.tools.scan import Malformed, Unfinished, skip_blanks
from structspec.tools.values import json_value

__all__ = ["Cursor", "overlap"]

# special tokens inside the text: code points that no decoded text holds
_FIRST_MARK = 0xDC00


class Cursor:
    """`text` is the flat reply and `at` the place; `final`: nothing follows the text."""

    def __init__(
        self, parts: Sequence[str | bytes | ir.Special], marking: Marking, *, final: bool
    ) -> None:
        self.marking = marking
        self.final = final
        self.names: dict[str, str] = {}
        self.text = self._flat(parts)
        self.at = 0

    def _flat(self, parts: Sequence[str | bytes | ir.Special]) -> str:
        pieces: list[str] = []
        pending = b""
        for part in parts:
            if isinstance(part, ir.Special):
                pieces.append(self._decoded(pending, whole=True))
                pending = b""
                pieces.append(self._sign(part.name))
            else:
                pending += part.encode("utf-8", "surrogatepass") if isinstance(part, str) else part
        pieces.append(self._decoded(pending, whole=self.final))
        return "".join(pieces)

    def _decoded(self, data: bytes, *, whole: bool) -> str:
        try:
            return data.decode()
        except UnicodeDecodeError as error:
            if not whole and error.reason == "unexpected end of data":
                return data[: error.start].decode()
            raise ToolCallError(f"the reply is no UTF-8 at byte {error.start}") from None

    def _sign(self, name: str) -> str:
        return self.names.setdefault(name, chr(_FIRST_MARK + len(self.names)))

    def literal(self, piece: str | Mark | EndMark) -> str:
        """A fixed piece as it stands in the flat text."""
        if isinstance(piece, str):
            return piece
        mark = self.marking.resolve(piece.text)
        return self._sign(mark.name) if isinstance(mark, Token) else mark

    def expect(self, literal: str) -> None:
        """Take a fixed piece, which must stand here."""
        if self.text.startswith(literal, self.at):
            self.at += len(literal)
            return
        rest = self.text[self.at :]
        if literal.startswith(rest):
            raise Unfinished
        shown = next((n for n, sign in self.names.items() if sign == literal), literal)
        raise Malformed(self.at, f"{shown!r} is expected")

    def looking_at(self, pieces: Sequence[Piece]) -> bool:
        """Whether the fixed pieces up to the first open one stand here.

        In a prefix that ends inside of them, `Unfinished`.
        """
        at = self.at
        for piece in pieces:
            if isinstance(piece, Gap):
                at = skip_blanks(self.text, at)
                continue
            if not isinstance(piece, str | Mark | EndMark):
                break
            literal = self.literal(piece)
            if not self.text.startswith(literal, at):
                if not self.final and literal.startswith(self.text[at:]):
                    raise Unfinished
                return False
            at += len(literal)
        return True

    def at_string(self, what: str) -> None:
        """Demand that a JSON string begins here."""
        if self.at == len(self.text):
            raise Unfinished
        if self.text[self.at] != '"':
            raise Malformed(self.at, f"{what} is expected")

    def plain(self, text: str, at: int) -> None:
        """Refuse special tokens in free text, which begins at `at`."""
        for index, character in enumerate(text):
            if "\ud800" <= character <= "\udfff":
                raise Malformed(at + index, "a special token stands in text")

    def value(self, start: int, end: int) -> Any:
        """The JSON value that stands there."""
        try:
            return json_value(self.text[start:end])
        except (ValueError, RecursionError) as error:
            raise Malformed(start, f"no JSON value: {error}") from None


def overlap(text: str, mark: str) -> int:
    """The length of the longest end of `text` that begins `mark`, less than the whole mark."""
    for size in range(min(len(text), len(mark) - 1), 0, -1):
        if text.endswith(mark[:size]):
            return size
    return 0
