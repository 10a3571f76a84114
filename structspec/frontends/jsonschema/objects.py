"""Shapes of objects: declared properties, required names, a goal for all other members.

Example::

    >>> from structspec.frontends.jsonschema.goals import FALSE, TRUE
    >>> from structspec.frontends.jsonschema.objects import ObjectShape
    >>> closed = ObjectShape((("a", TRUE),), (), FALSE)
    >>> closed.intersect(ObjectShape(required=("b",))).empty
    True
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from structspec.frontends.jsonschema.goals import FALSE, TRUE, Goal, conjoin, negate
from structspec.frontends.jsonschema.refusal import Refusal

__all__ = ["ALL_OBJECTS", "ObjectShape"]


@dataclass(frozen=True, slots=True)
class ObjectShape:
    """Objects whose member n satisfies the goal of n, or `additional` if n is not declared.

    `names` is a goal that every key satisfies; `fewest` and `most` bound the number of members.
    `properties` has unique names, in the order in which they are to be written.
    """

    properties: tuple[tuple[str, Goal], ...] = ()
    required: tuple[str, ...] = ()
    additional: Goal = TRUE
    names: Goal = TRUE
    fewest: int = 0
    most: int | None = None
    refusals: frozenset[Refusal] = frozenset()
    #: What to refuse if `fewest` and `most` cannot be lowered exactly.
    counted: frozenset[Refusal] = frozenset()

    @property
    def empty(self) -> bool:
        """Whether a required member is impossible, or the bounds contradict each other."""
        if self.most is not None and self.most < max(self.fewest, len(self.required)):
            return True
        if not self.required:
            return False
        goals = dict(self.properties)
        return any(goals.get(name, self.additional) == FALSE for name in self.required)

    def members(self) -> Iterator[tuple[str, Goal, bool]]:
        """(name, goal, required) of all named members: declared ones, then undeclared required."""
        required = set(self.required)
        declared = set()
        for name, goal in self.properties:
            declared.add(name)
            yield name, goal, name in required
        for name in self.required:
            if name not in declared:
                yield name, self.additional, True

    def intersect(self, other: ObjectShape) -> ObjectShape:
        """The objects of both shapes; names of `self` come first."""
        if self == ALL_OBJECTS:
            return other
        if other == ALL_OBJECTS:
            return self
        mine, theirs = dict(self.properties), dict(other.properties)
        properties = [
            (name, conjoin(goal, theirs.get(name, other.additional)))
            for name, goal in self.properties
        ]
        properties += [
            (name, conjoin(self.additional, goal))
            for name, goal in other.properties
            if name not in mine
        ]
        limits = [limit for limit in (self.most, other.most) if limit is not None]
        return ObjectShape(
            tuple(properties),
            tuple(dict.fromkeys((*self.required, *other.required))),
            conjoin(self.additional, other.additional),
            conjoin(self.names, other.names),
            max(self.fewest, other.fewest),
            min(limits) if limits else None,
            self.refusals | other.refusals,
            self.counted | other.counted,
        )

    def complement(self, blame: Refusal) -> Iterator[ObjectShape]:
        """Shapes that together are all other objects; `blame` is refused where none are known."""
        if self.refusals or self.names != TRUE:
            yield ObjectShape(refusals=self.refusals | {blame})
            return
        for name in self.required:
            yield ObjectShape(((name, FALSE),))
        for name, goal in self.properties:
            if goal != TRUE:
                yield ObjectShape(((name, negate(goal)),), (name,))
        if self.fewest > 0:
            yield ObjectShape(most=self.fewest - 1, counted=frozenset({blame}))
        if self.most is not None:
            yield ObjectShape(fewest=self.most + 1, counted=frozenset({blame}))
        if self.additional != TRUE:
            # "Some undeclared member does not satisfy `additional`" asks for one member of many.
            yield ObjectShape(refusals=frozenset({blame}))


ALL_OBJECTS = ObjectShape()
