"""Sums over pairs of rows on a CPU, compiled: one pass, and no copy of a row.

Owns the two sums that verifiers ask of a target row p and a draft row q of the whole vocabulary:
how much of w·p lies above q, and how much of it g·q covers. torch needs a widened copy of both rows
and three passes over them for that.

Invariants: rows are read as they are, float32 or float64, and divided by their own sums in float64,
as `rows` does. The order of additions is fixed by the width alone; results agree with torch's up to
rounding.

Cost: one pass over both rows per sum; compiled once per type and kept on disk.

Sibling: `rows.DraftBatch` asks, and computes the same with torch on other devices.

Example::

    >>> import torch
    >>> target, draft = torch.tensor([[[0.5, 0.5]]]), torch.tensor([[[0.9, 0.1]]])
    >>> one, zero = torch.ones(1), torch.zeros(1, dtype=torch.long)
    >>> pair = Pairs(target, draft, zero, zero, one, one)
    >>> round(float(excess(pair, one)), 6), round(float(overlap(pair, one, one)), 6)
    (0.4, 0.6)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from structspec.machine_code.kernel import kernel

__all__ = ["Pairs", "excess", "fits", "overlap"]

Floats = NDArray[Any]
Counts = NDArray[np.int64]


@dataclass(frozen=True)
class Pairs:
    """n pairs of rows: `target` [B, L + 1, V] and `draft` [B, L, V], both contiguous, at `rows`,
    `places` [n], with the sums [n] that they are divided by.
    """

    target: Tensor
    draft: Tensor
    rows: Tensor
    places: Tensor
    target_sums: Tensor
    draft_sums: Tensor


def fits(target: Tensor, draft: Tensor | None) -> bool:
    """Whether compiled scans read these tensors."""
    return (
        draft is not None
        and target.device.type == draft.device.type == "cpu"
        and target.dtype == draft.dtype
        and target.dtype in (torch.float32, torch.float64)
    )


def excess(pairs: Pairs, weights: Tensor) -> Tensor:
    """Σ (w·p - q)₊ of each pair, float64 [n]."""
    return _scan(_excess, pairs, weights, weights)


def overlap(pairs: Pairs, weights: Tensor, scales: Tensor) -> Tensor:
    """Σ min(w·p, g·q) of each pair with `scales` g, float64 [n]."""
    return _scan(_overlap, pairs, weights, scales)


def _scan(kernel: Any, pairs: Pairs, weights: Tensor, scales: Tensor) -> Tensor:
    found = np.empty(len(weights))
    kernel(
        pairs.target.detach().numpy(),
        pairs.draft.detach().numpy(),
        pairs.rows.numpy(),
        pairs.places.numpy(),
        *(part.double().numpy() for part in (pairs.target_sums, pairs.draft_sums)),
        *(part.double().numpy() for part in (weights, scales)),
        found,
    )
    return torch.from_numpy(found)


@kernel(fastmath={"reassoc"})
def _excess(  # pragma: no cover
    target: Floats,
    draft: Floats,
    rows: Counts,
    places: Counts,
    target_sums: Floats,
    draft_sums: Floats,
    weights: Floats,
    scales: Floats,
    found: Floats,
) -> None:
    for n in range(len(found)):
        p, q = target[rows[n], places[n]], draft[rows[n], places[n]]
        p_sum, q_sum, w = target_sums[n], draft_sums[n], weights[n]
        total = 0.0
        for x in range(len(p)):
            total += max(np.float64(p[x]) / p_sum * w - np.float64(q[x]) / q_sum, 0.0)
        found[n] = total


@kernel(fastmath={"reassoc"})
def _overlap(  # pragma: no cover
    target: Floats,
    draft: Floats,
    rows: Counts,
    places: Counts,
    target_sums: Floats,
    draft_sums: Floats,
    weights: Floats,
    scales: Floats,
    found: Floats,
) -> None:
    for n in range(len(found)):
        p, q = target[rows[n], places[n]], draft[rows[n], places[n]]
        p_sum, q_sum, w, g = target_sums[n], draft_sums[n], weights[n], scales[n]
        total = 0.0
        for x in range(len(p)):
            total += min(np.float64(p[x]) / p_sum * w, np.float64(q[x]) / q_sum * g)
        found[n] = total
