"""The same in two launches: partial sums of (row, split), then one program per row.

The second kernel combines the sums, finds the split that holds u · Σ q, scans it, walks the
token's bytes and writes the next state. Scratch is kept between steps, so a captured graph reads
and writes the same addresses.
"""

# Device code is untyped: its arguments are pointers and tensors of Triton.
# mypy: allow-untyped-defs, allow-incomplete-defs

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from structspec.kernels.automaton_walk.in_triton import after_token
from structspec.kernels.launch import launch, next_power, split_words, splits
from structspec.kernels.logit_rows import LogitRows
from structspec.kernels.masked_softmax_stats.in_triton import partials_kernel
from structspec.kernels.triton_rows import (
    combine_partials,
    first_above,
    load_scores,
    row_arguments,
    row_scale,
    uniform53,
)

if TYPE_CHECKING:
    from structspec.kernels.draft_step import DraftStep

__all__ = ["triton_step"]

_NONE = tl.constexpr(2**31 - 1)
_DRAFT = tl.constexpr(1 << 24)
_NOT_FINITE = tl.constexpr(2)


@triton.jit
def draw_kernel(logits, stride, masks, mask_stride, words, mask_rows, temperatures, temperature,
                edges, edge_ids, vocab, partials, plane, S, place, length, given, seed, requests,
                steps, rows, states, tokens, lengths, path_states, status_out, table, width,
                accepting, classes, start, eos, n_eos, NW: tl.constexpr, SP: tl.constexpr,
                FLAGS: tl.constexpr, ADVANCE: tl.constexpr, GIVEN: tl.constexpr):  # fmt: skip
    """Grid (N): the token of one row and its next state."""
    n = tl.program_id(0)
    one = tl.arange(0, 1)
    row = one + n
    state = tl.load(states + row)
    scale = row_scale(temperatures, temperature, row, one == 0, FLAGS)
    top, _sum, _edge, _edge_id, status = combine_partials(
        partials, plane, row, one == 0, scale, edges, edge_ids, S, SP, FLAGS
    )
    code = tl.max(status, axis=0)
    token = -1
    if code == 0:
        best = tl.max(top, axis=0)
        factor = tl.max(scale, axis=0)
        if GIVEN:
            u = tl.load(given + n * length + place)
        else:
            request, step = tl.load(requests + n), tl.load(steps + n)
            name = tl.load(rows + n) + _DRAFT
            u = tl.max(uniform53(seed, request, step, name, one + place), axis=0)
        s = tl.arange(0, SP)
        at = n.to(tl.int64) * S + s
        tops = tl.load(partials + at, mask=s < S, other=float("-inf"))
        part = tl.load(partials + plane + at, mask=s < S, other=0.0) * tl.exp(
            (tops - best) * factor
        )
        aim = u * tl.sum(part.to(tl.float64), axis=0)
        first, last, _after = first_above(part, 0.0, aim)
        chosen = tl.where(first < _NONE, first, last)
        running = tl.sum(tl.where(s < chosen, part.to(tl.float64), 0.0), axis=0)
        x, _ids = load_scores(logits, stride, masks, mask_stride, words, mask_rows, n, chosen * NW,
                             vocab, NW, FLAGS)  # fmt: skip
        mass = tl.exp((x - best) * factor)
        first, last, _after = first_above(tl.reshape(mass, [NW * 32]), running, aim)
        token = chosen * NW * 32 + tl.where(first < _NONE, first, last)
        tl.store(lengths + n, place + 1)
    if code == _NOT_FINITE:
        tl.store(status_out + n, code)
    tl.store(tokens + n * length + place, token)
    if ADVANCE:
        tl.store(path_states + row * length + place, state)
        following = after_token(state, one + token, one == 0, table, width, accepting, classes,
                                start, eos, n_eos, vocab)  # fmt: skip
        tl.store(states + row, following)


def triton_step(step: DraftStep, rows: LogitRows, place: int, scratch: Tensor | None) -> Tensor:
    """One step of `DraftStep`; returns the scratch to pass to the next one."""
    rows.check_triton()
    arguments, flags = row_arguments(rows)
    count, vocab = rows.logits.shape
    width, words = splits(vocab), split_words(vocab)
    if scratch is None:
        scratch = torch.empty((2, count, width), dtype=torch.float32, device=rows.logits.device)
    warps = 8 if words >= 128 else 4
    automaton = step.automaton
    filler = step.states
    tables: tuple[Any, ...] = (filler, 0, filler, filler, filler, filler, 0)
    if automaton is not None:
        tables = (
            automaton.next, automaton.next.shape[1], automaton.accepting, automaton.token_classes,
            automaton.tokens.start, automaton.eos_ids, automaton.eos_ids.numel(),
        )  # fmt: skip
    launch(
        partials_kernel, (count, width), *arguments, vocab, scratch, count * width,
        num_warps=warps, NW=words, FLAGS=flags,
    )  # fmt: skip
    launch(
        draw_kernel, (count,), *arguments, vocab, scratch, count * width, width, place,
        step.tokens.shape[1], step.tokens if step.uniforms is None else step.uniforms,
        step.noise.signed_seed, step.requests, step.steps, step.rows,
        step.states, step.tokens, step.lengths, step.path_states, step.status, *tables,
        num_warps=warps, NW=words, SP=next_power(width), FLAGS=flags,
        ADVANCE=automaton is not None, GIVEN=step.uniforms is not None,
    )  # fmt: skip
    return scratch
