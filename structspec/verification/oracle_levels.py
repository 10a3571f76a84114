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

`edges`, `largest_rate` and `knots` work on many nodes at once: the torch implementation bins its
rows and calls them, since on 64 numbers numpy is much cheaper than torch on any device.

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

__all__ = ["NodeRounds", "edges", "kappa", "knots", "largest_rate", "node_rounds", "tents"]

EDGES = 65
"""Exact values of β(y) between which it is interpolated."""
REFINEMENTS = 3
"""How often the bracket of the rate is divided into EDGES - 1 parts."""
BINS = 64
"""Bins of the histogram that the caps are planned on."""
LOWEST_LOG2 = -10.0
"""log2 of the smallest ratio that the histogram tells apart."""
ITERATIONS = 6
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


def kappa(beta: Floats, m: Floats) -> Floats:
    """Σ_{j<m} (1-β)^j: how often a token of rate 1 is selected, per draft; elementwise."""
    total = np.ones_like(beta)
    for j in range(1, int(m.max())):
        total = np.where(j < m, 1.0 + (1.0 - beta) * total, total)
    return total


def edges(m: Floats) -> Floats:
    """The rates y [n, EDGES] from 1/m to 1 at which β is exact; `m` [n, 1]."""
    return 1.0 / m + (1.0 - 1.0 / m) * np.linspace(0.0, 1.0, EDGES)


def largest_rate(beta: Floats, m: Floats) -> Floats:
    """The largest y in [1/m, 1] with y κ(β(y)) <= 1, given β [n, EDGES] at `edges(m)`; [n].

    The left side grows with y, and 1/m is always valid.
    """
    m = m.reshape(-1, 1)
    y, rows = edges(m), np.arange(len(m))
    result = np.full(len(m), np.nan)
    for level in range(REFINEMENTS + 1):
        rate = y * kappa(beta, m)
        over = rate > 1.0 + SLACK
        whole = ~over[:, -1] & np.isnan(result)
        result[whole] = y[whole, -1]
        k = np.maximum(over.argmax(axis=1) - 1, 0)
        low, high = y[rows, k, None], y[rows, k + 1, None]
        beta_low, beta_high = beta[rows, k, None], beta[rows, k + 1, None]
        if level < REFINEMENTS:
            steps = np.linspace(0.0, 1.0, EDGES)
            y, beta = low + (high - low) * steps, beta_low + (beta_high - beta_low) * steps
    rate_low, rate_high = rate[rows, k, None], rate[rows, k + 1, None]
    part = (1.0 - rate_low) / np.where(rate_high > rate_low, rate_high - rate_low, 1.0)
    between = (low + (high - low) * np.clip(part, 0.0, 1.0))[:, 0]
    return np.where(np.isnan(result), between, result)


def tents(ratio: Floats, knot: Floats) -> Floats:
    """Weights [R, n, S] of rounds at ratios [n, S]: linear between falling knots [R, n, 1].

    Above κ_1 all weight is on the first round; below κ_R round R has weight r/κ_R and the rest is
    refused.
    """
    weights = np.zeros((len(knot), *ratio.shape))
    below = np.ones_like(ratio)  # the part not given to an earlier round
    for j in range(len(knot)):
        lower = knot[j + 1] if j + 1 < len(knot) else 0.0
        part = (ratio - lower) / np.maximum(knot[j] - lower, 1e-12)
        weights[j] = below * np.minimum(np.maximum(part, 0.0), 1.0)
        below = below - weights[j]
    return weights


def knots(mass: Floats, m: Floats, rounds: int) -> Floats:
    """κ_1..κ_R [R, n, 1] for which the rounds' shares b_j = Σ mass·tent_j are nearly consistent.

    κ_j = ((1-B_{j-1})^m - (1-B_j)^m) / b_j with B_j = b_1 + … + b_j. `mass` [n, BINS] is q by
    log2 r between LOWEST_LOG2 and log2 m, each token shared between the two nearest bins.
    """
    m = m.reshape(-1, 1)
    centre = 2.0 ** (LOWEST_LOG2 + (np.log2(m) - LOWEST_LOG2) * np.linspace(0.0, 1.0, BINS))
    b = np.full((rounds, len(m), 1), 1.0 / rounds)
    for step in range(ITERATIONS + 1):
        knot, before = np.ones_like(b), np.ones_like(m)
        for j in range(rounds):
            after, power = np.maximum(before - b[j], 0.0), before
            for i in range(1, int(m.max())):
                knot[j] = np.where(i < m, after * knot[j] + power, knot[j])
                power = power * before
            before = after
        if step < ITERATIONS:
            b = 0.5 * b + 0.5 * (tents(centre, knot) * mass).sum(axis=2, keepdims=True)
    return knot


def node_rounds(c: Floats, q: Floats, g: float, m: int, rounds: int) -> NodeRounds:
    """Let the m drafts of a node through; see the module. `rounds` = 1 is K-SEQ's rule."""
    if q.max() == 1.0:
        m = 1
    if m == 1:
        rounds = 1
    count = np.array([float(m)])
    law, left, survival = q, c, np.ones_like(q)
    accept = np.zeros((rounds, len(q)))
    caps = np.ones((rounds, len(q)))
    if rounds > 1 and g > 0.0:
        ratio = _ratio(c, g * q)
        knot = knots(_histogram(ratio, q, m), count, rounds)
        caps[:-1] = tents(ratio[None], knot)[:-1, 0]
    for j in range(rounds):
        if g == 0.0:
            break
        cap = np.where(survival > 0.0, _ratio(caps[j], survival), 1.0)
        cap = np.minimum(cap, 1.0)
        wanted = left / g
        y = 1.0
        if m > 1:
            beta = np.minimum(cap * law, edges(count[:, None]).T * wanted).sum(axis=1)
            y = float(largest_rate(beta[None], count)[0])
        a = np.minimum(cap, _ratio(y * wanted, law))
        chance = np.array([law @ a])
        left = np.maximum(left - g * kappa(chance, count) * a * law, 0.0)
        g *= max(1.0 - float(chance[0]), 0.0) ** m
        g = 0.0 if g < UNREACHABLE else g
        law = law * (1.0 - a) / max(1.0 - float(chance[0]), 1e-300)
        survival = survival * (1.0 - a)
        accept[j] = a
    return NodeRounds(accept, left, g)


def _histogram(ratio: Floats, q: Floats, m: int) -> Floats:
    """`knots`' mass of one node, [1, BINS]."""
    with np.errstate(divide="ignore"):
        place = np.clip(np.log2(ratio), LOWEST_LOG2, np.log2(m))
    place = (place - LOWEST_LOG2) / (np.log2(m) - LOWEST_LOG2) * (BINS - 1)
    left = np.minimum(place.astype(np.int64), BINS - 2)
    share = place - left
    mass: Floats = np.zeros(BINS)
    mass += np.bincount(left, q * (1.0 - share), BINS)
    mass += np.bincount(left + 1, q * share, BINS)
    return mass[None]


def _ratio(top: Floats, bottom: Floats) -> Floats:
    """top / bottom, 0 where bottom is 0."""
    return np.where(bottom > 0.0, top / np.where(bottom > 0.0, bottom, 1.0), 0.0)
