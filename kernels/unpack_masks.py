"""Packed mask rows as Booleans, on the device that the logits are on.

`out[n, i] = (masks[n, i // 32] >> (i % 32)) & 1`, False for ids beyond the packed words.
`reference` is that formula; `unpack_masks` is what decoding uses, a handful of torch operations on
any device.

Cost: one pass over N × V bytes.

    >>> import numpy as np
    >>> unpack_masks(np.array([[0b101]], np.uint32), 3).tolist()
    [[True, False, True]]
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

__all__ = ["PackedMasks", "reference", "unpack_masks"]

PackedMasks: TypeAlias = "Tensor | NDArray[np.uint32]"


def reference(masks: NDArray[np.uint32], size: int) -> NDArray[np.bool_]:
    """The formula of the module, id by id. masks: uint32[N, W]; returns bool[N, size]."""
    out = np.zeros((len(masks), size), np.bool_)
    for row, words in enumerate(masks):
        for i in range(min(size, 32 * len(words))):
            out[row, i] = int(words[i // 32]) >> (i % 32) & 1
    return out


def unpack_masks(masks: PackedMasks, size: int, device: torch.device | None = None) -> Tensor:
    """Packed rows uint32 [N, W] as bool [N, size]; ids beyond the packed words are False."""
    if isinstance(masks, np.ndarray):
        # A copy: rows of a constraint are read-only, which torch cannot express.
        masks = torch.from_numpy(np.array(masks, dtype="<u4", order="C").view(np.int32))
    if masks.dtype not in (torch.int32, torch.uint32):
        raise TypeError(f"packed masks must be 32-bit words, got {masks.dtype}")
    rows, width = masks.shape
    # Flat first: a dimension of one element may have any stride, which views of bytes refuse.
    packed = masks.to(device).flatten().contiguous().view(torch.uint8).view(rows, 4 * width)
    # Byte k of a row holds ids 8k..8k+7, lowest bit first, as words are little-endian.
    bits = torch.tensor([1, 2, 4, 8, 16, 32, 64, 128], dtype=torch.uint8, device=packed.device)
    legal = (packed[:, :, None] & bits).ne(0).flatten(1)
    missing = size - legal.shape[1]
    return torch.nn.functional.pad(legal, (0, missing)) if missing > 0 else legal[:, :size]
