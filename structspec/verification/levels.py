"""The rounds at many tree nodes at once, in torch: what layered verification and K-SEQ compute.

Same definitions as `oracle_levels`, line by line where possible: `kappa`, `largest_rate`, `tents`,
`knots`, and `rounds_at` for `node_rounds`.

Invariants
- Parameters are read from histograms whose bins are sums of integers (fixed point), so a GPU's
  order of additions cannot change them.
- Everything exact is computed afterwards, with the chosen parameters, from whole rows.

Cost: per round about 20 passes over the rows, two of them scatters; no loop over the vocabulary.

Sibling: `oracle_levels`.

Example::

    >>> import torch
    >>> p, q = torch.tensor([[0.5, 0.5]]).double(), torch.tensor([[0.9, 0.1]]).double()
    >>> one = torch.ones(1, dtype=torch.float64)
    >>> two = rounds_at(p, q, one, torch.tensor([2]), 2, torch.tensor([[0, 1]]))
    >>> two.accept.shape, round(float(two.g), 6)
    (torch.Size([1, 2, 2]), 0.31)
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from structspec.verification.oracle_levels import (
    BINS,
    EDGES,
    ITERATIONS,
    LOWEST_LOG2,
    REFINEMENTS,
    SLACK,
    UNREACHABLE,
)

__all__ = ["Rounds", "kappa", "knots", "largest_rate", "rounds_at", "single_at", "tents"]


@dataclass(frozen=True)
class Rounds:
    """`accept` [n, R, K]: the tests of each draft's token per round; `residual` [n, V]; `g` [n]."""

    accept: Tensor
    residual: Tensor
    g: Tensor


def kappa(beta: Tensor, m: Tensor) -> Tensor:
    """Σ_{j<m} (1-β)^j, elementwise."""
    total = torch.ones_like(beta)
    for j in range(1, int(m.max())):
        total = torch.where(j < m, 1.0 + (1.0 - beta) * total, total)
    return total


def largest_rate(capped: Tensor, wanted: Tensor, m: Tensor) -> Tensor:
    """The largest y in [1/m, 1] with y κ(β(y)) <= 1 per row; see `oracle_levels`."""
    wide = capped.dtype
    lowest = 1.0 / m.to(wide)
    steps = torch.arange(EDGES, dtype=wide, device=capped.device) / (EDGES - 1)
    y = lowest[:, None] + (1.0 - lowest)[:, None] * steps
    y[:, -1] = 1.0
    # An entry counts as `capped` from the edge on where it saturates, before that as y·wanted.
    # Beyond m·capped `wanted` saturates at every edge; clamped, fixed point cannot overflow.
    wanted = torch.minimum(wanted, m.to(wide)[:, None] * capped)
    saturates = torch.where(wanted > 0, capped / wanted, torch.inf)
    width = (1.0 - lowest)[:, None] / (EDGES - 1)
    edge = ((saturates - lowest[:, None]) / width).ceil_().clamp_(0, EDGES).long()
    full = _binned(edge, capped, EDGES + 1).cumsum(dim=1)[:, :EDGES]
    partial = _binned(edge, wanted, EDGES + 1)
    partial = (partial.sum(dim=1, keepdim=True) - partial.cumsum(dim=1))[:, :EDGES]
    unit = _unit(wide)
    beta = full.to(wide) * unit + y * (partial.to(wide) * unit)
    result, found = y[:, -1].clone(), torch.zeros_like(m, dtype=torch.bool)
    for level in range(REFINEMENTS + 1):
        rate = y * kappa(beta, m[:, None])
        over = rate > 1.0 + SLACK
        whole = ~over[:, -1] & ~found
        result = torch.where(whole, y[:, -1], result)
        found |= whole
        k = (over.byte().argmax(dim=1) - 1).clamp(0, EDGES - 2)[:, None]
        pair = torch.cat([k, k + 1], dim=1)
        ends, values, rates = y.gather(1, pair), beta.gather(1, pair), rate.gather(1, pair)
        if level < REFINEMENTS:
            y = ends[:, :1] + (ends[:, 1:] - ends[:, :1]) * steps
            beta = values[:, :1] + (values[:, 1:] - values[:, :1]) * steps
    part = ((1.0 - rates[:, 0]) / (rates[:, 1] - rates[:, 0])).clamp(0.0, 1.0)
    between = ends[:, 0] + (ends[:, 1] - ends[:, 0]) * part
    return torch.where(found, result, between)


def tents(ratio: Tensor, knot: Tensor) -> Tensor:
    """Weights [n, R, S] of the rounds at ratios [n, S] between knots [n, R]."""
    below = torch.ones_like(ratio)
    weights = []
    for j in range(knot.shape[1]):
        lower = knot[:, j + 1] if j + 1 < knot.shape[1] else torch.zeros_like(knot[:, 0])
        width = (knot[:, j] - lower).clamp(min=1e-12)
        part = ((ratio - lower[:, None]) / width[:, None]).clamp(0.0, 1.0)
        weights.append(below * part)
        below = below - weights[-1]
    return torch.stack(weights, dim=1)


def knots(ratio: Tensor, q: Tensor, m: Tensor, rounds: int) -> Tensor:
    """κ_1..κ_R [n, R] of each row."""
    wide = q.dtype
    top = m.to(wide).log2()
    scale = (BINS - 1) / (top - LOWEST_LOG2)
    place = torch.minimum(ratio.log2().clamp(min=LOWEST_LOG2), top[:, None])
    place = (place - LOWEST_LOG2) * scale[:, None]
    left = place.floor().clamp(max=BINS - 2)
    share = place - left
    left = left.long()
    mass = _binned(left, q * (1.0 - share), BINS) + _binned(left + 1, q * share, BINS)
    mass = mass.to(wide) * _unit(wide)
    steps = torch.arange(BINS, dtype=wide, device=q.device) / (BINS - 1)
    centre = torch.exp2(LOWEST_LOG2 + (top[:, None] - LOWEST_LOG2) * steps)
    b = torch.full((len(q), rounds), 1.0 / rounds, dtype=wide, device=q.device)
    one = torch.ones_like(b[:, :1])
    knot = b
    for step in range(ITERATIONS + 1):
        after = (1.0 - b.cumsum(dim=1)).clamp(0.0, 1.0)
        before = torch.cat([one, after[:, :-1]], dim=1)
        knot = torch.ones_like(b)
        power = before
        for i in range(1, int(m.max())):
            knot = torch.where(i < m[:, None], after * knot + power, knot)
            power = power * before
        if step < ITERATIONS:
            b = 0.5 * b + 0.5 * (tents(centre, knot) * mass[:, None]).sum(dim=-1)
    return knot


def rounds_at(c: Tensor, q: Tensor, g: Tensor, m: Tensor, rounds: int, tokens: Tensor) -> Rounds:
    """Let the m drafts of each node through.

    Args:
        c: the target's masses W·p at the nodes, [n, V].
        q: the drafts' law there, [n, V], not deterministic.
        g: the probability that nothing was selected before, [n].
        m: how many drafts stand at each node, int [n].
        rounds: how many rounds; 1 is K-SEQ's rule.
        tokens: the tokens whose tests are wanted, [n, K].
    """
    law, left = q, c
    accept = []
    caps = None
    survival = torch.ones_like(q)
    if rounds > 1:
        ratio = torch.where(q > 0, c / (torch.where(g > 0, g, 1.0)[:, None] * q), 0.0)
        caps = tents(ratio, knots(ratio, q, m, rounds))
    for j in range(rounds):
        alive = g > 0
        safe = torch.where(alive, g, 1.0)
        cap: Tensor | float = 1.0
        if caps is not None and j + 1 < rounds:
            cap = torch.where(survival > 0, caps[:, j] / survival, 1.0).clamp(max=1.0)
        wanted = left / safe[:, None]
        y = largest_rate(cap * law, wanted, m)
        a = torch.where(law > 0, y[:, None] * wanted / law, 0.0)
        a = torch.minimum(a, cap) if isinstance(cap, Tensor) else a.clamp(max=cap)
        a = torch.where(alive[:, None], a, 0.0)
        beta = (law * a).sum(dim=-1)
        left = (left - (g * kappa(beta, m))[:, None] * a * law).clamp(min=0.0)
        g = g * (1.0 - beta).clamp(min=0.0) ** m
        g = torch.where(g < UNREACHABLE, 0.0, g)
        law = law * (1.0 - a) / (1.0 - beta).clamp(min=1e-300)[:, None]
        survival = survival * (1.0 - a)
        accept.append(a.gather(1, tokens))
    return Rounds(torch.stack(accept, dim=1), left, g)


def single_at(c: Tensor, q: Tensor, g: Tensor, ratio: Tensor) -> Rounds:
    """One draft at each node: a = min(1, c/(gq)) is all there is. `ratio` [n]: c/q of its token."""
    safe = torch.where(g > 0, g, 1.0)
    accept = torch.where(g > 0, (ratio / safe).clamp(max=1.0), 0.0)
    covered = torch.minimum(c, g[:, None] * q)
    left = torch.where(g > 0, 1.0 - covered.sum(dim=-1) / safe, 0.0)
    after = g * left
    return Rounds(
        accept[:, None, None],
        c - covered,
        torch.where(after < UNREACHABLE, 0.0, after),
    )


def _unit(wide: torch.dtype) -> float:
    """One step of the fixed point; sums are below 128 (`drafts.MOST_DRAFTS`)."""
    return 2.0**-55 if wide == torch.float64 else 2.0**-26


def _binned(index: Tensor, values: Tensor, bins: int) -> Tensor:
    """Sums of `values` [n, V] by `index` [n, V], in steps of `_unit`; int64."""
    sums = torch.zeros(len(values), bins, dtype=torch.int64, device=values.device)
    return sums.scatter_add_(1, index, (values / _unit(values.dtype)).round_().long())
