"""The same in Triton.

`walk_kernel`, grid (blocks of tokens, N): the states behind a block's tokens, byte by byte, until
the block has ended or is dead; one bit per token in the order of bytes. `permute_kernel`, grid
(N, W / words): every id fetches its bit; end tokens are added. `advance_kernel`: N tokens abreast.
"""

# Device code is untyped: its arguments are pointers and tensors of Triton.
# mypy: allow-untyped-defs, allow-incomplete-defs

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import triton
import triton.language as tl
from torch import Tensor

from structspec.kernels.automaton_walk.token_table import BLOCK
from structspec.kernels.launch import launch, next_power

if TYPE_CHECKING:
    from structspec.kernels.automaton_walk import DeviceAutomaton

__all__ = ["after_token", "triton_advance", "triton_masks"]

_PERMUTE_WORDS = 64


@triton.jit
def walk_kernel(states, left, table, width, cost, classes, offsets, count, out, out_words,
                BLOCK: tl.constexpr, LEFT: tl.constexpr):  # fmt: skip
    """Grid (blocks, N)."""
    block, n = tl.program_id(0), tl.program_id(1)
    lane = tl.arange(0, BLOCK)
    first = tl.load(offsets + block)
    length = (tl.load(offsets + block + 1) - first) // BLOCK
    state = tl.load(states + n) + lane * 0
    alive = tl.max(state, axis=0)
    i = 0
    while (i < length) & (alive > 1):
        column = tl.load(classes + first + i * BLOCK + lane).to(tl.int32)
        state = tl.load(table + state * width + column).to(tl.int32)
        alive = tl.max(state, axis=0)
        i += 1
    good = (state > 1) & (block * BLOCK + lane < count)
    if LEFT:
        good = good & (tl.load(cost + state) <= tl.load(left + n) - 1)
    bits = tl.reshape(good.to(tl.int32), [BLOCK // 32, 32]) << tl.arange(0, 32)[None, :]
    word = tl.arange(0, BLOCK // 32)
    tl.store(out + n.to(tl.int64) * out_words + block * (BLOCK // 32) + word, tl.sum(bits, axis=1))


@triton.jit
def permute_kernel(states, accepting, eos_words, rank, sorted_bits, sorted_words, words, out,
                   NW: tl.constexpr):  # fmt: skip
    """Grid (N, W / NW)."""
    n = tl.program_id(0)
    word = tl.program_id(1) * NW + tl.arange(0, NW)
    inside = word < words
    lane = tl.arange(0, 32)
    place = tl.load(rank + word[:, None] * 32 + lane[None, :], mask=inside[:, None], other=-1)
    base = sorted_bits + n.to(tl.int64) * sorted_words
    found = tl.load(base + (place >> 5), mask=place >= 0, other=0)
    bits = ((found >> (place & 31)) & 1) << lane[None, :]
    row = tl.sum(bits, axis=1)
    state = tl.load(states + n)
    if state > 1:  # noqa: SIM102 - tables hold nothing to load for ended states
        if tl.load(accepting + state) != 0:
            row = row | tl.load(eos_words + word, mask=inside, other=0)
    tl.store(out + n.to(tl.int64) * words + word, row, mask=inside)


@triton.jit
def after_token(state, token, use, table, width, accepting, classes, start, eos, n_eos, vocab):
    """The states [n] behind tokens [n]: see `DeviceAutomaton.advance`."""
    inside = use & (token >= 0) & (token < vocab)
    first = tl.load(start + token, mask=inside, other=0)
    last = tl.load(start + token + 1, mask=inside, other=0)
    here = state
    longest = tl.max(last - first, axis=0)
    i = 0
    while i < longest:
        more = first + i < last
        column = tl.load(classes + first + i, mask=more, other=0).to(tl.int32)
        here = tl.where(more, tl.load(table + here * width + column, mask=more, other=0), here)
        here = here.to(tl.int32)
        i += 1
    here = tl.where(inside & (last > first), here, 1)
    ends = tl.load(accepting + state, mask=use & (state > 1), other=0) != 0
    for e in range(n_eos):
        here = tl.where(token == tl.load(eos + e), tl.where(ends, 0, 1), here)
    here = tl.where(state <= 1, 1, here)
    return tl.where(token < 0, state, here)


@triton.jit
def advance_kernel(states, tokens, N, table, width, accepting, classes, start, eos, n_eos, vocab,
                   out, NP: tl.constexpr):  # fmt: skip
    """Grid (N / NP)."""
    n = tl.program_id(0) * NP + tl.arange(0, NP)
    use = n < N
    state = tl.load(states + n, mask=use, other=1)
    token = tl.load(tokens + n, mask=use, other=-1)
    state = after_token(state, token, use, table, width, accepting, classes, start, eos, n_eos,
                        vocab)  # fmt: skip
    tl.store(out + n, state, mask=use)


def triton_masks(
    automaton: DeviceAutomaton, states: Tensor, left: Tensor | None, out: Tensor
) -> None:
    """`DeviceAutomaton.masks`."""
    tokens = automaton.tokens
    count, words = states.shape[0], automaton.words
    n_blocks = tokens.offsets.shape[0] - 1
    sorted_words = n_blocks * (BLOCK // 32)
    bits = torch.empty((count, sorted_words), dtype=torch.int32, device=out.device)
    launch(
        walk_kernel, (n_blocks, count), states, states if left is None else left, automaton.next,
        automaton.next.shape[1], automaton.cost, automaton.classes, tokens.offsets, tokens.count,
        bits, sorted_words, num_warps=1, BLOCK=BLOCK, LEFT=left is not None,
    )  # fmt: skip
    width = min(_PERMUTE_WORDS, next_power(words))
    launch(
        permute_kernel, (count, -(-words // width)), states, automaton.accepting,
        automaton.eos_words, tokens.rank, bits, sorted_words, words, out, NW=width,
    )  # fmt: skip


def triton_advance(automaton: DeviceAutomaton, states: Tensor, tokens: Tensor) -> Tensor:
    """`DeviceAutomaton.advance`."""
    out = torch.empty_like(states)
    count = states.shape[0]
    size = min(32, next_power(count))
    launch(
        advance_kernel, (-(-count // size),), states, tokens, count, automaton.next,
        automaton.next.shape[1], automaton.accepting, automaton.token_classes,
        automaton.tokens.start, automaton.eos_ids, automaton.eos_ids.numel(), automaton.vocab, out,
        num_warps=1, NP=size,
    )  # fmt: skip
    return out
