"""Pydantic's JSON Schema generator with closed records and tagged unions as `anyOf`.

Pydantic leaves records open because it ignores extra members on validation. A generated member
that is then thrown away is a waste of tokens and hides mistakes, so records are closed unless their
configuration says ``extra="allow"`` (then pydantic itself writes ``additionalProperties: true``).
"""

from __future__ import annotations

from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

__all__ = ["ClosedJsonSchema"]


class ClosedJsonSchema(GenerateJsonSchema):
    """See the module."""

    # Warnings about defaults that JSON cannot hold do not concern the grammar.
    ignored_warning_kinds = {"skipped-choice", "non-serializable-default"}  # noqa: RUF012

    def model_schema(self, schema: core_schema.ModelSchema) -> JsonSchemaValue:
        """A model, closed."""
        return _closed(super().model_schema(schema))

    def dataclass_schema(self, schema: core_schema.DataclassSchema) -> JsonSchemaValue:
        """A dataclass, closed."""
        return _closed(super().dataclass_schema(schema))

    def typed_dict_schema(self, schema: core_schema.TypedDictSchema) -> JsonSchemaValue:
        """A TypedDict, closed."""
        return _closed(super().typed_dict_schema(schema))

    def tagged_union_schema(self, schema: core_schema.TaggedUnionSchema) -> JsonSchemaValue:
        """A union tagged by a member is an `anyOf`; one tagged by a function stays a `oneOf`."""
        described = super().tagged_union_schema(schema)
        if isinstance(schema["discriminator"], str) and "oneOf" in described:
            described["anyOf"] = described.pop("oneOf")
        return described


def _closed(schema: JsonSchemaValue) -> JsonSchemaValue:
    if schema.get("type") == "object" and "properties" in schema:
        schema.setdefault("additionalProperties", False)
    return schema
