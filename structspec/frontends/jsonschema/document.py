"""A schema document, and where its references lead.

Owns following references: pointers into the document itself, directly, and everything else through
the `referencing` library. Nothing is fetched; other documents are those that the resolver has.

Invariants: a reference leads to a schema or raises; what a pointer leads to does not depend on the
way that led to it, except for dynamic references, which get their scope.

Cost: a pointer inside one resource costs its segments; `referencing` walks the resource each time.
Its import takes a tenth of a second, so it comes with the first document that names something or
refers to more than places in itself.

Siblings: `load` makes documents; `places` walks them.

Example::

    >>> from structspec.frontends.jsonschema.load import load
    >>> from structspec.frontends.jsonschema.options import SchemaOptions
    >>> from structspec.frontends.jsonschema.pointers import ROOT
    >>> document = load({"$ref": "#/$defs/a", "$defs": {"a": True}}, SchemaOptions())
    >>> document.follow("#/$defs/a", document.resolver, ROOT, "$ref").schema
    True
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urldefrag, urljoin

from structspec.errors import SchemaError
from structspec.frontends.jsonschema.drafts import Draft
from structspec.frontends.jsonschema.pointers import ROOT, Pointer

if TYPE_CHECKING:
    from referencing._core import Resolved, Resolver

__all__ = [
    "DYNAMIC_ANCHORS",
    "IDENTIFIERS",
    "ITSELF",
    "LOCATING",
    "Document",
    "Target",
    "base_uri",
    "containers_of",
    "dynamic_anchors",
    "dynamic_target",
    "is_local",
]


#: Keywords that name a resource; those and references, whose meaning depends on their place; and
#: names that the dynamic scope can change.
IDENTIFIERS = frozenset({"$id", "id"})
LOCATING = IDENTIFIERS | {"$ref", "$dynamicRef", "$recursiveRef"}
DYNAMIC_ANCHORS = frozenset({"$dynamicAnchor", "$recursiveAnchor"})


class _Itself:
    """Stands for the resolver of a document that names nothing and refers to nothing else."""

    _base_uri = ""


#: Where all references are pointers into the document.
ITSELF: Any = _Itself()


@dataclass(frozen=True)
class Target:
    """Where a reference leads: the schema, its resolver and a pointer for messages."""

    schema: Any
    resolver: Resolver[Any]
    pointer: Pointer


@dataclass(frozen=True)
class Document:
    """A loaded schema with its draft and the resolver of its root.

    resolver: `ITSELF` if the document names nothing and all its references are pointers into it.
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
        """What a reference names, and the resolver there. Raises LookupError and other errors."""
        if resolver is ITSELF:
            return _at(self.root, reference), resolver
        ours = base_uri(resolver).rstrip("#") == self.uri.rstrip("#")
        local = ours and is_local(reference) and self._whole
        known = self._landed.get(id(resolver)) if local else None
        if known is not None:
            try:
                return _at(self.root, reference), known[1]
            except (LookupError, ValueError):
                pass  # what is wrong is said below
        from referencing.exceptions import Unresolvable

        try:
            found = _look_up(resolver, reference)
        except Unresolvable as error:
            raise LookupError(reference) from error
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
        except (LookupError, ValueError, TypeError, AttributeError) as error:
            remedy = (
                "no such place in this document"
                if reference.startswith("#")
                else "nothing is fetched; pass the document as resources={uri: document}"
            )
            raise SchemaError(
                f"'{keyword}' leads nowhere: {reference!r} ({remedy})", pointer=str(pointer)
            ) from error
        base = base_uri(resolver)
        own = resolver is ITSELF or (
            is_local(reference) and _resource_of(base) == _without_fragment(self.uri)
        )
        if own:
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
    for segment in unquote(reference[2:]).split("/") if reference != "#" else ():
        if isinstance(here, dict):
            here = here[segment.replace("~1", "/").replace("~0", "~")]
        elif isinstance(here, list | str):  # texts are sequences to `referencing` as well
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
    from referencing.exceptions import Unresolvable

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
    from referencing.exceptions import Unresolvable

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
    if is_local(reference) and "#" not in (own := base.rstrip("#")):
        return resolver._registry.resolver(_without_fragment(own + "#")).lookup(reference)
    # Joining would lose bases such as URNs.
    absolute = base.rstrip("#") + reference if reference.startswith("#") else None
    uri, fragment = urldefrag(absolute or urljoin(base, reference))
    return resolver._registry.resolver(uri).lookup("#" + fragment)


def is_local(reference: str) -> bool:
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


def containers_of(value: Any) -> list[Any]:
    """The objects and arrays of a document, parents before children."""
    found = [value] if isinstance(value, dict | list) else []
    for top in found:
        for child in top.values() if type(top) is dict else top:
            kind = type(child)
            if kind is dict or kind is list:
                found.append(child)
    return found
