"""The bytes of all tokens in the layouts that the walks read; made once per vocabulary.

Tokens that write something are sorted by their bytes and cut into blocks of `BLOCK`. A block lies
position by position: byte i of its tokens is `blocks[offset + i · BLOCK ...]`, 256 where a token
has ended. Neighbours share prefixes, so a block mostly dies, or lives, as one.

    >>> table = TokenTable.build([b"b", None, b"ab"], 3)
    >>> table.rank.tolist()[:3], table.count
    ([1, -1, 0], 2)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

__all__ = ["BLOCK", "TokenTable"]

#: Tokens per block and per program.
BLOCK = 128


@dataclass(frozen=True, eq=False)
class TokenTable:
    """Tensors over V tokens, n of which write something.

    blocks: int16, values 0..256; offsets: int32 [blocks + 1]. rank: int32 [32 W], the place of an
    id among the sorted tokens, -1 if it writes nothing. data: uint8, all bytes in the order of
    ids; start: int32 [V + 1]. longest first: `by_length` int32 [n] ids, `active` the number of
    them that have a byte i.
    """

    blocks: Tensor
    offsets: Tensor
    rank: Tensor
    data: Tensor
    start: Tensor
    by_length: Tensor
    active: tuple[int, ...]
    count: int

    @classmethod
    def build(cls, tokens: Sequence[bytes | None], vocab: int) -> TokenTable:
        """From the bytes of ids 0..len(tokens) - 1; None and b"" write nothing."""
        lengths = np.zeros(vocab, np.int64)
        lengths[: len(tokens)] = [len(t or b"") for t in tokens]
        start = np.zeros(vocab + 1, np.int32)
        start[1:] = np.cumsum(lengths)
        data = np.frombuffer(b"".join(t or b"" for t in tokens) + b"\0", np.uint8).copy()
        order = sorted((i for i, t in enumerate(tokens) if t), key=lambda i: tokens[i] or b"")
        rank = np.full(32 * -(-vocab // 32), -1, np.int32)
        rank[order] = np.arange(len(order), dtype=np.int32)
        parts, offsets = [], [0]
        for first in range(0, len(order), BLOCK):
            ids = np.array(order[first : first + BLOCK])
            tall = int(lengths[ids].max())
            block = np.full((tall, BLOCK), 256, np.int16)
            for i in range(tall):
                has = lengths[ids] > i
                block[i, : len(ids)][has] = data[start[ids[has]] + i]
            parts.append(block.ravel())
            offsets.append(offsets[-1] + block.size)
        blocks = np.concatenate(parts) if parts else np.zeros(0, np.int16)
        by_length = np.argsort(-lengths, kind="stable")[: len(order)].astype(np.int32)
        tallest = int(lengths.max(initial=0))
        active = tuple(int((lengths > i).sum()) for i in range(tallest))
        return cls(
            torch.from_numpy(blocks),
            torch.from_numpy(np.array(offsets, np.int32)),
            torch.from_numpy(rank),
            torch.from_numpy(data),
            torch.from_numpy(start),
            torch.from_numpy(by_length),
            active,
            len(order),
        )

    def to(self, device: torch.device) -> TokenTable:
        """The same on another device."""
        tensors: dict[str, Any] = {
            f.name: value.to(device)
            for f in fields(self)
            if isinstance(value := getattr(self, f.name), Tensor)
        }
        return replace(self, **tensors)

    @property
    def n_bytes(self) -> int:
        """Bytes of the tensors."""
        values = (getattr(self, f.name) for f in fields(self))
        return sum(v.numel() * v.element_size() for v in values if isinstance(v, Tensor))
