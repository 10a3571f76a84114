"""Lengths beside patterns and formats: a register counts, and every state can be completed."""

from __future__ import annotations

import itertools
import json
import random
import re
from typing import Any

import pytest
from pydantic import BaseModel, HttpUrl

import structspec
from structspec.errors import BudgetExceeded, Unsatisfiable
from structspec.frontends.jsonschema import text_automata
from structspec.frontends.jsonschema.kept import Kept

PATTERNS = ("^(ab|c)*$", "a.*b", "^a*b?c+$", "^(abc)*$", "^(a|b)*a(a|b)$", "b")
WINDOWS = ((0, 0), (0, 3), (1, 4), (3, 3), (4, 5), (2, None))


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Write no pairs of states and lengths out, so that small cases are counted as well."""
    monkeypatch.setattr(text_automata, "_FEW_PAIRS", 0)
    monkeypatch.setattr(text_automata, "_LOWERED", Kept(10_000))


def schema_of(pattern: str, low: int, high: int | None) -> dict[str, Any]:
    upper = {} if high is None else {"maxLength": high}
    return {"type": "string", "pattern": pattern, "minLength": low, **upper}


@pytest.mark.parametrize("pattern", PATTERNS)
def test_counted_lengths_accept_what_pattern_and_length_accept(pattern: str, counted: None) -> None:
    for low, high in WINDOWS:
        grammar = structspec.compile(schema_of(pattern, low, high), whitespace="compact")
        for length in range(7):
            for letters in itertools.product("abc", repeat=length):
                text = "".join(letters)
                right = re.search(pattern, text) is not None
                right = right and low <= length and (high is None or length <= high)
                assert grammar.accepts(json.dumps(text)) == right, (low, high, text)


@pytest.mark.parametrize("outside", ["", "b"])
def test_counted_lengths_never_lead_where_the_vocabulary_cannot_finish(
    outside: str, counted: None
) -> None:
    tokens: list[bytes | None] = [bytes([b]) for b in range(256) if chr(b) not in outside]
    tokens += [b"ca", b"aa", b'c"', b"abab", None]
    vocab = structspec.Vocabulary(tokens, eos_ids=[len(tokens) - 1])
    rng = random.Random(5)
    for pattern, (low, high) in itertools.product(PATTERNS, WINDOWS):
        grammar = structspec.compile(
            schema_of(pattern, low, high), whitespace="compact", spelling="canonical"
        )
        try:
            constraint = grammar.bind(vocab)
        except Unsatisfiable:
            continue
        for _ in range(6):
            state, text = constraint.start, b""
            left = constraint.distance(state) + rng.randint(0, 6)
            while True:
                row = constraint.mask(state, left)
                allowed = [t for t in range(len(tokens)) if row[t // 32] >> (t % 32) & 1]
                assert allowed, (pattern, low, high, text)
                token = rng.choice(allowed)
                if token == len(tokens) - 1:
                    break
                text += tokens[token] or b""
                state = constraint.advance(state, token)
                left -= 1
            assert grammar.accepts(text), (pattern, low, high, text)


def test_a_counted_character_may_be_an_escape_and_counts_once() -> None:
    grammar = structspec.compile({"type": "string", "pattern": "a.*b", "maxLength": 900})
    assert grammar.accepts('"' + "\\u0061" + "\\ud83d\\ude00" * 898 + 'b"')
    assert grammar.accepts('"a' + "\U0001f600" * 898 + '\\u0062"')
    assert not grammar.accepts('"a' + "\U0001f600" * 899 + 'b"')


def test_urls_of_pydantic_compile() -> None:
    class Page(BaseModel):
        url: HttpUrl

    grammar = structspec.compile(Page)
    start = "https://example.org/"
    for length, right in ((2083, True), (2084, False)):
        assert grammar.accepts(json.dumps({"url": start.ljust(length, "a")})) == right
    assert not grammar.accepts('{"url": "no url"}')


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "string", "format": "uri", "minLength": 1, "maxLength": 65_536},
        {"type": "string", "pattern": "^[a-z]+(-[a-z]+)*$", "maxLength": 1_000_000},
        {"type": "string", "pattern": "a.*b", "minLength": 3, "maxLength": 1_000_000},
        {"type": "string", "format": "email", "maxLength": 254},
    ],
)
def test_long_lengths_beside_patterns_take_few_states(schema: dict[str, Any]) -> None:
    limits = structspec.Limits(states=40_000)
    assert not structspec.compile(schema, limits=limits).is_empty


def test_a_long_lower_bound_beside_two_loops_is_refused_by_budget() -> None:
    with pytest.raises(BudgetExceeded, match="states"):
        structspec.compile({"type": "string", "pattern": "a.*b", "minLength": 1_000_000})


def test_long_keys_beside_a_pattern_are_written_out() -> None:
    schema = {"type": "object", "propertyNames": {"pattern": "a.*b", "maxLength": 60}}
    grammar = structspec.compile(schema)
    assert grammar.accepts(json.dumps({"a".ljust(59, "x") + "b": 1}))
    assert not grammar.accepts(json.dumps({"a".ljust(60, "x") + "b": 1}))


def test_counted_strings_export_as_plain_rules(counted: None) -> None:
    schema = {"type": "string", "pattern": "^(ab|c)*$", "maxLength": 5}
    grammar = structspec.compile(schema, spelling="canonical", whitespace="compact")
    again = structspec.compile(grammar.to_gbnf(), syntax="gbnf")
    for text in ("", "ab", "abcab", "ababc", "cabcab", "ababab", "abca"):
        assert again.accepts(json.dumps(text)) == grammar.accepts(json.dumps(text)), text
