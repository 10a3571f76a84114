"""From structural tags to the grammar IR.

Owns how regions are put together: the grammars of embedded schemas become rules with a prefix of
their own, free text becomes an automaton (`free_text`), and a region whose content ends in free
text is read up to the first occurrence of its end.

Invariants
- errors and reports name the place in the structural tag, then the place in the schema;
- a `Token` becomes `ir.Special`, a `ConstString` bytes: equal-looking text stays apart.

Cost: linear in the embedded grammars and the triggers.

Example::

    >>> from structspec.frontends.tags.spec import ConstString, StructuralTag
    >>> grammar, report = lower_tags(StructuralTag(ConstString("hi")))
    >>> grammar.rules[grammar.start]
    Bytes(value=b'hi')
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from typing import Any

from structspec import ir
from structspec.errors import SchemaError, UnsupportedFeature
from structspec.frontends.jsonschema import SchemaOptions, lower_schema
from structspec.frontends.regex import lower_regex
from structspec.frontends.tags import spec
from structspec.frontends.tags.free_text import ANY_CHARACTER, Marker, Outcome, Pattern, free_text
from structspec.frontends.tags.read import read_structural_tag
from structspec.frontends.types import describe
from structspec.report import Entry, Report

__all__ = ["lower_tags"]

_End = str | spec.Token


def lower_tags(source: Any, options: SchemaOptions | None = None) -> tuple[ir.GrammarIR, Report]:
    """Lower a structural tag: our dataclasses, or one of the JSON forms (dict or text).

    `options` are the policies for the schemas in it. Raises SchemaError for what is no structural
    tag and UnsupportedFeature for parts of the JSON forms that cannot be exact; both name the
    place.
    """
    tag = read_structural_tag(source)
    lowering = _Lowering(options or SchemaOptions())
    lowering.rules["root"] = lowering.content(tag.format, "/format")
    return ir.GrammarIR(lowering.rules, "root"), Report(tuple(lowering.entries))


class _Lowering:
    def __init__(self, options: SchemaOptions) -> None:
        self.options = options
        self.rules: dict[str, ir.Node] = {}
        self.entries: list[Entry] = []
        self._schemas: dict[int, tuple[spec.JSONSchema, ir.Node]] = {}
        self._included: dict[int, tuple[ir.GrammarIR, ir.Node]] = {}
        self._grammars = 0
        self._names = 0

    def content(self, content: spec.Content, place: str) -> ir.Node:
        """The node of one content."""
        match content:
            case spec.ConstString(value):
                return ir.Bytes(_encoded(value, place))
            case spec.Token(name):
                return ir.Special(name)
            case spec.Node(node):
                return node
            case spec.AnyText():
                return self._any_text(content, (), place)
            case spec.JSONSchema():
                return self._schema(content, place)
            case spec.Regex(pattern, dialect):
                return self._regex(pattern, dialect, place)
            case spec.Embedded():
                return self._embedded(content, place)
            case spec.Sequence(elements):
                parts = (self.content(e, f"{place}/elements/{i}") for i, e in enumerate(elements))
                return ir.sequence(list(parts))
            case spec.Or(elements):
                return ir.choice(
                    [self.content(e, f"{place}/elements/{i}") for i, e in enumerate(elements)]
                )
            case spec.Repeat(item, minimum, maximum):
                return self._repeat(self.content(item, f"{place}/content"), minimum, maximum, place)
            case spec.Tag():
                return ir.sequence((self._mark(content.begin, place), self._rest(content, place)))
            case spec.TriggeredTags():
                return self._triggered(content, (), place)
            case spec.TagsWithSeparator():
                return self._separated(content, place)
        raise SchemaError(
            f"{type(content).__name__} is no content of a structural tag; use the classes of "
            "structspec.frontends.tags",
            pointer=place,
        )

    # -- free text -------------------------------------------------------------------------

    def _until(self, content: spec.Content, ends: tuple[_End, ...], place: str) -> ir.Node:
        """A content with its end; free text at its end stops at the first occurrence of one."""
        match content:
            case spec.AnyText():
                return self._any_text(content, ends, place)
            case spec.TriggeredTags():
                return self._triggered(content, ends, place)
            case spec.Sequence(elements) if elements:
                *first, last = elements
                parts = [self.content(e, f"{place}/elements/{i}") for i, e in enumerate(first)]
                parts.append(self._until(last, ends, f"{place}/elements/{len(first)}"))
                return ir.sequence(parts)
            case spec.Or(elements) if elements:
                return ir.choice(
                    [self._until(e, ends, f"{place}/elements/{i}") for i, e in enumerate(elements)]
                )
        closing = ir.choice([self._mark(end, place) for end in ends])
        return ir.sequence((self.content(content, place), closing))

    def _any_text(self, content: spec.AnyText, ends: tuple[_End, ...], place: str) -> ir.Node:
        patterns = [Pattern(text, ir.EPSILON, "never") for text in content.excludes]
        patterns += [Pattern(end, ir.EPSILON, "end") for end in _texts(ends)]
        markers = [self._mark(end, place) for end in ends if not isinstance(end, str)]
        if content.max_chars is not None:
            if patterns:
                raise UnsupportedFeature(
                    "max_chars",
                    place,
                    "a bound on the length beside texts to stop at or to exclude would multiply "
                    "states; drop one of them, or mark the end with a special token",
                )
            text = self._repeat(ANY_CHARACTER, 0, content.max_chars, place)
            return ir.sequence((text, ir.choice(markers))) if markers else text
        if not patterns and not markers:
            return ir.Repeat(ANY_CHARACTER, 0, None)
        if not patterns:
            return ir.sequence((ir.Repeat(ANY_CHARACTER, 0, None), ir.choice(markers)))
        # an empty end: the text may stop anywhere
        accepts = "never" if any(e != "" for e in ends) else "always"
        return self._placed(patterns, [Marker(node, "end") for node in markers], accepts, place)

    def _triggered(
        self, content: spec.TriggeredTags, ends: tuple[_End, ...], place: str
    ) -> ir.Node:
        if not content.text_first and not content.at_least_one:
            raise SchemaError("text_first=False needs at_least_one=True", pointer=place)
        if not content.tags:
            raise SchemaError("there are no tags", pointer=place)
        closes = any(end != "" for end in ends)
        closing = ir.choice([self._mark(e, place) for e in ends if e != ""]) if closes else None
        tags = [
            (tag, self._shared(self._rest(tag, f"{place}/tags/{i}")), f"{place}/tags/{i}")
            for i, tag in enumerate(content.tags)
        ]
        stop = content.stop_after_first
        ending = closing if stop and closing is not None else ir.EPSILON
        patterns, markers = self._dispatch(content, tags, ending, place)
        patterns += [Pattern(text, ir.EPSILON, "never") for text in content.excludes]
        early = not content.at_least_one
        if closing is not None:
            patterns += [Pattern(e, ir.EPSILON, "end", early) for e in _texts(ends)]
            markers += [
                Marker(self._mark(e, place), "end", early) for e in ends if not isinstance(e, str)
            ]
        if content.text_first:
            accepts = "never" if closes else "after one" if content.at_least_one else "always"
            if stop and content.at_least_one:
                accepts = "never"
            return self._placed(patterns, markers, accepts, place)
        first = ir.choice(
            [ir.sequence((self._mark(tag.begin, where), rest)) for tag, rest, where in tags]
        )
        if stop:
            return ir.sequence((first, ending))
        # the first one stands for itself: behind it, ends are no longer early
        late = [Pattern(p.text, p.then, p.outcome) for p in patterns]
        after = [Marker(m.node, m.outcome) for m in markers]
        rest = self._placed(late, after, "never" if closes else "always", place)
        return ir.sequence((first, rest))

    def _dispatch(
        self,
        content: spec.TriggeredTags,
        tags: Sequence[tuple[spec.Tag, ir.Node, str]],
        ending: ir.Node,
        place: str,
    ) -> tuple[list[Pattern], list[Marker]]:
        """What each trigger leads to: the rest of every tag that begins with it."""
        outcome: Outcome = "end" if content.stop_after_first else "resume"
        patterns: list[Pattern] = []
        markers: list[Marker] = []
        served: set[int] = set()
        triggers = content.triggers_or_begins()
        for number, trigger in enumerate(triggers):
            rests: list[ir.Node] = []
            for index, (tag, rest, where) in enumerate(tags):
                if isinstance(trigger, str) and isinstance(tag.begin, str):
                    if tag.begin.startswith(trigger):
                        begin = ir.Bytes(_encoded(tag.begin[len(trigger) :], where))
                        rests.append(ir.sequence((begin, rest, ending)))
                        served.add(index)
                elif trigger == tag.begin:
                    rests.append(ir.sequence((rest, ending)))
                    served.add(index)
            if not rests:
                raise SchemaError(
                    f"no tag begins with the trigger {_shown(trigger)}",
                    pointer=f"{place}/triggers/{number}",
                )
            then = ir.choice(rests)
            if isinstance(trigger, str):
                if not trigger:
                    raise SchemaError("a trigger is empty", pointer=f"{place}/triggers/{number}")
                patterns.append(Pattern(trigger, then, outcome))
            else:
                markers.append(Marker(ir.sequence((ir.Special(trigger.name), then)), outcome))
        for index, (tag, _, where) in enumerate(tags):
            if index not in served:
                raise SchemaError(
                    f"no trigger is a beginning of {_shown(tag.begin)}, so this tag cannot be "
                    f"reached; the triggers are {', '.join(map(_shown, triggers))}",
                    pointer=f"{where}/begin",
                )
        return patterns, markers

    def _placed(
        self, patterns: list[Pattern], markers: list[Marker], accepts: Any, place: str
    ) -> ir.Node:
        try:
            return self._shared(free_text(patterns, markers, accepts=accepts))
        except SchemaError as error:
            raise SchemaError(str(error), pointer=place) from None

    # -- regions ---------------------------------------------------------------------------

    def _rest(self, tag: spec.Tag, place: str) -> ir.Node:
        """What follows the begin of a tag."""
        ends = tag.ends()
        if not ends:
            raise SchemaError("a tag has no end; write '' for none", pointer=f"{place}/end")
        return self._until(tag.content, ends, f"{place}/content")

    def _separated(self, content: spec.TagsWithSeparator, place: str) -> ir.Node:
        if not content.tags:
            raise SchemaError("there are no tags", pointer=place)
        tag = self._shared(
            ir.choice(
                [self.content(tag, f"{place}/tags/{i}") for i, tag in enumerate(content.tags)]
            )
        )
        if content.stop_after_first:
            return tag if content.at_least_one else ir.Choice((ir.EPSILON, tag))
        separator = ir.Bytes(_encoded(content.separator, place))
        more = ir.Repeat(ir.sequence((separator, tag)), 0, None)
        some = ir.sequence((tag, more))
        return some if content.at_least_one else ir.Choice((ir.EPSILON, some))

    def _schema(self, content: spec.JSONSchema, place: str) -> ir.Node:
        known = self._schemas.get(id(content))
        if known is not None:  # the same object again: the same rule
            return known[1]
        place += "/json_schema"
        options = replace(self.options, **(content.options or {}))
        if content.resources:
            resources = {**(options.resources or {}), **content.resources}
            options = replace(options, resources=resources)
        grammar, report = self._at(place, lambda: lower_schema(_plain(content.schema), options))
        self.entries += (Entry(place + e.pointer, e.keyword, e.status, e.note) for e in report)
        node = self._include(grammar)
        self._schemas[id(content)] = (content, node)
        return node

    def _regex(self, pattern: str, dialect: Any, place: str) -> ir.Node:
        return self._shared(self._at(f"{place}/pattern", lambda: lower_regex(pattern, dialect)))

    def _embedded(self, content: spec.Embedded, place: str) -> ir.Node:
        source = content.source
        if isinstance(source, ir.GrammarIR):
            included = self._included.get(id(source))
            if included is None:
                included = self._included[id(source)] = (source, self._include(source))
            return included[1]
        if content.syntax not in ("lark", "gbnf"):
            raise SchemaError(f"syntax={content.syntax!r} is not lark or gbnf", pointer=place)
        try:
            room = import_module(f"structspec.frontends.{content.syntax}")
        except ModuleNotFoundError as error:
            raise UnsupportedFeature(
                "grammar", place, f"this version has no front end for {content.syntax}"
            ) from error
        lower = getattr(room, f"lower_{content.syntax}")
        lowered = self._at(f"{place}/grammar", lambda: lower(source))
        return self._include(lowered[0] if isinstance(lowered, tuple) else lowered)

    def _at(self, place: str, lower: Any) -> Any:
        """Run a front end; its errors get the place in the structural tag."""
        try:
            return lower()
        except UnsupportedFeature as error:
            raise UnsupportedFeature(error.keyword, place + error.pointer, error.reason) from error
        except SchemaError as error:
            inner = error.pointer or ""
            message = str(error)
            for said in (f"at '{inner}': ", "at the root: "):
                message = message.removeprefix(said)
            raise SchemaError(message, pointer=place + inner) from error

    def _include(self, grammar: ir.GrammarIR) -> ir.Node:
        """The rules of another grammar under names of their own; its start."""
        self._grammars += 1
        prefix = f"{self._grammars}:"
        self.rules.update(_with_prefix(grammar.rules, prefix))
        return ir.Rule(prefix + grammar.start)

    def _repeat(self, item: ir.Node, minimum: int, maximum: int | None, place: str) -> ir.Node:
        if minimum < 0 or (maximum is not None and maximum < minimum):
            raise SchemaError(f"the bounds {minimum} to {maximum} are impossible", pointer=place)
        return ir.Repeat(item, minimum, maximum)

    def _mark(self, mark: _End, place: str) -> ir.Node:
        return (
            ir.Special(mark.name) if not isinstance(mark, str) else ir.Bytes(_encoded(mark, place))
        )

    def _shared(self, node: ir.Node) -> ir.Node:
        """The node as a rule, so that it is built once however often it is used."""
        if isinstance(node, ir.Rule | ir.Bytes) or node in (ir.EPSILON, ir.NOTHING):
            return node
        self._names += 1
        name = f"tag-{self._names}"
        self.rules[name] = node
        return ir.Rule(name)


def _with_prefix(rules: Mapping[str, ir.Node], prefix: str) -> dict[str, ir.Node]:
    """The rules under new names, references included. Shared nodes stay shared."""
    known: dict[int, ir.Node] = {}

    def renamed(node: ir.Node) -> ir.Node:
        found = known.get(id(node))
        if found is None:
            found = known[id(node)] = _renamed(node)
        return found

    def all_of(items: Iterable[ir.Node]) -> tuple[ir.Node, ...]:
        return tuple(renamed(item) for item in items)

    def _renamed(node: ir.Node) -> ir.Node:
        match node:
            case ir.Rule(name):
                return ir.Rule(prefix + name)
            case ir.Sequence(items):
                return ir.Sequence(all_of(items))
            case ir.Choice(items):
                return ir.Choice(all_of(items))
            case ir.Repeat(item, minimum, maximum):
                return ir.Repeat(renamed(item), minimum, maximum)
            case ir.Variant(item):
                return ir.Variant(renamed(item))
            case ir.Automaton(edges, accepting, longest):
                moved = tuple(tuple((renamed(n), t) for n, t in out) for out in edges)
                return ir.Automaton(moved, accepting, longest)
            case ir.Members(members, separator, order, minimum, maximum):
                changed = tuple(
                    ir.Member(renamed(m.key), renamed(m.value), m.required, m.repeatable)
                    for m in members
                )
                return ir.Members(changed, renamed(separator), order, minimum, maximum)
        return node

    return {prefix + name: renamed(node) for name, node in rules.items()}


def _plain(schema: Any) -> Any:
    """A schema as it is; a type as the schema that describes it."""
    return describe(schema).schema


def _texts(ends: Iterable[_End]) -> list[str]:
    return [end for end in ends if isinstance(end, str) and end]


def _shown(mark: _End) -> str:
    return repr(mark) if isinstance(mark, str) else f"token {mark.name!r}"


def _encoded(text: str, place: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise SchemaError(f"{text!r} holds half of a surrogate pair", pointer=place) from None
