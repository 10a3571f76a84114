"""Random schemas against the `jsonschema` package: the same verdict, or a refusal by name."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import jsonschema
from hypothesis import assume, event, given, settings
from hypothesis import strategies as st

from structspec.errors import BudgetExceeded, UnsupportedFeature
from structspec.frontends.jsonschema import SchemaOptions, lower_schema

_path = Path(__file__).parent / "ir_reference.py"
_spec = importlib.util.spec_from_file_location("ir_reference", _path)
assert _spec is not None and _spec.loader is not None
ir_reference = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(ir_reference)

names = st.sampled_from(["a", "b", "c", "aa"])
scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 6),
    st.sampled_from([0.5, 1.5, -2.5, 4.25]),
    st.sampled_from(["", "a", "ab", "é😀x", "b"]),
)
values = st.recursive(
    scalars,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(names, inner, max_size=3)),
    max_leaves=6,
)
small = st.integers(0, 3)
patterns = st.sampled_from(["a", "^a", "b$", "^(a|b)*$", "^[a-c]{1,2}$", "x|é", "^$"])
type_names = st.sampled_from(["null", "boolean", "integer", "number", "string", "array", "object"])


def _keywords(schemas: st.SearchStrategy[Any]) -> dict[str, st.SearchStrategy[Any]]:
    several = st.lists(schemas, min_size=1, max_size=3)
    return {
        "type": st.one_of(type_names, st.lists(type_names, min_size=1, max_size=3, unique=True)),
        "enum": st.lists(values, min_size=1, max_size=4),
        "const": values,
        "minimum": st.integers(-3, 5),
        "exclusiveMaximum": st.integers(-3, 7),
        "multipleOf": st.sampled_from([1, 2, 3, 0.5, 1.5, 2.5]),
        "minLength": small,
        "maxLength": small,
        "pattern": patterns,
        "patternProperties": st.dictionaries(patterns, schemas, min_size=1, max_size=3),
        "properties": st.dictionaries(names, schemas, max_size=3),
        "required": st.lists(names, max_size=2, unique=True),
        "additionalProperties": schemas,
        "propertyNames": st.one_of(
            st.fixed_dictionaries({"maxLength": small}),
            st.fixed_dictionaries({"pattern": patterns}),
            st.fixed_dictionaries({"enum": st.lists(names, min_size=1, max_size=3)}),
        ),
        "minProperties": small,
        "maxProperties": small,
        "dependentRequired": st.dictionaries(names, st.lists(names, max_size=2), max_size=2),
        "dependentSchemas": st.dictionaries(names, schemas, max_size=1),
        "items": schemas,
        "prefixItems": several,
        "minItems": small,
        "maxItems": small,
        "contains": schemas,
        "minContains": small,
        "maxContains": small,
        "uniqueItems": st.booleans(),
        "unevaluatedProperties": schemas,
        "unevaluatedItems": schemas,
        "allOf": several,
        "anyOf": several,
        "oneOf": several,
        "not": schemas,
        "if": schemas,
        "then": schemas,
        "else": schemas,
        "$ref": st.sampled_from(["#/$defs/x", "#/$defs/y"]),
        "title": st.just("t"),
    }


@st.composite
def _objects(draw: st.DrawFn, schemas: st.SearchStrategy[Any]) -> dict[str, Any]:
    keywords = _keywords(schemas)
    chosen = draw(st.lists(st.sampled_from(sorted(keywords)), max_size=4, unique=True))
    if chosen and chosen[0] in ("minContains", "maxContains"):
        chosen.append("contains")
    if chosen and chosen[0] == "uniqueItems":
        finite = draw(st.fixed_dictionaries({"enum": keywords["enum"]}))
        return {**{name: draw(keywords[name]) for name in chosen}, "items": finite}
    return {name: draw(keywords[name]) for name in chosen}


_schemas = st.recursive(st.one_of(st.booleans(), st.builds(dict)), _objects, max_leaves=8)


@settings(max_examples=150, deadline=None)
@given(_schemas, _schemas, _schemas, st.lists(values, min_size=10, max_size=30))
def test_verdicts_agree_with_a_validator(root: Any, x: Any, y: Any, instances: list[Any]) -> None:
    schema = root if isinstance(root, dict) else {"allOf": [root]}
    schema = {**schema, "$defs": {"x": x, "y": y}}
    try:
        grammar, report = lower_schema(schema, SchemaOptions(key_order="any"))
    except UnsupportedFeature as refusal:
        event(f"refused {refusal.keyword}")
        return
    except BudgetExceeded:
        event("budget")
        return
    assert report.exact
    validator = jsonschema.Draft202012Validator(schema)
    for instance in instances:
        text = json.dumps(instance, ensure_ascii=False, separators=(",", ":"))
        try:
            right = validator.is_valid(instance)
        except RecursionError:
            assume(False)
        event(f"valid {right}")
        assert ir_reference.accepts(grammar, text) == right, text


@settings(max_examples=80, deadline=None)
@given(_schemas, st.lists(values, min_size=10, max_size=20))
def test_widening_never_refuses_a_valid_text(schema: Any, instances: list[Any]) -> None:
    assume("#/" not in json.dumps(schema))
    try:
        grammar, _ = lower_schema(schema, SchemaOptions(key_order="any", on_unsupported="widen"))
    except BudgetExceeded:
        return
    validator = jsonschema.Draft202012Validator(schema)
    for instance in instances:
        if validator.is_valid(instance):
            text = json.dumps(instance, ensure_ascii=False, separators=(",", ":"))
            assert ir_reference.accepts(grammar, text), text
