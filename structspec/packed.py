"""Packed masks: sets of tokens as rows of 32-bit words.

Owns `Mask`, the form in which a constraint says what is legal: uint32 [ceil(V / 32)], bit i % 32 of
word i // 32 is token i. Bits behind the last token are zero.

Cost: a look at one word, or one pass over the words.

Sibling: `kernels.unpack_masks`, the same for logits on a device.

Example::

    >>> from structspec.packed import is_set, pack, single_token, unpack
    >>> row = pack([2, 33], 40)
    >>> is_set(row, 33), single_token(row), unpack(row).nonzero()[0].tolist()
    (True, None, [2, 33])
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

__all__ = ["Mask", "count", "is_set", "pack", "single_token", "unpack"]

Mask: TypeAlias = NDArray[np.uint32]


def pack(tokens: Iterable[int], size: int) -> Mask:
    """The row of some tokens of a vocabulary of `size` ids."""
    row = np.zeros((size + 31) // 32, np.uint32)
    for token in tokens:
        row[token >> 5] |= np.uint32(1 << (token & 31))
    return row


def unpack(mask: Mask) -> NDArray[np.uint8]:
    """The bits of a row [W], or of several [N, W], as 0 and 1: [32 · W] or [N, 32 · W]."""
    # Words are little-endian wherever numba and torch run, so bits lie in the order of tokens.
    return np.unpackbits(mask.view(np.uint8), axis=-1, bitorder="little")


def count(mask: Mask) -> int:
    """How many tokens are in a row."""
    return int(np.count_nonzero(unpack(mask)))  # np.bitwise_count is of NumPy 2


def is_set(mask: Mask, token: int) -> bool:
    """Whether `token` is in the row; ids beyond it are not."""
    word = token >> 5
    return 0 <= word < mask.shape[0] and bool((int(mask[word]) >> (token & 31)) & 1)


def single_token(mask: Mask) -> int | None:
    """The only token in a row, None if there is none or more than one."""
    words = np.flatnonzero(mask)
    if words.size != 1:
        return None
    bits = int(mask[words[0]])
    return None if bits & (bits - 1) else int(words[0]) * 32 + bits.bit_length() - 1
