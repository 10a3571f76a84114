"""Verification at temperature 0: keep a draft while it is what the target would write.

The target's row is the point mass on its largest entry (ties: lowest id). A drafted token is kept
iff it is that entry; the next token is the argmax behind the kept prefix.

Invariants: no randomness is read; the draft's law plays no part. Equals `token` and `block` on
one-hot target rows. Rows beyond a draft, and the row behind its end token, are never read.

Cost: one argmax over the rows.

Sibling: `block` for sampling.

Example::

    >>> import torch
    >>> target = torch.tensor([[[0.4, 0.6], [0.9, 0.1]]])
    >>> verdict = greedy_verify(target, None, torch.tensor([[1]]), torch.tensor([1]))
    >>> verdict.accepted.tolist(), verdict.token.tolist()
    ([1], [0])
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from structspec.verification.rows import DraftBatch, Verdict

__all__ = ["greedy_verify"]


def greedy_verify(
    target: Tensor,
    draft: Tensor | None,
    tokens: Tensor,
    lengths: Tensor,
    uniforms: Tensor | None = None,
    *,
    onehot: Tensor | None = None,
    eos_ids: Sequence[int] = (),
) -> Verdict:
    """Keep the longest prefix of each draft that greedy decoding would write.

    Arguments and errors as `block.block_verify`; `draft`, `uniforms` and `onehot` are accepted
    for the common signature and not read.
    """
    del draft, uniforms, onehot
    batch = DraftBatch(target, None, tokens, lengths, None, eos_ids)
    best = target.argmax(dim=-1)
    matches = batch.valid & (best[:, :-1] == batch.tokens)
    accepted = matches.long().cumprod(dim=1).sum(dim=1)
    token = best.gather(1, accepted[:, None])[:, 0]
    over = batch.ends & (accepted == batch.lengths)
    return Verdict(accepted, torch.where(over, -1, token))
