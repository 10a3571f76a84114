"""`uniqueItems` over arrays and objects: the same laws as over scalars, one level down."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from functools import cache
from itertools import permutations, product
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import structspec
from structspec import TokenRejected, Vocabulary
from structspec.automata.histories import History
from structspec.masks.constraint import Constraint
from structspec.masks.distinct import DistinctConstraint
from structspec.suites.reference import read, reference

#: No list of values, so whatever holds them is told apart at run time; still, there are only three.
SHORT = {"type": "string", "pattern": "^[ab]?$"}
WORDS = ["", "a", "b"]

TOKENS = [bytes((b,)) for b in b'[]",:{}abktruefalsn ']
TOKENS = list(dict.fromkeys(TOKENS))
TOKENS += [
    b'["',
    b'","',
    b'"]',
    b'",',
    b'["",',
    b'"a"',
    b'[["',
    b'"],["',
    b'"]]',
    b'{"a":',
    b'},{"',
]
TOKENS += [
    b'"},',
    b'"}]',
    b'"a":"b"',
    b'{"a":"a"},{"a":"',
    b'[["a"],["a"',
    b"[],[",
    b"[{},{",
    b"}]",
]
TOKENS += [b'{"b":true', b"true},", b',"b":', b'["a","a"]', b'","a', b"{},", b"{}]"]


def vocabulary(tokens: list[bytes]) -> Vocabulary:
    return Vocabulary([*tokens, None], eos_ids=[len(tokens)])


def inner_arrays(*, differ: bool) -> list[Any]:
    sized = permutations if differ else lambda words, size: product(words, repeat=size)
    return [list(chosen) for size in range(3) for chosen in sized(WORDS, size)]


def objects() -> list[Any]:
    found = []
    for a, b in product([None, *WORDS], [None, True, False]):
        found.append({k: v for k, v in (("a", a), ("b", b)) if v is not None})
    return found


def arrays(values: list[Any], most: int = 2, *, repeat: bool = False) -> Iterator[str]:
    """All texts of arrays of values, different ones or any, compact."""
    for size in range(most + 1):
        chosen = product(values, repeat=size) if repeat else permutations(values, size)
        for items in chosen:
            yield json.dumps(list(items), separators=(",", ":"))


def array(items: Any, *, unique: bool, most: int = 2) -> dict[str, Any]:
    return {"type": "array", "items": items, "uniqueItems": unique, "maxItems": most}


OBJECT = {
    "type": "object",
    "properties": {"a": SHORT, "b": {"type": "boolean"}},
    "additionalProperties": False,
}
ONE = {**OBJECT, "required": ["a"], "maxProperties": 1}
REORDERED = [
    "[" + ",".join(chosen) + "]"
    for size in range(3)
    for chosen in product(
        [text for w in WORDS for text in (f'{{"a":"{w}","b":true}}', f'{{"b":true,"a":"{w}"}}')],
        repeat=size,
    )
    if size < 2 or json.loads(chosen[0]) != json.loads(chosen[1])
]
CASES = [
    pytest.param(
        array(ONE, unique=True, most=3),
        {},
        list(arrays([{"a": w} for w in WORDS], 3)),
        id="objects",
    ),
    pytest.param(
        array(OBJECT, unique=True), {}, list(arrays(objects())), id="objects of optional members"
    ),
    pytest.param(
        array({**OBJECT, "properties": {"a": SHORT, "b": {"const": True}},
               "required": ["a", "b"]}, unique=True),
        {"key_order": "any"},
        REORDERED,
        id="members in any order",
    ),
    pytest.param(
        array(array(SHORT, unique=False), unique=True),
        {},
        list(arrays(inner_arrays(differ=False))),
        id="arrays that may repeat",
    ),
    pytest.param(
        array(array(SHORT, unique=True), unique=True),
        {},
        list(arrays(inner_arrays(differ=True))),
        id="arrays that may not",
    ),
    pytest.param(
        {"anyOf": [array(array(SHORT, unique=False), unique=True),
                   array(array(SHORT, unique=True), unique=False)]},
        {},
        [*arrays(inner_arrays(differ=False)), *arrays(inner_arrays(differ=True), repeat=True)],
        id="either the outer or the inner ones",
    ),
    pytest.param(
        array({"anyOf": [SHORT, ONE, array(SHORT, unique=True)]}, unique=True),
        {},
        list(arrays([*WORDS, *({"a": w} for w in WORDS), *inner_arrays(differ=True)])),
        id="scalars among them",
    ),
    pytest.param(
        array({"type": "object", "properties": {"a": array(SHORT, unique=True)},
               "required": ["a"], "additionalProperties": False}, unique=True),
        {},
        list(arrays([{"a": inner} for inner in inner_arrays(differ=True)])),
        id="arrays in objects",
    ),
]  # fmt: skip


def bound(schema: Any, options: dict[str, Any]) -> Constraint:
    return _bound(json.dumps(schema), tuple(options.items()))


@cache
def _bound(schema: str, options: tuple[tuple[str, Any], ...]) -> Constraint:
    grammar = structspec.compile(
        json.loads(schema), whitespace="compact", spelling="canonical", **dict(options)
    )
    return grammar.bind(vocabulary(TOKENS))


def reachable(constraint: Constraint, most: int) -> dict[bytes, int]:
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


@pytest.mark.parametrize(("schema", "options", "texts"), CASES)
def test_masks_allow_exactly_what_some_text_continues(
    schema: Any, options: dict[str, Any], texts: list[str]
) -> None:
    constraint = bound(schema, options)
    assert isinstance(constraint, DistinctConstraint)
    language = {text.encode() for text in texts}
    prefixes = {text[:size] for text in language for size in range(len(text) + 1)}
    found = reachable(constraint, 2500)
    if len(found) < 2500:
        assert language <= set(found)
    for number, (text, state) in enumerate(found.items()):
        allowed = set(constraint.allowed(state).tolist())
        expected = {i for i, token in enumerate(TOKENS) if text + token in prefixes}
        if text in language:
            expected.add(len(TOKENS))
        assert allowed == expected, text
        assert constraint.accepting(state) == (text in language)
        for token in set(range(len(TOKENS))) - allowed if number % 25 == 0 else ():
            with pytest.raises(TokenRejected):
                constraint.advance(state, token)


@pytest.mark.parametrize(("schema", "options", "texts"), CASES)
def test_distances_are_certified(schema: Any, options: dict[str, Any], texts: list[str]) -> None:
    constraint = bound(schema, options)
    language = set(texts)
    for text, state in list(reachable(constraint, 200).items()):
        distance = constraint.distance(state)
        assert (distance == 0) == (text.decode() in language)
        following = {
            token: constraint.distance(constraint.advance(state, token))
            for token in constraint.allowed(state).tolist()
            if token < len(TOKENS)
        }
        assert distance == 0 or min(following.values()) <= distance - 1, text
        for left in (1, 2, 5):
            kept = {t for t in constraint.allowed(state, left).tolist() if t < len(TOKENS)}
            assert kept == {t for t, rest in following.items() if rest <= left - 1}, (text, left)


# -- any value -----------------------------------------------------------------------------------

_SCALARS = st.sampled_from(["1", "1.0", "10e-1", "true", "null", '""', '"a"', '"\\u0061"', '"é"'])
_KEYS = st.sampled_from(['"a"', '"\\u0061"', '"b"', '""'])


def _object(draw: Any, values: Any) -> str:
    members: dict[str, str] = {}
    for key in draw(st.lists(_KEYS, max_size=3)):
        members.setdefault(json.loads(key), f"{key}: {draw(values)}")
    return "{" + ", ".join(draw(st.permutations(list(members.values())))) + "}"


@st.composite
def _container(draw: Any, values: Any) -> str:
    if draw(st.booleans()):
        return "[" + " , ".join(draw(st.lists(values, max_size=3))) + "]"
    return _object(draw, values)


_VALUES = st.recursive(_SCALARS, _container, max_leaves=5)
ANY = {"type": "array", "uniqueItems": True}
NESTED = {"type": "array", "uniqueItems": True, "items": {"uniqueItems": True}}
IN_MEMBERS = {"type": "array", "items": {"additionalProperties": ANY}, "uniqueItems": True}


@settings(max_examples=300, deadline=None)
@given(
    st.lists(_VALUES, max_size=4),
    st.sampled_from([",", " ,\n"]),
    st.sampled_from([ANY, NESTED, IN_MEMBERS]),
)
def test_arrays_of_anything_agree_with_a_validator(
    items: list[str], comma: str, schema: dict[str, Any]
) -> None:
    text = f"[{comma.join(items)}]"
    assert _grammar(json.dumps(schema)).accepts(text) == reference(schema)(read(text))


@cache
def _grammar(schema: str) -> structspec.Grammar:
    return structspec.compile(json.loads(schema))


@pytest.mark.parametrize("seed", range(12))
def test_walks_that_repeat_what_they_can_always_end(seed: int) -> None:
    tokens = [bytes((byte,)) for byte in range(32, 127)]
    constraint = _grammar(json.dumps(NESTED)).bind(vocabulary(tokens))
    rng = random.Random(seed)
    first = rng.choice(['{"a": [1, 2], "b": "x"}', '[[1], ["a", "ab"], {}]', '[{"k": {"l": 1}}]'])
    state = constraint.advance_bytes(constraint.start, f"[{first}, ".encode())
    assert state is not None
    text = f"[{first}, "
    for character in first:  # as long as it may, mostly
        allowed = set(constraint.allowed(state).tolist())
        wanted = ord(character) - 32
        if wanted not in allowed or rng.random() < 0.02:
            break
        state, text = constraint.advance(state, wanted), text + character
    for _ in range(rng.randrange(4)):
        token = rng.choice([t for t in constraint.allowed(state).tolist() if t < len(tokens)])
        state, text = constraint.advance(state, token), text + tokens[token].decode()
    while (distance := constraint.distance(state)) > 0:
        kept = constraint.allowed(state, distance).tolist()
        token = rng.choice([t for t in kept if t < len(tokens)])
        state, text = constraint.advance(state, token), text + tokens[token].decode()
        assert constraint.distance(state) < distance
    assert reference(NESTED)(read(text))


# -- histories -----------------------------------------------------------------------------------


def after(text: str) -> History:
    history: History | None = History.begun()
    for byte in text.encode():
        assert history is not None
        history, _ = history.after(byte)
    assert history is not None
    return history


@pytest.mark.parametrize(
    ("text", "contested"),
    [
        ('{"a": 1, "b": 2}, ', True),
        ('{"a": 1, "b": 2}, {', True),
        ('{"a": 1, "b": 2}, {"b": 2', True),
        ('{"a": 1, "b": 2}, {"c', False),
        ('{"a": 1, "b": 2}, {"a": 2, ', False),
        ('{"a": 1, "b": 2}, {"a": 2, "a', True),  # of two members the last counts
        ('{"a": 1, "b": 2}, {"a": 2, "a": 1', True),
        ('{"a": 1, "b": 2}, {"a": 2, "a": "', False),
        ("[1, [2]], [1, ", True),
        ("[1, [2]], [1, [", True),
        ("[1, [2]], [1, [3, ", False),
        ("[1, [2]], [1, [2], ", False),
        ("[1, [2]], [", True),
        ("[1, [2]], {", False),
        ("[1], [1.0", True),
        ('["ab"], ["a', True),
        ('["ab"], ["b', False),
    ],
)
def test_an_item_is_contested_while_it_may_equal_an_earlier_one(text: str, contested: bool) -> None:
    assert after(text).contested == contested


def test_equal_items_are_known_by_value() -> None:
    history = after('{"a": [1, "x"], "b": {}}, { "b":{}, "a": [1.0,"\\u0078"]')
    assert history.after(0x7D)[1]
    history = after('{"a": [1, "x"], "b": {}}, { "b":{}, "a": ["x",1]')
    assert not history.after(0x7D)[1]
