"""Masks and next states from an automaton that lives on the device whole.

`DeviceAutomaton` is a determinised table `next[state, byte class]` plus the bytes of all tokens. A
state is the configuration number of the constraint it came from; 0 is the state behind an end
token, 1 is dead. Masks are those of `Constraint.mask`, bit for bit, with a token budget or without.

    masks[n]    = tokens whose bytes lead from states[n] to a live state (of cost <= left - 1),
                  and the end tokens if states[n] accepts
    advance     = the state behind a token; dead if it is not allowed; token -1 changes nothing

Where memory allows, `row_table` holds the masks of all states; a mask is then an index, and
`LogitRows(masks=table, mask_rows=states)` needs no mask kernel at all.

Cost in Triton: two launches for masks (tokens in the order of their bytes, so that neighbours die
together; then bits go to their ids), one to advance.
Siblings: `determinise` makes one from a `Constraint`; `pool` serves automata that are too large.

    >>> automaton = DeviceAutomaton.from_table(
    ...     next_table=[[1, 1], [1, 1], [1, 3], [1, 1]],      # class 1 leads from 2 to 3
    ...     accepting=[False, False, False, True], cost=[0, 0, 1, 0],
    ...     class_of=[int(b == ord("a")) for b in range(256)],
    ...     tokens=[b"a", b"b", b"aa", None], eos_ids=[3])
    >>> import torch
    >>> states = torch.tensor([2, 3], dtype=torch.int32)
    >>> automaton.masks(states).tolist(), automaton.advance(states, states * 0).tolist()
    ([[1], [8]], [3, 1])
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from structspec.errors import KernelError
from structspec.kernels.automaton_walk.token_table import TokenTable
from structspec.kernels.backend import choose

__all__ = ["DEAD", "END", "DeviceAutomaton", "TokenTable"]

END, DEAD = 0, 1


@dataclass(frozen=True, eq=False)
class DeviceAutomaton:
    """S states, C byte classes, V tokens; all tensors on one device.

    next: int16 or int32 [S, C + 1], the last column is the identity (padding). accepting: int32
    [S]. cost: int32 [S]. classes: uint8 or int16, the class of every byte of `tokens.blocks`.
    token_classes: the same for `tokens.data`. eos_words: int32 [W]. eos_ids: int32 [E].
    """

    next: Tensor
    accepting: Tensor
    cost: Tensor
    classes: Tensor
    token_classes: Tensor
    eos_words: Tensor
    eos_ids: Tensor
    tokens: TokenTable
    vocab: int

    @classmethod
    def from_table(
        cls,
        next_table: ArrayLike,
        accepting: ArrayLike,
        cost: ArrayLike,
        class_of: ArrayLike,
        tokens: Sequence[bytes | None],
        eos_ids: Sequence[int],
        *,
        vocab: int | None = None,
        device: torch.device | str = "cpu",
    ) -> DeviceAutomaton:
        """From a table [S, C] whose rows 0 and 1 are ignored; raises `KernelError`."""
        table = np.asarray(next_table, np.int32)
        class_map = np.asarray(class_of, np.int64)
        vocab = len(tokens) if vocab is None else vocab
        if table.ndim != 2 or table.shape[0] < 2:
            raise KernelError(f"next_table must be [S, C] with S >= 2, got {table.shape}")
        states, n_classes = table.shape
        if class_map.shape != (256,) or class_map.min() < 0 or class_map.max() >= n_classes:
            raise KernelError(f"class_of must give 256 bytes classes below {n_classes}")
        if table.min() < 0 or table.max() >= states:
            raise KernelError(f"next_table names a state outside 0..{states - 1}")
        if any(not 0 <= i < vocab for i in eos_ids) or len(tokens) > vocab:
            raise KernelError(f"tokens or end tokens lie outside the vocabulary of {vocab}")
        full = np.concatenate([table, np.arange(states, dtype=np.int32)[:, None]], axis=1)
        full[:2, :-1] = DEAD
        narrow = np.int16 if states <= np.iinfo(np.int16).max else np.int32
        listed = TokenTable.build(tokens, vocab)
        small = torch.uint8 if n_classes < 256 else torch.int16
        # Index 256 of the map is the padding.
        lookup = torch.from_numpy(np.append(class_map, n_classes)).to(small)
        eos = np.zeros(-(-vocab // 32), np.uint32)
        for token in eos_ids:
            eos[token >> 5] |= np.uint32(1 << (token & 31))
        where = torch.device(device)

        def there(array: NDArray[np.generic]) -> Tensor:
            return torch.from_numpy(np.ascontiguousarray(array)).to(where)

        return cls(
            there(full.astype(narrow)),
            there(np.asarray(accepting, np.int32)),
            there(np.asarray(cost, np.int32)),
            lookup[listed.blocks.long()].to(where),
            lookup[listed.data.long()].to(where),
            there(eos.view(np.int32)),
            there(np.asarray(list(eos_ids), np.int32)),
            listed.to(where),
            vocab,
        )

    @property
    def device(self) -> torch.device:
        """Where the tables lie."""
        return self.next.device

    @property
    def words(self) -> int:
        """W, the words of a mask row."""
        return -(-self.vocab // 32)

    @property
    def n_bytes(self) -> int:
        """Bytes of the tables on the device, the tokens' own included."""
        tensors = (self.next, self.accepting, self.cost, self.classes, self.token_classes)
        return sum(t.numel() * t.element_size() for t in tensors) + self.tokens.n_bytes

    def masks(
        self,
        states: Tensor,
        left: Tensor | None = None,
        *,
        out: Tensor | None = None,
        backend: str | None = None,
    ) -> Tensor:
        """Packed masks int32 [N, W] of states int32 [N]; `left` int32 [N] tokens may be written.

        Never waits for the device. Raises `KernelError` for dtypes and shapes that do not fit.
        """
        self._check("states", states)
        if left is not None:
            self._check("left", left, states.shape[0])
        shape = (states.shape[0], self.words)
        if out is None:
            out = torch.empty(shape, dtype=torch.int32, device=self.device)
        elif out.dtype != torch.int32 or tuple(out.shape) != shape or not out.is_contiguous():
            raise KernelError(f"out must be contiguous int32 {shape}, got {out.dtype}")
        name = choose(self.device, backend)
        if name == "triton":
            from structspec.kernels.automaton_walk.in_triton import triton_masks

            triton_masks(self, states, left, out)
        elif name == "torch":
            from structspec.kernels.automaton_walk.in_torch import torch_masks

            torch_masks(self, states, left, out)
        else:
            from structspec.kernels.automaton_walk.reference import reference_masks

            reference_masks(self, states, left, out)
        return out

    def advance(self, states: Tensor, tokens: Tensor, *, backend: str | None = None) -> Tensor:
        """The states int32 [N] behind tokens int32 [N]; see the module."""
        self._check("states", states)
        self._check("tokens", tokens, states.shape[0])
        name = choose(self.device, backend)
        if name == "triton":
            from structspec.kernels.automaton_walk.in_triton import triton_advance

            return triton_advance(self, states, tokens)
        if name == "torch":
            from structspec.kernels.automaton_walk.in_torch import torch_advance

            return torch_advance(self, states, tokens)
        from structspec.kernels.automaton_walk.reference import reference_advance

        return reference_advance(self, states, tokens)

    def row_table(self, *, limit: int = 1 << 28, backend: str | None = None) -> Tensor | None:
        """The masks of all states, int32 [S, W], or None if they take more than `limit` bytes."""
        count = self.next.shape[0]
        if count * self.words * 4 > limit:
            return None
        table = torch.empty((count, self.words), dtype=torch.int32, device=self.device)
        for first in range(0, count, 256):
            chunk = torch.arange(first, min(first + 256, count), dtype=torch.int32)
            self.masks(chunk.to(self.device), out=table[first : first + 256], backend=backend)
        return table

    def _check(self, name: str, tensor: Tensor, rows: int | None = None) -> None:
        if tensor.dtype != torch.int32 or tensor.dim() != 1 or not tensor.is_contiguous():
            raise KernelError(
                f"{name} must be contiguous int32 [N], got {tensor.dtype} {tuple(tensor.shape)}"
            )
        if tensor.device != self.device:
            raise KernelError(f"{name} lie on {tensor.device}, the automaton on {self.device}")
        if rows is not None and tensor.shape[0] != rows:
            raise KernelError(f"{name} must have {rows} entries, got {tensor.shape[0]}")
