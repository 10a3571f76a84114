"""The plain way: the whole product, of which the allowed entries are kept."""

from __future__ import annotations

import torch
from torch import Tensor

from structspec.kernels.unpack_masks import unpack_masks

__all__ = ["torch_head"]


def torch_head(
    hidden: Tensor, weight: Tensor, masks: Tensor, mask_rows: Tensor | None, bias: Tensor | None,
    out: Tensor,
) -> None:  # fmt: skip
    """`gather_head` into `out`; gathering rows would need their number on the host."""
    allowed = unpack_masks(masks, weight.shape[0])
    if mask_rows is not None:
        allowed = allowed[mask_rows.long()]
    logits = hidden.to(out.dtype) @ weight.to(out.dtype).T
    if bias is not None:
        logits = logits + bias.to(out.dtype)
    out.copy_(torch.where(allowed, logits, out))
