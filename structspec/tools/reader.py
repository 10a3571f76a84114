"""Reading a reply: text, reasoning and calls, by the same description that the grammar is made of.

`read_reply` reads a finished reply and refuses whatever the format does not allow; `read_prefix`
reads as far as a reply has come, for streaming. A reply is a sequence of parts, texts and
`ir.Special` tokens, so a marker and text that looks like it are different things.

Read liberally: blanks, key order and spelling of JSON. Read strictly: markers, names of tools, keys
of a call, and (if asked) the arguments against their schemas, with the `jsonschema` package.

Invariant: every reply that `grammar.reply_grammar` allows is read, under every policy.

Cost: linear in the reply. `cursor` keeps the place, `read_call` reads one call.

Example::

    >>> from structspec.tools.formats import FORMATS
    >>> from structspec.tools.toolset import ToolSet
    >>> tools = ToolSet([{"name": "f", "parameters": {"type": "object"}}])
    >>> reply = '<tool_call>\\n{"name": "f", "arguments": {"x": 1}}\\n</tool_call>'
    >>> read_reply(FORMATS["hermes"], [reply], tools).calls[0].arguments
    {'x': 1}
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from structspec import ir
from structspec.errors import ToolCallError
from structspec.tools.cursor import overlap
from structspec.tools.grammar import Marking
from structspec.tools.layout import CallFormat, EndMark, Mark, Piece
from structspec.tools.read_call import CallReader, RawCall
from structspec.tools.scan import Malformed, Unfinished, skip_blanks
from structspec.tools.toolset import ToolSet
from structspec.tools.values import check_arguments

__all__ = ["RawCall", "Reply", "read_prefix", "read_reply"]


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
    answers: bool = False,
    validate: bool = True,
) -> Reply:
    """Read a finished reply; `opened`: the prompt has begun its reasoning already.

    answers: text is held to a grammar of its own, so it may hold anything but stands alone.

    Raises ToolCallError with the position for anything that the format does not allow, for tools
    that are not offered, and, with `validate`, for arguments that break their schema.
    """
    reader = _Reader(form, parts, tools, marking or Marking(), opened, answers, final=True)
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
    answers: bool = False,
) -> Reply:
    """Read the beginning of a reply; never raises for a beginning of an allowed one."""
    reader = _Reader(form, parts, tools, marking or Marking(), opened, answers, final=False)
    try:
        reader.read()
    except Unfinished:
        pass
    except Malformed as error:
        raise ToolCallError(str(error), text=reader.text, position=error.position) from None
    return reader.reply


class _Reader(CallReader):
    def __init__(
        self,
        form: CallFormat,
        parts: Sequence[str | bytes | ir.Special],
        tools: ToolSet,
        marking: Marking,
        opened: bool,
        answers: bool,
        *,
        final: bool,
    ) -> None:
        super().__init__(parts, marking, tools, final=final)
        self.form = form
        self.opened = opened
        self.answers = answers
        self.reply = Reply(calls=self.calls)

    def read(self) -> None:
        """Reasoning, then text or calls or both, to the end."""
        form = self.form
        self._reasoning()
        if form.answer is not None:
            begin, end = form.answer
            if self.looking_at(begin):
                self.pieces(begin, None)
                self._until(end, self._set_text)
            else:
                self._calls()
        elif form.leads:
            first = skip_blanks(self.text, self.at)
            called = bool(self.tools) or not self.answers
            if called and self.text.startswith(form.leads, first):
                self.at = first
                self._calls()
            else:
                if not self.final and first == len(self.text):
                    raise Unfinished
                self._text(len(self.text))
        else:
            assert form.trigger is not None
            trigger = self.literal(form.trigger)
            found = self.text.find(trigger, self.at)
            if self.answers and not (self.tools and found == self.at):
                rest = self.text[self.at :]
                if self.tools and not self.final and trigger.startswith(rest):
                    raise Unfinished
                self._text(len(self.text))
            elif found < 0:
                open_end = 0 if self.final else overlap(self.text[self.at :], trigger)
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
        while opened or self.looking_at(reasoning.begin):
            if not opened:
                self.pieces(reasoning.begin, None)
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
        if self.answers:
            pass  # a string of a value may hold any marker that is text
        elif reasoning is not None and isinstance(reasoning.begin[0], Mark):
            begin = self.literal(reasoning.begin[0])
            if begin in text:
                where = self.at + text.index(begin)
                raise Malformed(where, "reasoning stands at the start of a reply")
            if not self.final and end == len(self.text):
                text = text[: len(text) - overlap(text, begin)]
        self.plain(text, self.at)
        self.reply.text = text
        self.at = end

    def _until(self, end: tuple[Piece, ...], keep: Callable[[str], None]) -> None:
        """Free text up to the first end piece, then the others."""
        first, *rest = end
        assert isinstance(first, Mark | EndMark)
        if isinstance(first, EndMark) and first.text in self.marking.ends:
            sign = self.names.get(first.text)
            found = -1 if sign is None else self.text.find(sign, self.at)
            stop = len(self.text) if found < 0 else found
            self.plain(self.text[self.at : stop], self.at)
            keep(self.text[self.at : stop])
            self.at = stop + (found >= 0)
            if not self.final:
                raise Unfinished
            return
        mark = self.literal(first)
        found = self.text.find(mark, self.at)
        if found < 0:
            end_at = len(self.text) - (0 if self.final else overlap(self.text[self.at :], mark))
            keep(self.text[self.at : end_at])
            raise Unfinished
        self.plain(self.text[self.at : found], self.at)
        keep(self.text[self.at : found])
        self.at = found + len(mark)
        self.pieces(rest, None)

    # -- calls -----------------------------------------------------------------------------

    def _calls(self) -> None:
        form = self.form
        self.pieces(form.before, None)
        if form.array is not None:
            self._array()
        else:
            self._call()
            while form.parallel and self._more():
                self.pieces(form.between, None)
                self._call()
        self.pieces(form.after, None)

    def _more(self) -> bool:
        """Whether another call follows rather than the end."""
        following = (*self.form.between, *self.form.call)
        if self.at == len(self.text) and self.final:
            return False
        if not self.final and self.at == len(self.text) and not self.form.after:
            raise Unfinished
        return self.looking_at(following)

    def _array(self) -> None:
        self.expect("[")
        while True:
            self.at = skip_blanks(self.text, self.at)
            self._call()
            self.at = skip_blanks(self.text, self.at)
            if self.at == len(self.text):
                raise Unfinished
            if self.text[self.at] != "," or not self.form.parallel:
                break
            self.at += 1
        self.expect("]")

    def _call(self) -> None:
        call = RawCall()
        self.pieces(self.form.call, call)
        call.done = True
