"""The same in four launches: row sums, weights, residual sums, exit and token.

1. `row_sums_kernel`, grid (target rows + draft rows, S): partial sums of every row in use.
2. `weights_kernel`, grid (B): each row's numbers, log w of the path, the uniforms.
3. `residual_sums_kernel`, grid (B · L, S): Σ (w p - q)₊ of the places whose test can pass.
4. `exit_kernel`, grid (B): τ, then the split that holds u · total, then one scan of that split.

Inverting the distribution needs no second pass over the row: the sums of its splits are known.
Scratch per place: (max, 1/T, log Σ, edge) and the edge's id, float32 and int32.
"""

# Device code is untyped: its arguments are pointers and tensors of Triton.
# mypy: allow-untyped-defs, allow-incomplete-defs

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from structspec.kernels.launch import launch, next_power, split_words, splits
from structspec.kernels.logit_rows import LogitRows
from structspec.kernels.philox import Noise
from structspec.kernels.triton_rows import (
    combine_partials,
    first_above,
    kept,
    load_scores,
    partial_sums,
    prefix_sums,
    row_arguments,
    row_scale,
    score_at,
    uniform53,
)
from structspec.kernels.verdict import Verdict, noise_arguments

__all__ = ["launch_row_sums", "law_tile", "row_sums_kernel", "triton_block_verify"]

_EMPTY, _ILLEGAL, _NO_MASS = tl.constexpr(1), tl.constexpr(4), tl.constexpr(8)
_BAD_TOKEN = tl.constexpr(16)
_NONE = tl.constexpr(2**31 - 1)
_ACCEPT, _EMIT = tl.constexpr(2 << 24), tl.constexpr(3 << 24)


@triton.jit
def row_sums_kernel(p_logits, p_stride, p_masks, p_mask_stride, p_words, p_mask_rows, p_temps,
                    p_temp, p_edges, p_edge_ids, q_logits, q_stride, q_masks, q_mask_stride,
                    q_words, q_mask_rows, q_temps, q_temp, q_edges, q_edge_ids, vocab, lengths,
                    places, p_rows, p_out, q_out, p_plane, q_plane, NW: tl.constexpr,
                    P_FLAGS: tl.constexpr, Q_FLAGS: tl.constexpr, P_PADDED: tl.constexpr,
                    Q_PADDED: tl.constexpr, DRAFT: tl.constexpr):  # fmt: skip
    """Grid (R_p + R_q, S). Padded layouts know which rows lie beyond a draft and skip them."""
    row, split = tl.program_id(0), tl.program_id(1)
    S = tl.num_programs(1)
    if row < p_rows:
        use = True
        if P_PADDED:
            use = row % (places + 1) <= tl.load(lengths + row // (places + 1))
        if use:
            partial_sums(p_logits, p_stride, p_masks, p_mask_stride, p_words, p_mask_rows,
                         p_temps, p_temp, p_edges, p_edge_ids, row, split, vocab, p_out,
                         row.to(tl.int64) * S + split, p_plane, NW, P_FLAGS)  # fmt: skip
    else:
        if DRAFT:
            row -= p_rows
            use = True
            if Q_PADDED:
                use = row % places < tl.load(lengths + row // places)
            if use:
                partial_sums(q_logits, q_stride, q_masks, q_mask_stride, q_words, q_mask_rows,
                             q_temps, q_temp, q_edges, q_edge_ids, row, split, vocab, q_out,
                             row.to(tl.int64) * S + split, q_plane, NW, Q_FLAGS)  # fmt: skip


@triton.jit
def law_tile(x, ids, numbers, edge_id, place):
    """Probabilities of a tile of logits; `numbers` and `edge_id` belong to `place`."""
    top = tl.load(numbers + place * 4)
    scale = tl.load(numbers + place * 4 + 1)
    log_sum = tl.load(numbers + place * 4 + 2)
    edge = tl.load(numbers + place * 4 + 3)
    keep = kept(x, ids, edge, tl.load(edge_id + place)) & (x > float("-inf"))
    return tl.where(keep, tl.exp((x - top) * scale - log_sum), 0.0)


@triton.jit
def _places(rows, b, i, width, use, PADDED: tl.constexpr):
    if PADDED:
        return b * width + i
    return tl.load(rows + b * width + i, mask=use, other=0)


@triton.jit
def weights_kernel(p_logits, p_stride, p_masks, p_mask_stride, p_words, p_mask_rows, p_temps,
                   p_temp, p_edges, p_edge_ids, q_logits, q_stride, q_masks, q_mask_stride,
                   q_words, q_mask_rows, q_temps, q_temp, q_edges, q_edge_ids, vocab, tokens,
                   lengths, L, p_rows, q_rows, p_partials, q_partials, p_plane, q_plane, S,
                   given, seed, requests, steps, eos, n_eos, p_numbers, p_ids, q_numbers, q_ids,
                   log_w, uniforms, counts, status_out, LP: tl.constexpr, SP: tl.constexpr,
                   P_FLAGS: tl.constexpr, Q_FLAGS: tl.constexpr, P_PADDED: tl.constexpr,
                   Q_PADDED: tl.constexpr, DRAFT: tl.constexpr, GIVEN: tl.constexpr):  # fmt: skip
    """Grid (B): numbers of the rows in use, log w_0..w_n, uniforms; counts = (n, ended)."""
    b = tl.program_id(0)
    i = tl.arange(0, LP)
    n = tl.load(lengths + b)
    wrong = (n < 0) | (n > L)
    n = tl.where(wrong, 0, n)
    token = tl.load(tokens + b * L + i, mask=i < n, other=0)
    outside = tl.max(((token < 0) | (token >= vocab)).to(tl.int32), axis=0)
    wrong = wrong | (outside != 0)
    n = tl.where(wrong, 0, n)
    is_end = i < 0
    for e in range(n_eos):
        is_end = is_end | (token == tl.load(eos + e))
    first_end = tl.min(tl.where(is_end & (i < n), i, _NONE), axis=0)
    ended = first_end < n
    n = tl.where(ended, first_end + 1, n)
    token = tl.where(i < n, token, 0)
    # the target's rows
    # Integer bounds: the interpreter turns a vector of Booleans & a Boolean into integers.
    use = i < tl.where(wrong, 0, n + tl.where(ended, 0, 1))
    p_row = _places(p_rows, b, i, L + 1, use, P_PADDED)
    scale = row_scale(p_temps, p_temp, p_row, use, P_FLAGS)
    top, log_sum, edge, edge_id, status = combine_partials(
        p_partials, p_plane, p_row, use, scale, p_edges, p_edge_ids, S, SP, P_FLAGS)  # fmt: skip
    cell = b * (L + 1) + i
    tl.store(p_numbers + cell * 4, top, mask=use)
    tl.store(p_numbers + cell * 4 + 1, scale, mask=use)
    tl.store(p_numbers + cell * 4 + 2, log_sum, mask=use)
    tl.store(p_numbers + cell * 4 + 3, edge, mask=use)
    tl.store(p_ids + cell, edge_id, mask=use)
    inside = i < n
    x = score_at(p_logits, p_stride, p_masks, p_mask_stride, p_words, p_mask_rows, p_row, token,
                 inside, P_FLAGS)  # fmt: skip
    legal = kept(x, token, edge, edge_id) & (x > float("-inf"))
    ratio = tl.where(legal, (x - top) * scale - log_sum, float("-inf")).to(tl.float64)
    illegal = i < 0
    if DRAFT:
        q_row = _places(q_rows, b, i, L, inside, Q_PADDED)
        dense = inside & (q_row >= 0)
        scale = row_scale(q_temps, q_temp, q_row, dense, Q_FLAGS)
        top, log_sum, edge, edge_id, q_status = combine_partials(
            q_partials, q_plane, q_row, dense, scale, q_edges, q_edge_ids, S, SP,
            Q_FLAGS)  # fmt: skip
        cell = b * L + i
        tl.store(q_numbers + cell * 4, top, mask=inside)
        tl.store(q_numbers + cell * 4 + 1, scale, mask=inside)
        tl.store(q_numbers + cell * 4 + 2, log_sum, mask=inside)
        tl.store(q_numbers + cell * 4 + 3, edge, mask=inside)
        tl.store(q_ids + cell, edge_id, mask=inside)
        x = score_at(q_logits, q_stride, q_masks, q_mask_stride, q_words, q_mask_rows, q_row,
                     token, dense, Q_FLAGS)  # fmt: skip
        legal = kept(x, token, edge, edge_id) & (x > float("-inf"))
        illegal = dense & (legal == 0) & (q_status == 0)
        q_log = tl.where(legal, (x - top) * scale - log_sum, 0.0).to(tl.float64)
        ratio = ratio - tl.where(dense, q_log, 0.0)
        status = tl.maximum(status, q_status)
    # log w_i = min over j <= i of the sum of the ratios behind j: prefix sums in float64.
    ratio = tl.minimum(tl.maximum(ratio, -1.0e5), 1.0e5)
    total = prefix_sums(tl.where(inside, ratio, 0.0))
    before = total - tl.where(inside, ratio, 0.0)
    earlier = tl.where(i[None, :] <= i[:, None], before[None, :], -1.0e30)
    weight = tl.minimum(total - tl.max(earlier, axis=1), 0.0)
    base = log_w + b * (L + 1)
    tl.store(base + i + 1, weight, mask=inside)
    tl.store(base + i, tl.zeros_like(weight), mask=i == 0)
    if GIVEN:
        u = tl.load(given + b * (L + 1) + i, mask=i <= L, other=0.0).to(tl.float64)
    else:
        request, step = tl.load(requests + b), tl.load(steps + b)
        name = tl.full([], _ACCEPT, tl.int32)
        u = uniform53(seed, request, step, name, i)
        name = tl.full([], _EMIT, tl.int32)
        u = tl.where(i == L, uniform53(seed, request, step, name, tl.zeros_like(i)), u)
    tl.store(uniforms + b * (L + 1) + i, u, mask=i <= L)
    tl.store(counts + b * 2, n)
    tl.store(counts + b * 2 + 1, ended.to(tl.int32))
    code = tl.max(status, axis=0)
    some_illegal = tl.max(illegal.to(tl.int32), axis=0) != 0
    code = tl.where((code == 0) & some_illegal, _ILLEGAL, code)
    tl.store(status_out + b, tl.where(wrong, _BAD_TOKEN, code))


@triton.jit
def residual_sums_kernel(p_logits, p_stride, p_masks, p_mask_stride, p_words, p_mask_rows,
                         q_logits, q_stride, q_masks, q_mask_stride, q_words, q_mask_rows, vocab,
                         tokens, L, p_rows, q_rows, p_numbers, p_ids, q_numbers, q_ids, log_w,
                         uniforms, counts, sums, NW: tl.constexpr, P_FLAGS: tl.constexpr,
                         Q_FLAGS: tl.constexpr, P_PADDED: tl.constexpr, Q_PADDED: tl.constexpr,
                         DRAFT: tl.constexpr):  # fmt: skip
    """Grid (B · L, S): one split of Σ (w p - q)₊ of a place that may be the exit."""
    b, i = tl.program_id(0) // L, tl.program_id(0) % L
    split = tl.program_id(1)
    log_weight = tl.load(log_w + b * (L + 1) + i, mask=i < tl.load(counts + b * 2), other=-1.0e6)
    weight = tl.exp(log_weight)
    if i < tl.load(counts + b * 2):
        u = tl.load(uniforms + b * (L + 1) + i - 1, mask=i > 0, other=-1.0)
        if u < weight:
            p_row = _places(p_rows, b, i, L + 1, True, P_PADDED)
            x, ids = load_scores(p_logits, p_stride, p_masks, p_mask_stride, p_words, p_mask_rows,
                                 p_row, split * NW, vocab, NW, P_FLAGS)  # fmt: skip
            p = law_tile(x, ids, p_numbers, p_ids, b * (L + 1) + i)
            q = (ids == tl.load(tokens + b * L + i)).to(tl.float32)
            if DRAFT:
                q_row = _places(q_rows, b, i, L, True, Q_PADDED)
                if q_row >= 0:
                    x, ids = load_scores(q_logits, q_stride, q_masks, q_mask_stride, q_words,
                                         q_mask_rows, q_row, split * NW, vocab, NW,
                                         Q_FLAGS)  # fmt: skip
                    q = law_tile(x, ids, q_numbers, q_ids, b * L + i)
            mass = tl.maximum(weight.to(tl.float32) * p - q, 0.0)
            tl.store(sums + tl.program_id(0).to(tl.int64) * tl.num_programs(1) + split,
                     tl.sum(tl.sum(mass, axis=1), axis=0))  # fmt: skip


@triton.jit
def exit_kernel(p_logits, p_stride, p_masks, p_mask_stride, p_words, p_mask_rows,
                q_logits, q_stride, q_masks, q_mask_stride, q_words, q_mask_rows, vocab,
                tokens, L, p_rows, q_rows, p_partials, p_plane, S, p_numbers, p_ids, q_numbers,
                q_ids, log_w, uniforms, counts, status_out, sums, accepted_out, token_out,
                path_out, thresholds, NW: tl.constexpr, LP: tl.constexpr, SP: tl.constexpr,
                P_FLAGS: tl.constexpr, Q_FLAGS: tl.constexpr, P_PADDED: tl.constexpr,
                Q_PADDED: tl.constexpr, DRAFT: tl.constexpr):  # fmt: skip
    """Grid (B): the largest passing place, then its token."""
    b = tl.program_id(0)
    i = tl.arange(0, LP)
    s = tl.arange(0, SP)
    n = tl.load(counts + b * 2)
    ended = tl.load(counts + b * 2 + 1) != 0
    status = tl.load(status_out + b)
    log_weight = tl.load(log_w + b * (L + 1) + i, mask=i <= n, other=-1.0e6)
    weight = tl.exp(log_weight)
    u = tl.load(uniforms + b * (L + 1) + i - 1, mask=(i > 0) & (i <= n), other=1.0)
    scanned = (i < n) & ((i == 0) | (u < weight))
    cell = (b * L + i).to(tl.int64)[:, None] * S + s[None, :]
    parts = tl.load(sums + cell, mask=scanned[:, None] & (s < S)[None, :], other=0.0)
    r = tl.sum(parts.to(tl.float64), axis=1)
    room = r + (1.0 - weight)
    h = tl.where(room > 0.0, r / tl.where(room > 0.0, room, 1.0), 1.0)
    h = tl.where(i == n, weight, tl.where(scanned, h, 0.0))
    tl.store(thresholds + b * L + i - 1, tl.where(i <= n, h, 0.0).to(tl.float32),
             mask=(i > 0) & (i <= L))  # fmt: skip
    tau = tl.max(tl.where((i > 0) & (i <= n) & (u < h), i, 0), axis=0)
    over = ended & (tau == n)
    token = -1
    if (over == 0) & (status == 0):
        draw = tl.load(uniforms + b * (L + 1) + L)
        whole = tau == n
        p_row = _places(p_rows, b, tau, L + 1, True, P_PADDED)
        place = b * (L + 1) + tau
        if whole:
            # The row's own partial sums, rescaled to its law.
            at = p_row.to(tl.int64) * S + s
            tops = tl.load(p_partials + at, mask=s < S, other=float("-inf"))
            plane = p_plane * 1
            if P_FLAGS & 8:
                plane = tl.where(tl.load(p_numbers + place * 4 + 3) > float("-inf"),
                                 2 * p_plane, p_plane)  # fmt: skip
            e = tl.load(p_partials + plane + at, mask=s < S, other=0.0)
            scale = tl.load(p_numbers + place * 4 + 1)
            log_sum = tl.load(p_numbers + place * 4 + 2)
            part = e * tl.exp((tops - tl.load(p_numbers + place * 4)) * scale - log_sum)
        else:
            at = (b * L + tau).to(tl.int64) * S + s
            part = tl.load(sums + at, mask=s < S, other=0.0)
        aim = draw * tl.sum(part.to(tl.float64), axis=0)
        first, last, _after = first_above(part, 0.0, aim)
        chosen = tl.where(first < _NONE, first, last)
        running = tl.sum(tl.where(s < chosen, part.to(tl.float64), 0.0), axis=0)
        if chosen >= 0:
            w = tl.sum(tl.where(i == tau, weight, 0.0), axis=0).to(tl.float32)
            x, ids = load_scores(p_logits, p_stride, p_masks, p_mask_stride, p_words, p_mask_rows,
                                 p_row, chosen * NW, vocab, NW, P_FLAGS)  # fmt: skip
            mass = law_tile(x, ids, p_numbers, p_ids, place)
            if whole == 0:
                q = (ids == tl.load(tokens + b * L + tau)).to(tl.float32)
                if DRAFT:
                    q_row = _places(q_rows, b, tau, L, True, Q_PADDED)
                    if q_row >= 0:
                        x, ids = load_scores(q_logits, q_stride, q_masks, q_mask_stride, q_words,
                                             q_mask_rows, q_row, chosen * NW, vocab, NW,
                                             Q_FLAGS)  # fmt: skip
                        q = law_tile(x, ids, q_numbers, q_ids, b * L + tau)
                mass = tl.maximum(w * mass - q, 0.0)
            first, last, _after = first_above(tl.reshape(mass, [NW * 32]), running, aim)
            found = tl.where(first < _NONE, first, last)
            token = tl.where(found < 0, -1, chosen * NW * 32 + found)
        status = tl.where(token < 0, _NO_MASS, status)
    fine = status == 0
    tl.store(accepted_out + b, tl.where(fine, tau, 0))
    tl.store(token_out + b, token)
    tl.store(path_out + b, 0)
    tl.store(status_out + b, status)


def launch_row_sums(
    target: LogitRows,
    draft: LogitRows | None,
    lengths: Tensor,
    places: int,
    padded: tuple[bool, bool],
) -> tuple[Tensor, Tensor]:
    """Launch the first kernel; returns partials [3, R, S] of the target and the draft."""
    target.check_triton()
    vocab, width = target.vocab, splits(target.vocab)
    p_arguments, p_flags = row_arguments(target)
    q_arguments, q_flags = p_arguments, 0
    p_count, q_count = target.logits.shape[0], 0
    if draft is not None:
        draft.check_triton()
        q_arguments, q_flags = row_arguments(draft)
        q_count = draft.logits.shape[0]
    device = target.logits.device
    p_out = torch.empty((3, p_count, width), dtype=torch.float32, device=device)
    q_out = torch.empty((3, q_count, width), dtype=torch.float32, device=device)
    words = split_words(vocab)
    launch(
        row_sums_kernel, (p_count + q_count, width), *p_arguments, *q_arguments, vocab, lengths,
        places, p_count, p_out, q_out, p_count * width, q_count * width,
        num_warps=8 if words >= 128 else 4, NW=words, P_FLAGS=p_flags, Q_FLAGS=q_flags,
        P_PADDED=padded[0], Q_PADDED=padded[1], DRAFT=draft is not None,
    )  # fmt: skip
    return p_out, q_out


def triton_block_verify(
    target: LogitRows,
    draft: LogitRows | None,
    tokens: Tensor,
    lengths: Tensor,
    target_rows: Tensor | None,
    draft_rows: Tensor | None,
    uniforms: Tensor | None,
    noise: Noise | None,
    eos_ids: Tensor | None,
) -> Verdict:
    """`block_verify` on the device."""
    batch, length = tokens.shape
    device, vocab, width = tokens.device, target.vocab, splits(target.vocab)
    p_sums, q_sums = launch_row_sums(
        target, draft, lengths, length, (target_rows is None, draft_rows is None)
    )
    p_arguments, p_flags = row_arguments(target)
    q_arguments, q_flags = (p_arguments, 0) if draft is None else row_arguments(draft)
    filler = tokens
    p_map = filler if target_rows is None else target_rows
    q_map = filler if draft_rows is None else draft_rows
    noise_args, given = noise_arguments(uniforms, noise, filler)

    def scratch(shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        return torch.empty(shape, dtype=dtype, device=device)

    p_numbers = scratch((batch, length + 1, 4), torch.float32)
    p_ids = scratch((batch, length + 1), torch.int32)
    q_numbers = scratch((batch, length, 4), torch.float32)
    q_ids = scratch((batch, length), torch.int32)
    log_w = scratch((batch, length + 1), torch.float64)
    u = scratch((batch, length + 1), torch.float64)
    counts = scratch((batch, 2), torch.int32)
    sums = scratch((batch * length, width), torch.float32)
    out = scratch((4, batch), torch.int32)
    thresholds = scratch((batch, length), torch.float32)
    shared = {
        "P_FLAGS": p_flags, "Q_FLAGS": q_flags, "P_PADDED": target_rows is None,
        "Q_PADDED": draft_rows is None, "DRAFT": draft is not None,
    }  # fmt: skip
    words = split_words(vocab)
    warps = 8 if words >= 128 else 4
    sizes = {"LP": next_power(length + 1), "SP": next_power(width)}
    numbers = (p_numbers, p_ids, q_numbers, q_ids, log_w, u, counts)
    eos = (filler, 0) if eos_ids is None else (eos_ids, eos_ids.numel())
    launch(
        weights_kernel, (batch,), *p_arguments, *q_arguments, vocab, tokens, lengths, length,
        p_map, q_map, p_sums, q_sums, p_sums[0].numel(), q_sums[0].numel(), width, *noise_args,
        *eos, *numbers, out[3], **sizes, **shared, **given,
    )  # fmt: skip
    rows = (*p_arguments[:6], *q_arguments[:6], vocab, tokens, length, p_map, q_map)
    launch(
        residual_sums_kernel, (batch * length, width), *rows, *numbers, sums,
        num_warps=warps, NW=words, **shared,
    )  # fmt: skip
    launch(
        exit_kernel, (batch,), *rows, p_sums, p_sums[0].numel(), width, *numbers, out[3], sums,
        out[0], out[1], out[2], thresholds, num_warps=warps, NW=words, **sizes, **shared,
    )  # fmt: skip
    return Verdict(out[0], out[2], out[1], out[3], thresholds)
