"""`Engine`: one loop on one thread that decodes the requests of all clients together.

Owns the thread. Requests come from any thread and join the batch at the next round; what they write
is told on the engine's thread, token by token, and then how they ended.

Invariants
- what is told of a request: `Written` in order, then one `Ended`, and nothing after `cancel`
  returns but what was already being told;
- a request that fails takes no other with it. An error of the model itself ends every request
  that was under way; the engine goes on with the next one;
- at most `waiting` requests wait for a place, further ones are refused with `EngineFull`.

Cost: that of `decoding.loop`; the thread sleeps while there is nothing to do.

Sibling: `decoding.loop.decode_many` decodes a fixed list on the caller's thread.

Example::

    with Engine(model) as engine:
        ticket = engine.submit(Job(ids, constraint, max_tokens=50), print)
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from types import TracebackType
from typing import TypeAlias

from structspec.decoding.judge import verifier_name
from structspec.decoding.loop import Loop
from structspec.decoding.output import Alternatives, Output
from structspec.decoding.progress import Job
from structspec.drafting import DraftSource, draft_source
from structspec.errors import ModelError, StructspecError
from structspec.forward.sampling import Sampling
from structspec.models import Model

__all__ = ["Ended", "Engine", "EngineFull", "Event", "Ticket", "Written"]

log = logging.getLogger("structspec")


@dataclass(frozen=True)
class Written:
    """One more token, and its bytes (none for a special token).

    logprob, top: as `Output` keeps them, if the job asks for them.
    """

    token: int
    data: bytes
    logprob: float | None = None
    top: Alternatives = ()


@dataclass(frozen=True)
class Ended:
    """How a request ended: its output, or why it failed."""

    outcome: Output | Exception


Event: TypeAlias = Written | Ended


class EngineFull(StructspecError):
    """Too many requests wait; `limit` says how many may."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        super().__init__(f"{limit} requests wait already; try again later")


@dataclass(eq=False)
class Ticket:
    """A request in the engine."""

    job: Job
    told: Callable[[Event], object]
    index: int = -1  # in the loop, once it is there


class Engine:
    """See the module.

    model: the target. draft, draft_count, verifier, batch_size: as for `structspec.generate`; they
    hold for all requests. waiting: requests that may wait for a place in the batch.

    Raises what `Loop` raises for a draft or verifier that cannot be used with the model.
    """

    def __init__(
        self,
        model: Model,
        *,
        draft: DraftSource | str | None = "auto",
        draft_count: int = 1,
        verifier: str = "block",
        batch_size: int = 8,
        waiting: int = 256,
    ) -> None:
        self.model = model
        self.waiting_limit = waiting
        verifier_name(verifier, Sampling(), draft_count)  # a wrong name shows now
        self._draft, self._draft_count = draft_source(draft), draft_count
        self._verifier, self._batch_size = verifier, batch_size
        self._loop = self._new_loop()
        self._changed = threading.Condition()
        self._arriving: deque[Ticket] = deque()
        self._leaving: deque[Ticket] = deque()
        self._inside: dict[int, Ticket] = {}
        self._closing = False
        self._thread: threading.Thread | None = None  # begins with the first request

    # -- from any thread -------------------------------------------------------------------------

    def submit(self, job: Job, told: Callable[[Event], object]) -> Ticket:
        """Decode a job; `told` is called on the engine's thread and must be quick.

        Raises `EngineFull`, and RuntimeError after `close`.
        """
        ticket = Ticket(job, told)
        with self._changed:
            if self._closing:
                raise RuntimeError("the engine is closed")
            if len(self._arriving) + len(self._inside) >= self.capacity:
                raise EngineFull(self.waiting_limit)
            self._arriving.append(ticket)
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._work, name="structspec-engine", daemon=True
                )
                self._thread.start()
            self._changed.notify()
        return ticket

    def cancel(self, ticket: Ticket) -> None:
        """Let a request go at the next round; nothing happens if it has ended."""
        with self._changed:
            self._leaving.append(ticket)
            self._changed.notify()

    @property
    def capacity(self) -> int:
        """Requests that may be in the engine at once, those that wait included."""
        return self._batch_size + self.waiting_limit

    @property
    def running(self) -> int:
        """Requests that are in the batch."""
        return min(len(self._inside), self._batch_size)

    @property
    def waiting(self) -> int:
        """Requests that wait for a place in the batch."""
        return len(self._arriving) + max(0, len(self._inside) - self._batch_size)

    def stop(self) -> None:
        """Stop after the round that is under way; what was not finished ends with an error."""
        with self._changed:
            self._closing = True
            self._changed.notify()

    def close(self) -> None:
        """`stop`, and wait for it."""
        self.stop()
        if self._thread is not None:
            self._thread.join()

    def __enter__(self) -> Engine:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    # -- the engine's thread ---------------------------------------------------------------------

    def _new_loop(self) -> Loop:
        return Loop(
            self.model,
            [],
            draft=self._draft,
            draft_count=self._draft_count,
            verifier=self._verifier,
            batch_size=self._batch_size,
        )

    def _work(self) -> None:
        while True:
            try:
                if not self._take_orders():
                    break
                self._round()
            except Exception as error:
                # nobody knows what the model's cache holds now
                log.exception("decoding failed; all requests under way end")
                self._abandon(ModelError(f"the model failed: {error}"))
        self._abandon(ModelError("the server is shutting down"))

    def _round(self) -> None:
        self._loop.step()
        for index, ticket in list(self._inside.items()):
            outcome = self._loop.outcomes[index]
            if outcome is not None:
                self._loop.outcomes[index] = None  # told: need not be kept
                del self._inside[index]
                self._tell(ticket, Ended(outcome))
        if not self._inside:
            self._loop = self._new_loop()  # its list of outcomes begins anew

    def _take_orders(self) -> bool:
        """Let requests in and out; sleep while there are none. False: the engine is closed."""
        with self._changed:
            while not (self._closing or self._inside or self._arriving):
                self._leaving.clear()
                self._changed.wait()
            if self._closing:
                return False
            arriving, self._arriving = self._arriving, deque()
            leaving, self._leaving = set(self._leaving), deque()
        for ticket in arriving:
            if ticket not in leaving:
                self._let_in(ticket)
        for ticket in leaving:
            # it may have ended, and its number be another's by now
            if self._inside.get(ticket.index) is ticket:
                del self._inside[ticket.index]
                self._loop.give_up(ticket.index)
        return True

    def _let_in(self, ticket: Ticket) -> None:
        likely: tuple[float | None, Alternatives] = (None, ())

        def on_logprobs(logprob: float, top: Alternatives) -> None:
            nonlocal likely
            likely = logprob, top

        def on_token(token: int, data: bytes) -> None:
            self._tell(ticket, Written(token, data, *likely))

        asked = ticket.job.logprobs or ticket.job.top_logprobs
        told = replace(ticket.job, on_token=on_token, on_logprobs=on_logprobs if asked else None)
        try:
            ticket.index = self._loop.add(told)
        except Exception as error:  # arguments that are no numbers
            self._tell(ticket, Ended(error))
        else:
            self._inside[ticket.index] = ticket

    def _tell(self, ticket: Ticket, event: Event) -> None:
        try:
            ticket.told(event)
        except Exception as error:  # a listener that fails must not stop the others' decoding
            log.info("a request is given up, as nobody listens: %s", error)
            self.cancel(ticket)

    def _abandon(self, error: ModelError) -> None:
        """End all requests that were let in with an error; after `close` those that wait, too."""
        with self._changed:
            arriving = list(self._arriving) if self._closing else []
        tickets = [*self._inside.values(), *arriving]
        self._inside = {}
        with contextlib.suppress(Exception):  # whatever broke the round may break this
            self._loop.close()
        self._loop = self._new_loop()
        for ticket in tickets:
            self._tell(ticket, Ended(error))
