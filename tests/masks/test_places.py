"""Walks over states of the network allow what the automaton takes, byte by byte."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from walked import check, vocabulary

import structspec
from structspec.automata.automaton import DEAD, Automaton
from structspec.masks.constraint import Constraint
from structspec.vocab import Vocabulary

LARGE, SMALL = vocabulary(1, 1500), vocabulary(2, 400)
WORDS = ("name", "alpha", "alp", "beta", "kind", "value", "item", "items", "é")

SCALARS: list[Any] = [
    {"type": "integer"},
    {"type": "integer", "minimum": 3, "maximum": 120},
    {"type": "number"},
    {"type": "string"},
    {"type": "string", "maxLength": 4},
    {"type": "string", "minLength": 2, "maxLength": 70},
    {"type": "string", "pattern": "^[a-z]+$"},
    {"type": "string", "pattern": "a.*é"},
    {"type": "string", "pattern": "^[A-Za-z/]{3,40}$"},
    {"type": "string", "format": "date"},
    {"type": ["string", "null", "boolean"]},
    {"enum": ["alpha", "alp", 12, None, True, {"a": 1}]},
    {"const": "name"},
    {},
]


def objects(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    keys = st.lists(st.sampled_from(WORDS), min_size=1, max_size=5, unique=True)
    return st.tuples(keys, st.lists(inner, min_size=5, max_size=5), st.integers(0, 15)).map(
        lambda drawn: {
            "type": "object",
            "properties": dict(zip(drawn[0], drawn[1], strict=False)),
            "required": drawn[0][: drawn[2] % 3],
            **({"additionalProperties": False} if drawn[2] & 4 else {}),
            **({"maxProperties": 3} if drawn[2] & 8 and drawn[2] % 3 < 3 else {}),
        }
    )


def arrays(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.tuples(inner, st.integers(0, 2), st.integers(2, 4)).map(
        lambda drawn: {
            "type": "array",
            "items": drawn[0],
            "minItems": drawn[1],
            **({"maxItems": drawn[2]} if drawn[2] < 4 else {}),
        }
    )


def unions(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.lists(inner, min_size=2, max_size=6).map(lambda branches: {"anyOf": branches})


SCHEMAS = st.recursive(
    st.sampled_from(SCALARS),
    lambda inner: st.one_of(objects(inner), arrays(inner), unions(inner)),
    max_leaves=6,
)


def bound(schema: Any, vocab: Vocabulary, **options: Any) -> Constraint | None:
    try:
        return structspec.compile(json.dumps(schema), **options).bind(vocab)
    except structspec.StructspecError:  # nothing satisfies it
        return None


@pytest.mark.parametrize("vocab", [LARGE, SMALL], ids=["large", "small"])
@given(
    schema=SCHEMAS,
    order=st.sampled_from(("declared", "any")),
    whitespace=st.sampled_from(("flexible", "compact")),
    seed=st.integers(0, 1 << 20),
)
@settings(max_examples=25, deadline=None)
def test_masks_of_random_schemas_match_the_automaton(
    vocab: Vocabulary, schema: Any, order: str, whitespace: str, seed: int
) -> None:
    constraint = bound(schema, vocab, key_order=order, whitespace=whitespace)
    if constraint is not None:
        check(constraint, seed, 10)


@pytest.mark.parametrize(
    "pattern",
    ["[ -~]*", "a(b|cd)*[0-9]{2,5}", "(true|false|null)(,(true|false))*", "[0-9]+(\\.[0-9]+)?"],
)
def test_masks_of_rules_that_may_end_match_the_automaton(pattern: str) -> None:
    for vocab in (LARGE, SMALL):
        check(structspec.compile(pattern, syntax="regex").bind(vocab), 3, 12)


def test_a_number_of_no_public_state_is_stale() -> None:
    """Hollow configurations are no states, even if a number names one."""
    constraint = bound({"type": "string"}, LARGE)
    assert constraint is not None
    constraint.mask(constraint.start)
    real = {constraint.start & 0xFFFFFFFF}
    refused = 0
    for number in range(2, constraint.cache.automaton.n_configurations + 2):
        if number in real:
            continue
        try:
            constraint.mask(number)
        except structspec.StaleState:
            refused += 1
            with pytest.raises(structspec.StaleState):
                constraint.advance(number, 34)
    assert refused


def test_what_a_token_costs_is_not_what_another_way_to_its_place_costs() -> None:
    """The text may end behind `x`, but not in the same place behind `y5`."""
    calls = "".join(f'call{c}: "{c.upper()}" [call{c}] "."\n' for c in "abc")
    grammar = structspec.compile(
        f'start: "x" | word | calla | callb | callc\n{calls}'
        'word: ("x" | "y" /[0-9]/) TEXT [word]\nTEXT: /[a-p]{6}q/\n',
        syntax="lark",
    )
    tokens: list[bytes | None] = [bytes((b,)) for b in range(256)]
    tokens += [
        f"{head}{letter}".encode() for head in ("x", "y5") for letter in ("", *"abcdefg")
    ] * 17
    constraint = grammar.bind(Vocabulary([*tokens, None], [len(tokens)]))
    apart = Automaton(constraint._network, constraint._costs)
    after = [apart.advance(apart.start, token or b"") for token in tokens]
    for left in range(1, 12):
        row = constraint.mask(constraint.start, left)
        bits = np.unpackbits(row.view(np.uint8), bitorder="little")
        for t, a in enumerate(after):
            assert bits[t] == (a != DEAD and apart.cost(a) < left), (tokens[t], left)
