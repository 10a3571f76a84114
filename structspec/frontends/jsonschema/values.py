"""`enum` and `const`: finite sets of JSON values as normal forms.

Equality is that of JSON: numbers by value (``1`` is ``1.0``), true is not 1, arrays in order,
objects regardless of the order of keys. Containers become shapes whose children are constants, so
sibling keywords restrict them like any other array or object.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from structspec.frontends.jsonschema.algebra import Form
from structspec.frontends.jsonschema.arrays import ArrayShape
from structspec.frontends.jsonschema.budget import expect, spend
from structspec.frontends.jsonschema.goals import FALSE
from structspec.frontends.jsonschema.numbers import number_points
from structspec.frontends.jsonschema.objects import ObjectShape
from structspec.frontends.jsonschema.places import CONSTANT, Atlas
from structspec.frontends.jsonschema.strings import StringShape

__all__ = ["form_of_values"]


# Units for each array or object among the values: shape, forms and rules of its own.
_CONTAINER = 150


def form_of_values(values: list[Any], atlas: Atlas) -> Form:
    """The normal form of exactly these values."""
    spend(_CONTAINER * sum(isinstance(value, list | dict) for value in values))
    null = False
    booleans: set[bool] = set()
    numbers: list[int | Decimal] = []
    strings: dict[str, None] = {}
    arrays: dict[ArrayShape, None] = {}
    objects: dict[ObjectShape, None] = {}
    for value in values:
        if value is None:
            null = True
        elif isinstance(value, bool):
            booleans.add(value)
        elif isinstance(value, str):
            strings[value] = None
        elif isinstance(value, list):
            expect(CONSTANT * len(value))
            items = tuple(atlas.constant(item) for item in value)
            arrays[ArrayShape(items, FALSE, len(items), len(items))] = None
        elif isinstance(value, dict):
            expect(CONSTANT * len(value))
            members = tuple((name, atlas.constant(item)) for name, item in value.items())
            objects[ObjectShape(members, tuple(value), FALSE)] = None
        else:
            numbers.append(value)
    return Form(
        null,
        frozenset(booleans),
        (number_points(numbers),) if numbers else (),
        (StringShape(values=tuple(strings)),) if strings else (),
        tuple(arrays),
        tuple(objects),
    )
