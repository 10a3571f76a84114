"""Goals that only finitely many values satisfy, listed.

`finite_values` is what `uniqueItems` needs: where the items of an array can be listed, "all differ"
is a set of what has been written. Two values are the same if JSON says so: 1 and 1.0, objects in
any order of keys.

Cost: a list is given up as soon as it grows past its limit.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from itertools import islice, product
from typing import Any

from structspec.frontends.jsonschema.algebra import Form
from structspec.frontends.jsonschema.arrays import ArrayShape
from structspec.frontends.jsonschema.goals import TRUE, Goal
from structspec.frontends.jsonschema.intervals import count
from structspec.frontends.jsonschema.normal import Normaliser
from structspec.frontends.jsonschema.numbers import NumberSet
from structspec.frontends.jsonschema.objects import ObjectShape

__all__ = ["MOST_VALUES", "finite_values", "holds_object"]

#: The most values that a set may have to be listed.
MOST_VALUES = 1024

_DEPTH = 4


class _Endless(Exception):
    """The values cannot be listed."""


def finite_values(goal: Goal, normaliser: Normaliser) -> list[Any] | None:
    """All values that satisfy `goal`, each once; None if they cannot be listed."""
    try:
        found: dict[Hashable, Any] = {}
        for value in _of_form(normaliser.form(goal), normaliser, _DEPTH):
            found.setdefault(identity(value), value)
            if len(found) > MOST_VALUES:
                return None
    except _Endless:
        return None
    return list(found.values())


def identity(value: Any) -> Hashable:
    """A key that two values share if and only if JSON calls them equal."""
    if isinstance(value, dict):
        return frozenset((name, identity(item)) for name, item in value.items())
    if isinstance(value, list):
        return tuple(map(identity, value))
    # True == 1 in Python but not in JSON.
    return (value,) if isinstance(value, bool) else value


def holds_object(value: Any) -> bool:
    """Whether an object is in the value."""
    if isinstance(value, list):
        return any(map(holds_object, value))
    return isinstance(value, dict)


def _of_form(form: Form, normaliser: Normaliser, depth: int) -> Iterator[Any]:
    if form.refusals or depth == 0:
        raise _Endless
    if form.null:
        yield None
    yield from sorted(form.booleans)
    for numbers in form.numbers:
        yield from _of_numbers(numbers)
    for strings in form.strings:
        if strings.values is None or strings.refusals or strings.formats:
            raise _Endless
        yield from strings.values
    for array in form.arrays:
        yield from _of_array(array, normaliser, depth - 1)
    for shape in form.objects:
        yield from _of_object(shape, normaliser, depth - 1)


def _of_numbers(numbers: NumberSet) -> Iterator[Any]:
    if not numbers.plain or count(numbers.ints) > MOST_VALUES:
        raise _Endless
    for low, high in numbers.ints:
        yield from range(low, high)
    for (low, _), (high, _) in numbers.fracs:
        if low != high:
            raise _Endless
        yield low


def _of_goal(goal: Goal, normaliser: Normaliser, depth: int) -> list[Any]:
    found = list(islice(_of_form(normaliser.form(goal), normaliser, depth), MOST_VALUES + 1))
    if len(found) > MOST_VALUES:
        raise _Endless
    return found


def _of_array(shape: ArrayShape, normaliser: Normaliser, depth: int) -> Iterator[Any]:
    if shape.maximum is None or shape.tracked or shape.refusals or shape.maximum > MOST_VALUES:
        raise _Endless
    items = [_of_goal(shape.item(i), normaliser, depth) for i in range(shape.maximum)]
    for length in range(shape.minimum, shape.maximum + 1):
        for values in product(*items[:length]):
            yield list(values)


def _of_object(shape: ObjectShape, normaliser: Normaliser, depth: int) -> Iterator[Any]:
    plain = shape.names == TRUE and not (shape.refusals or shape.demands)
    open_goals = [shape.additional, *(goal for _, goal in shape.cells)]
    if not plain or any(_of_goal(goal, normaliser, depth) for goal in open_goals):
        raise _Endless
    absent = object()
    options = [
        [*_of_goal(goal, normaliser, depth), *(() if required else (absent,))]
        for _, goal, required in shape.members()
    ]
    names = [name for name, _, _ in shape.members()]
    most = len(names) if shape.most is None else shape.most
    for values in product(*options):
        made = {n: v for n, v in zip(names, values, strict=True) if v is not absent}
        if shape.fewest <= len(made) <= most:
            yield made
