"""The same with a full sort in torch; no waiting for the device."""

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
