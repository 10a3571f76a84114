"""Reading a schema document: JSON text or Python values, the dialect, the resources beside it.

Owns the way from what the caller gives to a `Document`: `exact` makes plain values of it,
`dialects` resolves metaschemas of the caller's own, and the documents of `SchemaOptions.resources`
are what references outside may lead to.

Invariants: those of `exact`; the root is a schema in the draft that the document names.

Cost: linear in the document and its resources.

Example::

    >>> from structspec.frontends.jsonschema.load import load
    >>> from structspec.frontends.jsonschema.options import SchemaOptions
    >>> load('{"const": 2.0}', SchemaOptions()).root
    {'const': 2}
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from structspec.errors import SchemaError
from structspec.frontends.jsonschema.dialects import settle
from structspec.frontends.jsonschema.document import (
    DYNAMIC_ANCHORS,
    IDENTIFIERS,
    ITSELF,
    LOCATING,
    Document,
    containers_of,
    is_local,
)
from structspec.frontends.jsonschema.drafts import (
    DRAFTS,
    Draft,
    draft_named,
    draft_of,
    specification_of,
)
from structspec.frontends.jsonschema.exact import plain, read_text
from structspec.frontends.jsonschema.options import SchemaOptions
from structspec.frontends.jsonschema.pointers import ROOT, Pointer

__all__ = ["load"]

_ANCHORS = DYNAMIC_ANCHORS | {"$anchor"}
_MARKS = LOCATING | _ANCHORS


def _refuse_circles(root: Any) -> None:
    """Raise SchemaError if a Python container holds itself; JSON could not."""
    path: set[int] = set()
    done: set[int] = set()
    stack = [(root, False)] if isinstance(root, dict | list | tuple) else []
    while stack:
        value, leaving = stack.pop()
        if leaving:
            path.discard(id(value))
            done.add(id(value))
        elif id(value) in path:
            raise SchemaError("the schema contains itself as a Python object; use $ref to recurse")
        elif id(value) not in done:
            path.add(id(value))
            stack.append((value, True))
            children = value.values() if isinstance(value, dict) else value
            stack.extend(
                (child, False) for child in children if isinstance(child, dict | list | tuple)
            )


def load(schema: Any, options: SchemaOptions, *, exact: bool = False) -> Document:
    """Read a schema. Raises SchemaError if it is none, with the place of the fault.

    exact: it is what `read_text` made of a text, and used as it is.
    """
    if not exact and not isinstance(schema, str):
        _refuse_circles(schema)
    if options.resources is not None and not (
        isinstance(options.resources, Mapping)
        and all(isinstance(u, str) for u in options.resources)
    ):
        raise SchemaError("resources must map URIs (str) to schemas")
    default = _default_draft(options.default_dialect)
    documents = {
        uri: _read(document, uri + "#") for uri, document in (options.resources or {}).items()
    }
    settled = partial(settle, resources=documents, assert_formats=options.assert_formats)
    given = schema if exact else _read(schema, "")
    root = settled(given, containers := containers_of(given))
    if root is not given:
        containers = containers_of(root)
    draft = draft_of(root, default, ROOT)
    if not isinstance(root, dict | bool) or (draft == 4 and isinstance(root, bool)):
        raise SchemaError(
            f"a schema is an object{'' if draft == 4 else ', true or false'}, "
            f"not {type(root).__name__}",
            pointer="",
        )
    if not documents and _self_contained(root, containers):
        return Document(root, draft, ITSELF, "", containers)
    resources = []
    for uri, document in documents.items():
        contents = settled(document, containers_of(document))
        specification = specification_of(draft_of(contents, draft, Pointer.at(uri + "#")))
        resources.append((uri, specification.create_resource(contents)))
    from jsonschema_specifications import REGISTRY

    resource = specification_of(draft).create_resource(root)
    try:
        registry = REGISTRY.with_resources(resources) if resources else REGISTRY
        resolver = registry.resolver_with_root(resource)
    except (TypeError, AttributeError, ValueError) as error:
        raise SchemaError(f"the identifiers of the schema cannot be read: {error}") from error
    return Document(root, draft, resolver, resource.id() or "", containers)


def _self_contained(root: Any, containers: list[Any]) -> bool:
    """Whether a document names nothing and refers to nothing but places in itself, by pointers."""
    if isinstance(root, dict) and not IDENTIFIERS.isdisjoint(root):
        return False
    for top in containers:
        if type(top) is dict and not _MARKS.isdisjoint(top):
            # Members of that name are frequent; their values are schemas.
            if not _ANCHORS.isdisjoint(top):
                return False
            for mark in LOCATING:
                value = top.get(mark)
                if type(value) is str and not (mark == "$ref" and _leads_inside(value)):
                    return False
    return True


def _leads_inside(reference: str) -> bool:
    return reference == "#" or is_local(reference)


def _default_draft(uri: str | None) -> Draft:
    """The draft of documents without ``$schema``. Raises SchemaError for a URI of none."""
    if uri is None:
        return 2020
    draft = draft_named(uri) if isinstance(uri, str) else None
    if draft is None:
        known = ", ".join(f"https://{each}" for each in DRAFTS)
        raise SchemaError(f"default_dialect={uri!r} is not a known draft; use one of {known}")
    return draft


def _read(source: Any, pointer: str) -> Any:
    return read_text(source) if isinstance(source, str) else plain(source, pointer)
