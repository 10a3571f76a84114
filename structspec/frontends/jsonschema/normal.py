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

from collections.abc import Hashable, Iterator
from dataclasses import replace

from structspec.errors import BudgetExceeded
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
from structspec.frontends.jsonschema.budget import spend
from structspec.frontends.jsonschema.evaluated import Evaluated, Kind, Tracer, trace_keywords
from structspec.frontends.jsonschema.exclusive import one_each
from structspec.frontends.jsonschema.goals import FALSE, TRUE, Goal
from structspec.frontends.jsonschema.intervals import count
from structspec.frontends.jsonschema.objects import ObjectShape
from structspec.frontends.jsonschema.options import SchemaOptions
from structspec.frontends.jsonschema.places import Atlas, Place
from structspec.frontends.jsonschema.refusal import Refusal

__all__ = ["Normaliser"]

# How deep emptiness is looked for, and how many such searches may nest.
_PROBE_DEPTH = 6
_MOST_PROBES = 12
_MOST_POINTS = 64

#: References whose target depends on the dynamic scope.
_DYNAMIC: dict[int, tuple[str, ...]] = {2019: ("$recursiveRef",), 2020: ("$dynamicRef",)}

# Without any of these a schema applies no other one to the same value.
_COMBINING = frozenset(
    {"$ref", "$dynamicRef", "$recursiveRef", "allOf", "anyOf", "oneOf", "not", "if",
     "dependentSchemas", "dependencies"}
)  # fmt: skip

# Without any of these as well, what it says itself is all that it says.
_LOOKING_THROUGH = _COMBINING | {"unevaluatedItems", "unevaluatedProperties"}

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
        self._applying: dict[int, list[tuple[str, list[Goal]]]] = {}
        self._active: set[int] = set()
        self._emptiness: dict[tuple[Goal, int], bool] = {}
        self._probing = 0

    def form(self, goal: Goal) -> Form:
        """The normal form of a goal."""
        known = self._goals.get(goal)
        if known is not None:
            return known
        if len(goal) == 1:
            # PERF: nearly all goals are one subschema.
            (only,) = goal
            if len(only) == 1:
                (number,) = only
                if number > 0:
                    result = self._goals[goal] = self._place_form(number)
                    return result
        result = self._goals[goal] = self._union(goal)
        return result

    def _union(self, goal: Goal) -> Form:
        """The form of a goal from those of its alternatives."""
        alternatives = []
        # Sorted, because the order of a set must not decide the order of alternatives.
        for alternative in sorted(goal, key=sorted):
            form = ANYTHING
            for number in sorted(alternative, key=abs):
                form = intersect(form, self._signed(number), self.hopeless)
            alternatives.append(form)
        return union(*alternatives)

    def _signed(self, number: int) -> Form:
        form = self._place_form(abs(number))
        if number > 0:
            return form
        blame = Refusal("not", -number, "the complement is not known exactly")
        return complement(form, blame, self.hopeless)

    # Subschemas of the same value ----------------------------------------------------------

    def _place_form(self, number: int) -> Form:
        found = self._forms.get(number)
        if found is not None:
            return found
        if number in self._active:
            raise CircularReference
        place = self.atlas.place(number)
        if _LOOKING_THROUGH.isdisjoint(place.schema):
            form = self._forms[number] = self._own(place)
            return form
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
                    for _, goals in self._combinators(place)
                    for goal in goals
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

    def _combinators(self, place: Place) -> list[tuple[str, list[Goal]]]:
        """The combinators of a schema and the goals that each applies; read once."""
        found = self._applying.get(place.number)
        if found is None:
            plain = _COMBINING.isdisjoint(place.schema)
            found = [] if plain else list(self._read_combinators(place))
            self._applying[place.number] = found
        return found

    def _read_combinators(self, place: Place) -> Iterator[tuple[str, list[Goal]]]:
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

    def _own(self, place: Place) -> Form:
        try:
            return own_form(place, self.atlas, self.options)
        except BudgetExceeded as error:
            raise error.at(None, place.pointer) from error

    def _combine(self, place: Place) -> Form:
        form = self._own(place)
        for keyword, goals in self._combinators(place):
            try:
                form = self._combined(form, place, keyword, goals)
            except BudgetExceeded as error:
                raise error.at(keyword, place.pointer) from error
        for kind in trace_keywords(place) if place.draft >= 2019 else ():
            try:
                form = self._with_unevaluated(form, place, kind)
            except BudgetExceeded as error:
                raise error.at("unevaluated", place.pointer) from error
        return form

    def _combined(self, form: Form, place: Place, keyword: str, goals: list[Goal]) -> Form:
        """What is left of `form` under one combinator of a schema."""
        if keyword == "oneOf":
            applied = union(*self._one_each(goals, place))
        elif keyword == "not":
            applied = complement(self.form(goals[0]), self._blame("not", place), self.hopeless)
        elif keyword == "if":
            blame = self._blame("if", place)
            condition, then, otherwise = map(self.form, goals)
            outside = complement(condition, blame, self.hopeless)
            applied = union(
                intersect(condition, then, self.hopeless),
                intersect(outside, otherwise, self.hopeless),
            )
        elif keyword.startswith("dependen"):
            absent, present = _presence(keyword.partition("/")[2])
            applied = union(absent, intersect(present, self.form(goals[0])))
        elif keyword == "anyOf":
            applied = union(*map(self.form, goals))
        else:
            for goal in goals:
                form = intersect(form, self.form(goal), self.hopeless)
            return form
        return intersect(form, applied, self.hopeless)

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
                yield [
                    [
                        (
                            complement(
                                self.form(goals[0]), self._blame("not", place), self.hopeless
                            ),
                            TRUE,
                        )
                    ]
                ]
            elif keyword == "if":
                blame = self._blame("if", place)
                outside = complement(self.form(goals[0]), blame, self.hopeless)
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

    def _one_each(self, goals: list[Goal], place: Place) -> list[Form]:
        """For each branch of a `oneOf`, the values that satisfy it and no other."""
        blame = Refusal(
            "oneOf", place.number, "whether two branches overlap cannot be decided exactly"
        )
        return one_each([self.form(goal) for goal in goals], blame, self)

    # Emptiness -----------------------------------------------------------------------------

    def empty(self, goal: Goal) -> bool:
        """Whether it is seen without deep search that no value satisfies `goal`."""
        return self._empty(goal, _PROBE_DEPTH)

    def hopeless(self, shape: ArrayShape | ObjectShape) -> bool:
        """Whether it is seen without deep search that no value is of this shape."""
        if isinstance(shape, ArrayShape):
            return self._empty_array(shape, _PROBE_DEPTH)
        return self._empty_object(shape, _PROBE_DEPTH)

    def tags(self, goal: Goal) -> frozenset[Hashable] | None:
        """The scalars that satisfy a goal; None if others do, or they cannot be listed."""
        if goal == TRUE or self._probing >= _MOST_PROBES:
            return None
        self._probing += 1
        try:
            form = self.form(goal)
        except CircularReference:
            return None
        finally:
            self._probing -= 1
        if form.refusals or form.arrays or form.objects:
            return None
        found: set[Hashable] = {("boolean", flag) for flag in form.booleans}
        if form.null:
            found.add("null")
        for strings in form.strings:
            if strings.values is None:
                return None
            found.update(("string", value) for value in strings.values)
        for numbers in form.numbers:
            if count(numbers.ints) > _MOST_POINTS or any(a[0] != b[0] for a, b in numbers.fracs):
                return None
            found.update(("number", n) for low, high in numbers.ints for n in range(low, high))
            found.update(("number", low[0]) for low, _ in numbers.fracs)
        return frozenset(found)

    def _empty(self, goal: Goal, depth: int) -> bool:
        if goal in (TRUE, FALSE):
            return goal == FALSE
        if depth == 0:
            return False
        known = self._emptiness.get((goal, depth))
        if known is not None:
            return known
        if self._probing >= _MOST_PROBES:
            return False
        spend()
        self._probing += 1
        try:
            found = self._no_values(self.form(goal), depth)
        except CircularReference:
            found = False
        finally:
            self._probing -= 1
        self._emptiness[goal, depth] = found
        return found

    def _no_values(self, form: Form, depth: int) -> bool:
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
        return any(self._empty(shape.goal_of(name), depth) for name in shape.required)


def _presence(name: str) -> tuple[Form, Form]:
    """The values without a member `name`, and the objects with one."""
    absent = replace(ANYTHING, objects=(ObjectShape(((name, FALSE),)),))
    return absent, Form(objects=(ObjectShape(required=(name,)),))


def _leading(place: Place) -> str:
    """The keyword that leads on from a subschema to others about the same value."""
    leading = ("$ref", "$dynamicRef", "$recursiveRef", "allOf", "anyOf", "oneOf", "not", "if")
    return next((keyword for keyword in leading if keyword in place.schema), "dependentSchemas")
