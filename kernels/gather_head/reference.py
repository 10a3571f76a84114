"""The definition, token by token in float64."""

from __future__ import annotations

from torch import Tensor

from structspec.kernels.unpack_masks import unpack_masks

__all__ = ["reference_head"]


def reference_head(
    hidden: Tensor, weight: Tensor, masks: Tensor, mask_rows: Tensor | None, bias: Tensor | None,
    out: Tensor,
) -> None:  # fmt: skip
    """`gather_head` into `out`."""
    allowed = unpack_masks(masks, weight.shape[0])
    for n in range(hidden.shape[0]):
        row = allowed[n if mask_rows is None else int(mask_rows[n])]
        for x in row.nonzero()[:, 0].tolist():
            value = hidden[n].double() @ weight[x].double()
            out[n, x] = value + (0.0 if bias is None else bias[x].double())
