"""`HeadSteps`, `MedusaSteps`: draft heads run once for many requests.

Owns what the drafters of `eagle` ask for and how asks of several requests run: places of all texts
go through the head's layer one after the other in one batch, each attending to its own cache, so
the head's matrices are read once; so are the rows of its output matrix, unless all that is wanted
of it is a few of them.

Invariants
- a place sees its own text only; a text's states are those that it has alone, up to the rounding of
  a product of more rows;
- nothing is padded: texts may add one place or hundreds.

Cost: one layer over all places, one output projection over the texts that want most of it.

Siblings: `together` gathers the asks; `reads` is the same for draft models.

Example::

    ((state, logits),), = HeadSteps(head).run([[Step(cache, features, tokens, tapped=True)]])
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from structspec.drafting.eagle_head import EagleHead
from structspec.drafting.head_layer import HeadCache
from structspec.drafting.medusa_heads import MedusaHeads

__all__ = ["HeadSteps", "MedusaSteps", "Step"]


@dataclass(frozen=True, eq=False)
class Step:
    """Places that go into one text's cache.

    `features`: of each place, [T, size], or with `tapped` the target's states [T, taps · size];
    `tokens` [T] follow them. `wanted`: places of the draft's vocabulary whose logits are wanted
    behind the last place, ascending; None: none are.
    """

    cache: HeadCache
    features: Tensor
    tokens: Sequence[int]
    tapped: bool = False
    wanted: Tensor | None = None


@dataclass(frozen=True)
class HeadSteps:
    """Runs an EAGLE head."""

    head: EagleHead

    @torch.inference_mode()
    def run(self, asks: Sequence[Sequence[Step]]) -> list[list[tuple[Tensor, Tensor | None]]]:
        """Of each step the state [1, size] at its last place, and logits [1, n] if wanted."""
        steps = [step for ask in asks for step in ask]
        tokens = [token for step in steps for token in step.tokens]
        states = self.head.side_by_side(
            self._features(steps),
            torch.tensor(tokens, device=steps[0].features.device),
            [(step.cache, len(step.tokens)) for step in steps],
        )
        ends, last = [], -1
        for step in steps:
            last += len(step.tokens)
            ends.append(last)
        behind = states[ends]
        logits = self._logits(steps, behind)
        left = iter([(behind[i : i + 1], logits.get(i)) for i in range(len(steps))])
        return [[next(left) for _ in ask] for ask in asks]

    def _features(self, steps: Sequence[Step]) -> Tensor:
        tapped = [step for step in steps if step.tapped]
        reduced: list[Tensor] = []
        if tapped:
            weight = self.head.fc.weight
            states = torch.cat([step.features for step in tapped]).to(weight.dtype)
            sizes = [len(step.features) for step in tapped]
            reduced = list(self.head.reduce(states).split(sizes))
        parts = [reduced.pop(0) if step.tapped else step.features for step in steps]
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def _logits(self, steps: Sequence[Step], states: Tensor) -> dict[int, Tensor]:
        found: dict[int, Tensor] = {}
        many = []
        for i, step in enumerate(steps):
            if step.wanted is None:
                continue
            if self.head.wants_all(step.wanted):
                many.append(i)
            else:
                found[i] = self.head.logits(states[i : i + 1], step.wanted)
        if many:
            rows = self.head.logits(states if len(many) == len(steps) else states[many])
            for at, i in enumerate(many):
                found[i] = rows[at : at + 1, steps[i].wanted]
        return found


@dataclass(frozen=True)
class MedusaSteps:
    """Runs Medusa heads; an ask is a list of (state [1, size], number of the head)."""

    heads: MedusaHeads

    @torch.inference_mode()
    def run(self, asks: Sequence[Sequence[tuple[Tensor, int]]]) -> list[list[Tensor]]:
        """Logits [1, V] of each."""
        wanted = [each for ask in asks for each in ask]
        found: dict[int, Tensor] = {}
        for head in {number for _, number in wanted}:
            members = [i for i, (_, number) in enumerate(wanted) if number == head]
            rows = self.heads.logits(torch.cat([wanted[i][0] for i in members]), head)
            found.update((i, rows[at : at + 1]) for at, i in enumerate(members))
        left = iter([found[i] for i in range(len(wanted))])
        return [[next(left) for _ in ask] for ask in asks]
