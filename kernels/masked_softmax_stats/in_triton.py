"""The same in two launches: partial sums of (row, split), then their combination per row.

Partials are float32 [3, R, S]: max, Σ exp, Σ exp of kept tokens, each split against its own max.
Sums have a fixed order, so results repeat bit for bit.
"""

# Device code is untyped: its arguments are pointers and tensors of Triton.
# mypy: allow-untyped-defs, allow-incomplete-defs

from __future__ import annotations

import torch
import triton
import triton.language as tl

from structspec.kernels.launch import launch, next_power, split_words, splits
from structspec.kernels.logit_rows import LogitRows, RowStats
from structspec.kernels.triton_rows import (
    combine_partials,
    partial_sums,
    row_arguments,
    row_scale,
)

__all__ = ["triton_stats"]

_ROWS = 16


@triton.jit
def partials_kernel(logits, stride, masks, mask_stride, words, mask_rows, temperatures,
                    temperature, edges, edge_ids, vocab, out, plane,
                    NW: tl.constexpr, FLAGS: tl.constexpr):  # fmt: skip
    """Grid (R, S): one split of one row."""
    row, split = tl.program_id(0), tl.program_id(1)
    partial_sums(logits, stride, masks, mask_stride, words, mask_rows, temperatures, temperature,
                 edges, edge_ids, row, split, vocab, out,
                 row.to(tl.int64) * tl.num_programs(1) + split, plane, NW, FLAGS)  # fmt: skip


@triton.jit
def combine_kernel(partials, plane, temperatures, temperature, edges, edge_ids, R, S,
                   packed, edge_id_out, status_out,
                   ROWS: tl.constexpr, SP: tl.constexpr, FLAGS: tl.constexpr):  # fmt: skip
    """Grid (R / ROWS): the statistics of ROWS rows."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    use = row < R
    scale = row_scale(temperatures, temperature, row, use, FLAGS)
    top, log_sum, edge, edge_id, status = combine_partials(
        partials, plane, row, use, scale, edges, edge_ids, S, SP, FLAGS
    )
    tl.store(packed + row * 4, top, mask=use)
    tl.store(packed + row * 4 + 1, scale, mask=use)
    tl.store(packed + row * 4 + 2, log_sum, mask=use)
    tl.store(packed + row * 4 + 3, edge, mask=use)
    tl.store(edge_id_out + row, edge_id, mask=use)
    tl.store(status_out + row, status, mask=use)


def triton_stats(rows: LogitRows) -> RowStats:
    """`masked_softmax_stats` on the device; raises `KernelError` for float64."""
    rows.check_triton()
    arguments, flags = row_arguments(rows)
    count, vocab = rows.logits.shape
    device = rows.logits.device
    width = splits(vocab)
    partials = torch.empty((3, count, width), dtype=torch.float32, device=device)
    packed = torch.empty((count, 4), dtype=torch.float32, device=device)
    ids = torch.empty((2, count), dtype=torch.int32, device=device)
    plane = count * width
    words = split_words(vocab)
    launch(
        partials_kernel, (count, width), *arguments, vocab, partials, plane,
        num_warps=8 if words >= 128 else 4, NW=words, FLAGS=flags,
    )  # fmt: skip
    launch(
        combine_kernel, (-(-count // _ROWS),), partials, plane, *arguments[6:10], count, width,
        packed, ids[0], ids[1], ROWS=_ROWS, SP=next_power(width), FLAGS=flags,
    )  # fmt: skip
    return RowStats(packed, ids[0], ids[1])
