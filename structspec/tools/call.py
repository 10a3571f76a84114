"""`ToolCall`, and `ToolCalls`: the calls of one reply with all that belongs to it.

Example::

    >>> call = ToolCall("add", {"a": 1}, id="x", raw='{"a": 1}')
    >>> call.to_openai()["function"]
    {'name': 'add', 'arguments': '{"a": 1}'}
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from structspec.decoding.output import Stats

__all__ = ["ToolCall", "ToolCalls"]


@dataclass(frozen=True)
class ToolCall:
    """One call. `arguments` satisfy the tool's schema; `raw` is their JSON text as written."""

    name: str
    arguments: Mapping[str, Any]
    id: str = ""
    raw: str = ""

    def to_openai(self) -> dict[str, Any]:
        """The call as an entry of a message's `tool_calls` in OpenAI's API."""
        function = {"name": self.name, "arguments": self.raw}
        return {"id": self.id, "type": "function", "function": function}


class ToolCalls(list[ToolCall]):
    """The calls of one reply, in order; empty if the model answered with text.

    text: what stands outside of calls and reasoning. value: what the text says, if the request had
    an `answer` and there are no calls; else None. reasoning: the reasoning blocks, joined by line
    breaks. format: the name of the call format. tokens, stats, finish_reason, seed: as in
    `structspec.Result`.
    """

    def __init__(
        self,
        calls: Iterable[ToolCall] = (),
        *,
        text: str = "",
        value: Any = None,
        reasoning: str = "",
        format: str = "",
        tokens: tuple[int, ...] = (),
        stats: Stats | None = None,
        finish_reason: str = "",
        seed: int = 0,
    ) -> None:
        super().__init__(calls)
        self.text = text
        self.value = value
        self.reasoning = reasoning
        self.format = format
        self.tokens = tokens
        self.stats = stats
        self.finish_reason = finish_reason
        self.seed = seed

    def message(self) -> dict[str, Any]:
        """The reply as an assistant message, ready to be appended to the conversation."""
        message: dict[str, Any] = {"role": "assistant", "content": self.text}
        if self:
            message["tool_calls"] = [call.to_openai() for call in self]
        return message
