"""Subschemas as numbers, and the walk that checks them and reports on every keyword.

An `Atlas` interns subschemas: equal ones (same content, same base URI if they hold references, same
draft) share one number, so that equal schemas share one normal form and one grammar rule however
often they are written. Content is compared bottom up through identifiers of contents, so interning
a whole document is linear and never recurses.

The walk visits every subschema occurrence of the document (and the targets of references outside
the usual places), raises SchemaError on a keyword of the wrong shape, and records one report entry
per keyword.

Example::

    >>> from structspec.frontends.jsonschema.load import load
    >>> from structspec.frontends.jsonschema.options import SchemaOptions
    >>> options = SchemaOptions()
    >>> atlas = Atlas(load({"anyOf": [{"type": "null"}, {"type": "null"}]}, options), options)
    >>> [entry.pointer for entry in atlas.report().for_keyword("type")]
    ['/anyOf/0', '/anyOf/1']
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, TypeAlias

from referencing._core import Resolver
from referencing.exceptions import Unresolvable

from structspec.errors import SchemaError, UnsupportedFeature
from structspec.frontends.jsonschema.formats import Format, format_of
from structspec.frontends.jsonschema.goals import FALSE, TRUE, Goal, literal
from structspec.frontends.jsonschema.keywords import (
    Draft,
    Keyword,
    hint,
    keyword_of,
    shape_fault,
    subschemas,
)
from structspec.frontends.jsonschema.load import (
    Document,
    Target,
    base_uri,
    draft_of,
    dynamic_anchors,
    dynamic_target,
    escape,
    specification_of,
)
from structspec.frontends.jsonschema.options import SchemaOptions
from structspec.report import Entry, Report, Status

__all__ = ["Atlas", "Place", "asserted_format"]

_LOCATING = frozenset({"$ref", "$dynamicRef", "$recursiveRef", "$id", "id"})
_BOUNDS = frozenset({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"})


_STRING_KEYWORDS = frozenset({"pattern", "format", "minLength", "maxLength", "patternProperties"})

# Scopes grow by resources that have not been met before; a longer way is refused.
_LONGEST_SCOPE = 64

Scope: TypeAlias = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Place:
    """One interned subschema: its first occurrence stands for all equal ones."""

    number: int
    schema: Any
    resolver: Resolver[Any]
    draft: Draft
    pointer: str
    #: The URIs of the resources with dynamic anchors entered on the way here, outermost first.
    scope: Scope = ()


class Atlas:
    """All subschemas of one compile. Mutable while compiling, private to it."""

    def __init__(self, document: Document, options: SchemaOptions) -> None:
        self.document = document
        self.options = options
        self.places: list[Place] = []
        self._numbers: dict[tuple[Any, ...], int] = {}
        self._contents: dict[Any, int] = {}
        self._content_of: dict[int, int] = {}
        self._locating: list[bool] = []
        self._alive: list[Any] = []
        self._pointers: list[list[str]] = []
        self._entries: dict[tuple[str, str], Entry] = {}
        self._walked: set[str] = set()
        self._dynamic: dict[str, bool] = {}
        self.walk(document.root, document.resolver, document.draft, "")

    # Interning -----------------------------------------------------------------------------

    def place(self, number: int) -> Place:
        """The subschema with this number (from 1)."""
        return self.places[number - 1]

    def goal(self, schema: Any, parent: Place, path: str) -> Goal:
        """The goal 'satisfies `schema`', a subschema written `path` below `parent`."""
        pointer = parent.pointer + path
        resolver, draft = _enter(schema, parent.resolver, parent.draft, pointer)
        scope = parent.scope
        if resolver is not parent.resolver:
            scope = self._entered(scope, resolver, pointer)
        return self._goal(schema, resolver, draft, pointer, scope)

    def root_goal(self) -> Goal:
        """The goal of the whole document."""
        document = self.document
        scope = self._entered((), document.resolver, "")
        return self._goal(document.root, document.resolver, document.draft, "", scope)

    def _goal(
        self, schema: Any, resolver: Resolver[Any], draft: Draft, pointer: str, scope: Scope
    ) -> Goal:
        if schema is True:
            return TRUE
        if schema is False:
            return FALSE
        if not any(_asserts(name, draft) for name in schema):
            return TRUE
        return literal(self._intern(schema, resolver, draft, pointer, scope))

    def _entered(self, scope: Scope, resolver: Resolver[Any], pointer: str) -> Scope:
        """The dynamic scope after entering the resource of `resolver`."""
        uri = base_uri(resolver).rstrip("#")
        if uri not in self._dynamic:
            self._dynamic[uri] = dynamic_anchors(resolver)
        if uri in scope or not self._dynamic[uri]:
            return scope
        if len(scope) >= _LONGEST_SCOPE:
            reason = f"more than {_LONGEST_SCOPE} resources on the way"
            raise UnsupportedFeature("$dynamicRef", pointer, reason)
        return (*scope, uri)

    def constant(self, value: Any) -> Goal:
        """The goal 'equals `value`'."""
        schema = {"const": value}
        self._alive.append(schema)
        return literal(self._intern(schema, self.document.resolver, 2020, ""))

    def reference_goal(self, place: Place, keyword: str) -> Goal:
        """The goal of a reference's target; it is walked if nobody has been there yet."""
        target = self.target(place, keyword)
        draft = self._draft_there(target)
        self.walk(target.schema, target.resolver, draft, target.pointer)
        scope = self._entered(place.scope, target.resolver, target.pointer)
        return self._goal(target.schema, target.resolver, draft, target.pointer, scope)

    def target(self, place: Place, keyword: str) -> Target:
        """Where the reference of `place` leads. Raises SchemaError if nowhere."""
        reference = place.schema[keyword]
        target = self.document.follow(reference, place.resolver, place.pointer, keyword)
        if keyword == "$ref":
            return target
        return dynamic_target(target, place.resolver, reference, keyword, place.scope)

    def _draft_there(self, target: Target) -> Draft:
        """The draft of a target: what it says itself, else what the root of its resource says."""
        try:
            root = target.resolver.lookup("").contents
        except Unresolvable:
            root = None
        default = draft_of(root, self.document.draft, target.pointer)
        return draft_of(target.schema, default, target.pointer)

    def _intern(
        self, schema: Any, resolver: Resolver[Any], draft: Draft, pointer: str, scope: Scope = ()
    ) -> int:
        content = self._content(schema)
        context = (base_uri(resolver), scope) if self._locating[content] else None
        number = self._numbers.setdefault((content, context, draft), len(self.places) + 1)
        if number > len(self.places):
            self.places.append(Place(number, schema, resolver, draft, pointer, scope))
            self._pointers.append([pointer])
        return number

    def _content(self, value: Any) -> int:
        """The identifier of a value's content; equal values (with keys in order) share one."""
        known = self._content_of.get(id(value))
        if known is not None:
            return known
        stack = [value]
        while stack:
            top = stack[-1]
            if not isinstance(top, dict | list):
                stack.pop()
                continue
            children = top.values() if isinstance(top, dict) else top
            missing = [
                child
                for child in children
                if isinstance(child, dict | list) and id(child) not in self._content_of
            ]
            if missing:
                stack.extend(missing)
                continue
            stack.pop()
            if id(top) in self._content_of:
                continue
            ids = tuple(self._leaf(child) for child in children)
            names = tuple(top) if isinstance(top, dict) else None
            locating = names is not None and not _LOCATING.isdisjoint(names)
            locating = locating or any(self._locating[child] for child in ids)
            self._content_of[id(top)] = self._number_content((names, ids), locating)
            self._alive.append(top)
        return self._leaf(value)

    def _leaf(self, value: Any) -> int:
        if isinstance(value, dict | list):
            return self._content_of[id(value)]
        # The type is part of the key because True == 1 in Python but not in JSON.
        return self._number_content((type(value), value), False)

    def _number_content(self, key: Any, locating: bool) -> int:
        number = self._contents.setdefault(key, len(self._locating))
        if number == len(self._locating):
            self._locating.append(locating)
        return number

    # Walking -------------------------------------------------------------------------------

    def walk(self, schema: Any, resolver: Resolver[Any], draft: Draft, pointer: str) -> None:
        """Check and report on `schema` and every subschema in it. Raises SchemaError.

        `resolver` and `draft` are those inside `schema`, if it is a resource of its own.
        """
        stack = [(schema, resolver, draft, pointer)]
        while stack:
            schema, resolver, draft, pointer = stack.pop()
            if pointer in self._walked:
                continue
            self._walked.add(pointer)
            if isinstance(schema, bool):
                continue
            number = self._intern(schema, resolver, draft, pointer)
            self._pointers[number - 1].append(pointer)
            stack.extend(self._visit(schema, resolver, draft, pointer))

    def _visit(
        self, schema: dict[str, Any], resolver: Resolver[Any], draft: Draft, pointer: str
    ) -> list[tuple[Any, Resolver[Any], Draft, str]]:
        found: list[tuple[Any, Resolver[Any], Draft, str]] = []
        overridden = draft <= 7 and isinstance(schema.get("$ref"), str)
        for name, value in schema.items():
            keyword = keyword_of(name, draft)
            if overridden and name != "$ref":
                note = f"ignored beside $ref, as draft {draft} demands"
                self._enter_report(pointer, name, "annotation", note)
                if keyword is None or keyword.shape != "schema_map" or keyword.role != "core":
                    continue
            elif keyword is None:
                self._enter_report(pointer, name, "annotation", hint(name, draft))
                continue
            fault = shape_fault(keyword, value, draft)
            if fault is not None:
                raise SchemaError(f"'{name}' {fault}, not {_shown(value)}", pointer=pointer)
            if not overridden or name == "$ref":
                self._report_keyword(schema, keyword, draft, pointer)
            for path, sub in subschemas(keyword, value):
                below = pointer + "".join("/" + escape(segment) for segment in (name, *path))
                booleans = draft != 4 or keyword.shape == "bool_or_schema"
                if not isinstance(sub, dict) and not (booleans and isinstance(sub, bool)):
                    kinds = "an object, true or false" if booleans else "an object"
                    raise SchemaError(f"a schema must be {kinds}, not {_shown(sub)}", pointer=below)
                found.append((sub, *_enter(sub, resolver, draft, below), below))
        return found[::-1]

    def _report_keyword(
        self, schema: dict[str, Any], keyword: Keyword, draft: Draft, pointer: str
    ) -> None:
        name, value = keyword.name, schema[keyword.name]
        status: Status = "exact"
        note = ""
        if keyword.role != "assertion":
            status = "exact" if keyword.role == "core" else "annotation"
        elif name == "format":
            known = asserted_format(value, draft)
            if not self.options.assert_formats:
                status, note = "annotation", "formats are not asserted"
            elif known is None:
                if self.options.unknown_formats == "refuse":
                    raise UnsupportedFeature(
                        "format", pointer, f"the format {value!r} is not known"
                    )
                status, note = "annotation", f"the format {value!r} is not known"
            elif "type" in schema and "string" not in schema["type"]:
                note = "no effect: it concerns strings only"
            elif known.note:
                status, note = "narrowed", known.note
        elif self.options.spelling == "any":
            if name in _BOUNDS and value != 0:
                status, note = "narrowed", "numbers are written without exponents"
            elif name == "type" and (
                "integer" in value if isinstance(value, list) else value == "integer"
            ):
                status, note = "narrowed", "integers are written without exponents"
            elif name in ("const", "enum") and _holds_number(value):
                status, note = "narrowed", "numbers are written without exponents"
        self._enter_report(pointer, name, status, note)

    def _enter_report(self, pointer: str, keyword: str, status: Status, note: str = "") -> None:
        self._entries[pointer, keyword] = Entry(pointer, keyword, status, note)

    # Reporting -----------------------------------------------------------------------------

    def widen(self, number: int, keyword: str, reason: str) -> None:
        """Report `keyword` as dropped at every occurrence of a subschema."""
        for pointer in self._pointers[number - 1]:
            self._enter_report(pointer, keyword, "widened", reason)

    def narrow_strings(self, note: str) -> None:
        """Report that strings with patterns, formats or lengths may have fewer spellings."""
        for (pointer, keyword), entry in self._entries.items():
            if keyword in _STRING_KEYWORDS and entry.status == "exact":
                self._entries[pointer, keyword] = Entry(pointer, keyword, "narrowed", note)

    def report(self) -> Report:
        """The report as it stands."""
        return Report(tuple(self._entries.values()))


def _enter(
    schema: Any, resolver: Resolver[Any], draft: Draft, pointer: str
) -> tuple[Resolver[Any], Draft]:
    """Resolver and draft inside a subschema: an embedded resource changes both."""
    if not isinstance(schema, dict) or ("$id" not in schema and "id" not in schema):
        return resolver, draft
    resource = specification_of(draft).create_resource(schema)
    if resource.id() is None:
        return resolver, draft
    return resolver.in_subresource(resource), draft_of(schema, draft, pointer)


def asserted_format(name: str, draft: Draft) -> Format | None:
    """What a format means in a draft; if it is younger, what the next draft says that knows it."""
    for known in (4, 6, 7, 2019, 2020):
        kind = format_of(name, known) if known >= draft else None
        if kind is not None:
            return kind
    return None


def _holds_number(value: Any) -> bool:
    stack = [value]
    while stack:
        top = stack.pop()
        if isinstance(top, dict):
            stack.extend(top.values())
        elif isinstance(top, list):
            stack.extend(top)
        elif isinstance(top, int | Decimal) and not isinstance(top, bool):
            return True
    return False


def _asserts(name: str, draft: Draft) -> bool:
    keyword = keyword_of(name, draft)
    return keyword is not None and keyword.role == "assertion"


def _shown(value: Any) -> str:
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, list):
        return f"an array of {len(value)}"
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    return repr(value)[:60] if isinstance(value, str) else str(value)[:60]
