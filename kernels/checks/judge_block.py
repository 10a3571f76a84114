"""Judging `block_verify` against the float64 oracle."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from structspec.kernels.block_verify import block_verify
from structspec.kernels.block_verify.reference import draft_row
from structspec.kernels.checks.cases import VerifyCase, moved
from structspec.kernels.logit_rows import Status
from structspec.kernels.masked_softmax_stats.reference import host_laws
from structspec.kernels.verdict import Verdict
from structspec.verification import oracle

__all__ = ["TOLERANCE", "judge_block", "run_block", "token_complaint"]

TOLERANCE = 1e-4


def run_block(case: VerifyCase, uniforms: Tensor, backend: str, device: torch.device) -> Verdict:
    """`block_verify` on the single drafts of a case."""

    def there(tensor: Tensor | None) -> Tensor | None:
        return None if tensor is None else tensor.to(device).contiguous()

    tokens, lengths = there(case.tokens[:, 0]), there(case.lengths[:, 0])
    assert tokens is not None and lengths is not None
    return block_verify(
        moved(case.target, device),
        None if case.draft is None else moved(case.draft, device),
        tokens,
        lengths,
        target_rows=there(None if case.target_rows is None else case.target_rows[:, 0]),
        draft_rows=there(None if case.draft_rows is None else case.draft_rows[:, 0]),
        uniforms=uniforms.to(device),
        eos_ids=there(case.eos_ids),
        backend=backend,
    )


def judge_block(
    case: VerifyCase, uniforms: Tensor, backend: str, device: torch.device
) -> list[str]:
    """Complaints about one case (K = 1) with uniforms [B, L + 1]."""
    verdict = run_block(case, uniforms, backend, device)
    complaints = []
    batch, _, length = case.tokens.shape
    p_laws = host_laws(case.target)
    q_laws = None if case.draft is None else host_laws(case.draft)
    ends = set() if case.eos_ids is None else set(case.eos_ids.tolist())
    thresholds = verdict.thresholds.double().cpu().numpy()
    for b in range(batch):
        where = f"{case.name}, request {b}"
        n = int(case.lengths[b, 0])
        drafted = case.tokens[b, 0, :n].tolist()
        cut = next((i + 1 for i, x in enumerate(drafted) if x in ends), n)
        drafted, over = drafted[:cut], any(x in ends for x in drafted)
        p = np.stack([
            p_laws[b * (length + 1) + i if case.target_rows is None
                   else int(case.target_rows[b, 0, i])]
            for i in range(cut + 1 - over)
        ] + [np.zeros(case.target.vocab)] * over)  # fmt: skip
        q = np.array([
            draft_row(q_laws, b * length + i if case.draft_rows is None
                      else int(case.draft_rows[b, 0, i]), x, case.target.vocab)
            for i, x in enumerate(drafted)
        ]).reshape(cut, case.target.vocab)  # fmt: skip
        if int(verdict.status[b]):
            complaints.append(f"{where}: status {Status(int(verdict.status[b]))!r}")
            continue
        h = oracle.block_pass_probabilities(p, q, drafted)
        u = uniforms[b].double().numpy()
        accepted, token = int(verdict.accepted[b]), int(verdict.token[b])
        for i in range(cut):
            got = thresholds[b, i]
            # 0 may stand for "not scanned": the test cannot have passed.
            fits = u[i] >= h[i] - TOLERANCE if got == 0.0 else abs(got - h[i]) <= TOLERANCE
            if not fits:
                complaints.append(f"{where}: h_{i + 1} = {got}, the oracle has {h[i]}")
        tau = max((i + 1 for i in range(cut) if u[i] < h[i]), default=0)
        if np.abs(u[:cut] - h).min(initial=1.0) > TOLERANCE and accepted != tau:
            complaints.append(f"{where}: accepted {accepted}, the oracle {tau}")
        if over and accepted == cut:
            if token != -1:
                complaints.append(f"{where}: token {token} behind an end token")
            continue
        mass = p[cut]
        if accepted < cut:
            weight = oracle.path_weights(p, q, drafted)[accepted]
            mass = oracle.residual(p[accepted], q[accepted], weight)
        complaints += token_complaint(where, mass, token, u[-1])
    return complaints


def token_complaint(where: str, mass: np.ndarray, token: int, uniform: float) -> list[str]:
    """A complaint unless inverting `mass` at `uniform`, give or take, can give `token`."""
    total = mass.sum()
    if not 0 <= token < len(mass):
        return [f"{where}: token {token}, mass {total}"]
    above = mass[: token + 1].sum() / total
    below = above - mass[token] / total
    if below - TOLERANCE <= uniform <= above + TOLERANCE and mass[token] > 0:
        return []
    return [f"{where}: token {token} covers {below}..{above}, the uniform is {uniform}"]
