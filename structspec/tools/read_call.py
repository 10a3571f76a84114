"""Reading one call of a reply, piece by piece of its format.

Owns `CallReader`, a cursor that knows the pieces of a call: names of tools, argument objects, whole
call objects and Python calls. Blanks, key order and spelling of JSON are read liberally; names and
keys strictly.

Invariant: a call is in `calls` as soon as its name is read, with as much of its arguments (`raw`)
as has come. Cost: linear in the call. Sibling: `reader`, which says where calls stand in a reply.

Example::

    >>> from structspec.tools import ToolSet, find_format
    >>> tools = ToolSet([{"name": "f", "parameters": {"type": "object"}}])
    >>> reader = CallReader(['f[ARGS]{"a": 1}'], Marking(), tools, final=True)
    >>> reader.pieces(find_format("mistral_args").call[1:], RawCall())
    >>> reader.calls[0].raw
    '{"a": 1}'
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from structspec import ir
from structspec.tools.cursor import Cursor
from structspec.tools.grammar import Marking
from structspec.tools.layout import (
    Arguments,
    CallObject,
    EndMark,
    Gap,
    Mark,
    Name,
    Piece,
    PythonCall,
)
from structspec.tools.pythonic import literal_value
from structspec.tools.scan import Malformed, Unfinished, skip_blanks, skip_json, skip_literal
from structspec.tools.toolset import ToolSet
from structspec.tools.values import json_text

__all__ = ["CallReader", "RawCall"]

_NAME = re.compile(r"[A-Za-z0-9_./-]+")
_KEYWORD = re.compile(r"[^\W\d]\w*")


@dataclass
class RawCall:
    """A call as far as it is read; `raw` is the JSON text of the arguments."""

    name: str = ""
    raw: str = ""
    arguments: Any = None
    id: str = ""
    done: bool = False


class CallReader(Cursor):
    """Reads calls into `calls`; `tools` are those that may be called."""

    def __init__(
        self,
        parts: Sequence[str | bytes | ir.Special],
        marking: Marking,
        tools: ToolSet,
        *,
        final: bool,
    ) -> None:
        super().__init__(parts, marking, final=final)
        self.tools = tools
        self.calls: list[RawCall] = []

    def _begin(self, call: RawCall, name: str, at: int) -> None:
        if name not in self.tools.names:
            known = ", ".join(self.tools.names) or "none"
            raise Malformed(at, f"there is no tool '{name}' here; there are: {known}")
        call.name = name
        self.calls.append(call)

    def pieces(self, pieces: Sequence[Piece], call: RawCall | None) -> None:
        """Read the pieces one after another; `call` is None where no piece holds a part of one."""
        for piece in pieces:
            match piece:
                case Gap():
                    self.at = skip_blanks(self.text, self.at)
                case str() | Mark():
                    self.expect(self.literal(piece))
                case EndMark(text):
                    sign = self.literal(piece)
                    if text not in self.marking.ends:
                        self.expect(sign)
                    elif self.text.startswith(sign, self.at):
                        self.at += len(sign)
                case Name():
                    assert call is not None
                    self._name(call)
                case Arguments():
                    assert call is not None
                    self._arguments(call)
                case CallObject():
                    assert call is not None
                    self._object(piece, call)
                case PythonCall():
                    assert call is not None
                    self._python(call)

    def _name(self, call: RawCall) -> None:
        found = _NAME.match(self.text, self.at)
        if not found:
            if self.at == len(self.text):
                raise Unfinished
            raise Malformed(self.at, "the name of a tool is expected")
        if found.end() == len(self.text):
            raise Unfinished
        self._begin(call, found.group(), self.at)
        self.at = found.end()

    def _arguments(self, call: RawCall) -> None:
        start = self.at = skip_blanks(self.text, self.at)
        try:
            end = skip_json(self.text, start)
        except Unfinished:
            call.raw = self.text[start:]
            raise
        self._take(call, start, end)
        self.at = skip_blanks(self.text, end)

    def _take(self, call: RawCall, start: int, end: int) -> None:
        call.raw = self.text[start:end]
        call.arguments = self.value(start, end)
        if not isinstance(call.arguments, dict):
            raise Malformed(start, "arguments are an object")

    def _object(self, piece: CallObject, call: RawCall) -> None:
        self.at = skip_blanks(self.text, self.at)
        start = self.at
        self.expect("{")
        found: dict[str, tuple[int, int]] = {}
        while True:
            self.at = skip_blanks(self.text, self.at)
            key_at = self.at
            if found and self.text.startswith("}", self.at):
                self.at += 1
                break
            if found:
                self.expect(",")
                self.at = key_at = skip_blanks(self.text, self.at)
            self.at_string("a key")
            end = skip_json(self.text, self.at)
            key = self.value(self.at, end)
            if key not in piece.in_order() or key in found:
                raise Malformed(key_at, f"the keys of a call are {', '.join(piece.in_order())}")
            self.at = skip_blanks(self.text, end)
            self.expect(":")
            value_at = self.at = skip_blanks(self.text, self.at)
            try:
                end = skip_json(self.text, value_at)
            except Unfinished:
                if key == piece.arguments_key and call.name:
                    call.raw = self.text[value_at:]
                raise
            found[key] = (value_at, end)
            self.at = end
            if key == piece.name_key:
                name = self.value(*found[key])
                if not isinstance(name, str):
                    raise Malformed(value_at, "the name of a tool is a text")
                self._begin(call, name, value_at)
            elif key == piece.arguments_key and call.name:
                self._take(call, value_at, end)
        for key in piece.in_order():
            if key not in found and (key != piece.id_key or piece.id_required):
                raise Malformed(start, f"the call has no '{key}'")
        self._take(call, *found[piece.arguments_key])
        if piece.id_key in found:
            value = self.value(*found[piece.id_key])
            if not isinstance(value, str) or not re.search(
                piece.id_pattern.replace("$", r"\Z"), value
            ):
                raise Malformed(found[piece.id_key][0], f"the id does not fit {piece.id_pattern}")
            call.id = value
        self.at = skip_blanks(self.text, self.at)

    def _python(self, call: RawCall) -> None:
        found = _NAME.match(self.text, self.at)
        if found is None and self.at < len(self.text):
            raise Malformed(self.at, "the name of a tool is expected")
        if found is None or found.end() == len(self.text):
            raise Unfinished
        self._begin(call, found.group(), self.at)
        self.at = found.end()
        self.expect("(")
        arguments: dict[str, Any] = {}
        call.raw = "{"
        while True:
            self.at = skip_blanks(self.text, self.at)
            if not arguments and self.text.startswith(")", self.at):
                break
            name = _KEYWORD.match(self.text, self.at)
            if name is None and self.at < len(self.text):
                raise Malformed(self.at, "the name of an argument is expected")
            if name is None or name.end() == len(self.text):
                raise Unfinished
            if name.group() in arguments:
                raise Malformed(self.at, f"the argument '{name.group()}' is repeated")
            self.at = skip_blanks(self.text, name.end())
            self.expect("=")
            end = skip_literal(self.text, self.at)
            try:
                arguments[name.group()] = value = literal_value(self.text[self.at : end])
            except ValueError as error:
                raise Malformed(self.at, str(error)) from None
            separator = ", " if len(arguments) > 1 else ""
            call.raw += (
                f"{separator}{json.dumps(name.group(), ensure_ascii=False)}: {json_text(value)}"
            )
            self.at = end
            if self.text[self.at] != ",":
                break
            self.at += 1
        self.expect(")")
        call.raw += "}"
        call.arguments = arguments
