"""`Answering`: a plan under way: its jobs in the engine, its events in an event loop.

Owns the way from the engine's thread to a coroutine, and who stops what: leaving the context gives
up the jobs that have not ended, so a client that goes away stops its own request.

Invariants
- events of one answer come in order; answers of one request come as they are written, mixed;
- an error of any answer ends the request.

Sibling: `engine`, which knows nothing of event loops.

Example::

    async with Answering(engine, plan) as answering:
        async for gain in answering:
            ...
"""

from __future__ import annotations

import asyncio
import functools
import time
from collections.abc import AsyncIterator
from types import TracebackType

from structspec.decoding.output import Output
from structspec.server.bodies import Gain
from structspec.server.engine import Ended, Engine, Event, Ticket, Written
from structspec.server.plan import Plan

__all__ = ["Answering"]


class Answering:
    """See the module. `first_token`: seconds until the first token of any answer, or None.

    `seconds`: since the jobs were handed over, until the context was left.
    """

    def __init__(self, engine: Engine, plan: Plan) -> None:
        self.first_token: float | None = None
        self.seconds = 0.0
        self._engine = engine
        self._plan = plan
        self._tickets: dict[int, Ticket] = {}
        self._events: asyncio.Queue[tuple[int, Event]] = asyncio.Queue()
        self._began = time.perf_counter()

    async def __aenter__(self) -> Answering:
        """Hand the jobs to the engine. Raises `EngineFull` with none of them left in it."""
        loop = asyncio.get_running_loop()

        def told(index: int, event: Event) -> None:
            loop.call_soon_threadsafe(self._events.put_nowait, (index, event))

        try:
            for index, job in enumerate(self._plan.jobs):
                self._tickets[index] = self._engine.submit(job, functools.partial(told, index))
        except BaseException:
            self._stop()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.seconds = time.perf_counter() - self._began
        self._stop()

    async def __aiter__(self) -> AsyncIterator[Gain]:
        """What the answers gain, until all have ended."""
        while self._tickets:
            arrived = [await self._events.get()]
            while not self._events.empty():
                arrived.append(self._events.get_nowait())
            if self.first_token is None:
                self.first_token = time.perf_counter() - self._began
            written: dict[int, list[Written]] = {}
            ended: dict[int, Output] = {}
            for index, event in arrived:
                if isinstance(event, Written):
                    written.setdefault(index, []).append(event)
                elif isinstance(event, Ended) and index in self._tickets:
                    del self._tickets[index]
                    if isinstance(event.outcome, Exception):
                        raise event.outcome
                    ended[index] = event.outcome
            for index in sorted({*written, *ended}):
                reader = self._plan.readers[index]
                tokens = written.get(index, [])
                pieces = reader.feed(tokens) if tokens else []
                if index in ended:
                    pieces += reader.finish(ended[index])
                yield Gain(index, pieces, tokens, ended.get(index))

    def _stop(self) -> None:
        for ticket in self._tickets.values():
            self._engine.cancel(ticket)
        self._tickets = {}
