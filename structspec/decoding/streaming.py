"""`Stream`: a text as it is written, round by round.

Owns the delivery: every committed token is told exactly once and in order, text ends at character
boundaries (the bytes of an unfinished character wait for the rest), and the partial value holds
finished members only. The decoding is `loop`'s, and runs while the stream is asked for more: a
consumer that stops early stops the model.

Invariants
- the deltas of all events joined are the text of the output, and their tokens its tokens;
- a stream that is closed or fails keeps what it has told: `output` says it, and an error carries
  it as `partial_output`.

Cost: that of the loop.

Sibling: `structspec.stream` makes one from a prompt and a type.

Example::

    with Stream(model, job, draft="auto", partial=True) as events:
        for event in events:
            print(event.text, end="")
"""

from __future__ import annotations

import codecs
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

    @property
    def text(self) -> str:
        """All characters told so far."""
        return self._text

    @property
    def output(self) -> Output:
        """The output so far; its reason is "error" until it is complete."""
        if self._last is None:
            found = self._loop.partial_outputs()[0]
            if found is None:
                raise RuntimeError("the stream was closed before its first event")
            if isinstance(found, Exception):
                return found.partial_output  # type: ignore[attr-defined]
            return found
        return self._last

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
        """Stop here; `output` keeps what was written."""
        if not self._done:
            self._done = True
            found = self._loop.partial_outputs()[0]
            self._last = found if isinstance(found, Output) else None
            self._loop.close()

    def __next__(self) -> StreamEvent:
        if self._done:
            raise StopIteration
        more = True
        while more and not self._new:
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
