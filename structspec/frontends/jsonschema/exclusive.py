"""`oneOf`: for each branch, the values that satisfy it and no other.

Branches that exclude each other need no complement: mostly a member that both require, a tag, has
different values. So pairs are told apart first, and only those that may overlap are subtracted.
Among many branches, tags say at once which pairs are worth a look, and scalars, whose complements
are cheap, are subtracted through running intersections instead of pair by pair.

Cost: n**2 intersections for n branches that all overlap; n log n or so for tagged ones.
Sibling: `normal`, which owns the forms.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator
from dataclasses import replace
from typing import Protocol

from structspec.frontends.jsonschema.algebra import ANYTHING, NOTHING, Form, complement, intersect
from structspec.frontends.jsonschema.arrays import ArrayShape
from structspec.frontends.jsonschema.budget import spend
from structspec.frontends.jsonschema.goals import Goal, conjoin
from structspec.frontends.jsonschema.objects import ObjectShape
from structspec.frontends.jsonschema.refusal import Refusal

__all__ = ["Prober", "one_each"]

# Up to this many branches all pairs are looked at.
_FEW = 24
# A tag with more values than this is none.
_MOST_TAGS = 64


class Prober(Protocol):
    """What knows some shapes and goals to be empty."""

    def form(self, goal: Goal) -> Form:
        """The form of a goal."""

    def empty(self, goal: Goal) -> bool:
        """Whether no value is known to satisfy the goal."""

    def hopeless(self, shape: ArrayShape | ObjectShape) -> bool:
        """Whether no value of the shape is known to be possible."""

    def tags(self, goal: Goal) -> frozenset[Hashable] | None:
        """The scalars that satisfy a goal, if they are all and can be listed."""


def one_each(forms: list[Form], blame: Refusal, prober: Prober) -> list[Form]:
    """For each form, its values that are in no other."""
    if len(forms) <= _FEW or any(form.refusals for form in forms):
        pairs = (
            (i, j)
            for i in range(len(forms))
            for j in range(i)
            if not _disjoint(forms[i], forms[j], prober)
        )
        return _subtracted(forms, pairs, blame, prober)
    # If two branches hold all arrays, no array is in one branch only; the same for objects.
    arrays = sum(form.arrays == ANYTHING.arrays for form in forms) < 2
    objects = sum(form.objects == ANYTHING.objects for form in forms) < 2
    holders = [
        Form(arrays=form.arrays if arrays else (), objects=form.objects if objects else ())
        for form in forms
    ]
    pairs = (
        (i, j)
        for i, j in _candidates(holders, prober)
        if not _disjoint(holders[i], holders[j], prober)
    )
    results = _subtracted(holders, pairs, blame, prober)
    scalars = [replace(form, arrays=(), objects=()) for form in forms]
    return [
        replace(scalar, arrays=holder.arrays, objects=holder.objects)
        for scalar, holder in zip(_running(scalars, blame), results, strict=True)
    ]


def _subtracted(
    forms: list[Form], overlaps: Iterator[tuple[int, int]], blame: Refusal, prober: Prober
) -> list[Form]:
    """Each form without those that overlap it."""
    others: list[list[int]] = [[] for _ in forms]
    for i, j in overlaps:
        others[i].append(j)
        others[j].append(i)
        spend()
    outside: dict[int, Form] = {}
    results = []
    for form, overlapping in zip(forms, others, strict=True):
        for other in overlapping:
            beyond = outside.get(other)
            if beyond is None:
                beyond = outside[other] = complement(forms[other], blame, prober.hopeless)
            form = intersect(form, beyond, prober.hopeless)
        results.append(form)
    return results


def _running(forms: list[Form], blame: Refusal) -> list[Form]:
    """The same for forms of scalars: what all before and all behind leave over."""
    everything = replace(ANYTHING, arrays=(), objects=())
    beyond = [replace(complement(form, blame), arrays=(), objects=()) for form in forms]
    behind = [everything]
    for form in reversed(beyond):
        spend(10 + _size(behind[-1]))
        behind.append(intersect(behind[-1], form))
    behind.reverse()
    before = everything
    results = []
    for index, form in enumerate(forms):
        spend(10 + _size(before))
        rest = intersect(form, before) if form != NOTHING else form
        results.append(intersect(rest, behind[index + 1]) if rest != NOTHING else rest)
        before = intersect(before, beyond[index])
    return results


def _size(form: Form) -> int:
    """How many pieces the scalars of a form consist of, roughly, in units of work."""
    numbers = sum(len(part.ints) + len(part.fracs) + len(part.others) for part in form.numbers)
    return (numbers + sum(len(part.excluded) for part in form.strings)) >> 3


# Telling apart ---------------------------------------------------------------------------------


def _disjoint(left: Form, right: Form, prober: Prober) -> bool:
    """Whether no value is in both forms, as far as that is seen without deep search."""
    if (left.null and right.null) or left.booleans & right.booleans:
        return False
    if (left.numbers and right.numbers) or (left.strings and right.strings):
        shallow = intersect(
            Form(numbers=left.numbers, strings=left.strings),
            Form(numbers=right.numbers, strings=right.strings),
        )
        if shallow.numbers or shallow.strings:
            return False
    spend(len(left.objects) * len(right.objects) + len(left.arrays) * len(right.arrays))
    return all(_no_object(a, b, prober) for a in left.objects for b in right.objects) and all(
        _no_array(a, b, prober) for a in left.arrays for b in right.arrays
    )


def _no_object(left: ObjectShape, right: ObjectShape, prober: Prober) -> bool:
    if not (left.required or right.required or left.fewest or right.fewest):
        return False  # both hold {}
    # The usual tag of a union is required on both sides; look at such members first.
    for name in sorted(left.needed & right.needed):
        if prober.empty(conjoin(left.goal_of(name), right.goal_of(name))):
            return True
    spend(10)
    both = left.intersect(right)
    return both.empty or prober.hopeless(both)


def _no_array(left: ArrayShape, right: ArrayShape, prober: Prober) -> bool:
    if not (left.minimum or right.minimum):
        return False  # both hold []
    spend(10)
    both = left.intersect(right)
    return both.empty or prober.hopeless(both)


def _candidates(forms: list[Form], prober: Prober) -> Iterator[tuple[int, int]]:
    """Pairs of forms that tags do not tell apart."""
    found: dict[tuple[int, int], None] = {}
    holding = [index for index, form in enumerate(forms) if form.arrays]
    for i in holding:
        spend(len(holding))
        found.update(((i, j), None) for j in holding if j < i)
    names = Counter(name for form in forms for shape in form.objects for name in shape.needed)
    tag = max(sorted(names), key=lambda name: names[name], default=None)
    buckets: dict[Hashable, list[int]] = {}
    untagged = []
    for index, form in enumerate(forms):
        listed = [
            prober.tags(shape.goal_of(tag)) if tag is not None and tag in shape.needed else None
            for shape in form.objects
        ]
        if any(values is None or len(values) > _MOST_TAGS for values in listed):
            untagged.append(index)
            continue
        for value in frozenset[Hashable]().union(*(values for values in listed if values)):
            buckets.setdefault(value, []).append(index)
    every = [index for index, form in enumerate(forms) if form.objects]
    for i in untagged:
        spend(len(every))
        found.update(((max(i, j), min(i, j)), None) for j in every if j != i)
    for bucket in buckets.values():
        for i in bucket:
            spend(len(bucket))
            found.update(((i, j), None) for j in bucket if j < i)
    yield from found
