"""Training an EAGLE-3 head on a target's own answers.

Owns the optimiser, checkpoints and curves. The head learns to match the target's *masked* law,
since that is the law it drafts for: both are restricted to the tokens that the grammar allows at
each place (and that the head can draft), and places with one legal token teach nothing and are
skipped. The loss goes from the Kullback-Leibler divergence, whose gradient is useful from the
start, to the total variation, which is exactly one minus the share that gets accepted.

Invariants
- a step is a function of (seed, step): a resumed run equals one that was not stopped;
- a checkpoint is written beside its place and renamed: an interrupt leaves the one before;
- the target is never changed, and never run: its states are in the groups.

Cost: `depths` passes of one layer over the answers' places, forward and back: about 0.2 GFLOP per
place and 4 depths on SmolLM2-135M.

Siblings: `sampler` and `states` make the data; `unrolled` is the pass, `eagle_head` the module, and
`curves` what is shown of a run.

Example::

    trainer = Trainer(model, store, Recipe(steps=200), folder)
    trainer.run()
"""

from __future__ import annotations

import json
import math
import os
import random
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from structspec.drafting.acceptance import Laws, inputs, measure
from structspec.drafting.answers import choose_vocabulary
from structspec.drafting.curves import Point, draw_curves
from structspec.drafting.eagle_head import EagleHead
from structspec.drafting.states import Group
from structspec.drafting.unrolled import unroll
from structspec.errors import ModelError, PromptError
from structspec.models import Model

__all__ = ["Groups", "Recipe", "Trainer"]

#: Places whose laws weigh in on the draft's vocabulary, at most.
_WEIGHED = 20_000

#: How much faster the weights of copies learn than matrices.
_COPY_SCALE = 50.0


class Groups(Protocol):
    """What training reads groups from: a `StateStore`, or anything else with these."""

    taps: tuple[int, ...]

    def ids(self) -> list[str]:
        """The ids of all groups, in a fixed order."""
        ...

    def group(self, name: str) -> Group:
        """One group."""
        ...


@dataclass(frozen=True)
class Recipe:
    """How to train.

    batch: groups per step. answers: of each group, drawn anew each time. vocabulary: ids that can
    be drafted. depths: drafted tokens per place. decay: weight of each further depth. variation:
    share of the total variation in the loss at the last step; it rises from the middle on. reading:
    places of each prompt that are learnt from too (at depth 1, no grammar), with the weight
    `reading_weight`: there are many of them, and they teach copying. shallow: share of the steps,
    from the first on, that draft two tokens only, which is half the work.
    """

    steps: int = 1000
    batch: int = 8
    answers: int = 2
    learning_rate: float = 5e-4
    warmup: int = 20
    vocabulary: int = 5120
    depths: int = 4
    decay: float = 0.8
    variation: float = 0.5
    reading: int = 64
    reading_weight: float = 0.2
    shallow: float = 0.4
    copies: bool = True
    seed: int = 0


class Trainer:
    """A training run in a folder; goes on where it was stopped.

    start: a head to begin with instead of the target's last layer; its vocabulary grows if the
    recipe's is larger.
    """

    def __init__(
        self,
        model: Model,
        groups: Groups,
        recipe: Recipe,
        folder: Path,
        held_out: Groups | None = None,
        start: EagleHead | None = None,
    ) -> None:
        self.names = groups.ids()
        if not self.names:
            raise PromptError("there are no answers to train on; collect some first")
        self.model = model
        self.groups = groups
        self.held_out = held_out
        self.recipe = recipe
        self.folder = Path(folder)
        self.curve: list[Point] = []
        self.step = 0
        self._laws: dict[str, Laws] = {}
        torch.manual_seed(recipe.seed)
        if start is None:
            # a checkpoint brings its own ids
            started = (self.folder / "checkpoint.pt").is_file()
            ids = [0] if started else self._choose_vocabulary()
            start = EagleHead.for_target(model.model, ids, groups.taps)
        elif recipe.vocabulary > len(start.draft_ids):
            start.grow(self._choose_vocabulary())
        if recipe.copies:
            start.copies()
        self.head = start.to(model.device)
        own = [p for name, p in self.head.named_parameters() if name != "copy"]
        parts = [{"params": own, "scale": 1.0}]
        if self.head.copy is not None:  # a few weights, far from where they start
            parts.append({"params": [self.head.copy], "scale": _COPY_SCALE})
        self.optimiser = torch.optim.AdamW(
            parts, lr=recipe.learning_rate, betas=(0.9, 0.95), weight_decay=0.0
        )
        self._resume()

    def run(self, report: Callable[[Point], None] | None = None, every: int = 50) -> None:
        """Train to the recipe's last step; a checkpoint and a held-out point every `every`."""
        while self.step < self.recipe.steps:
            point = self._one_step()
            self.curve.append(point)
            if report is not None:
                report(point)
            if self.step % every == 0 or self.step == self.recipe.steps:
                if self.held_out is not None:
                    self.curve.append(self.evaluate(self.held_out))
                    if report is not None:
                        report(self.curve[-1])
                self.save()

    def evaluate(self, groups: Groups) -> Point:
        """Acceptance on some groups, over free places and against the target's whole law."""
        self.head.eval()
        found: list[list[np.ndarray]] = [[] for _ in range(self.recipe.depths)]
        for name in groups.ids():
            group = groups.group(name)
            laws = self._laws_of(group)
            alpha = measure(
                self.head, self.model, group, laws, depths=self.recipe.depths, raw=False
            )
            for d in range(self.recipe.depths):
                found[d].append(alpha.masked[d][alpha.free[d]])
        whole = [np.concatenate(parts) for parts in found]
        shares = tuple(float(part.mean()) if part.size else math.nan for part in whole)
        return Point(self.step, 1 - shares[0], shares, held_out=True)

    def save(self) -> None:
        """Write the checkpoint, the head (folder "head") and the curves."""
        self.folder.mkdir(parents=True, exist_ok=True)
        state = {
            "step": self.step,
            "head": self.head.state_dict(),
            "optimiser": self.optimiser.state_dict(),
            "recipe": asdict(self.recipe),
            "curve": [asdict(point) for point in self.curve],
        }
        beside = self.folder / "checkpoint.pt.new"
        torch.save(state, beside)
        os.replace(beside, self.folder / "checkpoint.pt")
        self.head.save(self.folder / "head", self.model)
        points = json.dumps([asdict(point) for point in self.curve], indent=1)
        (self.folder / "curve.json").write_text(points + "\n", encoding="utf-8")
        (self.folder / "curve.svg").write_text(draw_curves(self.curve), encoding="utf-8")

    def _resume(self) -> None:
        path = self.folder / "checkpoint.pt"
        if not path.is_file():
            return
        try:
            state = torch.load(path, map_location=self.model.device, weights_only=True)
            # more answers may have been collected since: the vocabulary stays what it was
            self.head.draft_ids = state["head"]["draft_ids"]
            self.head.load_state_dict(state["head"])
            self.optimiser.load_state_dict(state["optimiser"])
        except Exception as error:  # another recipe, another model, a cut file
            raise ModelError(
                f"cannot go on from {path}: {error}; move it away to start anew"
            ) from error
        self.step = int(state["step"])
        self.curve = [
            Point(p["step"], p["loss"], tuple(p["acceptance"]), p["held_out"])
            for p in state["curve"]
        ]

    def _one_step(self) -> Point:
        recipe = self.recipe
        self.head.train()
        draw = random.Random(recipe.seed * 1_000_003 + self.step)
        batch = draw.choices(self.names, k=recipe.batch)
        for settings in self.optimiser.param_groups:
            settings["lr"] = recipe.learning_rate * self._schedule() * settings["scale"]
        self.optimiser.zero_grad()
        found = []
        for name in batch:
            group = self.groups.group(name)
            count = min(recipe.answers, len(group.outputs))
            chosen = sorted(draw.sample(range(len(group.outputs)), count))
            read = draw.sample(
                range(len(group.prompt) - 1), min(recipe.reading, len(group.prompt) - 1)
            )
            loss, acceptance = self._lose(group, chosen, sorted(read))
            if loss.requires_grad:
                (loss / recipe.batch).backward()
            found.append((loss.detach(), acceptance))
        torch.nn.utils.clip_grad_norm_(self.head.parameters(), 1.0)
        self.optimiser.step()
        self.step += 1
        return self._point(found)

    def _schedule(self) -> float:
        """Linear warm-up, then a cosine down to a fiftieth."""
        recipe = self.recipe
        if self.step < recipe.warmup:
            return (self.step + 1) / recipe.warmup
        done = (self.step - recipe.warmup) / max(1, recipe.steps - recipe.warmup)
        return 0.02 + 0.49 * (1 + math.cos(math.pi * min(1.0, done)))

    def _point(self, found: Sequence[tuple[Tensor, list[Tensor]]]) -> Point:
        loss = float(torch.stack([loss for loss, _ in found]).mean())
        depths = []
        for d in range(self.recipe.depths):
            parts = [acceptance[d] for _, acceptance in found if d < len(acceptance)]
            values = torch.cat(parts) if parts else torch.zeros(0)
            depths.append(float(values.mean()) if values.numel() else math.nan)
        return Point(self.step, loss, tuple(depths))

    def _lose(
        self, group: Group, chosen: Sequence[int], read: Sequence[int]
    ) -> tuple[Tensor, list[Tensor]]:
        """Loss of some answers, and Σ min(p', q') of their free places at each depth."""
        recipe, head = self.recipe, self.head
        device = self.model.device
        places, states, final = inputs(head, group, chosen)
        laws = self._laws_of(group)
        starts = np.cumsum([0, *(len(output) for output in group.outputs)])
        index_of = np.concatenate([np.arange(starts[k], starts[k + 1]) for k in chosen])
        index = laws.index[index_of]
        allowed = laws.over(head.draft_ids.cpu().numpy())
        usable = torch.from_numpy((allowed.sum(axis=1) > 1)[index]).to(device)
        forbidden = torch.from_numpy(~allowed).to(device)
        rows = torch.from_numpy(index).to(device)
        copies = torch.from_numpy(laws.copies[index_of]).to(device)
        before = places.depth_of()
        share = recipe.variation * max(0.0, 2 * self.step / max(1, recipe.steps) - 1)
        loss = torch.zeros((), device=device)
        acceptance: list[Tensor] = []
        weight = 0.0
        with torch.no_grad():
            truth = head.project(final)
            p_all = truth.masked_fill_(forbidden[rows], -torch.inf).log_softmax(-1)
        also = torch.tensor(read, dtype=torch.long, device=device) if read else None
        depths = recipe.depths
        if self.step < recipe.shallow * recipe.steps:
            depths = min(2, depths)
        guesses = unroll(head, states, places, depths, also)
        for d, guess in enumerate(guesses[:depths]):
            place = usable & (before >= d)
            mask, p = forbidden[rows[place]], p_all[place]
            drawn = head.logits(guess[place]).masked_fill(mask, -torch.inf)
            q = head.with_copies(drawn, *copies[place].T).log_softmax(-1)
            shared = torch.minimum(p, q).exp().sum(-1)
            acceptance.append(shared.detach())
            if len(p):
                apart = (p.exp() * (p - q).masked_fill(mask, 0.0)).sum(-1)
                value = (1 - share) * apart + share * (1 - shared)
                loss = loss + recipe.decay**d * value.mean()
                weight += recipe.decay**d
        loss = loss / max(weight, 1e-9)
        if also is not None:
            behind = torch.from_numpy(group.states[[i + 1 for i in read], len(head.taps)])
            with torch.no_grad():
                p = head.project(behind.to(final)).log_softmax(-1)
            q = head.logits(guesses[-1]).log_softmax(-1)
            loss = loss + recipe.reading_weight * (p.exp() * (p - q)).sum(-1).mean()
        return loss, acceptance

    def _laws_of(self, group: Group) -> Laws:
        if group.id not in self._laws:
            self._laws[group.id] = Laws.of(group, self.model)
        return self._laws[group.id]

    def _choose_vocabulary(self) -> list[int]:
        """Ids by how much of the target's masked laws they hold, and by use."""
        output = self.model.model.get_output_embeddings().weight.detach()
        everything = np.arange(output.shape[0])
        mass = np.zeros(output.shape[0])
        seen = 0
        used: list[tuple[int, ...]] = []
        stride = max(1, len(self.names) * 200 // _WEIGHED)
        for number, name in enumerate(self.names):
            group = self.groups.group(name)
            used += group.outputs
            if number % stride or seen > _WEIGHED:
                continue
            laws = self._laws_of(group)
            final = group.states[len(group.prompt) :, -1]
            legal = torch.from_numpy(laws.over(everything))[torch.from_numpy(laws.index)]
            with torch.no_grad():
                states = torch.from_numpy(final).to(output.device, output.dtype)
                logits = torch.nn.functional.linear(states, output).float().cpu()
                mass += logits.masked_fill_(~legal, -torch.inf).softmax(-1).sum(0).double().numpy()
            seen += len(final)
        return choose_vocabulary(used, self.model, self.recipe.vocabulary, mass)
