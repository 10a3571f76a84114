"""The engine: requests that come and go give what they give alone."""

from __future__ import annotations

import queue
import threading
import time
from typing import Any

import pytest

import structspec
from structspec.decoding.loop import Loop, decode
from structspec.decoding.output import Output
from structspec.decoding.progress import Job
from structspec.errors import DraftError, ModelError, TokenBudgetError
from structspec.forward.sampling import Sampling
from structspec.server.engine import Ended, Engine, EngineFull, Written


class Listener:
    """What an engine tells of one request."""

    def __init__(self) -> None:
        self.events: queue.Queue[Any] = queue.Queue()

    def __call__(self, event: Any) -> None:
        self.events.put(event)

    def end(self) -> tuple[list[Written], Any]:
        """All tokens, and the outcome."""
        written = []
        while True:
            event = self.events.get(timeout=60)
            if isinstance(event, Ended):
                assert self.events.empty()
                return written, event.outcome
            written.append(event)


@pytest.fixture(scope="module")
def constraint(server_model):
    grammar = structspec.compile("[a-z ]{20,40}", syntax="regex")
    return grammar.bind(server_model.vocab)


def make_job(constraint, seed, **settings):
    ids = [5 + seed % 200, 7, 11]
    return Job(ids, constraint, Sampling(temperature=1.3), seed=seed, **settings)


def test_requests_that_join_a_running_batch_are_answered_as_alone(server_model, constraint):
    jobs = [make_job(constraint, seed) for seed in range(12)]
    alone = [
        decode(
            server_model,
            job.prompt_ids,
            constraint,
            sampling=job.sampling,
            seed=job.seed,
            draft="auto",
        )
        for job in jobs
    ]
    with Engine(server_model, batch_size=3) as engine:
        listeners = [Listener() for _ in jobs]
        for job, listener in zip(jobs[:5], listeners, strict=False):
            engine.submit(job, listener)
        for number, (job, listener) in enumerate(zip(jobs[5:], listeners[5:], strict=True)):
            # not before an earlier one has begun to write
            while number < 3 and not listeners[number].events.qsize():
                time.sleep(0.001)
            engine.submit(job, listener)
        for expected, listener in zip(alone, listeners, strict=True):
            written, outcome = listener.end()
            assert outcome == expected
            assert tuple(event.token for event in written) == expected.tokens
            assert b"".join(event.data for event in written) == expected.text
        assert engine.running == engine.waiting == 0


def test_a_request_that_is_cancelled_ends_nobody_elses(server_model, constraint):
    with Engine(server_model, batch_size=2) as engine:
        first, second, third = Listener(), Listener(), Listener()
        ticket = engine.submit(make_job(constraint, 1), first)
        engine.submit(make_job(constraint, 2), second)
        last = engine.submit(make_job(constraint, 3), third)
        engine.cancel(last)
        first.events.get(timeout=60)
        engine.cancel(ticket)
        assert isinstance(second.end()[1], Output)
        again = Listener()
        engine.submit(make_job(constraint, 4), again)
        assert isinstance(again.end()[1], Output)
        assert third.events.empty()
        assert not any(isinstance(event, Ended) for event in first.events.queue)
        engine.cancel(ticket)  # again: nothing happens


def test_a_late_cancel_ends_no_other_request(server_model, constraint):
    """Numbers in the loop begin anew when it is idle: an old ticket must not name a new request."""
    with Engine(server_model) as engine:
        old, new = Listener(), Listener()
        ticket = engine.submit(make_job(constraint, 1), old)
        old.end()
        again = engine.submit(make_job(constraint, 2), new)
        engine.cancel(ticket)
        assert isinstance(new.end()[1], Output)
        assert again.index == ticket.index


def test_an_error_between_rounds_ends_requests_and_not_the_thread(
    server_model, constraint, monkeypatch
):
    with Engine(server_model) as engine:
        left, under_way, good = Listener(), Listener(), Listener()
        monkeypatch.setattr(Loop, "give_up", lambda *_: 1 / 0)
        ticket = engine.submit(make_job(constraint, 1), left)
        engine.submit(make_job(constraint, 3), under_way)
        left.events.get(timeout=60)
        engine.cancel(ticket)
        assert isinstance(under_way.end()[1], ModelError)
        engine.submit(make_job(constraint, 2), good)
        assert isinstance(good.end()[1], Output)


def test_a_model_that_fails_ends_all_requests_and_the_engine_goes_on(server_model, constraint):
    with Engine(server_model, batch_size=2) as engine:
        calls = []

        def fail(*_: Any) -> None:
            calls.append(1)
            if len(calls) == 3:
                raise RuntimeError("out of memory")

        handle = server_model.model.register_forward_hook(fail)
        try:
            listeners = [Listener() for _ in range(3)]
            for seed, listener in enumerate(listeners):
                engine.submit(make_job(constraint, seed), listener)
            outcomes = [listener.end()[1] for listener in listeners]
        finally:
            handle.remove()
        failed = [outcome for outcome in outcomes if isinstance(outcome, ModelError)]
        assert failed
        assert "out of memory" in str(failed[0])
        after = Listener()
        engine.submit(make_job(constraint, 9), after)
        assert isinstance(after.end()[1], Output)


def test_a_request_that_is_refused_takes_no_other_with_it(server_model, constraint):
    with Engine(server_model) as engine:
        small, odd, good = Listener(), Listener(), Listener()
        engine.submit(make_job(constraint, 1, max_tokens=2), small)
        engine.submit(make_job(constraint, 1, max_tokens="many"), odd)
        engine.submit(make_job(constraint, 1), good)
        assert isinstance(small.end()[1], TokenBudgetError)
        assert isinstance(odd.end()[1], TypeError)
        assert isinstance(good.end()[1], Output)


def test_a_listener_that_raises_gives_up_its_own_request(server_model, constraint):
    def broken(event: Any) -> None:
        raise RuntimeError("the event loop is closed")

    with Engine(server_model) as engine:
        engine.submit(make_job(constraint, 1), broken)
        good = Listener()
        engine.submit(make_job(constraint, 2), good)
        assert isinstance(good.end()[1], Output)


def test_too_many_requests_are_refused_with_the_limit(server_model, constraint):
    gate, entered = threading.Event(), threading.Event()

    def hold(*_: Any) -> None:
        entered.set()
        gate.wait(60)

    handle = server_model.model.register_forward_hook(hold)
    try:
        with Engine(server_model, batch_size=1, waiting=1) as engine:
            listeners = [Listener(), Listener()]
            engine.submit(make_job(constraint, 1), listeners[0])
            assert entered.wait(60)
            engine.submit(make_job(constraint, 2), listeners[1])
            assert (engine.running, engine.waiting) == (1, 1)
            with pytest.raises(EngineFull) as caught:
                engine.submit(make_job(constraint, 3), Listener())
            assert caught.value.limit == 1
            gate.set()
            assert all(isinstance(listener.end()[1], Output) for listener in listeners)
    finally:
        gate.set()
        handle.remove()


def test_closing_ends_what_is_under_way_and_what_waits(server_model, constraint):
    gate, entered = threading.Event(), threading.Event()

    def hold(*_: Any) -> None:
        entered.set()
        gate.wait(60)

    handle = server_model.model.register_forward_hook(hold)
    engine = Engine(server_model, batch_size=1)
    try:
        listeners = [Listener() for _ in range(3)]
        for seed, listener in enumerate(listeners):
            engine.submit(make_job(constraint, seed), listener)
        assert entered.wait(60)
        closing = threading.Thread(target=engine.close)
        closing.start()
        gate.set()
        closing.join(60)
        assert not closing.is_alive()
    finally:
        gate.set()
        handle.remove()
    for listener in listeners:
        assert isinstance(listener.end()[1], ModelError)
    with pytest.raises(RuntimeError, match="closed"):
        engine.submit(make_job(constraint, 1), Listener())


def test_a_wrong_draft_or_verifier_is_refused_before_the_thread_starts(server_model):
    for settings in ({"verifier": "blok"}, {"draft": "nothing-like-it"}, {"draft_count": 0}):
        with pytest.raises(DraftError):
            Engine(server_model, **settings)
