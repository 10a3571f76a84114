"""Token-wise verification of one draft per request, batched, in torch.

Accept x_i with probability min(1, p_i(x_i)/q_i(x_i)); at the first rejection the next token is
drawn from (p_i - q_i)₊, after L acceptances from p_{L+1}. The finished law is exactly p.

Invariants: as `rows`; a test passes when u < min(1, p/q), so a token that the mask forbids is
never kept and a forced token (p = q = 1) always is.

Cost: one pass over the rows, and one residual row per request.

Sibling: `block` keeps at least as many tokens on average, at the price of up to L row scans per
request; prefer this one only as a baseline or where those scans matter.

Papers: Leviathan et al. 2022 (arXiv 2211.17192), Chen et al. 2023 (arXiv 2302.01318).

Example::

    >>> import torch
    >>> target = torch.tensor([[[0.5, 0.5], [0.1, 0.9]]])
    >>> draft, tokens = torch.tensor([[[0.8, 0.2]]]), torch.tensor([[0]])
    >>> u = torch.tensor([[0.7, 0.5]])                       # 0.7 >= 0.5 / 0.8: rejected
    >>> verdict = token_verify(target, draft, tokens, torch.tensor([1]), u)
    >>> verdict.accepted.tolist(), verdict.token.tolist()
    ([0], [1])
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from structspec.verification.rows import DraftBatch, Verdict

__all__ = ["token_verify"]


def token_verify(
    target: Tensor,
    draft: Tensor | None,
    tokens: Tensor,
    lengths: Tensor,
    uniforms: Tensor | None,
    *,
    onehot: Tensor | None = None,
    eos_ids: Sequence[int] = (),
) -> Verdict:
    """Verify each draft token by token; arguments and errors as `block.block_verify`."""
    batch = DraftBatch(target, draft, tokens, lengths, onehot, eos_ids)
    noise = batch.check_uniforms(uniforms)
    passed = batch.valid & (noise[:, :-1] < batch.ratios.clamp(max=1.0))
    accepted = passed.long().cumprod(dim=1).sum(dim=1)
    return batch.finish(accepted, torch.ones_like(accepted, dtype=batch.wide), noise)
