"""Reading a schema document: JSON text or Python values, the dialect, the references.

Owns the way from what the caller gives to a `Document`: plain values in which every number is an
`int` (if integral, so ``1.0`` is 1) or an exact `Decimal`, floats being read by their shortest
repr. References go through the `referencing` library; nothing is fetched, other documents come
from `SchemaOptions.resources`.

Invariants: no value is a float; all object keys are strings; lone surrogate pairs in strings are
joined. Cost: linear; nothing here recurses, so nesting is limited by the JSON parser alone.

Example::

    >>> from structspec.frontends.jsonschema.load import load
    >>> from structspec.frontends.jsonschema.options import SchemaOptions
from structspec.frontends.jsonschema.pointers import ROOT, Pointer, escape
    >>> load('{"const": 2.0}', SchemaOptions()).root
    {'const': 2}
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from functools import cached_property, lru_cache, partial
from typing import Any
from urllib.parse import unquote, urldefrag, urljoin

from jsonschema_specifications import REGISTRY
from referencing import Specification
from referencing._core import Resolved, Resolver
from referencing.exceptions import Unresolvable
from referencing.jsonschema import DRAFT4, DRAFT6, DRAFT7, DRAFT201909, DRAFT202012

from structspec.errors import SchemaError, UnsupportedFeature
from structspec.frontends.jsonschema.budget import spend
from structspec.frontends.jsonschema.dialects import settle
from structspec.frontends.jsonschema.keywords import Draft
from structspec.frontends.jsonschema.options import SchemaOptions
from structspec.frontends.jsonschema.pointers import ROOT, Pointer, escape

__all__ = [
    "Document",
    "Target",
    "base_uri",
    "containers_of",
    "draft_of",
    "dynamic_anchors",
    "dynamic_target",
    "load",
    "plain",
    "read_text",
    "specification_of",
]

_DRAFTS: dict[str, Draft] = {
    "json-schema.org/draft-04/schema": 4,
    "json-schema.org/draft-06/schema": 6,
    "json-schema.org/draft-07/schema": 7,
    "json-schema.org/draft/2019-09/schema": 2019,
    "json-schema.org/draft/2020-12/schema": 2020,
}
_SPECIFICATIONS: dict[Draft, Specification[Any]] = {
    4: DRAFT4,
    6: DRAFT6,
    7: DRAFT7,
    2019: DRAFT201909,
    2020: DRAFT202012,
}

# A number such as 1e999999999 is short to write and endless to spell out.
_MOST_DIGITS = 4096
_SHORT_NUMBER = 18
_SMALL = 1 << 62


@dataclass(frozen=True)
class Target:
    """Where a reference leads: the schema, its resolver and a pointer for messages."""

    schema: Any
    resolver: Resolver[Any]
    pointer: Pointer


@dataclass(frozen=True)
class Document:
    """A loaded schema with its draft and the resolver of its root.

    containers: the objects and arrays of the document, parents before children.
    """

    root: Any
    draft: Draft
    resolver: Resolver[Any]
    uri: str
    containers: list[Any]
    #: The resolver where pointers of the document lead to, by the one where they stand.
    _landed: dict[int, tuple[Resolver[Any], Resolver[Any]]] = field(default_factory=dict)

    @cached_property
    def _whole(self) -> bool:
        """Whether nothing inside the document is a resource of its own."""
        return not any(
            isinstance(top, dict)
            and top is not self.root
            and (isinstance(top.get("$id"), str) or isinstance(top.get("id"), str))
            for top in self.containers
        )

    def _resolved(self, resolver: Resolver[Any], reference: str) -> tuple[Any, Resolver[Any]]:
        """What a reference names, and the resolver there."""
        ours = base_uri(resolver).rstrip("#") == self.uri.rstrip("#")
        local = ours and _is_local(reference) and self._whole
        known = self._landed.get(id(resolver)) if local else None
        if known is not None:
            try:
                return _at(self.root, reference), known[1]
            except (LookupError, ValueError):
                pass  # what is wrong is said below
        found = _look_up(resolver, reference)
        if local and self._holds(reference, found.contents):
            # With the resolver itself, so that its identifier stays its own.
            self._landed[id(resolver)] = resolver, found.resolver
        return found.contents, found.resolver

    def _holds(self, reference: str, contents: Any) -> bool:
        try:
            return _at(self.root, reference) is contents
        except (LookupError, ValueError):
            return False

    def follow(
        self, reference: str, resolver: Resolver[Any], pointer: Pointer, keyword: str
    ) -> Target:
        """Resolve `reference` as found at `pointer`. Raises SchemaError if it leads nowhere."""
        try:
            contents, beyond = self._resolved(resolver, reference)
        except (Unresolvable, LookupError, ValueError, TypeError, AttributeError) as error:
            remedy = (
                "no such place in this document"
                if reference.startswith("#")
                else "nothing is fetched; pass the document as resources={uri: document}"
            )
            raise SchemaError(
                f"'{keyword}' leads nowhere: {reference!r} ({remedy})", pointer=str(pointer)
            ) from error
        base = base_uri(resolver)
        if _is_local(reference) and _resource_of(base) == _without_fragment(self.uri):
            place = unquote(reference[1:])
        else:
            absolute = urljoin(base, reference)
            uri, fragment = urldefrag(absolute)
            place = unquote(fragment)
            if uri != urldefrag(self.uri)[0] or (place and not place.startswith("/")):
                place = absolute
        if not isinstance(contents, dict | bool):
            kind = type(contents).__name__
            raise SchemaError(
                f"'{keyword}' leads to a {kind}, not to a schema: {reference!r}",
                pointer=str(pointer),
            )
        return Target(contents, beyond, Pointer.at(place))


def _at(root: Any, reference: str) -> Any:
    """What a pointer names in a document. Raises LookupError or ValueError if nothing."""
    here = root
    for segment in unquote(reference[2:]).split("/"):
        if isinstance(here, dict):
            here = here[segment.replace("~1", "/").replace("~0", "~")]
        elif isinstance(here, list):
            here = here[int(segment)]
        else:
            raise LookupError(segment)
    return here


def dynamic_target(
    static: Target, resolver: Resolver[Any], reference: str, keyword: str, scope: tuple[str, ...]
) -> Target:
    """Where a dynamic reference leads, given where it leads statically and the dynamic scope.

    `scope` holds the URIs of the resources entered on the way, the outermost first.
    """
    name = reference.rpartition("#")[2] if "#" in reference else ""
    mark: tuple[str, Any] = ("$dynamicAnchor", name)
    if keyword == "$recursiveRef":
        mark, name = ("$recursiveAnchor", True), ""
    if not isinstance(static.schema, dict) or static.schema.get(mark[0]) != mark[1]:
        return static
    for uri in scope:
        try:
            found = _look_up(resolver, f"{uri}#{name}")
        except Unresolvable:
            continue
        schema = found.contents
        if isinstance(schema, dict) and schema.get(mark[0]) == mark[1]:
            place = Pointer.at(f"{uri}#{name}") if uri or name else ROOT
            return Target(schema, found.resolver, place)
    return static


def dynamic_anchors(resolver: Resolver[Any]) -> bool:
    """Whether the resource at the resolver's URI may hold dynamic anchors."""
    try:
        stack = [_look_up(resolver, "#").contents]
    except Unresolvable:
        return False
    while stack:
        top = stack.pop()
        if isinstance(top, dict):
            if "$dynamicAnchor" in top or top.get("$recursiveAnchor") is True:
                return True
            stack.extend(top.values())
        elif isinstance(top, list):
            stack.extend(top)
    return False


def _look_up(resolver: Resolver[Any], reference: str) -> Resolved[Any]:
    """Resolve a reference statically.

    A resolver remembers the way that led to it and lets dynamic anchors depend on that. A new one
    at the target's own resource has come no way.
    """
    base = base_uri(resolver)
    if _is_local(reference) and "#" not in (own := base.rstrip("#")):
        return resolver._registry.resolver(_without_fragment(own + "#")).lookup(reference)
    # Joining would lose bases such as URNs.
    absolute = base.rstrip("#") + reference if reference.startswith("#") else None
    uri, fragment = urldefrag(absolute or urljoin(base, reference))
    return resolver._registry.resolver(uri).lookup("#" + fragment)


def _is_local(reference: str) -> bool:
    """Whether it is a pointer into the resource around it, by far the most frequent kind.

    (Parsing removes what cannot be printed.)
    """
    return reference.startswith("#/") and reference.isprintable()


@lru_cache(maxsize=256)
def _without_fragment(uri: str) -> str:
    return urldefrag(uri)[0]


@lru_cache(maxsize=256)
def _resource_of(base: str) -> str:
    """The resource that pointers are resolved in, given the URI around them."""
    return urldefrag(urljoin(base, "#/"))[0]


def base_uri(resolver: Resolver[Any]) -> str:
    """The URI against which a resolver resolves (`referencing` keeps it in a private field)."""
    return str(resolver._base_uri)


def draft_of(schema: Any, default: Draft, pointer: Pointer) -> Draft:
    """The draft that ``$schema`` names, else `default`. Raises UnsupportedFeature if unknown."""
    uri = schema.get("$schema") if isinstance(schema, dict) else None
    if uri is None:
        return default
    if not isinstance(uri, str):
        raise SchemaError(f"'$schema' must be a string, not {uri!r}", pointer=str(pointer))
    draft = _DRAFTS.get(_bare(uri))
    if draft is None:
        raise UnsupportedFeature(
            "$schema",
            str(pointer),
            f"unknown dialect {uri!r}; the drafts 4, 6, 7, 2019-09 and 2020-12 are known",
        )
    return draft


def specification_of(draft: Draft) -> Specification[Any]:
    """The `referencing` specification of a draft."""
    return _SPECIFICATIONS[draft]


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
    default: Draft = 2020
    if not exact and not isinstance(schema, str):
        _refuse_circles(schema)
    if options.resources is not None and not (
        isinstance(options.resources, Mapping)
        and all(isinstance(u, str) for u in options.resources)
    ):
        raise SchemaError("resources must map URIs (str) to schemas")
    if options.default_dialect is not None:
        uri = options.default_dialect
        named = _DRAFTS.get(_bare(uri)) if isinstance(uri, str) else None
        if named is None:
            known = ", ".join(f"https://{uri}" for uri in _DRAFTS)
            raise SchemaError(
                f"default_dialect={options.default_dialect!r} is not a known draft; "
                f"use one of {known}"
            )
        default = named
    documents = {
        uri: _read(document, uri + "#") for uri, document in (options.resources or {}).items()
    }
    settled = partial(
        settle,
        resources=documents,
        draft_named=lambda uri: _DRAFTS.get(_bare(uri)),
        assert_formats=options.assert_formats,
    )
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
    resources = []
    for uri, document in documents.items():
        contents = settled(document, containers_of(document))
        specification = specification_of(draft_of(contents, draft, Pointer.at(uri + "#")))
        resources.append((uri, specification.create_resource(contents)))
    resource = specification_of(draft).create_resource(root)
    try:
        registry = REGISTRY.with_resources(resources) if resources else REGISTRY
        resolver = registry.resolver_with_root(resource)
    except (TypeError, AttributeError, ValueError) as error:
        raise SchemaError(f"the identifiers of the schema cannot be read: {error}") from error
    return Document(root, draft, resolver, resource.id() or "", containers)


def containers_of(value: Any) -> list[Any]:
    """The objects and arrays of a document, parents before children."""
    found = [value] if isinstance(value, dict | list) else []
    for top in found:
        for child in top.values() if type(top) is dict else top:
            kind = type(child)
            if kind is dict or kind is list:
                found.append(child)
    return found


def _bare(uri: str) -> str:
    """A dialect URI without scheme and empty fragment: both are often written differently."""
    return uri.removesuffix("#").removeprefix("https://").removeprefix("http://")


def _read(source: Any, pointer: str) -> Any:
    return read_text(source) if isinstance(source, str) else plain(source, pointer)


def read_text(source: str) -> Any:
    """Parse the JSON text of a schema exactly. Raises SchemaError with line and column."""
    try:
        if source.startswith("\ufeff"):
            json.loads(source)  # says what is wrong with it
        value = _DECODER.decode(source)
    except UnsupportedFeature:
        # A number that is too long: read it again to say where it stands.
        value = json.loads(source, parse_float=Decimal, parse_int=Decimal)
        return plain(value)
    except json.JSONDecodeError as error:
        raise SchemaError(
            f"the schema is not JSON: {error.msg}", line=error.lineno, column=error.colno
        ) from error
    except RecursionError as error:
        raise SchemaError(
            "the schema's JSON text is nested deeper than the JSON parser can read; "
            "flatten it with $defs and $ref"
        ) from error
    # Only escapes can make halves of surrogate pairs (or a str that UTF-8 cannot hold).
    return plain(value) if "\\u" in source or _has_surrogates(source) else value


def _parsed(text: str) -> int | Decimal:
    return _number(Decimal(text), "", None)


def _parsed_int(text: str) -> int | Decimal:
    return int(text) if len(text) < _SHORT_NUMBER else _number(Decimal(text), "", None)


def _no_constant(name: str) -> Any:
    raise SchemaError(f"the schema is not JSON: {name} is not a JSON value")


_DECODER = json.JSONDecoder(parse_float=_parsed, parse_int=_parsed_int, parse_constant=_no_constant)


def plain(source: Any, pointer: str = "") -> Any:
    """A copy of a JSON value whose numbers are ints and Decimals. Iterative, linear.

    The copy is a tree even if the source shares containers; one that becomes too large raises
    BudgetExceeded.
    """
    box: list[Any] = [None]
    # (where to store, under which key, the source value, its pointer as a linked list)
    stack: list[tuple[Any, Any, Any, Any]] = [(box, 0, source, None)]
    made = 0
    while stack:
        holder, key, value, path = stack.pop()
        if isinstance(value, Mapping):
            copy: dict[str, Any] = {}
            holder[key] = copy
            for name, item in value.items():
                if not isinstance(name, str):
                    raise SchemaError(
                        f"the key {name!r} is not a string", pointer=_join(pointer, path)
                    )
                name = _text(name)
                kind = type(item)
                if kind is str:
                    copy[name] = item if item.isascii() else _text(item)
                elif kind is bool or item is None:
                    copy[name] = item
                elif kind is dict or kind is list:
                    copy[name] = None  # keeps the order of the keys
                    stack.append((copy, name, item, (path, name)))
                elif isinstance(item, Mapping | list | tuple):
                    copy[name] = None
                    stack.append((copy, name, item, (path, name)))
                else:
                    copy[name] = _scalar(item, pointer, (path, name))
        elif isinstance(value, list | tuple):
            items: list[Any] = []
            holder[key] = items
            for i, item in enumerate(value):
                kind = type(item)
                if kind is str:
                    items.append(item if item.isascii() else _text(item))
                elif kind is bool or item is None:
                    items.append(item)
                elif isinstance(item, Mapping | list | tuple):
                    items.append(None)
                    stack.append((items, i, item, (path, str(i))))
                else:
                    items.append(_scalar(item, pointer, (path, str(i))))
        else:
            holder[key] = _scalar(value, pointer, path)
        made += 1
        if made % 1024 == 0:
            spend(1024)
    return box[0]


def _scalar(value: Any, pointer: str, path: Any) -> Any:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, int):
        if type(value) is int and -_SMALL < value < _SMALL:
            return value
        if value.bit_length() > 3 * _MOST_DIGITS:
            return _number(Decimal(value), pointer, path)
        return int(value)
    if isinstance(value, float):
        if not math.isfinite(value):
            raise SchemaError(f"{value} is not a JSON number", pointer=_join(pointer, path))
        value = Decimal(repr(value))
    if isinstance(value, Decimal):
        if not value.is_finite():
            raise SchemaError(f"{value} is not a JSON number", pointer=_join(pointer, path))
        return _number(value, pointer, path)
    raise SchemaError(f"a {type(value).__name__} is not a JSON value", pointer=_join(pointer, path))


def _number(value: Decimal, pointer: str, path: Any) -> int | Decimal:
    if not value:
        return 0
    sign, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int)
    if max(len(digits) + max(exponent, 0), -exponent) > _MOST_DIGITS:
        raise UnsupportedFeature(
            "number",
            _join(pointer, path),
            f"written out it has more than {_MOST_DIGITS} digits",
        )
    # Not Decimal.normalize: that rounds to the precision of the current context.
    text = "".join(map(str, digits))
    kept = text.rstrip("0")
    exponent += len(text) - len(kept)
    if exponent >= 0:
        magnitude = int(Decimal((0, tuple(map(int, kept)), exponent)))
        return -magnitude if sign else magnitude
    return Decimal((sign, tuple(map(int, kept)), exponent))


def _text(value: str) -> str:
    """Join surrogate pairs: a pair spells one character, and only lone halves stay."""
    if value.isascii() or not any("\ud800" <= character <= "\udfff" for character in value):
        return value
    return value.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")


def _has_surrogates(text: str) -> bool:
    if text.isascii():
        return False
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False


def _join(pointer: str, path: Any) -> str:
    segments: list[str] = []
    while path is not None:
        path, segment = path
        segments.append("/" + escape(segment))
    return pointer + "".join(reversed(segments))
