"""The keywords of each draft: which exist, what shape their values have, which assert something.

Owns one table. A keyword that the table lacks for a draft is unknown there and hence an annotation;
`hint` says why the author may have expected otherwise (a keyword of another draft, a misspelling).
The shapes are those of the drafts' metaschemas; they are checked here and not with a validator
because a validator's time and recursion depth grow too fast for documents of megabytes.

Example::

    >>> from structspec.frontends.jsonschema.keywords import keyword_of
    >>> keyword_of("prefixItems", 7) is None, keyword_of("prefixItems", 2020).role
    (True, 'assertion')
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from functools import cache
from typing import Any, Literal, TypeAlias

from structspec.integers import is_int

__all__ = [
    "SUBSCHEMA_SHAPES",
    "TYPES",
    "Keyword",
    "asserting",
    "handling",
    "hint",
    "keyword_of",
    "overridden",
    "subschemas",
]

Role: TypeAlias = Literal["assertion", "annotation", "core"]

TYPES = ("null", "boolean", "number", "integer", "string", "array", "object")


#: The shapes of keywords that hold subschemas.
SUBSCHEMA_SHAPES = frozenset(
    {"schema_map", "dependencies", "schemas", "schema_or_schemas", "schema", "bool_or_schema"}
)


@dataclass(frozen=True, slots=True)
class Keyword:
    """One keyword in one span of drafts; `shape` names the form that its value must have."""

    name: str
    since: int
    until: int
    shape: str
    role: Role


def _rows(since: int, until: int, role: Role, **shapes: str) -> Iterator[Keyword]:
    for shape, names in shapes.items():
        for name in names.split():
            yield Keyword(name, since, until, shape, role)


_TABLE: tuple[Keyword, ...] = (
    *_rows(
        4,
        2020,
        "assertion",
        types="type",
        list="enum",
        number="minimum maximum",
        positive="multipleOf",
        count="minLength maxLength minItems maxItems minProperties maxProperties",
        string="pattern format $ref",
        boolean="uniqueItems",
        strings="required",
        schema_map="properties patternProperties",
        schema="not",
        schemas="allOf anyOf oneOf",
    ),
    *_rows(4, 4, "assertion", boolean="exclusiveMinimum exclusiveMaximum"),
    *_rows(4, 4, "assertion", bool_or_schema="additionalProperties additionalItems"),
    *_rows(6, 2020, "assertion", number="exclusiveMinimum exclusiveMaximum", any="const"),
    *_rows(6, 2020, "assertion", schema="additionalProperties propertyNames contains"),
    *_rows(6, 2019, "assertion", schema="additionalItems"),
    *_rows(4, 2019, "assertion", schema_or_schemas="items"),
    *_rows(2020, 2020, "assertion", schema="items", schemas="prefixItems", string="$dynamicRef"),
    *_rows(4, 7, "assertion", dependencies="dependencies"),
    *_rows(7, 2020, "assertion", schema="if then else"),
    *_rows(
        2019,
        2020,
        "assertion",
        schema_map="dependentSchemas",
        strings_map="dependentRequired",
        count="minContains maxContains",
        schema="unevaluatedItems unevaluatedProperties",
    ),
    *_rows(2019, 2019, "assertion", string="$recursiveRef"),
    *_rows(4, 2020, "core", string="$schema"),
    *_rows(4, 4, "core", string="id"),
    *_rows(6, 2020, "core", string="$id"),
    *_rows(4, 2020, "core", schema_map="definitions"),
    *_rows(2019, 2020, "core", schema_map="$defs", string="$anchor", any="$vocabulary"),
    *_rows(2019, 2019, "core", boolean="$recursiveAnchor"),
    *_rows(2020, 2020, "core", string="$dynamicAnchor"),
    *_rows(4, 2020, "annotation", string="title description", any="default"),
    *_rows(6, 2020, "annotation", any="examples"),
    *_rows(7, 2020, "annotation", string="$comment contentEncoding contentMediaType"),
    *_rows(7, 2020, "annotation", boolean="readOnly writeOnly"),
    *_rows(2019, 2020, "annotation", boolean="deprecated", schema="contentSchema"),
)


@cache
def _by_name(draft: int) -> dict[str, Keyword]:
    return {row.name: row for row in _TABLE if row.since <= draft <= row.until}


@cache
def asserting(draft: int) -> frozenset[str]:
    """The keywords of a draft that say something about values."""
    return frozenset(name for name, row in _by_name(draft).items() if row.role == "assertion")


@dataclass(frozen=True, slots=True)
class Handling:
    """How a walk deals with a keyword of a draft."""

    keyword: Keyword
    #: What is wrong with a value in a draft, subschemas aside (which value the caller shows,
    #: unless it is a list of which one is named); None if nothing can be.
    check: Callable[[Any, int], str | None] | None
    #: Values of exactly this type have the right shape.
    easy: type | None
    #: A ``$ref`` beside it makes it void, where it does so at all.
    voided: bool
    #: Whether it holds subschemas.
    holds: bool
    #: Whether its subschemas may be true or false.
    booleans: bool


_EASY: dict[str, type] = {
    "boolean": bool,
    "list": list,
    "number": int,
    "schema": dict,
    "schema_map": dict,
    "schema_or_schemas": dict,
    "bool_or_schema": dict,
    "string": str,
}


@cache
def handling(draft: int) -> dict[str, Handling]:
    """The keywords of a draft by name, as a walk deals with them."""
    return {
        name: Handling(
            row,
            None if row.shape == "any" else _CHECKS[row.shape],
            _EASY.get(row.shape),
            name != "$ref" and (row.shape != "schema_map" or row.role != "core"),
            row.shape in SUBSCHEMA_SHAPES,
            draft != 4 or row.shape == "bool_or_schema",
        )
        for name, row in _by_name(draft).items()
    }


def keyword_of(name: str, draft: int) -> Keyword | None:
    """The keyword as `draft` defines it, or None if it does not."""
    return _by_name(draft).get(name)


def overridden(schema: dict[str, Any], draft: int) -> bool:
    """Whether ``$ref`` makes everything beside it void, as the drafts up to 7 demand."""
    return draft <= 7 and isinstance(schema.get("$ref"), str)


def hint(name: str, draft: int) -> str:
    """Why an unknown keyword may be a mistake of the author ('' if nothing suggests one)."""
    for row in _TABLE:
        if row.name == name and row.role == "assertion":
            span = f"{row.since}" if row.since == row.until else f"{row.since} to {row.until}"
            return f"not a keyword of this draft (it is one of draft {span}), so it has no effect"
    known = _by_letters(draft).get(_letters(name))
    if known is not None:
        return f"unknown keyword, so it has no effect; did you mean '{known}'?"
    return "unknown keyword, so it has no effect"


def _letters(name: str) -> str:
    """The same for names in another case, or with letters in another order."""
    return "".join(sorted(name.lower()))


@cache
def _by_letters(draft: int) -> dict[str, str]:
    return {_letters(name): name for name in _by_name(draft)}


def subschemas(keyword: Keyword, value: Any) -> list[tuple[tuple[str, ...], Any]]:
    """The subschemas in the value of a keyword, each with its path below the keyword."""
    shape = keyword.shape
    if shape == "schema_map":
        return [((name,), sub) for name, sub in value.items()]
    if shape == "dependencies":
        return [((name,), sub) for name, sub in value.items() if not isinstance(sub, list)]
    if shape == "schemas" or (shape == "schema_or_schemas" and isinstance(value, list)):
        return [((str(index),), sub) for index, sub in enumerate(value)]
    return [((), value)] if shape in SUBSCHEMA_SHAPES else []


def _is_number(value: Any) -> bool:
    return isinstance(value, int | Decimal) and not isinstance(value, bool)


def _is_schema(value: Any, draft: int) -> bool:
    return isinstance(value, dict) or (isinstance(value, bool) and draft != 4)


def _any(value: Any, draft: int) -> str | None:
    return None


def _string(value: Any, draft: int) -> str | None:
    return None if isinstance(value, str) else "must be a string"


def _boolean(value: Any, draft: int) -> str | None:
    return None if isinstance(value, bool) else "must be true or false"


def _number(value: Any, draft: int) -> str | None:
    return None if _is_number(value) else "must be a number"


def _positive(value: Any, draft: int) -> str | None:
    return None if _is_number(value) and value > 0 else "must be a number above 0"


def _count(value: Any, draft: int) -> str | None:
    return None if is_int(value, 0) else "must be an integer of at least 0"


def _list(value: Any, draft: int) -> str | None:
    return None if isinstance(value, list) else "must be an array"


def _strings(value: Any, draft: int) -> str | None:
    if isinstance(value, bool) and draft == 4:
        return "must be an array of property names (draft 3 wrote true or false here)"
    good = isinstance(value, list) and all(isinstance(item, str) for item in value)
    return None if good else "must be an array of strings"


def _types(value: Any, draft: int) -> str | None:
    if type(value) is str and value in TYPES:
        return None
    names = value if isinstance(value, list) else [value]
    for name in names:
        if not isinstance(name, str) or name not in TYPES:
            known = ", ".join(TYPES)
            if isinstance(value, list):
                return f"must hold only types ({known}), so {name!r} cannot stand in it"
            return f"must be one of {known}"
    return None if names else "must name at least one type"


def _schema(value: Any, draft: int) -> str | None:
    if _is_schema(value, draft):
        return None
    return "must be a schema, that is an object" + ("" if draft == 4 else ", true or false")


def _bool_or_schema(value: Any, draft: int) -> str | None:
    return None if isinstance(value, bool | dict) else "must be a schema, true or false"


def _schemas(value: Any, draft: int) -> str | None:
    if not isinstance(value, list) or not value:
        return "must be an array of at least one schema"
    return None


def _schema_or_schemas(value: Any, draft: int) -> str | None:
    if isinstance(value, list):
        return None
    return _bool_or_schema(value, draft) and "must be a schema or an array of schemas"


def _map(value: Any, draft: int) -> str | None:
    return None if isinstance(value, dict) else "must be an object"


def _strings_map(value: Any, draft: int) -> str | None:
    if not isinstance(value, dict) or any(_strings(names, 2020) for names in value.values()):
        return "must be an object whose values are arrays of strings"
    return None


def _dependencies(value: Any, draft: int) -> str | None:
    if not isinstance(value, dict):
        return "must be an object"
    for names in value.values():
        if not _is_schema(names, draft) and _strings(names, 2020):
            return "must be an object whose values are schemas or arrays of strings"
    return None


_CHECKS: dict[str, Callable[[Any, int], str | None]] = {
    "any": _any,
    "bool_or_schema": _bool_or_schema,
    "boolean": _boolean,
    "count": _count,
    "dependencies": _dependencies,
    "list": _list,
    "number": _number,
    "positive": _positive,
    "schema": _schema,
    "schema_map": _map,
    "schema_or_schemas": _schema_or_schemas,
    "schemas": _schemas,
    "string": _string,
    "strings": _strings,
    "strings_map": _strings_map,
    "types": _types,
}
