"""The assertions of one schema object about each type, without references and combinators.

Owns the reading of every keyword that speaks about one type: `type`, bounds, lengths, items,
properties, `enum`, `const`. A keyword for a type that the schema's own `type` excludes is not even
looked at. Keywords that the normal form cannot say exactly leave a `Refusal` in their type's part.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal
from functools import lru_cache
from typing import Any

from structspec.automata.chardfa import CharDfa
from structspec.errors import BudgetExceeded, SchemaError, UnsupportedFeature
from structspec.frontends.jsonschema.algebra import ANYTHING, MOST_ALTERNATIVES, Form, intersect
from structspec.frontends.jsonschema.arrays import ALL_ARRAYS, ArrayShape, Count
from structspec.frontends.jsonschema.budget import automaton_budget
from structspec.frontends.jsonschema.evaluated import Evaluated, Kind
from structspec.frontends.jsonschema.fates import asserted_format
from structspec.frontends.jsonschema.goals import FALSE, TRUE, Goal, conjoin
from structspec.frontends.jsonschema.intervals import LENGTHS
from structspec.frontends.jsonschema.kept import Kept
from structspec.frontends.jsonschema.keywords import TYPES, asserting
from structspec.frontends.jsonschema.numbers import (
    ALL_NUMBERS,
    ONLY_INTEGERS,
    NumberSet,
    bounded,
)
from structspec.frontends.jsonschema.objects import ALL_OBJECTS, ObjectShape, cells_of
from structspec.frontends.jsonschema.options import SchemaOptions
from structspec.frontends.jsonschema.places import Atlas, Place
from structspec.frontends.jsonschema.refusal import Refusal
from structspec.frontends.jsonschema.strings import ALL_STRINGS, Doubts, StringShape
from structspec.frontends.jsonschema.text_automata import pattern_dfa
from structspec.frontends.jsonschema.values import form_of_values

__all__ = ["own_evaluated", "own_form"]

_NUMBER_WORDS = frozenset(
    {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"}
)
_STRING_WORDS = frozenset({"minLength", "maxLength", "pattern", "format"})
_ARRAY_WORDS = frozenset(
    {"items", "prefixItems", "additionalItems", "minItems", "maxItems", "contains", "uniqueItems"}
)
_OBJECT_WORDS = frozenset(
    {"properties", "required", "additionalProperties", "patternProperties", "propertyNames",
     "minProperties", "maxProperties", "dependentRequired", "dependencies"}
)  # fmt: skip

#: Without any of these a schema itself says nothing about any type.
_OWN_WORDS = (
    _NUMBER_WORDS | _STRING_WORDS | _ARRAY_WORDS | _OBJECT_WORDS | {"type", "enum", "const"}
)

_STRINGS = Form(strings=(ALL_STRINGS,))
_BOOLEANS = Form(booleans=frozenset({True, False}))
_NULL = Form(True)
#: The forms of schemas that say nothing but a type, and what more they could say about it.
_BARE: dict[str, tuple[Form, frozenset[str]]] = {
    "null": (_NULL, frozenset({"enum", "const"})),
    "boolean": (_BOOLEANS, frozenset({"enum", "const"})),
    "number": (Form(numbers=(ALL_NUMBERS,)), _NUMBER_WORDS | {"enum", "const"}),
    "integer": (Form(numbers=(ONLY_INTEGERS,)), _NUMBER_WORDS | {"enum", "const"}),
    "string": (_STRINGS, _STRING_WORDS | {"enum", "const"}),
    "array": (Form(arrays=(ALL_ARRAYS,)), _ARRAY_WORDS | {"enum", "const"}),
    "object": (Form(objects=(ALL_OBJECTS,)), _OBJECT_WORDS | {"enum", "const"}),
}

# Automata of patterns, and why there are none; weighed in states.
_PATTERNS: Kept[str, CharDfa | UnsupportedFeature | SchemaError | BudgetExceeded] = Kept(300_000)
_MOST_STATES = 20_000


def _automaton_of(text: str) -> CharDfa:
    found = _PATTERNS.get(text)
    if found is None:
        try:
            made = pattern_dfa(text, automaton_budget(_MOST_STATES))
            found = _PATTERNS.put(text, made, made.n_states + 1)
        except (UnsupportedFeature, SchemaError) as error:
            found = _PATTERNS.put(text, error.with_traceback(None), 1)
        except BudgetExceeded as error:
            # Time may suffice another day.
            found = error.with_traceback(None)
            if error.what != "time":
                _PATTERNS.put(text, found, 1)
    if isinstance(found, Exception):
        raise found
    return found


def own_form(place: Place, atlas: Atlas, options: SchemaOptions) -> Form:
    """The form of the schema's own assertions."""
    schema, draft = place.schema, place.draft
    if (draft <= 7 and "$ref" in schema) or _OWN_WORDS.isdisjoint(schema):
        return ANYTHING
    name = schema.get("type")
    # In draft 4 integers have a spelling of their own.
    if type(name) is str and (draft > 4 or name != "integer"):
        form, words = _BARE[name]
        if words.isdisjoint(schema):
            return form
    return _Reader(place, atlas, options).form()


def own_evaluated(place: Place, atlas: Atlas, options: SchemaOptions, kind: Kind) -> Evaluated:
    """The members or items that the schema's own keywords evaluate."""
    reader = _Reader(place, atlas, options)
    return reader.properties_seen() if kind == "objects" else reader.items_seen()


@lru_cache(maxsize=1024)
def _between(
    fractions: bool,
    fourth: bool,
    low: int | Decimal | None,
    high: int | Decimal | None,
    above: int | Decimal | bool | None,
    below: int | Decimal | bool | None,
) -> NumberSet:
    """The numbers, or integers, within bounds; `fourth`: as draft 4 writes them."""
    numbers = ALL_NUMBERS if fractions else ONLY_INTEGERS
    if fourth:
        if not fractions:
            numbers = replace(numbers, bare=True)
        return numbers.intersect(bounded(low, above is True, high, below is True))
    numbers = numbers.intersect(bounded(low, False, high, False))
    return numbers.intersect(bounded(above, True, below, True))


class _Reader:
    def __init__(self, place: Place, atlas: Atlas, options: SchemaOptions) -> None:
        self.place = place
        self.atlas = atlas
        self.options = options
        #: The keywords that exist in this draft and assert something.
        known = asserting(place.draft)
        self.keywords: dict[str, Any] = {
            name: value for name, value in place.schema.items() if name in known
        }

    def refusal(self, keyword: str, reason: str) -> Refusal:
        return Refusal(keyword, self.place.number, reason)

    def goal(self, schema: Any, *path: str) -> Goal:
        return self.atlas.goal(schema, self.place, *path)

    def form(self) -> Form:
        words = self.keywords.keys()
        if "enum" not in words and "const" not in words:
            name = self.keywords.get("type")
            if isinstance(name, str):
                return self.of_type(name)
        listed = None
        for keyword in words & {"enum", "const"}:
            values = self.keywords[keyword]
            form = form_of_values(values if keyword == "enum" else [values], self.atlas)
            listed = form if listed is None else intersect(form, listed)
        if listed is not None and words <= {"enum", "const"}:
            return listed
        types = self.keywords.get("type", TYPES)
        types = {types} if isinstance(types, str) else set(types)
        if listed is not None:
            types &= _types_of(listed)
        form = Form(
            "null" in types,
            frozenset({True, False}) if "boolean" in types else frozenset(),
            tuple(self.numbers("number" in types)) if types & {"number", "integer"} else (),
            tuple(self.strings()) if "string" in types else (),
            tuple(self.arrays()) if "array" in types else (),
            tuple(self.objects()) if "object" in types else (),
        )
        return form if listed is None else intersect(listed, form)

    def of_type(self, name: str) -> Form:
        """The form of a schema that has values of one type."""
        if name == "string":
            # Most strings say nothing more.
            free = _STRING_WORDS.isdisjoint(self.keywords)
            return _STRINGS if free else Form(strings=tuple(self.strings()))
        if name == "object":
            return Form(objects=tuple(self.objects()))
        if name == "array":
            return Form(arrays=tuple(self.arrays()))
        if name == "boolean":
            return _BOOLEANS
        if name == "null":
            return _NULL
        return Form(numbers=tuple(self.numbers(name == "number")))

    # Per type ------------------------------------------------------------------------------

    def numbers(self, fractions: bool) -> Iterator[NumberSet]:
        keywords = self.keywords
        if self.place.draft > 4 and _NUMBER_WORDS.isdisjoint(keywords):
            yield ALL_NUMBERS if fractions else ONLY_INTEGERS
            return
        numbers = _between(
            fractions,
            self.place.draft == 4,
            keywords.get("minimum"),
            keywords.get("maximum"),
            keywords.get("exclusiveMinimum"),
            keywords.get("exclusiveMaximum"),
        )
        if "multipleOf" in keywords:
            multiple: int | Decimal = keywords["multipleOf"]
            refusal = self.refusal("multipleOf", f"multiples of {multiple} without both bounds")
            numbers = replace(
                numbers, multiples=numbers.multiples | {(multiple, refusal)}
            ).refined()
        if not numbers.empty:
            yield numbers

    def strings(self) -> Iterator[StringShape]:
        keywords = self.keywords
        if _STRING_WORDS.isdisjoint(keywords):
            yield ALL_STRINGS
            return
        low, high = keywords.get("minLength", 0), keywords.get("maxLength")
        refusals: list[Refusal] = []
        pattern = None
        if "pattern" in keywords:
            pattern = self.pattern("pattern", keywords["pattern"], refusals)
        formats: Doubts = frozenset()
        if "format" in keywords and self.options.assert_formats:
            kind = asserted_format(keywords["format"], self.place.draft)
            if kind is not None and kind.reason:
                refusals.append(self.refusal("format", f"{kind.name!r}: {kind.reason}"))
            elif kind is not None and kind.exact and not kind.large:
                pattern = kind.inside if pattern is None else pattern.intersect(kind.inside)
            elif kind is not None:
                formats = frozenset({(kind, True)})
        end = LENGTHS[0][1] if high is None else high + 1
        lengths = ((low, end),) if low < end else ()
        shape = StringShape(lengths, None, frozenset(), frozenset(refusals), pattern, formats)
        if not shape.empty:
            yield shape

    def pattern(self, keyword: str, text: str, refusals: list[Refusal]) -> CharDfa | None:
        """The automaton of a regular expression; None (and a refusal) if there is none."""
        try:
            return _automaton_of(text)
        except UnsupportedFeature as error:
            refusals.append(self.refusal(keyword, error.reason))
        except BudgetExceeded as error:
            reason = f"{_shortened(text)} takes more than the budget for {error.what}"
            reason = f"{reason}, {error.limit:,g}"
            budget = (error.what, error.limit)
            refusals.append(Refusal(keyword, self.place.number, reason, budget))
        except SchemaError as error:
            raise SchemaError(
                f"'{keyword}' {_shortened(text)} is not a regular expression: {error}",
                pointer=self.place.pointer,
            ) from error
        return None

    def patterns(self, additional: Goal, refusals: list[Refusal]) -> list[tuple[StringShape, Goal]]:
        """The names that `patternProperties` speaks of, with their goals."""
        found = []
        for text, sub in self.keywords.get("patternProperties", {}).items():
            goal = self.goal(sub, "patternProperties", text)
            if goal == TRUE == additional:
                continue
            pattern = self.pattern("patternProperties", text, refusals)
            if pattern is not None:
                found.append((StringShape(pattern=pattern), goal))
        return found

    def arrays(self) -> Iterator[ArrayShape]:
        keywords, draft = self.keywords, self.place.draft
        if _ARRAY_WORDS.isdisjoint(keywords):
            yield ALL_ARRAYS
            return
        prefix: tuple[Goal, ...] = ()
        rest = TRUE
        items = keywords.get("items", True)
        first = "prefixItems" if draft == 2020 else "items"
        if draft == 2020 or not isinstance(items, list):
            rest = self.goal(items, "items")
        listed = keywords.get(first)
        if isinstance(listed, list):
            prefix = tuple(self.goal(sub, first, str(i)) for i, sub in enumerate(listed))
            if draft != 2020:
                rest = self.goal(keywords.get("additionalItems", True), "additionalItems")
        refusals: list[Refusal] = []
        counts = []
        minimum, maximum = keywords.get("minItems", 0), keywords.get("maxItems")
        if "contains" in keywords:
            contained = self.goal(keywords["contains"], "contains")
            least = keywords.get("minContains", 1) if draft >= 2019 else 1
            most = keywords.get("maxContains") if draft >= 2019 else None
            if contained == TRUE:
                minimum = max(minimum, least)
                if most is not None:
                    maximum = most if maximum is None else min(maximum, most)
            elif contained == FALSE:
                if least > 0:
                    return
            elif most is not None and least > most:
                return
            elif least > 0 or most is not None:
                reason = "so many items to count in an array take too many states"
                counts.append(Count(contained, 0, least, most, self.refusal("contains", reason)))
        unique = []
        if keywords.get("uniqueItems") is True:
            reason = "items that all differ, of which there are more than can be listed"
            unique.append(self.refusal("uniqueItems", reason))
        shape = ArrayShape(
            prefix,
            rest,
            minimum,
            maximum,
            frozenset(refusals),
            frozenset(counts),
            frozenset(unique),
        ).trimmed()
        if not shape.empty:
            yield shape

    def objects(self) -> Iterator[ObjectShape]:
        keywords = self.keywords
        if _OBJECT_WORDS.isdisjoint(keywords):
            yield ALL_OBJECTS
            return
        additional = self.goal(keywords.get("additionalProperties", True), "additionalProperties")
        refusals: list[Refusal] = []
        written = "patternProperties" in keywords
        patterns = self.patterns(additional, refusals) if written else []
        if refusals:
            # A refused shape stands for a superset, so keys that a pattern may match stay open.
            additional = TRUE
        properties = []
        place, goal_of = self.place, self.atlas.goal
        for name, sub in keywords.get("properties", {}).items():
            goal = goal_of(sub, place, "properties", name)
            for keys, goal_there in patterns:
                if keys.admits(name):
                    goal = conjoin(goal, goal_there)
            properties.append((name, goal))
        shape = ObjectShape(
            tuple(properties),
            tuple(dict.fromkeys(keywords.get("required", ()))),
            additional,
            self.goal(keywords.get("propertyNames", True), "propertyNames"),
            keywords.get("minProperties", 0),
            keywords.get("maxProperties"),
            frozenset(refusals),
            cells_of(patterns, additional) if patterns else (),
        )
        shapes = [] if shape.empty else [shape]
        for condition in self.conditions():
            met = [a.intersect(b) for a in shapes for b in condition]
            shapes = [both for both in met if not both.empty]
            if len(shapes) > MOST_ALTERNATIVES:
                raise BudgetExceeded("alternatives", MOST_ALTERNATIVES, len(shapes))
        yield from shapes

    # Evaluation ----------------------------------------------------------------------------

    def properties_seen(self) -> Evaluated:
        keywords = self.keywords
        every = "additionalProperties" in keywords
        patterns = frozenset(
            StringShape(pattern=pattern)
            for text in keywords.get("patternProperties", {})
            if (pattern := self.pattern("patternProperties", text, [])) is not None
        )
        names = frozenset(keywords.get("properties", {}))
        return Evaluated(names, patterns, math.inf if every else 0)

    def items_seen(self) -> Evaluated:
        keywords = self.keywords
        items = keywords.get("items")
        listed = keywords.get("prefixItems") if self.place.draft == 2020 else items
        every = "items" in keywords and not isinstance(items, list)
        every = every or (isinstance(items, list) and "additionalItems" in keywords)
        length = len(listed) if isinstance(listed, list) else 0
        contained: frozenset[Goal] = frozenset()
        if self.place.draft == 2020 and "contains" in keywords:
            contained = frozenset({self.goal(keywords["contains"], "contains")})
        return Evaluated(frozenset(), frozenset(), math.inf if every else length, contained)

    def conditions(self) -> Iterator[list[ObjectShape]]:
        """Each `dependentRequired`: the member is absent, or its companions are there too."""
        keywords = self.keywords
        for keyword in ("dependentRequired", "dependencies"):
            for name, companions in keywords.get(keyword, {}).items():
                if isinstance(companions, list) and companions:
                    present = ObjectShape(required=tuple(dict.fromkeys((name, *companions))))
                    yield [ObjectShape(((name, FALSE),)), present]


def _types_of(form: Form) -> set[str]:
    """The types that values of the form may have."""
    return {
        name
        for name, present in (
            ("null", form.null),
            ("boolean", form.booleans),
            ("number", form.numbers),
            ("integer", form.numbers),
            ("string", form.strings),
            ("array", form.arrays),
            ("object", form.objects),
        )
        if present
    }


def _shortened(text: str) -> str:
    return repr(text if len(text) <= 60 else text[:57] + "...")
