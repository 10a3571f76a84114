"""Equal subschemas are checked and lowered once, and reported wherever they stand."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from structspec.errors import SchemaError
from structspec.frontends.jsonschema import SchemaOptions, lower_schema
from structspec.frontends.jsonschema.keywords import keyword_of, subschemas

_ITEM = {"title": "t", "properties": {"a": {"type": "integer"}, "b": {"enum": [1, "x"]}}}

_SCHEMAS: dict[str, Any] = {
    "siblings": {"properties": {"p": _ITEM, "q": _ITEM, "r": {"items": _ITEM}}},
    "ids as members": {"properties": {"p": {"properties": {"id": _ITEM}}, "q": {"items": _ITEM}},
                       "items": {"properties": {"id": _ITEM}}},
    "references": {"$defs": {"x": {"$ref": "#/$defs/y"}, "y": _ITEM},
                   "properties": {"p": {"$ref": "#/$defs/x"}, "q": {"$ref": "#/$defs/x"}}},
    "into a repeated part": {"allOf": [_ITEM, _ITEM, {"$ref": "#/allOf/1/properties/b"}]},
    "outside the usual places": {"x": {"y": _ITEM}, "anyOf": [{"$ref": "#/x/y"}, _ITEM]},
    "resources": {"properties": {"p": {"$id": "http://h/p", "items": _ITEM},
                                 "q": {"$id": "http://h/q", "items": _ITEM}}},
    "another draft inside": {"properties": {
        "p": {"items": [_ITEM]},
        "q": {"$id": "http://h/q", "$schema": "http://json-schema.org/draft-07/schema",
              "items": [_ITEM], "not": {"prefixItems": []}}}},
}  # fmt: skip


def _keywords(schema: Any, pointer: str) -> Iterator[tuple[str, str]]:
    """Where each keyword stands, by recursion (in the newest draft)."""
    yield from ((pointer, name) for name in schema)
    for name, value in schema.items():
        keyword = keyword_of(name, 2020)
        for path, sub in subschemas(keyword, value) if keyword else ():
            if isinstance(sub, dict):
                yield from _keywords(sub, "/".join([pointer, name, *path]))


@pytest.mark.parametrize("name", list(_SCHEMAS)[:-1])
def test_the_report_has_every_occurrence_in_order(name: str) -> None:
    schema = json.loads(json.dumps(_SCHEMAS[name]))
    _, report = lower_schema(schema, SchemaOptions(on_unsupported="widen"))
    found = [(entry.pointer, entry.keyword) for entry in report.entries]
    expected = list(_keywords(schema, ""))
    assert found[: len(expected)] == expected
    beyond = {pointer for pointer, _ in found[len(expected) :]}
    outside = {"/x/y", "/x/y/properties/a", "/x/y/properties/b"}
    assert beyond == (outside if name == "outside the usual places" else set())


def test_equal_schemas_of_different_drafts_are_told_apart() -> None:
    schema = _SCHEMAS["another draft inside"]
    with pytest.raises(SchemaError, match="an array of 1") as caught:
        lower_schema(schema)
    assert caught.value.pointer == "/properties/p"
    del schema["properties"]["p"]["items"]
    schema["properties"]["p"]["prefixItems"] = []
    with pytest.raises(SchemaError) as caught:
        lower_schema(schema)
    assert caught.value.pointer == "/properties/p"
    del schema["properties"]["p"]["prefixItems"]
    schema["properties"]["p"]["not"] = {"items": False}
    _, report = lower_schema(schema)
    assert report.at("/properties/q/not")[0].status == "annotation"


@pytest.mark.parametrize("spoilt", [{"type": "text"}, {"minLength": -1}, {"items": {"not": 3}}])
def test_faults_are_told_where_they_stand_first(spoilt: Any) -> None:
    schema = {"properties": {"p": _ITEM, "q": {"items": spoilt}, "r": spoilt}}
    with pytest.raises(SchemaError) as caught:
        lower_schema(schema)
    assert caught.value.pointer.startswith("/properties/q/items")


def test_what_is_dropped_is_told_at_every_occurrence() -> None:
    part = {"items": {"pattern": "(a)\\1"}}
    schema = {"properties": {"p": part, "q": {"anyOf": [part, {"type": "null"}]}}}
    _, report = lower_schema(schema, SchemaOptions(on_unsupported="widen"))
    assert [entry.pointer for entry in report.widened] == [
        "/properties/p/items",
        "/properties/q/anyOf/0/items",
    ]
