"""The float64 oracle of one tree node: how m i.i.d. drafts share the target's mass there.

At a node of weight W the target wants the masses c(x) = W·p(x); m drafts stand there whose next
tokens are i.i.d. from q; g is the probability that no draft was selected before. `node_rounds`
lets the drafts through in rounds. In one round each draft, in order, is selected with probability
a(x) if none was before, and token x receives in all

    F(x) = g κ a(x) Q(x),   β = Σ Q a,   κ = (1 - (1-β)^m) / β = 1 + (1-β) + … + (1-β)^(m-1)

where Q is the law of a draft that was not selected so far. F <= c, what is left is the residual.

Invariants
- Everything that chooses a parameter (rates, caps) reads c, q, g and m, never a drafted token.
  Hence parameters change how many tokens are kept, never the law.
- A row with all its mass on one token is deterministic: its copies tell nothing, m counts as 1.
- The rate y = 1/ρ is the largest with y κ <= 1, found on a lower bound of β(y): β is concave in
  y, so linear interpolation between `EDGES` exact values never exceeds it. A GPU needs one pass.
- Caps come from a histogram of `BINS` linear bins of log r, r = c/(gQ); no exactness depends on it.

Cost: O(rounds · EDGES · V) here; the torch implementation is O(rounds · V).

Sibling: `oracle_drafts` puts nodes together; `levels` is the batched torch implementation.

Papers: Sun et al. 2023, SpecTr (arXiv 2310.15141) for one round (K-SEQ); the rounds are ours.

Example::

    >>> import numpy as np
    >>> p, q = np.array([0.5, 0.5]), np.array([0.9, 0.1])
    >>> one = node_rounds(p, q, 1.0, 1, rounds=1)          # one draft: (p - q)₊ is left
    >>> one.residual.round(12).tolist(), round(one.g, 12)
    ([0.0, 0.4], 0.4)
    >>> two = node_rounds(p, q, 1.0, 2, rounds=2)
    >>> bool(two.residual.sum() < one.residual.sum())
    True
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from structspec.verification.oracle import Floats

__all__ = ["NodeRounds", "kappa", "knots", "largest_rate", "node_rounds", "tents"]

EDGES = 65
"""Exact values of β(y) between which it is interpolated."""
REFINEMENTS = 3
"""How often the bracket of the rate is divided into EDGES - 1 parts."""
BINS = 64
"""Bins of the histogram that the caps are planned on."""
LOWEST_LOG2 = -10.0
"""log2 of the smallest ratio that the histogram tells apart."""
ITERATIONS = 16
"""Damped iterations for the caps."""
SLACK = 1e-14
"""y κ <= 1 + SLACK: rounding must not cost p = q its certainty."""
UNREACHABLE = 1e-13
"""A remaining probability g below this counts as 0."""


@dataclass(frozen=True)
class NodeRounds:
    """What the rounds at one node do.

    `accept` [R, V]: probability that a draft with token x is selected in round j when none was;
    `residual` [V]: the target's mass that stays at the node; `g`: the probability that still
    nothing is selected behind this node.
    """

    accept: Floats
    residual: Floats
    g: float


def kappa(beta: Floats | float, m: int) -> Floats:
    """Σ_{j<m} (1-β)^j: how often a token of rate 1 is selected, per draft."""
    total = np.ones_like(np.asarray(beta, dtype=np.float64))
    for _ in range(m - 1):
        total = 1.0 + (1.0 - np.asarray(beta)) * total
    return total


def largest_rate(capped: Floats, wanted: Floats, m: int) -> float:
    """The largest y in [1/m, 1] with y κ(β(y)) <= 1, β(y) = Σ min(capped, y·wanted).

    `capped` = t·Q and `wanted` = c/g. The left side grows with y, and 1/m is always valid.
    """
    y = np.linspace(1.0 / m, 1.0, EDGES)
    beta = np.minimum(capped, y[:, None] * wanted).sum(axis=1)
    for level in range(REFINEMENTS + 1):
        rate = y * kappa(beta, m)
        if rate[-1] <= 1.0 + SLACK:
            return float(y[-1])
        k = int(np.argmax(rate > 1.0 + SLACK)) - 1
        ends, values, rates = y[k : k + 2], beta[k : k + 2], rate[k : k + 2]
        if level < REFINEMENTS:
            y = np.linspace(ends[0], ends[1], EDGES)
            beta = np.linspace(values[0], values[1], EDGES)
    part = (1.0 - rates[0]) / (rates[1] - rates[0])
    return float(ends[0] + (ends[1] - ends[0]) * min(max(part, 0.0), 1.0))


def tents(ratio: Floats, knot: Floats) -> Floats:
    """Weights [R, n] of rounds at the ratios: linear between the falling knots κ_1 >= … >= κ_R.

    Above κ_1 all weight is on the first round; below κ_R round R has weight r/κ_R and the rest is
    refused.
    """
    weights = np.zeros((len(knot), len(ratio)))
    below = np.ones_like(ratio)  # the part not given to an earlier round
    for j in range(len(knot)):
        lower = knot[j + 1] if j + 1 < len(knot) else 0.0
        width = max(knot[j] - lower, 1e-12)
        part = np.clip((ratio - lower) / width, 0.0, 1.0)
        weights[j] = below * part
        below = below - weights[j]
    return weights


def knots(ratio: Floats, q: Floats, m: int, rounds: int) -> Floats:
    """κ_1..κ_R for which the rounds' shares b_j = Σ q·tent_j are consistent, approximately.

    κ_j = ((1-B_{j-1})^m - (1-B_j)^m) / b_j with B_j = b_1 + … + b_j. Mass is put into bins of
    log2 r between LOWEST_LOG2 and log2 m, shared linearly between the two nearest.
    """
    top = np.log2(m)
    with np.errstate(divide="ignore"):
        place = np.clip(np.log2(ratio), LOWEST_LOG2, top)
    place = (place - LOWEST_LOG2) / (top - LOWEST_LOG2) * (BINS - 1)
    left = np.minimum(place.astype(np.int64), BINS - 2)
    share = place - left
    mass = np.bincount(left, q * (1.0 - share), BINS) + np.bincount(left + 1, q * share, BINS)
    centre = 2.0 ** np.linspace(LOWEST_LOG2, top, BINS)
    b = np.full(rounds, 1.0 / rounds)
    for step in range(ITERATIONS + 1):
        after = np.clip(1.0 - np.cumsum(b), 0.0, 1.0)
        before = np.concatenate([[1.0], after[:-1]])
        knot = np.ones(rounds)
        for i in range(1, m):
            knot = after * knot + before**i
        if step < ITERATIONS:
            b = 0.5 * b + 0.5 * (tents(centre, knot) @ mass)
    return knot


def node_rounds(c: Floats, q: Floats, g: float, m: int, rounds: int) -> NodeRounds:
    """Let the m drafts of a node through; see the module. `rounds` = 1 is K-SEQ's rule."""
    if q.max() == 1.0:
        m = 1
    if m == 1:
        rounds = 1
    law, left, survival = q, c, np.ones_like(q)
    accept = np.zeros((rounds, len(q)))
    caps = np.ones((rounds, len(q)))
    if rounds > 1 and g > 0.0:
        ratio = np.where(q > 0.0, c / np.where(q > 0.0, g * q, 1.0), 0.0)
        caps[:-1] = tents(ratio, knots(ratio, q, m, rounds))[:-1]
    for j in range(rounds):
        if g == 0.0:
            break
        cap = np.where(survival > 0.0, caps[j] / np.where(survival > 0.0, survival, 1.0), 1.0)
        cap = np.minimum(cap, 1.0)
        y = 1.0 if m == 1 else largest_rate(cap * law, left / g, m)
        wanted = y * left / g
        a = np.where(law > 0.0, np.minimum(cap, wanted / np.where(law > 0.0, law, 1.0)), 0.0)
        beta = float(law @ a)
        left = np.maximum(left - g * float(kappa(beta, m)) * a * law, 0.0)
        g *= (1.0 - beta) ** m if beta < 1.0 else 0.0
        g = 0.0 if g < UNREACHABLE else g
        law = law * (1.0 - a) / max(1.0 - beta, 1e-300)
        survival = survival * (1.0 - a)
        accept[j] = a
    return NodeRounds(accept, left, g)
