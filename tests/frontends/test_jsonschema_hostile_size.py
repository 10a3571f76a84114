"""Schemas that are made to take long: each compiles in bounded time or is refused by its budget.

Bounds are of the time that this process computes, three times what a quiet core takes, so that busy
machines do not fail them. `REFUSED` names what the message must name.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import reduce
from typing import Any

import pytest

import structspec
from structspec.errors import BudgetExceeded, UnsupportedFeature
from structspec.frontends.jsonschema import SchemaOptions, lower_schema
from structspec.limits import Limits

PATIENT = Limits(time=600)  # what is measured here is work, not waiting
ANY = SchemaOptions(key_order="any")


def properties(number: int) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {f"p{i}": {"type": "string", "minLength": i % 7} for i in range(number)},
    }


def nested(depth: int, wrap: Callable[[Any], Any]) -> Any:
    return reduce(lambda inner, _: wrap(inner), range(depth), {"type": "null"})


def branches(number: int, branch: Callable[[int], Any], word: str = "oneOf") -> dict[str, Any]:
    return {word: [branch(i) for i in range(number)]}


COMPILED: dict[str, tuple[Callable[[], Any], float]] = {
    "50,000 properties": (lambda: properties(50_000), 8),
    "an enum of 4,000 objects": (lambda: {"enum": [{"a": i} for i in range(4_000)]}, 6),
    "maxLength 1,000,000": (lambda: {"type": "string", "maxLength": 1_000_000}, 1),
    "maxLength beside two loops": (
        lambda: {"type": "string", "maxLength": 1_000_000, "pattern": "a.*b"},
        1,
    ),
    "maxLength beside a loop": (lambda: {"maxLength": 1_000_000, "pattern": "^(abc)*$"}, 1),
    "nested repeats that fit": (lambda: {"pattern": "^((a|b)*c){50}(a|b)*c.{40}$"}, 2),
    "1,000 tagged branches": (
        lambda: branches(
            1_000,
            lambda i: {
                "properties": {"t": {"const": f"k{i}"}},
                "required": ["t"],
                "type": "object",
            },
        ),
        6,
    ),
    "1,000 constants in oneOf": (lambda: branches(1_000, lambda i: {"const": f"a{i}"}), 3),
    "1,000 overlapping intervals": (lambda: branches(1_000, lambda i: {"minimum": i}), 3),
    "an enum of 2 MB": (
        lambda: {"enum": [f"value number {i} xxxxxxxx" for i in range(80_000)]},
        12,
    ),
    "50,000 distinct values under one key": (
        lambda: {"properties": {"a": {"enum": [f"value {i}" for i in range(50_000)]}}},
        3,
    ),
    "a hostname of bounded length": (lambda: {"format": "hostname", "maxLength": 255}, 3),
    "10,000 constants in anyOf": (
        lambda: branches(10_000, lambda i: {"const": f"a{i}"}, "anyOf"),
        3,
    ),
    "prefixItems 10,000 deep": (
        lambda: nested(10_000, lambda inner: {"prefixItems": [inner]}),
        6,
    ),
    "an enum of 100,000 numbers": (lambda: {"enum": [i * 7919 for i in range(100_000)]}, 9),
    "properties 10,000 deep": (
        lambda: nested(10_000, lambda inner: {"properties": {"a": inner}}),
        6,
    ),
    "items 10,000 deep": (lambda: nested(10_000, lambda inner: {"items": inner}), 6),
    "allOf 10,000 deep": (lambda: nested(10_000, lambda inner: {"allOf": [inner]}), 3),
    "not 10,000 deep": (lambda: nested(10_000, lambda inner: {"not": inner}), 3),
    "a chain of 10,000 references": (
        lambda: {
            "$defs": {f"d{i}": {"$ref": f"#/$defs/d{i + 1}"} for i in range(10_000)}
            | {"d10000": {"type": "null"}},
            "$ref": "#/$defs/d0",
        },
        9,
    ),
    "a reference cycle that generates nothing": (
        lambda: {"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]},
        0.5,
    ),
    "maxProperties 2**31 - 1": (lambda: {"maxProperties": 2**31 - 1}, 0.5),
    "maxItems 10**30": (lambda: {"maxItems": 10**30}, 0.5),
    "a million items or two": (lambda: {"minItems": 10**6, "maxItems": 2 * 10**6}, 0.5),
    "allOf of 1,000": (
        lambda: branches(1_000, lambda i: {"properties": {f"a{i}": {"type": "null"}}}, "allOf"),
        3,
    ),
    "not over 20,000 properties": (lambda: {"not": properties(20_000)}, 9),
}

REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "an enum of 2 MB of random strings": (
        lambda: {"enum": [f"{(i * 0x9E3779B97F4A7C15 + 7) % 2**128:032x}" for i in range(60_000)]},
        "at the root, 'enum': the budget for states is 400,000",
    ),
    "10,000 bounded numbers": (
        lambda: {"prefixItems": [{"minimum": i} for i in range(10_000)]},
        "the budget for work is 750,000",
    ),
    "a pattern of both loops and at least 1,000,000": (
        lambda: {"properties": {"s": {"type": "string", "minLength": 10**6, "pattern": "a.*b"}}},
        r"'/properties/s', 'pattern': the budget for states is 50,000",
    ),
    "an enum of 60,000 objects": (
        lambda: {"enum": [{"a": i} for i in range(60_000)]},
        "the budget for work is 750,000",
    ),
    "oneOf of 1,000 multiples": (
        lambda: branches(1_000, lambda i: {"multipleOf": i + 2}),
        "'oneOf': the budget for work",
    ),
    "100 numbers that may not divide": (
        lambda: branches(100, lambda i: {"not": {"multipleOf": i + 2}}, "allOf"),
        "'allOf': the budget for work",
    ),
    "nested repeats": (
        lambda: {"pattern": "((((a{1,100}){1,100}){1,100}){1,100}){1,100}"},
        r"'pattern': the budget for states",
    ),
    "a pattern whose automaton explodes": (
        lambda: {"pattern": "(a|b)*a(a|b){30}"},
        r"'pattern': the budget for states",
    ),
    "twenty letters in any order": (
        lambda: {"pattern": "^" + "".join(f"(?=.*{chr(97 + i)})" for i in range(20))},
        r"'pattern': the budget for (steps|states)",
    ),
    "optional letters before as many": (
        lambda: {"pattern": "(a?){5000}a{5000}"},
        r"'pattern': the budget for steps",
    ),
    "1,000 overlapping objects": (
        lambda: branches(1_000, lambda i: {"type": "object", "properties": {f"a{i}": False}}),
        "at the root, 'oneOf': the budget for work",
    ),
    "1,000 optional tags": (
        lambda: branches(1_000, lambda i: {"properties": {"t": {"const": f"k{i}"}}}),
        "at the root, 'oneOf': the budget for work",
    ),
    "1,000 arrays": (
        lambda: branches(1_000, lambda i: {"type": "array", "minItems": i}),
        "at the root, 'oneOf': the budget for work",
    ),
    "allOf of 1,000 choices": (
        lambda: branches(
            1_000, lambda i: {"anyOf": [{"required": [f"a{i}"]}, {"required": [f"b{i}"]}]}, "allOf"
        ),
        "at the root, 'allOf': the budget for (work|alternatives)",
    ),
    "2**20 ways of not": (
        lambda: {
            "properties": {
                "x": branches(20, lambda i: {"not": {"required": [f"a{i}", f"b{i}"]}}, "allOf")
            }
        },
        "at '/properties/x', 'allOf': the budget for (work|alternatives)",
    ),
    "oneOf over big objects": (
        lambda: branches(
            20,
            lambda i: {
                "type": "object",
                "properties": {f"p{j}": {"type": "string", "minLength": i} for j in range(200)},
            },
        ),
        "at the root, 'oneOf': the budget for (work|alternatives)",
    ),
    "minItems 10**30": (
        lambda: {"items": {"type": "array", "minItems": 10**30}},
        "at '/items', 'minItems': the budget for items",
    ),
    "minProperties 2**40": (
        lambda: {"type": "object", "minProperties": 2**40},
        "'minProperties': the budget for members",
    ),
    "a constant of 300,000 items": (
        lambda: {"const": list(range(300_000))},
        "the budget for work",
    ),
    "100 members that depend on each other": (
        lambda: {"dependentRequired": {f"a{i}": [f"b{i}"] for i in range(100)}},
        "the budget for (work|alternatives)",
    ),
    "2,000 patterns of keys": (
        lambda: {"patternProperties": {f"^x{i}_": {"minLength": i} for i in range(2_000)}},
        "the budget for (cells of keys|work)",
    ),
    "200 conditions": (
        lambda: branches(
            200,
            lambda i: {
                "if": {"properties": {"a": {"const": i}}, "required": ["a"]},
                "then": {"required": [f"b{i}"]},
            },
            "allOf",
        ),
        "at the root, 'allOf': the budget for (work|alternatives)",
    ),
    "300 overlapping patterns of keys": (
        lambda: {"patternProperties": {f"a{i}": {"minLength": i} for i in range(300)}},
        "the budget for (cells of keys|work|time|states)",
    ),
}


# These compute for seconds each.
SLOW = (
    "50,000 properties", "an enum of 2 MB", "an enum of 100,000 numbers", "items 10,000 deep",
    "not 10,000 deep", "not over 20,000 properties", "a chain of 10,000 references",
    "300 overlapping patterns of keys", "allOf of 1,000 choices",
)  # fmt: skip


def named(cases: dict[str, Any]) -> list[Any]:
    """The names of cases, the slow ones for `make test-full` only."""
    return [
        pytest.param(name, marks=[pytest.mark.full] if name in SLOW else [], id=name)
        for name in cases
    ]


@pytest.mark.parametrize("name", named(COMPILED))
def test_large_schemas_compile_in_bounded_time(name: str) -> None:
    make, seconds = COMPILED[name]
    schema = make()
    started = time.process_time()
    lower_schema(schema, ANY, PATIENT)
    assert time.process_time() - started < seconds


@pytest.mark.parametrize("name", named(REFUSED))
def test_explosions_are_refused_by_budget_within_two_seconds(name: str) -> None:
    make, message = REFUSED[name]
    schema = make()
    started = time.process_time()
    with pytest.raises((BudgetExceeded, UnsupportedFeature), match=message):
        lower_schema(schema, ANY, PATIENT)
    assert time.process_time() - started < 3 * 2


def test_binding_many_members_in_any_order_is_not_quadratic() -> None:
    """Members are sorted by what they cost to write: 20,000 of them in no order."""
    names = [f"{i * 7919 % 20_011:x}" * (1 + i * 31 % 7) for i in range(20_000)]
    schema = {"type": "object", "properties": dict.fromkeys(names, True), "minProperties": 2}
    grammar = structspec.compile(schema, key_order="any", limits=PATIENT)
    vocab = structspec.Vocabulary([bytes((b,)) for b in range(256)], eos_ids=[])
    structspec.compile({}, key_order="any").bind(vocab)  # the kernels
    started = time.process_time()
    constraint = grammar.bind(vocab)
    assert time.process_time() - started < 3 * 1.5
    assert constraint.distance(constraint.start) > 2


def test_the_clock_is_watched_in_the_front_end() -> None:
    with pytest.raises(BudgetExceeded, match=r"budget for time is 0\.05") as caught:
        lower_schema(properties(10_000), ANY, Limits(time=0.05))
    assert caught.value.adjustable


def test_states_that_are_certain_are_refused_before_anything_is_built() -> None:
    with pytest.raises(BudgetExceeded, match="budget for states is 5,000"):
        lower_schema(properties(5_000), ANY, Limits(time=600, states=5_000))
