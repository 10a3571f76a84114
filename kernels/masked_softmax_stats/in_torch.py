"""The same in whole-tensor torch operations, on any device, without waiting for it."""

from __future__ import annotations

import torch

from structspec.kernels.logit_rows import LogitRows, RowStats, Status

__all__ = ["torch_stats"]


def torch_stats(rows: LogitRows) -> RowStats:
    """`masked_softmax_stats` in float32, in float64 for float64 logits."""
    dtype = torch.float64 if rows.logits.dtype == torch.float64 else torch.float32
    x = rows.logits.to(dtype).masked_fill(~rows.legal(), -torch.inf)
    scale = rows.scale(dtype)
    top = x.amax(dim=-1)
    safe = torch.where(top == -torch.inf, 0.0, top)
    e = ((x - safe[:, None]) * scale).exp()
    total = e.sum(dim=-1)
    bad = ~(total < torch.inf)
    edge = torch.full_like(total, -torch.inf)
    edge_id = torch.full_like(total, 2**31 - 1, dtype=torch.int32)
    if rows.edge is not None and rows.edge_id is not None:
        ids = torch.arange(rows.vocab, device=x.device)
        given, given_id = rows.edge.to(dtype), rows.edge_id
        kept = (x > given[:, None]) | ((x == given[:, None]) & (ids <= given_id[:, None]))
        chosen = torch.where(kept, e, 0.0).sum(dim=-1)
        edged = chosen > 0
        total = torch.where(edged, chosen, total)
        edge = torch.where(edged, given, edge)
        edge_id = torch.where(edged, given_id, edge_id)
    empty = ~(total > 0)
    good = ~(bad | empty)
    status = torch.where(bad, int(Status.NOT_FINITE), torch.where(empty, int(Status.EMPTY), 0))
    packed = torch.stack(
        [
            torch.where(good, top, 0.0),
            scale[:, 0],
            torch.where(good, total, 1.0).log(),
            edge,
        ],
        dim=-1,
    )
    return RowStats(packed, edge_id, status.to(torch.int32))
