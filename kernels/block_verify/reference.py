"""The definition: the float64 oracle, request by request."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from structspec.kernels.logit_rows import LogitRows, Status
from structspec.kernels.masked_softmax_stats.reference import Floats, host_laws
from structspec.kernels.philox import Noise
from structspec.kernels.verdict import Verdict
from structspec.verification import oracle

__all__ = ["draft_row", "host_uniforms", "reference_block_verify", "sound_rows"]


def host_uniforms(uniforms: Tensor | None, noise: Noise | None, tests: int) -> Floats:
    """The uniforms [B, tests + 1] as float64 on the host: the tests, then the token's draw."""
    if uniforms is not None:
        return uniforms.cpu().double().numpy()
    from structspec.verification.randomness import Purpose

    assert noise is not None
    accept = noise.uniforms(int(Purpose.ACCEPT), tests)
    return torch.cat([accept, noise.uniforms(int(Purpose.EMIT), 1)], dim=1).cpu().numpy()


def draft_row(laws: Floats | None, row: int, token: int, vocab: int) -> Floats:
    """The draft's law at a place: a row of `laws`, or one-hot."""
    return oracle.one_hot(token, vocab) if laws is None or row < 0 else laws[row]


def sound_rows(p: Floats, q: Floats, tokens: list[int]) -> int:
    """The status of a request's laws: bad rows, tokens that their draft cannot have drawn."""
    if np.isnan(p).any() or np.isnan(q).any():
        return int(Status.NOT_FINITE)
    if np.any(p.sum(axis=1) == 0.0) or np.any(q.sum(axis=1) == 0.0):
        return int(Status.EMPTY)
    if any(q[i, x] == 0.0 for i, x in enumerate(tokens)):
        return int(Status.ILLEGAL_DRAFT)
    return 0


def reference_block_verify(
    target: LogitRows,
    draft: LogitRows | None,
    tokens: Tensor,
    lengths: Tensor,
    target_rows: Tensor | None,
    draft_rows: Tensor | None,
    uniforms: Tensor | None,
    noise: Noise | None,
    eos_ids: Tensor | None,
) -> Verdict:
    """`block_verify` on the host, from `structspec.verification.oracle`."""
    batch, length = tokens.shape
    u = host_uniforms(uniforms, noise, length)
    p_laws = host_laws(target)
    q_laws = None if draft is None else host_laws(draft)
    ends = set() if eos_ids is None else set(eos_ids.tolist())
    accepted, token, status = (np.zeros(batch, np.int32) for _ in range(3))
    thresholds = np.zeros((batch, length))
    for b in range(batch):
        n = int(lengths[b])
        drafted = tokens[b, : max(n, 0)].tolist()
        if not 0 <= n <= length or any(not 0 <= x < target.vocab for x in drafted):
            token[b], status[b] = -1, Status.BAD_TOKEN
            continue
        cut = next((i + 1 for i, x in enumerate(drafted) if x in ends), n)
        drafted, over = drafted[:cut], any(x in ends for x in drafted)
        at = [b * (length + 1) + i if target_rows is None else int(target_rows[b, i])
              for i in range(cut + 1 - over)]  # fmt: skip
        q_at = [b * length + i if draft_rows is None else int(draft_rows[b, i])
                for i in range(cut)]  # fmt: skip
        # Behind an end token there is no row; the oracle never reads it.
        p = np.concatenate([p_laws[at], np.ones((int(over), target.vocab))])
        q = np.array([draft_row(q_laws, r, x, target.vocab)
                      for r, x in zip(q_at, drafted, strict=True)]).reshape(cut,
                      target.vocab)  # fmt: skip
        status[b] = sound_rows(p, q, drafted)
        if status[b]:
            token[b] = -1
            continue
        noise_row = np.append(u[b, :cut], u[b, -1])
        thresholds[b, :cut] = oracle.block_pass_probabilities(p, q, drafted)
        decision = oracle.block_verify(p, q, drafted, noise_row, ends)
        accepted[b], token[b] = decision.accepted, decision.token
    return Verdict(
        torch.from_numpy(accepted),
        torch.zeros(batch, dtype=torch.int32),
        torch.from_numpy(token),
        torch.from_numpy(status),
        torch.from_numpy(thresholds),
    )
