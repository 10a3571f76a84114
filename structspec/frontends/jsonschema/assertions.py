"""The assertions of one schema object about each type, without references and combinators.

Owns the reading of every keyword that speaks about one type: `type`, bounds, lengths, items,
properties, `enum`, `const`. A keyword for a type that the schema's own `type` excludes is not even
looked at. Keywords that the normal form cannot say exactly leave a `Refusal` in their type's part.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal
from typing import Any

from structspec.frontends.jsonschema.algebra import ANYTHING, Form, intersect
from structspec.frontends.jsonschema.arrays import ArrayShape
from structspec.frontends.jsonschema.goals import FALSE, TRUE, Goal
from structspec.frontends.jsonschema.intervals import LENGTHS
from structspec.frontends.jsonschema.intervals import intersect as intersect_intervals
from structspec.frontends.jsonschema.keywords import FORMATS, TYPES, keyword_of
from structspec.frontends.jsonschema.load import escape
from structspec.frontends.jsonschema.numbers import (
    ALL_NUMBERS,
    ONLY_INTEGERS,
    NumberSet,
    bounded,
)
from structspec.frontends.jsonschema.objects import ObjectShape
from structspec.frontends.jsonschema.options import SchemaOptions
from structspec.frontends.jsonschema.places import Atlas, Place
from structspec.frontends.jsonschema.refusal import Refusal
from structspec.frontends.jsonschema.strings import StringShape
from structspec.frontends.jsonschema.values import form_of_values

__all__ = ["depends_on_path", "own_form"]

_IN_PLACE = frozenset(
    (
        *("$ref", "$dynamicRef", "$recursiveRef", "allOf", "anyOf", "oneOf", "not"),
        *("if", "then", "else", "dependentSchemas"),
    )
)


def own_form(place: Place, atlas: Atlas, options: SchemaOptions) -> Form:
    """The form of the schema's own assertions."""
    if place.draft <= 7 and "$ref" in place.schema:
        return ANYTHING
    return _Reader(place, atlas, options).form()


def depends_on_path(place: Place, atlas: Atlas, keyword: str) -> bool:
    """Whether a dynamic reference may mean something else than a plain `$ref` would."""
    target = atlas.target(place, keyword).schema
    if not isinstance(target, dict):
        return False
    if keyword == "$recursiveRef":
        return target.get("$recursiveAnchor") is True
    return bool(target.get("$dynamicAnchor") == place.schema[keyword].rpartition("#")[2])


class _Reader:
    def __init__(self, place: Place, atlas: Atlas, options: SchemaOptions) -> None:
        self.place = place
        self.atlas = atlas
        self.options = options
        draft = place.draft
        #: The keywords that exist in this draft and assert something.
        self.keywords: dict[str, Any] = {
            name: value
            for name, value in place.schema.items()
            if (known := keyword_of(name, draft)) is not None and known.role == "assertion"
        }

    def refusal(self, keyword: str, reason: str) -> Refusal:
        return Refusal(keyword, self.place.number, reason)

    def goal(self, schema: Any, *path: str) -> Goal:
        pointer = "".join("/" + escape(segment) for segment in path)
        return self.atlas.goal(schema, self.place, pointer)

    def form(self) -> Form:
        types = self.keywords.get("type", list(TYPES))
        types = {types} if isinstance(types, str) else set(types)
        form = Form(
            "null" in types,
            frozenset({True, False}) if "boolean" in types else frozenset(),
            tuple(self.numbers("number" in types)) if types & {"number", "integer"} else (),
            tuple(self.strings()) if "string" in types else (),
            tuple(self.arrays()) if "array" in types else (),
            tuple(self.objects()) if "object" in types else (),
        )
        if "enum" in self.keywords:
            form = intersect(form_of_values(self.keywords["enum"], self.atlas), form)
        if "const" in self.keywords:
            form = intersect(form_of_values([self.keywords["const"]], self.atlas), form)
        for keyword in ("$dynamicRef", "$recursiveRef"):
            if keyword in self.keywords and depends_on_path(self.place, self.atlas, keyword):
                reason = "what it means depends on the path of evaluation"
                form = intersect(
                    form, replace(ANYTHING, refusals=frozenset({self.refusal(keyword, reason)}))
                )
        return form

    # Per type ------------------------------------------------------------------------------

    def numbers(self, fractions: bool) -> Iterator[NumberSet]:
        keywords = self.keywords
        low, high = keywords.get("minimum"), keywords.get("maximum")
        above, below = keywords.get("exclusiveMinimum"), keywords.get("exclusiveMaximum")
        numbers = ALL_NUMBERS if fractions else ONLY_INTEGERS
        if self.place.draft == 4:
            numbers = numbers.intersect(bounded(low, above is True, high, below is True))
        else:
            numbers = numbers.intersect(bounded(low, False, high, False))
            numbers = numbers.intersect(bounded(above, True, below, True))
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
        low, high = keywords.get("minLength", 0), keywords.get("maxLength")
        refusals = []
        if "pattern" in keywords:
            refusals.append(self.refusal("pattern", "regular expressions on strings"))
        if "format" in keywords and self.options.assert_formats and keywords["format"] in FORMATS:
            reason = f"the format {keywords['format']!r} cannot be asserted exactly"
            refusals.append(self.refusal("format", reason))
        end = LENGTHS[0][1] if high is None else high + 1
        lengths = intersect_intervals(LENGTHS, ((low, end),)) if low < end else ()
        shape = StringShape(lengths, None, frozenset(), frozenset(refusals))
        if not shape.empty:
            yield shape

    def arrays(self) -> Iterator[ArrayShape]:
        keywords, draft = self.keywords, self.place.draft
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
        refusals = []
        minimum, maximum = keywords.get("minItems", 0), keywords.get("maxItems")
        if "contains" in keywords:
            contained = self.goal(keywords["contains"], "contains")
            least = keywords.get("minContains", 1)
            most = keywords.get("maxContains")
            if contained == TRUE:
                minimum = max(minimum, least)
                if most is not None:
                    maximum = most if maximum is None else min(maximum, most)
            elif contained == FALSE:
                if least > 0:
                    return
            elif least > 0 or most is not None:
                refusals.append(self.refusal("contains", "items somewhere in an array"))
        if keywords.get("uniqueItems") is True and (maximum is None or maximum > 1):
            refusals.append(self.refusal("uniqueItems", "items that all differ"))
        if "unevaluatedItems" in keywords:
            left = self.goal(keywords["unevaluatedItems"], "unevaluatedItems")
            decided = "items" in keywords and (
                draft == 2020 or not isinstance(items, list) or "additionalItems" in keywords
            )
            if left != TRUE and not decided:
                if _IN_PLACE.isdisjoint(keywords) and "contains" not in keywords:
                    rest = left
                else:
                    reason = "items that no keyword of a combinator evaluates"
                    refusals.append(self.refusal("unevaluatedItems", reason))
        shape = ArrayShape(prefix, rest, minimum, maximum, frozenset(refusals)).trimmed()
        if not shape.empty:
            yield shape

    def objects(self) -> Iterator[ObjectShape]:
        keywords = self.keywords
        properties = tuple(
            (name, self.goal(sub, "properties", name))
            for name, sub in keywords.get("properties", {}).items()
        )
        additional = self.goal(keywords.get("additionalProperties", True), "additionalProperties")
        refusals = []
        if keywords.get("patternProperties"):
            reason = "properties chosen by a regular expression"
            refusals.append(self.refusal("patternProperties", reason))
            # A refused shape stands for a superset, so keys that a pattern may match stay open.
            additional = TRUE
        if "unevaluatedProperties" in keywords and "additionalProperties" not in keywords:
            left = self.goal(keywords["unevaluatedProperties"], "unevaluatedProperties")
            if left != TRUE:
                if _IN_PLACE.isdisjoint(keywords) and not refusals:
                    additional = left
                else:
                    reason = "properties that no keyword of a combinator evaluates"
                    refusals.append(self.refusal("unevaluatedProperties", reason))
        shape = ObjectShape(
            properties,
            tuple(dict.fromkeys(keywords.get("required", ()))),
            additional,
            self.goal(keywords.get("propertyNames", True), "propertyNames"),
            keywords.get("minProperties", 0),
            keywords.get("maxProperties"),
            frozenset(refusals),
            frozenset(
                self.refusal(keyword, "a count of members whose names are open")
                for keyword in ("minProperties", "maxProperties")
                if keyword in keywords
            ),
        )
        shapes = [] if shape.empty else [shape]
        for condition in self.conditions():
            met = [a.intersect(b) for a in shapes for b in condition]
            shapes = [both for both in met if not both.empty]
        yield from shapes

    def conditions(self) -> Iterator[list[ObjectShape]]:
        """Each `dependentRequired`: the member is absent, or its companions are there too."""
        keywords = self.keywords
        for keyword in ("dependentRequired", "dependencies"):
            for name, companions in keywords.get(keyword, {}).items():
                if isinstance(companions, list) and companions:
                    present = ObjectShape(required=tuple(dict.fromkeys((name, *companions))))
                    yield [ObjectShape(((name, FALSE),)), present]
