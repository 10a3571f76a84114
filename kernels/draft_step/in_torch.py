"""The same in whole-tensor torch operations; nothing waits for the device."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from structspec.kernels.automaton_walk.in_torch import torch_advance
from structspec.kernels.block_verify.in_torch import invert
from structspec.kernels.logit_rows import LogitRows, Status
from structspec.kernels.masked_softmax_stats.in_torch import torch_stats
from structspec.kernels.philox import philox4x32

if TYPE_CHECKING:
    from structspec.kernels.draft_step import DraftStep

__all__ = ["torch_step"]

_DRAFT = 1  # verification.randomness.Purpose


def torch_step(step: DraftStep, rows: LogitRows, place: int) -> None:
    """One step of `DraftStep`."""
    stats = torch_stats(rows)
    u = _drawn(step, place) if step.uniforms is None else step.uniforms[:, place]
    token = invert(stats.probabilities(rows), u)
    token = torch.where(stats.status == 0, token, -1).to(torch.int32)
    bad = stats.status & int(Status.NOT_FINITE)
    step.status.bitwise_or_(bad)
    step.tokens[:, place] = token
    step.path_states[:, place] = step.states
    step.lengths.copy_(torch.where(token >= 0, place + 1, step.lengths))
    if step.automaton is not None:
        step.states.copy_(torch_advance(step.automaton, step.states, token))


def _drawn(step: DraftStep, place: int) -> Tensor:
    """The uniforms [N] of one place, by the names of the rows."""
    low = 0xFFFFFFFF
    words = philox4x32(
        (
            torch.full_like(step.rows, place // 2, dtype=torch.int64),
            step.rows.long() | _DRAFT << 24,
            step.steps.long() & low,
            step.requests.long() & low,
        ),
        step.noise.seed,
    )
    high, lower = words[2 * (place % 2)], words[2 * (place % 2) + 1]
    return ((high >> 5).double() * 67108864.0 + (lower >> 6).double()) * 2.0**-53
