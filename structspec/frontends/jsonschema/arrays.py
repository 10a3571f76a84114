"""Shapes of arrays: item goals by position, counts of items that satisfy a goal, uniqueness.

Invariant: `maximum` is cut back to the prefix where a later item is impossible, so an array shape
that is syntactically empty has ``minimum > maximum``.

Example::

    >>> from structspec.frontends.jsonschema.arrays import ArrayShape
    >>> from structspec.frontends.jsonschema.goals import FALSE, TRUE
    >>> ArrayShape(prefix=(TRUE, FALSE)).trimmed().maximum
    1
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from structspec.frontends.jsonschema.budget import spend
from structspec.frontends.jsonschema.goals import FALSE, TRUE, Goal, conjoin, implies, negate
from structspec.frontends.jsonschema.refusal import Refusal
from structspec.records import Hashed, record

__all__ = ["ALL_ARRAYS", "ArrayShape", "Count"]


@dataclass(frozen=True, slots=True)
class Count:
    """From index `start` on, `least` to `most` items (None: any number) satisfy `goal`."""

    goal: Goal
    start: int
    least: int
    most: int | None
    #: What to refuse if the count takes too many states.
    refusal: Refusal


@record
class ArrayShape(Hashed):
    """Arrays of `minimum` to `maximum` items (None: any number); item i satisfies `item(i)`.

    `counts` hold as well. With `unique` all items differ, with `repeated` two are equal; both
    sets hold what to refuse where that cannot be told.
    """

    prefix: tuple[Goal, ...] = ()
    rest: Goal = TRUE
    minimum: int = 0
    maximum: int | None = None
    refusals: frozenset[Refusal] = frozenset()
    counts: frozenset[Count] = frozenset()
    unique: frozenset[Refusal] = frozenset()
    repeated: frozenset[Refusal] = frozenset()

    @property
    def empty(self) -> bool:
        """Whether the bounds contradict each other."""
        if self.unique and self.repeated:
            return True
        return self.maximum is not None and self.minimum > self.maximum

    @property
    def tracked(self) -> bool:
        """Whether more than positions decides."""
        return bool(self.counts or self.unique or self.repeated)

    def item(self, index: int) -> Goal:
        """The goal of the item at `index`."""
        return self.prefix[index] if index < len(self.prefix) else self.rest

    def trimmed(self) -> ArrayShape:
        """The same shape, without items that cannot be there and conditions that always hold."""
        limit = self.maximum
        if self.rest == FALSE and (limit is None or limit > len(self.prefix)):
            limit = len(self.prefix)
        if FALSE in self.prefix:
            impossible = self.prefix.index(FALSE)
            limit = impossible if limit is None else min(limit, impossible)
        prefix = self.prefix if limit is None else self.prefix[:limit]
        rest = self.rest
        if limit is not None and limit <= len(prefix):
            rest = FALSE
        while prefix and prefix[-1] == rest and limit is None:
            prefix = prefix[:-1]
        minimum = self.minimum
        for count in self.counts:
            if count.least:
                minimum = max(minimum, count.start + count.least)
        if self.repeated:
            minimum = max(minimum, 2)
        unique = self.unique if limit is None or limit > 1 else frozenset()
        return ArrayShape(
            prefix, rest, minimum, limit, self.refusals, self.counts, unique, self.repeated
        )

    def intersect(self, other: ArrayShape) -> ArrayShape:
        """The arrays of both shapes."""
        if self is other or other is ALL_ARRAYS:
            return self
        if self is ALL_ARRAYS:
            return other
        length = max(len(self.prefix), len(other.prefix))
        spend(12 + length)
        limits = [limit for limit in (self.maximum, other.maximum) if limit is not None]
        return ArrayShape(
            tuple(conjoin(self.item(i), other.item(i)) for i in range(length)),
            conjoin(self.rest, other.rest),
            max(self.minimum, other.minimum),
            min(limits) if limits else None,
            self.refusals | other.refusals,
            self.counts | other.counts,
            self.unique | other.unique,
            self.repeated | other.repeated,
        ).trimmed()

    def within(self, other: ArrayShape) -> bool:
        """Whether it is seen at once that every array of this shape is one of `other`."""
        spend(2)
        if other.refusals or other.minimum > self.minimum:
            return False
        if other.maximum is not None and (self.maximum is None or self.maximum > other.maximum):
            return False
        if not (other.counts <= self.counts and other.repeated <= self.repeated):
            return False
        if other.unique and not self.unique:
            return False
        length = max(len(self.prefix), len(other.prefix))
        spend(1 + length)
        return implies(self.rest, other.rest) and all(
            implies(self.item(index), other.item(index)) for index in range(length)
        )

    def complement(self, blame: Refusal) -> Iterator[ArrayShape]:
        """Shapes that together are all other arrays; `blame` is refused where none are known."""
        if self.refusals:
            yield ArrayShape(refusals=self.refusals | {blame})
            return
        if self.minimum > 0:
            yield ArrayShape(maximum=self.minimum - 1)
        if self.maximum is not None:
            yield ArrayShape(minimum=self.maximum + 1)
        for index, goal in enumerate(self.prefix):
            if goal != TRUE:
                before = (TRUE,) * index
                yield ArrayShape((*before, negate(goal)), minimum=index + 1).trimmed()
        if self.rest not in (TRUE, FALSE):
            bad = Count(negate(self.rest), len(self.prefix), 1, None, blame)
            yield ArrayShape(counts=frozenset({bad})).trimmed()
        for count in self.counts:
            if count.least > 0:
                fewer = replace(count, least=0, most=count.least - 1, refusal=blame)
                yield ArrayShape(counts=frozenset({fewer})).trimmed()
            if count.most is not None:
                more = replace(count, least=count.most + 1, most=None, refusal=blame)
                yield ArrayShape(counts=frozenset({more})).trimmed()
        if self.unique:
            yield ArrayShape(repeated=frozenset({blame})).trimmed()
        if self.repeated:
            yield ArrayShape(unique=frozenset({blame})).trimmed()


ALL_ARRAYS = ArrayShape()
