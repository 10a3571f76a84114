"""The unrolled pass: a head's states at every drafted depth of every place, at once.

Owns `Places`, a prompt and several continuations of it laid out in one row of places, and `unroll`,
EAGLE-3's "training-time test" over them. Place p of the head reads the target's state at id p and
the embedding of id p + 1, and predicts id p + 2.

At depth d the head reads its own states of depth d - 1 instead of the target's. A query at place p
of depth d sees the keys of depth 1 at places <= p - (d - 1), where features are the target's, and
one key of each depth j = 2..d at place p - (d - j): exactly the cache that a draft of d tokens has.
Continuations see the prompt and themselves, not each other.

Invariants
- the state at depth d of place p equals what drafting computes there; of each continuation's first
  d - 1 places at depth d there is no such draft, and their states mean nothing.

Cost: keys and values of the prompt once, `depths` passes of one layer over the other places.

Siblings: `training` learns from it, `acceptance` measures with it.

Paper: EAGLE-3 (arXiv 2503.01840).

Example::

    places = Places.of_chain(ids, low)
    states = unroll(head, features, places, depths=4)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from structspec.drafting.eagle_head import EagleHead
from structspec.drafting.states import Group

__all__ = ["Places", "unroll"]


@dataclass(frozen=True)
class Places:
    """A row of places. All are [T] tensors.

    `tokens`: the id that each place embeds (the one behind it in its text); `positions` in the
    text; `parts`: 0 in the prompt, else the number of the continuation; `low`: the first place
    whose states are wanted, behind which no place belongs to the prompt.
    """

    tokens: Tensor
    positions: Tensor
    parts: Tensor
    low: int

    @classmethod
    def of_chain(cls, ids: Tensor, low: int) -> Places:
        """The places of one text, wanted from `low`."""
        positions = torch.arange(len(ids) - 1, device=ids.device)
        return cls(ids[1:], positions, (positions >= low).long(), low)

    @classmethod
    def of_group(cls, group: Group, chosen: Sequence[int]) -> tuple[Places, np.ndarray]:
        """The places of a prompt and some of its answers, and which row of `states` each reads.

        Answer place i reads the state in front of output i, embeds it and predicts output i + 1.
        """
        n = len(group.prompt)
        tokens, positions, parts = list(group.prompt[1:]), list(range(n - 1)), [0] * (n - 1)
        rows = list(range(n - 1))
        starts = np.cumsum([n, *(len(output) for output in group.outputs)])
        for part, k in enumerate(chosen, 1):
            count = len(group.outputs[k])
            tokens += group.outputs[k]
            positions += range(n - 1, n - 1 + count)
            parts += [part] * count
            rows += [n - 1, *range(starts[k], starts[k] + count - 1)] if count else []
        made = [torch.tensor(x, dtype=torch.long) for x in (tokens, positions, parts)]
        return cls(made[0], made[1], made[2], n - 1), np.array(rows, dtype=np.int64)

    def to(self, device: object) -> Places:
        """The same on another device."""
        return Places(
            self.tokens.to(device),  # type: ignore[call-overload]
            self.positions.to(device),  # type: ignore[call-overload]
            self.parts.to(device),  # type: ignore[call-overload]
            self.low,
        )

    def depth_of(self) -> Tensor:
        """For each wanted place, how many places of its own continuation stand before it."""
        parts = self.parts[self.low :]
        order = torch.arange(len(parts), device=parts.device)
        starts = torch.searchsorted(parts, parts, side="left")
        return order - starts


def unroll(
    head: EagleHead,
    features: Tensor,
    places: Places,
    depths: int,
    also: Tensor | None = None,
) -> list[Tensor]:
    """States of the head at the wanted places for each depth, [T - low, size] each.

    features [T, taps · size]: the target's states that each place reads. With `also`, places of
    the prompt, the list ends with the states there at depth 1.
    """
    attention, low = head.midlayer.self_attn, places.low
    embedded = head.embed(places.tokens)
    reduced = head.reduce(features)
    read, residual = head.inputs(reduced, embedded)
    q, k, v = attention.project(read, head.rotary(places.positions))
    repeat = attention.heads // attention.groups
    keys, values = k.repeat_interleave(repeat, 0), v.repeat_interleave(repeat, 0)
    near, at = places.positions[low:], places.positions
    parts = places.parts
    same = (parts == 0) | (parts == parts[low:, None])
    mixed = attention.attend(q[:, low:], k, v, same & (at <= near[:, None]))
    states = [head.finish(residual[low:], mixed)]
    aside: list[Tensor] = []
    if also is not None:
        mixed = attention.attend(q[:, also], k[:, :low], v[:, :low], at[:low] <= at[also][:, None])
        aside.append(head.finish(residual[also], mixed))
    turned = head.rotary(near)
    deeper: list[tuple[Tensor, Tensor]] = []  # keys and values of depths 2, 3, … at places low..
    count = len(at)
    for d in range(1, depths):
        fed = states[-1].roll(1, 0)  # place p reads what place p - 1 wrote
        read, residual = head.inputs(fed, embedded[low:])
        q, k, v = attention.project(read, turned)
        deeper.append((k.repeat_interleave(repeat, 0), v.repeat_interleave(repeat, 0)))
        scale = q.shape[-1] ** -0.5
        scores = (q @ keys.transpose(1, 2)) * scale
        scores = scores.masked_fill(~(same & (at <= near[:, None] - d)), -torch.inf)
        own = [keys_j.roll(d - 1 - j, 1) for j, (keys_j, _) in enumerate(deeper)]
        extra = torch.stack([(q * key).sum(-1) * scale for key in own], dim=-1)
        shares = torch.cat([scores, extra], dim=-1).softmax(-1)
        out = shares[..., :count] @ values
        for j, (_, values_j) in enumerate(deeper):
            out = out + shares[..., count + j, None] * values_j.roll(d - 1 - j, 1)
        flat = out.transpose(0, 1).reshape(len(near), -1)
        states.append(head.finish(residual, attention.o_proj(flat)))
    return states + aside
