"""Drawing tokens so that rounding hardly ever changes them: down a binary tree of ids.

A position's token must be the same whatever was drafted there, and drafts of other lengths run the
model on other shapes, whose logits differ in their last bits. Inverting the distribution function
with one uniform feels every one of them: thousands of unlikely tokens lie side by side on its
steps, and each step moves by the errors of all before it. Here each half of the ids, each quarter,
… is chosen by a uniform of its own, so that only some twenty comparisons can turn, each of them
only if its uniform lies within the error of one ratio.

Invariants
- the law is the row's exactly, as products of conditional probabilities;
- an id without mass is never drawn;
- a draw depends on its row and uniforms only, not on what else is drawn at the same time.

Cost: one sum of each row on its device, two small transfers, and some twenty steps of numpy for all
rows together.

Siblings: `rows.sample_rows` inverts the distribution function, for draws that no text hangs on;
`randomness` names the uniforms.

Example::

    >>> import numpy as np, torch
    >>> rows = torch.tensor([[0.0, 1.0, 0.0], [0.5, 0.0, 0.5]])
    >>> draw_rows(rows, np.full((2, draw_levels(3)), 0.7)).tolist()
    [1, 2]
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

__all__ = ["NO_MASS", "draw_levels", "draw_rows"]

#: What is drawn from a row that has no mass, or none that is finite.
NO_MASS = -1
# Ids that are summed on the device; the tree above them is the host's.
_BLOCK = 64


def draw_levels(vocab: int) -> int:
    """How many uniforms a draw from `vocab` ids takes."""
    blocks = max(1, -(-vocab // _BLOCK))
    return (blocks - 1).bit_length() + (_BLOCK - 1).bit_length()


def draw_rows(mass: Tensor, uniforms: NDArray[np.float64]) -> NDArray[np.int64]:
    """Draw one id from each row of unnormalised `mass` [n, V].

    uniforms: [n, draw_levels(V)] in [0, 1), the first ones for the largest parts. Returns ids [n];
    `NO_MASS` for a row without finite, positive mass.
    """
    size, vocab = mass.shape
    whole = vocab // _BLOCK
    wide = torch.float32 if mass.device.type == "mps" else torch.float64
    parts = [mass[:, : whole * _BLOCK].reshape(size, whole, _BLOCK).sum(-1, dtype=wide)]
    if vocab % _BLOCK:
        parts.append(mass[:, whole * _BLOCK :].sum(-1, keepdim=True, dtype=wide))
    sums = torch.cat(parts, dim=1).cpu().numpy().astype(np.float64)
    total = sums.sum(axis=1)
    block = _descend(sums, uniforms)
    places = torch.from_numpy(block[:, None] * _BLOCK + np.arange(_BLOCK))
    inside = places < vocab
    some = mass.gather(1, places.clamp(max=vocab - 1).to(mass.device)).cpu()
    masses = torch.where(inside, some, torch.zeros_like(some)).numpy().astype(np.float64)
    above = uniforms.shape[1] - (_BLOCK - 1).bit_length()
    drawn = block * _BLOCK + _descend(masses, uniforms[:, above:])
    return np.where((total > 0) & np.isfinite(total), drawn, NO_MASS)


def _descend(sums: NDArray[np.float64], uniforms: NDArray[np.float64]) -> NDArray[np.int64]:
    """The place in each row that its uniforms lead to, the larger half first."""
    size, width = sums.shape
    depth = (width - 1).bit_length()
    padded = np.zeros((size, 1 << depth))
    padded[:, :width] = sums
    levels = [padded]
    for _ in range(depth):
        levels.append(levels[-1].reshape(size, -1, 2).sum(axis=2))
    at = np.zeros(size, np.int64)
    rows = np.arange(size)
    for level in range(depth):
        below = levels[depth - level - 1]
        left, right = below[rows, 2 * at], below[rows, 2 * at + 1]
        # rounding must not lead to where there is no mass
        turned = (uniforms[:, level] * (left + right) >= left) & (right > 0)
        at = 2 * at + turned
    return at
