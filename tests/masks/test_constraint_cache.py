"""The cache for servers: one compile per key, least recently used out first, safe for threads."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

import structspec
from structspec import constraint_cache
from structspec.vocab import Vocabulary

VOCAB = Vocabulary([*(bytes((b,)) for b in range(256)), None], [256])


def test_the_same_schema_options_and_vocabulary_give_the_same_constraint() -> None:
    cache = structspec.ConstraintCache()
    first = cache.get({"type": "integer"}, VOCAB)
    assert cache.get('{"type":"integer"}', VOCAB) is first
    assert cache.get({"type": "integer"}, VOCAB, whitespace="compact") is not first
    other = Vocabulary([bytes((b,)) for b in range(256)], [])
    assert cache.get({"type": "integer"}, other) is not first
    assert (cache.hits, cache.misses, len(cache)) == (1, 3, 3)


def test_the_order_of_keys_counts_since_it_is_the_declared_order() -> None:
    cache = structspec.ConstraintCache()
    one = cache.get({"properties": {"a": {}, "b": {}}}, VOCAB)
    two = cache.get({"properties": {"b": {}, "a": {}}}, VOCAB)
    assert one is not two


def test_the_least_recently_used_goes_first_and_stays_usable() -> None:
    size = structspec.compile({"const": 0}).bind(VOCAB).n_bytes
    cache = structspec.ConstraintCache(max_bytes=3 * size + size // 2)
    kept = [cache.get({"const": i}, VOCAB) for i in range(3)]
    cache.get({"const": 0}, VOCAB)
    cache.get({"const": 3}, VOCAB)
    assert cache.get({"const": 0}, VOCAB) is kept[0]
    assert cache.get({"const": 1}, VOCAB) is not kept[1]
    assert cache.evicted >= 2 and cache.n_bytes <= cache.max_bytes
    assert kept[1].allowed(kept[1].start).size


def test_memory_of_evicted_constraints_is_given_back_once_for_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[int] = []
    size = structspec.compile({"const": 0}).bind(VOCAB).n_bytes
    cache = structspec.ConstraintCache(max_bytes=8 * size + size // 2)
    monkeypatch.setattr(constraint_cache, "give_back", lambda: asked.append(cache.evicted))
    for i in range(40):
        cache.get({"const": i}, VOCAB)
    assert cache.evicted >= 30
    assert 0 < len(asked) <= cache.evicted // 4  # each time that half of the cache has gone


def test_threads_that_want_the_same_key_wait_for_one_compile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls: list[Any] = []

    def slow(source: Any, **options: Any) -> Any:
        calls.append(source)
        time.sleep(0.05)
        return structspec.compile(source, **options)

    monkeypatch.setattr(constraint_cache, "compile_grammar", slow)
    cache, found = structspec.ConstraintCache(), []
    threads = [
        threading.Thread(target=lambda: found.append(cache.get({"type": "null"}, VOCAB)))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(calls) == 1 and len(found) == 4 and len(set(map(id, found))) == 1


def test_errors_reach_everyone_who_waits_and_are_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    started = threading.Event()

    def failing(source: Any, **options: Any) -> Any:
        started.set()
        time.sleep(0.05)
        return structspec.compile({"type": "nothing"})

    monkeypatch.setattr(constraint_cache, "compile_grammar", failing)
    cache, errors = structspec.ConstraintCache(), []

    def ask() -> None:
        try:
            cache.get({"type": "null"}, VOCAB)
        except structspec.SchemaError as error:
            errors.append(error)

    threads = [threading.Thread(target=ask) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(errors) == 3 and len(cache) == 0
    monkeypatch.undo()
    assert cache.get({"type": "null"}, VOCAB) is not None
