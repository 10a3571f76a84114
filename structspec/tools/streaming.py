"""`stream_tools`: the reply of `call_tools` piece by piece, as events.

Owns the order of events. Decoding runs in a worker thread; every certain token is read at once, and
what it adds to the reply becomes events. Text that may turn out to be a marker is held back until
that is decided, so the pieces of text, joined, are the text.

Invariants
- for each call: `CallStarted`, any number of `ArgumentsDelta`, `CallFinished`; joined, the deltas
  are the JSON text of the arguments;
- `Finished` comes last, with the same `ToolCalls` that `call_tools` returns for the same seed;
- closing the iterator stops decoding at the next token.

Cost: the reply is read again for every token: quadratic in its length, microseconds per token for
replies of ordinary length.

Example::

    for event in structspec.stream_tools(model, messages, tools, "required"):
        if isinstance(event, ArgumentsDelta):
            print(event.text, end="")
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from structspec import ir
from structspec.tools.call import ToolCall, ToolCalls
from structspec.tools.calling import Request, prepare
from structspec.tools.reader import Reply, read_prefix

__all__ = [
    "ArgumentsDelta",
    "CallFinished",
    "CallStarted",
    "Event",
    "Finished",
    "GrowingReply",
    "ReasoningDelta",
    "TextDelta",
    "stream_tools",
]


@dataclass(frozen=True)
class TextDelta:
    """More of the reply's text."""

    text: str


@dataclass(frozen=True)
class ReasoningDelta:
    """More of the reasoning."""

    text: str


@dataclass(frozen=True)
class CallStarted:
    """A call of a tool begins."""

    index: int
    name: str


@dataclass(frozen=True)
class ArgumentsDelta:
    """More of the JSON text of a call's arguments."""

    index: int
    text: str


@dataclass(frozen=True)
class CallFinished:
    """A call is complete and its arguments satisfy their schema."""

    index: int
    call: ToolCall


@dataclass(frozen=True)
class Finished:
    """The reply is complete."""

    calls: ToolCalls


Event: TypeAlias = (
    TextDelta | ReasoningDelta | CallStarted | ArgumentsDelta | CallFinished | Finished
)


def stream_tools(
    model: Any,
    messages: str | Sequence[Mapping[str, Any]],
    tools: Any,
    tool_choice: Any = "auto",
    **arguments: Any,
) -> Iterator[Event]:
    """Let a model answer with calls of tools, as an iterator of events.

    Arguments and errors as for `call_tools`, except `on_token`. Errors in the request are raised
    at once, errors of decoding by the iterator.
    """
    return _events(prepare(model, messages, tools, tool_choice, **arguments))


class _Stopped(Exception):
    """The consumer went away."""


class GrowingReply:
    """The reply to a request, token by token: `take` each, `read` what they add, `finish` it."""

    def __init__(self, request: Request) -> None:
        self._request = request
        self._names = {i: name for name, i in request.model.vocab.special.items()}
        self._parts: list[str | bytes | ir.Special] = []
        self._differences = Differences()
        self.reply = Reply("", [], [])

    def take(self, token: int, data: bytes) -> None:
        """One more token and its bytes."""
        if data:
            self._parts.append(data)
        elif token in self._names:
            self._parts.append(ir.Special(self._names[token]))

    def read(self) -> list[Event]:
        """The events since the last call."""
        asked = self._request
        self.reply = read_prefix(
            asked.form,
            self._parts,
            asked.tools,
            marking=asked.marking,
            opened=asked.opened,
            answers=asked.answer is not None,
        )
        return self._differences.feed(self.reply)

    def finish(self, calls: ToolCalls) -> list[Event]:
        """The events that are left when the reply is complete and judged."""
        return self._differences.finish(calls)


class Differences:
    """Turns a growing reply into events: `feed` takes what is read so far, `finish` the whole."""

    def __init__(self) -> None:
        self._text = 0
        self._reasoning: list[int] = []
        self._raw: list[int] = []

    def feed(self, reply: Reply) -> list[Event]:
        """The events between the last reply and this one."""
        events: list[Event] = []
        for index, block in enumerate(reply.reasoning):
            if index == len(self._reasoning):
                self._reasoning.append(0)
            if len(block) > self._reasoning[index]:
                events.append(ReasoningDelta(block[self._reasoning[index] :]))
                self._reasoning[index] = len(block)
        if len(reply.text) > self._text:
            events.append(TextDelta(reply.text[self._text :]))
            self._text = len(reply.text)
        for index, call in enumerate(reply.calls):
            if index == len(self._raw):
                self._raw.append(0)
                events.append(CallStarted(index, call.name))
            if len(call.raw) > self._raw[index]:
                events.append(ArgumentsDelta(index, call.raw[self._raw[index] :]))
                self._raw[index] = len(call.raw)
        return events

    def finish(self, calls: ToolCalls) -> list[Event]:
        """The events that are left when the reply is complete and judged."""
        events = self.feed(Reply(calls.text, [], []))
        for index, call in enumerate(calls):
            rest = call.raw[self._raw[index] :]
            if rest:
                events.append(ArgumentsDelta(index, rest))
            events.append(CallFinished(index, call))
        return [*events, Finished(calls)]


def _events(request: Request) -> Iterator[Event]:
    found: queue.SimpleQueue[Event | BaseException] = queue.SimpleQueue()
    stopped = threading.Event()
    growing = GrowingReply(request)

    def on_token(token: int, data: bytes) -> None:
        if stopped.is_set():
            raise _Stopped
        growing.take(token, data)
        for event in growing.read():
            found.put(event)

    def work() -> None:
        try:
            for event in growing.finish(request.read(request.decode(on_token))):
                found.put(event)
        except BaseException as error:
            found.put(error)

    worker = threading.Thread(target=work, name="structspec-stream", daemon=True)
    worker.start()
    try:
        while True:
            event = found.get()
            if isinstance(event, BaseException):
                raise event
            yield event
            if isinstance(event, Finished):
                return
    finally:
        stopped.set()
        worker.join()
