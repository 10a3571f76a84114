"""The same in one launch: a program per mask word (32 rows of the matrix) and row of `hidden`."""

# Device code is untyped: its arguments are pointers and tensors of Triton.
# mypy: allow-untyped-defs, allow-incomplete-defs

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from structspec.kernels.launch import launch, next_power

__all__ = ["triton_head"]

_MOST_COLUMNS = 256


@triton.jit
def head_kernel(hidden, hidden_stride, weight, weight_stride, masks, mask_stride, words,
                mask_rows, bias, out, out_stride, vocab, H, BLOCK: tl.constexpr,
                INDEXED: tl.constexpr, BIAS: tl.constexpr):  # fmt: skip
    """Grid (N, W)."""
    n, word = tl.program_id(0), tl.program_id(1)
    row = n.to(tl.int64)
    if INDEXED:
        row = tl.load(mask_rows + n).to(tl.int64)
    bits = tl.load(masks + row * mask_stride + word)
    if bits != 0:
        lane = tl.arange(0, 32)
        ids = word * 32 + lane
        allowed = (((bits >> lane) & 1) != 0) & (ids < vocab)
        base = weight + ids.to(tl.int64) * weight_stride
        total = tl.zeros([32], tl.float32)
        for first in range(0, H, BLOCK):
            column = first + tl.arange(0, BLOCK)
            h = tl.load(
                hidden + n.to(tl.int64) * hidden_stride + column, mask=column < H, other=0.0
            )
            w = tl.load(base[:, None] + column[None, :],
                        mask=allowed[:, None] & (column < H)[None, :], other=0.0)  # fmt: skip
            total += tl.sum(w.to(tl.float32) * h.to(tl.float32)[None, :], axis=1)
        if BIAS:
            total += tl.load(bias + ids, mask=allowed, other=0.0).to(tl.float32)
        tl.store(out + n.to(tl.int64) * out_stride + ids, total, mask=allowed)


def triton_head(
    hidden: Tensor, weight: Tensor, masks: Tensor, mask_rows: Tensor | None, bias: Tensor | None,
    out: Tensor,
) -> None:  # fmt: skip
    """`gather_head` into `out`."""
    vocab, size = weight.shape
    words = min(masks.shape[1], -(-vocab // 32))
    launch(
        head_kernel, (hidden.shape[0], words), hidden, hidden.stride(0), weight, weight.stride(0),
        masks, masks.stride(0), words, masks if mask_rows is None else mask_rows,
        weight if bias is None else bias, out, out.stride(0), vocab, size,
        BLOCK=min(_MOST_COLUMNS, next_power(size)), INDEXED=mask_rows is not None,
        BIAS=bias is not None,
    )  # fmt: skip
