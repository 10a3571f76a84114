"""Block verification of one draft per request, batched, in torch.

::

    w_0 = 1;  w_i = min(1, w_{i-1} · p_i(x_i) / q_i(x_i))
    r_i = Σ_x (w_i p_{i+1}(x) - q_{i+1}(x))₊       h_i = r_i / (r_i + 1 - w_i), i < L;  h_L = w_L
    τ   = largest i with u_i < h_i, 0 if there is none
    y   ~ p_{L+1} if τ = L, else y ∝ (w_τ p_{τ+1} - q_{τ+1})₊

The finished law is exactly p, and among verifiers of one draft that compose step by step none
keeps more tokens on average. At temperature 0 it is greedy matching.

Invariants
- w is carried as log w <= 0 in float64, clamped once per step; 1 - w = -expm1(log w).
- The *largest* passing index counts, so places are tried from the back.
- h_i <= w_i, hence a place with u_i >= w_i is never scanned; one-hot places are never scanned.

Cost: one pass over the rows for the sums, then at most one row pair per tried place. A draft
whose last test passes costs no scan at all.

Sibling: `token` for the classical rule; layered verification for several drafts.

Paper: Sun, Mendlovic, Leviathan, Aharoni, Beirami, Ro, Suresh 2024 (arXiv 2403.10444).

Example::

    >>> import torch
    >>> target = torch.tensor([[[0.5, 0.5], [0.1, 0.9]]])
    >>> draft, tokens = torch.tensor([[[0.8, 0.2]]]), torch.tensor([[0]])
    >>> u = torch.tensor([[0.6, 0.5]])                       # 0.6 < 0.5 / 0.8: kept
    >>> verdict = block_verify(target, draft, tokens, torch.tensor([1]), u)
    >>> verdict.accepted.tolist(), verdict.token.tolist()
    ([1], [1])
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from structspec.verification.rows import DraftBatch, Verdict

__all__ = ["block_verify", "pass_probabilities", "path_log_weights"]


def block_verify(
    target: Tensor,
    draft: Tensor | None,
    tokens: Tensor,
    lengths: Tensor,
    uniforms: Tensor | None,
    *,
    onehot: Tensor | None = None,
    eos_ids: Sequence[int] = (),
) -> Verdict:
    """Verify whole drafts.

    Args:
        target: probabilities p' [B, L + 1, V], float32 or float64; row i judges token i, row
            `lengths[b]` stands behind the whole draft. Rows are normalised here.
        draft: probabilities q' [B, L, V] that the tokens were sampled from, or None if every
            place is deterministic.
        tokens: the drafts, integers [B, L]; padding may hold anything.
        lengths: int [B], 0..L each.
        uniforms: [B, L + 1] in [0, 1): a test per place and, last, the draw of the next token
            (`randomness.Randomness.for_verification`).
        onehot: bool [B, L], places that are deterministic although `draft` is given; their draft
            rows are ignored.
        eos_ids: end tokens; a draft is cut behind its first one, and if that is kept the
            verdict's token is -1.

    Raises `ModelError` if a target row in use is NaN, infinite or empty, or a chosen exit has no
    residual mass (an internal error); `DraftError` for shapes, lengths or ids that do not fit and
    for a token to which its own draft row gives no probability.
    """
    batch = DraftBatch(target, draft, tokens, lengths, onehot, eos_ids)
    noise = batch.check_uniforms(uniforms)
    log_w = path_log_weights(batch)
    w = log_w.exp()
    accepted = torch.zeros_like(batch.lengths)
    for place in range(batch.tokens.shape[1], 0, -1):
        # Undecided requests whose test could pass here, for h_i <= w_i.
        tried = (
            (accepted == 0) & (place <= batch.lengths) & (noise[:, place - 1] < w[:, place])
        ).nonzero()[:, 0]
        if tried.numel():
            h = _pass_probability(batch, log_w, tried, place)
            accepted[tried] = torch.where(noise[tried, place - 1] < h, place, 0)
    weights = w.gather(1, accepted[:, None])[:, 0]
    # Behind a whole draft nothing was proposed, so y ~ p whatever the weight.
    weights = torch.where(accepted == batch.lengths, 1.0, weights)
    return batch.finish(accepted, weights, noise)


def path_log_weights(batch: DraftBatch) -> Tensor:
    """log w_0..log w_L [B, L + 1]; constant beyond a draft's end."""
    # An overflowing ratio must not meet log 0: inf - inf has no value.
    steps = torch.where(batch.valid, batch.ratios.log().clamp(max=1e5), 0.0)
    columns = [torch.zeros_like(batch.lengths, dtype=batch.wide)]
    for i in range(steps.shape[1]):
        columns.append((columns[-1] + steps[:, i]).clamp(max=0.0))
    return torch.stack(columns, dim=1)


def pass_probabilities(batch: DraftBatch) -> Tensor:
    """h_1..h_L [B, L] of every place, without the shortcuts; 0 beyond a draft's end."""
    log_w = path_log_weights(batch)
    h = torch.zeros_like(batch.ratios)
    for place in range(1, batch.tokens.shape[1] + 1):
        inside = (place <= batch.lengths).nonzero()[:, 0]
        if inside.numel():
            h[inside, place - 1] = _pass_probability(batch, log_w, inside, place)
    return h


def _pass_probability(batch: DraftBatch, log_w: Tensor, requests: Tensor, place: int) -> Tensor:
    """h_i of `requests` at i = `place` >= 1, which lies within their lengths."""
    h = log_w[requests, place].exp()
    inner = (place < batch.lengths[requests]).nonzero()[:, 0]
    if inner.numel():
        rows = requests[inner]
        r = batch.residual_mass(rows, torch.full_like(rows, place), h[inner])
        room = r - torch.expm1(log_w[rows, place])
        h[inner] = torch.where(room > 0, r / room, 1.0)
    return h
