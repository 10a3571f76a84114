"""`uniqueItems` over scalars without end: exact masks, no dead ends, certified distances."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from itertools import permutations, product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import structspec
from structspec import StaleState, TokenRejected, UnsupportedFeature, Vocabulary
from structspec.masks.constraint import Constraint
from structspec.masks.distinct import DistinctConstraint
from structspec.sampling import sample
from structspec.suites.reference import read, reference

SCALARS = {
    "type": "array",
    "items": {"type": ["string", "number", "null", "boolean"]},
    "uniqueItems": True,
}
# No list of values, so the strings are told apart at run time; still, there are only seven.
SHORT = {"type": "string", "pattern": "^[ab]*$", "maxLength": 2}
WORDS = ["".join(letters) for size in range(3) for letters in product("ab", repeat=size)]

TOKENS = [bytes((b,)) for b in b'[]",:{}abk0123456789']
TOKENS += [b'["', b'","', b'"]', b'",', b'["",', b'"a","a"', b'"a","b"', b"ab", b'a","', b"]}"]
TOKENS += [b'{"k":', b"1,", b"10", b",1", b"1,1", b"1]", b"[1,1", b'["a","a', b'["b","a', b"00"]


def vocabulary(tokens: list[bytes]) -> Vocabulary:
    return Vocabulary([*tokens, None], eos_ids=[len(tokens)])


@cache
def compact(schema: str, **options: Any) -> structspec.Grammar:
    return structspec.compile(
        json.loads(schema), whitespace="compact", spelling="canonical", **options
    )


def arrays(values: list[Any], least: int, most: int) -> Iterator[str]:
    """All texts of arrays of different values, compact."""
    for size in range(least, most + 1):
        for chosen in permutations(values, size):
            yield json.dumps(list(chosen), separators=(",", ":"))


CASES = [
    pytest.param(
        {"type": "array", "items": SHORT, "uniqueItems": True, "maxItems": 3},
        list(arrays(WORDS, 0, 3)),
        id="bounded strings",
    ),
    pytest.param(
        {
            "type": "object",
            "properties": {
                "k": {
                    "type": "array",
                    "items": SHORT,
                    "uniqueItems": True,
                    "minItems": 1,
                    "maxItems": 2,
                }
            },
            "required": ["k"],
            "additionalProperties": False,
        },
        ['{"k":' + text + "}" for text in arrays(WORDS, 1, 2)],
        id="in an object",
    ),
    pytest.param(
        {
            "anyOf": [
                {"type": "array", "items": SHORT, "uniqueItems": True, "maxItems": 2},
                {"type": "array", "items": {"enum": ["a", "b"]}, "minItems": 2, "maxItems": 3},
            ]
        },
        [
            *arrays(WORDS, 0, 2),
            *(
                json.dumps(list(chosen), separators=(",", ":"))
                for size in (2, 3)
                for chosen in product("ab", repeat=size)
            ),
        ],
        id="beside an array that may repeat",
    ),
]


def reachable(constraint: Constraint, most: int = 4000) -> dict[bytes, int]:
    """States by text, breadth first, along all masks."""
    found = {b"": constraint.start}
    queue = [b""]
    for text in queue:
        for token in constraint.allowed(found[text]).tolist():
            data = constraint.vocab.tokens[token]
            if data is not None and text + data not in found and len(found) < most:
                found[text + data] = constraint.advance(found[text], token)
                queue.append(text + data)
    return found


@pytest.mark.parametrize(("schema", "texts"), CASES)
def test_masks_allow_exactly_what_some_text_continues(schema: Any, texts: list[str]) -> None:
    constraint = compact(json.dumps(schema)).bind(vocabulary(TOKENS))
    language = {text.encode() for text in texts}
    prefixes = {text[:size] for text in language for size in range(len(text) + 1)}
    found = reachable(constraint)
    assert language <= set(found)
    for number, (text, state) in enumerate(found.items()):
        allowed = set(constraint.allowed(state).tolist())
        expected = {i for i, token in enumerate(TOKENS) if text + token in prefixes}
        if text in language:
            expected.add(len(TOKENS))
        assert allowed == expected, text
        assert constraint.accepting(state) == (text in language)
        for token in set(range(len(TOKENS))) - allowed if number % 9 == 0 else ():
            with pytest.raises(TokenRejected):
                constraint.advance(state, token)


@pytest.mark.parametrize(("schema", "texts"), CASES)
def test_distances_are_certified(schema: Any, texts: list[str]) -> None:
    constraint = compact(json.dumps(schema)).bind(vocabulary(TOKENS))
    for text, state in list(reachable(constraint, 300).items()):
        bound = constraint.distance(state)
        assert (bound == 0) == (text.decode() in texts)
        following = {
            token: constraint.distance(constraint.advance(state, token))
            for token in constraint.allowed(state).tolist()
            if token < len(TOKENS)
        }
        assert bound == 0 or min(following.values()) <= bound - 1, text
        for left in (1, 2, 3, 5):
            kept = {t for t in constraint.allowed(state, left).tolist() if t < len(TOKENS)}
            assert kept == {t for t, rest in following.items() if rest <= left - 1}, (text, left)


def test_numbers_stay_open_while_they_can_still_differ() -> None:
    schema = {"type": "array", "items": {"type": "integer"}, "uniqueItems": True}
    constraint = compact(json.dumps(schema)).bind(vocabulary(TOKENS))
    state = constraint.advance_bytes(constraint.start, b"[1,10,1")
    assert state is not None
    allowed = {TOKENS[token] for token in constraint.allowed(state).tolist()}
    assert allowed == {bytes((digit,)) for digit in b"0123456789"} | {
        b"10",
        b"1,",
        b"1]",
        b"00",
        b"1,1",
    }
    assert constraint.advance_bytes(state, b"]") is None
    assert constraint.advance_bytes(state, b"0]") is None
    assert constraint.distance(state) == 2  # "2]", say


def test_a_number_that_can_only_become_an_earlier_one_is_not_begun() -> None:
    schema = {"type": "array", "items": {"type": "integer"}, "uniqueItems": True}
    constraint = structspec.compile(schema, whitespace="compact").bind(
        Vocabulary([*(bytes((b,)) for b in b"[],0123456789.eE+-"), None], eos_ids=[18])
    )
    state = constraint.advance_bytes(constraint.start, b"[0,0")
    assert state is None  # 0, 0.0, 0e1: an integer that begins with 0 stays 0
    state = constraint.advance_bytes(constraint.start, b"[0,1,1")
    assert state is not None
    assert constraint.advance_bytes(state, b".0") is None
    assert constraint.advance_bytes(state, b"2") is not None


_SPELLED = st.one_of(
    st.sampled_from(
        ["1", "1.0", "1e0", "10e-1", "0", "-0", "0.0", "0e5", "1e2", "100", "1.5", "15e-1", "-1",
         "true", "false", "null", '"true"', '"1"', '""', '"a"', '"\\u0061"', '"é"', '"\\u00e9"',
         '"\\ud83d\\ude00"', '"😀"', '"\\ud83d"', '"\\n"', '"\\u000a"', '"/"', '"\\/"', '"\\""',
         '"\\\\"', '"\\u005C"', "1e-7", "1e-07", "1e16", "1e+16"]
    ),
    st.text(max_size=3).map(json.dumps),
    st.integers(-20, 20).map(json.dumps),
    st.floats(allow_nan=False, allow_infinity=False, width=16).map(json.dumps),
)  # fmt: skip


@settings(max_examples=150, deadline=None)
@given(st.lists(_SPELLED, max_size=6), st.sampled_from([",", ", ", " ,\n"]))
def test_arrays_of_scalars_agree_with_a_validator(items: list[str], comma: str) -> None:
    text = f"[{comma.join(items)}]"
    values = [json.loads(item) for item in items]
    lone = any("\ud800" <= c <= "\udfff" for v in values if isinstance(v, str) for c in v)
    expected = not lone and reference(SCALARS)(read(text))
    assert _scalars().accepts(text) == expected


@cache
def _scalars() -> structspec.Grammar:
    return structspec.compile(SCALARS)


def test_states_outside_such_arrays_have_no_history() -> None:
    schema = {"type": "array", "items": {"type": "array", "items": SHORT, "uniqueItems": True}}
    constraint = compact(json.dumps(schema)).bind(vocabulary(TOKENS))
    one = constraint.advance_bytes(constraint.start, b'[["a","b"]')
    other = constraint.advance_bytes(constraint.start, b'[["b"]')
    assert one == other
    assert constraint.advance_bytes(constraint.start, b'[["a"],["a"]]') is not None


def test_compacting_keeps_histories_and_makes_others_stale() -> None:
    schema = {"type": "array", "items": {"type": "string"}, "uniqueItems": True}
    constraint = compact(json.dumps(schema)).bind(vocabulary(TOKENS))
    constraint = constraint.with_cache(constraint.new_cache())
    inside = constraint.advance_bytes(constraint.start, b'["a","a')
    gone = constraint.advance_bytes(constraint.start, b'["a","b')
    assert inside is not None and gone is not None
    before = constraint.mask(inside).copy()
    inside = constraint.cache.compact([inside])[inside]
    assert np.array_equal(constraint.mask(inside), before)
    assert constraint.advance_bytes(inside, b'"') is None
    for use in (constraint.mask, constraint.distance, constraint.accepting):
        with pytest.raises(StaleState):
            use(gone)
    with pytest.raises(StaleState):
        constraint.advance(gone, 0)


def test_fill_writes_what_mask_returns() -> None:
    constraint = compact(json.dumps(SCALARS)).bind(vocabulary(TOKENS))
    texts = (b"", b"[", b'["a","a', b'["a",', b"[1,1", b"[1]")
    states = [constraint.advance_bytes(constraint.start, text) for text in texts]
    assert None not in states
    numbers = [state for state in states if state is not None]
    out = np.zeros((len(numbers), -(-constraint.vocab.size // 32)), np.uint32)
    constraint.fill(numbers, out)
    assert np.array_equal(out, np.stack([constraint.mask(state) for state in numbers]))


def test_a_grammar_that_was_saved_still_tells_items_apart() -> None:
    grammar = structspec.Grammar.from_bytes(_scalars().to_bytes())
    assert grammar.accepts('["a", 1]') and not grammar.accepts('["a", 1, 1.0]')
    constraint = grammar.bind(vocabulary(TOKENS))
    assert isinstance(constraint, DistinctConstraint)


def test_samples_repeat_nothing() -> None:
    schema = {"type": "array", "items": SHORT, "uniqueItems": True, "maxItems": 4}
    for text in sample(compact(json.dumps(schema)), 30, seed=1, max_bytes=40):
        items = json.loads(text)
        assert len(items) == len(set(items))


def test_two_demanded_items_stay_refused() -> None:
    with pytest.raises(UnsupportedFeature, match="uniqueItems"):
        structspec.compile({**SCALARS, "minItems": 2})


def test_vocabularies_with_bytes_that_are_no_token_are_refused() -> None:
    tokens = [token for token in TOKENS if token != b"a"]
    with pytest.raises(UnsupportedFeature, match="token of their own"):
        compact(json.dumps(SCALARS)).bind(vocabulary(tokens))


def test_notations_without_memory_are_refused() -> None:
    with pytest.raises(UnsupportedFeature, match="uniqueItems"):
        _scalars().to_gbnf()
    listed = {"type": "array", "items": {"enum": ["a", "b"]}, "uniqueItems": True}
    assert "root" in structspec.compile(listed).to_gbnf()
