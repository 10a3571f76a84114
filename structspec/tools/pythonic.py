"""Calls in Python's notation: their grammar, and the reading of argument values.

The grammar comes from the JSON Schema front end with two words changed: `True`, `False` and `None`
for the JSON literals, and keywords (`name=value`) for the members of the arguments. Strings are
spelled canonically, and every canonical JSON string is the same string in Python.

Limits: see `formats.pythonic`.

Example::

    >>> from structspec.frontends.jsonschema import SchemaOptions
    >>> from structspec.tools.definition import Tool
    >>> parameters = {"type": "object", "properties": {"x": {"type": "boolean"}}}
    >>> grammar = call_grammar(Tool("f", parameters=parameters), SchemaOptions())
    >>> grammar.start
    'root'
"""

from __future__ import annotations

import ast
import json
import keyword
import math
import unicodedata
from dataclasses import replace
from typing import Any

from structspec import ir
from structspec.errors import UnsupportedFeature
from structspec.frontends.jsonschema import SchemaOptions
from structspec.frontends.jsonschema.algebra import Form
from structspec.frontends.jsonschema.goals import TRUE, Goal
from structspec.frontends.jsonschema.load import load
from structspec.frontends.jsonschema.lower import Lowering
from structspec.frontends.jsonschema.normal import Normaliser
from structspec.frontends.jsonschema.objects import ObjectShape
from structspec.frontends.jsonschema.places import Atlas
from structspec.tools.definition import Tool

__all__ = ["call_grammar", "literal_value", "python_text"]


def call_grammar(tool: Tool, options: SchemaOptions) -> ir.GrammarIR:
    """The grammar of `name(argument=value, …)` for one tool.

    Raises UnsupportedFeature for a name that Python does not allow, and for arguments that are
    not a plain record.
    """
    if not all(_identifier(part) for part in tool.name.split(".")):
        raise UnsupportedFeature(
            tool.name, "", "the pythonic format writes names that Python allows, with dots"
        )
    options = replace(options, spelling="canonical", whitespace="conventional")
    atlas = Atlas(load(tool.schema(), options), options)
    return _PythonLowering(atlas, Normaliser(atlas, options), options, tool.name).grammar()


class _PythonLowering(Lowering):
    """Lowers values as Python literals, and the root as a call with its members as keywords."""

    def __init__(
        self, atlas: Atlas, normaliser: Normaliser, options: SchemaOptions, name: str
    ) -> None:
        super().__init__(atlas, normaliser, options)
        self._name_to_call: str | None = name

    def value(self, goal: Goal) -> ir.Node:
        """As for JSON, except that the first value asked for, the root's, is the call."""
        name, self._name_to_call = self._name_to_call, None
        if name is None:
            return super().value(goal)
        form = self.normaliser.form(goal)
        self.refuse(form.refusals)
        arguments = ir.choice([self._keywords(shape) for shape in form.objects])
        return ir.sequence((ir.Bytes(f"{name}(".encode()), arguments, ir.Bytes(b")")))

    def _keywords(self, shape: ObjectShape) -> ir.Node:
        self.refuse(shape.refusals)
        for found, what in (
            (shape.cells, "patternProperties"),
            (shape.demands, "contains"),
            (shape.names != TRUE, "propertyNames"),
        ):
            if found:
                raise UnsupportedFeature(
                    what, "", "the pythonic format writes declared arguments only"
                )
        members = []
        for name, goal, required in shape.members():
            value = self.value(goal)
            if not _identifier(name):
                if value == ir.NOTHING and not required:
                    continue
                raise UnsupportedFeature(
                    "properties",
                    f"/properties/{name}",
                    f"{name!r} is no name of an argument in Python",
                )
            members.append(ir.Member(ir.Bytes(f"{name}=".encode()), value, required))
        order = self.options.key_order
        return ir.Members(tuple(members), ir.Bytes(b", "), order, shape.fewest, shape.most)

    def _form(self, form: Form) -> ir.Node:
        words = [ir.Bytes(b"None")] if form.null else []
        words += (ir.Bytes(b"True" if flag else b"False") for flag in sorted(form.booleans)[::-1])
        rest = super()._form(replace(form, null=False, booleans=frozenset()))
        return ir.choice([*words, rest]) if words else rest


def literal_value(text: str) -> Any:
    """The JSON value that a Python literal stands for. Raises ValueError if there is none."""
    try:
        value = ast.literal_eval(text.strip())
    except (ValueError, SyntaxError, MemoryError, RecursionError, TypeError) as error:
        raise ValueError(f"no literal of Python: {str(error).splitlines()[0]}") from None
    _check_json(value)
    return value


def python_text(value: Any) -> str:
    """A JSON value as the literal that the grammar would write."""
    if value is None or isinstance(value, bool):
        return repr(value)
    if isinstance(value, dict):
        members = (f"{python_text(k)}: {python_text(v)}" for k, v in value.items())
        return "{" + ", ".join(members) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(python_text, value)) + "]"
    return json.dumps(value, ensure_ascii=False)


def _check_json(value: Any) -> None:
    if isinstance(value, dict):
        for key, item in value.items():
            if not isinstance(key, str):
                raise ValueError(f"the key {key!r} is no text")
            _check_json(item)
    elif isinstance(value, list):
        for item in value:
            _check_json(item)
    elif isinstance(value, str):
        value.encode()  # UnicodeEncodeError is a ValueError: half of a surrogate pair
    elif isinstance(value, float) and math.isnan(value):
        raise ValueError("not a number")
    elif value is not None and not isinstance(value, bool | int | float):
        raise ValueError(f"a {type(value).__name__} is no JSON value")


def _identifier(name: str) -> bool:
    plain = unicodedata.normalize("NFKC", name) == name  # Python compares names in this form
    return plain and name.isidentifier() and not keyword.iskeyword(name)
