"""Layered verification of K i.i.d. drafts per request, from logits, for a ragged batch.

The law is the target's whatever the drafts (`verification`): at each depth the nodes of the draft
tree are served in order of their weight W, each in up to two rounds. With r = p/q, knots z1 >= z2
and m drafts through a node, a draft's token x is taken

    in round 1 with probability  t1(x) = clip((r - z2) / (z1 - z2), 0, 1)
    in round 2 with probability  t2(x) / (1 - t1(x)),  t1 + t2 = min(1, r / z2)

(one round, z1 = z2: t1 = min(1, r / z1), t2 = 0). With b1 = Σ q t1, b2 = Σ q (t1 + t2) and
slope(a, b) = (a^m - b^m) / (a - b), the mass that leaves the node for its children is

    F(x) = g q(x) [slope(1, 1 - b1) t1(x) + slope(1 - b1, 1 - b2) t2(x)],   g *= (1 - b2)^m,

and W p - F stays as the node's residual. It is never negative if z1 W/g >= slope(1, 1 - b1) and
z2 W/g >= slope(1 - b1, 1 - b2); m = 1 and z = g/W is block verification, one round is K-SEQ.

Both sums are values of one concave function of a node, M(z) = Σ min(p, z q): b2 = M(z2) / z2 and
b1 = (M(z1) - M(z2)) / (z1 - z2). So the plan (`knots`) needs only M at 32 fixed places: chords
bound it from below and above, which makes every nominal b a lower bound and the conditions hold
for the true sums, which one more pass computes. Knots change what is kept on average, never the
law.

Exit: one uniform U against Φ_i = Π_{t >= i} f_t / g_t, the largest i with U >= Φ_i; (node, token)
is drawn from the residuals of that depth by inversion, nodes in the order of their owning paths.
A node that ends in an end token is exit-only: it may be emitted as it is, with token -1.

Cost in Triton: 7 launches whatever K and L: row sums, M of every node, the plan (one program per
request), true sums, exit, residual sums, token. Each node's rows are read three times and the
exit's once more. Without row maps, rows of shared prefixes are summed once per draft.

Paper: Sun et al. 2024 (arXiv 2403.10444) for one draft; the level step is a capped, multi-round
form of K-SEQ (SpecTr, Sun et al. 2023, arXiv 2310.15141).

    >>> import torch
    >>> p = torch.tensor([[0.5, 0.5], [0.1, 0.9], [0.5, 0.5], [0.1, 0.9]]).log()
    >>> q = torch.tensor([[0.8, 0.2], [0.8, 0.2]]).log()
    >>> verdict = layered_verify(
    ...     LogitRows(p), LogitRows(q), torch.tensor([[[0], [1]]], dtype=torch.int32),
    ...     torch.tensor([[1, 1]], dtype=torch.int32), uniforms=torch.tensor([[0.9, 0.5]]),
    ...     backend="torch")
    >>> verdict.accepted.tolist(), verdict.token.tolist()
    ([1], [1])
"""

from __future__ import annotations

from torch import Tensor

from structspec.errors import KernelError
from structspec.kernels.backend import choose
from structspec.kernels.layered_verify.plan import LayeredVerdict
from structspec.kernels.logit_rows import LogitRows
from structspec.kernels.philox import Noise
from structspec.kernels.verdict import check_ends, check_places, check_tokens, check_uniforms

__all__ = ["LayeredVerdict", "LogitRows", "Noise", "layered_verify"]

#: More drafts than this would make the plan's K x K tiles too large for one warp.
MOST_DRAFTS = 32


def layered_verify(
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
    rounds: int = 2,
    backend: str | None = None,
) -> LayeredVerdict:
    """Verify K drafts of up to L tokens for each of B requests.

    Args:
        target: rows of target logits; equal prefixes of a request must have equal rows.
        draft: rows of draft logits that the tokens were sampled from, independently by each
            draft; None: all places one-hot.
        tokens: int32 [B, K, L]; padding may hold anything. Duplicates stay: they count.
        lengths: int32 [B, K]; fixed before drafting, or depending on the draft's own prefix only.
        target_rows: int32 [B, K, L + 1], the row of each place; None: rows in that order.
        draft_rows: int32 [B, K, L], -1 for a one-hot place; None: rows in that order.
        uniforms: float32 or float64 [B, 2] in [0, 1): the exit, the token. Or `noise`, whose
            index 0 of the purposes ACCEPT and EMIT they are.
        eos_ids: int32 [E], end tokens; drafts are cut behind their first one.
        rounds: 1 or 2 rounds per node with several drafts.

    Returns a `LayeredVerdict` whose thresholds [B, L + 1] are Φ_0..Φ_L (1 beyond the longest
    draft is never reached). Never waits for the device. Raises `KernelError` for what does not fit.
    """
    check_tokens(target, draft, tokens, lengths, 3)
    batch, drafts, length = tokens.shape
    device = tokens.device
    if rounds not in (1, 2):
        raise KernelError(f"rounds={rounds} is out of range: 1 or 2")
    if not 1 <= drafts <= MOST_DRAFTS or length == 0:
        raise KernelError(
            f"layered verification takes 1..{MOST_DRAFTS} drafts of at least one place, got tokens "
            f"{tuple(tokens.shape)}"
        )
    check_places("target", target_rows, (batch, drafts, length + 1), target.logits.shape[0], device)
    if draft is not None:
        check_places("draft", draft_rows, (batch, drafts, length), draft.logits.shape[0], device)
    elif draft_rows is not None:
        raise KernelError("`draft_rows` without `draft`")
    check_uniforms(uniforms, noise, (batch, 2), "the exit, then the token's draw", device)
    check_ends(eos_ids, device)
    name = choose(device, backend)
    if name == "triton":
        from structspec.kernels.layered_verify.in_triton import triton_layered_verify as run
    elif name == "torch":
        from structspec.kernels.layered_verify.in_torch import torch_layered_verify as run
    else:
        from structspec.kernels.layered_verify.reference import reference_layered_verify as run
    return run(
        target, draft, tokens, lengths, target_rows, draft_rows, uniforms, noise, eos_ids, rounds
    )
