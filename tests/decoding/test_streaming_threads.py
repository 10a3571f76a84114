"""Streams read by worker threads: closed in the middle of a round, cancelled, timed out."""

from __future__ import annotations

import asyncio
import gc
import json
import threading
import weakref
from collections.abc import Iterator
from typing import Annotated, Any

import pytest
from pydantic import Field

import structspec
from structspec.decoding.progress import Job
from structspec.decoding.streaming import Stream, StreamEvent
from structspec.forward.sampling import Sampling
from structspec.models import Model

SCHEMA = {
    "type": "object",
    "properties": {"a": {"type": "string", "pattern": "^[a-z]*$", "maxLength": 30}},
    "required": ["a"],
    "additionalProperties": False,
}
PROMPT = "a prompt that is long enough to be kept for the next request"
OPTIONS: dict[str, Any] = {"chat": False, "max_tokens": 50, "temperature": 1.5, "seed": 3}


class Gate:
    """Holds up one forward of a model."""

    def __init__(self, model: Model, after: int) -> None:
        self.entered, self.open = threading.Event(), threading.Event()
        self.forwards, self._after = 0, after
        self._handle = model.model.register_forward_hook(self._wait)

    def _wait(self, *_: Any) -> None:
        self.forwards += 1
        if self.forwards == self._after:
            self.entered.set()
            assert self.open.wait(30)

    def remove(self) -> None:
        self.open.set()
        self._handle.remove()


@pytest.fixture
def model(make_llama: Any, byte_tokenizer: Any) -> Model:
    """A model of its own, which keeps what it reads."""
    network = make_llama(len(byte_tokenizer), window=256, seed=1)
    made = Model.wrap(network, byte_tokenizer, name="bytes")
    made.prefix_cache.max_bytes = 1 << 20
    return made


@pytest.fixture
def gate(model: Model) -> Iterator[Gate]:
    """Holds up the sixth forward."""
    made = Gate(model, 6)
    yield made
    made.remove()


def start(model: Model) -> Stream:
    return structspec.stream(model, PROMPT, SCHEMA, draft=None, **OPTIONS)


def usable(model: Model) -> None:
    """What it writes now is what it writes without a memory."""
    told = structspec.generate(model, PROMPT, SCHEMA, draft=None, **OPTIONS)
    model.prefix_cache.clear()
    assert structspec.generate(model, PROMPT, SCHEMA, draft=None, **OPTIONS).text == told.text
    assert json.loads(told.text)


def test_a_stream_is_closed_while_another_thread_reads(model: Model, gate: Gate) -> None:
    stream = start(model)
    told: list[StreamEvent] = []
    failed: list[BaseException] = []

    def read() -> None:
        try:
            told.extend(stream)
        except BaseException as error:
            failed.append(error)

    reader = threading.Thread(target=read)
    reader.start()
    assert gate.entered.wait(30)
    stream.close()  # returns though the forward is held up
    assert gate.forwards == 6 and reader.is_alive()
    gate.open.set()
    reader.join(30)
    assert not reader.is_alive() and not failed
    assert gate.forwards == 6 and list(stream) == []
    assert stream.output.finish_reason == "error"
    assert stream.output.tokens == tuple(t for event in told for t in event.tokens)
    assert stream.output.text.decode() == stream.text == "".join(event.text for event in told)
    assert len(model.prefix_cache) == 1  # its row was given back, once
    usable(model)


def test_two_threads_share_a_stream(model: Model) -> None:
    whole = structspec.generate(model, PROMPT, SCHEMA, draft=None, **OPTIONS)
    stream = start(model)
    told: list[StreamEvent] = []
    threads = [threading.Thread(target=lambda: told.extend(stream)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    tokens = sorted(t for event in told for t in event.tokens)
    assert tokens == sorted(whole.tokens) and stream.text == whole.text


def test_a_cancelled_task_ends_its_stream(model: Model, gate: Gate) -> None:
    streams: list[Stream] = []

    async def read() -> None:
        with start(model) as stream:
            streams.append(stream)
            while await asyncio.to_thread(next, stream, None) is not None:
                pass

    async def main() -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(None) as limit:
                task = asyncio.create_task(read())
                while not gate.entered.is_set():
                    await asyncio.sleep(0.01)
                limit.reschedule(0)
                await task
        assert gate.forwards == 6
        gate.open.set()

    asyncio.run(main())  # waits for the worker thread
    stream = streams.pop()
    assert gate.forwards == 6
    assert len(stream.output.tokens) >= 5 and stream.output.finish_reason == "error"
    loop = weakref.ref(stream._loop)
    del stream
    gc.collect()
    assert loop() is None
    usable(model)


def test_a_decorated_coroutine_that_is_cancelled_stops_the_model(model: Model, gate: Gate) -> None:
    told: list[int] = []
    options = {**OPTIONS, "draft": None, "on_token": lambda token, data: told.append(token)}

    @structspec.structured(model, **options)
    async def name(text: str) -> Annotated[str, Field(pattern="^[a-z]{20,40}$")]:
        """{{ text }}"""

    async def main() -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(None) as limit:
                task = asyncio.create_task(name(PROMPT))
                while not gate.entered.is_set():
                    await asyncio.sleep(0.01)
                limit.reschedule(0)
                await task
        gate.open.set()

    asyncio.run(main())  # waits for the worker thread
    assert gate.forwards == 6 and 5 <= len(told) <= 6
    assert len(asyncio.run(name(PROMPT))) >= 20
    usable(model)


def test_what_follows_a_stream_may_close_it(model: Model) -> None:
    ids = model.tokenizer.encode(PROMPT)
    constraint = structspec.compile(SCHEMA, whitespace="compact").bind(model.vocab)
    told: list[int] = []

    def on_token(token: int, data: bytes) -> None:
        told.append(token)
        if len(told) == 12:
            assert stream.output.tokens == tuple(told)
            with pytest.raises(ValueError, match="already"):
                next(stream)
            stream.close()

    job = Job(ids, constraint, Sampling(1.5), 50, seed=3, on_token=on_token)
    stream = Stream(model, job, draft=None)
    events = list(stream)
    assert tuple(told) == stream.output.tokens == tuple(t for e in events for t in e.tokens)
    assert stream.output.finish_reason == "error" and len(told) < 30
    usable(model)
