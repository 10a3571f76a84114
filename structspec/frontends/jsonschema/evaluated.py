"""What `unevaluatedProperties` and `unevaluatedItems` leave over, by cases.

Which members a schema has evaluated depends on which branches of its combinators hold. A *trace* is
a set of branches that hold: the form of the values for which they do, and what they evaluate. For
each trace, what is left over is known without looking at values, so the keyword becomes an
ordinary shape.

A trace may leave out branches that hold as well (`anyOf`): then it evaluates less and demands more
of the rest, hence accepts nothing that the full trace does not accept. So traces need no complement
beyond those that `oneOf`, `not` and `else` need anyway.

Cost: the traces multiply over combinators; more than `_MOST_TRACES` are refused.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol, TypeAlias

from structspec.frontends.jsonschema.algebra import (
    ANYTHING,
    NOTHING,
    Form,
    intersect,
    union,
)
from structspec.frontends.jsonschema.arrays import ArrayShape
from structspec.frontends.jsonschema.goals import FALSE, TRUE, Goal, disjoin
from structspec.frontends.jsonschema.objects import ObjectShape, cells_of
from structspec.frontends.jsonschema.places import Place
from structspec.frontends.jsonschema.refusal import Refusal
from structspec.frontends.jsonschema.strings import StringShape

__all__ = ["Evaluated", "Kind", "Tracer", "trace_keywords"]

Kind: TypeAlias = Literal["objects", "arrays"]

_MOST_TRACES = 256

_KEYWORDS: dict[Kind, str] = {
    "objects": "unevaluatedProperties",
    "arrays": "unevaluatedItems",
}


@dataclass(frozen=True, slots=True)
class Evaluated:
    """Members or items that some keyword has evaluated."""

    names: frozenset[str] = frozenset()
    patterns: frozenset[StringShape] = frozenset()
    #: So many items from the first on; `math.inf`: all of them, or all members.
    length: float = 0
    #: Items that satisfy one of these.
    contained: frozenset[Goal] = frozenset()

    def union(self, other: Evaluated) -> Evaluated:
        """What one of both has evaluated."""
        return Evaluated(
            self.names | other.names,
            self.patterns | other.patterns,
            max(self.length, other.length),
            self.contained | other.contained,
        )


_ALL = Evaluated(length=math.inf)
_NONE = Evaluated()

Traces: TypeAlias = dict[Evaluated, Form]


class _TooMany(Exception):
    """There are more traces than the budget allows."""


class Combined(Protocol):
    """What a tracer needs of the normaliser."""

    def form(self, goal: Goal) -> Form:
        """The form of a goal."""

    def place_of(self, goal: Goal) -> Place | None:
        """The one subschema that a goal is about."""

    def own_part(self, place: Place, kind: Kind) -> tuple[Form, Evaluated]:
        """The schema's own assertions, and what they evaluate."""

    def cases(self, place: Place) -> Iterable[list[list[tuple[Form, Goal]]]]:
        """For each combinator: alternatives, each a list of parts that hold together.

        A part is a form, and the goal of the subschema that evaluates there. Alternatives may
        overlap; those of `anyOf` may also hold together.
        """


def trace_keywords(place: Place) -> list[Kind]:
    """The kinds of values for which the schema says what unevaluated ones have to be."""
    return [kind for kind, keyword in _KEYWORDS.items() if keyword in place.schema]


class Tracer:
    """Traces of subschemas, for one normaliser."""

    def __init__(self, normaliser: Combined) -> None:
        self.normaliser = normaliser
        self._active: set[int] = set()

    def left_over(self, place: Place, kind: Kind, left: Goal) -> Form:
        """The part of the schema's form for one kind of values, unevaluated ones included."""
        try:
            traces = self._inner(place, kind)
        except _TooMany:
            reason = f"more than {_MOST_TRACES} combinations of branches may hold"
            refusal = Refusal(_KEYWORDS[kind], place.number, reason)
            return replace(_part(ANYTHING, kind), refusals=frozenset({refusal}))
        return union(
            NOTHING,
            *(intersect(form, _rest(evaluated, kind, left)) for evaluated, form in traces.items()),
        )

    def _outer(self, goal: Goal, kind: Kind) -> Traces:
        """The traces of a subschema as its parent sees them."""
        if goal == TRUE:
            return {_NONE: _part(ANYTHING, kind)}
        if goal == FALSE:
            return {}
        place = self.normaliser.place_of(goal)
        form = _part(self.normaliser.form(goal), kind)
        if place is None or place.number in self._active or form == NOTHING:
            return {_NONE: form}
        if place.draft >= 2019 and kind in trace_keywords(place):
            return {_ALL: form}
        self._active.add(place.number)
        try:
            return self._inner(place, kind)
        finally:
            self._active.discard(place.number)

    def _inner(self, place: Place, kind: Kind) -> Traces:
        form, evaluated = self.normaliser.own_part(place, kind)
        traces = {evaluated: _part(form, kind)}
        for alternatives in self.normaliser.cases(place):
            options: Traces = {}
            for parts in alternatives:
                held: Traces = {_NONE: _part(ANYTHING, kind)}
                for part, goal in parts:
                    held = _product(held, self._outer(goal, kind))
                    held = {seen: intersect(form, part) for seen, form in held.items()}
                _join(options, held)
            traces = _product(traces, _closed(options))
        return traces


def _closed(traces: Traces) -> Traces:
    """With every combination of traces that evaluates more than its parts."""
    closed = dict(traces)
    for evaluated, form in traces.items():
        found: Traces = {}
        for other, other_form in closed.items():
            both = evaluated.union(other)
            if both not in (evaluated, other):
                held = intersect(other_form, form)
                if held != NOTHING:
                    _join(found, {both: held})
        _join(closed, found)
        if len(closed) > _MOST_TRACES:
            raise _TooMany
    return closed


def _product(left: Traces, right: Traces) -> Traces:
    found: Traces = {}
    for mine, my_form in left.items():
        for theirs, their_form in right.items():
            form = intersect(my_form, their_form)
            if form != NOTHING:
                _join(found, {mine.union(theirs): form})
        if len(found) > _MOST_TRACES:
            raise _TooMany
    return found


def _join(traces: Traces, more: Traces) -> None:
    for evaluated, form in more.items():
        known = traces.get(evaluated)
        traces[evaluated] = form if known is None else union(known, form)


def _part(form: Form, kind: Kind) -> Form:
    parts: dict[str, Any] = {kind: getattr(form, kind)}
    refusals = form.refusals if parts[kind] else frozenset()
    return Form(**parts, refusals=refusals)


def _rest(evaluated: Evaluated, kind: Kind, left: Goal) -> Form:
    if evaluated.length == math.inf:
        return ANYTHING
    if kind == "objects":
        free = tuple((name, TRUE) for name in sorted(evaluated.names))
        patterns = sorted(evaluated.patterns, key=lambda keys: repr(keys.pattern))
        cells = cells_of([(keys, TRUE) for keys in patterns], left)
        return Form(objects=(ObjectShape(free, additional=left, cells=cells),))
    rest = left
    for goal in evaluated.contained:
        rest = disjoin(rest, goal)
    return Form(arrays=(ArrayShape((TRUE,) * int(evaluated.length), rest).trimmed(),))
