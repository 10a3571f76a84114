"""The types front end: Python types as JSON Schemas, and the way back from JSON to Python values.

`describe` takes pydantic models, dataclasses, TypedDicts, `Literal`, enums, unions, `list`,
`tuple`, `dict`, primitives, `Annotated` with pydantic constraints, or a JSON Schema as it is (dict,
bool, or its JSON text), and gives a `TypeSpec`: the schema, a function that turns a generated JSON
value into a Python value, and a name.

Pydantic writes the schema (in validation mode). Two things are made sharper than it writes them:
records without ``extra="allow"`` are closed, since an extra member would be dropped on parsing
anyway; and a union tagged by a member is an ``anyOf``, because its tags exclude each other.

Sibling: `structspec.frontends.jsonschema`, which lowers the schema.

Example::

    >>> from typing import Annotated
    >>> from pydantic import Field
    >>> from structspec.frontends.types import describe
    >>> spec = describe(dict[str, Annotated[int, Field(ge=1)]])
    >>> spec.schema["additionalProperties"]
    {'minimum': 1, 'type': 'integer'}
    >>> spec.parse({"a": 3})
    {'a': 3}
"""

from __future__ import annotations

from structspec.frontends.types.describe import TypeSpec, describe

__all__ = ["TypeSpec", "describe"]
