"""Subschemas as numbers, and the walk that checks them and reports on every keyword.

An `Atlas` interns subschemas: equal ones (same content, same base URI if they hold references, same
draft) share one number, so that equal schemas share one normal form and one grammar rule however
often they are written. Content is compared bottom up through identifiers of contents, so interning
a whole document is linear and never recurses.

The walk visits every subschema occurrence of the document (and the targets of references outside
the usual places), raises SchemaError on a keyword of the wrong shape, and remembers the occurrence
for the report, which `fates` writes when somebody reads it.

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
from typing import TYPE_CHECKING, Any, TypeAlias

from structspec.errors import SchemaError, UnsupportedFeature
from structspec.frontends.jsonschema.budget import meter, spend
from structspec.frontends.jsonschema.document import (
    DYNAMIC_ANCHORS,
    LOCATING,
    Document,
    Target,
    base_uri,
    containers_of,
    dynamic_anchors,
    dynamic_target,
)
from structspec.frontends.jsonschema.drafts import Draft, draft_of, specification_of
from structspec.frontends.jsonschema.fates import Fates, asserted_format
from structspec.frontends.jsonschema.goals import FALSE, TRUE, Goal, literal
from structspec.frontends.jsonschema.keywords import asserting, handling, overridden, subschemas
from structspec.frontends.jsonschema.options import SchemaOptions
from structspec.frontends.jsonschema.pointers import ROOT, Pointer
from structspec.records import record
from structspec.report import Entry, Report

if TYPE_CHECKING:
    from referencing._core import Resolver

__all__ = ["Atlas", "Place"]

# Stand for true and false, and for the end of the keys, in the contents of containers.
_YES, _NO, _VALUES = object(), object(), object()
_MARKS = LOCATING | DYNAMIC_ANCHORS

# Scopes grow by resources that have not been met before; a longer way is refused.
_LONGEST_SCOPE = 64
#: So many characters are much text.
MUCH_TEXT = 4097
#: Units for the goal of one constant.
CONSTANT = 4

Scope: TypeAlias = tuple[str, ...]


@record
class Place:
    """One interned subschema: its first occurrence stands for all equal ones."""

    number: int
    schema: Any
    resolver: Resolver[Any]
    draft: Draft
    path: Pointer
    #: The URIs of the resources with dynamic anchors entered on the way here, outermost first.
    scope: Scope = ()

    @property
    def pointer(self) -> str:
        """The JSON pointer, for messages."""
        return str(self.path)


class _Content:
    """What equal values share; see `Atlas._content`."""

    __slots__ = ("locating",)

    def __init__(self, locating: bool) -> None:
        #: Whether references or identifiers are in it, so that its place matters.
        self.locating = locating


class Atlas:
    """All subschemas of one compile. Mutable while compiling, private to it."""

    def __init__(self, document: Document, options: SchemaOptions) -> None:
        self.document = document
        self.options = options
        self.places: list[Place] = []
        self._numbers: dict[tuple[Any, ...], int] = {}
        self._contents: dict[Any, _Content] = {}
        self._content_of: dict[int, _Content] = {}
        self._alive: list[Any] = []
        #: Whether the keys and strings of the document have `MUCH_TEXT`.
        self.wordy = False
        #: By the id of what has been walked: the draft; the resolver, if it matters; the goal.
        self._known: dict[int, tuple[Draft, Resolver[Any] | None, Goal]] = {}
        #: Every occurrence of each place.
        self._occurrences: list[list[Pointer]] = []
        #: What has been walked, in the order of the document, for the report.
        self._walked: list[tuple[Pointer, dict[str, Any], Draft]] = []
        self._seen: set[int] = set()
        self._widened: list[tuple[int, str, str]] = []
        self._string_note = ""
        self._dynamic: dict[str, bool] = {}
        #: The drafts of resources by their URIs.
        self._drafts: dict[str, Draft] = {}
        #: Whether the document names anchors that the dynamic scope can change.
        self._anchored = False
        self._references: dict[tuple[str, Any, str, Scope], Goal] = {}
        self.walk(document.root, document.resolver, document.draft, ROOT)

    # Interning -----------------------------------------------------------------------------

    def mentions(self, keyword: str) -> bool:
        """Whether some subschema of the document has the keyword."""
        return any(keyword in schema for _, schema, _ in self._walked)

    def place(self, number: int) -> Place:
        """The subschema with this number (from 1)."""
        return self.places[number - 1]

    def goal(self, schema: Any, parent: Place, *path: str) -> Goal:
        """The goal 'satisfies `schema`', a subschema written at `path` below `parent`."""
        if schema is True:
            return TRUE
        if schema is False:
            return FALSE
        known = self._known.get(id(schema))
        if known is not None and known[0] == parent.draft:
            resolver = known[1]
            if resolver is None or (resolver is parent.resolver and not parent.scope):
                return known[2]
        pointer = Pointer(parent.path, path)
        resolver, draft = _enter(schema, parent.resolver, parent.draft, pointer)
        scope = parent.scope
        if resolver is not parent.resolver:
            scope = self._entered(scope, resolver, pointer)
        return self._goal(schema, resolver, draft, pointer, scope)

    def root_goal(self) -> Goal:
        """The goal of the whole document."""
        document = self.document
        scope: Scope = ()
        if isinstance(document.root, dict) and self._content(document.root).locating:
            scope = self._entered((), document.resolver, ROOT)
        return self._goal(document.root, document.resolver, document.draft, ROOT, scope)

    def _goal(
        self, schema: Any, resolver: Resolver[Any], draft: Draft, pointer: Pointer, scope: Scope
    ) -> Goal:
        if schema is True:
            return TRUE
        if schema is False:
            return FALSE
        if asserting(draft).isdisjoint(schema):
            return TRUE
        return literal(self._intern(schema, resolver, draft, pointer, scope))

    def _entered(self, scope: Scope, resolver: Resolver[Any], pointer: Pointer) -> Scope:
        """The dynamic scope after entering the resource of `resolver`."""
        uri = base_uri(resolver).rstrip("#")
        if uri not in self._dynamic:
            # The document has been walked; other resources have to be looked at.
            ours = resolver is self.document.resolver or self._inside(uri)
            self._dynamic[uri] = (self._anchored or not ours) and dynamic_anchors(resolver)
        if uri in scope or not self._dynamic[uri]:
            return scope
        if len(scope) >= _LONGEST_SCOPE:
            reason = f"more than {_LONGEST_SCOPE} resources on the way"
            raise UnsupportedFeature("$dynamicRef", str(pointer), reason)
        return (*scope, uri)

    def _inside(self, uri: str) -> bool:
        """Whether a resource stands in the document, being neither given nor a metaschema."""
        from jsonschema_specifications import REGISTRY

        return not self.options.resources and uri not in REGISTRY

    def constant(self, value: Any) -> Goal:
        """The goal 'equals `value`'."""
        spend(CONSTANT)
        schema = {"const": value}
        self._alive.append(schema)
        return literal(self._intern(schema, self.document.resolver, 2020, ROOT))

    def reference_goal(self, place: Place, keyword: str) -> Goal:
        """The goal of a reference's target; it is walked if nobody has been there yet."""
        # Where a reference leads depends on the resource and the dynamic scope around it alone.
        key = keyword, place.schema[keyword], base_uri(place.resolver), place.scope
        found = self._references.get(key)
        if found is None:
            found = self._references[key] = self._reference_goal(place, keyword)
        return found

    def _reference_goal(self, place: Place, keyword: str) -> Goal:
        target = self.target(place, keyword)
        draft = self._draft_there(target)
        self.walk(target.schema, target.resolver, draft, target.pointer)
        scope = self._entered(place.scope, target.resolver, target.pointer)
        return self._goal(target.schema, target.resolver, draft, target.pointer, scope)

    def target(self, place: Place, keyword: str) -> Target:
        """Where the reference of `place` leads. Raises SchemaError if nowhere."""
        reference = place.schema[keyword]
        target = self.document.follow(reference, place.resolver, place.path, keyword)
        if keyword == "$ref":
            return target
        return dynamic_target(target, place.resolver, reference, keyword, place.scope)

    def _draft_there(self, target: Target) -> Draft:
        """The draft of a target: what it says itself, else what the root of its resource says."""
        uri = base_uri(target.resolver)
        default = self._drafts.get(uri)
        if default is None:
            from referencing.exceptions import Unresolvable

            try:
                root = target.resolver.lookup("").contents
            except Unresolvable:
                root = None
            default = self._drafts[uri] = draft_of(root, self.document.draft, target.pointer)
        return draft_of(target.schema, default, target.pointer)

    def _intern(
        self,
        schema: Any,
        resolver: Resolver[Any],
        draft: Draft,
        pointer: Pointer,
        scope: Scope = (),
    ) -> int:
        content = self._content_of.get(id(schema)) or self._content(schema)
        context = (base_uri(resolver), scope) if content.locating else None
        size = len(self.places) + 1
        number = self._numbers.setdefault((content, context, draft), size)
        if number == size:
            spend()
            self.places.append(Place(number, schema, resolver, draft, pointer, scope))
            self._occurrences.append([pointer])
        return number

    def _content(self, value: dict[str, Any] | list[Any]) -> _Content:
        """The content of a container: equal ones (with keys in order) share one object."""
        of, contents = self._content_of, self._contents
        found = of.get(id(value))
        if found is not None:
            return found
        # Documents are trees, so in the reverse of this order children come before parents.
        whole = value is self.document.root
        order = self.document.containers if whole else containers_of(value)
        characters = 0
        for top in reversed(order):
            named = type(top) is dict
            locating = False
            if named:
                if not _MARKS.isdisjoint(top):
                    locating = not LOCATING.isdisjoint(top)
                    self._anchored = self._anchored or not DYNAMIC_ANCHORS.isdisjoint(top)
                characters += len("".join(top))
            # PERF: every value of every document passes here.
            key: list[Any] = [*top, _VALUES] if named else []
            for child in top.values() if named else top:
                kind = type(child)
                if kind is str:
                    characters += len(child)
                elif kind is dict or kind is list:
                    child = of[id(child)]
                    if child.locating:
                        locating = True
                elif kind is bool:
                    # True == 1 in Python but not in JSON.
                    child = _YES if child else _NO
                elif isinstance(child, str):
                    characters += len(child)
                key.append(child)
            where = tuple(key)
            found = contents.get(where)
            if found is None:
                found = contents[where] = _Content(locating)
            of[id(top)] = found
        if whole:
            self.wordy = characters >= MUCH_TEXT
        # The identifiers stay valid as long as the containers live.
        self._alive.append(value)
        return of[id(value)]

    # Walking -------------------------------------------------------------------------------

    def walk(self, schema: Any, resolver: Resolver[Any], draft: Draft, pointer: Pointer) -> None:
        """Check `schema` and every subschema in it, and remember them for the report.

        `resolver` and `draft` are those inside `schema`, if it is a resource of its own. Raises
        SchemaError.
        """
        stack = [(schema, resolver, draft, pointer)]
        seen, known, content_of = self._seen, self._known, self._content_of
        tick = meter()
        while stack:
            schema, resolver, draft, pointer = stack.pop()
            identifier = id(schema)
            if isinstance(schema, bool) or identifier in seen:
                continue
            seen.add(identifier)
            self._walked.append((pointer, schema, draft))
            number = self._intern(schema, resolver, draft, pointer)
            self._occurrences[number - 1].append(pointer)
            if "$id" not in schema and "id" not in schema:
                goal = TRUE if asserting(draft).isdisjoint(schema) else literal(number)
                locating = content_of[identifier].locating
                known[identifier] = draft, resolver if locating else None, goal
            self._visit(schema, resolver, draft, pointer, stack)
            tick(1)

    def _visit(
        self,
        schema: dict[str, Any],
        resolver: Resolver[Any],
        draft: Draft,
        pointer: Pointer,
        found: list[tuple[Any, Resolver[Any], Draft, Pointer]],
    ) -> None:
        """Check the keywords of a schema and add its subschemas, the first one last."""
        below: list[tuple[Any, Resolver[Any], Draft, Pointer]] = []
        hidden = overridden(schema, draft)
        known = handling(draft)
        refusing = self.options.unknown_formats == "refuse"
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
            if refusing and name == "format":
                self._check_format(value, draft, pointer)
            if not handled.holds:
                continue
            booleans = handled.booleans
            for path, sub in subschemas(handled.keyword, value):
                if booleans and (sub is True or sub is False):
                    continue
                place = Pointer(pointer, (name, *path))
                if not isinstance(sub, dict):
                    kinds = "an object, true or false" if booleans else "an object"
                    raise SchemaError(
                        f"a schema must be {kinds}, not {_shown(sub)}", pointer=str(place)
                    )
                if "$id" in sub or "id" in sub:
                    below.append((sub, *_enter(sub, resolver, draft, place), place))
                else:
                    below.append((sub, resolver, draft, place))
        found.extend(reversed(below))

    def _check_format(self, name: str, draft: Draft, pointer: Pointer) -> None:
        if self.options.assert_formats and asserted_format(name, draft) is None:
            raise UnsupportedFeature("format", str(pointer), f"the format {name!r} is not known")

    # Reporting -----------------------------------------------------------------------------

    def widen(self, number: int, keyword: str, reason: str) -> None:
        """Report `keyword` as dropped at every occurrence of a subschema."""
        self._widened.append((number, keyword, reason))

    def narrow_strings(self, note: str) -> None:
        """Report that strings with patterns, formats or lengths may have fewer spellings."""
        self._string_note = note

    def report(self) -> Report:
        """The report as it stands; its entries are written when they are first looked at."""
        widened = [
            (pointer, keyword, reason)
            for number, keyword, reason in self._widened
            for pointer in self._occurrences[number - 1]
        ]
        fates = Fates(self.options, self._string_note)
        walked = tuple(self._walked)

        def entries() -> list[Entry]:
            found = {
                (entry.pointer, entry.keyword): entry
                for pointer, schema, draft in walked
                for entry in fates.of(str(pointer), schema, draft)
            }
            for pointer, keyword, reason in widened:
                place = str(pointer)
                found[place, keyword] = Entry(place, keyword, "widened", reason)
            return list(found.values())

        return Report(entries)


def _enter(
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
