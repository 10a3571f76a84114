"""Every place of a document where a subschema stands, in the order of the document.

Owns the step from a schema object to the subschemas in it, `Occurrences.below`, which checks the
shape of every keyword on the way. `places` takes that step once for equal subschemas; the report
has an entry for each occurrence, so iterating goes through all of them, from the same `roots`.

Cost: a look at each keyword of each schema object.

Example::

    >>> from structspec.frontends.jsonschema.document import ITSELF
    >>> from structspec.frontends.jsonschema.options import SchemaOptions
    >>> from structspec.frontends.jsonschema.pointers import ROOT
    >>> found = Occurrences(SchemaOptions())
    >>> found.roots.append(({"items": {"not": {}}}, ITSELF, 2020, None, ("",)))
    >>> [str(pointer) for _, _, _, pointer in found]
    ['', '/items', '/items/not']
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, TypeAlias

from structspec.errors import SchemaError, UnsupportedFeature
from structspec.frontends.jsonschema.drafts import Draft, draft_of, specification_of
from structspec.frontends.jsonschema.fates import asserted_format
from structspec.frontends.jsonschema.keywords import handling, overridden, subschemas
from structspec.frontends.jsonschema.options import SchemaOptions
from structspec.frontends.jsonschema.pointers import Pointer

if TYPE_CHECKING:
    from referencing._core import Resolver

    #: A schema object, resolver and draft inside it, and the two parts of its `Pointer`: most are
    #: put aside before anybody needs it.
    Occurrence: TypeAlias = tuple[Any, Resolver[Any], Draft, Pointer | None, tuple[str, ...]]

__all__ = ["Occurrence", "Occurrences", "enter"]


class Occurrences:
    """The schema objects in `roots`, each object once."""

    def __init__(self, options: SchemaOptions) -> None:
        self.roots: list[Occurrence] = []
        self._refusing = options.unknown_formats == "refuse" and options.assert_formats

    def __iter__(self) -> Iterator[tuple[dict[str, Any], Resolver[Any], Draft, Pointer]]:
        """Schema object, resolver, draft and place of each occurrence."""
        seen: set[int] = set()
        for root in self.roots:
            stack = [root]
            while stack:
                schema, resolver, draft, above, segments = stack.pop()
                if id(schema) not in seen:
                    seen.add(id(schema))
                    pointer = Pointer(above, segments)
                    yield schema, resolver, draft, pointer
                    stack.extend(reversed(self.below(schema, resolver, draft, pointer)))

    def below(
        self, schema: dict[str, Any], resolver: Resolver[Any], draft: Draft, pointer: Pointer
    ) -> list[Occurrence]:
        """Check the keywords of a schema object and list its subschemas that are objects.

        Raises SchemaError for a keyword of the wrong shape, UnsupportedFeature for a format that
        is not known if those are refused.
        """
        found: list[Occurrence] = []
        hidden = overridden(schema, draft)
        known = handling(draft)
        # PERF: every keyword of every schema passes here.
        for name, value in schema.items():
            handled = known.get(name)
            if handled is None or (hidden and handled.voided):
                continue
            if type(value) is not handled.easy and (check := handled.check) is not None:
                fault = check(value, draft)
                if fault is not None:
                    named = handled.keyword.shape == "types" and isinstance(value, list) and value
                    shown = "" if named else f", not {_shown(value)}"
                    raise SchemaError(f"'{name}' {fault}{shown}", pointer=str(pointer))
            if self._refusing and name == "format" and asserted_format(value, draft) is None:
                reason = f"the format {value!r} is not known"
                raise UnsupportedFeature("format", str(pointer), reason)
            if not handled.holds:
                continue
            for path, sub in subschemas(handled.keyword, value):
                segments = (name, *path)
                if type(sub) is dict:
                    if "$id" in sub or "id" in sub:
                        inside = enter(sub, resolver, draft, Pointer(pointer, segments))
                        found.append((sub, *inside, pointer, segments))
                    else:
                        found.append((sub, resolver, draft, pointer, segments))
                elif not (handled.booleans and isinstance(sub, bool)):
                    kinds = "an object, true or false" if handled.booleans else "an object"
                    raise SchemaError(
                        f"a schema must be {kinds}, not {_shown(sub)}",
                        pointer=str(Pointer(pointer, segments)),
                    )
        return found


def enter(
    schema: Any, resolver: Resolver[Any], draft: Draft, pointer: Pointer
) -> tuple[Resolver[Any], Draft]:
    """Resolver and draft inside a subschema: an embedded resource changes both."""
    if "$id" not in schema and "id" not in schema:
        return resolver, draft
    if not isinstance(schema.get("id" if draft == 4 else "$id"), str):
        return resolver, draft  # nothing of this draft, or refused when its keywords are checked
    resource = specification_of(draft).create_resource(schema)
    if resource.id() is None:
        return resolver, draft
    try:
        inside = resolver.in_subresource(resource)
    except ValueError as error:
        raise SchemaError(
            f"the identifier {_shown(resource.id())} cannot be read: {error}", pointer=str(pointer)
        ) from error
    return inside, draft_of(schema, draft, pointer)


def _shown(value: Any) -> str:
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, list):
        return f"an array of {len(value)}"
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    return repr(value)[:60] if isinstance(value, str) else str(value)[:60]
