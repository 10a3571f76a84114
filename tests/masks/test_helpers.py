"""Rows of one call are the same on any number of threads, whoever else calls."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import structspec
from structspec import settings
from structspec.limits import Limits
from structspec.masks import helpers
from structspec.masks.constraint import Constraint
from structspec.vocab import Vocabulary

WORDS = ["name", "value", "true", "null", "0123", "ab", "x-", '": ', '", "', "é中", '"}', "}]"]
SCHEMAS: list[dict[str, Any]] = [
    {
        "type": "object",
        "properties": {"name": {"type": "string"}, "id": {"type": "integer", "minimum": 3}},
        "additionalProperties": {"type": "array", "items": {"type": "string", "maxLength": 7}},
    },
    {
        "type": "array",
        "items": {"anyOf": [{"type": "string", "pattern": "ab+[0-9]"}, {"$ref": "#"}]},
    },
    {
        "type": "object",
        "patternProperties": {"^x-": {"type": "boolean"}, "_id$": {"type": "number"}},
        "additionalProperties": False,
    },
]


def vocabulary() -> Vocabulary:
    rng = random.Random(5)
    tokens: list[bytes | None] = [bytes((b,)) for b in range(256)]
    tokens += [word.encode() for word in WORDS]
    while len(tokens) < 800:
        tokens.append(
            "".join(rng.choices('abcdefgh xyz-_é中{}[]":,', k=rng.randint(2, 5))).encode()
        )
    return Vocabulary([*tokens, None], [len(tokens)])


VOCAB = vocabulary()


@pytest.fixture(autouse=True)
def one_thread_afterwards(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(settings, "_set", {})
    monkeypatch.setattr(helpers, "_WORTH", 0.0)  # the rows of this small vocabulary are cheap
    yield


def tree(c: Constraint, seed: int, size: int = 40) -> list[int]:
    """States of a random draft tree, some of them twice, and the end."""
    rng = random.Random(seed)
    states = [c.start]
    while len(states) < size:
        state = rng.choice(states)
        allowed = [t for t in c.allowed(state).tolist() if t not in VOCAB.eos_ids]
        if allowed:
            states.append(c.advance(state, rng.choice(allowed)))
    return [*states, states[3], 0]


def rows(c: Constraint, states: list[int]) -> np.ndarray[Any, Any]:
    out = np.full((len(states), -(-VOCAB.size // 32)), 7, np.uint32)
    c.fill(states, out)
    return out


def twin(c: Constraint, seed: int) -> tuple[Constraint, list[int]]:
    """The constraint on a cache that has only been led to the states of a tree."""
    scout = c.with_cache(c.new_cache())
    tree(scout, seed)
    fresh = c.with_cache(c.new_cache())
    rng = random.Random(seed)
    states = [fresh.start]
    twins = [scout.start]
    while len(states) < 40:
        i = rng.randrange(len(states))
        allowed = [t for t in scout.allowed(twins[i]).tolist() if t not in VOCAB.eos_ids]
        if allowed:
            token = rng.choice(allowed)
            states.append(fresh.advance(states[i], token))
            twins.append(scout.advance(twins[i], token))
    return fresh, [*states, states[3], 0]


def _grown(c: Constraint, states: list[int], seed: int) -> list[int]:
    """Two random tokens behind each state; only rows of the first are kept then."""
    rng = random.Random(seed)
    found = []
    for state in states[:-1]:
        for _ in range(2):
            allowed = [t for t in c.allowed(state).tolist() if t not in VOCAB.eos_ids]
            if allowed:
                found.append(c.advance(state, rng.choice(allowed)))
    return found


@pytest.mark.parametrize("number", range(len(SCHEMAS)))
@pytest.mark.parametrize("threads", [2, 3])
def test_rows_do_not_depend_on_the_number_of_threads(number: int, threads: int) -> None:
    c = structspec.compile(SCHEMAS[number]).bind(VOCAB)
    for seed in range(3):
        alone, states = twin(c, seed)
        shared, same = twin(c, seed)
        expected = rows(alone, states)
        settings.set_threads(threads)
        assert np.array_equal(rows(shared, same), expected)
        # A second tree on the same helpers, which know some of it.
        more = _grown(shared, same, seed)
        found = rows(shared, more)
        settings.set_threads(1)
        assert np.array_equal(found, rows(shared.with_cache(shared.cache), more))
        for state, row in zip(more, found, strict=True):
            assert np.array_equal(shared.mask(state), row)
        assert len(shared.cache.helpers) in (0, threads - 1)  # few of a tree's states may differ


def test_helpers_compute_rows_and_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    c, states = twin(structspec.compile(SCHEMAS[0]).bind(VOCAB), 1)
    names: list[str] = []
    compute = helpers._compute

    def noted(*arguments: Any) -> Any:
        names.append(threading.current_thread().name)
        return compute(*arguments)

    monkeypatch.setattr(helpers, "_compute", noted)
    settings.set_threads(2)
    before = c.cache.n_bytes
    rows(c, states)
    # The first rows are timed; then the others are shared out.
    assert sorted(name.startswith("structspec-rows") for name in names) == [False, False, True]
    assert c.cache.n_bytes > before + c.cache.helpers[0][0].n_bytes // 2
    rows(c, states)
    assert len(names) == 3  # all rows are kept


def test_few_rows_stay_on_one_thread() -> None:
    c, states = twin(structspec.compile(SCHEMAS[0]).bind(VOCAB), 1)
    settings.set_threads(4)
    rows(c, states[:4])
    assert not c.cache.helpers


def test_cheap_rows_stay_on_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Copying their configurations would take longer than computing them."""
    monkeypatch.setattr(helpers, "_WORTH", 60.0)
    expected = rows(*twin(structspec.compile(SCHEMAS[0]).bind(VOCAB), 1))
    c, states = twin(structspec.compile(SCHEMAS[0]).bind(VOCAB), 1)
    settings.set_threads(4)
    assert np.array_equal(rows(c, states), expected)
    assert not c.cache.helpers


def test_a_stale_state_is_named_with_threads_too() -> None:
    c, states = twin(structspec.compile(SCHEMAS[0]).bind(VOCAB), 2)
    settings.set_threads(2)
    rows(c, states)
    assert c.cache.helpers
    c.cache.compact([])
    assert not c.cache.helpers
    with pytest.raises(structspec.StaleState) as caught:
        rows(c, states)
    assert caught.value.state == states[0]


def test_members_in_any_order_stay_on_one_thread() -> None:
    """Sets of written members are numbered by each cache."""
    schema = {"type": "object", "properties": {k: {"type": "integer"} for k in "abcdef"}}
    c = structspec.compile(schema, key_order="any").bind(VOCAB)
    expected = rows(*twin(c, 4))
    settings.set_threads(3)
    shared, states = twin(c, 4)
    assert np.array_equal(rows(shared, states), expected)


def test_a_small_budget_gives_the_same_rows_or_says_so() -> None:
    c = structspec.compile(SCHEMAS[1]).bind(VOCAB)
    alone, states = twin(c, 3)
    expected = rows(alone, states)
    small = Constraint(c._network, VOCAB, Limits(memory=1 << 19))
    settings.set_threads(3)
    for seed in range(4):
        try:
            shared, same = twin(small, 3)
            assert np.array_equal(rows(shared, same), expected)
            rows(shared, tree(shared, seed))
        except structspec.BudgetExceeded:
            pass


def test_several_callers_with_helpers_see_the_rows_of_one() -> None:
    grammar = structspec.compile(SCHEMAS[0])
    shared = Constraint(grammar.network, VOCAB)
    failures: list[object] = []
    settings.set_threads(3)

    def work(seed: int) -> None:
        try:
            for s in range(seed, seed + 3):
                states = tree(shared, s)
                out = rows(shared, states)
                own = Constraint(grammar.network, VOCAB)
                twins = tree(own, s)
                alone = np.stack([own.mask(t) for t in twins])
                if not np.array_equal(out, alone):
                    failures.append(s)
        except BaseException as error:
            failures.append(error)

    callers = [threading.Thread(target=work, args=(10 * i,)) for i in range(4)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert not failures
