"""The bodies that clients get: OpenAI's objects for whole answers, pieces, usage and errors.

Owns their shape. An `Answer` collects the pieces of one choice; whole bodies are made of the same
pieces that a stream tells one by one.

Invariants
- the pieces of a stream, joined, are the whole answer;
- usage counts each prompt once, however many answers it has; drafted tokens are told as OpenAI
  tells those of predicted outputs.

Sibling: `wire` has what comes in.

Example::

    answer = Answer()
    for piece in pieces:
        answer.add(piece)
    answer.message(), answer.reason("stop")
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from structspec.decoding.output import Output
from structspec.server.reading import CallBegun, Piece
from structspec.tools.streaming import ArgumentsDelta, ReasoningDelta, TextDelta

__all__ = ["Answer", "delta", "error_body", "usage"]


@dataclass
class Answer:
    """One choice as far as it is written. held: whether its text is held to a grammar."""

    held: bool = False
    text: str = ""
    reasoning: str = ""
    calls: list[dict[str, Any]] = field(default_factory=list)

    def add(self, piece: Piece) -> None:
        """One more piece."""
        match piece:
            case TextDelta(text):
                self.text += text
            case ReasoningDelta(text):
                self.reasoning += text
            case CallBegun(_, id, name):
                function = {"name": name, "arguments": ""}
                self.calls.append({"id": id, "type": "function", "function": function})
            case ArgumentsDelta(index, text):
                self.calls[index]["function"]["arguments"] += text

    def message(self) -> dict[str, Any]:
        """The assistant's message."""
        message: dict[str, Any] = {"role": "assistant", "content": self.text, "refusal": None}
        if self.calls:
            message["content"] = self.text or None
            message["tool_calls"] = self.calls
        if self.reasoning:
            message["reasoning_content"] = self.reasoning
        return message

    def reason(self, output: Output) -> str:
        """OpenAI's `finish_reason`; values and calls are complete, even if a budget shaped them."""
        if self.calls:
            return "tool_calls"
        return "length" if output.finish_reason == "length" and not self.held else "stop"


def delta(piece: Piece) -> dict[str, Any]:
    """A piece as the `delta` of a streamed chat."""
    match piece:
        case TextDelta(text):
            return {"content": text}
        case ReasoningDelta(text):
            return {"reasoning_content": text}
        case CallBegun(index, id, name):
            function = {"name": name, "arguments": ""}
            call = {"index": index, "id": id, "type": "function", "function": function}
            return {"tool_calls": [call]}
        case ArgumentsDelta(index, text):
            return {"tool_calls": [{"index": index, "function": {"arguments": text}}]}


def usage(
    outputs: Sequence[Output], answers_per_prompt: int, reasoning_tokens: int
) -> dict[str, Any]:
    """What was read and written. outputs: all answers, those of one prompt side by side."""
    firsts = [output.stats for output in outputs[::answers_per_prompt]]
    every = [output.stats for output in outputs]
    read = sum(stats.prompt_tokens for stats in firsts)
    written = sum(stats.tokens for stats in every)
    accepted = sum(stats.accepted for stats in every)
    return {
        "prompt_tokens": read,
        "completion_tokens": written,
        "total_tokens": read + written,
        "prompt_tokens_details": {"cached_tokens": sum(stats.reused for stats in firsts)},
        "completion_tokens_details": {
            "reasoning_tokens": reasoning_tokens,
            "accepted_prediction_tokens": accepted,
            "rejected_prediction_tokens": sum(stats.drafted for stats in every) - accepted,
        },
    }


def error_body(
    message: str, kind: str, code: str | None = None, param: str | None = None
) -> dict[str, Any]:
    """OpenAI's form of an error."""
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


def joined(pieces: Iterable[Piece]) -> str:
    """The text of pieces that are all text."""
    return "".join(piece.text for piece in pieces if isinstance(piece, TextDelta))
