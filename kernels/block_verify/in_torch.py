"""The same in whole-tensor torch operations over the padded batch, without waiting for the device.

Everything is computed in float32 (float64 for float64 logits), masses are summed in float64.
"""

from __future__ import annotations

import torch
from torch import Tensor

from structspec.kernels.logit_rows import LogitRows, Status
from structspec.kernels.masked_softmax_stats.in_torch import torch_stats
from structspec.kernels.philox import Noise
from structspec.kernels.verdict import Verdict

__all__ = ["cut_lengths", "draw_uniforms", "invert", "place_laws", "torch_block_verify"]

_ACCEPT, _EMIT = 2, 3  # verification.randomness.Purpose


def draw_uniforms(uniforms: Tensor | None, noise: Noise | None, tests: int) -> Tensor:
    """float64 [B, tests + 1]: the tests, then the draw of the token."""
    if uniforms is not None:
        return uniforms.double()
    assert noise is not None
    return torch.cat([noise.uniforms(_ACCEPT, tests), noise.uniforms(_EMIT, 1)], dim=1)


def cut_lengths(
    tokens: Tensor, lengths: Tensor, eos_ids: Tensor | None, vocab: int
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Lengths cut behind the first end token, whether one is there, safe tokens, bad drafts.

    Shapes [..., L] and [...]; a bad draft has length 0.
    """
    length = tokens.shape[-1]
    places = torch.arange(length, device=tokens.device)
    inside = places < lengths[..., None]
    bad = (lengths < 0) | (lengths > length)
    bad |= (inside & ((tokens < 0) | (tokens >= vocab))).any(dim=-1)
    inside &= ~bad[..., None]
    ended = torch.zeros_like(bad)
    cut = torch.where(bad, 0, lengths.long())
    if eos_ids is not None and length:
        is_end = inside & torch.isin(tokens, eos_ids)
        ended = is_end.any(dim=-1)
        cut = torch.where(ended, is_end.to(torch.uint8).argmax(dim=-1) + 1, cut)
        inside &= places < cut[..., None]
    return cut, ended, torch.where(inside, tokens, 0).long(), bad


def place_laws(
    rows: LogitRows | None, at: Tensor, used: Tensor, tokens: Tensor | None, vocab: int
) -> tuple[Tensor, Tensor]:
    """Laws [..., V] of places and their statuses [...]; 0 where not `used`.

    at: row numbers, -1 for one-hot places, whose token `tokens` holds.
    """
    if rows is None:
        assert tokens is not None
        law = torch.nn.functional.one_hot(tokens, vocab).to(torch.float64)
        return law * used[..., None], torch.zeros_like(used, dtype=torch.int32)
    stats = torch_stats(rows)
    laws = stats.probabilities(rows)
    hot = at < 0
    index = torch.where(used & ~hot, at.long(), 0).clamp(max=laws.shape[0] - 1)
    law, status = laws[index], torch.where(used & ~hot, stats.status[index], 0)
    if tokens is not None:
        one_hot = torch.nn.functional.one_hot(tokens, vocab).to(law.dtype)
        law = torch.where(hot[..., None], one_hot, law)
    return torch.where(used[..., None], law, 0.0), status


def invert(mass: Tensor, uniforms: Tensor) -> Tensor:
    """Draw a column from each row of unnormalised mass [B, N]; -1 where there is none."""
    running = mass.double().cumsum(dim=-1)
    aim = uniforms * running[:, -1]
    some = mass > 0
    above = some & (running > aim[:, None])
    last = mass.shape[1] - 1 - some.flip(-1).to(torch.uint8).argmax(dim=-1)
    column = torch.where(above.any(dim=-1), above.to(torch.uint8).argmax(dim=-1), last)
    return torch.where(some.any(dim=-1), column, -1)


def torch_block_verify(
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
    """`block_verify` on any device."""
    batch, length = tokens.shape
    device, vocab = tokens.device, target.vocab
    u = draw_uniforms(uniforms, noise, length)
    n, ended, drafted, bad = cut_lengths(tokens, lengths, eos_ids, vocab)
    places = torch.arange(length + 1, device=device)
    if target_rows is None:
        target_rows = torch.arange(batch * (length + 1), device=device).view(batch, length + 1)
    if draft_rows is None:
        draft_rows = torch.arange(batch * length, device=device).view(batch, length)
    used = (places < (n + (~ended).long())[:, None]) & ~bad[:, None]
    inside = places[:length] < n[:, None]
    p, p_status = place_laws(target, target_rows, used, None, vocab)
    q, q_status = place_laws(draft, draft_rows, inside, drafted, vocab)
    p_x = p[:, :length].gather(2, drafted[..., None])[..., 0].double()
    q_x = q.gather(2, drafted[..., None])[..., 0].double()
    illegal = (inside & (q_x == 0)).any(dim=1)
    # p = 0: an illegal token is never kept, whatever q is.
    ratio = torch.where(inside & (p_x > 0) & (q_x > 0), p_x / q_x.clamp(min=1e-300), 0.0)
    logs = torch.where(inside, ratio.log(), 0.0)
    columns = [torch.zeros(batch, dtype=torch.float64, device=device)]
    for i in range(length):
        columns.append((columns[-1] + logs[:, i]).clamp(max=0.0))
    log_w = torch.stack(columns, dim=1)
    w = log_w.exp()
    full = torch.cat([q, torch.zeros_like(p[:, :1], dtype=q.dtype)], dim=1)
    mass = torch.where(
        places[None, :, None] < n[:, None, None],
        (w[..., None].to(p.dtype) * p - full).clamp(min=0.0),
        p,
    )
    r = mass.sum(dim=-1, dtype=torch.float64)
    room = r - torch.expm1(log_w)
    h = torch.where(room > 0, r / room, 1.0)
    h = torch.where(places < n[:, None], h, torch.where(places == n[:, None], w, 0.0))
    passed = (u[:, :length] < h[:, 1:]) & inside
    accepted = torch.where(passed, places[1:], 0).amax(dim=1) if length else torch.zeros_like(n)
    chosen = mass.gather(1, accepted[:, None, None].expand(-1, 1, vocab))[:, 0]
    token = invert(chosen, u[:, -1])
    over = ended & (accepted == n)
    status = (p_status * used).amax(dim=1)
    if length:
        status = torch.maximum(status, (q_status * inside).amax(dim=1))
    status = torch.where((status == 0) & illegal, int(Status.ILLEGAL_DRAFT), status)
    status = torch.where((status == 0) & (token < 0) & ~over, int(Status.NO_MASS), status)
    status = torch.where(bad, int(Status.BAD_TOKEN), status)
    fine = status == 0
    return Verdict(
        torch.where(fine, accepted, 0).to(torch.int32),
        torch.zeros(batch, dtype=torch.int32, device=device),
        torch.where(over | ~fine, -1, token).to(torch.int32),
        status.to(torch.int32),
        torch.where(inside, h[:, 1:], 0.0),
    )
