"""Reading a reply: text, reasoning and calls, by the same description that the grammar is made of.

`read_reply` reads a finished reply and refuses whatever the format does not allow; `read_prefix`
reads as far as a reply has come, for streaming. A reply is a sequence of parts, texts and
`ir.Special` tokens, so a marker and text that looks like it are different things.

Read liberally: blanks, key order and spelling of JSON. Read strictly: markers, names of tools, keys
of a call, and (if asked) the arguments against their schemas, with the `jsonschema` package.

Invariant: every reply that `grammar.reply_grammar` allows is read, under every policy.

Cost: linear in the reply.

Example::

    >>> from structspec.tools.formats import FORMATS
    >>> from structspec.tools.toolset import ToolSet
    >>> tools = ToolSet([{"name": "f", "parameters": {"type": "object"}}])
    >>> reply = '<tool_call>\\n{"name": "f", "arguments": {"x": 1}}\\n</tool_call>'
    >>> read_reply(FORMATS["hermes"], [reply], tools).calls[0].arguments
    {'x': 1}
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from structspec import ir
from structspec.errors import ToolCallError
from structspec.frontends.tags import Token
from structspec.tools.grammar import Marking
from structspec.tools.layout import (
    Arguments,
    CallFormat,
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
from structspec.tools.values import check_arguments, json_text, json_value

__all__ = ["RawCall", "Reply", "read_prefix", "read_reply"]

_NAME = re.compile(r"[A-Za-z0-9_./-]+")
_KEYWORD = re.compile(r"[^\W\d]\w*")
# special tokens inside the text: code points that no decoded text holds
_FIRST_MARK = 0xDC00


@dataclass
class RawCall:
    """A call as far as it is read; `raw` is the JSON text of the arguments."""

    name: str = ""
    raw: str = ""
    arguments: Any = None
    id: str = ""
    done: bool = False


@dataclass
class Reply:
    """A reply as far as it is read. `text` of a prefix leaves out what may become a marker."""

    text: str = ""
    reasoning: list[str] = field(default_factory=list)
    calls: list[RawCall] = field(default_factory=list)


def read_reply(
    form: CallFormat,
    parts: Sequence[str | bytes | ir.Special],
    tools: ToolSet,
    *,
    marking: Marking | None = None,
    opened: bool = False,
    validate: bool = True,
) -> Reply:
    """Read a finished reply; `opened`: the prompt has begun its reasoning already.

    Raises ToolCallError with the position for anything that the format does not allow, for tools
    that are not offered, and, with `validate`, for arguments that break their schema.
    """
    reader = _Reader(form, parts, tools, marking or Marking(), opened, final=True)
    try:
        reader.read()
    except Unfinished:
        raise ToolCallError(
            f"the reply ends in the middle ({form.title})", text=reader.text, position=reader.at
        ) from None
    except Malformed as error:
        raise ToolCallError(str(error), text=reader.text, position=error.position) from None
    if validate:
        for call in reader.reply.calls:
            check_arguments(call.name, call.arguments, call.raw, tools)
    return reader.reply


def read_prefix(
    form: CallFormat,
    parts: Sequence[str | bytes | ir.Special],
    tools: ToolSet,
    *,
    marking: Marking | None = None,
    opened: bool = False,
) -> Reply:
    """Read the beginning of a reply; never raises for a beginning of an allowed one."""
    reader = _Reader(form, parts, tools, marking or Marking(), opened, final=False)
    try:
        reader.read()
    except Unfinished:
        pass
    except Malformed as error:
        raise ToolCallError(str(error), text=reader.text, position=error.position) from None
    return reader.reply


class _Reader:
    def __init__(
        self,
        form: CallFormat,
        parts: Sequence[str | bytes | ir.Special],
        tools: ToolSet,
        marking: Marking,
        opened: bool,
        *,
        final: bool,
    ) -> None:
        self.form = form
        self.tools = tools
        self.marking = marking
        self.opened = opened
        self.final = final
        self.names: dict[str, str] = {}
        self.text = self._flat(parts)
        self.at = 0
        self.reply = Reply()

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

    # -- the reply -------------------------------------------------------------------------

    def read(self) -> None:
        """Reasoning, then text or calls or both, to the end."""
        form = self.form
        self._reasoning()
        if form.answer is not None:
            begin, end = form.answer
            if self._looking_at(begin):
                self._pieces(begin, None)
                self._until(end, self._set_text)
            else:
                self._calls()
        elif form.leads:
            first = skip_blanks(self.text, self.at)
            if self.text.startswith(form.leads, first):
                self.at = first
                self._calls()
            else:
                if not self.final and first == len(self.text):
                    raise Unfinished
                self._text(len(self.text))
        else:
            assert form.trigger is not None
            trigger = self._literal(form.trigger)
            found = self.text.find(trigger, self.at)
            if found < 0:
                open_end = 0 if self.final else _overlap(self.text[self.at :], trigger)
                self._text(len(self.text) - open_end)
                if not self.final:
                    raise Unfinished
            else:
                self._text(found)
                self._calls()
        if self.at < len(self.text):
            raise Malformed(self.at, "nothing may follow here")

    def _reasoning(self) -> None:
        reasoning = self.form.reasoning
        if reasoning is None:
            return
        opened = self.opened
        while opened or self._looking_at(reasoning.begin):
            if not opened:
                self._pieces(reasoning.begin, None)
            opened = False
            self.reply.reasoning.append("")
            self._until(reasoning.end, self._set_reasoning)
            if not reasoning.repeated:
                return

    def _set_reasoning(self, text: str) -> None:
        self.reply.reasoning[-1] = text

    def _set_text(self, text: str) -> None:
        self.reply.text = text

    def _text(self, end: int) -> None:
        """Bare text up to `end`: no special tokens, no marker that begins reasoning."""
        text = self.text[self.at : end]
        reasoning = self.form.reasoning
        if reasoning is not None and isinstance(reasoning.begin[0], Mark):
            begin = self._literal(reasoning.begin[0])
            if begin in text:
                where = self.at + text.index(begin)
                raise Malformed(where, "reasoning stands at the start of a reply")
            if not self.final and end == len(self.text):
                text = text[: len(text) - _overlap(text, begin)]
        self._plain(text, self.at)
        self.reply.text = text
        self.at = end

    def _until(self, end: tuple[Piece, ...], keep: Any) -> None:
        """Free text up to the first end piece, then the others."""
        first, *rest = end
        assert isinstance(first, Mark | EndMark)
        if isinstance(first, EndMark) and first.text in self.marking.ends:
            sign = self.names.get(first.text)
            found = -1 if sign is None else self.text.find(sign, self.at)
            stop = len(self.text) if found < 0 else found
            self._plain(self.text[self.at : stop], self.at)
            keep(self.text[self.at : stop])
            self.at = stop + (found >= 0)
            if not self.final:
                raise Unfinished
            return
        mark = self._literal(first)
        found = self.text.find(mark, self.at)
        if found < 0:
            end_at = len(self.text) - (0 if self.final else _overlap(self.text[self.at :], mark))
            keep(self.text[self.at : end_at])
            raise Unfinished
        self._plain(self.text[self.at : found], self.at)
        keep(self.text[self.at : found])
        self.at = found + len(mark)
        self._pieces(rest, None)

    # -- calls -----------------------------------------------------------------------------

    def _calls(self) -> None:
        form = self.form
        self._pieces(form.before, None)
        if form.array is not None:
            self._array()
        else:
            self._call()
            while form.parallel and self._more():
                self._pieces(form.between, None)
                self._call()
        self._pieces(form.after, None)

    def _more(self) -> bool:
        """Whether another call follows rather than the end."""
        following = (*self.form.between, *self.form.call)
        if self.at == len(self.text) and self.final:
            return False
        if not self.final and self.at == len(self.text) and not self.form.after:
            raise Unfinished
        return self._looking_at(following)

    def _array(self) -> None:
        self._expect("[")
        while True:
            self.at = skip_blanks(self.text, self.at)
            self._call()
            self.at = skip_blanks(self.text, self.at)
            if self.at == len(self.text):
                raise Unfinished
            if self.text[self.at] != "," or not self.form.parallel:
                break
            self.at += 1
        self._expect("]")

    def _call(self) -> None:
        call = RawCall()
        self._pieces(self.form.call, call)
        call.done = True

    def _begin(self, call: RawCall, name: str, at: int) -> None:
        if name not in self.tools.names:
            known = ", ".join(self.tools.names) or "none"
            raise Malformed(at, f"there is no tool '{name}' here; there are: {known}")
        call.name = name
        self.reply.calls.append(call)

    def _pieces(self, pieces: Sequence[Piece], call: RawCall | None) -> None:
        for piece in pieces:
            match piece:
                case Gap():
                    self.at = skip_blanks(self.text, self.at)
                case str() | Mark():
                    self._expect(self._literal(piece))
                case EndMark(text):
                    sign = self._literal(piece)
                    if text not in self.marking.ends:
                        self._expect(sign)
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
        call.arguments = self._json(start, end)
        if not isinstance(call.arguments, dict):
            raise Malformed(start, "arguments are an object")

    def _object(self, piece: CallObject, call: RawCall) -> None:
        self.at = skip_blanks(self.text, self.at)
        start = self.at
        self._expect("{")
        found: dict[str, tuple[int, int]] = {}
        while True:
            self.at = skip_blanks(self.text, self.at)
            key_at = self.at
            if found and self.text.startswith("}", self.at):
                self.at += 1
                break
            if found:
                self._expect(",")
                self.at = key_at = skip_blanks(self.text, self.at)
            self._at_string("a key")
            end = skip_json(self.text, self.at)
            key = self._json(self.at, end)
            if key not in piece.in_order() or key in found:
                raise Malformed(key_at, f"the keys of a call are {', '.join(piece.in_order())}")
            self.at = skip_blanks(self.text, end)
            self._expect(":")
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
                name = self._json(*found[key])
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
            value = self._json(*found[piece.id_key])
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
        self._expect("(")
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
            self._expect("=")
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
        self._expect(")")
        call.raw += "}"
        call.arguments = arguments

    # -- small parts -----------------------------------------------------------------------

    def _literal(self, piece: str | Mark | EndMark) -> str:
        """A fixed piece as it stands in the flat text."""
        if isinstance(piece, str):
            return piece
        mark = self.marking.resolve(piece.text)
        return self._sign(mark.name) if isinstance(mark, Token) else mark

    def _expect(self, literal: str) -> None:
        if self.text.startswith(literal, self.at):
            self.at += len(literal)
            return
        rest = self.text[self.at :]
        if literal.startswith(rest):
            raise Unfinished
        shown = next((n for n, sign in self.names.items() if sign == literal), literal)
        raise Malformed(self.at, f"{shown!r} is expected")

    def _looking_at(self, pieces: Sequence[Piece]) -> bool:
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
            literal = self._literal(piece)
            if not self.text.startswith(literal, at):
                if not self.final and literal.startswith(self.text[at:]):
                    raise Unfinished
                return False
            at += len(literal)
        return True

    def _at_string(self, what: str) -> None:
        if self.at == len(self.text):
            raise Unfinished
        if self.text[self.at] != '"':
            raise Malformed(self.at, f"{what} is expected")

    def _plain(self, text: str, at: int) -> None:
        for index, character in enumerate(text):
            if "\ud800" <= character <= "\udfff":
                raise Malformed(at + index, "a special token stands in text")

    def _json(self, start: int, end: int) -> Any:
        try:
            return json_value(self.text[start:end])
        except (ValueError, RecursionError) as error:
            raise Malformed(start, f"no JSON value: {error}") from None


def _overlap(text: str, mark: str) -> int:
    """The length of the longest end of `text` that begins `mark`, less than the whole mark."""
    for size in range(min(len(text), len(mark) - 1), 0, -1):
        if text.endswith(mark[:size]):
            return size
    return 0
