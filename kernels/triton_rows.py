"""What the Triton kernels share: reading rows, laws, random numbers, and picking a token.

A tile is [NW, 32]: NW words of the packed mask and their 32 tokens each. One word is loaded per 32
tokens, and words that allow nothing skip their logits. FLAGS (constexpr) says which optional
pointers are real: 1 mask, 2 mask_rows, 4 temperature per row, 8 edges.

Everything here is device code; `row_arguments` puts the arguments of `LogitRows` in order.
"""

# Device code is untyped: its arguments are pointers and tensors of Triton.
# mypy: allow-untyped-defs, allow-incomplete-defs

from __future__ import annotations

import os
from typing import Any

import torch
import triton
import triton.language as tl

from structspec.kernels.logit_rows import LARGEST_SCALE, LogitRows

__all__ = [
    "INTERPRETED",
    "combine_partials",
    "first_above",
    "kept",
    "load_scores",
    "partial_sums",
    "prefix_sums",
    "row_arguments",
    "row_scale",
    "score_at",
    "uniform53",
]

#: Whether triton.jit made interpreted functions in this process.
INTERPRETED = os.environ.get("TRITON_INTERPRET", "0") in ("1", "true", "on", "yes")

_LARGEST = tl.constexpr(LARGEST_SCALE)
_EMPTY, _NOT_FINITE = tl.constexpr(1), tl.constexpr(2)
_NONE = tl.constexpr(2**31 - 1)


def row_arguments(rows: LogitRows) -> tuple[tuple[Any, ...], int]:
    """The pointer arguments of `rows` for the kernels here, and their FLAGS."""
    logits = rows.logits
    flags = 0
    masks: Any = logits
    mask_stride = words = 0
    if rows.masks is not None:
        flags, masks = flags | 1, rows.masks
        mask_stride, words = masks.stride(0), masks.shape[1]
    mask_rows: Any = logits
    if rows.mask_rows is not None:
        flags, mask_rows = flags | 2, rows.mask_rows
    temperatures: Any = logits
    temperature = 1.0
    if isinstance(rows.temperature, torch.Tensor):
        flags, temperatures = flags | 4, rows.temperature
    else:
        temperature = float(rows.temperature)
    edge: Any = logits
    edge_id: Any = logits
    if rows.edge is not None:
        flags, edge, edge_id = flags | 8, rows.edge, rows.edge_id
    where = (logits, logits.stride(0), masks, mask_stride, words, mask_rows)
    return (*where, temperatures, temperature, edge, edge_id), flags


@triton.jit
def load_scores(logits, stride, masks, mask_stride, words, mask_rows, row, first, vocab,
                NW: tl.constexpr, FLAGS: tl.constexpr):  # fmt: skip
    """Logits [NW, 32] from word `first` on as float32, -inf where illegal, and their ids."""
    word = first + tl.arange(0, NW)
    lane = tl.arange(0, 32)
    ids = word[:, None] * 32 + lane[None, :]
    base = logits + row.to(tl.int64) * stride
    if FLAGS & 1:
        mask_row = row.to(tl.int64)
        if FLAGS & 2:
            mask_row = tl.load(mask_rows + row).to(tl.int64)
        bits = tl.load(masks + mask_row * mask_stride + word, mask=word < words, other=0)
        some = (bits != 0)[:, None] & (ids < vocab)
        x = tl.load(base + ids, mask=some, other=float("-inf")).to(tl.float32)
        allowed = ((bits[:, None] >> lane[None, :]) & 1) != 0
        x = tl.where(allowed, x, float("-inf"))
    else:
        x = tl.load(base + ids, mask=ids < vocab, other=float("-inf")).to(tl.float32)
    return x, ids


@triton.jit
def score_at(logits, stride, masks, mask_stride, words, mask_rows, row, ids, use,
             FLAGS: tl.constexpr):  # fmt: skip
    """The logit of one id per row (vectors `row`, `ids`), -inf where illegal or not `use`."""
    x = tl.load(logits + row.to(tl.int64) * stride + ids, mask=use, other=float("-inf"))
    x = x.to(tl.float32)
    if FLAGS & 1:
        mask_row = row.to(tl.int64)
        if FLAGS & 2:
            mask_row = tl.load(mask_rows + row, mask=use, other=0).to(tl.int64)
        word = ids >> 5
        bits = tl.load(masks + mask_row * mask_stride + word, mask=use & (word < words), other=0)
        x = tl.where(((bits >> (ids & 31)) & 1) != 0, x, float("-inf"))
    return x


@triton.jit
def row_scale(temperatures, temperature, row, use, FLAGS: tl.constexpr):
    """1 / T of the rows; 1 where T = 0."""
    if FLAGS & 4:
        t = tl.load(temperatures + row, mask=use, other=1.0)
    else:
        t = tl.where(use, temperature, 1.0).to(tl.float32)
    return tl.where(t > 0.0, tl.minimum(1.0 / tl.where(t > 0.0, t, 1.0), _LARGEST), 1.0)


@triton.jit
def kept(x, ids, edge, edge_id):
    """Whether a token survives the edge."""
    return (x > edge) | ((x == edge) & (ids <= edge_id))


@triton.jit
def partial_sums(logits, stride, masks, mask_stride, words, mask_rows, temperatures, temperature,
                 edges, edge_ids, row, split, vocab, out, cell, plane,
                 NW: tl.constexpr, FLAGS: tl.constexpr):  # fmt: skip
    """max, Σ exp and Σ exp of kept tokens of one split of one row, to out[0..2, cell]."""
    x, ids = load_scores(logits, stride, masks, mask_stride, words, mask_rows, row, split * NW,
                         vocab, NW, FLAGS)  # fmt: skip
    top = tl.max(tl.max(x, axis=1), axis=0)
    safe = tl.where(top == float("-inf"), 0.0, top)
    e = tl.exp((x - safe) * row_scale(temperatures, temperature, row, True, FLAGS))
    tl.store(out + cell, top)
    tl.store(out + plane + cell, tl.sum(tl.sum(e, axis=1), axis=0))
    if FLAGS & 8:
        e = tl.where(kept(x, ids, tl.load(edges + row), tl.load(edge_ids + row)), e, 0.0)
        tl.store(out + 2 * plane + cell, tl.sum(tl.sum(e, axis=1), axis=0))


@triton.jit
def combine_partials(partials, plane, row, use, scale, edges, edge_ids, S,
                     SP: tl.constexpr, FLAGS: tl.constexpr):  # fmt: skip
    """max, log Σ, edge, edge id and status of rows (a vector [R]) from their partials."""
    at = tl.arange(0, SP)
    cell = row.to(tl.int64)[:, None] * S + at[None, :]
    inside = use[:, None] & (at < S)[None, :]
    tops = tl.load(partials + cell, mask=inside, other=float("-inf"))
    top = tl.max(tops, axis=1)
    safe = tl.where(top == float("-inf"), 0.0, top)
    factor = tl.exp((tops - safe[:, None]) * scale[:, None])
    total = tl.sum(tl.load(partials + plane + cell, mask=inside, other=0.0) * factor, axis=1)
    # Not `total != total`, which a compiler may fold away; inf and NaN both fail this test.
    bad = (total < float("inf")) == 0
    edge = tl.where(use, float("-inf"), float("-inf"))
    edge_id = tl.where(use, _NONE, _NONE)
    if FLAGS & 8:
        some = tl.load(partials + 2 * plane + cell, mask=inside, other=0.0)
        chosen = tl.sum(some * factor, axis=1)
        edged = chosen > 0.0
        total = tl.where(edged, chosen, total)
        edge = tl.where(edged, tl.load(edges + row, mask=use, other=0.0), edge)
        edge_id = tl.where(edged, tl.load(edge_ids + row, mask=use, other=0), edge_id)
    empty = (total > 0.0) == 0
    status = tl.where(bad, _NOT_FINITE, tl.where(empty, _EMPTY, 0))
    good = (bad | empty) == 0
    return (tl.where(good, top, 0.0), tl.where(good, tl.log(tl.where(good, total, 1.0)), 0.0),
            edge, edge_id, tl.where(use, status, 0))  # fmt: skip


@triton.jit
def uniform53(seed, request, step, row_purpose, index):
    """The float64 uniforms of `verification.randomness` for a vector of indices."""
    zero = tl.zeros_like(index).to(tl.uint32)
    # Small seeds arrive as 32-bit integers (1 as a constant); the key has 64 bits.
    key = tl.full([], 0, tl.int64) + seed
    a, b, c, d = tl.philox(key, (index // 2).to(tl.uint32), zero + row_purpose.to(tl.uint32),
                           zero + step.to(tl.uint32), zero + request.to(tl.uint32))  # fmt: skip
    odd = index % 2 == 1
    high = tl.where(odd, c, a) >> 5
    low = tl.where(odd, d, b) >> 6
    # Below 2**27: exact through int32.
    whole = high.to(tl.int32).to(tl.float64) * 67108864.0 + low.to(tl.int32).to(tl.float64)
    return whole * 1.1102230246251565e-16


@triton.jit
def prefix_sums(x):
    """Inclusive prefix sums of a short vector, as a triangular tile."""
    place = tl.arange(0, x.shape[0])
    return tl.sum(tl.where(place[None, :] <= place[:, None], x[None, :], 0.0), axis=1)


@triton.jit
def first_above(mass, before, aim):
    """Inverse sampling in a vector of masses [n] behind mass `before`.

    Returns the first place with mass whose running sum exceeds `aim` (a large number if none),
    the last place with mass (-1 if none), and the running sum behind the vector.
    """
    place = tl.arange(0, mass.shape[0])
    wide = mass.to(tl.float64)
    if mass.shape[0] <= 64:  # a scan of fewer elements than threads gains nothing
        running = before + prefix_sums(wide)
    else:
        running = before + tl.cumsum(wide, axis=0)
    some = mass > 0.0
    first = tl.min(tl.where(some & (running > aim), place, _NONE), axis=0)
    last = tl.max(tl.where(some, place, -1), axis=0)
    return first, last, before + tl.sum(wide, axis=0)
