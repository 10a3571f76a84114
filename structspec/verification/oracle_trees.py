"""The float64 oracle for trees: deterministic ones, and ones drawn without replacement.

A tree is a tuple of (token, subtree) in the order in which the children were made.

- `tree_target`: the tree is a function of the text (a grammar fork drafted whole, top-k of a draft
  model, several look-ups). Sample x from the target at each node and walk while the child exists.
  No lossless rule keeps more of a deterministic tree T than Σ_{v in T} p(v).
- `without_replacement`: recursive rejection for children drawn from q without replacement (Sequoia,
  Chen et al. 2024, arXiv 2402.12374). After a refusal the target loses q, and q loses the refused
  token; both are renormalised. It is exact for this drafting process and for no other: i.i.d.
  drafts whose duplicates are dropped are something else.

Both walk down and never revisit a node, so they are written as laws, with the decision beside.

Cost: `all_trees` enumerates every ordered tree; tiny vocabularies only.

Siblings: `oracle_drafts` for i.i.d. drafts; `tree` and `baselines` for torch.

Example::

    >>> import numpy as np
    >>> target = lambda text: np.array([0.5, 0.3, 0.2])
    >>> tree = ((0, ((1, ()),)), (1, ()))                    # drafts 0, 0·1 and 1
    >>> law = tree_target_law(target, tree)
    >>> kept = sum(len(text) * row.sum() for text, row in law.items())     # .5 + .15 + .3
    >>> round(float(kept), 12)
    0.95
    >>> tree_target_verify(target, tree, [0.2, 0.6, 0.99])   # 0, then 1, then no child
    DraftsDecision(prefix=(0, 1), token=2)
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np

from structspec.verification.oracle import (
    Draft,
    Floats,
    Law,
    Target,
    Text,
    continued,
    cut,
    draw,
    residual,
    row_behind,
    times_ratio,
)
from structspec.verification.oracle_drafts import DraftsDecision, Masses, emit

__all__ = [
    "Tree",
    "all_trees",
    "expected_accepted_of_trees",
    "output_law_of_trees",
    "tree_target_law",
    "tree_target_verify",
    "without_replacement_law",
    "without_replacement_verify",
]

Tree: TypeAlias = tuple[tuple[int, Any], ...]
"""Children in order: (token, subtree)."""
TreeLaw: TypeAlias = Callable[[Target, Draft, Tree], Masses]


def tree_target_law(target: Target, tree: Tree, prefix: Text = ()) -> Masses:
    """Exact law of `tree_target_verify`: kept path → masses of the next token."""
    row = target(prefix).copy()
    masses: Masses = {}
    for token, below in tree:
        chance, row[token] = float(row[token]), 0.0
        for kept, rest in tree_target_law(target, below, (*prefix, token)).items():
            masses[kept] = chance * rest
    masses[prefix] = row
    return masses


def tree_target_verify(
    target: Target, tree: Tree, uniforms: Sequence[float] | Floats, ends: Collection[int] = ()
) -> DraftsDecision:
    """Draw x ~ p at depth i with `uniforms[i]` and follow it while the tree has it."""
    kept: Text = ()
    while True:
        if kept and kept[-1] in ends:
            return DraftsDecision(kept, -1)
        x = draw(row_behind(target, kept, ends), uniforms[len(kept)])
        below = dict(tree).get(x)
        if below is None:
            return DraftsDecision(kept, x)
        kept, tree = (*kept, x), below


def without_replacement_law(target: Target, draft: Draft, tree: Tree, prefix: Text = ()) -> Masses:
    """Exact law of `without_replacement_verify` for this tree."""
    p, q = target(prefix), draft(prefix)
    masses: Masses = {}
    alive = 1.0
    for token, below in tree:
        assert q is not None
        accept = min(1.0, times_ratio(1.0, p[token], q[token]))
        for kept, row in without_replacement_law(target, draft, below, (*prefix, token)).items():
            masses[kept] = alive * accept * row
        alive *= 1.0 - accept
        p, q = _without(p, q, token)
    masses[prefix] = alive * p
    return masses


def without_replacement_verify(
    target: Target,
    draft: Draft,
    tree: Tree,
    uniforms: Sequence[float] | Floats,
    ends: Collection[int] = (),
) -> DraftsDecision:
    """One decision; test of the n-th node in pre-order reads `uniforms[n]`, the emission the last.

    Pre-order: a node, then its subtree, then its next sibling.
    """

    def size(tree: Tree) -> int:
        return sum(1 + size(below) for _, below in tree)

    kept: Text = ()
    number = 0
    while True:
        p, q = row_behind(target, kept, ends), draft(kept)
        for token, below in tree:
            assert q is not None
            if uniforms[number] < times_ratio(1.0, p[token], q[token]):
                kept, tree, number = (*kept, token), below, number + 1
                break
            p, q = _without(p, q, token)
            number += 1 + size(below)
        else:
            return emit(kept, p, uniforms[-1], ends)


def all_trees(
    draft: Draft, widths: Sequence[int], prefix: Text = (), ends: Collection[int] = ()
) -> Iterator[tuple[Tree, float]]:
    """Every tree whose nodes at depth i have widths[i] children drawn without replacement.

    Fewer where the row has fewer tokens; none behind an end token or where the draft stops.
    """
    row = None if not widths or (prefix and prefix[-1] in ends) else draft(prefix)
    if row is None:
        yield (), 1.0
        return
    for tokens in itertools.permutations(
        map(int, np.flatnonzero(row)), min(widths[0], int(np.count_nonzero(row)))
    ):
        mass, left = 1.0, row.copy()
        for x in tokens:
            mass *= float(left[x] / left.sum())
            left[x] = 0.0
        below = [list(all_trees(draft, widths[1:], (*prefix, x), ends)) for x in tokens]
        for subtrees in itertools.product(*below):
            yield (
                tuple((x, tree) for x, (tree, _) in zip(tokens, subtrees, strict=True)),
                mass * float(np.prod([chance for _, chance in subtrees])),
            )


def output_law_of_trees(
    law: TreeLaw,
    target: Target,
    draft: Draft,
    widths: Sequence[int],
    total: int,
    ends: Collection[int] = (),
) -> Law:
    """Exact law of the first `total` tokens: one step with a drawn tree, then plain sampling."""
    step: Law = {}
    for kept, row in _mixture(law, target, draft, widths, ends):
        for x in np.flatnonzero(row):
            text = cut((*kept, int(x)), ends)
            step[text] = step.get(text, 0.0) + float(row[x])
    return continued(step, target, total, ends, None)


def expected_accepted_of_trees(
    law: TreeLaw, target: Target, draft: Draft, widths: Sequence[int], ends: Collection[int] = ()
) -> float:
    """E[number of drafted tokens that one step keeps], exact."""
    return sum(
        len(kept) * float(row.sum()) for kept, row in _mixture(law, target, draft, widths, ends)
    )


def _mixture(
    law: TreeLaw, target: Target, draft: Draft, widths: Sequence[int], ends: Collection[int]
) -> Iterator[tuple[Text, Floats]]:
    def behind(text: Text) -> Floats:
        return row_behind(target, text, ends)

    for tree, mass in all_trees(draft, widths, (), ends):
        for kept, row in law(behind, draft, tree).items():
            yield kept, mass * row


def _without(p: Floats, q: Floats, token: int) -> tuple[Floats, Floats]:
    """Target and draft after `token` was refused."""
    mass = residual(p, q)
    total = float(mass.sum())
    p = mass / total if total > 0.0 else p
    q = q.copy()
    q[token] = 0.0
    total = float(q.sum())
    return p, (q / total if total > 0.0 else q)
