"""The rounds at one tree node on a CPU, compiled: what `levels.rounds_at` computes there.

torch takes some twenty passes over a row of the vocabulary per round, each through memory. Here a
round is three passes over the tokens that the draft can say at all, which under a grammar, or with
a reduced draft vocabulary, are few.

Invariants
- the same quantities in the same order of operations as `levels.rounds_at`: histograms are sums of
  integers, hence equal; β is summed in blocks, so results agree up to rounding;
- tokens with q = 0 are never selected and keep their mass; they are copied and not visited.

Cost: 3 · rounds + 1 passes over the support of q; compiled once and kept on disk.

Sibling: `levels`, for many nodes at once on any device; `oracle_levels` for the definitions.

Example::

    >>> import numpy as np
    >>> p, q = np.array([0.5, 0.5]), np.array([0.9, 0.1])
    >>> accept, residual, g = rounds_on_cpu(p, q, 1.0, 2, 2, np.array([0, 1]))
    >>> accept.shape, round(g, 6)
    ((2, 2), 0.31)
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from structspec.machine_code.kernel import kernel
from structspec.verification.oracle_levels import (
    BINS,
    EDGES,
    LOWEST_LOG2,
    UNREACHABLE,
    edges,
    kappa,
    knots,
    largest_rate,
)

__all__ = ["rounds_on_cpu"]

Floats = NDArray[np.float64]
Counts = NDArray[np.int64]

_UNIT = 2.0**-55
_PER_UNIT = 2.0**55
_BLOCK = 128


def rounds_on_cpu(
    c: Floats, q: Floats, g: float, m: int, rounds: int, tokens: Counts
) -> tuple[Floats, Floats, float]:
    """Let the m > 1 drafts of one node through; arguments as `levels.rounds_at`, of one node.

    Returns the tests of `tokens` [R, K], the residual [V] and the new g.
    """
    support = np.flatnonzero(q)
    law, left = q[support], c[support]
    survival, below = np.ones_like(law), np.ones_like(law)
    count = np.array([float(m)])
    ratio, knot = law, np.zeros(rounds + 1)
    if rounds > 1:
        ratio = np.empty_like(law)
        mass = np.zeros(BINS, np.int64)
        _bin_ratios(left, law, g if g > 0 else 1.0, float(m), ratio, mass)
        shares: Floats = mass[None].astype(np.float64) * _UNIT
        knot[:rounds] = knots(shares, count, rounds)[:, 0, 0]
    at = np.searchsorted(support, tokens)
    at[at == len(support)] = 0
    said = support[at] == tokens
    accept = np.zeros((rounds, len(tokens)))
    cap, a = np.ones_like(law), np.empty_like(law)
    values = edges(count[:, None])
    for j in range(rounds):
        if g <= 0.0:
            break
        if j + 1 < rounds:
            _caps(ratio, survival, below, knot[j], knot[j + 1], cap)
        elif rounds > 1:
            cap[:] = 1.0
        full, partial = np.zeros(EDGES + 1, np.int64), np.zeros(EDGES + 1, np.int64)
        _bin_edges(law, left, cap, g, float(m), full, partial)
        whole = np.cumsum(full)[None, :EDGES]
        part = (partial.sum() - np.cumsum(partial))[None, :EDGES]
        y = float(largest_rate((whole + values * part) * _UNIT, count)[0])
        beta = _select(law, left, cap, g, y, a)
        accept[j] = np.where(said, a[at], 0.0)
        taken = g * float(kappa(np.array([beta]), count)[0])
        _take(law, left, survival, a, taken, 1.0 / max(1.0 - beta, 1e-300))
        g *= max(1.0 - beta, 0.0) ** m
        g = 0.0 if g < UNREACHABLE else g
    residual = c.copy()
    residual[support] = left
    return accept, residual, g


@kernel
def _bin_ratios(  # pragma: no cover
    c: Floats, q: Floats, g: float, m: float, ratio: Floats, mass: Counts
) -> None:
    """ratio = c/(gq), and q by its logarithm, each token shared between two bins."""
    top = math.log2(m)
    scale = (BINS - 1) / (top - LOWEST_LOG2)
    for x in range(len(q)):
        r = c[x] / (g * q[x])
        ratio[x] = r
        place = min(max(math.log2(r), LOWEST_LOG2), top) if r > 0.0 else LOWEST_LOG2
        place = (place - LOWEST_LOG2) * scale
        left = min(math.floor(place), BINS - 2)
        share = place - left
        mass[left] += np.int64(np.rint(q[x] * (1.0 - share) * _PER_UNIT))
        mass[left + 1] += np.int64(np.rint(q[x] * share * _PER_UNIT))


@kernel
def _caps(  # pragma: no cover
    ratio: Floats, survival: Floats, below: Floats, knot: float, lower: float, cap: Floats
) -> None:
    """The round's tents over what survived; `below` is what they leave to later rounds."""
    width = max(knot - lower, 1e-12)
    for x in range(len(ratio)):
        tent = below[x] * min(max((ratio[x] - lower) / width, 0.0), 1.0)
        below[x] -= tent
        cap[x] = min(tent / survival[x], 1.0) if survival[x] > 0.0 else 1.0


@kernel
def _bin_edges(  # pragma: no cover
    law: Floats, left: Floats, cap: Floats, g: float, m: float, full: Counts, partial: Counts
) -> None:
    """What each token adds to β(y) behind and before the edge where it saturates."""
    lowest = 1.0 / m
    scale = (EDGES - 1) / (1.0 - lowest)
    for x in range(len(law)):
        capped = cap[x] * law[x]
        wanted = min(left[x] / g, m * capped)
        edge = EDGES
        if wanted > 0.0:
            place = math.ceil((capped / wanted - lowest) * scale)
            edge = min(max(place, 0), EDGES)
        full[edge] += np.int64(np.rint(capped * _PER_UNIT))
        partial[edge] += np.int64(np.rint(wanted * _PER_UNIT))


@kernel
def _select(  # pragma: no cover
    law: Floats, left: Floats, cap: Floats, g: float, y: float, a: Floats
) -> float:
    """a = min(cap, y left / (g law)); returns β = Σ law a."""
    beta = 0.0
    for start in range(0, len(law), _BLOCK):
        block = 0.0
        for x in range(start, min(start + _BLOCK, len(law))):
            rate = y * (left[x] / g) / law[x] if law[x] > 0.0 else 0.0
            a[x] = min(rate, cap[x])
            block += law[x] * a[x]
        beta += block
    return beta


@kernel
def _take(  # pragma: no cover
    law: Floats, left: Floats, survival: Floats, a: Floats, taken: float, renew: float
) -> None:
    """What the drafts received leaves the target's mass; the law of those not selected."""
    for x in range(len(law)):
        left[x] = max(left[x] - taken * a[x] * law[x], 0.0)
        law[x] = law[x] * (1.0 - a[x]) * renew
        survival[x] *= 1.0 - a[x]
