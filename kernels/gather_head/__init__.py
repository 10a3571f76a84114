"""The output projection for the allowed rows of the matrix only.

    out[n, x] = hidden[n] · weight[x] (+ bias[x])  for the tokens x that masks[n] allows

Other entries of `out` are -inf in a new tensor and untouched in a given one: whoever reads it
applies the mask, as all kernels here do. Where a state allows a few tokens (literals, keys, numbers
and closing quotes of a schema) this reads a few rows of the matrix instead of all of it; where most
are allowed, a plain matrix product is faster, and which it is the host knows from the mask's count.

Cost in Triton: one launch; a program per mask word and row, those of empty words return at once.

    >>> import torch
    >>> hidden, weight = torch.ones(1, 2), torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    >>> gather_head(hidden, weight, torch.tensor([[2]], dtype=torch.int32)).tolist()
    [[-inf, 7.0]]
"""

from __future__ import annotations

import torch
from torch import Tensor

from structspec.errors import KernelError
from structspec.kernels.backend import choose

__all__ = ["gather_head"]

_FLOATS = (torch.float32, torch.bfloat16, torch.float16)


def gather_head(
    hidden: Tensor,
    weight: Tensor,
    masks: Tensor,
    *,
    mask_rows: Tensor | None = None,
    bias: Tensor | None = None,
    out: Tensor | None = None,
    backend: str | None = None,
) -> Tensor:
    """Logits float32 [N, V] of the allowed tokens.

    hidden: [N, H]; weight: [V, H]; bias: [V]; all float32, bfloat16 or float16 (float64 for the
    reference and torch), rows contiguous. masks: int32 [M, W]; mask_rows: int32 [N], None: M = N.
    Sums are float32 (float64 for float64). Raises `KernelError` for what does not fit.
    """
    device = hidden.device
    if hidden.dim() != 2 or weight.dim() != 2 or hidden.shape[1] != weight.shape[1]:
        raise KernelError(
            f"hidden must be [N, H] and weight [V, H], got {tuple(hidden.shape)} and "
            f"{tuple(weight.shape)}"
        )
    wide = hidden.dtype == torch.float64
    name = choose(device, backend)
    for what, tensor in (("hidden", hidden), ("weight", weight), ("bias", bias)):
        if tensor is None:
            continue
        if tensor.dtype not in (*_FLOATS, torch.float64) or (name == "triton" and wide):
            raise KernelError(f"{what} must be float32, bfloat16 or float16, got {tensor.dtype}")
        if tensor.device != device or tensor.stride(-1) != 1:
            raise KernelError(f"{what} must lie on {device} with contiguous rows")
    count, vocab = hidden.shape[0], weight.shape[0]
    if bias is not None and tuple(bias.shape) != (vocab,):
        raise KernelError(f"bias must be [{vocab}], got {tuple(bias.shape)}")
    if masks.dtype not in (torch.int32, torch.uint32) or masks.dim() != 2:
        raise KernelError(f"masks must be int32 or uint32 [M, W], got {masks.dtype}")
    masks = masks.view(torch.int32)
    if mask_rows is None and masks.shape[0] != count:
        raise KernelError(f"{masks.shape[0]} mask rows for {count} hidden rows; pass mask_rows")
    if mask_rows is not None and (
        mask_rows.dtype != torch.int32 or tuple(mask_rows.shape) != (count,)
    ):
        raise KernelError(f"mask_rows must be int32 [{count}]")
    dtype = torch.float64 if wide else torch.float32
    if out is None:
        out = torch.full((count, vocab), -torch.inf, dtype=dtype, device=device)
    elif tuple(out.shape) != (count, vocab) or out.dtype != dtype or out.stride(1) != 1:
        raise KernelError(f"out must be {dtype} {(count, vocab)} with contiguous rows")
    if name == "triton":
        from structspec.kernels.gather_head.in_triton import triton_head as run
    elif name == "torch":
        from structspec.kernels.gather_head.in_torch import torch_head as run
    else:
        from structspec.kernels.gather_head.reference import reference_head as run
    run(hidden, weight, masks, mask_rows, bias, out)
    return out
