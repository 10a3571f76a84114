"""Inputs that once escaped as untyped errors, ran on, or counted members wrongly."""

from typing import Annotated, Any, Literal

import pytest
from pydantic import Field

import structspec
from structspec.errors import BudgetExceeded, SchemaError, UnsupportedFeature


def itself() -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "array"}
    schema["items"] = schema
    return schema


def test_a_reference_cycle_beside_unevaluated_is_refused_by_name() -> None:
    with pytest.raises(UnsupportedFeature, match="leads back to itself"):
        structspec.compile({"allOf": [{"$ref": "#"}], "unevaluatedItems": False})


def test_a_schema_that_holds_itself_is_no_schema() -> None:
    with pytest.raises(SchemaError, match="contains itself"):
        structspec.compile(itself())


def test_counts_beyond_32_bits_are_no_limit_or_a_budget() -> None:
    assert structspec.compile({"type": "object", "maxProperties": 2**31}).accepts('{"a": 1}')
    with pytest.raises(BudgetExceeded):
        structspec.compile({"type": "object", "minProperties": 2**40})


def test_advice_names_limits_only_where_raising_them_helps() -> None:
    with pytest.raises(BudgetExceeded) as built_in:
        structspec.compile({"type": "string", "pattern": "a.*b", "minLength": 100_000})
    assert "built in" in str(built_in.value) and not built_in.value.adjustable
    with pytest.raises(BudgetExceeded) as given:
        structspec.compile({}, limits=structspec.Limits(states=2))
    assert "structspec.Limits(states=" in str(given.value) and given.value.adjustable


@pytest.mark.parametrize(
    "options", [{"default_dialect": 3}, {"resources": 3}, {"resources": {1: {}}}, {"limits": 3}]
)
def test_options_of_the_wrong_type_are_named(options: dict[str, Any]) -> None:
    with pytest.raises(SchemaError, match=next(iter(options))):
        structspec.compile({}, **options)


@pytest.mark.parametrize("tp", [Annotated[str, Field(pattern="(?=a)")], Literal[()]])
def test_types_that_pydantic_refuses_are_schema_errors(tp: Any) -> None:
    with pytest.raises(SchemaError):
        structspec.compile(tp)


@pytest.mark.parametrize("order", ["declared", "any"])
def test_finitely_many_open_keys_occur_once_each(order: Any) -> None:
    schema = {
        "type": "object",
        "propertyNames": {"enum": ["red", "blue"]},
        "additionalProperties": {"type": "integer"},
        "minProperties": 2,
    }
    grammar = structspec.compile(schema, key_order=order)
    assert grammar.accepts('{"red": 1, "blue": 2}')
    for text in ('{"blue": 1, "blue": 2}', '{"blue": 1}', '{"red": 1, "blue": 2, "x": 3}'):
        assert not grammar.accepts(text)


def test_an_empty_language_is_known() -> None:
    assert structspec.compile({"type": "integer", "minimum": 5, "maximum": 4}).is_empty
    assert not structspec.compile({"type": "integer"}).is_empty


def test_only_text_can_be_judged() -> None:
    with pytest.raises(TypeError, match="int"):
        structspec.compile({}).accepts(10**9)  # type: ignore[arg-type]
