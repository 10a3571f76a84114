"""The definition, token by token on the host. (`Constraint.mask` is the independent one.)"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

if TYPE_CHECKING:
    from structspec.kernels.automaton_walk import DeviceAutomaton

__all__ = ["reference_advance", "reference_masks"]


def _follow(automaton: DeviceAutomaton, table: np.ndarray, state: int, token: int) -> int:
    """The state behind a token's bytes; dead if it has none."""
    start = automaton.tokens.start
    first, last = int(start[token]), int(start[token + 1])
    if first == last:
        return 1
    for c in automaton.token_classes[first:last].tolist():
        state = int(table[state, c])
    return state


def reference_masks(
    automaton: DeviceAutomaton, states: Tensor, left: Tensor | None, out: Tensor
) -> None:
    """`DeviceAutomaton.masks`."""
    table = automaton.next.cpu().numpy()
    cost = automaton.cost.cpu().numpy()
    for n, state in enumerate(states.tolist()):
        row = np.zeros(automaton.words, np.uint32)
        for token in range(automaton.vocab):
            following = _follow(automaton, table, state, token)
            if following > 1 and (left is None or cost[following] <= int(left[n]) - 1):
                row[token >> 5] |= np.uint32(1 << (token & 31))
        if state > 1 and int(automaton.accepting[state]):
            row |= automaton.eos_words.cpu().numpy().view(np.uint32)
        out[n] = torch.from_numpy(row.view(np.int32)).to(out.device)


def reference_advance(automaton: DeviceAutomaton, states: Tensor, tokens: Tensor) -> Tensor:
    """`DeviceAutomaton.advance`."""
    table = automaton.next.cpu().numpy()
    ends = set(automaton.eos_ids.tolist())
    following = []
    for state, token in zip(states.tolist(), tokens.tolist(), strict=True):
        if token < 0:
            following.append(state)
        elif token in ends:
            following.append(0 if state > 1 and int(automaton.accepting[state]) else 1)
        elif token >= automaton.vocab or state <= 1:
            following.append(1)
        else:
            following.append(_follow(automaton, table, state, token))
    return torch.tensor(following, dtype=torch.int32, device=states.device)
