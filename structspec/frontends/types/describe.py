"""`describe`: one Python type, or one schema, as a `TypeSpec`.

Pydantic is imported when the first type is described: it takes long, and schemas do not need it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from os import PathLike
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import TYPE_CHECKING, Any, get_origin

from structspec.errors import SchemaError
from structspec.frontends.jsonschema.exact import read_text

if TYPE_CHECKING:
    from pydantic import TypeAdapter

__all__ = ["TypeSpec", "describe"]

_KINDS = (
    "a pydantic model, a dataclass, a TypedDict, Literal, an Enum, a union, list, tuple, dict, "
    "a primitive, Annotated, or a JSON Schema (dict, bool or JSON text)"
)


@dataclass(frozen=True)
class TypeSpec:
    """What a type means: its JSON Schema, how a JSON value becomes a value of it, its name.

    `parse` takes a JSON value (as `json.loads` gives it). For plain schemas it returns the value
    unchanged; for types it validates through pydantic (not strictly) and raises
    `pydantic.ValidationError` if the value does not fit.
    """

    schema: dict[str, Any] | bool
    parse: Callable[[Any], Any]
    name: str
    #: The type, None for schemas.
    type: Any = field(default=None, compare=False, repr=False)

    def __reduce__(self) -> tuple[Any, ...]:
        """Types are pickled by name, and described again."""
        if self.type is not None:
            return describe, (self.type,)
        return TypeSpec, (self.schema, self.parse, self.name)


def describe(tp: Any) -> TypeSpec:
    """The schema, the parser and the name of a type; schemas pass through as they are.

    Raises SchemaError if `tp` is neither a type that has a JSON Schema nor a schema.
    """
    if isinstance(tp, bool):
        return TypeSpec(tp, _identity, "schema")
    if isinstance(tp, Mapping):
        schema = dict(tp)
        return TypeSpec(schema, _identity, _title(schema))
    if isinstance(tp, str):
        return _from_text(tp)
    from pydantic import TypeAdapter
    from pydantic.errors import PydanticInvalidForJsonSchema

    from structspec.frontends.types.closed import ClosedJsonSchema

    adapter = tp if isinstance(tp, TypeAdapter) else _adapter(tp)
    try:
        schema = adapter.json_schema(mode="validation", schema_generator=ClosedJsonSchema)
    except PydanticInvalidForJsonSchema as error:
        raise SchemaError(
            f"{_name(tp)} has no JSON Schema: {_first_line(error)}; annotate the field with a "
            "type that JSON can hold, or with pydantic.WithJsonSchema"
        ) from error
    except Exception as error:  # pydantic and the types' own hooks raise many kinds here
        raise SchemaError(f"{_name(tp)} cannot be described: {_first_line(error)}") from error
    return TypeSpec(schema, adapter.validate_python, _name(tp), tp)


def _identity(value: Any) -> Any:
    return value


def _from_text(text: str) -> TypeSpec:
    try:
        schema = read_text(text)
    except SchemaError as error:
        if text.lstrip()[:1] in ("{", "t", "f"):
            raise
        raise SchemaError(
            f"{text[:40]!r} is neither a type nor the JSON text of a schema; pass {_KINDS}. No "
            "file is read: pass what it holds; grammars and patterns need syntax="
        ) from error
    if not isinstance(schema, dict | bool):
        raise SchemaError(
            f"the JSON text {text[:40]!r} is not a schema (an object, true or false)", pointer=""
        )
    return TypeSpec(schema, _identity, _title(schema))


def _adapter(tp: Any) -> TypeAdapter[Any]:
    from pydantic import TypeAdapter
    from pydantic.errors import PydanticSchemaGenerationError

    if tp is None:
        raise SchemaError(
            f"None is not an output type; write type(None) for null, or pass {_KINDS}"
        )
    if _is_record(tp) and not isinstance(tp, type):
        kind = type(tp).__name__
        raise SchemaError(
            f"a value of type {kind} is no output type; did you mean the class {kind}?"
        )
    if isinstance(tp, PathLike | bytes | bytearray):
        how = ".read_text()" if isinstance(tp, PathLike) else '.decode("utf-8")'
        raise SchemaError(
            f"a value of type {type(tp).__name__} is no output type; pass the text of a schema "
            f"(value{how})"
        )
    if not _looks_like_type(tp):
        raise SchemaError(f"a value of type {type(tp).__name__} is no output type; pass {_KINDS}")
    try:
        return TypeAdapter(tp)
    except PydanticSchemaGenerationError as error:
        raise SchemaError(
            f"{_name(tp)} is not a type that can be generated: {_first_line(error)}; pass {_KINDS}"
        ) from error
    except Exception as error:  # pydantic and the types' own hooks raise many kinds here
        raise SchemaError(f"{_name(tp)} cannot be described: {_first_line(error)}") from error


def _looks_like_type(tp: Any) -> bool:
    if isinstance(tp, type) or get_origin(tp) is not None:
        return True
    # Any, NewType, aliases and unions are instances of typing's own classes; functions are not.
    return type(tp).__module__ in ("typing", "typing_extensions", "types") and not isinstance(
        tp, FunctionType | BuiltinFunctionType | MethodType | ModuleType
    )


def _is_record(value: Any) -> bool:
    from pydantic import BaseModel

    return isinstance(value, BaseModel) or hasattr(value, "__dataclass_fields__")


def _name(tp: Any) -> str:
    name = getattr(tp, "__name__", None)
    if isinstance(name, str) and get_origin(tp) is None:
        return name
    return str(tp).replace("typing.", "")


def _title(schema: dict[str, Any] | bool) -> str:
    title = schema.get("title") if isinstance(schema, dict) else None
    return title if isinstance(title, str) and title else "schema"


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")
