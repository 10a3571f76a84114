"""`call_tools`: let a model answer a conversation with calls of tools, in its own format.

Owns one request from messages to validated calls: the format is recognised, the grammar of a reply
compiled (the most recent ones are kept), the reply decoded under it and read back. With strict
tools a broken call cannot be written, so reading it back never fails.

Sibling: `streaming` gives the same reply piece by piece.

Example::

    @structspec.tool
    def get_weather(city: str, days: int = 1) -> str:
        '''The weather forecast of a city.'''

    messages = [{"role": "user", "content": "What will the weather be in Paris?"}]
    for call in structspec.call_tools("default", messages, [get_weather], "required"):
        print(call.name, call.arguments)
"""

from __future__ import annotations

import hashlib
import json
import string
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from structspec import ir
from structspec.arguments import check_seed, conversation, model_of, sampling_of
from structspec.errors import PromptError, StructspecError
from structspec.extras import require
from structspec.grammar import Grammar
from structspec.kept_grammars import KeptGrammars, check_options, compiled
from structspec.tools.call import ToolCall, ToolCalls
from structspec.tools.formats import find_format
from structspec.tools.grammar import Marking, Thinking, read_choice, reply_grammar
from structspec.tools.layout import CallFormat
from structspec.tools.reader import Reply, read_reply
from structspec.tools.toolset import ToolSet
from structspec.values import value_of
from structspec.vocab import Vocabulary

if TYPE_CHECKING:
    from structspec.decoding.output import Output
    from structspec.drafting import DraftSource
    from structspec.forward.sampling import Sampling
    from structspec.models import Model

__all__ = ["Request", "call_tools", "prepare"]

_KEPT_GRAMMARS = 64
_IDS = string.ascii_letters + string.digits


@dataclass(frozen=True)
class Request:
    """A request that is ready to be decoded: what goes in, and how the reply is read."""

    model: Model
    ids: tuple[int, ...]
    grammar: Grammar
    tools: ToolSet
    form: CallFormat
    marking: Marking
    opened: bool
    answer: Grammar | None
    decoding: Mapping[str, Any]

    def decode(self, on_token: Callable[[int, bytes], object] | None = None) -> Output:
        """Decode the reply."""
        from structspec.decoding.loop import decode

        constraint = self.grammar.bind(self.model.vocab)
        return decode(self.model, self.ids, constraint, on_token=on_token, **self.decoding)

    def read(self, output: Output, validate: bool = True) -> ToolCalls:
        """The calls of a finished reply.

        validate: check the arguments of non-strict tools, and make the answer's value.

        Raises ToolCallError, with the reply as `partial_output`, if a non-strict tool's arguments
        break a keyword that the grammar could not hold; ValueRejected, with the reply as `result`,
        if the answer's type refuses its value.
        """
        parts = parts_of(self.model.vocab, output.tokens)
        try:
            reply = read_reply(
                self.form,
                parts,
                self.tools,
                marking=self.marking,
                opened=self.opened,
                answers=self.answer is not None,
                validate=validate,
            )
        except StructspecError as error:
            error.partial_output = output  # type: ignore[attr-defined]
            raise
        return self.calls(reply, output, validate)

    def calls(self, reply: Reply, output: Output, validate: bool = True) -> ToolCalls:
        """A read reply with what decoding knows of it; `validate` and errors as for `read`."""
        calls = ToolCalls(
            (
                ToolCall(c.name, c.arguments, c.id or call_id(output.seed, i), c.raw)
                for i, c in enumerate(reply.calls)
            ),
            text=reply.text,
            reasoning="\n".join(part.strip() for part in reply.reasoning),
            format=self.form.name,
            tokens=output.tokens,
            stats=output.stats,
            finish_reason=output.finish_reason,
            seed=output.seed,
        )
        if validate and self.answer is not None and not calls:

            def refused(data: Any) -> ToolCalls:
                calls.value = data
                return calls

            calls.value = value_of(self.answer, reply.text, refused)
        return calls


def call_tools(
    model: Any,
    messages: str | Sequence[Mapping[str, Any]],
    tools: Any,
    tool_choice: Any = "auto",
    *,
    parallel: bool | int = True,
    format: str | CallFormat | None = None,
    reasoning: bool | None = None,
    answer: Any = None,
    draft: DraftSource | str | None = "auto",
    verifier: str = "block",
    max_tokens: int | None = None,
    sampling: Sampling | None = None,
    temperature: float | None = None,
    top_k: int | None = None,
    top_p: float | None = None,
    min_p: float | None = None,
    seed: int | None = None,
    template_arguments: Mapping[str, Any] | None = None,
    on_token: Callable[[int, bytes], object] | None = None,
    **options: Any,
) -> ToolCalls:
    """Let a model answer with calls of tools.

    model, draft, verifier, max_tokens, sampling, temperature, top_k, top_p, min_p, seed,
        template_arguments, on_token: as for `structspec.generate`.
    messages: the conversation in OpenAI's form, earlier calls and results ("tool" messages)
        included; a text is one user message.
    tools: a `ToolSet`, or what makes one: tools, functions, OpenAI-form dicts, MCP tools.
    tool_choice: "auto" (text or calls), "required" (one call at least), "none", the name of a
        tool, or OpenAI's object that names one.
    parallel: whether one reply may hold several calls; a number bounds them. Families that write
        one call per reply do so in any case.
    format: a call format or its name; None recognises it by the chat template.
    reasoning: True demands a reasoning block, False forbids it, None allows it if the template
        knows one.
    answer: a type, schema or `Grammar` that text without calls must be of; None: any text.
    options: any option of `structspec.compile`; spelling and whitespace default to "canonical"
        and "conventional".

    Returns the calls, a list with `text`, `reasoning`, `tokens`, `stats` and more beside them.
    Raises ToolError for tools or choices that cannot be used and for an answer that could not be
    told from a call, ValueRejected for an answer that its type refuses, UnsupportedFeature for a
    strict tool that cannot be compiled exactly, ToolCallError if a non-strict tool's arguments
    break a keyword that its grammar does not hold, and the errors of `generate`.
    """
    request = prepare(
        model,
        messages,
        tools,
        tool_choice,
        parallel=parallel,
        format=format,
        reasoning=reasoning,
        answer=answer,
        draft=draft,
        verifier=verifier,
        max_tokens=max_tokens,
        sampling=sampling,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        min_p=min_p,
        seed=seed,
        template_arguments=template_arguments,
        **options,
    )
    return request.read(request.decode(on_token))


def prepare(
    model: Any,
    messages: str | Sequence[Mapping[str, Any]],
    tools: Any,
    tool_choice: Any = "auto",
    *,
    parallel: bool | int = True,
    format: str | CallFormat | None = None,
    reasoning: bool | None = None,
    answer: Any = None,
    template_arguments: Mapping[str, Any] | None = None,
    draft: Any = "auto",
    verifier: str = "block",
    max_tokens: int | None = None,
    sampling: Any = None,
    temperature: float | None = None,
    top_k: int | None = None,
    top_p: float | None = None,
    min_p: float | None = None,
    seed: int | None = None,
    **options: Any,
) -> Request:
    """Everything before decoding; arguments and errors as for `call_tools`."""
    require("torch", "transformers")
    from structspec.tools.prompt import encode_tools, format_of, template_of, thinking_of

    check_options(options)
    if isinstance(messages, Sequence) and not isinstance(messages, str) and not messages:
        raise PromptError("the list of messages is empty; a conversation begins with a message")
    offered = ToolSet.of(tools)
    choice = read_choice(tool_choice, offered)
    target = model_of(model)
    template = template_of(target)
    marking = Marking.of(target.vocab)
    form = format_of(target) if format is None else find_format(format)
    told = conversation(target, messages, True if isinstance(messages, str) else None)
    shown = offered if choice != "none" else ToolSet()
    ids = encode_tools(target, told, shown, form, template_arguments or {})
    tail = target.tokenizer.decode(ids[-12:]).encode()
    thinking = thinking_of(form, template, tail, reasoning)
    if answer is not None:
        own = {} if isinstance(answer, Grammar) else options
        answer = compiled(answer, own)
    grammar = _grammar(form, offered, marking, choice, parallel, thinking, answer, options)
    settings = sampling_of(sampling, temperature, top_k, top_p, min_p)
    check_seed(seed)
    if seed is None and sampling is None:
        seed = -1  # fresh
    decoding = {
        "sampling": settings,
        "draft": draft,
        "verifier": verifier,
        "max_tokens": max_tokens,
        "seed": seed,
    }
    opened = thinking == "opened"
    return Request(target, ids, grammar, offered, form, marking, opened, answer, decoding)


def parts_of(vocab: Vocabulary, tokens: Sequence[int]) -> list[str | bytes | ir.Special]:
    """What tokens write: bytes, and special tokens by name."""
    names = {i: name for name, i in vocab.special.items()}
    parts: list[str | bytes | ir.Special] = []
    text = bytearray()
    for token in tokens:
        data = vocab.token_bytes(token)
        if data is not None:
            text += data
        elif token in names:
            parts.append(bytes(text))
            text.clear()
            parts.append(ir.Special(names[token]))
    parts.append(bytes(text))
    return [part for part in parts if part != b""]


def call_id(seed: int, index: int) -> str:
    """An id of nine letters and digits, the same for the same seed."""
    number = int.from_bytes(hashlib.sha256(f"{seed}:{index}".encode()).digest()[:8], "big")
    signs = []
    for _ in range(9):
        number, rest = divmod(number, len(_IDS))
        signs.append(_IDS[rest])
    return "".join(signs)


_kept = KeptGrammars(_KEPT_GRAMMARS)


def _grammar(
    form: CallFormat,
    tools: ToolSet,
    marking: Marking,
    choice: str,
    parallel: bool | int,
    thinking: Thinking,
    answer: Grammar | None,
    options: Mapping[str, Any],
) -> Grammar:
    chosen = _openai_choice(choice)
    marks = sorted(marking.special), sorted(marking.ends)
    said = repr(sorted(options.items(), key=lambda item: item[0]))
    key = json.dumps([repr(form), tools.fingerprint, marks, choice, parallel, thinking, said])
    return _kept.get(
        (key, answer),  # a grammar is equal to itself only, and equal types are compiled once
        lambda: reply_grammar(
            form,
            tools,
            marking=marking,
            choice=chosen,
            parallel=parallel,
            thinking=thinking,
            answer=answer,
            **options,
        ),
    )


def _openai_choice(choice: str) -> Any:
    """A choice that was read, in a form that can be read again."""
    return {"name": choice[1:]} if choice.startswith("=") else choice
