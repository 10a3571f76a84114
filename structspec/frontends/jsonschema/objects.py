"""Shapes of objects: declared properties, cells of other names, bounds, demands.

The names of an object fall into *parts*: each declared property, each cell (a set of strings, the
declared ones left out), and all the rest. Every part has a goal for its values. Parts are
disjoint, so `patternProperties` that overlap become cells for their intersections.

Example::

    >>> from structspec.frontends.jsonschema.goals import FALSE, TRUE
    >>> from structspec.frontends.jsonschema.objects import ObjectShape
    >>> closed = ObjectShape((("a", TRUE),), (), FALSE)
    >>> closed.intersect(ObjectShape(required=("b",))).empty
    True
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from structspec.errors import BudgetExceeded
from structspec.frontends.jsonschema.budget import spend
from structspec.frontends.jsonschema.goals import FALSE, TRUE, Goal, conjoin, implies, negate
from structspec.frontends.jsonschema.refusal import Refusal
from structspec.frontends.jsonschema.strings import ALL_STRINGS, StringShape
from structspec.records import Hashed, record

__all__ = ["ALL_OBJECTS", "MOST_CELLS", "Demand", "ObjectShape", "cells_of"]

#: The most cells that overlapping patterns may split the names into.
MOST_CELLS = 256

Cells = tuple[tuple[StringShape, Goal], ...]


@dataclass(frozen=True, slots=True)
class Demand:
    """Some member with a name in `keys`, not in `beyond`, satisfying `names`, satisfies `goal`."""

    keys: StringShape
    beyond: frozenset[str]
    names: Goal
    goal: Goal
    #: What to refuse if the demand takes too many states.
    refusal: Refusal


@record
class ObjectShape(Hashed):
    """Objects whose member n satisfies the goal of n, see `goal_of`.

    `names` is a goal that every key satisfies; `fewest` and `most` bound the number of members.
    `properties` has unique names, in the order in which they are to be written. The key sets of
    `cells` are disjoint; `additional` is for the names in neither.
    """

    properties: tuple[tuple[str, Goal], ...] = ()
    required: tuple[str, ...] = ()
    additional: Goal = TRUE
    names: Goal = TRUE
    fewest: int = 0
    most: int | None = None
    refusals: frozenset[Refusal] = frozenset()
    cells: Cells = ()
    demands: frozenset[Demand] = frozenset()
    # Made when first asked for.
    _declared: dict[str, Goal] | None = field(default=None, init=False, repr=False, compare=False)
    _needed: frozenset[str] | None = field(default=None, init=False, repr=False, compare=False)

    @property
    def declared(self) -> dict[str, Goal]:
        """The goals of the properties by name. Not to be changed."""
        known = self._declared
        if known is None:
            known = dict(self.properties)
            object.__setattr__(self, "_declared", known)
        return known

    @property
    def needed(self) -> frozenset[str]:
        """The names in `required`."""
        known = self._needed
        if known is None:
            known = frozenset(self.required)
            object.__setattr__(self, "_needed", known)
        return known

    @property
    def empty(self) -> bool:
        """Whether a required member is impossible, or the bounds contradict each other."""
        if self.most is not None and self.most < max(self.fewest, len(self.required)):
            return True
        return not all(map(self.goal_of, self.required))

    def goal_of(self, name: str) -> Goal:
        """What the value of the member `name` has to satisfy."""
        goal = self.declared.get(name)
        return self.other(name) if goal is None else goal

    def other(self, name: str) -> Goal:
        """What the value of an undeclared member `name` has to satisfy."""
        for keys, goal in self.cells:
            if keys.admits(name):
                return goal
        return self.additional

    def members(self) -> Iterator[tuple[str, Goal, bool]]:
        """(name, goal, required) of all named members: declared ones, then undeclared required."""
        needed, declared = self.needed, self.declared
        for name, goal in self.properties:
            yield name, goal, name in needed
        for name in self.required:
            if name not in declared:
                yield name, self.other(name), True

    def intersect(self, other: ObjectShape) -> ObjectShape:
        """The objects of both shapes; names of `self` come first."""
        if self is other or other is ALL_OBJECTS:
            return self
        if self is ALL_OBJECTS:
            return other
        spend(12)
        mine, theirs = self.declared, other.declared
        properties = mine
        if theirs or other.additional != TRUE or other.cells:
            free = other.additional == TRUE and not other.cells
            if free:
                properties = dict(mine)
            else:
                properties = {
                    name: goal if name in theirs else conjoin(goal, other.other(name))
                    for name, goal in mine.items()
                }
            for name, goal in theirs.items():
                known = properties.get(name)
                properties[name] = conjoin(self.other(name) if known is None else known, goal)
            spend(1 + len(theirs) + (len(mine) >> 4 if free else len(mine)))
        required = self.required
        if not other.needed <= self.needed:
            required = tuple(dict.fromkeys((*self.required, *other.required)))
        limits = [limit for limit in (self.most, other.most) if limit is not None]
        return ObjectShape(
            self.properties if properties is mine else tuple(properties.items()),
            required,
            conjoin(self.additional, other.additional),
            conjoin(self.names, other.names),
            max(self.fewest, other.fewest),
            min(limits) if limits else None,
            self.refusals | other.refusals,
            _overlay(self.cells, self.additional, other.cells, other.additional),
            self.demands | other.demands,
        )

    def within(self, other: ObjectShape) -> bool:
        """Whether it is seen at once that every object of this shape is one of `other`."""
        spend(2)
        if other.refusals or not other.needed <= self.needed or other.fewest > self.fewest:
            return False
        if other.most is not None and (self.most is None or self.most > other.most):
            return False
        if not other.demands <= self.demands or not implies(self.names, other.names):
            return False
        if other.cells != self.cells and (other.cells or other.additional != TRUE):
            return False
        spend(1 + len(other.properties))
        if not implies(self.additional, other.additional):
            return False
        if not all(implies(self.goal_of(name), goal) for name, goal in other.properties):
            return False
        if other.additional == TRUE and not other.cells:
            return True
        theirs = other.declared
        return all(
            implies(goal, other.other(name)) for name, goal in self.properties if name not in theirs
        )

    def complement(self, blame: Refusal) -> Iterator[ObjectShape]:
        """Shapes that together are all other objects; `blame` is refused where none are known."""
        if self.refusals:
            yield ObjectShape(refusals=self.refusals | {blame})
            return
        spend(len(self.required) + len(self.properties))
        for name in self.required:
            yield ObjectShape(((name, FALSE),))
        for name, goal in self.properties:
            if goal != TRUE:
                yield ObjectShape(((name, negate(goal)),), (name,))
        if self.fewest > 0:
            yield ObjectShape(most=self.fewest - 1)
        if self.most is not None:
            yield ObjectShape(fewest=self.most + 1)
        declared = frozenset(name for name, _ in self.properties)
        for keys, goal in (*self.cells, (rest_of(self.cells), self.additional)):
            if goal != TRUE and not keys.empty:
                yield _demanding(Demand(keys, declared, TRUE, negate(goal), blame))
        if self.names != TRUE:
            yield _demanding(Demand(ALL_STRINGS, frozenset(), negate(self.names), TRUE, blame))
        for demand in self.demands:
            # No member is as demanded. One of `names` and `goal` is always TRUE.
            if demand.names != TRUE:
                yield ObjectShape(names=negate(demand.names))
                continue
            free = tuple((name, TRUE) for name in sorted(demand.beyond))
            if demand.keys == ALL_STRINGS:
                yield ObjectShape(free, additional=negate(demand.goal))
            else:
                yield ObjectShape(free, cells=((demand.keys, negate(demand.goal)),))


ALL_OBJECTS = ObjectShape()


def _demanding(demand: Demand) -> ObjectShape:
    return ObjectShape(fewest=1, demands=frozenset({demand}))


def rest_of(cells: Cells) -> StringShape:
    """The names in none of `cells` (whose key sets are given by patterns alone)."""
    rest = ALL_STRINGS
    for keys, _ in cells:
        for outside in keys.outside():
            rest = rest.intersect(outside)
    return rest


def cells_of(patterns: Iterable[tuple[StringShape, Goal]], additional: Goal) -> Cells:
    """Disjoint cells for patterns that may overlap: a name satisfies the goals of all it matches.

    Names that match none are left to `additional`; cells that say the same are left apart.
    """
    cells: Cells = ()
    for keys, goal in patterns:
        cells = _overlay(cells, TRUE, ((keys, goal),), TRUE)
    return tuple((keys, goal) for keys, goal in cells if goal != additional)


def _overlay(mine: Cells, my_rest: Goal, theirs: Cells, their_rest: Goal) -> Cells:
    """The cells of two partitions at once."""
    if not theirs:
        return tuple((keys, conjoin(goal, their_rest)) for keys, goal in mine)
    if not mine:
        return tuple((keys, conjoin(my_rest, goal)) for keys, goal in theirs)
    if mine == theirs:
        return tuple(
            (keys, conjoin(goal, goals))
            for (keys, goal), (_, goals) in zip(mine, theirs, strict=True)
        )
    found: list[tuple[StringShape, Goal]] = []
    left = [*mine, (rest_of(mine), my_rest)]
    right = [*theirs, (rest_of(theirs), their_rest)]
    for i, (keys, goal) in enumerate(left):
        for j, (others, their_goal) in enumerate(right):
            if i == len(mine) and j == len(theirs):
                continue
            spend(10)
            both = keys.intersect(others)
            if not both.empty:
                found.append((both, conjoin(goal, their_goal)))
                if len(found) > MOST_CELLS:
                    raise BudgetExceeded("cells of keys", MOST_CELLS, len(found))
    return tuple(found)
