"""The same in whole-tensor torch operations, without waiting for the device.

Loops run over depths, nodes and the solver's steps; everything else is a tensor over the batch.
float32 laws (float64 for float64 logits), float64 from the node sums on.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from structspec.kernels.block_verify.in_torch import (
    cut_lengths,
    draw_uniforms,
    invert,
    place_laws,
)
from structspec.kernels.layered_verify.plan import (
    BISECTIONS,
    DAMPED,
    GRID,
    SLACK,
    TINY,
    LayeredVerdict,
)
from structspec.kernels.logit_rows import LogitRows, Status
from structspec.kernels.philox import Noise

__all__ = ["torch_layered_verify"]


def torch_layered_verify(
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
    """`layered_verify` on any device."""
    batch, drafts, length = tokens.shape
    device, vocab, wide = tokens.device, target.vocab, torch.float64
    u = draw_uniforms(uniforms, noise, 1)
    n, ended, drafted, bad_path = cut_lengths(tokens, lengths, eos_ids, vocab)
    bad = bad_path.any(dim=1)
    places = torch.arange(length + 1, device=device)
    if target_rows is None:
        target_rows = torch.arange(batch * drafts * (length + 1), device=device)
        target_rows = target_rows.view(batch, drafts, length + 1)
    if draft_rows is None:
        draft_rows = torch.arange(batch * drafts * length, device=device)
        draft_rows = draft_rows.view(batch, drafts, length)
    used = (places < (n + (~ended).long())[..., None]) & ~bad[:, None, None]
    inside = places[:length] < n[..., None]
    p, p_status = place_laws(target, target_rows, used, None, vocab)
    q, q_status = place_laws(draft, draft_rows, inside, drafted, vocab)
    q = q.to(p.dtype)
    p_x = p[:, :, :length].gather(3, drafted[..., None])[..., 0].to(wide)
    q_x = q.gather(3, drafted[..., None])[..., 0].to(wide)
    illegal = (inside & (q_x == 0)).any(dim=2).any(dim=1)
    ratio = torch.where(q_x > 0, p_x / q_x.clamp(min=1e-300), 0.0)
    heads = p[:, :, :length]
    table = torch.stack(
        [torch.minimum(heads, float(z) * q).sum(dim=-1, dtype=wide) for z in GRID], dim=-1
    )

    k = torch.arange(drafts, device=device)
    same = torch.ones(batch, drafts, drafts, dtype=torch.bool, device=device)
    weight = torch.ones(batch, drafts, dtype=wide, device=device)
    f = [torch.zeros(batch, dtype=wide, device=device)]
    g_true = []
    knots = torch.zeros(batch, drafts, length, 2, dtype=wide, device=device)
    turns = torch.full((batch, drafts, length), -1, dtype=torch.int32, device=device)
    masses = []
    for i in range(length + 1):
        present, has = n >= i, n > i
        rank = torch.where(present, k + drafts * (~has).long(), 3 * drafts)
        owner = torch.where(same, rank[:, None, :], 3 * drafts).amin(dim=2) % drafts
        owns = (owner == k) & present
        stop = ended & (n == i)
        m = (same & has[:, None, :]).sum(dim=2)
        mass = weight[..., None].to(p.dtype) * p[:, :, i]
        g = torch.ones(batch, dtype=wide, device=device)
        nominal, alive = g.clone(), g.clone()
        children = torch.zeros_like(weight)
        waiting = owns & has & (weight > TINY)
        for turn in range(drafts if i < length else 0):
            best, _ = torch.where(waiting, weight, -1.0).max(dim=1)
            chosen = torch.where(waiting & (weight == best[:, None]), k, drafts).amin(dim=1)
            serve = (chosen < drafts) & (nominal > TINY)
            at = chosen.clamp(max=drafts - 1)
            one = at[:, None]
            waiting = waiting & (k != one)
            w = torch.where(serve, weight.gather(1, one)[:, 0], 1.0)
            many = torch.where(serve, m.gather(1, one)[:, 0], 1)
            row = table[:, :, i].gather(1, one[..., None].expand(-1, 1, len(GRID)))[:, 0]
            scale = torch.where(serve, nominal, 1.0) / w
            z1, z2, taken = _solve(row, many, scale, rounds, drafts)
            pick = serve[:, None] & (k == one)
            knots[:, :, i] = torch.where(
                pick[..., None], torch.stack([z1, z2], -1)[:, None], knots[:, :, i]
            )
            turns[:, :, i] = torch.where(pick, turn, turns[:, :, i])
            # the drafts of the node, round by round
            through = same.gather(1, one[..., None].expand(-1, 1, drafts))[:, 0] & has
            through = through & serve[:, None]
            t1, t2 = _tents(ratio[:, :, i], torch.ones_like(w)[:, None], z1[:, None], z2[:, None])
            for chance in (t1, t2 / torch.where(t1 < 1, 1 - t1, 1.0)):
                a = torch.where(through, chance, 0.0)
                kept = (1.0 - a).cumprod(dim=1)
                before = torch.cat([torch.ones_like(kept[:, :1]), kept[:, :-1]], dim=1)
                children = children + alive[:, None] * before * a
                alive = alive * kept[:, -1]
            # the true sums, and what they take from the node
            here = at[:, None, None].expand(-1, 1, vocab)
            p_row, q_row = p[:, :, i].gather(1, here)[:, 0], q[:, :, i].gather(1, here)[:, 0]
            q1, q2 = _tents(p_row, q_row, z1[:, None].to(p.dtype), z2[:, None].to(p.dtype))
            b1 = q1.sum(dim=-1, dtype=wide)
            b2 = (b1 + q2.sum(dim=-1, dtype=wide)).clamp(max=1.0)
            first = g * _slope(torch.ones_like(b1), 1 - b1, many, drafts)
            second = g * _slope(1 - b1, 1 - b2, many, drafts)
            leaves = first[:, None].to(p.dtype) * q1 + second[:, None].to(p.dtype) * q2
            mass = mass - torch.where(pick[..., None], leaves[:, None], 0.0)
            g = torch.where(serve, g * (1 - b2) ** many, g)
            nominal = torch.where(serve, nominal * (1 - taken) ** many, nominal)
        mass = torch.where((owns & ~stop)[..., None], mass.clamp(min=0.0), 0.0)
        ending = torch.where(owns & stop, weight, 0.0)[..., None].to(p.dtype)
        masses.append(torch.cat([mass, ending], dim=-1).flatten(1))
        g_true.append(g)
        if i < length:
            f.append(alive)
            token = drafted[:, :, i]
            both = has[:, :, None] & has[:, None, :]
            same = same & both & (token[:, :, None] == token[:, None, :])
            weight = torch.where(same, children[:, None, :], 0.0).sum(dim=2)
    ratios = torch.stack(f, dim=1) / torch.stack(g_true, dim=1)
    ratios = torch.where(torch.stack(g_true, dim=1) > 0, ratios, 1.0).clamp(max=1.0)
    thresholds = ratios.flip(1).cumprod(dim=1).flip(1)
    depth = torch.where(u[:, :1] >= thresholds, places, 0).amax(dim=1)
    stacked = torch.stack(masses, dim=1)
    chosen_mass = stacked.gather(1, depth[:, None, None].expand(-1, 1, stacked.shape[2]))[:, 0]
    cell = invert(chosen_mass, u[:, 1])
    column = cell % (vocab + 1)
    status = (p_status * used).flatten(1).amax(dim=1)
    status = torch.maximum(status, (q_status * inside).flatten(1).amax(dim=1))
    status = torch.where((status == 0) & illegal, int(Status.ILLEGAL_DRAFT), status)
    status = torch.where((status == 0) & (cell < 0), int(Status.NO_MASS), status)
    status = torch.where(bad, int(Status.BAD_TOKEN), status)
    fine = status == 0
    return LayeredVerdict(
        torch.where(fine, depth, 0).to(torch.int32),
        torch.where(fine, cell // (vocab + 1), 0).to(torch.int32),
        torch.where(fine & (column < vocab), column, -1).to(torch.int32),
        status.to(torch.int32),
        thresholds,
        knots,
        turns,
    )


def _tents(p: Tensor, q: Tensor, z1: Tensor, z2: Tensor) -> tuple[Tensor, Tensor]:
    """q t1 and q t2 without dividing by q."""
    both = torch.minimum(p, z2 * q) / z2
    double = z1 > z2
    gap = torch.where(double, z1 - z2, 1.0)
    first = (torch.minimum(p, z1 * q) - torch.minimum(p, z2 * q)) / gap
    first = torch.where(double, torch.minimum(first.clamp(min=0.0), both), both)
    return first, both - first


def _slope(a: Tensor, b: Tensor, m: Tensor, most: int) -> Tensor:
    total, power = torch.ones_like(a), torch.ones_like(a)
    for j in range(1, most):
        power = power * b
        total = torch.where(j < m, total * a + power, total)
    return total


def _cell(z: Tensor, grid: Tensor) -> Tensor:
    cell = torch.floor(2 * torch.log2(z.clamp(min=1e-30)) + 16).long()
    return cell.clamp(0, len(grid) - 2)


def _bounds(table: Tensor, z: Tensor, grid: Tensor) -> tuple[Tensor, Tensor]:
    """Lower and upper bounds of M(z), as `plan.below` and `plan.above`."""

    def value(j: Tensor) -> Tensor:
        return table.gather(1, j.clamp(0, len(grid) - 1)[:, None])[:, 0]

    def place(j: Tensor) -> Tensor:
        return grid[j.clamp(0, len(grid) - 1)]

    j = _cell(z, grid)
    chord = value(j) + (z - place(j)) / (place(j + 1) - place(j)) * (value(j + 1) - value(j))
    low = torch.where(z <= grid[0], table[:, 0] * z / grid[0], chord)
    low = torch.where(z >= grid[-1], table[:, -1], low)
    high = z.clamp(max=1.0)
    left = (value(j) - value(j - 1)) / (place(j) - place((j - 1).clamp(min=0))).clamp(min=1e-30)
    reach = value(j) + left * (z - place(j))
    high = torch.where((j >= 1) & (z >= place(j)), torch.minimum(high, reach), high)
    right = (value(j + 2) - value(j + 1)) / (place(j + 2) - place(j + 1)).clamp(min=1e-30)
    reach = value(j + 1) - right * (place(j + 1) - z)
    high = torch.where(j + 2 < len(grid), torch.minimum(high, reach), high)
    return low * (1.0 - SLACK), high * (1.0 + SLACK)


def _solve(
    table: Tensor, m: Tensor, scale: Tensor, rounds: int, most: int
) -> tuple[Tensor, Tensor, Tensor]:
    """`plan.solve` over the batch."""
    grid = torch.tensor(GRID, dtype=table.dtype, device=table.device)
    one = torch.ones_like(scale)
    alone = m == 1

    def single(k: Tensor) -> Tensor:
        z = k * scale
        return (_bounds(table, z, grid)[0] / z).clamp(max=1.0)

    def taken(k1: Tensor, k2: Tensor) -> tuple[Tensor, Tensor]:
        z1, z2 = k1 * scale, k2 * scale
        low2, high2 = _bounds(table, z2, grid)
        b1 = (_bounds(table, z1, grid)[0] - high2) / (z1 - z2)
        b1 = b1.clamp(0.0, 1.0)
        return b1, torch.maximum(low2 / z2, b1).clamp(max=1.0)

    if rounds == 1 or most == 1:
        low, high = one, m.to(scale.dtype)
        for _ in range(BISECTIONS if most > 1 else 0):
            middle = 0.5 * (low + high)
            fits = middle >= _slope(one, 1 - single(middle), m, most)
            low, high = torch.where(fits, low, middle), torch.where(fits, middle, high)
        k1 = k2 = torch.where(alone, one, high)
        return k1 * scale, k2 * scale, single(k1)
    k1, k2 = 1.0 + 0.7 * (m - 1).to(scale.dtype), 0.5 * one
    k1 = torch.where(alone, 2.0, k1)  # anything: replaced below
    for _ in range(DAMPED):
        b1, b2 = taken(k1, k2)
        k1 = torch.where(alone, 2.0, 0.5 * (k1 + _slope(one, 1 - b1, m, most)))
        k2 = 0.5 * (k2 + _slope(1 - b1, 1 - b2, m, most))
        k2 = torch.minimum(k2, 0.98 * k1).clamp(min=1e-3)
    low, high = one * math.log(0.9), (m / k2).log()
    for _ in range(BISECTIONS):
        middle = 0.5 * (low + high)
        factor = middle.exp()
        b1, b2 = taken(factor * k1, factor * k2)
        fits = factor * k1 >= _slope(one, 1 - b1, m, most)
        fits &= factor * k2 >= _slope(1 - b1, 1 - b2, m, most)
        low, high = torch.where(fits, low, middle), torch.where(fits, middle, high)
    factor = high.exp()
    b2 = torch.where(alone, single(one), taken(factor * k1, factor * k2)[1])
    k1, k2 = torch.where(alone, one, factor * k1), torch.where(alone, one, factor * k2)
    return k1 * scale, k2 * scale, b2
