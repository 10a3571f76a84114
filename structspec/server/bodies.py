"""The bodies of chats and of completions, whole and in pieces.

A body takes what its answers gain, in order, and says what a stream tells of it; at the end it has
the whole object. `responses` has the third one.

Invariant: what a stream tells, joined, is the whole object.

Sibling: `replies`, the parts that bodies are made of.

Example::

    body = ChatBody(head, asked, vocab)
    for index, pieces, output in ...:
        chunks = body.add(index, pieces, output)
    body.whole(), body.last()
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Sequence
from typing import Any, Protocol

from structspec.decoding.output import Output
from structspec.server.plan import Plan
from structspec.server.reading import Piece
from structspec.server.replies import Answer, delta, joined, logprobs_body, usage
from structspec.server.wire import ChatRequest, CompletionRequest
from structspec.vocab import Vocabulary

__all__ = ["Body", "ChatBody", "CompletionBody", "new_id"]


class Body(Protocol):
    """One request's answers as clients get them.

    kind: what counters call it. closes: whether a stream ends with "[DONE]".
    """

    kind: str
    closes: bool

    def add(self, index: int, pieces: Sequence[Piece], output: Output | None) -> list[Any]:
        """What a stream tells when an answer gains something, or ends with its output."""
        ...

    def last(self) -> list[Any]:
        """What a stream tells when all answers have ended."""
        ...

    def whole(self) -> dict[str, Any]:
        """The object of all answers."""
        ...

    @property
    def outputs(self) -> list[Output]:
        """The outputs of all answers that have ended."""
        ...


def new_id(prefix: str) -> str:
    """A name that no other object has."""
    return f"{prefix}{secrets.token_hex(12)}"


class _Choices:
    """Answers with their outputs, and what chats and completions share."""

    closes = True

    def __init__(self, asked: ChatRequest | CompletionRequest, plan: Plan) -> None:
        self._asked = asked
        self._readers = plan.readers
        self._answers = [Answer(held=plan.held) for _ in plan.readers]
        self._ended: dict[int, Output] = {}

    @property
    def outputs(self) -> list[Output]:
        """See `Body`."""
        return [self._ended[index] for index in sorted(self._ended)]

    def _take(self, index: int, pieces: Sequence[Piece], output: Output | None) -> Answer:
        for piece in pieces:
            self._answers[index].add(piece)
        if output is not None:
            self._ended[index] = output
        return self._answers[index]

    def _usage(self) -> dict[str, Any]:
        reasoning = sum(reader.reasoning_tokens for reader in self._readers)
        return usage(self.outputs, self._asked.n or 1, reasoning)

    @property
    def _counts(self) -> bool:
        options = self._asked.stream_options
        return options is not None and options.include_usage


class ChatBody(_Choices):
    """A chat's next message."""

    kind = "chat"

    def __init__(self, asked: ChatRequest, plan: Plan, model: str, vocab: Vocabulary) -> None:
        super().__init__(asked, plan)
        self._vocab = vocab
        self._opened: set[int] = set()
        self._head = {"id": new_id("chatcmpl-"), "created": int(time.time()), "model": model}

    def add(self, index: int, pieces: Sequence[Piece], output: Output | None) -> list[Any]:
        """See `Body`."""
        answer = self._take(index, pieces, output)
        told = []
        if index not in self._opened:
            self._opened.add(index)
            told.append(self._chunk(index, {"role": "assistant", "content": ""}))
        told += [self._chunk(index, delta(piece)) for piece in pieces]
        if output is not None:
            told.append(self._chunk(index, {}, answer.reason(output)))
        return told

    def last(self) -> list[Any]:
        """See `Body`."""
        chunk = {**self._head, "object": "chat.completion.chunk", "choices": []}
        return [{**chunk, "usage": self._usage()}] if self._counts else []

    def whole(self) -> dict[str, Any]:
        """See `Body`."""
        choices = [
            {
                "index": index,
                "message": answer.message(),
                "logprobs": logprobs_body(self._ended[index], self._vocab),
                "finish_reason": answer.reason(self._ended[index]),
            }
            for index, answer in enumerate(self._answers)
        ]
        whole = {**self._head, "object": "chat.completion", "choices": choices}
        return {**whole, "usage": self._usage()}

    def _chunk(
        self, index: int, change: dict[str, Any], reason: str | None = None
    ) -> dict[str, Any]:
        choice = {"index": index, "delta": change, "logprobs": None, "finish_reason": reason}
        return {**self._head, "object": "chat.completion.chunk", "choices": [choice]}


class CompletionBody(_Choices):
    """Texts that go on."""

    kind = "completion"

    def __init__(self, asked: CompletionRequest, plan: Plan, model: str) -> None:
        super().__init__(asked, plan)
        head = {"id": new_id("cmpl-"), "object": "text_completion"}
        self._head = {**head, "created": int(time.time()), "model": model}

    def add(self, index: int, pieces: Sequence[Piece], output: Output | None) -> list[Any]:
        """See `Body`."""
        answer = self._take(index, pieces, output)
        text = joined(pieces)
        told = [self._choice(index, text, None)] if text else []
        if output is not None:
            told.append(self._choice(index, "", answer.reason(output)))
        return [{**self._head, "choices": [choice]} for choice in told]

    def last(self) -> list[Any]:
        """See `Body`."""
        return [{**self._head, "choices": [], "usage": self._usage()}] if self._counts else []

    def whole(self) -> dict[str, Any]:
        """See `Body`."""
        choices = [
            self._choice(index, answer.text, answer.reason(self._ended[index]))
            for index, answer in enumerate(self._answers)
        ]
        return {**self._head, "choices": choices, "usage": self._usage()}

    def _choice(self, index: int, text: str, reason: str | None) -> dict[str, Any]:
        return {"index": index, "text": text, "logprobs": None, "finish_reason": reason}
