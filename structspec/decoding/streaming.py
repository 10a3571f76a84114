"""`Stream`: a text as it is written, round by round.

Owns the delivery: every committed token is told exactly once and in order, text ends at character
boundaries (the bytes of an unfinished character wait for the rest), and the partial value holds
finished members only. The decoding is `loop`'s, and runs while the stream is asked for more: a
consumer that stops early stops the model.

Invariants
- the deltas of all events joined are the text of the output, and their tokens its tokens;
- a stream that is closed or fails keeps what it has told: `output` says it, and an error carries
  it as `partial_output`;
- one round at a time, whichever threads ask. `close` never waits for a round, so that an event
  loop may call it when a task that reads in a worker thread is cancelled: a round that is under
  way is the last one, and the thread that runs it gives up the rest.

Cost: that of the loop.

Sibling: `structspec.stream` makes one from a prompt and a type.

Example::

    with Stream(model, job, draft="auto", partial=True) as events:
        for event in events:
            print(event.text, end="")
"""

from __future__ import annotations

import codecs
import contextlib
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any

from structspec.decoding.loop import Loop
from structspec.decoding.output import Output
from structspec.decoding.partial import partial_value
from structspec.decoding.progress import Job
from structspec.models import Model

__all__ = ["Stream", "StreamEvent"]


@dataclass(frozen=True)
class StreamEvent:
    """What one round added.

    text: the new characters. tokens: the new ids; their last bytes may come with the next event if
    they end inside a character. value: the finished part of a JSON value, if it was asked for, the
    whole one in the last event. result: in the last event only, what the text became.
    """

    text: str
    tokens: tuple[int, ...]
    value: Any = None
    result: Any = None


class Stream(Iterator[StreamEvent]):
    """Events of one request; see the module. `finish` makes the last event's result.

    Raises the errors of `decode`: those that are known before the first token at once, others
    from `next`.
    """

    def __init__(
        self,
        model: Model,
        job: Job,
        *,
        partial: bool = False,
        finish: Callable[[Output], Any] | None = None,
        **options: Any,
    ) -> None:
        self._new: list[tuple[int, bytes]] = []
        self._told = job.on_token
        self._loop = Loop(model, [replace(job, on_token=self._take)], **options)
        failed = self._loop.outcomes[0]
        if isinstance(failed, Exception):
            raise failed
        self._partial = partial
        self._finish = finish
        self._decoder = codecs.getincrementaldecoder("utf-8")()
        self._text = ""
        self._done = False
        self._last: Output | None = None
        self._closing = False
        self._lock = threading.Lock()  # held by whoever runs a round, or reads what rounds write
        self._holder: int | None = None  # the thread that runs a round

    @property
    def text(self) -> str:
        """All characters told so far."""
        return self._text

    @property
    def output(self) -> Output:
        """The output so far; its reason is "error" until it is complete.

        Waits for the end of a round that another thread runs.
        """
        alone = self._holder == threading.get_ident()  # asked by `on_token`
        with contextlib.nullcontext() if alone else self._lock:
            if self._last is not None:
                return self._last
            found = self._loop.partial_outputs()[0]
            if found is None:
                raise RuntimeError("the stream was closed before its first event")
            if isinstance(found, Exception):
                return found.partial_output  # type: ignore[attr-defined]
            return found

    def __enter__(self) -> Stream:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Stop here; `output` keeps what was written.

        Returns at once: a round that another thread runs is the last one.
        """
        self._closing = True
        self._give_up()

    def _give_up(self) -> None:
        """Close the loop, unless a round is under way: whoever runs it does so afterwards."""
        if not self._lock.acquire(blocking=False):
            return
        try:
            if not self._done:
                self._done = True
                found = self._loop.partial_outputs()[0]
                self._last = found if isinstance(found, Output) else None
                self._loop.close()
        finally:
            self._lock.release()

    def __next__(self) -> StreamEvent:
        if self._holder == threading.get_ident():
            raise ValueError("the stream is writing already; on_token cannot ask it for more")
        try:
            with self._lock:
                self._holder = threading.get_ident()
                try:
                    return self._next()
                finally:
                    self._holder = None
        finally:
            if self._closing:
                self._give_up()

    def _next(self) -> StreamEvent:
        if self._done or self._closing:
            raise StopIteration
        more = True
        while more and not self._new and not self._closing:
            try:
                more = self._loop.step()
            except BaseException as error:
                self._done = True
                partial = self._loop.partial_outputs()[0]
                self._last = partial if isinstance(partial, Output) else None
                error.partial_output = partial  # type: ignore[attr-defined]
                raise
        outcome = self._loop.outcomes[0]
        if isinstance(outcome, Exception):
            if self._new:
                return self._event(None)  # tell what was written, then why it stopped
            self._done = True
            raise outcome
        if outcome is None and not self._new:
            raise StopIteration  # closed during a round that committed nothing
        return self._event(outcome)

    def _event(self, outcome: Output | None) -> StreamEvent:
        tokens = tuple(token for token, _ in self._new)
        data = b"".join(data for _, data in self._new)
        self._new = []
        text = self._decoder.decode(data, final=outcome is not None)
        self._text += text
        value = partial_value(self._text) if self._partial else None
        if outcome is None:
            return StreamEvent(text, tokens, value)
        self._done = True
        self._last = outcome
        result = outcome if self._finish is None else self._finish(outcome)
        if self._partial:
            value = getattr(result, "value", value)
        return StreamEvent(text, tokens, value, result)

    def _take(self, token: int, data: bytes) -> None:
        self._new.append((token, data))
        if self._told is not None:
            self._told(token, data)
