"""Mask rows on the device for automata that are too large for a table: a cache with host fill.

The pool keeps P rows. `slots(states)` makes sure that the states' rows are there, computing the
missing ones with `Constraint.mask` and copying them in one transfer, and returns which row each
state has; `LogitRows(masks=pool.rows, mask_rows=slots)` reads them in place. States stay on the
host, so a draft loop needs one trip per step; repeated states cost none of the fill.

The least recently used rows make room. Numbers die with `compact`: rows are keyed by the whole
state number, epoch included, so old ones are never taken for new ones.

    >>> import structspec
    >>> vocab = structspec.Vocabulary([b"a", b"b", b"ab", None], eos_ids=[3])
    >>> constraint = structspec.compile("a[ab]", syntax="regex").bind(vocab)
    >>> pool = MaskPool(constraint, rows=8)
    >>> slots = pool.slots([constraint.start, constraint.start])
    >>> pool.rows[slots.long()].tolist(), pool.misses
    ([[5], [5]], 1)
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from structspec.errors import KernelError

if TYPE_CHECKING:
    from structspec.masks.constraint import Constraint

__all__ = ["MaskPool"]


class MaskPool:
    """See the module. Not for several threads at once."""

    def __init__(
        self, constraint: Constraint, *, rows: int = 1024, device: torch.device | str = "cpu"
    ) -> None:
        if rows < 1:
            raise KernelError(f"rows={rows} is out of range: at least 1")
        self.constraint = constraint
        words = -(-constraint.vocab.size // 32)
        self.rows: Tensor = torch.zeros((rows, words), dtype=torch.int32, device=device)
        self.hits = self.misses = 0
        self._slot: OrderedDict[tuple[int, int | None], int] = OrderedDict()
        self._free = list(range(rows - 1, -1, -1))

    def slots(self, states: Sequence[int], left: Sequence[int | None] | None = None) -> Tensor:
        """The pool rows int32 [N] of N states, filled where missing; `left` as in `mask`.

        Raises `KernelError` if more different rows are asked for at once than the pool holds.
        """
        keys = [(s, None if left is None else left[i]) for i, s in enumerate(states)]
        wanted = set(keys)
        if len(wanted) > self.rows.shape[0]:
            raise KernelError(
                f"{len(wanted)} different mask rows at once, the pool holds {self.rows.shape[0]}; "
                "make it larger"
            )
        missing = [key for key in dict.fromkeys(keys) if key not in self._slot]
        # All masks first: a state that is stale raises before anything has changed.
        masks = [self.constraint.mask(state, budget) for state, budget in missing]
        for key in wanted & self._slot.keys():
            self._slot.move_to_end(key)
        filled = []
        for key in missing:
            if not self._free:
                # Wanted keys are the most recent ones, so the oldest is not among them.
                self._free.append(self._slot.popitem(last=False)[1])
            self._slot[key] = self._free.pop()
            filled.append(self._slot[key])
        if missing:
            block = torch.from_numpy(np.stack(masks).view(np.int32))
            device = self.rows.device
            if device.type == "cuda":
                block = block.pin_memory()
            target = torch.tensor(filled, dtype=torch.int64).to(device, non_blocking=True)
            self.rows.index_copy_(0, target, block.to(device, non_blocking=True))
        self.misses += len(missing)
        self.hits += len(keys) - len(missing)
        numbers = torch.tensor([self._slot[key] for key in keys], dtype=torch.int32)
        return numbers.to(self.rows.device, non_blocking=True)
