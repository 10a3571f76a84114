"""The rounds at many tree nodes at once, in torch: what layered verification and K-SEQ compute.

`rounds_at` is `oracle_levels.node_rounds` for many nodes, `single_at` the same for one draft at
each. Rows are binned here; the parameters are then chosen by the oracle's own functions.

Invariants
- Parameters are read from histograms whose bins are sums of integers (fixed point), so a GPU's
  order of additions cannot change them.
- Everything exact is computed afterwards, with the chosen parameters, from whole rows.

Cost: per round about 20 passes over the rows, two of them scatters; no loop over the vocabulary. On
a CPU `levels_on_cpu` does it in three.

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
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from structspec.verification.levels_on_cpu import rounds_on_cpu
from structspec.verification.oracle_levels import (
    BINS,
    EDGES,
    LOWEST_LOG2,
    UNREACHABLE,
    edges,
    knots,
    largest_rate,
)

__all__ = ["Rounds", "caps", "kappa", "rates", "rounds_at", "single_at", "together"]

# PERF: of 20,000 nodes, layered verification takes a quarter less in parts of so many
# (`tests/verification/test_chi_squared.py`).
_NODES = 1024
# Narrower rows cost less together than one compiled call per node does.
_COMPILED = 1024


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


def rates(capped: Tensor, wanted: Tensor, m: Tensor) -> Tensor:
    """`oracle_levels.largest_rate` of β(y) = Σ min(capped, y·wanted) per row, [n]."""
    wide, count = capped.dtype, _host(m).astype(np.float64)
    lowest = 1.0 / m.to(wide)[:, None]
    # An entry counts as `capped` from the edge on where it saturates, before that as y·wanted.
    # Beyond m·capped `wanted` saturates at every edge; clamped, fixed point cannot overflow.
    wanted = torch.minimum(wanted, m.to(wide)[:, None] * capped)
    saturates = torch.where(wanted > 0, capped / wanted, torch.inf)
    edge = ((saturates - lowest) * ((EDGES - 1) / (1.0 - lowest))).ceil_().clamp_(0, EDGES).long()
    full = np.cumsum(_host(_binned(edge, capped, EDGES + 1)), axis=1)[:, :EDGES]
    partial = _host(_binned(edge, wanted, EDGES + 1))
    partial = (partial.sum(axis=1, keepdims=True) - np.cumsum(partial, axis=1))[:, :EDGES]
    beta = (full + edges(count[:, None]) * partial) * _unit(wide)
    parts = [largest_rate(beta[i], count[i]) for i in _parts(len(beta))]
    return torch.from_numpy(np.concatenate(parts)).to(capped)


def caps(ratio: Tensor, q: Tensor, m: Tensor, rounds: int) -> Tensor:
    """Tent weights [R, n, V] of the rounds at ratios [n, V] = c/(gq); see `oracle_levels`."""
    wide = q.dtype
    top = m.to(wide).log2()[:, None]
    place = torch.minimum(ratio.log2().clamp_(min=LOWEST_LOG2), top)
    place = (place - LOWEST_LOG2) * ((BINS - 1) / (top - LOWEST_LOG2))
    left = place.floor().clamp_(max=BINS - 2)
    share = place - left
    left = left.long()
    mass = _binned(left, q * (1.0 - share), BINS) + _binned(left + 1, q * share, BINS)
    shares, count = _host(mass) * _unit(wide), _host(m).astype(np.float64)
    parts = [knots(shares[i], count[i], rounds) for i in _parts(len(shares))]
    knot_on = torch.from_numpy(np.concatenate(parts, axis=1)).to(q)
    below, weights = torch.ones_like(ratio), []
    for j in range(rounds):
        lower = knot_on[j + 1] if j + 1 < rounds else torch.zeros_like(knot_on[j])
        part = ((ratio - lower) / (knot_on[j] - lower).clamp(min=1e-12)).clamp_(0.0, 1.0)
        weights.append(below * part)
        below = below - weights[-1]
    return torch.stack(weights)


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
    wide = c.device.type == "cpu" and c.dtype == q.dtype == torch.float64
    if wide and c.shape[1] >= _COMPILED and int(m.min()) > 1:
        return _one_by_one(c, q, g, m, rounds, tokens)
    return together(c, q, g, m, rounds, tokens)


def together(c: Tensor, q: Tensor, g: Tensor, m: Tensor, rounds: int, tokens: Tensor) -> Rounds:
    """`rounds_at` of all nodes at once, on any device."""
    law, left = q, c
    accept = []
    tents = None
    survival = torch.ones_like(q)
    if rounds > 1:
        ratio = torch.where(q > 0, c / (torch.where(g > 0, g, 1.0)[:, None] * q), 0.0)
        tents = caps(ratio, q, m, rounds)
    for j in range(rounds):
        alive = g > 0
        safe = torch.where(alive, g, 1.0)
        cap: Tensor | float = 1.0
        if tents is not None and j + 1 < rounds:
            cap = torch.where(survival > 0, tents[j] / survival, 1.0).clamp(max=1.0)
        wanted = left / safe[:, None]
        y = rates(cap * law, wanted, m)
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


def _one_by_one(c: Tensor, q: Tensor, g: Tensor, m: Tensor, rounds: int, tokens: Tensor) -> Rounds:
    """`rounds_at` by the compiled node; few nodes are alive at a time."""
    rows = zip(_host(c), _host(q), g.tolist(), m.tolist(), _host(tokens), strict=True)
    found = [rounds_on_cpu(c, q, g, m, rounds, tokens) for c, q, g, m, tokens in rows]
    accept, residual, after = (np.stack(part) for part in zip(*found, strict=True))
    return Rounds(torch.from_numpy(accept), torch.from_numpy(residual), torch.from_numpy(after))


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


def _parts(count: int) -> list[slice]:
    """Slices of nodes whose histograms fit into a cache together."""
    return [slice(first, first + _NODES) for first in range(0, max(count, 1), _NODES)]


def _unit(wide: torch.dtype) -> float:
    """One step of the fixed point; sums are below 128 (`drafts.MOST_DRAFTS`)."""
    return 2.0**-55 if wide == torch.float64 else 2.0**-26


def _host(tensor: Tensor) -> NDArray[Any]:
    return tensor.cpu().numpy()


def _binned(index: Tensor, values: Tensor, bins: int) -> Tensor:
    """Sums of `values` [n, V] by `index` [n, V], in steps of `_unit`; int64."""
    sums = torch.zeros(len(values), bins, dtype=torch.int64, device=values.device)
    return sums.scatter_add_(1, index, (values / _unit(values.dtype)).round_().long())
