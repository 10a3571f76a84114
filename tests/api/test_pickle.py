"""What crosses the border of a process comes out the same, or says why not."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import structspec
from structspec import errors
from structspec.errors import StructspecError

VOCAB = structspec.Vocabulary([*(bytes((b,)) for b in range(256)), None], [256])
UNIQUE = {"type": "array", "uniqueItems": True, "items": {"type": "string"}}
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}


def pickled(value: Any) -> Any:
    return pickle.loads(pickle.dumps(value))


WAYS: tuple[Callable[[Any], Any], ...] = (pickled, copy.copy, copy.deepcopy)


@dataclass
class Order:
    item: str
    amount: int


@structspec.tool
def weather(city: str) -> str:
    """The weather in a city."""
    return f"sunny in {city}"


@structspec.structured(model="default")
def read_order(text: str) -> Order:
    """Read the order: {{ text }}"""
    raise AssertionError


class Reader:
    @structspec.structured(model="default")
    def read(self, text: str) -> Order:
        """Read the order: {{ text }}"""
        raise AssertionError


@pytest.mark.parametrize("way", WAYS)
def test_grammars_and_constraints(way: Callable[[Any], Any]) -> None:
    grammar = structspec.compile(SCHEMA, key_order="any")
    again = way(grammar)
    assert again.accepts('{"a": 1}') and not again.accepts("{}")
    assert again.report == grammar.report and again.syntax == grammar.syntax
    assert again.to_gbnf() == grammar.to_gbnf()
    constraint = grammar.bind(VOCAB)
    state = constraint.advance(constraint.start, ord("{"))
    other = way(constraint)
    assert type(other) is type(constraint)
    found = other.mask(other.advance(other.start, ord("{")))
    assert np.array_equal(found, constraint.mask(state))
    assert other.distance(other.start) == constraint.distance(constraint.start)


@pytest.mark.parametrize("way", WAYS)
def test_grammars_of_types_make_values(way: Callable[[Any], Any]) -> None:
    again = way(structspec.compile(Order))
    assert again.spec.parse({"item": "tea", "amount": 2}) == Order("tea", 2)


def test_grammars_of_every_syntax() -> None:
    for source, syntax, text in (
        ("[ab]+", "regex", "ab"),
        ('root ::= "a" root | "b"', "gbnf", "aab"),
        (UNIQUE, "json_schema", '["a"]'),
    ):
        grammar = structspec.compile(source, syntax=syntax)
        constraint = pickled(grammar.bind(VOCAB))
        assert pickled(grammar).accepts(text)
        assert constraint.accepting(constraint.advance_bytes(constraint.start, text.encode()))


@pytest.mark.parametrize("way", WAYS)
def test_decorated_functions_and_tools(way: Callable[[Any], Any]) -> None:
    assert way(weather) is weather and way(read_order) is read_order
    assert way(Reader.read) is Reader.read
    tools = way(structspec.ToolSet([weather]))
    assert tools["weather"].run({"city": "Paris"}) == "sunny in Paris"
    bare = structspec.tools.Tool("bare", parameters=SCHEMA)
    assert way(bare) == bare


@pytest.mark.parametrize("way", WAYS)
def test_settings_and_caches(way: Callable[[Any], Any]) -> None:
    sampling = structspec.Sampling(top_k=3, logit_bias={5: 1.0})
    again = way(sampling)
    assert again == sampling and again.logit_bias == {5: 1.0}
    cache = structspec.ConstraintCache(max_bytes=12345)
    cache.get(SCHEMA, VOCAB)
    other = way(cache)
    assert other.max_bytes == 12345 and len(other) == 0
    assert other.get(SCHEMA, VOCAB).start


def test_what_a_constraint_learns_says_that_it_stays() -> None:
    constraint = structspec.compile(SCHEMA).bind(VOCAB)
    with pytest.raises(TypeError, match="pickle the constraint"):
        pickle.dumps(constraint.cache)


ERRORS: tuple[StructspecError, ...] = (
    errors.SchemaError("bad", pointer="/a"),
    errors.UnsupportedFeature("if", "/a", "because", line=1, column=2),
    errors.BudgetExceeded("states", 5, 7, adjustable=True, pointer="/a", keyword="items"),
    errors.Unsatisfiable("nothing", missing=b"a"),
    errors.TokenRejected(3, 4, (5, 6), "text"),
    errors.StaleState(7),
    errors.TokenBudgetError(3, 9, True),
    errors.ValueRejected("bad", text="x"),
    errors.BatchError([errors.StaleState(1), None]),
    errors.PromptError("empty"),
    errors.ToolCallError("bad", text="abc", position=1),
    errors.MissingExtra("torch", "models"),
)


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_errors_keep_their_message_and_facts(error: StructspecError) -> None:
    """Pools of processes hang or break where an error cannot be read again."""
    again = pickled(error)
    assert type(again) is type(error) and str(again) == str(error)
    assert vars(again).keys() == vars(error).keys()
    for name, value in vars(error).items():
        assert str(getattr(again, name)) == str(value)
