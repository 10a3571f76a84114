"""`PackedLinear`: a wide output matrix that costs nearly the same for one row or for eight.

Owns a layout of the output matrix that oneDNN reads without rearranging it. Verifying a draft asks
for the logits of several tokens at once; a plain matrix product then rearranges the whole matrix,
the largest of a small model, in every call, and two rows cost more than twice as much as one. A
copy that is arranged once does not.

Invariants
- parameters, `state_dict` and ties to the embedding are those of the plain layer; the copy is
  derived, kept outside of the module, and renewed when the weight is another or has changed;
- the sums are those of a plain product up to rounding; where gradients flow, for other types, on
  other devices and for other numbers of rows the plain product runs.

Cost: the matrix once more in memory (113 MB for 49,152 × 576 in float32). `python -m
structspec.bench.forwards` measures what it saves.

Sibling: `drafting.head` computes only the rows of legal tokens.

Example::

    pack_output(model.model)            # `structspec.models.load` does it
"""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

__all__ = ["PackedLinear", "pack_output"]

_FEWEST, _MOST = 2, 32
"""Rows for which the packed product is the faster one."""

_WIDE = 8192
"""Narrower layers than this gain too little for a second copy."""


@dataclass(frozen=True)
class _Copy:
    """An arranged matrix and what it was made from."""

    data: Tensor
    address: int
    version: int


_copies: weakref.WeakKeyDictionary[torch.nn.Module, _Copy] = weakref.WeakKeyDictionary()


class PackedLinear(torch.nn.Linear):
    """A linear layer that multiplies few rows by an arranged copy of its weight."""

    def forward(self, input: Tensor) -> Tensor:
        """As `torch.nn.Linear`."""
        width = input.shape[-1]
        rows = input.numel() // width if width else 0
        if not (_FEWEST <= rows <= _MOST and self._fits(input)):
            return super().forward(input)
        flat = input.reshape(rows, width)
        packed = torch.ops.mkldnn._linear_pointwise(flat, self._packed(), self.bias, "none", [], "")
        return packed.reshape(*input.shape[:-1], self.out_features)

    def _fits(self, input: Tensor) -> bool:
        weight = self.weight
        training = torch.is_grad_enabled() and (input.requires_grad or weight.requires_grad)
        return (
            not training
            and input.device.type == weight.device.type == "cpu"
            and input.dtype == weight.dtype == torch.float32
        )

    def _packed(self) -> Tensor:
        weight = self.weight.detach()
        # tensors made under inference_mode keep no count of their changes
        version = -1 if weight.is_inference() else weight._version
        known = _copies.get(self)
        if known is None or (known.address, known.version) != (weight.data_ptr(), version):
            data = torch.ops.mkldnn._reorder_linear_weight(weight, 8)
            known = _copies[self] = _Copy(data, weight.data_ptr(), version)
        return known.data


def pack_output(network: Any) -> bool:
    """Let a transformers model's output matrix be a `PackedLinear`; say whether it is one now.

    Nothing happens where that would not help: narrow matrices, other layers, other devices, a
    torch without oneDNN.
    """
    layer = network.get_output_embeddings()
    if type(layer) is PackedLinear:
        return True
    fits = (
        type(layer) is torch.nn.Linear
        and layer.out_features >= _WIDE
        and layer.weight.device.type == "cpu"
        and layer.weight.dtype == torch.float32
        and torch.backends.mkldnn.is_available()
        and hasattr(torch.ops.mkldnn, "_linear_pointwise")
    )
    if fits:
        layer.__class__ = PackedLinear
    return fits
