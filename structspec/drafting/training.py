"""Training an EAGLE-3 head on a target's own answers.

Owns the unrolled training pass, the optimiser, checkpoints and curves. The head learns to match the
target's *masked* law, since that is the law it drafts for: both are restricted to the tokens that
the grammar allows at each place (and that the head can draft), and places with one legal token
teach nothing and are skipped.

The unrolled pass (EAGLE-3's "training-time test"): at depth d the head reads its own states of
depth d - 1 instead of the target's. A query at place p of depth d sees the keys of depth 1 at
places <= p - (d - 1), where features are the target's, and one key of each depth j = 2..d at place
p - (d - j): exactly the cache that a draft of d tokens has.

Invariants
- a step is a function of (seed, step): a resumed run equals one that was not stopped;
- a checkpoint is written beside its place and renamed: an interrupt leaves the one before;
- the target is never changed.

Cost: one forward of the target and `depths` passes of one layer over the answer's places, per
sequence.

Siblings: `answers` makes the data; `heads` is the module.

Example::

    trainer = Trainer(model, answers, Recipe(steps=200), folder)
    trainer.run(); trainer.head.save(folder / "head")
"""

from __future__ import annotations

import json
import math
import os
import random
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from structspec.drafting.answers import Answer, choose_vocabulary
from structspec.drafting.heads import EagleHead
from structspec.errors import ModelError, PromptError
from structspec.models import Model

__all__ = ["Point", "Recipe", "Trainer", "draw_curves", "unroll"]


@dataclass(frozen=True)
class Recipe:
    """How to train.

    taps: layers to read, None for about 1/4, 3/5 and all but two of them. vocabulary: ids that can
    be drafted. depths: drafted tokens per place. batch: answers per step. decay: weight of each
    further depth.
    """

    steps: int = 1000
    batch: int = 8
    learning_rate: float = 5e-4
    warmup: int = 20
    vocabulary: int = 5120
    depths: int = 4
    decay: float = 0.8
    taps: tuple[int, ...] | None = None
    seed: int = 0


@dataclass(frozen=True)
class Point:
    """One point of the curves: mean loss, and mean Σ min(p', q') at each depth."""

    step: int
    loss: float
    acceptance: tuple[float, ...]
    held_out: bool = False


class Trainer:
    """A training run in a folder; goes on where it was stopped."""

    def __init__(
        self,
        model: Model,
        answers: Sequence[Answer],
        recipe: Recipe,
        folder: Path,
        held_out: Sequence[Answer] = (),
    ) -> None:
        if not answers:
            raise PromptError("there are no answers to train on; collect some first")
        self.model = model
        self.answers = list(answers)
        self.held_out = list(held_out)
        self.recipe = recipe
        self.folder = Path(folder)
        self.curve: list[Point] = []
        self.step = 0
        torch.manual_seed(recipe.seed)
        depth = len(model.model.base_model.layers)
        taps = recipe.taps or tuple(max(0, round(depth * x)) for x in (0.27, 0.6, 0.93))
        ids = choose_vocabulary(self.answers, model, recipe.vocabulary)
        self.head = EagleHead.for_target(model.model, ids, taps).to(model.device)
        self.optimiser = torch.optim.AdamW(
            self.head.parameters(), lr=recipe.learning_rate, betas=(0.9, 0.95), weight_decay=0.0
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
                if self.held_out:
                    self.curve.append(self.evaluate(self.held_out))
                    if report is not None:
                        report(self.curve[-1])
                self.save()

    def evaluate(self, answers: Sequence[Answer]) -> Point:
        """Loss and acceptance on some answers."""
        self.head.eval()
        with torch.no_grad():
            found = [self._measure(answer) for answer in answers]
        return self._point(found, held_out=True)

    def save(self) -> None:
        """Write the checkpoint and the curves."""
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
        points = json.dumps([asdict(point) for point in self.curve], indent=1)
        (self.folder / "curve.json").write_text(points + "\n", encoding="utf-8")
        (self.folder / "curve.svg").write_text(draw_curves(self.curve), encoding="utf-8")

    def _resume(self) -> None:
        path = self.folder / "checkpoint.pt"
        if not path.is_file():
            return
        try:
            state = torch.load(path, map_location=self.model.device, weights_only=True)
            ids = state["head"]["draft_ids"]
            if not torch.equal(ids.cpu(), self.head.draft_ids.cpu()):
                # more answers were collected since: the vocabulary stays what it was
                self.head.draft_ids = ids
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
        batch = draw.choices(self.answers, k=recipe.batch)
        for group in self.optimiser.param_groups:
            group["lr"] = recipe.learning_rate * self._schedule()
        self.optimiser.zero_grad()
        found = []
        for answer in batch:
            loss, acceptance = self._measure(answer)
            if loss.requires_grad:
                (loss / recipe.batch).backward()
            found.append((loss.detach(), acceptance))
        torch.nn.utils.clip_grad_norm_(self.head.parameters(), 1.0)
        self.optimiser.step()
        self.step += 1
        return self._point(found)

    def _schedule(self) -> float:
        """Linear warm-up, then a cosine down to a tenth."""
        recipe = self.recipe
        if self.step < recipe.warmup:
            return (self.step + 1) / recipe.warmup
        done = (self.step - recipe.warmup) / max(1, recipe.steps - recipe.warmup)
        return 0.1 + 0.45 * (1 + math.cos(math.pi * min(1.0, done)))

    def _point(self, found: Sequence[tuple[Tensor, list[Tensor]]], held_out: bool = False) -> Point:
        loss = float(torch.stack([loss.detach() for loss, _ in found]).mean())
        depths = []
        for d in range(self.recipe.depths):
            values = torch.cat([acceptance[d] for _, acceptance in found])
            depths.append(float(values.mean()) if values.numel() else math.nan)
        return Point(self.step, loss, tuple(depths), held_out)

    def _measure(self, answer: Answer) -> tuple[Tensor, list[Tensor]]:
        """Loss of one answer, and Σ min(p', q') of its free places at each depth."""
        recipe, head = self.recipe, self.head
        device = self.model.device
        ids = torch.tensor([*answer.prompt, *answer.output], device=device)
        # place p of the head predicts id p + 2; the first output id is number len(prompt)
        low = max(0, len(answer.prompt) - 2)
        count = len(ids) - 1
        with torch.no_grad():
            output = self.model.model(input_ids=ids[None], output_hidden_states=True)
            states = [output.hidden_states[tap][0, :count] for tap in head.taps]
            features = torch.cat(states, dim=-1).to(head.fc.weight.dtype)
            truth = output.logits[0, low + 1 :].float()[:, head.draft_ids]
            legal = self._legal(answer, device)[low + 2 - len(answer.prompt) :]
            usable = (legal.sum(dim=-1) > 1)[: count - low]
            embedded = head.embed(ids[1:])
        predicted = unroll(head, features, embedded, low, recipe.depths)
        loss = torch.zeros((), device=device)
        acceptance: list[Tensor] = []
        weight = 0.0
        for d, guess in enumerate(predicted):
            place = usable.clone()
            place[:d] = False  # a draft of d + 1 tokens cannot begin before the answer
            mask = ~legal[: count - low][place]
            p = truth[: count - low][place].masked_fill(mask, -torch.inf).log_softmax(-1)
            q = head.logits(guess)[place].masked_fill(mask, -torch.inf).log_softmax(-1)
            if place.any():
                both = p.exp() * (p - q).masked_fill(mask, 0.0)
                loss = loss + recipe.decay**d * both.sum(-1).mean()
                weight += recipe.decay**d
            acceptance.append(torch.minimum(p.exp(), q.exp()).sum(-1).detach())
        return loss / max(weight, 1e-9), acceptance

    def _legal(self, answer: Answer, device: Any) -> Tensor:
        """Which drafted ids are legal at each place of the answer, bool [output + 1, Vd]."""
        from structspec.api import compiled

        constraint = compiled(answer.schema, {}).bind(self.model.vocab)
        known = self.head.draft_ids.cpu().numpy()
        rows = []
        state = constraint.start
        for token in (*answer.output, None):
            bits = np.unpackbits(constraint.mask(state).view(np.uint8), bitorder="little")
            rows.append(bits[np.minimum(known, len(bits) - 1)].astype(bool) & (known < len(bits)))
            if token is not None:
                state = constraint.advance(state, token)
        return torch.from_numpy(np.array(rows)).to(device)


def unroll(
    head: EagleHead, features: Tensor, embedded: Tensor, low: int, depths: int
) -> list[Tensor]:
    """States of the head at places low.. for each depth, [T - low, size] each; see the module.

    features [T, taps · size] of the target, embedded [T, size] of the ids that follow.
    """
    attention = head.midlayer.self_attn
    count = len(embedded)
    places = torch.arange(count, device=features.device)
    reduced = head.reduce(features)
    read, residual = head.inputs(reduced, embedded)
    q, k, v = attention.project(read, head.rotary(places))
    repeat = attention.heads // attention.groups
    keys, values = k.repeat_interleave(repeat, 0), v.repeat_interleave(repeat, 0)
    near = places[low:]
    mixed = attention.attend(q[:, low:], k, v, places <= near[:, None])
    states = [head.finish(residual[low:], mixed)]
    turned = head.rotary(near)
    deeper: list[tuple[Tensor, Tensor]] = []  # keys and values of depths 2, 3, … at places low..
    for d in range(1, depths):
        fed = states[-1].roll(1, 0)  # place p reads what place p - 1 wrote
        read, residual = head.inputs(fed, embedded[low:])
        q, k, v = attention.project(read, turned)
        deeper.append((k.repeat_interleave(repeat, 0), v.repeat_interleave(repeat, 0)))
        scale = q.shape[-1] ** -0.5
        scores = (q @ keys.transpose(1, 2)) * scale
        scores = scores.masked_fill(places > near[:, None] - d, -torch.inf)
        own = [keys_j.roll(d - 1 - j, 1) for j, (keys_j, _) in enumerate(deeper)]
        extra = torch.stack([(q * key).sum(-1) * scale for key in own], dim=-1)
        shares = torch.cat([scores, extra], dim=-1).softmax(-1)
        out = shares[..., :count] @ values
        for j, (_, values_j) in enumerate(deeper):
            out = out + shares[..., count + j, None] * values_j.roll(d - 1 - j, 1)
        flat = out.transpose(0, 1).reshape(len(near), -1)
        states.append(head.finish(residual, attention.o_proj(flat)))
    return states


def draw_curves(curve: Sequence[Point], width: int = 720, height: int = 360) -> str:
    """Loss and acceptance over steps as an SVG picture; dots are held-out points."""
    if not curve:
        return '<svg xmlns="http://www.w3.org/2000/svg" width="1" height="1"/>\n'
    last = max(point.step for point in curve) or 1
    losses = [point.loss for point in curve if math.isfinite(point.loss)]
    top = max(losses, default=1.0) or 1.0
    inner_width, inner_height = width - 80, height - 60

    def x(step: int) -> float:
        return 50 + inner_width * step / last

    def y(share: float) -> float:
        return 20 + inner_height * (1 - min(1.0, max(0.0, share)))

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        'font-family="sans-serif" font-size="11">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
    ]
    for tick in range(6):
        share = tick / 5
        parts.append(
            f'<line x1="50" x2="{50 + inner_width}" y1="{y(share):.1f}" y2="{y(share):.1f}" '
            f'stroke="#ddd"/><text x="8" y="{y(share) + 4:.1f}">{share:.1f}</text>'
        )
    colours = ("#1b6ca8", "#2a9d8f", "#e9a23b", "#c8553d", "#7d5ba6", "#555555")
    names = ["loss / first", *(f"acceptance {d + 1}" for d in range(len(curve[0].acceptance)))]
    for index, name in enumerate(names):
        colour = colours[index % len(colours)]
        for held_out in (False, True):
            dots = [
                (point.step, point.loss / top if index == 0 else point.acceptance[index - 1])
                for point in curve
                if point.held_out == held_out
            ]
            shown = [(x(s), y(v)) for s, v in dots if math.isfinite(v)]
            if held_out:
                parts += [
                    f'<circle cx="{a:.1f}" cy="{b:.1f}" r="3" fill="{colour}"/>' for a, b in shown
                ]
            elif shown:
                line = " ".join(f"{a:.1f},{b:.1f}" for a, b in shown)
                parts.append(
                    f'<polyline points="{line}" fill="none" stroke="{colour}" opacity="0.8"/>'
                )
        parts.append(f'<text x="{60 + 120 * index}" y="{height - 8}" fill="{colour}">{name}</text>')
    parts.append(f'<text x="{inner_width}" y="{height - 26}">step {last}</text></svg>')
    return "\n".join(parts) + "\n"
