"""Goals: Boolean combinations of subschemas, in disjunctive normal form.

A `Goal` is what a child value (a property, an item, a key) has to satisfy: a set of alternatives,
each a set of *literals*. A literal is ``+k`` (the value satisfies subschema number k) or ``-k`` (it
does not); numbers start at 1. There are finitely many subschemas, hence finitely many goals, so
normalising a recursive schema always terminates.

Invariant: no alternative holds both k and -k; small goals hold no alternative that another implies.

Example::

    >>> from structspec.frontends.jsonschema.goals import conjoin, literal
    >>> sorted(map(sorted, conjoin(literal(1), literal(2))))
    [[1, 2]]
"""

from __future__ import annotations

from functools import lru_cache
from typing import TypeAlias

from structspec.errors import BudgetExceeded
from structspec.frontends.jsonschema.budget import spend

__all__ = ["FALSE", "TRUE", "Goal", "conjoin", "disjoin", "implies", "literal", "negate"]

Goal: TypeAlias = frozenset[frozenset[int]]

TRUE: Goal = frozenset({frozenset()})
FALSE: Goal = frozenset()

# Absorption compares all pairs; beyond this many alternatives it would cost more than it saves.
_ABSORB_UP_TO = 32
_MOST_ALTERNATIVES = 4096


@lru_cache(maxsize=1 << 12)
def literal(number: int) -> Goal:
    """The goal that is one literal."""
    return frozenset({frozenset({number})})


@lru_cache(maxsize=1 << 16)
def conjoin(left: Goal, right: Goal) -> Goal:
    """Both goals at once."""
    if left in (TRUE, right):
        return right
    if right == TRUE:
        return left
    if not left or not right:
        return FALSE
    if len(left) * len(right) > _MOST_ALTERNATIVES:
        raise BudgetExceeded("alternatives", _MOST_ALTERNATIVES, len(left) * len(right))
    spend(len(left) * len(right))
    both = (a | b for a in left for b in right)
    return _absorb(frozenset(c for c in both if not any(-number in c for number in c)))


def disjoin(left: Goal, right: Goal) -> Goal:
    """One of the goals or both."""
    if TRUE in (left, right):
        return TRUE
    return _absorb(left | right)


@lru_cache(maxsize=1 << 12)
def negate(goal: Goal) -> Goal:
    """What does not satisfy `goal`."""
    result = TRUE
    for alternative in sorted(goal, key=sorted):
        refuted: Goal = frozenset(frozenset({-number}) for number in alternative)
        result = conjoin(result, refuted)
    return result


def implies(left: Goal, right: Goal) -> bool:
    """Whether it is seen at once that what satisfies `left` satisfies `right`."""
    if left is right or right == TRUE or not left:
        return True
    return all(any(theirs <= mine for theirs in right) for mine in left)


def _absorb(goal: Goal) -> Goal:
    if len(goal) < 2 or len(goal) > _ABSORB_UP_TO:
        return goal
    return frozenset(a for a in goal if not any(b < a for b in goal))
