"""Annotations as text, evaluated at once, or (from Python 3.14 on) when somebody asks."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

import structspec
from structspec.errors import SchemaError, ToolError
from structspec.signatures import argument_names
from structspec.tools import Tool

LAZY = sys.version_info >= (3, 14)
#: How a name is written that is not there yet.
FORMS = ["'{}'", *(["{}"] if LAZY else [])]


Run = Callable[..., dict[str, Any]]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Run:
    """Executes a module, without this file's `from __future__ import annotations`."""

    def execute(source: str, form: str, *names: str) -> dict[str, Any]:
        module = ModuleType("annotated_module")
        monkeypatch.setitem(sys.modules, module.__name__, module)
        code = source.format(*(form.format(name) for name in names))
        exec(compile(code, "<module>", "exec", dont_inherit=True), module.__dict__)
        return module.__dict__

    return execute


TYPES = """
import dataclasses
import typing_extensions
import pydantic

class Model(pydantic.BaseModel):
    inner: {0}

class Typed(typing_extensions.TypedDict):
    inner: {0}

@dataclasses.dataclass
class Data:
    inner: {0}

class Point(pydantic.BaseModel):
    x: int
"""


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", ["Model", "Typed", "Data"])
def test_types_may_name_what_is_defined_below(run: Run, form: str, kind: str) -> None:
    grammar = structspec.compile(run(TYPES, form, "Point")[kind])
    assert grammar.accepts('{"inner": {"x": 1}}')
    assert not grammar.accepts('{"inner": 1}')


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", ["Model", "Typed", "Data"])
def test_types_that_name_nothing_are_refused(run: Run, form: str, kind: str) -> None:
    with pytest.raises(SchemaError, match=r"cannot be described|not a type"):
        structspec.compile(run(TYPES, form, "Nowhere")[kind])


@pytest.mark.parametrize("form", FORMS)
def test_functions_that_name_nothing_are_refused(run: Run, form: str) -> None:
    function = run('def ask(x: {0}) -> {1}:\n    "{{{{ x }}}}"', form, "Nowhere", "int")["ask"]
    with pytest.raises(SchemaError, match="Nowhere"):
        structspec.structured()(function)
    with pytest.raises(ToolError, match="Nowhere"):
        Tool.from_function(function)


@pytest.mark.parametrize("form", ["{}", "'{}'"])
def test_functions_are_read_with_their_annotations(run: Run, form: str) -> None:
    source = """
import structspec
from structspec.tools import Tool

@structspec.structured()
def ask(x: {0} = 3) -> {1}:
    "{{{{ x }}}}"

@Tool.from_function
def add(a: {0}, b: {0} = 2) -> {0}:
    \"\"\"Add.

        Indented further.
    \"\"\"
    return a + b
"""
    module = run(source, form, "int", "list[int]")
    assert module["ask"].spec.output_type == list[int]
    assert list(inspect.signature(module["ask"]).parameters) == ["x"]
    assert module["add"].run({"a": 1}) == 3
    assert module["add"].parameters["properties"]["b"] == {"default": 2, "type": "integer"}
    # A decorated function is a tool as well.
    assert Tool.from_function(module["ask"]).parameters["properties"]["x"]["type"] == "integer"


@pytest.mark.parametrize("form", FORMS)
def test_a_network_may_have_annotations_for_type_checkers_alone(run: Run, form: str) -> None:
    source = "class Network:\n    def forward(self, ids: {0}, *args, cache=None, **kwargs): ..."
    network = run(source, form, "Nowhere")["Network"]()
    assert argument_names(network.forward) == {"ids", "args", "cache", "kwargs"}
