"""The bodies of chats and of completions, whole and in pieces.

A body takes what its answers gain, in order, and says what a stream tells of it; at the end it has
the whole object. `responses` has the third one.

Invariant: what a stream tells, joined, is the whole object.

Sibling: `replies`, the parts that bodies are made of.

Example::

    body = ChatBody(head, asked, vocab)
    for gain in ...:
        chunks = body.add(gain)
    body.whole(), body.last()
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from structspec.decoding.output import Output
from structspec.server.engine import Written
from structspec.server.logprobs import Names, characters, in_chat, in_completion
from structspec.server.plan import Plan
from structspec.server.reading import Piece
from structspec.server.replies import Answer, delta, joined, usage
from structspec.server.wire import ChatRequest, CompletionRequest
from structspec.vocab import Vocabulary

__all__ = ["Body", "ChatBody", "CompletionBody", "new_id"]


@dataclass(frozen=True)
class Gain:
    """What an answer gains: its tokens, the pieces that can be told now, its output at the end."""

    index: int
    pieces: Sequence[Piece]
    written: Sequence[Written] = ()
    output: Output | None = None


class Body(Protocol):
    """One request's answers as clients get them.

    kind: what counters call it. closes: whether a stream ends with "[DONE]".
    """

    kind: str
    closes: bool

    def add(self, gain: Gain) -> list[Any]:
        """What a stream tells when an answer gains something."""
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

    def __init__(
        self, asked: ChatRequest | CompletionRequest, plan: Plan, vocab: Vocabulary
    ) -> None:
        self._asked = asked
        self._names = None if asked.alternatives is None else Names(vocab)
        self._written: list[list[Written]] = [[] for _ in plan.readers]
        self._told = [0] * len(plan.readers)  # tokens whose log-probabilities a stream has told
        self._readers = plan.readers
        self._answers = [Answer(held=plan.held) for _ in plan.readers]
        self._ended: dict[int, Output] = {}

    @property
    def outputs(self) -> list[Output]:
        """See `Body`."""
        return [self._ended[index] for index in sorted(self._ended)]

    def _take(self, gain: Gain) -> Answer:
        answer = self._answers[gain.index]
        for piece in gain.pieces:
            answer.add(piece)
        if self._names is not None:
            self._written[gain.index] += gain.written
        if gain.output is not None:
            self._ended[gain.index] = gain.output
        return answer

    def _untold(self, index: int) -> list[Written]:
        """The tokens whose log-probabilities are to be told next."""
        written, begin = self._written[index], self._told[index]
        self._told[index] = len(written)
        return written[begin:]

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
        super().__init__(asked, plan, vocab)
        self._opened: set[int] = set()
        self._head = {"id": new_id("chatcmpl-"), "created": int(time.time()), "model": model}

    def add(self, gain: Gain) -> list[Any]:
        """See `Body`."""
        answer, index = self._take(gain), gain.index
        told = []
        if index not in self._opened:
            self._opened.add(index)
            told.append(self._chunk(index, {"role": "assistant", "content": ""}))
        changes: list[tuple[dict[str, Any], str | None]] = [
            (delta(piece), None) for piece in gain.pieces
        ]
        if gain.output is not None:
            changes.append(({}, answer.reason(gain.output)))
        for change, reason in changes:  # the first tells of all tokens since the last one
            told.append(self._chunk(index, change, reason, self._logprobs(self._untold(index))))
        return told

    def _logprobs(self, written: Sequence[Written]) -> dict[str, Any] | None:
        return in_chat(written, self._names) if self._names is not None and written else None

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
                "logprobs": self._logprobs(self._written[index]),
                "finish_reason": answer.reason(self._ended[index]),
            }
            for index, answer in enumerate(self._answers)
        ]
        whole = {**self._head, "object": "chat.completion", "choices": choices}
        return {**whole, "usage": self._usage()}

    def _chunk(
        self,
        index: int,
        change: dict[str, Any],
        reason: str | None = None,
        logprobs: dict[str, Any] | None = None,
    ) -> dict[str, Any]:
        choice = {"index": index, "delta": change, "logprobs": logprobs, "finish_reason": reason}
        return {**self._head, "object": "chat.completion.chunk", "choices": [choice]}


class CompletionBody(_Choices):
    """Texts that go on."""

    kind = "completion"

    def __init__(self, asked: CompletionRequest, plan: Plan, model: str, vocab: Vocabulary) -> None:
        super().__init__(asked, plan, vocab)
        head = {"id": new_id("cmpl-"), "object": "text_completion"}
        self._head = {**head, "created": int(time.time()), "model": model}

    def add(self, gain: Gain) -> list[Any]:
        """See `Body`."""
        answer, index = self._take(gain), gain.index
        text = joined(gain.pieces)
        changes: list[tuple[str, str | None]] = [(text, None)] if text else []
        if gain.output is not None:
            changes.append(("", answer.reason(gain.output)))
        told = [
            self._choice(index, text, reason, self._told[index], self._untold(index))
            for text, reason in changes
        ]
        return [{**self._head, "choices": [choice]} for choice in told]

    def last(self) -> list[Any]:
        """See `Body`."""
        return [{**self._head, "choices": [], "usage": self._usage()}] if self._counts else []

    def whole(self) -> dict[str, Any]:
        """See `Body`."""
        choices = [
            self._choice(
                index, answer.text, answer.reason(self._ended[index]), 0, self._written[index]
            )
            for index, answer in enumerate(self._answers)
        ]
        return {**self._head, "choices": choices, "usage": self._usage()}

    def _choice(
        self, index: int, text: str, reason: str | None, begin: int, written: Sequence[Written]
    ) -> dict[str, Any]:
        logprobs = None
        if self._names is not None and (written or reason is not None):
            before = sum(characters(one.data) for one in self._written[index][:begin])
            logprobs = in_completion(written, self._names, before)
        return {"index": index, "text": text, "logprobs": logprobs, "finish_reason": reason}
