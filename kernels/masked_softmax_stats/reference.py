"""The definition, row by row in float64 numpy."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from structspec.kernels.logit_rows import LogitRows, RowStats, Status

__all__ = ["Floats", "edge_of", "host_laws", "host_scores", "reference_stats"]

Floats: TypeAlias = NDArray[np.float64]


def host_scores(rows: LogitRows) -> tuple[Floats, Floats]:
    """Masked logits float64 [R, V] (-inf where illegal) and scales 1 / T [R], on the host."""
    x = rows.logits.detach().to("cpu", torch.float64).numpy().copy()
    x[~rows.legal().cpu().numpy()] = -np.inf
    return x, rows.scale(torch.float64)[:, 0].cpu().numpy()


def edge_of(rows: LogitRows, row: int) -> tuple[float, int]:
    """The edge of a row as given, (-inf, largest id) if there is none."""
    if rows.edge is None or rows.edge_id is None:
        return -np.inf, 2**31 - 1
    return float(rows.edge[row]), int(rows.edge_id[row])


def reference_stats(rows: LogitRows) -> RowStats:
    """`masked_softmax_stats` in float64, on the host."""
    scores, scales = host_scores(rows)
    count, vocab = scores.shape
    packed = np.zeros((count, 4))
    edge_ids = np.full(count, 2**31 - 1, np.int32)
    status = np.zeros(count, np.int32)
    ids = np.arange(vocab)
    for r, (x, scale) in enumerate(zip(scores, scales, strict=True)):
        packed[r, 1], packed[r, 3] = scale, -np.inf
        best = x.max()
        if np.isnan(x).any() or best == np.inf:
            status[r] = Status.NOT_FINITE
        elif best == -np.inf:
            status[r] = Status.EMPTY
        else:
            edge, edge_id = edge_of(rows, r)
            kept = (x > edge) | ((x == edge) & (ids <= edge_id))
            kept &= x > -np.inf
            if kept.any():
                packed[r, 3], edge_ids[r] = edge, edge_id
            else:
                kept = x > -np.inf
            with np.errstate(over="ignore"):  # -huge · (1 / tiny T) is -inf, whose exp is 0
                mass = np.exp((x[kept] - best) * scale).sum()
            packed[r, 0], packed[r, 2] = best, np.log(mass)
    return RowStats(torch.from_numpy(packed), torch.from_numpy(edge_ids), torch.from_numpy(status))


def host_laws(rows: LogitRows) -> Floats:
    """The laws [R, V] in float64: zeros for empty rows, NaN for rows that are not finite."""
    stats = reference_stats(rows)
    host = LogitRows(
        rows.logits.detach().cpu().double(),
        None if rows.masks is None else rows.masks.cpu(),
        None if rows.mask_rows is None else rows.mask_rows.cpu(),
    )
    laws = stats.probabilities(host).numpy()
    laws[(stats.status == int(Status.EMPTY)).numpy()] = 0.0
    laws[(stats.status == int(Status.NOT_FINITE)).numpy()] = np.nan
    return laws
