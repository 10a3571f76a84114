"""The same in torch: a full sort, or one reduction where greedy; no waiting for the device."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from structspec.kernels.logit_rows import LogitRows

__all__ = ["torch_edges"]


def torch_edges(rows: LogitRows, top_k: int, top_p: float, min_p: float) -> tuple[Tensor, Tensor]:
    """`row_edges`; top_k = 0, top_p = 1 and min_p = 0 are off."""
    dtype = torch.float64 if rows.logits.dtype == torch.float64 else torch.float32
    x = rows.logits.to(dtype).masked_fill(~rows.legal(), -torch.inf)
    if (top_k, top_p) == (1, 0.0):
        return _greedy(x)
    scale = rows.scale(dtype)
    # Stable: among equal logits the lower id comes first.
    values, ids = x.sort(dim=-1, descending=True, stable=True)
    best = values[:, :1]
    edge = torch.full_like(best, -torch.inf)
    edge_id = torch.full_like(ids[:, :1], 2**31 - 1)
    if 0 < top_k < rows.vocab:
        edge = values[:, top_k - 1 : top_k]
    if top_p < 1.0:
        inside = (values >= edge) & (values > -torch.inf)
        mass = torch.where(inside, ((values - best) * scale).exp(), 0.0).double()
        ahead = mass.cumsum(dim=-1) - mass
        keep = inside & (ahead < top_p * mass.sum(dim=-1, keepdim=True))
        last = keep.sum(dim=-1, keepdim=True).clamp(min=1) - 1
        edge, edge_id = values.gather(1, last), ids.gather(1, last)
    if min_p > 0.0:
        lowest = best + math.log(min_p) / scale
        edge_id = torch.where(lowest > edge, 2**31 - 1, edge_id)
        edge = torch.maximum(lowest, edge)
    good = torch.isfinite(best)
    edge = torch.where(good, edge, -torch.inf)
    edge_id = torch.where(good, edge_id, 2**31 - 1)
    return edge[:, 0], edge_id[:, 0].to(torch.int32)


def _greedy(x: Tensor) -> tuple[Tensor, Tensor]:
    best = x.amax(dim=-1, keepdim=True)
    ids = torch.arange(x.shape[1], device=x.device, dtype=torch.int32)
    # `argmax` does not say which of equals it names
    first = torch.where(x == best, ids, 2**31 - 1).amin(dim=-1)
    good = torch.isfinite(best[:, 0])
    return torch.where(good, best[:, 0], -torch.inf), torch.where(good, first, 2**31 - 1)
