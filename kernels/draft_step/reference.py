"""The definition, row by row on the host."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from structspec.kernels.automaton_walk.reference import reference_advance
from structspec.kernels.logit_rows import LogitRows, Status
from structspec.kernels.masked_softmax_stats.reference import host_laws, reference_stats
from structspec.verification.randomness import Purpose, Randomness, sample_inverse

if TYPE_CHECKING:
    from structspec.kernels.draft_step import DraftStep

__all__ = ["reference_step"]


def reference_step(step: DraftStep, rows: LogitRows, place: int) -> None:
    """One step of `DraftStep`."""
    laws = host_laws(rows)
    status = reference_stats(rows).status
    randomness = Randomness(step.noise.seed)
    step.path_states[:, place] = step.states
    for n, law in enumerate(laws):
        step.tokens[n, place] = -1
        if int(status[n]) & Status.NOT_FINITE:
            step.status[n] |= int(Status.NOT_FINITE)
        elif not int(status[n]):
            if step.uniforms is not None:
                u = float(step.uniforms[n, place])
            else:
                u = randomness.uniforms(
                    int(step.requests[n]), int(step.steps[n]), Purpose.DRAFT, int(step.rows[n]),
                    place + 1,
                )[place]  # fmt: skip
            step.tokens[n, place] = sample_inverse(law, float(u))
            step.lengths[n] = place + 1
    if step.automaton is None:
        return
    tokens = step.tokens[:, place].contiguous()
    step.states.copy_(reference_advance(step.automaton, step.states, tokens).to(torch.int32))
