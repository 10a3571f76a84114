"""Sets of strings: by length, by a finite list of values, or all but a finite list.

Invariants: with `values`, `lengths` is everything and `excluded` empty (both have been applied);
lengths count code points. See `refusal` for `refusals`.

Example::

    >>> from structspec.frontends.jsonschema.strings import StringShape
    >>> StringShape(lengths=((0, 3),)).intersect(StringShape(values=("a", "abc"))).values
    ('a',)
"""

from __future__ import annotations

from dataclasses import dataclass

from structspec.frontends.jsonschema.intervals import (
    LENGTHS,
    Intervals,
    complement,
    contains,
    intersect,
)
from structspec.frontends.jsonschema.refusal import Refusal

__all__ = ["ALL_STRINGS", "StringShape"]


@dataclass(frozen=True, slots=True)
class StringShape:
    """The strings with a length in `lengths`, among `values` (None: any), not in `excluded`."""

    lengths: Intervals = LENGTHS
    values: tuple[str, ...] | None = None
    excluded: frozenset[str] = frozenset()
    refusals: frozenset[Refusal] = frozenset()

    @property
    def empty(self) -> bool:
        """Whether no string is in the set (it may still be empty if there are refusals)."""
        return not self.lengths or self.values == ()

    def admits(self, text: str) -> bool:
        """Whether `text` is in the set, refusals aside."""
        if self.values is not None and text not in self.values:
            return False
        return text not in self.excluded and contains(self.lengths, len(text), len(text) + 1)

    def intersect(self, other: StringShape) -> StringShape:
        """The strings in both sets."""
        refusals = self.refusals | other.refusals
        if self.values is not None or other.values is not None:
            listed, test = (self, other) if self.values is not None else (other, self)
            among = None if test.values is None else frozenset(test.values)
            kept = tuple(
                text
                for text in listed.values or ()
                if (among is None or text in among)
                and text not in test.excluded
                and contains(test.lengths, len(text), len(text) + 1)
            )
            return StringShape(values=kept, refusals=refusals)
        lengths = intersect(self.lengths, other.lengths)
        excluded = frozenset(
            text
            for text in self.excluded | other.excluded
            if contains(lengths, len(text), len(text) + 1)
        )
        return StringShape(lengths, None, excluded, refusals)

    def complement(self, blame: Refusal) -> tuple[StringShape, ...]:
        """The strings outside; `blame` is what to refuse if that is not known."""
        if self.refusals:
            return (StringShape(refusals=self.refusals | {blame}),)
        if self.values is not None:
            return (StringShape(excluded=frozenset(self.values)),)
        outside = StringShape(lengths=complement(self.lengths, LENGTHS))
        listed = StringShape(values=tuple(sorted(self.excluded)))
        return tuple(shape for shape in (outside, listed) if not shape.empty)


ALL_STRINGS = StringShape()
