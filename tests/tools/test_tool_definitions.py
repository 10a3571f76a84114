"""Tools from functions, from OpenAI's form and from MCP servers; sets of them."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Annotated, Literal

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field

import structspec
from structspec import ToolSet, tool
from structspec.tools import Tool
from structspec.tools.definition import closed_schema
from structspec.tools.docstrings import describe_docstring


@dataclass
class Point:
    x: int


class Place(BaseModel):
    lat: float
    lon: float


@tool
def forecast(
    place: Place,
    days: Annotated[int, Field(ge=1, le=14)] = 3,
    unit: Literal["C", "F"] = "C",
    schema: str | None = None,
) -> str:
    """The forecast for a place.

    More than one line.

    Args:
        place: where
        days: how many days,
            at most two weeks
        unit: Celsius or Fahrenheit
    """
    return f"{place.lat} {days} {unit} {schema}"


def test_the_schema_comes_from_the_signature():
    properties = forecast.parameters["properties"]
    assert list(properties) == ["place", "days", "unit", "schema"]
    assert forecast.parameters["required"] == ["place"]
    assert forecast.parameters["additionalProperties"] is False
    assert (properties["days"]["minimum"], properties["days"]["default"]) == (1, 3)
    assert forecast.name == "forecast" and forecast.strict
    jsonschema.Draft202012Validator.check_schema(forecast.parameters)


def test_a_tool_is_called_like_its_function_and_run_with_the_arguments_of_a_call():
    assert forecast(Place(lat=1, lon=2)) == "1.0 3 C None"
    assert forecast.run({"place": {"lat": 1, "lon": 2}, "unit": "F"}) == "1.0 3 F None"
    with pytest.raises(structspec.ToolCallError, match="/days"):
        forecast.run({"place": {"lat": 1, "lon": 2}, "days": 0})
    with pytest.raises(structspec.ToolCallError, match="extra"):
        forecast.run({"place": {"lat": 1, "lon": 2}, "extra": 0})


DOCSTRINGS = {
    "google": "Add.\n\nArgs:\n    a: the first\n    b (int): the second\n        one\n",
    "numpy": "Add.\n\nParameters\n----------\na : int\n    the first\nb : int\n"
    "    the second\n    one\n",
    "rest": "Add.\n\n:param a: the first\n:param int b: the second\n    one\n",
}


@pytest.mark.parametrize("style", DOCSTRINGS)
def test_argument_descriptions_come_from_docstrings_of_three_styles(style):
    pytest.importorskip("docstring_parser", reason="needs the extra structspec[tools]")
    found = describe_docstring(DOCSTRINGS[style])
    assert found.summary == "Add."
    assert dict(found.arguments) == {"a": "the first", "b": "the second one"}


def test_an_annotation_describes_before_the_docstring_does():
    def add(
        a: Annotated[int, Field(description="own")], b: int = Field(2, description="two")
    ) -> int:
        """Add.

        :param a: other
        :param b: other
        """
        return a + b

    made = tool(add)
    assert made.parameters["properties"]["a"]["description"] == "own"
    assert made.parameters["properties"]["b"]["description"] == "two"
    assert made.run({"a": 1, "b": 5}) == 6


def test_without_the_docstring_package_the_first_paragraph_describes(monkeypatch):
    monkeypatch.setitem(sys.modules, "docstring_parser", None)
    found = describe_docstring(DOCSTRINGS["google"])
    assert (found.summary, dict(found.arguments)) == ("Add.", {})
    assert describe_docstring(None).summary == ""


def test_async_functions_are_tools_too():
    @tool(name="later", description="Waits.", strict=False)
    async def wait(seconds: float) -> str:
        await asyncio.sleep(0)
        return f"{seconds}"

    assert (wait.name, wait.description, wait.strict, wait.is_async) == (
        "later",
        "Waits.",
        False,
        True,
    )
    assert wait.run({"seconds": 1}) == "1.0"
    assert asyncio.run(wait.arun({"seconds": 2})) == "2.0"
    assert asyncio.run(forecast.arun({"place": {"lat": 1, "lon": 2}})) == "1.0 3 C None"


def test_methods_and_dataclass_arguments_work():
    class Store:
        def put(self, point: Point) -> int:
            """Put."""
            return point.x

    made = Tool.from_function(Store().put)
    assert list(made.parameters["properties"]) == ["point"]
    assert made.run({"point": {"x": 4}}) == 4


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda *args: None, "by name"),
        (lambda **options: None, "by name"),
        (eval("lambda a, /: a"), "by name"),
    ],
)
def test_parameters_that_cannot_be_named_are_refused(function, message):
    with pytest.raises(structspec.ToolError, match=message):
        Tool.from_function(function, name="f")


@pytest.mark.parametrize("name", ["", "a b", "é", "x" * 129, "a\n", "f(", 7])
def test_bad_names_are_typed_errors(name):
    with pytest.raises(structspec.ToolError, match="name"):
        Tool(name)


def test_bad_parameters_are_typed_errors():
    with pytest.raises(structspec.ToolError, match="'array'"):
        Tool("f", parameters={"type": "array"})
    with pytest.raises(structspec.ToolError, match="JSON Schema"):
        Tool("f", parameters=[1])
    with pytest.raises(structspec.ToolError):
        ToolSet([{"type": "retrieval"}])
    with pytest.raises(structspec.ToolError, match="no tool"):
        ToolSet([7])


def test_two_tools_of_one_name_are_a_typed_error():
    with pytest.raises(structspec.ToolError, match="'ping'") as caught:
        ToolSet([{"name": "ping"}, Tool("ping")])
    assert caught.value.name == "ping"


def test_an_unknown_tool_lists_the_names():
    with pytest.raises(structspec.ToolError, match="there are: ping"):
        ToolSet([Tool("ping")])["pong"]


def test_sets_come_from_openai_dicts_and_go_back():
    entry = {
        "type": "function",
        "function": {"name": "f", "description": "d", "parameters": {"type": "object"}},
    }
    assert ToolSet.from_openai([entry]).to_openai() == [entry]
    assert ToolSet.from_openai([entry])["f"].strict
    loose = {**entry, "function": {**entry["function"], "strict": False}}
    assert not ToolSet.from_openai([loose])["f"].strict
    assert ToolSet([loose], strict=True)["f"].strict


def test_sets_come_from_mcp_lists_as_data_and_as_objects():
    entry = {"name": "f", "description": "d", "inputSchema": {"type": "object"}}
    calls = []

    def call(name, arguments):
        calls.append((name, arguments))
        return "done"

    for result in ({"tools": [entry]}, [entry], SimpleNamespace(tools=[SimpleNamespace(**entry)])):
        tools = ToolSet.from_mcp(result, call=call)
        assert tools.names == ("f",) and tools["f"].description == "d"
        assert tools["f"].run({"a": 1}) == "done"
    assert calls == [("f", {"a": 1})] * 3

    async def remote(name, arguments):
        return [name, arguments]

    assert ToolSet.from_mcp([entry], call=remote)["f"].run({"b": 2}) == ["f", {"b": 2}]
    with pytest.raises(structspec.ToolError, match="no function"):
        ToolSet.from_mcp([entry])["f"].run({})
    with pytest.raises(structspec.ToolError, match=r'dict is no tools/list result.* "tools"'):
        ToolSet.from_mcp({"nothing": 1})


@pytest.mark.parametrize("given", [5, None, "get_weather", b"x"])
def test_what_is_no_set_of_tools_is_said_by_its_type(given):
    for make in (ToolSet, ToolSet.of):
        with pytest.raises(structspec.ToolError, match=f"this {type(given).__name__} is no set"):
            make(given)


OPEN = {
    "type": "object",
    "properties": {
        "a": {"type": "object", "properties": {"b": {"type": "integer"}}},
        "c": {"type": "array", "items": {"properties": {"d": {}}}},
        "e": {"anyOf": [{"properties": {"f": {}}}, {"type": "null"}]},
        "g": {"type": "object", "additionalProperties": {"type": "integer"}},
        "h": {"oneOf": [{"properties": {"i": {}}}, {"type": "null"}]},
    },
}


def test_strict_tools_close_the_records_that_do_not_say_whether_they_are_open():
    closed = closed_schema(OPEN)
    assert closed["additionalProperties"] is False
    properties = closed["properties"]
    assert properties["a"]["additionalProperties"] is False
    assert properties["c"]["items"]["additionalProperties"] is False
    assert properties["e"]["anyOf"][0]["additionalProperties"] is False
    assert properties["g"] == OPEN["properties"]["g"]
    assert properties["h"] == OPEN["properties"]["h"]
    assert Tool("f", parameters=OPEN, strict=False).schema() == OPEN


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(0, 3),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(st.sampled_from("abcdefghi"), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(VALUES)
def test_whatever_a_closed_schema_allows_the_open_one_allows(value):
    if jsonschema.Draft202012Validator(closed_schema(OPEN)).is_valid(value):
        assert jsonschema.Draft202012Validator(OPEN).is_valid(value)
