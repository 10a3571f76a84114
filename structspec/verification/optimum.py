"""The most that any lossless verifier of K i.i.d. drafts can keep: a linear program.

Let D be a set of drafts and A(D, v) the probability that D was drafted and at least the prefix v
is kept. A verifier that writes the next token behind what it keeps, and is exact step by step,
satisfies

    A(D, ()) = P(D);     Σ_x A(D, v·x) <= A(D, v), where v·x runs over prefixes of drafts in D;
    Σ_D A(D, v·x) <= p(x | v) Σ_D A(D, v)     (given that v is kept, the next token is drawn from p)

and every such A belongs to a verifier: exit at v with the rest of A(D, v), and draw the next token
from the mass that the second line leaves. E[kept tokens] = Σ A over prefixes of length >= 1 is
linear. Drafts may be looked at in any order, so D runs over multisets.

Invariants: the program has a solution (keep nothing); its optimum at K = 1 is block verification's
E[kept], in closed form `oracle.optimal_accepted`.

Cost: about (V**(K·L) / K!)·K·L variables; seconds up to a few thousand. Needs scipy.

Sibling: `oracle_drafts.expected_accepted_of_drafts` for what a verifier reaches.

Paper: Thomas and Pal 2026 (arXiv 2602.16961) state the program for one and for several drafts.

Example::

    >>> import numpy as np
    >>> p, q = np.array([0.5, 0.5]), np.array([0.9, 0.1])
    >>> target, draft = (lambda text: p), (lambda text: q)
    >>> [round(optimal_accepted_of_drafts(target, draft, [1] * k), 6) for k in (1, 2, 3)]
    [0.6, 0.69, 0.771]
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from structspec.errors import MissingExtra, ModelError
from structspec.verification.oracle import Draft, Target, Text, row_behind
from structspec.verification.oracle_drafts import all_draft_sets

__all__ = ["optimal_accepted_of_drafts"]


def optimal_accepted_of_drafts(
    target: Target,
    draft: Draft,
    lengths: Sequence[int],
    prefix: Text = (),
    ends: Collection[int] = (),
) -> float:
    """The largest E[kept tokens] of one step; raises `MissingExtra` without scipy."""
    try:
        from scipy.optimize import linprog
        from scipy.sparse import coo_array
    except ImportError as error:
        raise MissingExtra("scipy", "test") from error
    sets = _multisets(draft, lengths, prefix, ends)
    index: dict[tuple[int, Text], int] = {}
    for number, (drafts, _) in enumerate(sets):
        for tokens in drafts:
            for i in range(1, len(tokens) + 1):
                index.setdefault((number, tokens[:i]), len(index))
    if not index:
        return 0.0
    # Each row is a constraint Σ value · A <= bound.
    rows: list[int] = []
    columns: list[int] = []
    values: list[float] = []
    bounds: list[float] = []

    def add(row: int, column: int, value: float) -> None:
        rows.append(row)
        columns.append(column)
        values.append(value)

    inside: dict[tuple[int, Text], int] = {}
    for (number, text), column in index.items():
        parent = (number, text[:-1])
        if parent not in inside:
            inside[parent] = len(bounds)
            bounds.append(0.0 if text[:-1] else sets[number][1])
            if text[:-1]:
                add(inside[parent], index[parent], -1.0)
        add(inside[parent], column, 1.0)
    by_text: dict[Text, list[int]] = {}
    for (_, text), column in index.items():
        by_text.setdefault(text, []).append(column)
    for text, own in by_text.items():
        chance = float(row_behind(target, prefix + text[:-1], ends)[text[-1]])
        for column in own:
            add(len(bounds), column, 1.0)
        if text[:-1]:
            for column in by_text[text[:-1]]:
                add(len(bounds), column, -chance)
        bounds.append(0.0 if text[:-1] else chance)
    matrix: Any = coo_array((values, (rows, columns)), shape=(len(bounds), len(index)))
    solved = linprog(-np.ones(len(index)), A_ub=matrix.tocsr(), b_ub=bounds, method="highs")
    if solved.status != 0:
        raise ModelError(f"the linear program was not solved: {solved.message}")
    return float(-solved.fun)


def _multisets(
    draft: Draft, lengths: Sequence[int], prefix: Text, ends: Collection[int]
) -> list[tuple[tuple[Text, ...], float]]:
    """Sets of drafts without their order, with their probabilities."""
    chances: dict[tuple[Text, ...], float] = {}
    for drafts, mass in all_draft_sets(draft, lengths, prefix, ends):
        key = tuple(sorted(drafts))
        chances[key] = chances.get(key, 0.0) + mass
    return list(chances.items())
