"""Objects and arrays whose keywords need more than positions: cells, demands, counts, sets."""

from __future__ import annotations

import importlib.util
import itertools
import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from structspec.errors import UnsupportedFeature
from structspec.frontends.jsonschema import SchemaOptions, lower_schema
from structspec.limits import Limits

_path = Path(__file__).parent / "ir_reference.py"
_spec = importlib.util.spec_from_file_location("ir_reference", _path)
assert _spec is not None and _spec.loader is not None
ir_reference = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(ir_reference)

_VALUES = [None, 1, "x", []]
_OBJECTS = [
    dict(zip(names, values, strict=True))
    for size in range(4)
    for names in itertools.permutations(["a", "ab", "b", "c"], size)
    for values in itertools.product(_VALUES[:3], repeat=size)
]
_ARRAYS = [
    list(values)
    for size in range(5)
    for values in itertools.product([None, 1, 7, 70, "x"], repeat=size)
]

OBJECTS: list[dict[str, Any]] = [
    {"patternProperties": {"^a": {"type": "null"}, "b$": {"type": ["null", "integer"]}}},
    {"patternProperties": {"^a": {"type": "null"}}, "additionalProperties": False},
    {"patternProperties": {"a": {}}, "additionalProperties": {"type": "string"}, "required": ["b"]},
    {"properties": {"ab": {"type": "integer"}}, "patternProperties": {"^a": {"minimum": 1}}},
    {"not": {"additionalProperties": {"type": "null"}}},
    {"not": {"patternProperties": {"^a": {"type": "null"}}}},
    {"not": {"properties": {"a": {}}, "additionalProperties": {"type": "null"}}},
    {"not": {"propertyNames": {"pattern": "^a"}}, "properties": {"b": {"type": "integer"}}},
    {"propertyNames": {"pattern": "b"}, "minProperties": 1},
    {"minProperties": 1, "maxProperties": 2, "properties": {"a": {"type": "null"}}},
    {"not": {"minProperties": 2}},
    {
        "oneOf": [
            {"additionalProperties": {"type": "null"}},
            {"additionalProperties": {"type": "integer"}},
        ]
    },
    {
        "properties": {"a": {}},
        "anyOf": [{"properties": {"b": {"type": "null"}}, "required": ["b"]}, {"required": ["a"]}],
        "unevaluatedProperties": False,
    },
    {
        "if": {"properties": {"a": {"type": "null"}}, "required": ["a"]},
        "then": {"patternProperties": {"b": {}}},
        "else": {"properties": {"c": {}}},
        "unevaluatedProperties": {"type": "integer"},
    },
    {"dependentSchemas": {"a": {"properties": {"b": {}}}}, "unevaluatedProperties": False},
    {
        "oneOf": [{"properties": {"a": {"type": "null"}}, "required": ["a"]}, {"required": ["b"]}],
        "unevaluatedProperties": False,
    },
]

ARRAYS: list[dict[str, Any]] = [
    {"contains": {"type": "integer"}},
    {"contains": {"type": "integer"}, "minContains": 2, "maxContains": 3},
    {"contains": {"type": "integer"}, "minContains": 0},
    {"contains": {"type": "null"}, "prefixItems": [{"type": "integer"}], "maxItems": 3},
    {"not": {"contains": {"type": "null"}}},
    {"not": {"contains": {"type": "null"}, "minContains": 2}},
    {"not": {"items": {"type": "integer"}}},
    {"allOf": [{"contains": {"type": "null"}}, {"contains": {"const": 1}}], "minItems": 3},
    {"items": {"enum": [7, 70, "x"]}, "uniqueItems": True},
    {"items": {"enum": [1, 7, 70, "x"]}, "uniqueItems": True, "minItems": 2, "maxItems": 3},
    {"items": {"enum": [1, 7, {"a": 1}]}, "uniqueItems": True},
    {"items": {"enum": [1, 7, "x"]}, "uniqueItems": True, "contains": {"const": 7}},
    {"items": {"enum": [1, 7, "x"]}, "not": {"uniqueItems": True}},
    {"prefixItems": [{"type": "integer"}, {"type": "null"}], "items": False, "uniqueItems": True},
    {"prefixItems": [{}], "contains": {"type": "string"}, "unevaluatedItems": {"type": "null"}},
    {"anyOf": [{"prefixItems": [{"const": 1}]}, {"prefixItems": [{}, {"const": 7}]}],
     "unevaluatedItems": False},
]  # fmt: skip


@pytest.mark.parametrize(
    ("schema", "instances"),
    [(schema, _OBJECTS) for schema in OBJECTS] + [(schema, _ARRAYS) for schema in ARRAYS],
    ids=[json.dumps(schema)[:60] for schema in (*OBJECTS, *ARRAYS)],
)
def test_small_containers_are_decided_as_a_validator_decides(
    schema: dict[str, Any], instances: list[Any]
) -> None:
    grammar, report = lower_schema(schema, SchemaOptions(key_order="any"))
    assert report.exact
    validator = jsonschema.Draft202012Validator(schema)
    for instance in instances:
        text = json.dumps(instance)
        assert bool(ir_reference.accepts(grammar, text)) == validator.is_valid(instance), text


def test_demands_keep_the_declared_order() -> None:
    schema = {
        "properties": {"a": {}, "b": {}},
        "not": {"additionalProperties": {"type": "null"}, "properties": {"a": {}}},
    }
    grammar, _ = lower_schema(schema, SchemaOptions())
    for text, verdict in {
        '{"b":1}': True,
        '{"a":1,"b":1}': True,
        '{"b":1,"a":1}': False,
        '{"a":null,"c":null,"d":1}': True,
        '{"c":1,"a":null}': False,
        '{"a":1,"c":null}': False,
    }.items():
        assert bool(ir_reference.accepts(grammar, text)) == verdict, text


def test_dynamic_references_depend_on_the_way() -> None:
    schema = {
        "$id": "https://e.org/root",
        "properties": {"open": {"$ref": "tree"}, "strict": {"$ref": "strict"}},
        "$defs": {
            "tree": {
                "$id": "tree",
                "$dynamicAnchor": "node",
                "properties": {"data": True, "child": {"$dynamicRef": "#node"}},
            },
            "strict": {
                "$id": "strict",
                "$dynamicAnchor": "node",
                "$ref": "tree",
                "unevaluatedProperties": False,
            },
        },
    }
    grammar, _ = lower_schema(schema, SchemaOptions(key_order="any"))
    assert ir_reference.accepts(grammar, '{"open":{"child":{"daat":1}}}')
    assert ir_reference.accepts(grammar, '{"strict":{"child":{"data":1}}}')
    assert not ir_reference.accepts(grammar, '{"strict":{"child":{"daat":1}}}')


def test_a_doubtful_string_is_neither_asserted_nor_denied() -> None:
    name = {"format": "hostname"}
    for schema in (name, {"not": name}, {"not": {"not": name}}):
        grammar, report = lower_schema(schema, SchemaOptions(), Limits(time=120))
        assert not ir_reference.accepts(grammar, '"xn--a"')
        assert [entry.keyword for entry in report.with_status("narrowed")] == ["format"]
    grammar, _ = lower_schema({"not": name}, SchemaOptions(), Limits(time=120))
    assert ir_reference.accepts(grammar, '"-"')
    assert not ir_reference.accepts(grammar, '"a.b"')
    # Whether both branches hold is in doubt, so neither may be written.
    both = {"oneOf": [name, {"enum": ["xn--a", "-"]}]}
    grammar, _ = lower_schema(both, SchemaOptions(), Limits(time=120))
    assert not ir_reference.accepts(grammar, '"xn--a"')
    assert ir_reference.accepts(grammar, '"-"')


def test_too_many_states_are_refused_by_name() -> None:
    for schema, keyword in (
        ({"contains": {"type": "null"}, "minContains": 100_000}, "contains"),
        ({"items": {"type": "string"}, "uniqueItems": True}, "uniqueItems"),
    ):
        with pytest.raises(UnsupportedFeature) as caught:
            lower_schema(schema, SchemaOptions())
        assert caught.value.keyword == keyword
