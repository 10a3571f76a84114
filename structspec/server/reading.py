"""Readers: from the tokens of one answer to the pieces of it that a client is told.

A reader takes tokens as they come and says what they add: text, reasoning, calls. `TextReader`
reads values of a grammar and continued texts, `ReplyReader` replies that may hold calls of tools.

Stop strings end free text *before* the string, as OpenAI's do, so text that may be the beginning of
one is held back until that is decided. Text of a grammar is never cut: there a stop string ends the
answer at the first place where it is complete.

Invariants
- the pieces of an answer, joined, do not depend on how its tokens were portioned;
- text is told at boundaries of characters.

Sibling: `replies` puts pieces into the bodies that clients get.

Example::

    >>> cut = StopCut(("END",))
    >>> cut.feed("one E"), cut.feed("ND two"), cut.rest()
    ('one ', '', '')
"""

from __future__ import annotations

import codecs
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from structspec.decoding.output import Output
from structspec.server.engine import Written
from structspec.tools.calling import Request, call_id
from structspec.tools.streaming import (
    ArgumentsDelta,
    CallStarted,
    Event,
    GrowingReply,
    ReasoningDelta,
    TextDelta,
)

__all__ = ["CallBegun", "Piece", "Reader", "ReplyReader", "StopCut", "TextReader"]


@dataclass(frozen=True)
class CallBegun:
    """A call of a tool begins; its arguments follow."""

    index: int
    id: str
    name: str


Piece: TypeAlias = TextDelta | ReasoningDelta | CallBegun | ArgumentsDelta


class Reader(Protocol):
    """One answer as it is written. `reasoning_tokens`: how many tokens of it were reasoning."""

    reasoning_tokens: int

    def feed(self, written: Sequence[Written]) -> list[Piece]:
        """What some more tokens add."""
        ...

    def finish(self, output: Output) -> list[Piece]:
        """What is left when the answer is complete."""
        ...


class StopCut:
    """Text up to where the first of some strings begins: the one that ends first."""

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = stops
        self._held = ""
        self._longest = max((len(stop) for stop in stops), default=0)
        self.done = False

    def feed(self, text: str) -> str:
        """What can be told now: no stop string begins in it."""
        if self.done or not self._stops:
            return "" if self.done else text
        held = self._held + text
        found = [(at + len(stop), at) for stop in self._stops if (at := held.find(stop)) >= 0]
        if found:
            self.done, self._held = True, ""
            return held[: min(found)[1]]
        sure = len(held)
        for at in range(max(0, len(held) - self._longest + 1), len(held)):
            if any(stop.startswith(held[at:]) for stop in self._stops):
                sure = at
                break
        self._held = held[sure:]
        return held[:sure]

    def rest(self) -> str:
        """What was held back, at the end of the text."""
        held, self._held = self._held, ""
        return held


class TextReader:
    """The bytes of the answer as text; `stops` cut it, if it is free text."""

    def __init__(self, stops: Sequence[str] = ()) -> None:
        self.reasoning_tokens = 0
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._cut = StopCut(stops)

    def feed(self, written: Sequence[Written]) -> list[Piece]:
        """See `Reader`."""
        text = self._decoder.decode(b"".join(token.data for token in written))
        return _texts(self._cut.feed(text))

    def finish(self, output: Output) -> list[Piece]:
        """See `Reader`."""
        text = self._cut.feed(self._decoder.decode(b"", final=True))
        return _texts(text + self._cut.rest())


class ReplyReader:
    """A reply in a model's call format: text, reasoning and calls; `stops` cut its text."""

    def __init__(self, request: Request, seed: int, stops: Sequence[str] = ()) -> None:
        self.reasoning_tokens = 0
        self._reasons = request.form.reasoning is not None
        self._request = request
        self._seed = seed
        self._growing = GrowingReply(request)
        self._cut = StopCut(stops)

    def feed(self, written: Sequence[Written]) -> list[Piece]:
        """See `Reader`."""
        pieces: list[Piece] = []
        for token in written:
            self._growing.take(token.token, token.data)
            if self._reasons:  # token by token, as it is counted
                pieces += self._pieces(self._growing.read())
                reply = self._growing.reply
                self._reasons = not (reply.text or reply.calls)
                self.reasoning_tokens += self._reasons and bool(reply.reasoning)
        return pieces + self._pieces(self._growing.read())

    def finish(self, output: Output) -> list[Piece]:
        """See `Reader`."""
        # a tool that is not strict may be called with arguments that its schema refuses
        calls = self._request.read(output, validate=False)
        return [*self._pieces(self._growing.finish(calls)), *_texts(self._cut.rest())]

    def _pieces(self, events: Sequence[Event]) -> list[Piece]:
        pieces: list[Piece] = []
        for event in events:
            if isinstance(event, TextDelta):
                pieces += _texts(self._cut.feed(event.text))
            elif isinstance(event, CallStarted):
                pieces += _texts(self._cut.rest())
                pieces.append(CallBegun(event.index, call_id(self._seed, event.index), event.name))
            elif isinstance(event, ReasoningDelta | ArgumentsDelta):
                pieces.append(event)
        return pieces


def _texts(text: str) -> list[Piece]:
    return [TextDelta(text)] if text else []
