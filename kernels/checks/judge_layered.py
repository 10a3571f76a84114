"""Judging `layered_verify` against the float64 law under the plan that it reports."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from structspec.kernels.checks.cases import VerifyCase, moved
from structspec.kernels.checks.judge_block import TOLERANCE, token_complaint
from structspec.kernels.layered_verify import LayeredVerdict, layered_verify
from structspec.kernels.layered_verify.reference import case_rows, layered_law
from structspec.kernels.logit_rows import Status
from structspec.kernels.masked_softmax_stats.reference import host_laws

__all__ = ["judge_layered", "run_layered"]


def run_layered(
    case: VerifyCase, uniforms: Tensor, backend: str, device: torch.device, rounds: int = 2
) -> LayeredVerdict:
    """`layered_verify` on a case."""

    def there(tensor: Tensor | None) -> Tensor | None:
        return None if tensor is None else tensor.to(device).contiguous()

    return layered_verify(
        moved(case.target, device),
        None if case.draft is None else moved(case.draft, device),
        case.tokens.to(device),
        case.lengths.to(device),
        target_rows=there(case.target_rows),
        draft_rows=there(case.draft_rows),
        uniforms=uniforms.to(device),
        eos_ids=there(case.eos_ids),
        rounds=rounds,
        backend=backend,
    )


def judge_layered(
    case: VerifyCase, uniforms: Tensor, backend: str, device: torch.device, rounds: int = 2
) -> list[str]:
    """Complaints about one case with uniforms [B, 2].

    Judged are the exit probabilities and residuals under the reported plan, that the plan leaves
    no residual negative, and that it keeps as much as the reference's own plan to 2 %.
    """
    verdict = run_layered(case, uniforms, backend, device, rounds)
    batch, drafts, length = case.tokens.shape
    vocab = case.target.vocab
    p_laws = host_laws(case.target)
    q_laws = None if case.draft is None else host_laws(case.draft)
    ends = frozenset() if case.eos_ids is None else frozenset(case.eos_ids.tolist())
    knots, turns = verdict.knots.double().cpu().numpy(), verdict.turns.cpu().numpy()
    complaints = []
    for b in range(batch):
        where = f"{case.name} R={rounds}, request {b}"
        if int(verdict.status[b]):
            complaints.append(f"{where}: status {Status(int(verdict.status[b]))!r}")
            continue
        p = case_rows(p_laws, case.target_rows, b, (drafts, length + 1))
        q = case_rows(q_laws, case.draft_rows, b, (drafts, length), case.tokens[b], vocab)
        paths = []
        for k in range(drafts):
            path = case.tokens[b, k, : int(case.lengths[b, k])].tolist()
            cut = next((i + 1 for i, x in enumerate(path) if x in ends), len(path))
            paths.append(path[:cut])

        def plan(k: int, i: int, b: int = b) -> tuple[int, float, float]:
            return int(turns[b, k, i]), float(knots[b, k, i, 0]), float(knots[b, k, i, 1])

        law = layered_law(p, q, paths, length, rounds, ends, plan)
        own = layered_law(p, q, paths, length, rounds, ends)
        if law.lowest < -1e-5:
            complaints.append(f"{where}: a residual of {law.lowest}")
        got = verdict.thresholds[b].double().cpu().numpy()
        if np.abs(got - law.thresholds).max() > TOLERANCE:
            complaints.append(f"{where}: thresholds {got}, under this plan {law.thresholds}")
        keeps, could = (float(x.exits() @ np.arange(length + 1)) for x in (law, own))
        if keeps < could - 0.02 * max(could, 1.0):
            complaints.append(f"{where}: keeps {keeps} tokens, the reference {could}")
        u = uniforms[b].double().numpy()
        depth, owner, token = (int(x[b]) for x in (verdict.accepted, verdict.path, verdict.token))
        wanted = int(np.flatnonzero(u[0] >= law.thresholds)[-1])
        if np.abs(u[0] - law.thresholds[1:]).min() > TOLERANCE and depth != wanted:
            complaints.append(f"{where}: exit at {depth}, under this plan at {wanted}")
        nodes = law.residuals[depth]
        place = next((j for j, (node, _) in enumerate(nodes) if node == owner), -1)
        if place < 0:
            complaints.append(f"{where}: path {owner} owns no node at depth {depth}")
            continue
        cell = place * (vocab + 1) + (vocab if token == -1 else token)
        mass = np.concatenate([mass for _, mass in nodes])
        complaints += token_complaint(where, mass, cell, u[1])
    return complaints
