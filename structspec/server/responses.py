"""OpenAI's Responses: `POST /v1/responses`, a chat in another form.

Owns the translation of such a request to a chat, and the items and events of its answer. Nothing is
kept between requests: a conversation is sent as a whole, and what would need a memory on the server
is refused by name.

Invariants
- an answer is that of the same chat: reasoning, then text, then calls, each an item;
- the items told by a stream's events are those of the whole response, which the last event holds.

Siblings: `wire` and `bodies` do the same for chats.

Example::

    >>> asked = ResponsesRequest.model_validate({"instructions": "Be brief.", "input": "Hello"})
    >>> [message["role"] for message in asked.chat().messages]
    ['system', 'user']
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from structspec.decoding.output import Output
from structspec.server.bodies import Gain, new_id
from structspec.server.plan import Plan, RequestError
from structspec.server.reading import CallBegun, Piece
from structspec.server.wire import (
    SAMPLING,
    ChatRequest,
    Penalty,
    Reasoning,
    Strict,
    StructuredOutputs,
    TokenId,
    Tokens,
    without_idle,
)
from structspec.tools.streaming import ArgumentsDelta, ReasoningDelta, TextDelta

__all__ = ["ResponseBody", "ResponsesRequest"]

#: Fields that cannot matter to an answer here, beside those of chats.
_IDLE = frozenset({"max_tool_calls", "truncation"})
_LOGPROBS = "message.output_text.logprobs"


class _Format(Strict):
    type: Literal["text", "json_object", "json_schema"] = "text"
    name: str = "answer"
    description: str | None = None
    schema_: Any = Field(default=None, alias="schema")
    strict: bool | None = None


class _Text(Strict):
    format: _Format = _Format()
    verbosity: str | None = None


class ResponsesRequest(Strict):
    """What clients send. Fields that are not OpenAI's are those of `ChatRequest`."""

    model: str | None = None
    input: str | list[dict[str, Any]] = Field(min_length=1)
    instructions: str | None = None
    stream: bool = False
    text: _Text = _Text()
    tools: list[dict[str, Any]] | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    reasoning: Reasoning = Reasoning()
    max_output_tokens: Tokens | None = None
    background: Literal[False] = False
    top_logprobs: Literal[0] | None = None
    stream_options: dict[str, Any] | None = None
    temperature: Annotated[float, Field(ge=0, le=100)] | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    frequency_penalty: Penalty | None = None
    presence_penalty: Penalty | None = None
    repetition_penalty: Annotated[float, Field(ge=0.01, le=100)] | None = None
    logit_bias: dict[TokenId, Penalty] | None = None
    seed: Annotated[int, Field(ge=0)] | None = None
    structured_outputs: StructuredOutputs | None = None
    chat_template_kwargs: dict[str, Any] | None = None

    @model_validator(mode="before")
    @classmethod
    def _without_idle(cls, values: Any) -> Any:
        values = without_idle(values, _IDLE)
        for name in ("previous_response_id", "conversation"):
            if isinstance(values, dict) and name in values:
                raise ValueError(f"{name}: this server keeps no conversations; send all items")
        if isinstance(values, dict) and _LOGPROBS in (values.pop("include", None) or ()):
            raise ValueError(f"include: {_LOGPROBS} is told of chats and completions only")
        return values

    def chat(self) -> ChatRequest:
        """The same request as a chat. Raises RequestError for items that a chat cannot hold."""
        asked: dict[str, Any] = {
            name: getattr(self, name)
            for name in (*SAMPLING, "seed", "structured_outputs", "chat_template_kwargs")
        }
        form = self.text.format
        if form.type == "json_schema":
            schema = {"name": form.name, "schema": form.schema_, "strict": form.strict}
            asked["response_format"] = {"type": form.type, "json_schema": schema}
        else:
            asked["response_format"] = {"type": form.type}
        choice = self.tool_choice
        if isinstance(choice, dict) and choice.get("type") == "allowed_tools":
            named = [{"function": tool} for tool in choice.get("tools", [])]
            inner = {"mode": choice.get("mode"), "tools": named}
            choice = {"type": "allowed_tools", "allowed_tools": inner}
        asked |= {
            "model": self.model,
            "messages": self._messages(),
            "tools": [_tool(tool, i) for i, tool in enumerate(self.tools or [])] or None,
            "tool_choice": choice,
            "parallel_tool_calls": self.parallel_tool_calls,
            "max_completion_tokens": self.max_output_tokens,
            "reasoning_effort": self.reasoning.effort,
            "stream": self.stream,
        }
        try:
            return ChatRequest.model_validate({k: v for k, v in asked.items() if v is not None})
        except ValueError as error:
            raise RequestError(str(error)) from error

    def _messages(self) -> list[dict[str, Any]]:
        said: list[dict[str, Any]] = []
        if self.instructions is not None:
            said.append({"role": "system", "content": self.instructions})
        if isinstance(self.input, str):
            return [*said, {"role": "user", "content": self.input}]
        for index, item in enumerate(self.input):
            place = f"input[{index}]"
            match item.get("type", "message"):
                case "message":
                    content = _content(item.get("content"), place)
                    said.append({"role": item.get("role"), "content": content})
                case "function_call":
                    if not said or said[-1]["role"] != "assistant":
                        said.append({"role": "assistant", "content": None})
                    function = {k: item.get(k) for k in ("name", "arguments")}
                    call = {"id": item.get("call_id"), "type": "function", "function": function}
                    said[-1].setdefault("tool_calls", []).append(call)
                case "function_call_output":
                    content = _content(item.get("output"), place)
                    call_id = item.get("call_id")
                    said.append({"role": "tool", "tool_call_id": call_id, "content": content})
                case "reasoning":
                    pass  # chat templates leave earlier reasoning out
                case kind:
                    raise RequestError(f"an item of type {kind!r} cannot be read here", place)
        return said


def _content(content: Any, place: str) -> Any:
    """Content as chats have it."""
    if not isinstance(content, list):
        return content
    parts = []
    for part in content:
        kind = part.get("type") if isinstance(part, Mapping) else None
        if kind not in ("input_text", "output_text", "text", "refusal"):
            raise RequestError(f"content of type {kind!r} cannot be read", place)
        parts.append({"type": "text", "text": part.get("refusal" if kind == "refusal" else "text")})
    return parts


def _tool(tool: Mapping[str, Any], index: int) -> dict[str, Any]:
    """A tool as chats have it."""
    if tool.get("type") != "function":
        raise RequestError(
            f"a tool of type {tool.get('type')!r} is not here; this server has functions only",
            f"tools[{index}].type",
        )
    known = ("name", "description", "parameters", "strict")
    return {"type": "function", "function": {k: tool[k] for k in known if tool.get(k) is not None}}


class ResponseBody:
    """The response to a request: items, and the events that tell them."""

    kind = "response"
    closes = False

    def __init__(self, asked: ResponsesRequest, plan: Plan, model: str) -> None:
        self._asked = asked
        self._reader = plan.readers[0]
        self._held = plan.held
        self._model = model
        self._id, self._created = new_id("resp_"), int(time.time())
        self._items: list[dict[str, Any]] = []
        self._open = False  # whether the last item goes on
        self._output: Output | None = None
        self._number = 0

    @property
    def outputs(self) -> list[Output]:
        """See `bodies.Body`."""
        return [] if self._output is None else [self._output]

    def add(self, gain: Gain) -> list[Any]:
        """See `bodies.Body`."""
        told = []
        if not self._number:
            told += [self._event("created", response=self.whole())]
            told += [self._event("in_progress", response=self.whole())]
        for piece in gain.pieces:
            told += self._piece(piece)
        if gain.output is not None:
            self._output = gain.output
            told += self._close()
        return told

    def last(self) -> list[Any]:
        """See `bodies.Body`."""
        whole = self.whole()
        return [self._event(whole["status"], response=whole)]

    def whole(self) -> dict[str, Any]:
        """See `bodies.Body`."""
        asked, cut = self._asked, self._cut
        status = "in_progress" if self._output is None else "incomplete" if cut else "completed"
        return {
            "id": self._id,
            "object": "response",
            "created_at": self._created,
            "status": status,
            "error": None,
            "incomplete_details": {"reason": "max_output_tokens"} if cut else None,
            "instructions": asked.instructions,
            "max_output_tokens": asked.max_output_tokens,
            "metadata": {},
            "model": self._model,
            "output": [dict(item) for item in self._items],
            "parallel_tool_calls": asked.parallel_tool_calls is not False,
            "previous_response_id": None,
            "reasoning": asked.reasoning.model_dump(include={"effort", "summary"}),
            "store": False,
            "temperature": 1.0 if asked.temperature is None else asked.temperature,
            "text": asked.text.model_dump(by_alias=True, exclude_none=True),
            "tool_choice": asked.tool_choice or "auto",
            "tools": asked.tools or [],
            "top_p": 1.0 if asked.top_p is None else asked.top_p,
            "truncation": "disabled",
            "usage": None if self._output is None else self._usage(self._output),
        }

    def _usage(self, output: Output) -> dict[str, Any]:
        stats = output.stats
        return {
            "input_tokens": stats.prompt_tokens,
            "input_tokens_details": {"cached_tokens": stats.reused, "cache_write_tokens": 0},
            "output_tokens": stats.tokens,
            "output_tokens_details": {"reasoning_tokens": self._reader.reasoning_tokens},
            "total_tokens": stats.prompt_tokens + stats.tokens,
        }

    # -- items and their events ------------------------------------------------------------------

    def _piece(self, piece: Piece) -> list[dict[str, Any]]:
        match piece:
            case TextDelta(text):
                told = self._continue("message", role="assistant", content=[])
                told += self._part({"type": "output_text", "text": "", "annotations": []})
                self._items[-1]["content"][0]["text"] += text
                return [*told, self._of_part("output_text.delta", delta=text, logprobs=[])]
            case ReasoningDelta(text):
                told = self._continue("reasoning", summary=[], content=[])
                told += self._part({"type": "reasoning_text", "text": ""})
                self._items[-1]["content"][0]["text"] += text
                return [*told, self._of_part("reasoning_text.delta", delta=text)]
            case CallBegun(_, id, name):
                told = self._close()
                return told + self._begin("function_call", call_id=id, name=name, arguments="")
            case ArgumentsDelta(_, text):
                self._items[-1]["arguments"] += text
                return [self._of_item("function_call_arguments.delta", delta=text)]

    def _continue(self, kind: str, **facts: Any) -> list[dict[str, Any]]:
        """Go on with the last item if it is of this kind, else begin one."""
        if self._open and self._items[-1]["type"] == kind:
            return []
        return self._close() + self._begin(kind, **facts)

    def _begin(self, kind: str, **facts: Any) -> list[dict[str, Any]]:
        prefix = {"message": "msg_", "reasoning": "rs_", "function_call": "fc_"}[kind]
        item = {"id": new_id(prefix), "type": kind, "status": "in_progress", **facts}
        self._items.append(item)
        self._open = True
        return [self._event("output_item.added", output_index=self._last, item=_copied(item))]

    def _part(self, part: dict[str, Any]) -> list[dict[str, Any]]:
        """The only part of an item's content, if it is not there yet."""
        content = self._items[-1]["content"]
        if content:
            return []
        content.append(part)
        return [self._of_part("content_part.added", part=dict(part))]

    def _close(self) -> list[dict[str, Any]]:
        """End the last item, if it goes on."""
        if not self._open:
            return []
        self._open = False
        item, told = self._items[-1], []
        item["status"] = "incomplete" if self._cut else "completed"
        if item["type"] == "function_call":
            facts = {"name": item["name"], "arguments": item["arguments"]}
            told.append(self._of_item("function_call_arguments.done", **facts))
        else:
            part = item["content"][0]
            facts = {"logprobs": []} if part["type"] == "output_text" else {}
            told.append(self._of_part(f"{part['type']}.done", text=part["text"], **facts))
            told.append(self._of_part("content_part.done", part=dict(part)))
        told.append(self._event("output_item.done", output_index=self._last, item=_copied(item)))
        return told

    @property
    def _cut(self) -> bool:
        """Whether the budget cut free text; values and calls are complete wherever they end."""
        free = not self._held and not any(i["type"] == "function_call" for i in self._items)
        return free and self._output is not None and self._output.finish_reason == "length"

    @property
    def _last(self) -> int:
        return len(self._items) - 1

    def _of_item(self, event: str, /, **facts: Any) -> dict[str, Any]:
        return self._event(event, item_id=self._items[-1]["id"], output_index=self._last, **facts)

    def _of_part(self, event: str, /, **facts: Any) -> dict[str, Any]:
        return self._of_item(event, content_index=0, **facts)

    def _event(self, event: str, /, **facts: Any) -> dict[str, Any]:
        self._number += 1
        return {"type": f"response.{event}", "sequence_number": self._number - 1, **facts}


def _copied(item: Mapping[str, Any]) -> dict[str, Any]:
    """An item as it stands now."""
    copied = dict(item)
    if "content" in copied:
        copied["content"] = [dict(part) for part in copied["content"]]
    return copied
