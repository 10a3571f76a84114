"""How much of the target's law a head covers: α = Σ min(p, q), place by place, depth by depth.

Owns `Laws`, what the target and the grammar say of a group's answers, and `measure`. α at depth d
is the chance that token d of a draft is accepted where the d - 1 tokens before it were: the head
has read its own states since. p is the target's law over its *whole* vocabulary; what the head
cannot draft counts against it.

Invariants
- "masked" restricts p and q to the legal tokens and renormalises both, as decoding does at
  temperature 1; "raw" restricts neither;
- the chance that a verifier keeps at least d tokens is Σ over paths of a minimum of p and q along
  them, so the ratios q / p along *answers*, which are samples of p, estimate it without a bias:
  token by token the product of min(1, ratio), in a block the least product so far;
- a place with one legal token has a masked α of 1 if the head can draft that token (decoding does
  not even ask it); `free` says which places have more.

Cost: the target's output matrix once per place.

Sibling: `training` minimises 1 - α and the divergence; `structspec.bench.draft_head` writes the
figures.

Example::

    laws = Laws.of(group, model)
    alpha = measure(head, model, group, laws, depths=4)
    alpha.masked[0].mean()
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor

from structspec.drafting.copying import CopyIndex
from structspec.drafting.eagle_head import EagleHead
from structspec.drafting.states import Group
from structspec.drafting.unrolled import Places, unroll
from structspec.kept_grammars import compiled
from structspec.models import Model

__all__ = ["Alpha", "Laws", "inputs", "kept_tokens", "measure"]


@dataclass(frozen=True)
class Laws:
    """The legal tokens behind each output of each answer of a group.

    `rows` packed masks uint32 [N, W], equal ones once; `index` [Σ len(outputs)]: which of them.
    `copies`, `raw_copies` [Σ len(outputs), 2]: the legal and the likeliest token that would go on
    copying, and its kind of match (`copying`); -1 for none.
    """

    rows: np.ndarray
    index: np.ndarray
    copies: np.ndarray
    raw_copies: np.ndarray

    @classmethod
    def of(cls, group: Group, model: Model) -> Laws:
        """Walk the group's answers through its grammar."""
        constraint = compiled(group.schema, {}).bind(model.vocab)
        known: dict[bytes, int] = {}
        rows: list[np.ndarray] = []
        index: list[int] = []
        copies: list[tuple[int, int]] = []
        raw_copies: list[tuple[int, int]] = []
        prompt = CopyIndex(model.vocab, group.prompt)
        for output in group.outputs:
            state, text = constraint.start, prompt.branch()
            for token in output:
                text.extend([token])
                state = constraint.advance(state, token)
                row = constraint.mask(state)
                key = row.tobytes()
                if key not in known:
                    known[key] = len(rows)
                    rows.append(row.copy())
                index.append(known[key])
                for found, legal in ((copies, row), (raw_copies, None)):
                    copy = text.look([], legal)
                    found.append((-1, -1) if copy is None else (copy.token, copy.kind))
        width = (model.vocab.size + 31) // 32
        packed = np.array(rows, dtype=np.uint32) if rows else np.zeros((0, width), np.uint32)
        pairs = [np.array(c, dtype=np.int64).reshape(-1, 2) for c in (copies, raw_copies)]
        return cls(packed, np.array(index, dtype=np.int64), *pairs)

    def over(self, ids: np.ndarray) -> np.ndarray:
        """Which of some ids each row of `rows` allows, bool [N, len(ids)]."""
        word = np.minimum(ids >> 5, self.rows.shape[1] - 1)
        bits = (self.rows[:, word] >> (ids & 31).astype(np.uint32)) & 1
        return (bits == 1) & (ids >> 5 < self.rows.shape[1])

    def free(self) -> np.ndarray:
        """Which rows allow more than one token, bool [N]."""
        bits = np.unpackbits(self.rows.view(np.uint8), axis=1)
        many: np.ndarray = bits.sum(axis=1) > 1
        return many


@dataclass(frozen=True)
class Alpha:
    """α of some places; lists have one float array for each depth, places in the answers' order.

    `free`: places with more than one legal token. Deeper depths have fewer places. `covered`
    [places]: how much of p' lies on tokens that the head can draft, the most that α can be.
    `ratios` [starts, depths]: q' / p' of each token behind a start, q by the head that read the
    drafted tokens before it; 0 behind the end. `cut_ratios`: q / p', for a draft that no mask
    restricts.
    """

    masked: list[np.ndarray] = field(default_factory=list)
    raw: list[np.ndarray] = field(default_factory=list)
    free: list[np.ndarray] = field(default_factory=list)
    covered: np.ndarray = field(default_factory=lambda: np.zeros(0))
    ratios: np.ndarray = field(default_factory=lambda: np.zeros((0, 0)))
    cut_ratios: np.ndarray = field(default_factory=lambda: np.zeros((0, 0)))


@torch.no_grad()
def measure(
    head: EagleHead,
    model: Model,
    group: Group,
    laws: Laws | None = None,
    *,
    depths: int = 4,
    raw: bool = True,
) -> Alpha:
    """α of every place of a group's answers; see the module."""
    laws = laws or Laws.of(group, model)
    device, ids = head.fc.weight.device, head.draft_ids
    places, states, final = inputs(head, group, range(len(group.outputs)))
    guesses = unroll(head, states, places, depths)
    truth = torch.nn.functional.linear(
        final, model.model.get_output_embeddings().weight.detach().to(final.dtype)
    ).float()
    everything = np.arange(truth.shape[1])
    index = torch.from_numpy(laws.index).to(device)
    legal = torch.from_numpy(laws.over(everything)).to(device)[index]
    free = laws.free()[laws.index]
    masked_p = truth.masked_fill(~legal, -torch.inf).softmax(-1)[:, ids]
    raw_p = truth.softmax(-1)[:, ids]
    known = legal[:, ids]
    copies = torch.from_numpy(laws.copies).to(device)
    raw_copies = torch.from_numpy(laws.raw_copies).to(device)
    before = places.depth_of()
    rows = torch.arange(len(index), device=device)
    tokens = _following(group, model).to(device)
    there_is = tokens >= 0
    chance = truth.masked_fill(~legal, -torch.inf).softmax(-1)[rows, tokens.clamp(min=0)]
    column = torch.searchsorted(ids, tokens.clamp(min=0)).clamp(max=len(ids) - 1)
    there_is &= ids[column] == tokens
    ratios = torch.zeros(2, len(index), depths, device=device)
    found = Alpha()
    for d, guess in enumerate(guesses):
        there = before >= d
        plain = head.logits(guess[there])
        logits = head.with_copies(plain.masked_fill(~known[there], -torch.inf), *copies[there].T)
        freely = head.with_copies(plain, *raw_copies[there].T)
        # where the head can draft no legal token, its draft ends: nothing is covered
        masked_q = logits.softmax(-1).nan_to_num(0.0)
        found.masked.append(_shared(masked_p[there], masked_q))
        if raw:
            found.raw.append(_shared(raw_p[there], freely.softmax(-1)))
        found.free.append(free[there.cpu().numpy()])
        at = rows[there]
        for kind, law in enumerate((masked_q, freely.softmax(-1))):
            drawn = law[torch.arange(len(at)), column[at]] * there_is[at] / chance[at]
            ratios[kind, at - d, d] = drawn
    whole = _whole_starts(group, depths)
    kept = ratios[:, torch.from_numpy(whole).to(device)].cpu().numpy()
    covered = masked_p.sum(-1).cpu().numpy()
    return replace(found, covered=covered, ratios=kept[0], cut_ratios=kept[1])


def kept_tokens(ratios: np.ndarray, block: bool) -> np.ndarray:
    """Expected tokens that a verifier keeps of a draft from each start, [starts].

    ratios [starts, depths], see `Alpha`; `block`: by block verification, else token by token.
    """
    if block:
        least = np.minimum.accumulate(np.cumprod(ratios, axis=1), axis=1)
        out: np.ndarray = np.minimum(1.0, least).sum(axis=1)
    else:
        out = np.cumprod(np.minimum(1.0, ratios), axis=1).sum(axis=1)
    return out


def _following(group: Group, model: Model) -> Tensor:
    """The token behind each output of each answer: the next, the end token, or -1 if cut there."""
    tokens: list[int] = []
    for output, ended in zip(group.outputs, group.ended, strict=True):
        tokens += output[1:]
        if output:
            tokens.append(model.eos_ids[0] if ended else -1)
    return torch.tensor(tokens, dtype=torch.long)


def _whole_starts(group: Group, depths: int) -> np.ndarray:
    """Places from which a draft of `depths` tokens stays inside what was sampled."""
    marks: list[bool] = []
    for output, ended in zip(group.outputs, group.ended, strict=True):
        count = len(output)
        marks += [ended or i + depths < count for i in range(count)]
    return np.array(marks, dtype=bool)


def inputs(head: EagleHead, group: Group, chosen: Sequence[int]) -> tuple[Places, Tensor, Tensor]:
    """Places of some answers, the states that they read, and the final states of their outputs."""
    places, rows = Places.of_group(group, chosen)
    weight = head.fc.weight
    taps = len(head.taps)
    read = torch.from_numpy(group.states[rows, :taps]).to(weight.device, weight.dtype)
    starts = np.cumsum([len(group.prompt), *(len(output) for output in group.outputs)])
    behind = [i for k in chosen for i in range(starts[k], starts[k] + len(group.outputs[k]))]
    final = torch.from_numpy(group.states[behind, taps]).to(weight.device, weight.dtype)
    return places.to(weight.device), read.flatten(1), final


def _shared(p: Tensor, q: Tensor) -> np.ndarray:
    out: np.ndarray = torch.minimum(p, q).sum(-1).cpu().numpy()
    return out
