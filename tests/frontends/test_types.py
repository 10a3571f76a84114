from __future__ import annotations

import enum
import importlib.util
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, NotRequired

import pytest
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from typing_extensions import TypedDict

from structspec.errors import SchemaError
from structspec.frontends.jsonschema import SchemaOptions, lower_schema
from structspec.frontends.types import describe

_path = Path(__file__).parent / "ir_reference.py"
_spec = importlib.util.spec_from_file_location("ir_reference", _path)
assert _spec is not None and _spec.loader is not None
ir_reference = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(ir_reference)


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Cat(BaseModel):
    kind: Literal["cat"]
    lives: int = 9


class Dog(BaseModel):
    kind: Literal["dog"]
    barks: float


class Node(BaseModel):
    value: int
    children: list[Node] = []


class Open(BaseModel):
    model_config = ConfigDict(extra="allow")
    a: int


class Movie(TypedDict):
    title: str
    year: NotRequired[int]


@dataclass
class Point:
    x: int
    y: int = 0


class Pair(BaseModel):
    first: Point
    colour: Colour | None = None


def accepts(tp: Any, text: str) -> bool:
    grammar, _ = lower_schema(describe(tp).schema, SchemaOptions())
    return bool(ir_reference.accepts(grammar, text))


@pytest.mark.parametrize(
    ("tp", "good", "bad"),
    [
        (int, ["1", "-20"], ['"1"', "1.5", "true"]),
        (bool, ["true"], ["1"]),
        (type(None), ["null"], ["0"]),
        (Literal["a", 1], ['"a"', "1"], ['"1"', "true"]),
        (Colour, ['"red"'], ['"RED"', '"green"']),
        (int | None, ["null", "3"], ['"x"']),
        (list[int], ["[]", "[1,2]"], ['["a"]']),
        (tuple[int, str], ['[1,"a"]'], ["[1]", '[1,"a",2]']),
        (dict[str, bool], ["{}", '{"a":true}'], ['{"a":1}']),
        (Annotated[int, Field(ge=2, lt=5)], ["2", "4"], ["1", "5"]),
        (Annotated[str, Field(max_length=2)], ['"ab"'], ['"abc"']),
        (Annotated[list[int], Field(min_length=1)], ["[1]"], ["[]"]),
        (Movie, ['{"title":"t"}', '{"title":"t","year":1}'], ["{}", '{"title":"t","x":1}']),
        (Point, ['{"x":1}', '{"x":1,"y":2}'], ['{"y":2}', '{"x":1,"z":2}']),
        (Pair, ['{"first":{"x":1}}', '{"first":{"x":1},"colour":null}'], ['{"first":{}}']),
        (Open, ['{"a":1}', '{"a":1,"b":[2]}'], ['{"b":1}']),
        (Node, ['{"value":1,"children":[{"value":2}]}'], ['{"value":1,"children":[{}]}']),
    ],
)
def test_a_type_generates_its_values_and_no_others(
    tp: Any, good: list[str], bad: list[str]
) -> None:
    for text in good:
        assert accepts(tp, text), text
    for text in bad:
        assert not accepts(tp, text), text


def test_models_are_closed_unless_they_allow_extras() -> None:
    assert describe(Cat).schema["additionalProperties"] is False  # type: ignore[index]
    assert describe(Open).schema["additionalProperties"] is True  # type: ignore[index]
    nested = describe(Pair).schema["$defs"]["Point"]  # type: ignore[index]
    assert nested["additionalProperties"] is False


def test_a_tagged_union_becomes_an_any_of() -> None:
    pet = Annotated[Cat | Dog, Field(discriminator="kind")]
    schema = describe(pet).schema
    assert isinstance(schema, dict)
    assert "oneOf" not in schema and len(schema["anyOf"]) == 2
    assert accepts(pet, '{"kind":"dog","barks":1.5}')
    assert not accepts(pet, '{"kind":"cat","barks":1.5}')
    assert isinstance(describe(pet).parse({"kind": "cat"}), Cat)


def test_an_untagged_union_of_models_compiles() -> None:
    assert accepts(Cat | Dog, '{"kind":"cat"}')


def test_parse_gives_values_of_the_type() -> None:
    assert describe(Pair).parse({"first": {"x": 1}, "colour": "red"}) == Pair(
        first=Point(1), colour=Colour.RED
    )
    assert describe(tuple[int, str]).parse([1, "a"]) == (1, "a")
    assert describe(int).parse("3") == 3
    with pytest.raises(ValidationError):
        describe(Point).parse({})


def test_names_are_readable() -> None:
    assert describe(Cat).name == "Cat"
    assert describe(list[int]).name == "list[int]"
    assert describe({"title": "Order", "type": "object"}).name == "Order"


@pytest.mark.parametrize("schema", [{"type": "integer"}, True, False, {}])
def test_plain_schemas_pass_through(schema: Any) -> None:
    spec = describe(schema)
    assert spec.schema == schema
    value = object()
    assert spec.parse(value) is value


def test_json_text_passes_through() -> None:
    assert describe('{"const": 1.5}').schema["const"] * 2 == 3  # type: ignore[index, operator]
    assert describe("true").schema is True


@pytest.mark.parametrize("bad", [None, 3, 2.5, [1], b"{}", object(), Point(1), len, lambda: 0])
def test_what_is_no_type_is_refused_with_help(bad: Any) -> None:
    with pytest.raises(SchemaError, match="type"):
        describe(bad)


def test_an_instance_gets_its_class_suggested() -> None:
    with pytest.raises(SchemaError, match="did you mean the class Point"):
        describe(Point(1))


def test_a_class_without_a_schema_is_refused_with_help() -> None:
    class Opaque:
        pass

    with pytest.raises(SchemaError, match="Opaque"):
        describe(Opaque)


def test_broken_json_text_tells_line_and_column() -> None:
    with pytest.raises(SchemaError) as caught:
        describe('{"type":\n "integer"]')
    assert (caught.value.line, caught.value.column) == (2, 11)
    with pytest.raises(SchemaError, match="neither a type nor"):
        describe("integer")
