"""From a call format and tools to a structural tag: what a reply may be.

Owns the meaning of `tool_choice`, `parallel` and reasoning for all formats alike:

    auto       text, or text and calls behind it (without a marker: text or calls)
    required   calls, at least one, nothing before them
    none       text without calls
    a name     one call of that tool

With an `answer`, text is held to it: a reply is either that or calls.

Reasoning, where the format has it, stands before all of it. `reader.read_reply` reads whatever is
allowed here; under flexible whitespace and any spelling and key order it reads nothing else.

Cost: one embedded grammar per tool, however often the tool may be called.

Example::

    >>> from structspec.tools.formats import FORMATS
    >>> from structspec.tools.toolset import ToolSet
    >>> tools = ToolSet([{"name": "ping", "parameters": {"type": "object", "properties": {}}}])
    >>> grammar = reply_grammar(FORMATS["llama3"], tools, choice="required")
    >>> grammar.accepts('{"name": "ping", "parameters": {}}')
    True
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from structspec import ir
from structspec.automata.automaton import DEAD
from structspec.automata.distinct import tells_apart
from structspec.errors import ToolError, UnsupportedFeature
from structspec.frontends import tags
from structspec.frontends.jsonschema import SchemaOptions, lower_schema
from structspec.grammar import Grammar
from structspec.grammar import compile as compile_grammar
from structspec.tools.definition import Tool
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
from structspec.tools.pythonic import call_grammar
from structspec.tools.toolset import ToolSet
from structspec.vocab import Vocabulary

__all__ = ["Choice", "Marking", "Thinking", "read_choice", "reply_grammar"]

Choice: TypeAlias = Literal["auto", "required", "none"] | str
Thinking: TypeAlias = Literal["none", "optional", "required", "opened"]
"""Whether a reasoning block may, must or must not stand first; "opened": the prompt began it."""

_BLANKS = ((9, 10), (13, 13), (32, 32))
_FLEXIBLE_GAP = "[ \\t\\n\\r]{0,32}"


@dataclass(frozen=True)
class Marking:
    """Which markers are special tokens of a vocabulary, and which of them end the text."""

    special: frozenset[str] = frozenset()
    ends: frozenset[str] = frozenset()

    @classmethod
    def of(cls, vocab: Vocabulary) -> Marking:
        """The special and end tokens of `vocab`, by name."""
        ends = frozenset(name for name, i in vocab.special.items() if i in vocab.eos_ids)
        return cls(frozenset(vocab.special) - ends, ends)

    def resolve(self, text: str) -> str | tags.Token:
        """A marker as a token or as text."""
        return tags.Token(text) if text in self.special or text in self.ends else text


def read_choice(choice: Any, tools: ToolSet) -> Choice:
    """`tool_choice` in any of its forms: a word, a tool's name, a tool, or OpenAI's object.

    Raises ToolError for a choice that is none, and for "required" or a name without such a tool.
    """
    if isinstance(choice, Mapping):
        inner = choice.get("function", choice)
        name = inner.get("name") if isinstance(inner, Mapping) else None
        if not isinstance(name, str):
            raise ToolError(f"tool_choice={dict(choice)!r} names no function")
        return f"={tools[name].name}"
    if isinstance(choice, Tool):
        return f"={tools[choice.name].name}"
    if choice in ("auto", "none"):
        return str(choice)
    if choice == "required":
        if not tools:
            raise ToolError("tool_choice='required' needs at least one tool")
        return "required"
    if isinstance(choice, str):
        if choice not in tools.names:
            known = ", ".join(tools.names) or "none"
            raise ToolError(
                f"tool_choice={choice!r} is neither auto, required or none nor one of the tools: "
                f"{known}",
                name=choice,
            )
        return f"={tools[choice].name}"
    raise ToolError(f"tool_choice={choice!r} is not auto, required, none or a tool's name")


def reply_grammar(
    form: CallFormat,
    tools: ToolSet,
    *,
    marking: Marking | None = None,
    choice: Any = "auto",
    parallel: bool | int = True,
    thinking: Thinking = "none",
    answer: Grammar | None = None,
    **options: Any,
) -> Grammar:
    """Compile what a reply may be.

    marking: which markers are special tokens (default: none, all are text).
    parallel: several calls in one reply; a number: at most so many.
    answer: what the text of a reply without calls must be; None: any text.
    options: those of `structspec.compile`; spelling and whitespace default to "canonical" and
        "conventional". `on_unsupported` concerns strict tools only; others are always widened.

    Raises UnsupportedFeature for a strict tool that cannot be compiled exactly, ToolError for a
    tool that the format cannot name, or an answer that cannot be told from what the format marks.
    """
    options = {"spelling": "canonical", "whitespace": "conventional", **options}
    marking = marking or Marking()
    wanted = read_choice(choice, tools)
    if answer is not None:
        _tell_apart(form, tools, marking, answer)
    content = _reply_content(
        form,
        tools,
        marking=marking,
        choice=wanted,
        parallel=parallel,
        thinking=thinking,
        answer=answer,
        options=options,
    )
    try:
        return compile_grammar(content, syntax="structural_tag", **options)
    except UnsupportedFeature:
        for tool in _offered(tools, wanted):
            _check(tool, options)
        raise


def _offered(tools: ToolSet, choice: Choice) -> Sequence[Tool]:
    """The tools that may be called; `choice` as `read_choice` returns it."""
    return [tools[choice[1:]]] if choice.startswith("=") else list(tools)


def _check(tool: Tool, options: Mapping[str, Any]) -> None:
    """Raise what a tool's schema is refused for, with its place in the parameters."""
    chosen = {name: value for name, value in options.items() if name in _POLICIES}
    policies = SchemaOptions(**{**chosen, **_policies(tool), "tell_apart": True})
    try:
        lower_schema(tool.schema(), policies)
    except UnsupportedFeature as error:
        reason = f"{error.reason} (parameters of the tool {tool.name!r}; strict=False widens them)"
        raise UnsupportedFeature(error.keyword, error.pointer, reason) from None


def _policies(tool: Tool) -> dict[str, Any]:
    return {} if tool.strict else {"on_unsupported": "widen"}


def _reply_content(
    form: CallFormat,
    tools: ToolSet,
    *,
    marking: Marking,
    choice: Choice,
    parallel: bool | int,
    thinking: Thinking,
    answer: Grammar | None,
    options: Mapping[str, Any],
) -> tags.Content:
    """The structural tag of a reply; `choice` as `read_choice` returns it."""
    offered = _offered(tools, choice)
    if choice.startswith("="):
        parallel = False
    most = _most_calls(parallel, form)
    builder = _Builder(form, offered, marking, most, options, answer)
    if choice == "none" or not offered:
        reply = builder.text_only()
    elif choice == "auto":
        reply = builder.text_or_calls()
    else:
        reply = builder.calls()
    return builder.reasoned(reply, thinking)


def _tell_apart(form: CallFormat, tools: ToolSet, marking: Marking, answer: Grammar) -> None:
    """Refuse an answer that a reader could take for a call or for reasoning.

    It must not begin with a marker that is text, nor, where it stands between markers, hold one.
    """
    signs = [] if form.reasoning is None else [form.reasoning.begin[0]]
    if tools and form.leads:
        signs.append(form.leads)
    elif tools and form.trigger is not None:
        signs.append(form.trigger)
    for sign in signs:
        assert isinstance(sign, Mark | str)
        text = sign if isinstance(sign, str) else marking.resolve(sign.text)
        if isinstance(text, str) and _may_begin(answer, text.encode()):
            raise ToolError(
                f"an answer that may begin with {text!r} cannot be told from a call or from "
                f"reasoning in this format ({form.title}); use tool_choice, or another answer"
            )
    if form.answer is not None:
        end = form.answer[1][0]
        assert isinstance(end, Mark | EndMark)
        if isinstance(marking.resolve(end.text), str):
            raise ToolError(
                f"answers of this format ({form.title}) end with {end.text!r}, which is no token "
                "of this vocabulary, so an answer's own text could hold it"
            )


def _may_begin(grammar: Grammar, sign: bytes) -> bool:
    """Whether a text of the grammar begins with `sign`, perhaps behind blanks."""
    automaton = grammar.automaton
    states, found = [automaton.start], {automaton.start}
    for state in states:  # grows
        if automaton.advance(state, sign) != DEAD:
            return True
        after = {automaton.advance(state, bytes((b,))) for b in b" \t\n\r"} - {DEAD} - found
        found |= after
        states += sorted(after)
    return False


def _most_calls(parallel: bool | int, form: CallFormat) -> int | None:
    if isinstance(parallel, bool):
        return None if parallel and form.parallel else 1
    if not isinstance(parallel, int) or parallel < 1:
        raise ToolError(f"parallel={parallel!r} is not true, false or a number from 1 on")
    return parallel if form.parallel else 1


def _has_apart(answer: Grammar | None) -> bool:
    return answer is not None and tells_apart(answer.network)


class _Builder:
    def __init__(
        self,
        form: CallFormat,
        offered: Sequence[Tool],
        marking: Marking,
        most: int | None,
        options: Mapping[str, Any],
        answer: Grammar | None,
    ) -> None:
        self.form = form
        self.answer = None if answer is None else tags.Embedded(answer.grammar_ir, "ir")
        self.marking = marking
        self.most = most
        self.flexible = options.get("whitespace") == "flexible"
        self.options = options
        # tools are read at the same time as long as none is ruled out, and text never beside them
        mentioned = any("uniqueItems" in json.dumps(tool.schema()) for tool in offered)
        self.apart = "always" if mentioned or _has_apart(answer) else False
        self.call = [self._pieces(form.call, tool) for tool in offered]

    # -- answers ---------------------------------------------------------------------------

    def calls(self) -> tags.Content:
        """The calls and all that stands around them."""
        return tags.Sequence((*self._fixed(self.form.before), *self._calls(self.call)))

    def text_only(self) -> tags.Content:
        """A reply without calls."""
        form = self.form
        if form.answer is not None:
            begin, end = form.answer
            if self.answer is None:
                return self._block(begin, end)
            return tags.Sequence((*self._fixed(begin), self.answer, *self._fixed(end)))
        if self.answer is not None:
            return self.answer
        if form.leads:
            return tags.Node(_not_leading(form.leads))
        trigger = self._trigger()
        excludes = self._excluded()
        if isinstance(trigger, str):
            excludes = (*excludes, trigger)
        return tags.AnyText(excludes)

    def text_or_calls(self) -> tags.Content:
        """Text, and calls behind it or instead of it."""
        trigger = self._trigger()
        if trigger is None or self.answer is not None:
            return tags.Or((self.calls(), self.text_only()))
        before = self._fixed(self.form.before)
        if before:
            rest = tags.Sequence((*before[1:], *self._calls(self.call)))
        else:
            rest = tags.Sequence(self._calls([pieces[1:] for pieces in self.call]))
        tag = tags.Tag(trigger, rest, "")
        return tags.TriggeredTags((tag,), stop_after_first=True, excludes=self._excluded())

    def reasoned(self, answer: tags.Content, thinking: Thinking) -> tags.Content:
        """The answer behind reasoning, as far as the format has any."""
        reasoning = self.form.reasoning
        if thinking == "none" or reasoning is None:
            return answer
        block = self._block(reasoning.begin, reasoning.end)
        most = None if reasoning.repeated else 1
        if thinking == "optional":
            return tags.Sequence((tags.Repeat(block, 0, most), answer))
        first = self._block((), reasoning.end) if thinking == "opened" else block
        more = (tags.Repeat(block, 0, None),) if reasoning.repeated else ()
        return tags.Sequence((first, *more, answer))

    # -- parts -----------------------------------------------------------------------------

    def _trigger(self) -> str | tags.Token | None:
        trigger = self.form.trigger
        if trigger is None:
            return None
        return trigger if isinstance(trigger, str) else self.marking.resolve(trigger.text)

    def _excluded(self) -> tuple[str, ...]:
        """The marker that begins reasoning, if it is text: bare text never contains it."""
        reasoning = self.form.reasoning
        if reasoning is None or self.form.answer is not None:
            return ()
        first = reasoning.begin[0]
        mark = self.marking.resolve(first.text) if isinstance(first, Mark) else None
        return (mark,) if isinstance(mark, str) else ()

    def _calls(self, first: Sequence[Sequence[tags.Content]]) -> tuple[tags.Content, ...]:
        """The calls, the first one as given, with brackets and what follows."""
        array = self.form.array
        opening: tuple[tags.Content, ...] = ()
        between = tuple(self._fixed(self.form.between))
        closing: tuple[tags.Content, ...] = ()
        if array is not None:
            # in flexible whitespace the objects bring their own gaps; calls of Python have none
            bare = self.flexible and isinstance(self.form.body, CallObject)
            written = (array.opening, array.between, array.closing)
            texts = ("[", ",", "]") if bare else written
            opening, between, closing = ((tags.ConstString(text),) for text in texts)
        one = tags.Or(tuple(tags.Sequence(tuple(pieces)) for pieces in first))
        parts: tuple[tags.Content, ...] = (*opening, one)
        if self.most != 1:
            again = tags.Or(tuple(tags.Sequence(tuple(pieces)) for pieces in self.call))
            most = None if self.most is None else self.most - 1
            parts += (tags.Repeat(tags.Sequence((*between, again)), 0, most),)
        return (*parts, *closing, *self._fixed(self.form.after))

    def _block(self, begin: Sequence[Piece], end: Sequence[Piece]) -> tags.Content:
        """Free text between markers; its end is the first occurrence of the first end piece."""
        opening = self._fixed(begin)
        first, *rest = end
        if isinstance(first, EndMark) and first.text in self.marking.ends:
            return tags.Sequence((*opening, tags.AnyText()))
        assert isinstance(first, Mark | EndMark)
        text = tags.Tag("", tags.AnyText(), self.marking.resolve(first.text))
        return tags.Sequence((*opening, text, *self._fixed(rest)))

    def _fixed(self, pieces: Sequence[Piece]) -> list[tags.Content]:
        return self._pieces(pieces, None)

    def _pieces(self, pieces: Sequence[Piece], tool: Tool | None) -> list[tags.Content]:
        found: list[tags.Content] = []
        for piece in pieces:
            content = self._piece(piece, tool)
            if content is not None:
                found.append(content)
        return found

    def _piece(self, piece: Piece, tool: Tool | None) -> tags.Content | None:
        match piece:
            case str(text):
                return tags.ConstString(text)
            case EndMark(text) if text in self.marking.ends:
                return None
            case Mark(text) | EndMark(text):
                mark = self.marking.resolve(text)
                return tags.ConstString(mark) if isinstance(mark, str) else mark
            case Gap(text):
                if self.flexible:
                    return tags.Regex(_FLEXIBLE_GAP)
                return tags.ConstString(text) if text else None
        assert tool is not None, "only calls hold names and arguments"
        if isinstance(piece, Name):
            return tags.ConstString(tool.name)
        widened = {**_policies(tool), "tell_apart": self.apart}
        if isinstance(piece, PythonCall):
            chosen = {k: v for k, v in self.options.items() if k in _POLICIES}
            policies = SchemaOptions(**{**chosen, **widened})
            return tags.Embedded(call_grammar(tool, policies), "ir")
        if isinstance(piece, Arguments):
            return tags.JSONSchema(tool.schema(), options=widened)
        assert isinstance(piece, CallObject)
        return _call_object(piece, tool, widened)


_POLICIES = frozenset(SchemaOptions.__dataclass_fields__)


def _call_object(piece: CallObject, tool: Tool, widened: Mapping[str, Any]) -> tags.JSONSchema:
    uri = f"urn:structspec:tool:{tool.name}"
    members: dict[str, Any] = {
        piece.name_key: {"const": tool.name},
        piece.arguments_key: {"$ref": uri},
    }
    if piece.id_key is not None:
        members[piece.id_key] = {"type": "string", "pattern": piece.id_pattern}
    required = [key for key in piece.in_order() if key != piece.id_key or piece.id_required]
    schema = {
        "type": "object",
        "properties": {key: members[key] for key in piece.in_order()},
        "required": required,
        "additionalProperties": False,
    }
    return tags.JSONSchema(schema, {uri: tool.schema()}, widened)


def _not_leading(leads: str) -> ir.Node:
    """Texts whose first character that is no blank is not `leads`, empty and blank ones too."""
    taken = sorted({ord(leads), 9, 10, 13, 32})
    ranges: list[tuple[int, int]] = []
    for low, high in ((0, 0xD7FF), (0xE000, 0x10FFFF)):
        start = low
        for code in taken:
            if low <= code <= high:
                if start < code:
                    ranges.append((start, code - 1))
                start = code + 1
        ranges.append((start, high))
    anything = ir.Repeat(ir.Chars(((0, 0xD7FF), (0xE000, 0x10FFFF))), 0, None)
    text = ir.sequence((ir.Chars(tuple(ranges)), anything))
    return ir.sequence((ir.Repeat(ir.Chars(_BLANKS), 0, None), ir.Choice((ir.EPSILON, text))))
