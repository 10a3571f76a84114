"""Device code of the first half: curves of the nodes, then the plan of a request.

`curves_kernel` sums min(p, z q) at the 32 places of the grid, per node and split. `plan_kernel`
walks a request's tree by depth: it solves for the knots of each node in its turn, weighs the
children, and notes every row's numbers for the kernels behind it (`exit_in_triton`).

A node belongs to its first path that goes on behind it. `kind` [B, K, L + 1] says what a path owns
at a depth: m > 0 drafts that go on, 0 none, -1 no node, -2 a node that ends in an end token.
"""

# Device code is untyped: its arguments are pointers and tensors of Triton.
# mypy: allow-untyped-defs, allow-incomplete-defs

from __future__ import annotations

import triton
import triton.language as tl

from structspec.kernels.layered_verify.plan import TINY
from structspec.kernels.layered_verify.solve_in_triton import power, solve
from structspec.kernels.triton_rows import (
    combine_partials,
    kept,
    load_scores,
    row_scale,
    score_at,
)

__all__ = ["curves_kernel", "plan_kernel", "row_of"]

_ILLEGAL, _BAD_TOKEN = tl.constexpr(4), tl.constexpr(16)
_NONE = tl.constexpr(2**31 - 1)
_J = tl.constexpr(32)
_TINY = tl.constexpr(TINY)


@triton.jit
def row_of(rows, place, PADDED: tl.constexpr):
    """The row of logits of a place: itself in the padded order, else by the map."""
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
        p_row = row_of(p_rows, path * (L + 1) + i, P_PADDED)
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
            q_row = row_of(q_rows, place, Q_PADDED)
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
                    # Products of 1 - a in log space; the smallest float32 stands for 0 (a
                    # smaller constant would be float64 in Triton 3.0).
                    logs = tl.log(tl.maximum(1.0 - a_other, 1.2e-38))
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
