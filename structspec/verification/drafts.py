"""Several drafts per request: the nodes that they share, and the signature of their verifiers.

Owns `DraftsBatch` (K drafts per request as a tree of nodes) and `DraftsVerifier` (the protocol).

Drafts are i.i.d. copies of one drafting process. Two drafts with the same first i tokens pass
through one *node* at depth i; its rows are read from its *owner*, the first draft through it that
goes on (or the first at all). So rows of other drafts at shared nodes, rows behind a draft's end
and rows of absent drafts may hold anything.

Invariants
- Equal drafts stay: their number through a node, `count`, is what makes verification exact.
- Drafts of one request may have different lengths if lengths are fixed beforehand or a draft
  stops by its own prefix. A draft of length 0 is no draft, which makes K ragged.
- Deterministic places (`onehot`) are so for all drafts through the node.

Cost: O(B·K²·L) for the nodes; one pass over the rows for the sums, as `rows`.

Sibling: `rows.DraftBatch` for one draft, which this extends with one batch row per draft.

Example::

    >>> import torch
    >>> target, draft = torch.full((1, 2, 3, 2), 0.5), torch.full((1, 2, 2, 2), 0.5)
    >>> tokens = torch.tensor([[[0, 1], [0, 0]]])                    # they share their first token
    >>> batch = DraftsBatch(target, draft, tokens, torch.tensor([[2, 2]]))
    >>> batch.owner[0].tolist(), batch.count[0].tolist()
    ([[0, 0, 0], [0, 0, 1]], [[2, 2, 0], [2, 2, 0]])
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Protocol

import torch
from torch import Tensor

from structspec.errors import DraftError
from structspec.verification.rows import DraftBatch, Verdict, sample_rows

__all__ = ["MOST_DRAFTS", "DraftsBatch", "DraftsVerifier"]

MOST_DRAFTS = 127
"""Fixed-point sums in `levels` hold this many times the mass of one draft."""


class DraftsVerifier(Protocol):
    """The signature that all verifiers of several drafts share; see `layered.layered_verify`."""

    def __call__(
        self,
        target: Tensor,
        draft: Tensor | None,
        tokens: Tensor,
        lengths: Tensor,
        uniforms: Tensor | None,
        *,
        onehot: Tensor | None = None,
        eos_ids: Sequence[int] = (),
    ) -> Verdict:
        """Decide which prefix of which draft to keep, and the next token."""
        ...


class DraftsBatch(DraftBatch):
    """K drafts per request; see the module for the invariants.

    `target` [B, K, L + 1, V] and `draft` [B, K, L, V] are probabilities after mask and warp;
    `tokens` [B, K, L], `lengths` [B, K], `onehot` [B, K, L] as in `rows.DraftBatch`, whose
    attributes stand here with B·K batch rows. Further ones, all [B, K, L + 1] by draft and depth:

    - `exists`: the draft has a prefix of that length;
    - `owner`: the draft that owns its node there;
    - `count`: how many drafts go on from that node.

    Raises as `rows.DraftBatch`.
    """

    def __init__(
        self,
        target: Tensor,
        draft: Tensor | None,
        tokens: Tensor,
        lengths: Tensor,
        onehot: Tensor | None = None,
        eos_ids: Sequence[int] = (),
    ) -> None:
        if tokens.dim() != 3 or target.dim() != 4 or tokens.shape[1] == 0:
            raise DraftError(
                "tokens must be [B, K, L] with K >= 1 and target [B, K, L + 1, V]; got "
                f"{tuple(tokens.shape)} and {tuple(target.shape)}"
            )
        batch, drafts, length = tokens.shape
        for name, tensor, shape in (
            ("target", target, (batch, drafts, length + 1, target.shape[3])),
            ("draft", draft, (batch, drafts, length, target.shape[3])),
            ("lengths", lengths, (batch, drafts)),
            ("onehot", onehot, (batch, drafts, length)),
        ):
            if tensor is not None and tuple(tensor.shape) != shape:
                raise DraftError(f"{name} must have shape {shape}, got {tuple(tensor.shape)}")
        if drafts > MOST_DRAFTS:
            raise DraftError(f"at most {MOST_DRAFTS} drafts are verified together, got {drafts}")
        self.per_request = drafts
        super().__init__(
            target.flatten(0, 1),
            None if draft is None else draft.flatten(0, 1),
            tokens.flatten(0, 1),
            lengths.flatten(),
            None if onehot is None else onehot.flatten(0, 1),
            eos_ids,
        )

    def _owners(self) -> Tensor:
        drafts, length = self.per_request, self.tokens.shape[1]
        size = len(self.tokens) // drafts
        tokens = self.tokens.view(size, drafts, length)
        lengths = self.lengths.view(size, drafts)
        ahead = self.valid.view(size, drafts, length)
        both = ahead[:, :, None] & ahead[:, None]
        equal = (both & (tokens[:, :, None] == tokens[:, None])).cumprod(dim=-1).bool()
        root = equal.new_ones(size, drafts, drafts, 1)
        # [B, K, K, L + 1]: the two drafts share the first i tokens
        self.same = torch.cat([root, equal], dim=-1)
        self.exists = self.places <= lengths[..., None]
        self.goes_on = self.places < lengths[..., None]
        on = self.same & self.goes_on[:, None]
        self.count = on.sum(dim=2) * self.exists
        first = torch.where(on.any(dim=2), on.byte().argmax(dim=2), self.same.byte().argmax(dim=2))
        own = torch.arange(drafts, device=self.device)[:, None]
        self.owner = torch.where(self.exists, first, own)
        base = torch.arange(size, device=self.device)[:, None, None] * drafts
        return (self.owner + base).flatten(0, 1)

    @property
    def uniforms_shape(self) -> tuple[int, ...]:
        """What `check_uniforms` expects: the shape of `Randomness.for_drafts`."""
        drafts, length = self.per_request, self.tokens.shape[1]
        return (len(self.tokens) // drafts, drafts, length + 1)

    def row(self, requests: Tensor, drafts: Tensor) -> Tensor:
        """The batch rows of drafts `drafts` of `requests`."""
        return requests * self.per_request + drafts

    def through(self, requests: Tensor, drafts: Tensor, depths: Tensor) -> Tensor:
        """Which drafts go on from the node that `drafts` pass at `depths`; bool [n, K]."""
        return self.same[requests, drafts, :, depths] & self.goes_on[requests, :, depths]

    def next_tokens(self, requests: Tensor, depths: Tensor) -> Tensor:
        """Each draft's token behind `depths` < L tokens, [n, K]; 0 where there is none."""
        every = torch.arange(self.per_request, device=self.device)
        rows = requests[:, None] * self.per_request + every
        return self.tokens[rows, depths[:, None]]

    def draft_rows(self, rows: Tensor, depths: Tensor) -> Tensor:
        """q' behind `depths` tokens of batch rows `rows`, deterministic places included, [n, V]."""
        hot = self.onehot[rows, depths]
        if self.draft is None or bool(hot.all()):
            law = torch.zeros(len(rows), self.vocab, dtype=self.wide, device=self.device)
            return law.scatter_(1, self.tokens[rows, depths, None], 1.0)
        law = self._draft_rows(rows, depths)
        at = hot.nonzero()[:, 0]
        if at.numel():
            law[at] = 0.0
            law[at, self.tokens[rows[at], depths[at]]] = 1.0
        return law

    @cached_property
    def hot(self) -> Tensor:
        """Places whose row has all its mass on one token, marked or not; bool [B·K, L]."""
        if self.draft is None:
            return self.onehot
        rows, places = self.owners[:, :-1], self.places[:-1]
        q = self.draft[rows, places, self.tokens].to(self.wide)
        return self.valid & (self.onehot | (q == self.draft_sums[rows, places]))

    def keep(
        self, requests: Tensor, drafts: Tensor, depths: Tensor, mass: Tensor, uniforms: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Draw behind kept nodes from `mass` [n, V]: (drafts, tokens), -1 behind an end token."""
        rows = self.row(requests, drafts)
        over = self.ends[rows] & (depths == self.lengths[rows])
        token = torch.full_like(rows, -1)
        draw = (~over).nonzero()[:, 0]
        token[draw] = sample_rows(mass[draw], uniforms[draw])
        return drafts, token
