"""From subschemas to normal forms.

`Normaliser` owns the forms of all subschemas and goals of one compile. Keywords of a schema object
are intersected: first its own assertions about the types, then `enum` and `const`, then references
and combinators. Subschemas that apply to the *same* value (`$ref`, `allOf`, `anyOf` …) are
normalised first, with an explicit stack, so chains of any length work; a chain that comes back to
itself says nothing about any value and is refused.

What cannot be said exactly leaves a `Refusal` in the part of the form that it concerns.

Example::

    >>> from structspec.frontends.jsonschema.load import load
    >>> from structspec.frontends.jsonschema.options import SchemaOptions
    >>> from structspec.frontends.jsonschema.places import Atlas
    >>> options = SchemaOptions()
    >>> atlas = Atlas(load({"allOf": [{"minimum": 1}, {"type": "null"}]}, options), options)
    >>> Normaliser(atlas, options).form(atlas.root_goal()).numbers
    ()
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from structspec.frontends.jsonschema.algebra import (
    ANYTHING,
    NOTHING,
    Form,
    complement,
    intersect,
    union,
)
from structspec.frontends.jsonschema.arrays import ArrayShape
from structspec.frontends.jsonschema.assertions import own_evaluated, own_form
from structspec.frontends.jsonschema.evaluated import Evaluated, Kind, Tracer, trace_keywords
from structspec.frontends.jsonschema.goals import FALSE, TRUE, Goal, conjoin
from structspec.frontends.jsonschema.objects import ObjectShape
from structspec.frontends.jsonschema.options import SchemaOptions
from structspec.frontends.jsonschema.places import Atlas, Place
from structspec.frontends.jsonschema.refusal import Refusal

__all__ = ["Normaliser"]

# How deep emptiness is looked for when deciding whether branches of `oneOf` exclude each other.
_PROBE_DEPTH = 6

#: References whose target depends on the dynamic scope.
_DYNAMIC: dict[int, tuple[str, ...]] = {2019: ("$recursiveRef",), 2020: ("$dynamicRef",)}

_CIRCLE = (
    "the reference leads back to itself without passing through a property or an item, "
    "so it says nothing about any value"
)


class CircularReference(Exception):
    """A probe met a subschema that is being normalised further out."""


class Normaliser:
    """Normal forms of goals, memoised."""

    def __init__(self, atlas: Atlas, options: SchemaOptions) -> None:
        self.atlas = atlas
        self.options = options
        self._forms: dict[int, Form] = {}
        self._goals: dict[Goal, Form] = {TRUE: ANYTHING, FALSE: NOTHING}
        self._active: set[int] = set()

    def form(self, goal: Goal) -> Form:
        """The normal form of a goal."""
        known = self._goals.get(goal)
        if known is not None:
            return known
        alternatives = []
        # Sorted, because the order of a set must not decide the order of alternatives.
        for alternative in sorted(goal, key=sorted):
            form = ANYTHING
            for number in sorted(alternative, key=abs):
                form = intersect(form, self._signed(number))
            alternatives.append(form)
        result = union(*alternatives)
        self._goals[goal] = result
        return result

    def _signed(self, number: int) -> Form:
        form = self._place_form(abs(number))
        if number > 0:
            return form
        return complement(form, Refusal("not", -number, "the complement is not known exactly"))

    # Subschemas of the same value ----------------------------------------------------------

    def _place_form(self, number: int) -> Form:
        if number in self._forms:
            return self._forms[number]
        if number in self._active:
            raise CircularReference
        mine: set[int] = set()
        stack = [number]
        try:
            while stack:
                top = stack[-1]
                if top in self._forms:
                    stack.pop()
                    continue
                place = self.atlas.place(top)
                missing = [
                    abs(part)
                    for goal in self._applied(place)
                    for alternative in goal
                    for part in alternative
                    if abs(part) not in self._forms
                ]
                if not missing:
                    self._forms[top] = self._combine(place)
                    stack.pop()
                    continue
                if not mine.isdisjoint(missing) or top in missing:
                    self._forms[top] = replace(
                        ANYTHING, refusals=frozenset({Refusal(_leading(place), top, _CIRCLE)})
                    )
                    continue
                if not self._active.isdisjoint(missing):
                    raise CircularReference
                mine.add(top)
                self._active.add(top)
                stack.extend(missing)
        finally:
            self._active -= mine
        return self._forms[number]

    def _applied(self, place: Place) -> Iterator[Goal]:
        """The goals that the combinators of a schema apply to the same value."""
        for _, goals in self._combinators(place):
            yield from goals

    def _combinators(self, place: Place) -> Iterator[tuple[str, list[Goal]]]:
        schema, draft, atlas = place.schema, place.draft, self.atlas
        if "$ref" in schema:
            yield "$ref", [atlas.reference_goal(place, "$ref")]
            if draft <= 7:
                return
        for keyword in _DYNAMIC.get(draft, ()):
            if keyword in schema:
                yield "$ref", [atlas.reference_goal(place, keyword)]
        for keyword in ("allOf", "anyOf", "oneOf"):
            if keyword in schema:
                yield (
                    keyword,
                    [
                        atlas.goal(sub, place, keyword, str(index))
                        for index, sub in enumerate(schema[keyword])
                    ],
                )
        if "not" in schema:
            yield "not", [atlas.goal(schema["not"], place, "not")]
        if draft >= 7 and "if" in schema and ("then" in schema or "else" in schema):
            yield (
                "if",
                [
                    atlas.goal(schema.get(keyword, True), place, keyword)
                    for keyword in ("if", "then", "else")
                ],
            )
        for keyword in ("dependentSchemas", "dependencies"):
            if (keyword == "dependencies") == (draft <= 7):
                for name, sub in schema.get(keyword, {}).items():
                    if not isinstance(sub, list):
                        yield f"{keyword}/{name}", [atlas.goal(sub, place, keyword, name)]

    def _combine(self, place: Place) -> Form:
        form = own_form(place, self.atlas, self.options)
        for keyword, goals in self._combinators(place):
            if keyword == "oneOf":
                applied = union(*self._one_each(goals, place))
            elif keyword == "not":
                applied = complement(self.form(goals[0]), self._blame("not", place))
            elif keyword == "if":
                blame = self._blame("if", place)
                condition, then, otherwise = map(self.form, goals)
                applied = union(
                    intersect(condition, then), intersect(complement(condition, blame), otherwise)
                )
            elif keyword.startswith("dependen"):
                absent, present = _presence(keyword.partition("/")[2])
                applied = union(absent, intersect(present, self.form(goals[0])))
            elif keyword == "anyOf":
                applied = union(*map(self.form, goals))
            else:
                applied = ANYTHING
                for goal in goals:
                    applied = intersect(applied, self.form(goal))
            form = intersect(form, applied)
        for kind in trace_keywords(place) if place.draft >= 2019 else ():
            form = self._with_unevaluated(form, place, kind)
        return form

    # Evaluation ----------------------------------------------------------------------------

    def _with_unevaluated(self, form: Form, place: Place, kind: Kind) -> Form:
        keyword = "unevaluatedProperties" if kind == "objects" else "unevaluatedItems"
        left = self.atlas.goal(place.schema[keyword], place, keyword)
        if left == TRUE or not getattr(form, kind):
            return form
        part = Tracer(self).left_over(place, kind, left)
        others = replace(form, objects=()) if kind == "objects" else replace(form, arrays=())
        return union(others, part)

    def place_of(self, goal: Goal) -> Place | None:
        """The one subschema that a goal is about; None if it is about several."""
        if len(goal) != 1:
            return None
        (alternative,) = goal
        if len(alternative) != 1:
            return None
        (number,) = alternative
        return self.atlas.place(number) if number > 0 else None

    def own_part(self, place: Place, kind: Kind) -> tuple[Form, Evaluated]:
        """The form of the schema's own assertions, and what they evaluate."""
        form = own_form(place, self.atlas, self.options)
        return form, own_evaluated(place, self.atlas, self.options, kind)

    def cases(self, place: Place) -> Iterator[list[list[tuple[Form, Goal]]]]:
        """The alternatives of each combinator; see `evaluated.Combined`."""
        for keyword, goals in self._combinators(place):
            if keyword == "not":
                yield [[(complement(self.form(goals[0]), self._blame("not", place)), TRUE)]]
            elif keyword == "if":
                outside = complement(self.form(goals[0]), self._blame("if", place))
                yield [
                    [(ANYTHING, goals[0]), (ANYTHING, goals[1])],
                    [(outside, TRUE), (ANYTHING, goals[2])],
                ]
            elif keyword == "oneOf":
                forms = self._one_each(goals, place)
                yield [[(form, goal)] for form, goal in zip(forms, goals, strict=True)]
            elif keyword.startswith("dependen"):
                absent, present = _presence(keyword.partition("/")[2])
                yield [[(absent, TRUE)], [(present, goals[0])]]
            elif keyword == "anyOf":
                yield [[(ANYTHING, goal)] for goal in goals]
            else:
                yield [[(ANYTHING, goal) for goal in goals]]
        schema = place.schema
        if place.draft >= 2019 and "if" in schema and not {"then", "else"} & schema.keys():
            condition = self.atlas.goal(schema["if"], place, "if")
            yield [[(ANYTHING, TRUE)], [(ANYTHING, condition)]]

    def _blame(self, keyword: str, place: Place) -> Refusal:
        return Refusal(keyword, place.number, "the complement is not known exactly")

    # oneOf ---------------------------------------------------------------------------------

    def _one_each(self, goals: list[Goal], place: Place) -> list[Form]:
        """For each branch, the values that satisfy it and no other."""
        forms = [self.form(goal) for goal in goals]
        blame = Refusal(
            "oneOf", place.number, "whether two branches overlap cannot be decided exactly"
        )
        outside: list[Form | None] = [None] * len(forms)

        def beyond(index: int) -> Form:
            known = outside[index]
            if known is None:
                known = outside[index] = complement(forms[index], blame)
            return known

        overlapping: list[list[int]] = [[] for _ in forms]
        for i in range(len(forms)):
            for j in range(i):
                if not self._disjoint(forms[i], forms[j]):
                    overlapping[i].append(j)
                    overlapping[j].append(i)
        results = []
        for form, others in zip(forms, overlapping, strict=True):
            for other in others:
                form = intersect(form, beyond(other))
            results.append(form)
        return results

    def _disjoint(self, left: Form, right: Form) -> bool:
        """Whether no value is in both forms, as far as that is seen without deep search."""
        if (left.null and right.null) or left.booleans & right.booleans:
            return False
        shallow = intersect(
            Form(numbers=left.numbers, strings=left.strings),
            Form(numbers=right.numbers, strings=right.strings),
        )
        if shallow.numbers or shallow.strings:
            return False
        return all(self._no_object(a, b) for a in left.objects for b in right.objects) and all(
            self._empty_array(a.intersect(b), _PROBE_DEPTH)
            for a in left.arrays
            for b in right.arrays
        )

    def _no_object(self, left: ObjectShape, right: ObjectShape) -> bool:
        # The usual tag of a union is required on both sides; look at such members first.
        shared = set(left.required) & set(right.required)
        for name in sorted(shared):
            both = conjoin(left.goal_of(name), right.goal_of(name))
            if self._empty(both, _PROBE_DEPTH):
                return True
        return self._empty_object(left.intersect(right), _PROBE_DEPTH)

    def _empty(self, goal: Goal, depth: int) -> bool:
        if goal in (TRUE, FALSE):
            return goal == FALSE
        if depth == 0:
            return False
        try:
            form = self.form(goal)
        except CircularReference:
            return False
        if form.null or form.booleans or form.numbers or form.strings:
            return False
        return all(self._empty_array(shape, depth - 1) for shape in form.arrays) and all(
            self._empty_object(shape, depth - 1) for shape in form.objects
        )

    def _empty_array(self, shape: ArrayShape, depth: int) -> bool:
        if shape.empty:
            return True
        needed = min(shape.minimum, len(shape.prefix) + 1)
        return any(self._empty(shape.item(index), depth) for index in range(needed))

    def _empty_object(self, shape: ObjectShape, depth: int) -> bool:
        if shape.empty:
            return True
        return any(required and self._empty(goal, depth) for _, goal, required in shape.members())


def _presence(name: str) -> tuple[Form, Form]:
    """The values without a member `name`, and the objects with one."""
    absent = replace(ANYTHING, objects=(ObjectShape(((name, FALSE),)),))
    return absent, Form(objects=(ObjectShape(required=(name,)),))


def _leading(place: Place) -> str:
    """The keyword that leads on from a subschema to others about the same value."""
    leading = ("$ref", "$dynamicRef", "$recursiveRef", "allOf", "anyOf", "oneOf", "not", "if")
    return next((keyword for keyword in leading if keyword in place.schema), "dependentSchemas")
