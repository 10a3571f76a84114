"""The definition: sort a row, largest first and lower ids first, and cut it."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from structspec.kernels.logit_rows import LogitRows
from structspec.kernels.masked_softmax_stats.reference import host_scores

__all__ = ["reference_edges"]


def reference_edges(
    rows: LogitRows, top_k: int, top_p: float, min_p: float
) -> tuple[Tensor, Tensor]:
    """`row_edges` in float64; top_k = 0, top_p = 1 and min_p = 0 are off."""
    scores, scales = host_scores(rows)
    edges = np.full(len(scores), -np.inf)
    last_ids = np.full(len(scores), 2**31 - 1, np.int32)
    for r, (x, scale) in enumerate(zip(scores, scales, strict=True)):
        best = x.max()
        if not np.isfinite(best):
            continue
        order = np.lexsort((np.arange(x.size), -x))
        order = order[x[order] > -np.inf]
        if top_k and top_k < len(order):
            edges[r] = x[order[top_k - 1]]
            order = order[x[order] >= edges[r]]
        if top_p < 1.0:
            mass = np.exp((x[order] - best) * scale)
            ahead = np.cumsum(mass) - mass
            count = max(1, int((ahead < top_p * mass.sum()).sum()))
            edges[r], last_ids[r] = x[order[count - 1]], order[count - 1]
        if min_p > 0.0:
            lowest = best + np.log(min_p) / scale
            if lowest > edges[r]:
                edges[r], last_ids[r] = lowest, 2**31 - 1
    return torch.from_numpy(edges), torch.from_numpy(last_ids)
