"""Forked processes work, whatever other threads were doing when they were forked."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable

import pytest

import structspec
from structspec import locks

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")

SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "string"}}}
VOCAB = structspec.Vocabulary([*(bytes((b,)) for b in range(256)), None], [256])
TEXT = b'{"a": 12, "b": "some'


def forked(work: Callable[[], None], seconds: float = 30) -> str:
    """What became of `work` in a forked process: "done", "failed" or "hangs"."""
    child = os.fork()
    if not child:
        code = 1
        try:
            work()
            code = 7
        finally:
            os._exit(code)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        found, status = os.waitpid(child, os.WNOHANG)
        if found:
            return "done" if os.waitstatus_to_exitcode(status) == 7 else "failed"
        time.sleep(0.01)
    os.kill(child, 9)
    os.waitpid(child, 0)
    return "hangs"


def write(constraint: structspec.Constraint) -> None:
    state = constraint.start
    for byte in TEXT:
        constraint.mask(state)
        state = constraint.advance(state, byte)


def test_forks_while_threads_mask_bind_and_compile() -> None:
    grammar = structspec.compile(SCHEMA)
    constraint, cache = grammar.bind(VOCAB), structspec.ConstraintCache()
    stop = threading.Event()

    def work(number: int) -> None:
        at = 0
        while not stop.is_set():
            at += 1
            write(constraint)
            write(constraint.with_cache(constraint.new_cache()))
            cache.get({"enum": [number, at]}, VOCAB)

    def child() -> None:
        write(constraint)
        write(cache.get(SCHEMA, VOCAB))
        assert structspec.compile({"const": "x"}).accepts('"x"')

    threads = [threading.Thread(target=work, args=(n,), daemon=True) for n in range(3)]
    for thread in threads:
        thread.start()
    try:
        assert [forked(child) for _ in range(4)] == ["done"] * 4
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    write(constraint)


def test_a_lock_that_a_thread_holds_is_waited_for() -> None:
    lock, held = locks.lock(), threading.Event()

    def hold() -> None:
        with lock:
            held.set()
            time.sleep(0.3)

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait()

    def child() -> None:
        assert lock.acquire(timeout=5)

    assert forked(child) == "done"
    thread.join()
    assert lock.acquire(blocking=False)


def test_a_lock_that_the_forking_thread_holds_stays_its_own() -> None:
    lock = locks.rlock()

    def child() -> None:
        lock.release()
        assert lock.acquire(blocking=False)

    with lock:
        assert forked(child) == "done"


def test_a_lock_that_is_never_let_go_does_not_stop_a_fork(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(locks, "_PATIENCE", 0.2)
    lock, held, stop = locks.lock(), threading.Event(), threading.Event()

    def hold() -> None:
        with lock:
            held.set()
            stop.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait()
    try:
        assert forked(lambda: None) == "done"
    finally:
        stop.set()
        thread.join()
    assert "forked while another thread" in caplog.text


def test_locks_that_are_gone_are_forgotten() -> None:
    before = len(locks._known)
    lock = locks.lock()
    assert len(locks._known) == before + 1
    del lock
    assert len(locks._known) == before


def test_a_compile_of_another_thread_is_not_waited_for_in_a_fork(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It goes on in the parent only."""
    from structspec import constraint_cache

    parent, begun, go = os.getpid(), threading.Event(), threading.Event()
    compile_grammar = constraint_cache.compile_grammar

    def slow(source: object, **options: object) -> structspec.Grammar:
        if os.getpid() == parent:
            begun.set()
            go.wait()
        return compile_grammar(source, **options)

    monkeypatch.setattr(constraint_cache, "compile_grammar", slow)
    cache = structspec.ConstraintCache()
    thread = threading.Thread(target=cache.get, args=(SCHEMA, VOCAB))
    thread.start()
    begun.wait()

    def child() -> None:
        write(cache.get(SCHEMA, VOCAB))

    try:
        assert forked(child) == "done"
    finally:
        go.set()
        thread.join()
    assert len(cache) == 1


def test_an_interrupted_compile_is_no_answer_for_those_who_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from structspec import constraint_cache

    begun, go = threading.Event(), threading.Event()
    compile_grammar = constraint_cache.compile_grammar

    def interrupted(source: object, **options: object) -> structspec.Grammar:
        monkeypatch.setattr(constraint_cache, "compile_grammar", compile_grammar)
        begun.set()
        go.wait()
        raise KeyboardInterrupt

    monkeypatch.setattr(constraint_cache, "compile_grammar", interrupted)
    cache = structspec.ConstraintCache()
    found: list[object] = []

    def first() -> None:
        with pytest.raises(KeyboardInterrupt):
            cache.get(SCHEMA, VOCAB)

    def second() -> None:
        try:
            found.append(cache.get(SCHEMA, VOCAB))
        except BaseException as error:
            found.append(error)

    threads = [threading.Thread(target=first), threading.Thread(target=second)]
    threads[0].start()
    begun.wait()
    threads[1].start()
    time.sleep(0.1)  # it waits now
    go.set()
    for thread in threads:
        thread.join()
    assert isinstance(found[0], structspec.Constraint)
