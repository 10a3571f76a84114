"""The normal form of a schema: a union of constraints per type, closed under and, or, not.

A `Form` says for each JSON type which values are in: null and the booleans by listing, numbers by
`NumberSet`s, strings, arrays and objects by shapes (`strings`, `arrays`, `objects`). Each tuple is
a union. Child values are `Goal`s, so a form is finite even if the schema is recursive.

Invariants: no part is syntactically empty; equal forms denote equal languages (the converse does
not hold). Cost: `intersect` multiplies the numbers of alternatives, which is what combinators cost;
beyond `MOST_ALTERNATIVES` it raises BudgetExceeded.

Example::

    >>> from structspec.frontends.jsonschema.algebra import ANYTHING, NOTHING, intersect
    >>> intersect(ANYTHING, NOTHING) == NOTHING
    True
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TypeAlias, TypeVar

from structspec.errors import BudgetExceeded
from structspec.frontends.jsonschema.arrays import ALL_ARRAYS, ArrayShape
from structspec.frontends.jsonschema.budget import spend
from structspec.frontends.jsonschema.numbers import ALL_NUMBERS, NumberSet
from structspec.frontends.jsonschema.objects import ALL_OBJECTS, ObjectShape
from structspec.frontends.jsonschema.refusal import Refusal
from structspec.frontends.jsonschema.strings import ALL_STRINGS, StringShape
from structspec.records import Hashed, record

__all__ = [
    "ANYTHING",
    "MOST_ALTERNATIVES",
    "NOTHING",
    "Form",
    "Prune",
    "complement",
    "intersect",
    "union",
]

MOST_ALTERNATIVES = 20_000
# All pairs are compared; beyond this many that would cost more than it saves.
_ABSORB_UP_TO = 256

Shape = TypeVar("Shape", ArrayShape, ObjectShape)

#: Whether an array or object shape is known to be empty.
Prune: TypeAlias = Callable[[ArrayShape | ObjectShape], bool]

_BOTH = frozenset({True, False})


@record
class Form(Hashed):
    """The union of all its parts; a form without parts is the empty set of values."""

    null: bool = False
    booleans: frozenset[bool] = frozenset()
    numbers: tuple[NumberSet, ...] = ()
    strings: tuple[StringShape, ...] = ()
    arrays: tuple[ArrayShape, ...] = ()
    objects: tuple[ObjectShape, ...] = ()
    #: What makes the whole form a superset only (parts have refusals of their own).
    refusals: frozenset[Refusal] = frozenset()

    @property
    def nothing(self) -> bool:
        """Whether it is `NOTHING`."""
        return not (
            self.null or self.booleans or self.numbers or self.strings
            or self.arrays or self.objects or self.refusals
        )  # fmt: skip

    @property
    def leaf(self) -> bool:
        """Whether no value of the form contains other values."""
        return not self.arrays and not self.objects


NOTHING = Form()
ANYTHING = Form(True, _BOTH, (ALL_NUMBERS,), (ALL_STRINGS,), (ALL_ARRAYS,), (ALL_OBJECTS,))


def union(*forms: Form) -> Form:
    """The values of one of `forms`."""
    if len(forms) == 1:
        return forms[0]
    if ANYTHING in forms:
        return ANYTHING
    return Form(
        any(form.null for form in forms),
        frozenset().union(*(form.booleans for form in forms)),
        join_numbers(part for form in forms for part in form.numbers),
        join_strings(part for form in forms for part in form.strings),
        _distinct((part for form in forms for part in form.arrays), ALL_ARRAYS),
        _distinct((part for form in forms for part in form.objects), ALL_OBJECTS),
        frozenset().union(*(form.refusals for form in forms)),
    )


def intersect(left: Form, right: Form, prune: Prune | None = None) -> Form:
    """The values of both forms; `prune` may drop shapes that it knows to be empty."""
    if left is right or left is ANYTHING or left in (ANYTHING, right):
        return right
    if right == ANYTHING:
        return left
    for mine, theirs in ((left.arrays, right.arrays), (left.objects, right.objects)):
        size = len(mine) * len(theirs)
        if size > MOST_ALTERNATIVES and min(len(mine), len(theirs)) > 1:
            raise BudgetExceeded("alternatives", MOST_ALTERNATIVES, size)
    spend(8 + len(left.numbers) * len(right.numbers) + 2 * len(left.strings) * len(right.strings))
    numbers = (a.intersect(b) for a in left.numbers for b in right.numbers)
    strings = (a.intersect(b) for a in left.strings for b in right.strings)
    form = Form(
        left.null and right.null,
        left.booleans & right.booleans,
        join_numbers(part for part in numbers if not part.empty),
        join_strings(part for part in strings if not part.empty),
        _products(left.arrays, right.arrays, ALL_ARRAYS, prune),
        _products(left.objects, right.objects, ALL_OBJECTS, prune),
    )
    refusals = left.refusals | right.refusals
    return replace(form, refusals=refusals) if refusals and not form.nothing else form


def complement(form: Form, blame: Refusal, prune: Prune | None = None) -> Form:
    """All other values; `blame` marks the parts where that set is not known exactly."""
    if form.refusals:
        return replace(ANYTHING, refusals=form.refusals | {blame})
    result = Form(
        not form.null, _BOTH - form.booleans, (ALL_NUMBERS,), (ALL_STRINGS,), (ALL_ARRAYS,),
        (ALL_OBJECTS,)
    )  # fmt: skip
    for numbers in form.numbers:
        result = intersect(result, _only(result, numbers=numbers.complement(blame)))
    for strings in form.strings:
        result = intersect(result, _only(result, strings=strings.complement(blame)))
    for arrays in form.arrays:
        others = _only(result, arrays=tuple(arrays.complement(blame)))
        result = intersect(result, others, prune)
    for objects in form.objects:
        rest = _only(result, objects=tuple(objects.complement(blame)))
        result = intersect(result, rest, prune)
    return result


def _products(
    left: tuple[Shape, ...], right: tuple[Shape, ...], everything: Shape, prune: Prune | None
) -> tuple[Shape, ...]:
    """The intersections of all pairs, without empty ones and those that another one contains."""
    if not left or not right:
        return ()
    if left == (everything,) or (left == right and len(left) == 1):
        return right
    if right == (everything,):
        return left
    found: dict[Shape, None] = {}
    for mine in left:
        for theirs in right:
            both = mine.intersect(theirs)
            if not both.empty and both not in found and not (prune and prune(both)):
                found[both] = None
    if everything in found:
        return (everything,)
    shapes = tuple(found)
    if len(left) > 1 and len(right) > 1 and len(shapes) <= _ABSORB_UP_TO:
        shapes = _largest(shapes)
    return shapes


def _largest(shapes: tuple[Shape, ...]) -> tuple[Shape, ...]:
    """The shapes without those that are seen at once to lie in another one."""
    kept: list[Shape] = []
    for shape in shapes:
        if not any(shape.within(other) for other in kept):
            kept = [other for other in kept if not other.within(shape)]
            kept.append(shape)
    return tuple(kept)


def _only(
    form: Form,
    numbers: tuple[NumberSet, ...] = (ALL_NUMBERS,),
    strings: tuple[StringShape, ...] = (ALL_STRINGS,),
    arrays: tuple[ArrayShape, ...] = (ALL_ARRAYS,),
    objects: tuple[ObjectShape, ...] = (ALL_OBJECTS,),
) -> Form:
    return Form(form.null, form.booleans, numbers, strings, arrays, objects)


def join_numbers(parts: Iterable[NumberSet]) -> tuple[NumberSet, ...]:
    """A union of number sets with all plain ones merged into one."""
    plain: list[NumberSet] = []
    others: dict[NumberSet, None] = {}
    for part in parts:
        if part.plain:
            plain.append(part)
        else:
            others[part] = None
    # Merged pairwise like a tournament, so that many small sets cost n log n.
    while len(plain) > 1:
        plain = [
            plain[i].union(plain[i + 1]) if i + 1 < len(plain) else plain[i]
            for i in range(0, len(plain), 2)
        ]
    return (*(part for part in plain if not part.empty), *others)


def join_strings(parts: Iterable[StringShape]) -> tuple[StringShape, ...]:
    """A union of string shapes with all finite ones merged into one."""
    values: dict[str, None] = {}
    others: dict[StringShape, None] = {}
    for part in parts:
        if part.values is not None and not (part.refusals or part.formats):
            values.update(dict.fromkeys(part.values))
        else:
            others[part] = None
    if ALL_STRINGS in others:
        return (ALL_STRINGS,)
    listed = (StringShape(values=tuple(values)),) if values else ()
    return (*listed, *others)


def _distinct(parts: Iterable[Shape], everything: Shape) -> tuple[Shape, ...]:
    kept = dict.fromkeys(parts)
    return (everything,) if everything in kept else tuple(kept)
