"""Shapes of arrays: a prefix of item goals, a goal for the rest, a range of lengths.

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
from dataclasses import dataclass

from structspec.frontends.jsonschema.goals import FALSE, TRUE, Goal, conjoin, negate
from structspec.frontends.jsonschema.refusal import Refusal

__all__ = ["ALL_ARRAYS", "ArrayShape"]


@dataclass(frozen=True, slots=True)
class ArrayShape:
    """Arrays of `minimum` to `maximum` items (None: any number); item i satisfies `item(i)`."""

    prefix: tuple[Goal, ...] = ()
    rest: Goal = TRUE
    minimum: int = 0
    maximum: int | None = None
    refusals: frozenset[Refusal] = frozenset()

    @property
    def empty(self) -> bool:
        """Whether the bounds contradict each other."""
        return self.maximum is not None and self.minimum > self.maximum

    def item(self, index: int) -> Goal:
        """The goal of the item at `index`."""
        return self.prefix[index] if index < len(self.prefix) else self.rest

    def trimmed(self) -> ArrayShape:
        """The same shape, without items that cannot be there."""
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
        return ArrayShape(prefix, rest, self.minimum, limit, self.refusals)

    def intersect(self, other: ArrayShape) -> ArrayShape:
        """The arrays of both shapes."""
        if self == ALL_ARRAYS:
            return other
        if other == ALL_ARRAYS:
            return self
        length = max(len(self.prefix), len(other.prefix))
        limits = [limit for limit in (self.maximum, other.maximum) if limit is not None]
        return ArrayShape(
            tuple(conjoin(self.item(i), other.item(i)) for i in range(length)),
            conjoin(self.rest, other.rest),
            max(self.minimum, other.minimum),
            min(limits) if limits else None,
            self.refusals | other.refusals,
        ).trimmed()

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
            # "Some item beyond the prefix does not satisfy `rest`" is a `contains`.
            yield ArrayShape(minimum=len(self.prefix) + 1, refusals=frozenset({blame}))


ALL_ARRAYS = ArrayShape()
