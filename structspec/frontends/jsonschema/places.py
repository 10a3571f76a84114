"""Subschemas as numbers, and the walk that checks them and reports on every keyword.

An `Atlas` interns subschemas: equal ones (same content, same base URI if they hold references, same
draft) share one number, so that equal schemas share one normal form and one grammar rule however
often they are written. Content is compared bottom up through identifiers of contents, so interning
a whole document is linear and never recurses.

The walk visits every subschema of the document (and the targets of references outside the usual
places) and raises SchemaError on a keyword of the wrong shape. What is equal to something that it
has visited, and means the same wherever it stands, is not visited again: `occurrences` goes through
all of it when somebody reads the report.

Example::

    >>> from structspec.frontends.jsonschema.load import load
    >>> from structspec.frontends.jsonschema.options import SchemaOptions
    >>> options = SchemaOptions()
    >>> atlas = Atlas(load({"anyOf": [{"type": "null"}, {"type": "null"}]}, options), options)
    >>> [entry.pointer for entry in atlas.report().for_keyword("type")]
    ['/anyOf/0', '/anyOf/1']
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from structspec.errors import UnsupportedFeature
from structspec.frontends.jsonschema.budget import meter, spend
from structspec.frontends.jsonschema.document import (
    DYNAMIC_ANCHORS,
    IDENTIFIERS,
    ITSELF,
    LOCATING,
    Document,
    Target,
    base_uri,
    containers_of,
    dynamic_anchors,
    dynamic_target,
)
from structspec.frontends.jsonschema.drafts import Draft, draft_of
from structspec.frontends.jsonschema.fates import Fates
from structspec.frontends.jsonschema.goals import FALSE, TRUE, Goal, literal
from structspec.frontends.jsonschema.keywords import asserting
from structspec.frontends.jsonschema.occurrences import Occurrences, enter
from structspec.frontends.jsonschema.options import SchemaOptions
from structspec.frontends.jsonschema.pointers import ROOT, Pointer
from structspec.records import record
from structspec.report import Entry, Report

if TYPE_CHECKING:
    from referencing._core import Resolver

    from structspec.frontends.jsonschema.occurrences import Occurrence

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

    __slots__ = ("draft", "goal", "locating")

    def __init__(self, locating: bool) -> None:
        #: Whether references or identifiers are in it, so that its place matters.
        self.locating = locating
        #: If its place does not matter: the draft in which it has been walked, and its goal there.
        self.draft: Draft | None = None
        self.goal = FALSE


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
        #: By the id of what has been walked and whose place matters: draft, resolver and goal.
        self._known: dict[int, tuple[Draft, Resolver[Any], Goal]] = {}
        self._seen: set[int] = set()
        self._occurrences = Occurrences(options)
        self._widened: list[tuple[int, str, str]] = []
        self._string_note = ""
        self._dynamic: dict[str, bool] = {}
        #: The drafts of resources by their URIs.
        self._drafts: dict[str, Draft] = {}
        if document.resolver is ITSELF:
            self._drafts[document.uri] = document.draft
        #: Whether the document names anchors that the dynamic scope can change.
        self._anchored = False
        self._references: dict[tuple[str, Any, str, Scope], Goal] = {}
        self.walk(document.root, document.resolver, document.draft, ROOT)

    # Interning -----------------------------------------------------------------------------

    def mentions(self, keyword: str) -> bool:
        """Whether some subschema of the document has the keyword."""
        return any(keyword in place.schema for place in self.places)

    def place(self, number: int) -> Place:
        """The subschema with this number (from 1)."""
        return self.places[number - 1]

    def goal(self, schema: Any, parent: Place, *path: str) -> Goal:
        """The goal 'satisfies `schema`', a subschema written at `path` below `parent`."""
        if schema is True:
            return TRUE
        if schema is False:
            return FALSE
        content = self._content_of.get(id(schema))
        if content is not None:
            if content.draft == parent.draft:
                return content.goal
            known = self._known.get(id(schema))
            if known is not None and not parent.scope:
                draft, resolver, goal = known
                if draft == parent.draft and resolver is parent.resolver:
                    return goal
        pointer = Pointer(parent.path, path)
        resolver, draft = enter(schema, parent.resolver, parent.draft, pointer)
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
        size = len(self.places) + 1
        number = self._numbers.setdefault(self._identity(schema, resolver, draft, scope), size)
        if number == size:
            spend()
            self.places.append(Place(number, schema, resolver, draft, pointer, scope))
        return number

    def _identity(
        self, schema: Any, resolver: Resolver[Any], draft: Draft, scope: Scope
    ) -> tuple[Any, ...]:
        """The same for subschemas that are to be one."""
        content = self._content_of.get(id(schema)) or self._content(schema)
        return content, (base_uri(resolver), scope) if content.locating else None, draft

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
                    # Members of that name are frequent; their values are schemas.
                    locating = any(type(top.get(mark)) is str for mark in LOCATING)
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
        """Check `schema` and every subschema in it, unless an equal one has been checked.

        `resolver` and `draft` are those inside `schema`, if it is a resource of its own. Raises
        SchemaError.
        """
        if isinstance(schema, bool) or id(schema) in self._seen:
            return
        root: Occurrence = schema, resolver, draft, pointer.above, pointer.segments
        self._occurrences.roots.append(root)
        stack = [root]
        seen, content_of, below = self._seen, self._content_of, self._occurrences.below
        tick = meter()
        while stack:
            schema, resolver, draft, above, segments = stack.pop()
            identifier = id(schema)
            if identifier in seen:
                continue
            tick(1)  # those that are not looked at again as well: there may be very many
            content = content_of.get(identifier) or self._content(schema)
            if content.draft == draft:
                continue
            seen.add(identifier)
            pointer = Pointer(above, segments)
            number = self._intern(schema, resolver, draft, pointer)
            goal = TRUE if asserting(draft).isdisjoint(schema) else literal(number)
            if not content.locating:
                if content.draft is None:
                    content.draft, content.goal = draft, goal
            elif IDENTIFIERS.isdisjoint(schema):
                self._known[identifier] = draft, resolver, goal
            stack.extend(reversed(below(schema, resolver, draft, pointer)))

    # Reporting -----------------------------------------------------------------------------

    def widen(self, number: int, keyword: str, reason: str) -> None:
        """Report `keyword` as dropped at every occurrence of a subschema."""
        self._widened.append((number, keyword, reason))

    def narrow_strings(self, note: str) -> None:
        """Report that strings with patterns, formats or lengths may have fewer spellings."""
        self._string_note = note

    def report(self) -> Report:
        """The report as it stands; its entries are written when they are first looked at."""
        widened = self._widenings()
        fates = Fates(self.options, self._string_note)
        occurrences = self._occurrences

        def entries() -> list[Entry]:
            found = {
                (entry.pointer, entry.keyword): entry
                for schema, _, draft, pointer in occurrences
                for entry in fates.of(str(pointer), schema, draft)
            }
            for pointer, keyword, reason in widened:
                place = str(pointer)
                found[place, keyword] = Entry(place, keyword, "widened", reason)
            return list(found.values())

        return Report(entries)

    def _widenings(self) -> list[tuple[Pointer, str, str]]:
        """What has been dropped, at every occurrence of the subschemas that said it."""
        pointers = {number: [self.place(number).path] for number, _, _ in self._widened}
        for schema, resolver, draft, pointer in self._occurrences if pointers else ():
            number = self._numbers[self._identity(schema, resolver, draft, ())]
            if number in pointers:
                pointers[number].append(pointer)
        return [
            (pointer, keyword, reason)
            for number, keyword, reason in self._widened
            for pointer in pointers[number]
        ]
