"""Sets of strings: by length, pattern, format, a finite list of values, or all but a finite list.

A format that is not decided for all strings (see `formats`) is kept apart from `pattern`: what is
written has it (or, under `not`, has it not) for certain, while `empty` and `complement` take doubt
into account. So a doubtful string is never written, neither by an assertion nor by its negation.
Formats with large automata are kept apart as well, so that these are made only if they meet more.

Invariants: with `values`, the other constraints are trivial (all have been applied), except for
formats that are in doubt for some value; lengths count code points; `excluded` holds only strings
of the pattern and the lengths. See `refusal` for `refusals`.

Example::

    >>> from structspec.frontends.jsonschema.strings import StringShape
    >>> StringShape(lengths=((0, 3),)).intersect(StringShape(values=("a", "abc"))).values
    ('a',)
"""

from __future__ import annotations

from collections.abc import Iterator

from structspec.automata.chardfa import MOST_PAIRS, CharDfa
from structspec.frontends.jsonschema.budget import automaton_budget, spend
from structspec.frontends.jsonschema.formats import Format
from structspec.frontends.jsonschema.intervals import (
    LENGTHS,
    Intervals,
    complement,
    contains,
    intersect,
)
from structspec.frontends.jsonschema.kept import Kept
from structspec.frontends.jsonschema.refusal import Refusal
from structspec.records import Hashed, record

__all__ = ["ALL_STRINGS", "Doubts", "StringShape"]

#: Formats with doubt, and large ones, each asserted (True) or denied (False).
Doubts = frozenset[tuple[Format, bool]]


@record
class StringShape(Hashed):
    """The strings with a length in `lengths`, among `values` (None: any), not in `excluded`.

    `pattern` is the automaton of what else they have to be like (None: anything).
    """

    lengths: Intervals = LENGTHS
    values: tuple[str, ...] | None = None
    excluded: frozenset[str] = frozenset()
    refusals: frozenset[Refusal] = frozenset()
    pattern: CharDfa | None = None
    formats: Doubts = frozenset()

    @property
    def empty(self) -> bool:
        """Whether no string is in the set (it may still be empty if there are refusals)."""
        if not self.lengths or self.values == ():
            return True
        return self.pattern is not None and self.pattern.is_empty

    @property
    def automaton(self) -> CharDfa | None:
        """The strings of the pattern that have the formats for certain (None: all)."""
        return _certain(self.pattern, self.formats) if self.formats else self.pattern

    def admits(self, text: str) -> bool:
        """Whether `text` is in the set for certain, refusals aside."""
        return self._may_admit(text) and all(
            (kind.inside if has else kind.outside).accepts(text) for kind, has in self.formats
        )

    def _may_admit(self, text: str) -> bool:
        if self.values is not None:
            return text in self.values
        if text in self.excluded or not contains(self.lengths, len(text), len(text) + 1):
            return False
        return self.pattern is None or self.pattern.accepts(text)

    def intersect(self, other: StringShape) -> StringShape:
        """The strings in both sets."""
        refusals = self.refusals | other.refusals
        formats = self.formats | other.formats
        if self.values is not None or other.values is not None:
            listed, test = (self, other) if self.values is not None else (other, self)
            among = None if test.values is None else frozenset(test.values)
            kept = [
                text
                for text in listed.values or ()
                if (text in among if among is not None else test._may_admit(text))
            ]
            for kind, has in formats:
                no = kind.outside if has else kind.inside
                kept = [text for text in kept if not no.accepts(text)]
            doubts = frozenset(doubt for doubt in formats if _doubtful(kept, *doubt))
            return StringShape(values=tuple(kept), refusals=refusals, formats=doubts)
        lengths = intersect(self.lengths, other.lengths)
        pattern = self.pattern
        if pattern is None or other.pattern is None or pattern == other.pattern:
            pattern = pattern or other.pattern
        else:
            pattern = _both(pattern, other.pattern)
        excluded = self.excluded | other.excluded
        whole = StringShape(lengths, None, frozenset(), refusals, pattern, formats)
        if not excluded:
            return whole
        if pattern is not None or lengths != LENGTHS:
            excluded = frozenset(filter(whole._may_admit, excluded))
        return StringShape(lengths, None, excluded, refusals, pattern, formats)

    def complement(self, blame: Refusal) -> tuple[StringShape, ...]:
        """The strings outside; `blame` is what to refuse if that is not known."""
        if self.refusals:
            return (StringShape(refusals=self.refusals | {blame}),)
        return tuple(self.outside())

    def outside(self) -> Iterator[StringShape]:
        """Shapes that together are all other strings, refusals aside."""
        for kind, has in self.formats:
            yield StringShape(formats=frozenset({(kind, not has)}))
        if self.values is not None:
            yield StringShape(excluded=frozenset(self.values))
            return
        lengths = complement(self.lengths, LENGTHS)
        if lengths:
            yield StringShape(lengths=lengths)
        if self.excluded:
            yield StringShape(values=tuple(sorted(self.excluded)))
        if self.pattern is not None:
            shape = StringShape(pattern=_beyond(self.pattern))
            if not shape.empty:
                yield shape


ALL_STRINGS = StringShape()


# Intersections and complements of automata, for every compile of the process.
_MADE: Kept[tuple[CharDfa, CharDfa | None], CharDfa] = Kept(300_000)


def _both(left: CharDfa, right: CharDfa) -> CharDfa:
    found = _MADE.get((left, right))
    if found is None:
        spend(50 + 2 * (left.n_states + right.n_states))
        found = left.intersect(right, automaton_budget(MOST_PAIRS))
        spend(2 * found.n_states)
        _MADE.put((left, right), found, found.n_states + 1)
    return found


def _beyond(pattern: CharDfa) -> CharDfa:
    found = _MADE.get((pattern, None))
    if found is None:
        spend(50 + 2 * pattern.n_states)
        found = pattern.complement(automaton_budget(MOST_PAIRS))
        _MADE.put((pattern, None), found, found.n_states + 1)
    return found


def _certain(pattern: CharDfa | None, formats: Doubts) -> CharDfa:
    result = pattern or CharDfa.everything()
    for kind, has in sorted(formats, key=lambda doubt: (doubt[0].name, doubt[1])):
        result = _both(result, kind.inside if has else kind.outside)
    return result


def _doubtful(texts: list[str], kind: Format, has: bool) -> bool:
    yes = kind.inside if has else kind.outside
    return not all(map(yes.accepts, texts))
