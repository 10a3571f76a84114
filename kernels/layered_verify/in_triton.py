"""The same in seven launches, none of which depends on K or L.

1. `row_sums_kernel` (shared with block verification), grid (rows, S).
2. `curves_kernel`, grid (B · K · L, S): Σ min(p, z q) at the 32 places of the grid, per node.
3. `plan_kernel`, grid (B): walks the tree by depth, solves for knots, weighs the children.
4. `true_sums_kernel`, grid (B · K · L, S): M at the knots.
5. `exit_kernel`, grid (B): g, Φ, the exit depth, and what each node's knots take from it.
6. `masses_kernel`, grid (B · K, S): residual sums of the nodes at that depth.
7. `token_kernel`, grid (B): the split that holds u · total, then one scan of it.

Device code: `plan_in_triton` (2, 3), `exit_in_triton` (4 to 7).
"""

from __future__ import annotations

import torch
from torch import Tensor

from structspec.kernels.block_verify.in_triton import launch_row_sums
from structspec.kernels.launch import launch, next_power, split_words, splits
from structspec.kernels.layered_verify.exit_in_triton import (
    exit_kernel,
    masses_kernel,
    token_kernel,
    true_sums_kernel,
)
from structspec.kernels.layered_verify.plan import LayeredVerdict
from structspec.kernels.layered_verify.plan_in_triton import curves_kernel, plan_kernel
from structspec.kernels.logit_rows import LogitRows
from structspec.kernels.philox import Noise
from structspec.kernels.triton_rows import row_arguments
from structspec.kernels.verdict import noise_arguments

__all__ = ["triton_layered_verify"]


def triton_layered_verify(
    target: LogitRows,
    draft: LogitRows | None,
    tokens: Tensor,
    lengths: Tensor,
    target_rows: Tensor | None,
    draft_rows: Tensor | None,
    uniforms: Tensor | None,
    noise: Noise | None,
    eos_ids: Tensor | None,
    rounds: int,
) -> LayeredVerdict:
    """`layered_verify` on the device."""
    batch, drafts, length = tokens.shape
    device, vocab, width = tokens.device, target.vocab, splits(target.vocab)
    p_sums, q_sums = launch_row_sums(
        target, draft, lengths, length, (target_rows is None, draft_rows is None)
    )
    p_arguments, p_flags = row_arguments(target)
    q_arguments, q_flags = (p_arguments, 0) if draft is None else row_arguments(draft)
    filler = tokens
    p_map = filler if target_rows is None else target_rows
    q_map = filler if draft_rows is None else draft_rows
    eos = (filler, 0) if eos_ids is None else (eos_ids, eos_ids.numel())
    noise_args, given = noise_arguments(uniforms, noise, filler)

    def scratch(shape: tuple[int, ...], dtype: torch.dtype = torch.float32) -> Tensor:
        return torch.empty(shape, dtype=dtype, device=device)

    cells, places = batch * drafts * length, batch * drafts * (length + 1)
    curves = scratch((cells, width, 32))
    numbers = (scratch((places, 4)), scratch((places,), torch.int32),
               scratch((cells, 4)), scratch((cells,), torch.int32))  # fmt: skip
    weights, kinds = scratch((places,)), scratch((places,), torch.int32)
    knots = scratch((batch, drafts, length, 2))
    turns = scratch((batch, drafts, length), torch.int32)
    alive, thresholds = scratch((batch, length + 1)), scratch((batch, length + 1))
    sums, taken = scratch((cells, width, 2)), scratch((cells, 2))
    masses = scratch((batch * drafts, width))
    draws = scratch((batch,), torch.float64)
    out = scratch((5, batch), torch.int32)
    shared = {
        "P_FLAGS": p_flags, "Q_FLAGS": q_flags, "P_PADDED": target_rows is None,
        "Q_PADDED": draft_rows is None, "DRAFT": draft is not None,
    }  # fmt: skip
    words = split_words(vocab)
    wide = {"num_warps": 8 if words >= 128 else 4, "NW": words}
    many, long, split_power = next_power(drafts), next_power(length + 1), next_power(width)
    head = (
        *p_arguments, *q_arguments, vocab, tokens, lengths, drafts, length, p_map, q_map,
        p_sums, q_sums, p_sums[0].numel(), q_sums[0].numel(), *eos,
    )  # fmt: skip
    launch(
        curves_kernel, (cells, width), *head, curves,
        KP=many, LP=long, SP=split_power, **wide, **shared,
    )  # fmt: skip
    launch(
        plan_kernel, (batch,), *head, width, curves, *numbers, weights, kinds, knots, turns, alive,
        out[3], num_warps=1, KP=many, SP=split_power, ROUNDS=rounds, **shared,
    )  # fmt: skip
    rows = (*p_arguments[:6], *q_arguments[:6], vocab, tokens, length, p_map, q_map, *numbers)
    launch(true_sums_kernel, (cells, width), *rows, turns, knots, sums, **wide, **shared)
    launch(
        exit_kernel, (batch,), drafts, length, width, kinds, turns, sums, alive, *noise_args,
        draws, out[4], taken, thresholds, KP=many, LP=long, **given,
    )  # fmt: skip
    node = (*rows, weights, turns, knots, taken, kinds, out[4], out[3], drafts, masses)
    launch(masses_kernel, (batch * drafts, width), *node, **wide, **shared)
    launch(
        token_kernel, (batch,), *node, draws, width, out[0], out[1], out[2],
        KSP=next_power(drafts * width), **wide, **shared,
    )  # fmt: skip
    return LayeredVerdict(out[0], out[1], out[2], out[3], thresholds, knots, turns)
