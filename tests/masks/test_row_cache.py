"""Rows are kept, bounded and shared by threads without any change of an answer."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import threading
from typing import Any

import numpy as np
import pytest

import structspec
from structspec.bench.soak import Soak, replay, resident
from structspec.limits import Limits
from structspec.masks.constraint import Constraint
from structspec.masks.tables import Known
from structspec.vocab import Vocabulary

WORDS = ["name", "value", "id", "type", "the", "é中", "true", "null", "0123", ".", "ab", "x-"]


def vocabulary() -> Vocabulary:
    rng = random.Random(3)
    tokens: list[bytes | None] = [bytes((b,)) for b in range(256)]
    tokens += [w.encode() for w in WORDS]
    tokens += [('"' + w + '"').encode() for w in WORDS] + [b'": ', b'", "', b'"}', b"}]"]
    while len(tokens) < 900:
        tokens.append("".join(rng.choices("abcdefgh xyz-_é中", k=rng.randint(2, 7))).encode())
    return Vocabulary([*tokens, None], [len(tokens)])


VOCAB = vocabulary()
SCHEMAS: list[dict[str, Any]] = [
    {
        "type": "object",
        "properties": {"name": {"type": "string"}, "id": {"type": "integer", "minimum": 3}},
        "additionalProperties": {"type": "array", "items": {"type": "string", "maxLength": 7}},
    },
    {"type": "array", "items": {"type": "string", "pattern": "ab+[0-9]"}},
    {
        "type": "object",
        "patternProperties": {"^x-": {"type": "boolean"}, "_id$": {"type": "number"}},
        "additionalProperties": False,
    },
    {"type": "array", "items": {"type": "string", "pattern": "^\\S+ [a-f]{2,9}$"}},
    {"anyOf": [{"enum": ["abc", "abd", 12]}, {"type": "array", "items": {"$ref": "#"}}]},
]


def walk(c: Constraint, seed: int, steps: int) -> list[tuple[int, bytes]]:
    """A random walk: the token taken and the row at each step."""
    rng = random.Random(seed)
    state, seen = c.start, []
    for _ in range(steps):
        row = c.mask(state)
        allowed = [t for t in c.allowed(state).tolist() if t not in VOCAB.eos_ids]
        if not allowed:
            break
        token = rng.choice(allowed)
        seen.append((token, row.tobytes()))
        state = c.advance(state, token)
    return seen


def shrink(c: Constraint, rows: int) -> None:
    """Give a constraint that has computed nothing yet a pool of so many rows."""
    c.cache._knowledge._most_rows = rows
    c.cache._knowledge._make_pool()


@pytest.mark.parametrize("number", range(len(SCHEMAS)))
def test_a_tiny_budget_gives_the_rows_of_an_unlimited_one(number: int) -> None:
    grammar = structspec.compile(SCHEMAS[number])
    tiny = Constraint(grammar.network, VOCAB)
    shrink(tiny, 2)
    free = Constraint(grammar.network, VOCAB)
    for seed in range(3):
        assert walk(tiny, seed, 25) == walk(free, seed, 25)
    assert tiny.cache.n_rows <= 2 < free.cache.n_rows


def test_rows_that_were_handed_out_outlive_their_pool() -> None:
    c = Constraint(structspec.compile(SCHEMAS[0]).network, VOCAB)
    shrink(c, 2)
    row = c.mask(c.start)
    copy = row.copy()
    walk(c, 1, 30)
    assert np.array_equal(row, copy)
    assert not row.flags.writeable


def test_equal_rows_are_kept_once() -> None:
    c = Constraint(structspec.compile({"type": "string", "maxLength": 5000}).network, VOCAB)
    state = c.advance(c.start, ord('"'))
    for _ in range(50):
        c.mask(state)
        state = c.advance(state, ord("a"))
    assert c.cache.n_rows < 5


@pytest.mark.parametrize("number", range(len(SCHEMAS)))
def test_one_call_fills_all_rows_of_a_draft_tree(number: int) -> None:
    grammar = structspec.compile(SCHEMAS[number])
    c, alone = (Constraint(grammar.network, VOCAB) for _ in range(2))
    rng = random.Random(number)
    states, twins = [c.start], [alone.start]
    while len(states) < 33:
        i = rng.randrange(len(states))
        allowed = [t for t in alone.allowed(twins[i]).tolist() if t not in VOCAB.eos_ids]
        if not allowed:
            continue
        token = rng.choice(allowed)
        states.append(c.advance(states[i], token))
        twins.append(alone.advance(twins[i], token))
    out = np.full((40, -(-VOCAB.size // 32)), 7, np.uint32)
    c.fill([*states, 0], out)
    for row, twin in zip(out, twins, strict=False):
        assert np.array_equal(row, alone.mask(twin))
    assert not out[33].any() and (out[34:] == 7).all()
    strided = np.zeros((33, 2 * out.shape[1]), np.uint32)[:, ::2]
    c.fill(states, strided)
    assert np.array_equal(strided, out[:33])


def test_a_stale_state_is_named_and_the_rows_before_it_are_written() -> None:
    c = Constraint(structspec.compile(SCHEMAS[0]).network, VOCAB)
    old = c.start
    c.cache.compact([])
    out = np.zeros((2, -(-VOCAB.size // 32)), np.uint32)
    with pytest.raises(structspec.StaleState) as caught:
        c.fill([c.start, old], out)
    assert caught.value.state == old
    assert np.array_equal(out[0], c.mask(c.start))


def test_configurations_with_many_alternatives_are_expanded() -> None:
    names = [{"const": f"a{'b' * i}{i}"} for i in range(150)]
    schema = {"type": "array", "items": {"anyOf": [{"type": "array", "items": n} for n in names]}}
    c = Constraint(structspec.compile(schema).network, VOCAB)
    assert len(walk(c, 0, 12)) > 3
    assert c.cache._knowledge.get(Known.CURSORS).size >= 64


def test_four_threads_on_one_cache_see_the_rows_of_one() -> None:
    grammar = structspec.compile(SCHEMAS[0])
    expected = [walk(Constraint(grammar.network, VOCAB), seed, 40) for seed in range(8)]
    shared = Constraint(grammar.network, VOCAB)
    shrink(shared, 8)
    failures: list[object] = []

    def work(first: int) -> None:
        for seed in range(first, 8, 4):
            try:
                if walk(shared, seed, 40) != expected[seed]:
                    failures.append(seed)
            except BaseException as error:
                failures.append(error)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_the_core_imports_without_compiling_anything() -> None:
    code = "import structspec, sys; structspec.Limits; assert 'numba' not in sys.modules"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run([sys.executable, "-c", code], check=True, env=environment)


def variants(count: int) -> list[str]:
    """So many schemas, no two the same."""
    return [
        json.dumps(
            {
                "type": "object",
                "properties": {f"k{number}": SCHEMAS[number % len(SCHEMAS)]},
                "required": [f"k{number}"],
            }
        )
        for number in range(count)
    ]


def test_a_small_soak_keeps_its_budget_and_its_answers() -> None:
    """The engine of `make soak`."""
    soak = Soak(VOCAB, variants(30), tokens=4_000, threads=4, max_bytes=24 << 20, length=100)
    soak.run()
    assert not soak.errors and soak.counts["tokens"] >= 4_000
    assert len(soak.memory) == 20 and len(soak.seen) > 10
    assert soak.cache.n_bytes <= (24 << 20) + (8 << 20)
    schemas = {str(one["schema"]): soak.schemas[one["schema"]] for one in soak.sample}
    fresh = replay(VOCAB, {"length": 100, "sample": soak.sample, "schemas": schemas})
    assert fresh == [one["digest"] for one in soak.sample] != []


@pytest.mark.full
def test_ten_million_tokens_over_two_thousand_schemas_keep_under_a_gibibyte() -> None:
    schemas = variants(2_000)

    def run(tokens: int) -> None:
        soak = Soak(VOCAB, schemas, tokens=tokens, threads=4, max_bytes=384 << 20, length=2_000)
        soak.run()
        assert not soak.errors

    run(500_000)
    early = resident()
    run(9_500_000)
    assert resident() < min(1024, early + 128)


def test_limits_of_memory_bound_the_pool() -> None:
    grammar = structspec.compile(SCHEMAS[0])
    words = -(-VOCAB.size // 32)
    c = Constraint(grammar.network, VOCAB, Limits(memory=64 * words * 4))
    assert c.cache._knowledge._most_rows == 16
