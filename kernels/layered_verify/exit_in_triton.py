"""Device code of the second half: true sums at the knots, the exit's depth, and its token.

`true_sums_kernel` takes Σ q t1 and Σ q t2 of the nodes that the plan (`plan_in_triton`) served,
`exit_kernel` finds Φ and the exit's depth, `masses_kernel` the residual masses of the nodes there,
`token_kernel` the node, the split and the token at u · total.
"""

# Device code is untyped: its arguments are pointers and tensors of Triton.
# mypy: allow-untyped-defs, allow-incomplete-defs

from __future__ import annotations

import triton
import triton.language as tl

from structspec.kernels.block_verify.in_triton import law_tile
from structspec.kernels.layered_verify.plan_in_triton import row_of
from structspec.kernels.triton_rows import first_above, load_scores, uniform53

__all__ = ["exit_kernel", "masses_kernel", "token_kernel", "true_sums_kernel"]

_NO_MASS = tl.constexpr(8)
_NONE = tl.constexpr(2**31 - 1)
_ACCEPT, _EMIT = tl.constexpr(2 << 24), tl.constexpr(3 << 24)


@triton.jit
def _pair(p_logits, p_stride, p_masks, p_mask_stride, p_words, p_mask_rows, q_logits, q_stride,
          q_masks, q_mask_stride, q_words, q_mask_rows, vocab, tokens, L, p_rows, q_rows,
          p_numbers, p_ids, q_numbers, q_ids, path, i, split, NW: tl.constexpr,
          P_FLAGS: tl.constexpr, Q_FLAGS: tl.constexpr, P_PADDED: tl.constexpr,
          Q_PADDED: tl.constexpr, DRAFT: tl.constexpr):  # fmt: skip
    """A split of p and of q at a place (i < L) of a path."""
    place = path * (L + 1) + i
    x, ids = load_scores(p_logits, p_stride, p_masks, p_mask_stride, p_words, p_mask_rows,
                         row_of(p_rows, place, P_PADDED), split * NW, vocab, NW,
                         P_FLAGS)  # fmt: skip
    p = law_tile(x, ids, p_numbers, p_ids, place)
    cell = path * L + i
    q = (ids == tl.load(tokens + cell)).to(tl.float32)
    if DRAFT:
        q_row = row_of(q_rows, cell, Q_PADDED)
        if q_row >= 0:
            x, ids = load_scores(q_logits, q_stride, q_masks, q_mask_stride, q_words, q_mask_rows,
                                 q_row, split * NW, vocab, NW, Q_FLAGS)  # fmt: skip
            q = law_tile(x, ids, q_numbers, q_ids, cell)
    return p, q


@triton.jit
def _tents(p, q, z1, z2):
    """q t1 and q t2 of a tile, without dividing by q."""
    low = tl.minimum(p, z2 * q)
    both = low / z2
    double = z1 > z2
    first = (tl.minimum(p, z1 * q) - low) / tl.where(double, z1 - z2, 1.0)
    first = tl.where(double, tl.minimum(tl.maximum(first, 0.0), both), both)
    return first, both - first


@triton.jit
def true_sums_kernel(p_logits, p_stride, p_masks, p_mask_stride, p_words, p_mask_rows,
                     q_logits, q_stride, q_masks, q_mask_stride, q_words, q_mask_rows, vocab,
                     tokens, L, p_rows, q_rows, p_numbers, p_ids, q_numbers, q_ids, turns, knots,
                     sums, NW: tl.constexpr, P_FLAGS: tl.constexpr, Q_FLAGS: tl.constexpr,
                     P_PADDED: tl.constexpr, Q_PADDED: tl.constexpr,
                     DRAFT: tl.constexpr):  # fmt: skip
    """Grid (B · K · L, S): Σ q t1 and Σ q t2 of the nodes that were served."""
    cell, split = tl.program_id(0), tl.program_id(1)
    S = tl.num_programs(1)
    if tl.load(turns + cell) >= 0:
        p, q = _pair(p_logits, p_stride, p_masks, p_mask_stride, p_words, p_mask_rows, q_logits,
                     q_stride, q_masks, q_mask_stride, q_words, q_mask_rows, vocab, tokens, L,
                     p_rows, q_rows, p_numbers, p_ids, q_numbers, q_ids, cell // L, cell % L,
                     split, NW, P_FLAGS, Q_FLAGS, P_PADDED, Q_PADDED, DRAFT)  # fmt: skip
        first, second = _tents(p, q, tl.load(knots + cell * 2), tl.load(knots + cell * 2 + 1))
        out = sums + (cell.to(tl.int64) * S + split) * 2
        tl.store(out, tl.sum(tl.sum(first, axis=1), axis=0))
        tl.store(out + 1, tl.sum(tl.sum(second, axis=1), axis=0))


@triton.jit
def exit_kernel(K, L, S, kinds, turns, sums, alive, given, seed, requests, steps, uniforms,
                depths, taken, thresholds, KP: tl.constexpr, LP: tl.constexpr,
                GIVEN: tl.constexpr):  # fmt: skip
    """Grid (B): g per depth from the true sums, Φ, the exit; `taken`: the factors of q t1, q t2."""
    b = tl.program_id(0)
    k = tl.arange(0, KP)
    i = tl.arange(0, LP)
    cell = (b * K + k)[:, None] * L + i[None, :]
    inside = (k < K)[:, None] & (i < L)[None, :]
    turn = tl.load(turns + cell, mask=inside, other=-1)
    served = inside & (turn >= 0)
    m = tl.load(kinds + (b * K + k)[:, None] * (L + 1) + i[None, :], mask=served, other=0)
    b1 = tl.zeros([KP, LP], tl.float32)
    b2 = tl.zeros([KP, LP], tl.float32)
    for s in range(S):
        at = (cell.to(tl.int64) * S + s) * 2
        b1 += tl.load(sums + at, mask=served, other=0.0)
        b2 += tl.load(sums + at + 1, mask=served, other=0.0)
    b2 = tl.minimum(b1 + b2, 1.0)
    b1 = tl.minimum(b1, b2)
    slope1 = tl.zeros([KP, LP], tl.float32) + 1.0
    slope2 = slope1
    power1 = slope1
    power2 = slope1
    survive = 1.0 - b2
    for j in range(1, K):
        power1 = power1 * (1.0 - b1)
        power2 = power2 * (1.0 - b2)
        slope1 = tl.where(j < m, slope1 + power1, slope1)
        slope2 = tl.where(j < m, slope2 * (1.0 - b1) + power2, slope2)
        survive = tl.where(j < m, survive * (1.0 - b2), survive)
    # Nodes of a depth multiply g in their turn; depths do not touch each other.
    g = tl.zeros([LP], tl.float32) + 1.0
    before = tl.zeros([KP, LP], tl.float32)
    for t in range(K):
        mine = served & (turn == t)
        before = tl.where(mine, g[None, :], before)
        factor = tl.sum(tl.where(mine, survive, 0.0), axis=0)
        some = tl.sum(mine.to(tl.int32), axis=0)
        g = tl.where(some > 0, g * factor, g)
    tl.store(taken + cell * 2, before * slope1, mask=served)
    tl.store(taken + cell * 2 + 1, before * slope2, mask=served)
    f = tl.load(alive + b * (L + 1) + i, mask=i <= L, other=1.0)
    ratio = tl.where(g > 0.0, tl.minimum(f / tl.where(g > 0.0, g, 1.0), 1.0), 1.0)
    # Φ_i, a product from the back: in log space; the smallest float32 stands for 0
    # (a smaller constant would be float64 in Triton 3.0).
    logs = tl.where(i <= L, tl.log(tl.maximum(ratio, 1.2e-38)), 0.0)
    zeros = ((ratio <= 0.0) & (i <= L)).to(tl.int32)
    j = tl.arange(0, LP)
    diagonal = i[:, None] == j[None, :]
    across = tl.sum(tl.where(diagonal, logs[:, None], 0.0), axis=0)
    zero_across = tl.sum(tl.where(diagonal, zeros[:, None], 0), axis=0)
    behind = j[None, :] >= i[:, None]
    phi = tl.exp(tl.sum(tl.where(behind, across[None, :], 0.0), axis=1))
    phi = tl.where(tl.sum(tl.where(behind, zero_across[None, :], 0), axis=1) > 0, 0.0, phi)
    tl.store(thresholds + b * (L + 1) + i, phi, mask=i <= L)
    if GIVEN:
        u = tl.load(given + b * 2).to(tl.float64)
        draw = tl.load(given + b * 2 + 1).to(tl.float64)
    else:
        request, step = tl.load(requests + b), tl.load(steps + b)
        zero = tl.arange(0, 1)
        u = tl.sum(uniform53(seed, request, step, tl.full([], _ACCEPT, tl.int32), zero), axis=0)
        draw = tl.sum(uniform53(seed, request, step, tl.full([], _EMIT, tl.int32), zero), axis=0)
    tl.store(uniforms + b, draw)
    tl.store(depths + b, tl.max(tl.where((i <= L) & (u >= phi), i, 0), axis=0))


@triton.jit
def _residual(p_logits, p_stride, p_masks, p_mask_stride, p_words, p_mask_rows, q_logits,
              q_stride, q_masks, q_mask_stride, q_words, q_mask_rows, vocab, tokens, L, p_rows,
              q_rows, p_numbers, p_ids, q_numbers, q_ids, weights, turns, knots, taken, path, i,
              split, NW: tl.constexpr, P_FLAGS: tl.constexpr, Q_FLAGS: tl.constexpr,
              P_PADDED: tl.constexpr, Q_PADDED: tl.constexpr, DRAFT: tl.constexpr):  # fmt: skip
    """A split of W p - F at a node, never below 0."""
    place = path * (L + 1) + i
    cell = path * L + i
    served = tl.load(turns + cell, mask=i < L, other=-1) >= 0
    x, ids = load_scores(p_logits, p_stride, p_masks, p_mask_stride, p_words, p_mask_rows,
                         row_of(p_rows, place, P_PADDED), split * NW, vocab, NW,
                         P_FLAGS)  # fmt: skip
    p = law_tile(x, ids, p_numbers, p_ids, place)
    mass = tl.load(weights + place) * p
    if served:
        q = (ids == tl.load(tokens + cell)).to(tl.float32)
        if DRAFT:
            q_row = row_of(q_rows, cell, Q_PADDED)
            if q_row >= 0:
                x, ids = load_scores(q_logits, q_stride, q_masks, q_mask_stride, q_words,
                                     q_mask_rows, q_row, split * NW, vocab, NW,
                                     Q_FLAGS)  # fmt: skip
                q = law_tile(x, ids, q_numbers, q_ids, cell)
        first, second = _tents(p, q, tl.load(knots + cell * 2), tl.load(knots + cell * 2 + 1))
        mass -= tl.load(taken + cell * 2) * first + tl.load(taken + cell * 2 + 1) * second
    return tl.maximum(mass, 0.0)


@triton.jit
def masses_kernel(p_logits, p_stride, p_masks, p_mask_stride, p_words, p_mask_rows,
                  q_logits, q_stride, q_masks, q_mask_stride, q_words, q_mask_rows, vocab,
                  tokens, L, p_rows, q_rows, p_numbers, p_ids, q_numbers, q_ids, weights, turns,
                  knots, taken, kinds, depths, status_in, K, masses, NW: tl.constexpr,
                  P_FLAGS: tl.constexpr, Q_FLAGS: tl.constexpr, P_PADDED: tl.constexpr,
                  Q_PADDED: tl.constexpr, DRAFT: tl.constexpr):  # fmt: skip
    """Grid (B · K, S): residual mass of one split of the node that a path owns at the exit."""
    path, split = tl.program_id(0), tl.program_id(1)
    b = path // K
    i = tl.load(depths + b)
    kind = tl.load(kinds + path * (L + 1) + i)
    total = 0.0
    if (kind >= 0) & (tl.load(status_in + b) == 0):
        mass = _residual(p_logits, p_stride, p_masks, p_mask_stride, p_words, p_mask_rows,
                         q_logits, q_stride, q_masks, q_mask_stride, q_words, q_mask_rows, vocab,
                         tokens, L, p_rows, q_rows, p_numbers, p_ids, q_numbers, q_ids, weights,
                         turns, knots, taken, path, i, split, NW, P_FLAGS, Q_FLAGS, P_PADDED,
                         Q_PADDED, DRAFT)  # fmt: skip
        total = tl.sum(tl.sum(mass, axis=1), axis=0)
    if (kind == -2) & (split == 0):
        total = tl.load(weights + path * (L + 1) + i)
    tl.store(masses + path.to(tl.int64) * tl.num_programs(1) + split, total)


@triton.jit
def token_kernel(p_logits, p_stride, p_masks, p_mask_stride, p_words, p_mask_rows,
                 q_logits, q_stride, q_masks, q_mask_stride, q_words, q_mask_rows, vocab,
                 tokens, L, p_rows, q_rows, p_numbers, p_ids, q_numbers, q_ids, weights, turns,
                 knots, taken, kinds, depths, status_out, K, masses, uniforms, S, accepted_out,
                 path_out, token_out, NW: tl.constexpr, KSP: tl.constexpr,
                 P_FLAGS: tl.constexpr, Q_FLAGS: tl.constexpr, P_PADDED: tl.constexpr,
                 Q_PADDED: tl.constexpr, DRAFT: tl.constexpr):  # fmt: skip
    """Grid (B): the node, the split and the token at u · total."""
    b = tl.program_id(0)
    status = tl.load(status_out + b)
    depth = tl.load(depths + b)
    token = -1
    path = 0
    if status == 0:
        c = tl.arange(0, KSP)
        part = tl.load(masses + (b * K * S).to(tl.int64) + c, mask=c < K * S, other=0.0)
        aim = tl.load(uniforms + b) * tl.sum(part.to(tl.float64), axis=0)
        first, last, _after = first_above(part, 0.0, aim)
        chosen = tl.where(first < _NONE, first, last)
        running = tl.sum(tl.where(c < chosen, part.to(tl.float64), 0.0), axis=0)
        status = tl.where(chosen < 0, _NO_MASS, 0)
        if chosen >= 0:
            path = chosen // S
            split = chosen % S
            if tl.load(kinds + (b * K + path) * (L + 1) + depth) >= 0:
                mass = _residual(p_logits, p_stride, p_masks, p_mask_stride, p_words, p_mask_rows,
                                 q_logits, q_stride, q_masks, q_mask_stride, q_words, q_mask_rows,
                                 vocab, tokens, L, p_rows, q_rows, p_numbers, p_ids, q_numbers,
                                 q_ids, weights, turns, knots, taken, b * K + path, depth, split,
                                 NW, P_FLAGS, Q_FLAGS, P_PADDED, Q_PADDED, DRAFT)  # fmt: skip
                first, last, _after = first_above(tl.reshape(mass, [NW * 32]), running, aim)
                found = tl.where(first < _NONE, first, last)
                token = tl.where(found < 0, -1, split * NW * 32 + found)
                status = tl.where(found < 0, _NO_MASS, 0)
    fine = status == 0
    tl.store(accepted_out + b, tl.where(fine, depth, 0))
    tl.store(path_out + b, tl.where(fine, path, 0))
    tl.store(token_out + b, token)
    tl.store(status_out + b, status)
