"""The drafts of JSON Schema, and how a schema names the one that it is written in.

Sibling: `dialects`, for metaschemas that build on a draft.

Example::

    >>> from structspec.frontends.jsonschema.drafts import draft_named
    >>> draft_named("http://json-schema.org/draft-07/schema#"), draft_named("urn:mine")
    (7, None)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from structspec.errors import SchemaError, UnsupportedFeature
from structspec.frontends.jsonschema.pointers import Pointer

if TYPE_CHECKING:
    from referencing import Specification

__all__ = ["DRAFTS", "Draft", "draft_named", "draft_of", "specification_of"]

Draft: TypeAlias = Literal[4, 6, 7, 2019, 2020]

#: The drafts by the URIs of their metaschemas, without scheme.
DRAFTS: dict[str, Draft] = {
    "json-schema.org/draft-04/schema": 4,
    "json-schema.org/draft-06/schema": 6,
    "json-schema.org/draft-07/schema": 7,
    "json-schema.org/draft/2019-09/schema": 2019,
    "json-schema.org/draft/2020-12/schema": 2020,
}


def draft_named(uri: str) -> Draft | None:
    """The draft whose metaschema has this URI, None for other URIs.

    Scheme and empty fragment do not count: both are often written differently.
    """
    return DRAFTS.get(uri.removesuffix("#").removeprefix("https://").removeprefix("http://"))


def draft_of(schema: Any, default: Draft, pointer: Pointer) -> Draft:
    """The draft that ``$schema`` names, else `default`. Raises UnsupportedFeature if unknown,
    SchemaError if it is no string.
    """
    uri = schema.get("$schema") if isinstance(schema, dict) else None
    if uri is None:
        return default
    if not isinstance(uri, str):
        raise SchemaError(f"'$schema' must be a string, not {uri!r}", pointer=str(pointer))
    draft = draft_named(uri)
    if draft is None:
        raise UnsupportedFeature(
            "$schema",
            str(pointer),
            f"unknown dialect {uri!r}; the drafts 4, 6, 7, 2019-09 and 2020-12 are known",
        )
    return draft


def specification_of(draft: Draft) -> Specification[Any]:
    """The `referencing` specification of a draft."""
    from referencing import jsonschema

    of: dict[Draft, Specification[Any]] = {
        4: jsonschema.DRAFT4,
        6: jsonschema.DRAFT6,
        7: jsonschema.DRAFT7,
        2019: jsonschema.DRAFT201909,
        2020: jsonschema.DRAFT202012,
    }
    return of[draft]
