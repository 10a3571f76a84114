"""Block verification of one draft per request, from logits, for a ragged batch.

With p and q the laws of the target's and the draft's rows (`logit_rows`)::

    w_0 = 1;  w_i = min(1, w_{i-1} · p_i(x_i) / q_i(x_i))
    r_i = Σ_x (w_i p_{i+1}(x) - q_{i+1}(x))₊       h_i = r_i / (r_i + 1 - w_i), i < n;  h_n = w_n
    τ   = largest i with u_i < h_i, 0 if there is none
    y   ~ p_{n+1} if τ = n, else y ∝ (w_τ p_{τ+1} - q_{τ+1})₊

The token is drawn by inverting the distribution in id order with one uniform, as the float64
oracle `structspec.verification.oracle` does. Places whose test cannot pass (u_i >= w_i >= h_i) are
not scanned; they report threshold 0.

Cost in Triton: 4 launches whatever L: partial sums of every row, one program per request for the
weights, residual sums, one program per request for the exit and the token. Each target and draft
row is read once for its sum and at most once more for its residual.

Siblings: `structspec.verification.block`, the same law from probability rows in torch;
`layered_verify` for several drafts.

Paper: Sun et al. 2024 (arXiv 2403.10444).

    >>> import torch
    >>> p = torch.tensor([[0.5, 0.5], [0.1, 0.9]]).log()
    >>> q = torch.tensor([[0.8, 0.2]]).log()
    >>> verdict = block_verify(
    ...     LogitRows(p), LogitRows(q), torch.tensor([[0]], dtype=torch.int32),
    ...     torch.tensor([1], dtype=torch.int32), uniforms=torch.tensor([[0.6, 0.5]]),
    ...     backend="torch")
    >>> verdict.accepted.tolist(), verdict.token.tolist()
    ([1], [1])
"""

from __future__ import annotations

from torch import Tensor

from structspec.errors import KernelError
from structspec.kernels.backend import choose
from structspec.kernels.logit_rows import LogitRows
from structspec.kernels.philox import Noise
from structspec.kernels.verdict import (
    Verdict,
    check_ends,
    check_places,
    check_tokens,
    check_uniforms,
)

__all__ = ["LogitRows", "Noise", "Verdict", "block_verify"]


def block_verify(
    target: LogitRows,
    draft: LogitRows | None,
    tokens: Tensor,
    lengths: Tensor,
    *,
    target_rows: Tensor | None = None,
    draft_rows: Tensor | None = None,
    uniforms: Tensor | None = None,
    noise: Noise | None = None,
    eos_ids: Tensor | None = None,
    backend: str | None = None,
) -> Verdict:
    """Verify B drafts of up to L tokens.

    Args:
        target: rows of target logits; row (b, i), i = 0..n_b, judges token i of draft b.
        draft: rows of draft logits that the tokens were sampled from; None: all places one-hot.
        tokens: int32 [B, L]; padding may hold anything.
        lengths: int32 [B], n_b in 0..L.
        target_rows: int32 [B, L + 1], the row of `target` of each place; None: row
            b · (L + 1) + i, of which those beyond a draft are not read.
        draft_rows: int32 [B, L], likewise, -1 for a one-hot place; None: row b · L + i.
        uniforms: float32 or float64 [B, L + 1] in [0, 1): a test per place and, last, the draw of
            the token. Or `noise`, which draws what `Randomness.for_verification` draws.
        eos_ids: int32 [E], end tokens: a draft is cut behind its first one, and if that is kept
            the verdict's token is -1.

    Returns a `Verdict` whose thresholds [B, L] are h_1..h_L. Never waits for the device: call
    `Verdict.check` to raise what a status reports. Raises `KernelError` for what does not fit.
    """
    check_tokens(target, draft, tokens, lengths, 2)
    batch, length = tokens.shape
    device = tokens.device
    check_places("target", target_rows, (batch, length + 1), target.logits.shape[0], device)
    if draft is not None:
        check_places("draft", draft_rows, (batch, length), draft.logits.shape[0], device)
    elif draft_rows is not None:
        raise KernelError("`draft_rows` without `draft`")
    check_uniforms(uniforms, noise, (batch, length + 1), "tests, then the token's draw", device)
    check_ends(eos_ids, device)
    name = choose(device, backend)
    if name == "triton":
        from structspec.kernels.block_verify.in_triton import triton_block_verify as run
    elif name == "torch":
        from structspec.kernels.block_verify.in_torch import torch_block_verify as run
    else:
        from structspec.kernels.block_verify.reference import reference_block_verify as run
    return run(target, draft, tokens, lengths, target_rows, draft_rows, uniforms, noise, eos_ids)
