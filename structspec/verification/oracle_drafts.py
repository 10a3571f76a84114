"""The float64 oracle for several i.i.d. drafts: layered verification, and how to enumerate.

Owns the framework in which every verifier of K drafts is defined and enumerated:

- a *verifier's law* maps (target, draft, drafts) to `Masses`: for each kept prefix, the masses of
  the next token. They sum to 1;
- `step_law_of_drafts`, `output_law_of_drafts` and `expected_accepted_of_drafts` run over all sets
  of drafts, all exits and all continuations: the exact law of the text, and E[kept tokens];
- `layered_law` and `layered_verify`: layered verification and one decision of it.

Drafts are tuples of tokens, i.i.d. copies of one drafting process; equal ones stay in the list,
since their number is information. They may differ in length if lengths are fixed beforehand or a
draft stops by its own prefix. A draft of length 0 is no draft.

Uniforms `u[k][i]`, [K, L + 1]: row k is what single-draft verification of draft k would read, so
one draft has the same shape and names. Layered verification reads three: `u[0][0]` chooses the
exit's depth, `u[1][L]` the node there, `u[0][L]` the next token.

Cost: V**(K·L) sets of drafts; pass one `memo` to share the work at common nodes.

Siblings: `oracle_baselines` and `oracle_trees` hold the other rules; `layered` is the batched torch
implementation.

Papers: layer verification (Cha, Cho, Yun 2026), block verification (Sun et al. 2024, arXiv
2403.10444), SpecTr (Sun et al. 2023, arXiv 2310.15141). Equal to block verification for one draft
and to K-SEQ for length 1 and one round.

Example::

    >>> import numpy as np
    >>> p, q = np.array([0.5, 0.5]), np.array([0.9, 0.1])
    >>> target, draft = (lambda text: p), (lambda text: q)
    >>> one = expected_accepted_of_drafts(layered_law, target, draft, [1])
    >>> two = expected_accepted_of_drafts(layered_law, target, draft, [1, 1])
    >>> round(one, 6), round(two, 6)
    (0.6, 0.69)
    >>> exact = output_law_of_drafts(layered_law, target, draft, [1, 1], total=2)
    >>> from structspec.verification.oracle import distance, plain_law
    >>> bool(distance(exact, plain_law(target, 2)) < 1e-15)
    True
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from structspec.errors import ModelError
from structspec.verification.oracle import (
    Draft,
    Floats,
    Law,
    Target,
    Text,
    all_drafts,
    continued,
    cut,
    draw,
    row_behind,
)
from structspec.verification.oracle_levels import node_rounds

__all__ = [
    "DraftsDecision",
    "DraftsLaw",
    "Level",
    "Masses",
    "all_draft_sets",
    "emit",
    "expected_accepted_of_drafts",
    "layered_law",
    "layered_levels",
    "layered_pass_probabilities",
    "layered_verify",
    "nodes_at",
    "output_law_of_drafts",
    "step_law_of_drafts",
]

Masses: TypeAlias = dict[Text, Floats]
"""Kept prefix → masses of the next token."""
DraftsLaw: TypeAlias = Callable[[Target, Draft, Sequence[Text]], Masses]

ROUNDS = 2
"""Rounds of layered verification by default."""
ORDER_UNIT = 2.0**-20
"""Weights equal up to this keep the drafts' order; rounding must not swap two nodes."""


@dataclass(frozen=True)
class DraftsDecision:
    """One verification's outcome: keep `prefix`, then write `token`, -1 behind an end token."""

    prefix: Text
    token: int


@dataclass(frozen=True)
class Level:
    """Depth i of layered verification: nodes' weights W and residual masses R, and f_i, g_i."""

    weights: dict[Text, float]
    residuals: Masses
    f: float
    g: float


def layered_levels(
    target: Target,
    draft: Draft,
    drafts: Sequence[Text],
    rounds: int = ROUNDS,
    memo: dict[Any, Any] | None = None,
) -> list[Level]:
    """Depths 0..L. `memo` caches nodes' rounds; it belongs to one (target, draft)."""
    memo = {} if memo is None else memo
    weights: dict[Text, float] = {(): 1.0}
    f, levels = 0.0, []
    for depth in range(max(map(len, drafts), default=0) + 1):
        residuals: Masses = {}
        below: dict[Text, float] = {}
        g = alive = 1.0
        # An order that knows depth <= i only: heavy nodes first, else as their drafts stand.
        nodes = [u for u in nodes_at(drafts, depth) if u in weights]
        for node in sorted(nodes, key=lambda u: -np.floor(weights[u] / ORDER_UNIT + 0.5)):
            tokens = [d[depth] for d in drafts if d[:depth] == node and len(d) > depth]
            c = weights[node] * target(node)
            if not tokens:
                residuals[node] = c
                continue
            key = (node, weights[node], g, len(tokens))
            if key not in memo:
                q = draft(node)
                assert q is not None
                memo[key] = node_rounds(c, q, g, len(tokens), rounds)
            result = memo[key]
            copies = tokens[:1] if _deterministic(draft, node) else tokens
            for accept in result.accept:
                for x in copies:
                    child = (*node, x)
                    below[child] = below.get(child, 0.0) + alive * float(accept[x])
                    alive *= 1.0 - float(accept[x])
            residuals[node], g = result.residual, result.g
        levels.append(Level(weights, residuals, f, g))
        weights, f = below, alive
    return levels


def layered_pass_probabilities(levels: Sequence[Level]) -> Floats:
    """Φ_0..Φ_L: the exit is at least i deep with probability 1 - Φ_i; Φ_i = Π_{t>=i} f_t/g_t."""
    phi, product = np.zeros(len(levels)), 1.0
    for i in range(len(levels) - 1, 0, -1):
        level = levels[i]
        product *= min(level.f / level.g, 1.0) if level.g > 0.0 else 0.0
        phi[i] = product
    return phi


def layered_law(
    target: Target,
    draft: Draft,
    drafts: Sequence[Text],
    rounds: int = ROUNDS,
    memo: dict[Any, Any] | None = None,
) -> Masses:
    """The exact law of `layered_verify` for these drafts."""
    levels = layered_levels(target, draft, drafts, rounds, memo)
    phi = np.append(layered_pass_probabilities(levels), 1.0)
    masses: Masses = {}
    for i, level in enumerate(levels):
        chance = phi[i + 1] - phi[i]
        total = sum(float(row.sum()) for row in level.residuals.values())
        if total > 0.0:
            for node, row in level.residuals.items():
                masses[node] = row * (chance / total)
        elif chance > 1e-12:
            raise ModelError(
                f"internal error: depth {i} has probability {chance:.3g} but no residual mass"
            )
    return masses


def layered_verify(
    target: Target,
    draft: Draft,
    drafts: Sequence[Text],
    uniforms: Sequence[Sequence[float]] | Floats,
    ends: Collection[int] = (),
    rounds: int = ROUNDS,
) -> DraftsDecision:
    """Keep a prefix of one of the drafts, and write the next token."""
    drafts = [cut(d, ends) for d in drafts]
    levels = layered_levels(_ended(target, ends), draft, drafts, rounds)
    phi = layered_pass_probabilities(levels)
    depth = int(np.flatnonzero(uniforms[0][0] >= phi)[-1])
    residuals = levels[depth].residuals
    nodes = [u for u in nodes_at(drafts, depth) if u in residuals]
    chosen = 0
    if len(nodes) > 1:
        chosen = draw(np.array([residuals[u].sum() for u in nodes]), uniforms[1][-1])
    return emit(nodes[chosen], residuals[nodes[chosen]], uniforms[0][-1], ends)


def nodes_at(drafts: Sequence[Text], depth: int) -> list[Text]:
    """The drafts' prefixes of length `depth`, ordered by their owners.

    The owner is the first draft through the node that goes on, or the first through it at all.
    """
    owners: dict[Text, int] = {}
    for longer in (depth + 1, depth):
        for k, d in enumerate(drafts):
            if len(d) >= longer:
                owners.setdefault(d[:depth], k)
    return sorted(owners, key=lambda u: owners[u])


def emit(prefix: Text, mass: Floats, uniform: float, ends: Collection[int]) -> DraftsDecision:
    """Keep `prefix` and draw the next token from `mass`, unless the text has ended."""
    if prefix and prefix[-1] in ends:
        return DraftsDecision(prefix, -1)
    return DraftsDecision(prefix, draw(mass, uniform))


def all_draft_sets(
    draft: Draft, lengths: Sequence[int], prefix: Text = (), ends: Collection[int] = ()
) -> Iterator[tuple[tuple[Text, ...], float]]:
    """Every ordered set of len(lengths) i.i.d. drafts with positive probability."""
    single = [
        [(tokens, mass) for tokens, mass, _ in all_drafts(draft, length, prefix, ends)]
        for length in lengths
    ]
    for combination in itertools.product(*single):
        yield (
            tuple(tokens for tokens, _ in combination),
            float(np.prod([mass for _, mass in combination])),
        )


def step_law_of_drafts(
    law: DraftsLaw,
    target: Target,
    draft: Draft,
    lengths: Sequence[int],
    prefix: Text = (),
    ends: Collection[int] = (),
) -> Law:
    """Exact law of what one step appends behind `prefix`: kept tokens and the next one."""
    p, q = _relative(target, draft, prefix, ends)
    result: Law = {}
    for drafts, mass in all_draft_sets(draft, lengths, prefix, ends):
        for kept, row in law(p, q, drafts).items():
            for x in np.flatnonzero(row):
                text = cut((*kept, int(x)), ends)
                result[text] = result.get(text, 0.0) + mass * float(row[x])
    return result


def output_law_of_drafts(
    law: DraftsLaw,
    target: Target,
    draft: Draft,
    lengths: Sequence[int],
    total: int,
    ends: Collection[int] = (),
    speculate_again: bool = False,
) -> Law:
    """Exact law of the first `total` tokens of the text; see `oracle.output_law`."""

    def step(prefix: Text) -> Law:
        return step_law_of_drafts(law, target, draft, lengths, prefix, ends)

    return continued(step(()), target, total, ends, step if speculate_again else None)


def expected_accepted_of_drafts(
    law: DraftsLaw,
    target: Target,
    draft: Draft,
    lengths: Sequence[int],
    prefix: Text = (),
    ends: Collection[int] = (),
) -> float:
    """E[number of drafted tokens that one step keeps], exact."""
    p, q = _relative(target, draft, prefix, ends)
    return sum(
        mass * sum(len(kept) * float(row.sum()) for kept, row in law(p, q, drafts).items())
        for drafts, mass in all_draft_sets(draft, lengths, prefix, ends)
    )


def _relative(
    target: Target, draft: Draft, prefix: Text, ends: Collection[int]
) -> tuple[Target, Draft]:
    """Target and draft of texts behind `prefix`."""
    behind = _ended(target, ends)
    return (lambda text: behind(prefix + text)), (lambda text: draft(prefix + text))


def _ended(target: Target, ends: Collection[int]) -> Target:
    return lambda text: row_behind(target, text, ends)


def _deterministic(draft: Draft, node: Text) -> bool:
    row = draft(node)
    return row is not None and float(row.max()) == 1.0
