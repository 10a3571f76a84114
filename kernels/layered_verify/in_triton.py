"""The same in seven launches, none of which depends on K or L.

1. `row_sums_kernel` (shared with block verification), grid (rows, S).
2. `curves_kernel`, grid (B · K · L, S): Σ min(p, z q) at the 32 places of the grid, per node.
3. `plan_kernel`, grid (B): walks the tree by depth, solves for knots, weighs the children.
4. `true_sums_kernel`, grid (B · K · L, S): M at the knots.
5. `exit_kernel`, grid (B): g, Φ, the exit depth, and what each node's knots take from it.
6. `masses_kernel`, grid (B · K, S): residual sums of the nodes at that depth.
7. `token_kernel`, grid (B): the split that holds u · total, then one scan of it.

A node belongs to its first path that goes on behind it. `kind` [B, K, L + 1] says what a path owns
at a depth: m > 0 drafts that go on, 0 none, -1 no node, -2 a node that ends in an end token.
"""

# Device code is untyped: its arguments are pointers and tensors of Triton.
# mypy: allow-untyped-defs, allow-incomplete-defs

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from structspec.kernels.block_verify.in_triton import launch_row_sums, law_tile
from structspec.kernels.launch import launch, next_power, split_words, splits
from structspec.kernels.layered_verify.plan import TINY, LayeredVerdict
from structspec.kernels.layered_verify.solve_in_triton import power, solve
from structspec.kernels.logit_rows import LogitRows
from structspec.kernels.philox import Noise
from structspec.kernels.triton_rows import (
    combine_partials,
    first_above,
    kept,
    load_scores,
    row_arguments,
    row_scale,
    score_at,
    uniform53,
)
from structspec.kernels.verdict import noise_arguments

__all__ = ["triton_layered_verify"]

_EMPTY, _ILLEGAL, _NO_MASS = tl.constexpr(1), tl.constexpr(4), tl.constexpr(8)
_BAD_TOKEN = tl.constexpr(16)
_NONE = tl.constexpr(2**31 - 1)
_ACCEPT, _EMIT = tl.constexpr(2 << 24), tl.constexpr(3 << 24)
_J = tl.constexpr(32)
_TINY = tl.constexpr(TINY)


@triton.jit
def _row(rows, place, PADDED: tl.constexpr):
    if PADDED:
        return place
    return tl.load(rows + place)


@triton.jit
def _owned(tokens, lengths, b, k, i, K, L, eos, n_eos, KP: tl.constexpr, LP: tl.constexpr):
    """Whether path k owns a node at depth i < L that goes on (1 or 0), from the tokens."""
    kk = tl.arange(0, KP)
    j = tl.arange(0, LP)
    own = tl.load(tokens + (b * K + k) * L + j, mask=j < i, other=-1)
    other = tl.load(tokens + (b * K + kk)[:, None] * L + j[None, :],
                    mask=(kk < K)[:, None] & (j < i)[None, :], other=-1)  # fmt: skip
    differ = tl.sum((own[None, :] != other).to(tl.int32), axis=1)
    goes_on = tl.load(lengths + b * K + kk, mask=kk < K, other=-1) > i
    first = tl.min(tl.where((differ == 0) & goes_on & (kk < K), kk, _NONE), axis=0)
    ended = 0
    for e in range(n_eos):
        ended += tl.sum((own == tl.load(eos + e)).to(tl.int32), axis=0)
    return tl.where((first == k) & (ended == 0), 1, 0)


@triton.jit
def curves_kernel(p_logits, p_stride, p_masks, p_mask_stride, p_words, p_mask_rows, p_temps,
                  p_temp, p_edges, p_edge_ids, q_logits, q_stride, q_masks, q_mask_stride,
                  q_words, q_mask_rows, q_temps, q_temp, q_edges, q_edge_ids, vocab, tokens,
                  lengths, K, L, p_rows, q_rows, p_partials, q_partials, p_plane, q_plane, eos,
                  n_eos, curves, NW: tl.constexpr, KP: tl.constexpr, LP: tl.constexpr,
                  SP: tl.constexpr, P_FLAGS: tl.constexpr, Q_FLAGS: tl.constexpr,
                  P_PADDED: tl.constexpr, Q_PADDED: tl.constexpr, DRAFT: tl.constexpr):  # fmt: skip
    """Grid (B · K · L, S): one split of Σ min(p, z q), z on the grid."""
    place, split = tl.program_id(0), tl.program_id(1)
    S = tl.num_programs(1)
    path, i = place // L, place % L
    b, k = path // K, path % K
    if _owned(tokens, lengths, b, k, i, K, L, eos, n_eos, KP, LP) != 0:
        p_row = _row(p_rows, path * (L + 1) + i, P_PADDED)
        zero = tl.arange(0, 1)
        one_row = zero + p_row
        scale = row_scale(p_temps, p_temp, one_row, zero == 0, P_FLAGS)
        top, log_sum, edge, edge_id, _status = combine_partials(
            p_partials, p_plane, one_row, zero == 0, scale, p_edges, p_edge_ids, S, SP,
            P_FLAGS)  # fmt: skip
        x, ids = load_scores(p_logits, p_stride, p_masks, p_mask_stride, p_words, p_mask_rows,
                             p_row, split * NW, vocab, NW, P_FLAGS)  # fmt: skip
        good = kept(x, ids, edge[:, None], edge_id[:, None]) & (x > float("-inf"))
        p = tl.where(good, tl.exp((x - top[:, None]) * scale[:, None] - log_sum[:, None]), 0.0)
        token = tl.load(tokens + path * L + i)
        q = (ids == token).to(tl.float32)
        if DRAFT:
            q_row = _row(q_rows, place, Q_PADDED)
            if q_row >= 0:
                one_row = zero + q_row
                scale = row_scale(q_temps, q_temp, one_row, zero == 0, Q_FLAGS)
                top, log_sum, edge, edge_id, _status = combine_partials(
                    q_partials, q_plane, one_row, zero == 0, scale, q_edges, q_edge_ids, S, SP,
                    Q_FLAGS)  # fmt: skip
                x, ids = load_scores(q_logits, q_stride, q_masks, q_mask_stride, q_words,
                                     q_mask_rows, q_row, split * NW, vocab, NW,
                                     Q_FLAGS)  # fmt: skip
                good = kept(x, ids, edge[:, None], edge_id[:, None]) & (x > float("-inf"))
                q = tl.where(good, tl.exp((x - top[:, None]) * scale[:, None] - log_sum[:, None]),
                             0.0)  # fmt: skip
        base = curves + (place.to(tl.int64) * S + split) * _J
        for j in range(_J):
            z = tl.exp2((j - 16) * 0.5)
            tl.store(base + j, tl.sum(tl.sum(tl.minimum(p, z * q), axis=1), axis=0))


@triton.jit
def plan_kernel(p_logits, p_stride, p_masks, p_mask_stride, p_words, p_mask_rows, p_temps,
                p_temp, p_edges, p_edge_ids, q_logits, q_stride, q_masks, q_mask_stride,
                q_words, q_mask_rows, q_temps, q_temp, q_edges, q_edge_ids, vocab, tokens,
                lengths, K, L, p_rows, q_rows, p_partials, q_partials, p_plane, q_plane, eos,
                n_eos, S, curves, p_numbers, p_ids, q_numbers, q_ids, weights, kinds, knots,
                turns, alive_out, status_out, KP: tl.constexpr, SP: tl.constexpr,
                P_FLAGS: tl.constexpr, Q_FLAGS: tl.constexpr, P_PADDED: tl.constexpr,
                Q_PADDED: tl.constexpr, DRAFT: tl.constexpr, ROUNDS: tl.constexpr):  # fmt: skip
    """Grid (B): one depth after the other, one node after the other, K paths abreast."""
    b = tl.program_id(0)
    k = tl.arange(0, KP)
    other = tl.arange(0, KP)
    path = b * K + k
    inside = k < K
    n = tl.load(lengths + path, mask=inside, other=-1)
    wrong = tl.max((inside & ((n < 0) | (n > L))).to(tl.int32), axis=0)
    stopped = k * 0  # the depth at which a path's end token was written, 0: none
    for i in range(L):
        use = inside & (i < n) & (stopped == 0)
        token = tl.load(tokens + path * L + i, mask=use, other=0)
        wrong += tl.max((use & ((token < 0) | (token >= vocab))).to(tl.int32), axis=0)
        for e in range(n_eos):
            hit = use & (token == tl.load(eos + e))
            stopped = tl.where(hit, i + 1, stopped)
    n = tl.where(stopped > 0, stopped, n)
    n = tl.where(wrong > 0, -1, n)
    # The lengths once more, along the other axis of a K x K tile.
    n_other = tl.sum(tl.where(k[:, None] == other[None, :], n[:, None], 0), axis=0)
    same = (inside[:, None] & (other < K)[None, :]).to(tl.int32)
    weight = tl.where(inside, 1.0, 0.0)
    code = k * 0
    illegal = k * 0
    tl.store(alive_out + b * (L + 1), 0.0)
    for i in range(L + 1):
        present = inside & (n >= i)
        goes_on = inside & (n > i)
        stop = present & (stopped == i) & (stopped > 0)
        # numbers of the rows, and p / q at the drafted tokens
        use = present & (stop == 0)
        place = path * (L + 1) + i
        p_row = place
        if not P_PADDED:
            p_row = tl.load(p_rows + place, mask=use, other=0)
        scale = row_scale(p_temps, p_temp, p_row, use, P_FLAGS)
        top, log_sum, edge, edge_id, status = combine_partials(
            p_partials, p_plane, p_row, use, scale, p_edges, p_edge_ids, S, SP,
            P_FLAGS)  # fmt: skip
        tl.store(p_numbers + place * 4, top, mask=use)
        tl.store(p_numbers + place * 4 + 1, scale, mask=use)
        tl.store(p_numbers + place * 4 + 2, log_sum, mask=use)
        tl.store(p_numbers + place * 4 + 3, edge, mask=use)
        tl.store(p_ids + place, edge_id, mask=use)
        code = tl.maximum(code, status)
        token = tl.load(tokens + path * L + i, mask=goes_on, other=0)
        token = tl.where(goes_on & (token >= 0) & (token < vocab), token, 0)
        x = score_at(p_logits, p_stride, p_masks, p_mask_stride, p_words, p_mask_rows, p_row,
                     token, goes_on, P_FLAGS)  # fmt: skip
        legal = kept(x, token, edge, edge_id) & (x > float("-inf"))
        log_ratio = tl.where(legal, (x - top) * scale - log_sum, float("-inf"))
        if DRAFT:
            cell = path * L + i
            q_row = cell
            if not Q_PADDED:
                q_row = tl.load(q_rows + cell, mask=goes_on, other=-1)
            dense = goes_on & (q_row >= 0)
            scale = row_scale(q_temps, q_temp, q_row, dense, Q_FLAGS)
            top, log_sum, edge, edge_id, status = combine_partials(
                q_partials, q_plane, q_row, dense, scale, q_edges, q_edge_ids, S, SP,
                Q_FLAGS)  # fmt: skip
            tl.store(q_numbers + cell * 4, top, mask=dense)
            tl.store(q_numbers + cell * 4 + 1, scale, mask=dense)
            tl.store(q_numbers + cell * 4 + 2, log_sum, mask=dense)
            tl.store(q_numbers + cell * 4 + 3, edge, mask=dense)
            tl.store(q_ids + cell, edge_id, mask=dense)
            x = score_at(q_logits, q_stride, q_masks, q_mask_stride, q_words, q_mask_rows, q_row,
                         token, dense, Q_FLAGS)  # fmt: skip
            legal = kept(x, token, edge, edge_id) & (x > float("-inf"))
            illegal = tl.maximum(illegal, (dense & (legal == 0) & (status == 0)).to(tl.int32))
            log_ratio -= tl.where(dense & legal, (x - top) * scale - log_sum, 0.0)
            code = tl.maximum(code, status)
        ratio = tl.exp(tl.minimum(log_ratio, 80.0))
        # who owns what
        rank = tl.where(n_other > i, other, tl.where(n_other == i, other + KP, _NONE))
        owner = tl.min(tl.where(same != 0, rank[None, :], _NONE), axis=1)
        owner = tl.where(owner >= KP, owner - KP, owner)
        owns = present & (owner == k)
        m = tl.sum(tl.where(same != 0, (n_other > i).to(tl.int32)[None, :], 0), axis=1)
        kind = tl.where(owns, tl.where(stop, -2, m), -1)
        tl.store(weights + place, weight, mask=inside)
        tl.store(kinds + place, kind, mask=inside)
        if i < L:
            cell = path * L + i
            waiting = (owns & goes_on & (weight > _TINY)).to(tl.int32)
            turn_of = k * 0 - 1
            z1_of = weight * 0.0
            z2_of = weight * 0.0
            children = weight * 0.0
            alive = tl.sum(weight * 0.0, axis=0) + 1.0
            g = alive
            left = tl.max(waiting, axis=0)
            turn = 0
            while (left > 0) & (g > _TINY):
                best = tl.max(tl.where(waiting != 0, weight, -1.0), axis=0)
                chosen = tl.min(tl.where((waiting != 0) & (weight == best), k, _NONE), axis=0)
                waiting = tl.where(k == chosen, 0, waiting)
                left = tl.max(waiting, axis=0)
                many = tl.sum(tl.where(k == chosen, m, 0), axis=0)
                s = tl.arange(0, SP)
                j = tl.arange(0, 32)
                base = ((b * K + chosen) * L + i).to(tl.int64) * S
                parts = tl.load(curves + (base + s)[:, None] * _J + j[None, :],
                                mask=(s < S)[:, None], other=0.0)  # fmt: skip
                z1, z2, taken = solve(tl.sum(parts, axis=0), many, g / best, ROUNDS)
                turn_of = tl.where(k == chosen, turn, turn_of)
                z1_of = tl.where(k == chosen, z1, z1_of)
                z2_of = tl.where(k == chosen, z2, z2_of)
                turn += 1
                # the node's drafts, round by round
                with_chosen = tl.sum(tl.where(other[None, :] == chosen, same, 0), axis=1)
                through = goes_on & (with_chosen != 0)
                both = tl.minimum(ratio / z2, 1.0)
                double = z1 > z2
                first = (ratio - z2) / tl.where(double, z1 - z2, 1.0)
                first = tl.where(double, tl.minimum(tl.maximum(first, 0.0), 1.0), both)
                for r in range(2):
                    later = (both - first) / tl.where(first < 1.0, 1.0 - first, 1.0)
                    a = tl.where(r == 0, first, tl.minimum(tl.maximum(later, 0.0), 1.0))
                    a = tl.where(through, a, 0.0)
                    a_other = tl.sum(
                        tl.where(k[:, None] == other[None, :], a[:, None], 0.0), axis=0
                    )
                    # Products of 1 - a in log space; 1e-38 stands for 0.
                    logs = tl.log(tl.maximum(1.0 - a_other, 1.0e-38))
                    before = tl.sum(
                        tl.where(other[None, :] < k[:, None], logs[None, :], 0.0), axis=1
                    )
                    children += alive * tl.exp(before) * a
                    alive *= tl.exp(tl.sum(logs, axis=0))
                    alive = tl.where(alive < 1.0e-30, 0.0, alive)
                g *= power(1.0 - taken, many)
            tl.store(turns + cell, turn_of, mask=inside)
            tl.store(knots + cell * 2, z1_of, mask=inside)
            tl.store(knots + cell * 2 + 1, z2_of, mask=inside)
            tl.store(alive_out + b * (L + 1) + i + 1, alive)
            # the children's nodes
            token_other = tl.load(tokens + (b * K + other) * L + i,
                                  mask=(other < K) & (n_other > i), other=-1)  # fmt: skip
            equal = goes_on[:, None] & (n_other > i)[None, :]
            equal = equal & (token[:, None] == token_other[None, :])
            same = tl.where(equal, same, 0)
            across = tl.sum(tl.where(k[:, None] == other[None, :], children[:, None], 0.0), axis=0)
            weight = tl.sum(tl.where(same != 0, across[None, :], 0.0), axis=1)
    result = tl.max(code, axis=0)
    result = tl.where((result == 0) & (tl.max(illegal, axis=0) > 0), _ILLEGAL, result)
    tl.store(status_out + b, tl.where(wrong > 0, _BAD_TOKEN, result))


@triton.jit
def _pair(p_logits, p_stride, p_masks, p_mask_stride, p_words, p_mask_rows, q_logits, q_stride,
          q_masks, q_mask_stride, q_words, q_mask_rows, vocab, tokens, L, p_rows, q_rows,
          p_numbers, p_ids, q_numbers, q_ids, path, i, split, NW: tl.constexpr,
          P_FLAGS: tl.constexpr, Q_FLAGS: tl.constexpr, P_PADDED: tl.constexpr,
          Q_PADDED: tl.constexpr, DRAFT: tl.constexpr):  # fmt: skip
    """A split of p and of q at a place (i < L) of a path."""
    place = path * (L + 1) + i
    x, ids = load_scores(p_logits, p_stride, p_masks, p_mask_stride, p_words, p_mask_rows,
                         _row(p_rows, place, P_PADDED), split * NW, vocab, NW, P_FLAGS)  # fmt: skip
    p = law_tile(x, ids, p_numbers, p_ids, place)
    cell = path * L + i
    q = (ids == tl.load(tokens + cell)).to(tl.float32)
    if DRAFT:
        q_row = _row(q_rows, cell, Q_PADDED)
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
    # Φ_i, a product from the back: in log space, 1e-38 stands for 0.
    logs = tl.where(i <= L, tl.log(tl.maximum(ratio, 1.0e-38)), 0.0)
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
                         _row(p_rows, place, P_PADDED), split * NW, vocab, NW, P_FLAGS)  # fmt: skip
    p = law_tile(x, ids, p_numbers, p_ids, place)
    mass = tl.load(weights + place) * p
    if served:
        q = (ids == tl.load(tokens + cell)).to(tl.float32)
        if DRAFT:
            q_row = _row(q_rows, cell, Q_PADDED)
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
    eos = (filler, 0) if eos_ids is None else (eos_ids.to(torch.int32), eos_ids.numel())
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
