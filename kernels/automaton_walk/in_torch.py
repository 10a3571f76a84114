"""The same in torch gathers: one per byte position, over the tokens that are that long."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from structspec.kernels.automaton_walk import DeviceAutomaton

__all__ = ["torch_advance", "torch_masks"]


def torch_masks(
    automaton: DeviceAutomaton, states: Tensor, left: Tensor | None, out: Tensor
) -> None:
    """`DeviceAutomaton.masks`."""
    tokens = automaton.tokens
    count, width = states.shape[0], automaton.next.shape[1]
    table = automaton.next.flatten()
    first = tokens.start[tokens.by_length.long()].long()
    state = states.long()[:, None].expand(-1, tokens.count).contiguous()
    for i, active in enumerate(tokens.active):
        column = automaton.token_classes[first[:active] + i].long()
        state[:, :active] = table[state[:, :active] * width + column].long()
    allowed = state > 1
    if left is not None:
        allowed &= automaton.cost[state] <= left[:, None] - 1
    legal = torch.zeros(count, 32 * automaton.words, dtype=torch.bool, device=out.device)
    legal[:, tokens.by_length.long()] = allowed
    # Sums of distinct powers of two: the wrap at bit 31 is the sign bit.
    bits = torch.arange(32, device=out.device, dtype=torch.int64)
    words = (legal.view(count, -1, 32).long() << bits).sum(dim=-1)
    words = torch.where(words >= 2**31, words - 2**32, words).to(torch.int32)
    ends = (states > 1) & (automaton.accepting[states.long()] != 0)
    out.copy_(torch.where(ends[:, None], words | automaton.eos_words, words))


def torch_advance(automaton: DeviceAutomaton, states: Tensor, tokens: Tensor) -> Tensor:
    """`DeviceAutomaton.advance`."""
    listed = automaton.tokens
    inside = (tokens >= 0) & (tokens < automaton.vocab)
    token = torch.where(inside, tokens, 0).long()
    first, last = listed.start[token].long(), listed.start[token + 1].long()
    table, width = automaton.next.flatten(), automaton.next.shape[1]
    state = states.long()
    for i in range(len(listed.active)):
        use = first + i < last
        column = automaton.token_classes[torch.where(use, first + i, 0)].long()
        state = torch.where(use, table[state * width + column].long(), state)
    state = torch.where(inside & (last > first), state, 1)
    accepts = (states > 1) & (automaton.accepting[states.long()] != 0)
    is_end = torch.isin(tokens, automaton.eos_ids)
    state = torch.where(is_end, torch.where(accepts, 0, 1), state)
    dead = (states <= 1) & (tokens >= 0)
    state = torch.where(dead, 1, torch.where(tokens < 0, states.long(), state))
    return state.to(torch.int32)
