"""The same without a sort: bit by bit, the largest key that enough tokens, or mass, reach.

Greedy rows need no search: one read finds the largest logit and the lowest id that has it.
Floats are compared as unsigned integers whose order is theirs (`_key`). For a predicate that only
gets easier as the key falls, one read of the row per bit finds the largest key that fulfils it.
Half-precision logits have zeros in the low bits of their float32 form; those are not searched.
"""

# Device code is untyped: its arguments are pointers and tensors of Triton.
# mypy: allow-untyped-defs, allow-incomplete-defs

from __future__ import annotations

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

from structspec.kernels.launch import launch, split_words, splits
from structspec.kernels.logit_rows import LogitRows
from structspec.kernels.triton_rows import load_scores, row_arguments, row_scale

__all__ = ["triton_edges"]

_BITS = {torch.bfloat16: 16, torch.float16: 19, torch.float32: 32}
_NONE = tl.constexpr(2**31 - 1)


@triton.jit
def _key(x):
    bits = (x + 0.0).to(tl.int32, bitcast=True)  # -0.0 + 0.0 = 0.0
    ordered = tl.where(bits < 0, ~bits, bits ^ -2147483648)
    return ordered.to(tl.uint32, bitcast=True)


@triton.jit
def _value(key):
    bits = key.to(tl.int32, bitcast=True)
    return tl.where(bits < 0, bits ^ -2147483648, ~bits).to(tl.float32, bitcast=True)


@triton.jit
def edges_kernel(logits, stride, masks, mask_stride, words, mask_rows, temperatures, temperature,
                 edges, edge_ids, vocab, S, top_k, top_p, log_min_p, edge_out, edge_id_out,
                 NW: tl.constexpr, FLAGS: tl.constexpr, BITS: tl.constexpr,
                 TOP_K: tl.constexpr, TOP_P: tl.constexpr, MIN_P: tl.constexpr):  # fmt: skip
    """Grid (R): one row."""
    row = tl.program_id(0)
    scale = row_scale(temperatures, temperature, row, True, FLAGS)
    best = -float("inf")
    for split in range(S):
        x, ids = load_scores(logits, stride, masks, mask_stride, words, mask_rows, row, split * NW,
                             vocab, NW, FLAGS)  # fmt: skip
        best = tl.maximum(best, tl.max(tl.max(x, axis=1), axis=0))
    edge = -float("inf")
    edge_id = _NONE
    if (best > -float("inf")) & (best < float("inf")):
        if TOP_K:
            found = tl.full([], 0, tl.uint32)
            for b in range(BITS):
                trial = found | (tl.full([], 1, tl.uint32) << (31 - b))
                count = 0
                for split in range(S):
                    x, ids = load_scores(logits, stride, masks, mask_stride, words, mask_rows, row,
                                         split * NW, vocab, NW, FLAGS)  # fmt: skip
                    hit = (_key(x) >= trial) & (x > -float("inf"))
                    count += tl.sum(tl.sum(hit.to(tl.int32), axis=1), axis=0)
                found = tl.where(count >= top_k, trial, found)
            # 0: fewer than top_k tokens are allowed.
            edge = tl.where(found == 0, -float("inf"), _value(found))
        if TOP_P:
            total = tl.full([], 0.0, tl.float64)
            for split in range(S):
                x, ids = load_scores(logits, stride, masks, mask_stride, words, mask_rows, row,
                                     split * NW, vocab, NW, FLAGS)  # fmt: skip
                e = tl.where(x >= edge, tl.exp((x - best) * scale), 0.0)
                total += tl.sum(tl.sum(e.to(tl.float64), axis=1), axis=0)
            aim = total * top_p
            found = tl.full([], 0, tl.uint32)
            for b in range(BITS):
                trial = found | (tl.full([], 1, tl.uint32) << (31 - b))
                mass = tl.full([], 0.0, tl.float64)
                for split in range(S):
                    x, ids = load_scores(logits, stride, masks, mask_stride, words, mask_rows, row,
                                         split * NW, vocab, NW, FLAGS)  # fmt: skip
                    hit = (_key(x) >= trial) & (x >= edge)
                    e = tl.where(hit, tl.exp((x - best) * scale), 0.0)
                    mass += tl.sum(tl.sum(e.to(tl.float64), axis=1), axis=0)
                found = tl.where((mass >= aim) & (mass > 0.0), trial, found)
            value = _value(found)
            ahead = tl.full([], 0.0, tl.float64)
            for split in range(S):
                x, ids = load_scores(logits, stride, masks, mask_stride, words, mask_rows, row,
                                     split * NW, vocab, NW, FLAGS)  # fmt: skip
                e = tl.where(x > value, tl.exp((x - best) * scale), 0.0)
                ahead += tl.sum(tl.sum(e.to(tl.float64), axis=1), axis=0)
            # How many of the tokens at the edge, of mass `each`, start before the aim.
            each = tl.exp((value - best) * scale).to(tl.float64)
            most = tl.minimum((aim - ahead) / each, 1.0e9)
            number = tl.maximum(tl.ceil(most), 1.0).to(tl.int32)
            seen = 0
            edge_id = -1
            for split in range(S):
                x, ids = load_scores(logits, stride, masks, mask_stride, words, mask_rows, row,
                                     split * NW, vocab, NW, FLAGS)  # fmt: skip
                tie = (x == value).to(tl.int32)
                in_word = tl.sum(tie, axis=1)
                rank = (
                    seen + (tl.cumsum(in_word, axis=0) - in_word)[:, None] + tl.cumsum(tie, axis=1)
                )
                last = tl.where((tie != 0) & (rank <= number), ids, -1)
                edge_id = tl.maximum(edge_id, tl.max(tl.max(last, axis=1), axis=0))
                seen += tl.sum(in_word, axis=0)
            edge = value
        if MIN_P:
            lowest = best + log_min_p / scale
            edge_id = tl.where(lowest > edge, _NONE, edge_id)
            edge = tl.maximum(edge, lowest)
    tl.store(edge_out + row, edge)
    tl.store(edge_id_out + row, edge_id)


@triton.jit
def greedy_kernel(logits, stride, masks, mask_stride, words, mask_rows, temperatures, temperature,
                  edges, edge_ids, vocab, S, edge_out, edge_id_out,
                  NW: tl.constexpr, FLAGS: tl.constexpr):  # fmt: skip
    """Grid (R): one row, read once."""
    row = tl.program_id(0)
    best = -float("inf")
    best_id = _NONE
    for split in range(S):
        x, ids = load_scores(logits, stride, masks, mask_stride, words, mask_rows, row, split * NW,
                             vocab, NW, FLAGS)  # fmt: skip
        top = tl.max(tl.max(x, axis=1), axis=0)
        first = tl.min(tl.min(tl.where(x == top, ids, _NONE), axis=1), axis=0)
        # earlier splits have the lower ids, so an equal logit changes nothing
        best_id = tl.where(top > best, first, best_id)
        best = tl.maximum(best, top)
    good = (best > -float("inf")) & (best < float("inf"))
    tl.store(edge_out + row, tl.where(good, best, -float("inf")))
    tl.store(edge_id_out + row, tl.where(good, best_id, _NONE))


def triton_edges(rows: LogitRows, top_k: int, top_p: float, min_p: float) -> tuple[Tensor, Tensor]:
    """`row_edges`; top_k = 0, top_p = 1 and min_p = 0 are off."""
    rows.check_triton()
    arguments, flags = row_arguments(rows)
    count, vocab = rows.logits.shape
    edge = torch.empty(count, dtype=torch.float32, device=rows.logits.device)
    edge_id = torch.empty(count, dtype=torch.int32, device=rows.logits.device)
    if (top_k, top_p) == (1, 0.0):
        launch(
            greedy_kernel, (count,), *arguments, vocab, splits(vocab), edge, edge_id, num_warps=8,
            NW=split_words(vocab), FLAGS=flags & 7,
        )  # fmt: skip
        return edge, edge_id
    launch(
        edges_kernel, (count,), *arguments, vocab, splits(vocab), top_k, float(top_p),
        math.log(min_p) if min_p > 0 else 0.0, edge, edge_id, num_warps=8,
        NW=split_words(vocab), FLAGS=flags & 7, BITS=_BITS[rows.logits.dtype],
        TOP_K=top_k > 0, TOP_P=top_p < 1.0, MIN_P=min_p > 0.0,
    )  # fmt: skip
    return edge, edge_id
