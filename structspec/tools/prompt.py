"""The prompt of a tool call: which format a model speaks, and its conversation with the tools.

Owns the recognition of formats. A model's chat template names its markers; the first format of
`formats.FORMATS` with a known part in it is the model's. A model whose template names none (the
default model is one) is asked in the Hermes format, with the tools in the system message.

Invariant: the messages of the caller are never changed.

Example::

    >>> detect_format("…{'<tool_call>'}…", frozenset()).name
    'hermes'
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from structspec.errors import PromptError
from structspec.models import Model
from structspec.prompt import encode_prompt
from structspec.tools.formats import DEFAULT, FORMATS
from structspec.tools.grammar import Marking, Thinking
from structspec.tools.layout import CallFormat, Mark
from structspec.tools.render import instructions, render_calls
from structspec.tools.toolset import ToolSet

__all__ = ["detect_format", "encode_tools", "thinking_of"]

Messages = Sequence[Mapping[str, Any]]


def detect_format(template: str | None, special: frozenset[str]) -> CallFormat:
    """The format of a model by its chat template, else by its special tokens, else the default."""
    for form in FORMATS.values():
        if template and any(known in template for known in form.known_by):
            return form
    for form in FORMATS.values():
        marks = [p.text for p in (*form.before, *form.call) if isinstance(p, Mark)]
        if marks and special.issuperset(marks):
            return form
    return DEFAULT


def template_of(model: Model) -> str | None:
    """The chat template of a model, if it has a single one."""
    template = getattr(model.tokenizer, "chat_template", None)
    return template if isinstance(template, str) else None


def format_of(model: Model) -> CallFormat:
    """The format of a model."""
    marking = Marking.of(model.vocab)
    return detect_format(template_of(model), marking.special | marking.ends)


def thinking_of(
    form: CallFormat, template: str | None, tail: bytes, wanted: bool | None
) -> Thinking:
    """Whether a reply may reason: as the caller wants it, else as the template suggests.

    tail: the end of the prompt; some templates begin the reasoning themselves.
    """
    reasoning = form.reasoning
    if reasoning is None or wanted is False:
        return "none"
    first = reasoning.begin[0]
    assert isinstance(first, Mark)
    if len(reasoning.begin) == 1 and tail.rstrip().endswith(first.text.encode()):
        return "opened"
    if wanted:
        return "required"
    return "optional" if template and first.text in template else "none"


def encode_tools(
    model: Model,
    messages: Messages,
    tools: ToolSet,
    form: CallFormat,
    template_arguments: Mapping[str, Any],
) -> tuple[int, ...]:
    """The ids of a conversation that offers tools, ready for the assistant's turn.

    A chat template that knows `tools` gets them, with the history as it is. Otherwise the system
    message describes the tools, and calls and results in the history become text of the format.

    Raises PromptError with the template's own reason if it refuses.
    """
    if "tools" not in (template_of(model) or ""):
        folded = _folded(messages, tools, form)
        return encode_prompt(model, folded, **template_arguments).ids
    offered = tools.to_openai() or None
    # Templates differ: some want arguments as objects, some as text; some a text beside the calls,
    # some none.
    refusal: PromptError | None = None
    for as_text, content in ((False, ""), (False, None), (True, None), (True, "")):
        said = [_variant(message, as_text, content) for message in messages]
        try:
            return encode_prompt(model, said, tools=offered, **template_arguments).ids
        except PromptError as error:
            refusal = refusal or error
        if not any(message.get("tool_calls") for message in messages):
            break
    assert refusal is not None
    raise refusal


def _variant(message: Mapping[str, Any], as_text: bool, content: str | None) -> dict[str, Any]:
    said = dict(message)
    if not said.get("tool_calls"):
        return said
    if not said.get("content"):
        said["content"] = content
    said["tool_calls"] = [_call_variant(call, as_text) for call in said["tool_calls"]]
    return said


def _call_variant(call: Mapping[str, Any], as_text: bool) -> dict[str, Any]:
    function = dict(call.get("function", call))
    arguments = function.get("arguments", {})
    if as_text and not isinstance(arguments, str):
        function["arguments"] = json.dumps(arguments, ensure_ascii=False)
    elif not as_text and isinstance(arguments, str):
        try:
            function["arguments"] = json.loads(arguments)
        except ValueError as error:
            raise PromptError(
                f"the arguments of a call of {function.get('name')!r} in the conversation are no "
                f"JSON: {error}"
            ) from error
    return {"type": "function", **{k: v for k, v in call.items() if k != "name"}} | {
        "function": function
    }


def _folded(messages: Messages, tools: ToolSet, form: CallFormat) -> list[dict[str, Any]]:
    """The conversation with tools, calls and results as text."""
    said: list[dict[str, Any]] = []
    for message in messages:
        role, content = message.get("role"), message.get("content") or ""
        if role == "tool":
            text = f"<tool_response>\n{content}\n</tool_response>"
            if said and said[-1].get("results"):
                said[-1]["content"] += "\n" + text
            else:
                said.append({"role": "user", "content": text, "results": True})
            continue
        if message.get("tool_calls"):
            calls = [_named_call(call) for call in message["tool_calls"]]
            parts = (content, render_calls(form, calls))
            content = "\n".join(part for part in parts if part)
        said.append({"role": role, "content": content})
    if tools:
        offer = instructions(form, [tool["function"] for tool in tools.to_openai()])
        if said and said[0]["role"] == "system":
            said[0]["content"] = f"{said[0]['content']}\n\n{offer}"
        else:
            said.insert(0, {"role": "system", "content": offer})
    return [{"role": m["role"], "content": m["content"]} for m in said]


def _named_call(call: Mapping[str, Any]) -> tuple[str, Mapping[str, Any], str]:
    function = _call_variant(call, False)["function"]
    return function["name"], function["arguments"], call.get("id", "")
