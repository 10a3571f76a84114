"""Rows of states that differ in white space only are made from one another, and are the same."""

from __future__ import annotations

import random
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_blanks import GAPS, LARGE, SMALL

import structspec
from structspec.masks.constraint import Constraint
from structspec.masks.tables import Known, Tally

RUNS = ["", " ", "\n", "\n\n", "  ", " \n", "\t", "\n  ", "\r\n", "\n\n\n\n", " " * 9, "\n" * 30]


def _states(c: Constraint, texts: list[str]) -> dict[str, int]:
    found = {text: c.advance_bytes(c.start, text.encode()) for text in texts}
    return {text: state for text, state in found.items() if state is not None}


def _walks(c: Constraint) -> int:
    return int(c.cache._knowledge.get(Known.COUNT)[Tally.WALKS])


def _check(c: Constraint, texts: list[str]) -> None:
    """Rows on one cache, in this order, beside each on a cache of its own."""
    shared = c.with_cache(c.new_cache())
    for text, state in _states(shared, texts).items():
        own = c.with_cache(c.new_cache())
        alone = own.mask(_states(own, [text])[text])
        assert np.array_equal(shared.mask(state), alone), text


@given(
    st.lists(st.sampled_from(GAPS), min_size=2, max_size=2),
    st.sampled_from([LARGE, SMALL]),
    st.permutations(RUNS),
)
@settings(max_examples=40, deadline=None)
def test_rows_of_a_run_are_the_same_in_any_order(
    gaps: list[str], vocab: structspec.Vocabulary, runs: list[str]
) -> None:
    """Whether the state that more white space may follow comes first or last."""
    pattern = f"(a|ab){gaps[0]}(12|[a-z]+){gaps[1]}(;|12)?"
    c = structspec.compile(pattern, syntax="regex").bind(vocab)
    _check(c, [text + run for run in runs for text in ("a", "ab", "a 12", "ab12")])


@pytest.mark.parametrize("whitespace", ["flexible", "conventional", "compact"])
@pytest.mark.parametrize("vocab", [LARGE, SMALL], ids=["large", "small"])
def test_rows_of_documents_are_the_same(vocab: structspec.Vocabulary, whitespace: str) -> None:
    schema = {
        "type": "object",
        "properties": {"a": {"type": ["integer", "array"]}, "b": {"type": "boolean"}},
        "required": ["a"],
    }
    c = structspec.compile(schema, whitespace=whitespace).bind(vocab)
    parts = ["{", '{"a"', '{"a":', '{"a":1', '{"a":1,', '{"a":[', '{"a":[1', '{"a":[]', '{"a":1}']
    texts = [part + run for part in parts for run in RUNS]
    random.Random(3).shuffle(texts)
    _check(c, texts)


def test_a_state_of_a_run_is_not_walked_again() -> None:
    c = structspec.compile({"type": "array", "items": {"enum": ["a", "word"]}}).bind(LARGE)
    first, *others = _states(c, ["[", "[\n", "[\n\n", "[" + "\n" * 30]).values()
    row = c.mask(first)
    walks = _walks(c)
    rows = [c.mask(state) for state in others]
    assert _walks(c) == walks > 0
    assert not all(np.array_equal(row, other) for other in rows)  # less white space may follow


def test_a_row_that_is_gone_is_no_twin() -> None:
    c = structspec.compile({"type": "array", "items": {"enum": ["a", "word"]}}).bind(LARGE)
    first, second = _states(c, ["[", "[\n"]).values()
    row, other = c.mask(first).copy(), c.mask(second).copy()
    c.cache._knowledge.drop_rows()
    c.cache.rows.clear()
    assert np.array_equal(c.mask(second), other)
    assert np.array_equal(c.mask(first), row)


def test_states_that_accept_differently_are_no_twins() -> None:
    c = structspec.compile("a([ \\t\\n\\r]{4}){0,3}", syntax="regex").bind(SMALL)
    _check(c, ["a" + " " * n for n in (12, 8, 4, 0, 1, 5)])
    accepting = [state for text, state in _states(c, ["a", "a ", "a    "]).items() if text != "a "]
    end = SMALL.eos_ids[0]
    assert all(c.mask(state)[end >> 5] >> (end & 31) & 1 for state in accepting)


def test_a_pool_says_how_many_of_its_pages_were_used() -> None:
    """Or blocks of memory that wait for their next use would count as if all had been written."""
    size = 40_000
    tokens = [*(bytes((b,)) for b in range(256)), *(b"t%d" % i for i in range(size - 257)), None]
    vocab = structspec.Vocabulary(tokens, [size - 1])
    c = structspec.compile({"type": "string"}).bind(vocab)
    c.mask(c.start)
    knowledge = c.cache._knowledge
    (lease,) = knowledge._chunk_leases
    assert lease is not None and lease.used is None
    knowledge._say_what_was_used()
    assert lease.used == [(0, 2 * (size // 32))]


def test_a_cache_may_outlive_the_interpreter() -> None:
    """Names of modules are gone by then, and nothing may be said about it."""
    program = (
        "import sys, structspec\n"
        "vocab = structspec.Vocabulary([bytes((b,)) for b in range(256)] + [None], [256])\n"
        "c = structspec.compile({'type': 'integer'}).bind(vocab)\n"
        "c.mask(c.start)\n"
        "sys.kept = c  # type: ignore[attr-defined]\n"
        "sys.modules['kept'] = c.cache\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0 and "Exception ignored" not in done.stderr, done.stderr
