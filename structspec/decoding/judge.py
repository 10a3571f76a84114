"""`judge`: the target's laws along the drafts of a round, and the verifiers' decisions.

Owns the step from logits to verdicts for all requests of a round: requests of equal sampling
settings share one law computation, those of one verifier one verification, padded to the longest
draft. If a shared computation fails, every request is judged alone, so that the error reaches the
request that caused it and no other.

Invariants
- row r of a work's logits, masks and law belongs to node r - 1 of its tree, row 0 to the committed
  text;
- a verdict depends on the request's own rows and uniforms only: padding is never read.

Cost: one softmax per row, one verification; padding copies rows where drafts differ in length.

Siblings: `loop` calls it, `structspec.verification` decides; on CUDA, or where the environment
names kernels, `device` takes the logits to them instead.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from structspec.decoding.device import DECIDED, decide_by_kernels, laws_by_kernels
from structspec.decoding.output import Alternatives
from structspec.decoding.progress import Progress
from structspec.drafting.draft import Draft
from structspec.errors import DraftError, ModelError, StructspecError
from structspec.forward.warp import History, Sampling, target_law
from structspec.kernels.backend import loop_backend
from structspec.packed import Mask, is_set
from structspec.verification.draws import NO_MASS, draw_levels, draw_rows
from structspec.verification.registry import drafts_verifiers, verifiers

TREE = "tree"
"""Verification of deterministic drafts, chains and trees: the target is sampled and the draft
followed while it agrees. No choice of a user, and none keeps more."""

#: Verifiers that leave deterministic drafts to `TREE`, which keeps as many of their tokens: its
#: texts are those of plain sampling with the same seed.
STEADY = frozenset({"block", "layered"})

__all__ = ["STEADY", "TREE", "Tree", "Work", "judge", "verifier_name"]


def verifier_name(name: str, sampling: Sampling, draft_count: int = 1) -> str:
    """The verifier to use; raises `DraftError` for one that cannot be."""
    several = _is_for_several(name)  # refuses unknown names at temperature 0 too
    if sampling.temperature == 0:
        return "greedy"
    if name == "greedy":
        raise DraftError(
            f"the greedy verifier is lossless at temperature 0 only, not at "
            f"{sampling.temperature}; use verifier='block'"
        )
    if draft_count == 1 or several:
        return name
    if name == "block":
        return "layered"  # what it becomes for several drafts
    raise DraftError(
        f"the verifier {name!r} judges one draft, not draft_count={draft_count}; use 'layered'"
    )


def _is_for_several(name: str) -> bool:
    if name in verifiers:
        return False
    if name in drafts_verifiers:
        return True
    choices = ", ".join(sorted([*verifiers, *drafts_verifiers]))
    raise DraftError(f"there is no verifier {name!r}; choose one of: {choices}")


@dataclass(frozen=True)
class Tree:
    """The drafts of one request, common beginnings merged.

    `tokens` and `parents` [N] in an order in which parents come first (-1: the committed text);
    `masks` [N + 1], behind the committed text and behind each node; `paths`: the nodes of each
    draft.
    """

    tokens: tuple[int, ...]
    parents: tuple[int, ...]
    masks: tuple[Mask, ...]
    paths: tuple[tuple[int, ...], ...]

    @classmethod
    def of(cls, progress: Progress, drafts: Sequence[Draft]) -> Tree:
        """Merge drafts."""
        tokens: list[int] = []
        parents: list[int] = []
        masks: list[Mask | None] = [None]
        behind: list[tuple[int, int]] = [(progress.state, progress.left)]
        children: dict[tuple[int, int], int] = {}
        paths = []
        for draft in drafts:
            node, path = -1, []
            for i, token in enumerate(draft.tokens):
                masks[node + 1] = draft.masks[i]
                child = children.get((node, token))
                if child is None:
                    child = children[node, token] = len(tokens)
                    tokens.append(token)
                    parents.append(node)
                    # nothing is written behind an end token or an illegal one: any mask will do
                    closed = token in progress.ends or not is_set(draft.masks[i], token)
                    masks.append(draft.masks[i] if closed else None)
                    behind.append((draft.states[i], progress.left - i - 1))
                node = child
                path.append(node)
            paths.append(tuple(path))
        rows = tuple(
            progress.constraint.mask(*behind[row]) if mask is None else mask
            for row, mask in enumerate(masks)
        )
        return cls(tuple(tokens), tuple(parents), rows, tuple(paths))


class Work:
    """One request's round: its drafts, then their logits and laws, then the decision.

    `chosen`: the draft whose first `accepted` tokens are kept; `token` follows them, -1 if they
    end the text. `error`: why there is no decision.
    """

    def __init__(self, progress: Progress, drafts: Sequence[Draft], verifier: str) -> None:
        self.progress = progress
        self.drafts = drafts
        deterministic = all(draft.q is None for draft in drafts)
        followed = deterministic and (len(drafts) > 1 or verifier in STEADY)
        self.verifier = TREE if followed else verifier
        self.tree = Tree.of(progress, drafts)
        self.logits: Tensor = torch.empty(0)
        self.law: Tensor = torch.empty(0)
        self.chosen = 0
        self.accepted = 0
        self.token = -1
        self.error: StructspecError | None = None
        self._plain: Tensor | None = None

    @property
    def draft(self) -> Draft:
        """The draft of the decision."""
        return self.drafts[self.chosen]

    def rows_of(self, draft: int) -> list[int]:
        """The rows along a draft: behind the committed text and behind each of its tokens."""
        return [0, *(node + 1 for node in self.tree.paths[draft])]

    def choose(self, node: int) -> None:
        """Decide for a draft that `accepted` tokens lead to `node` of; -1: none was kept."""
        depth = self.accepted - 1
        if node >= 0:
            self.chosen = next(
                k for k, path in enumerate(self.tree.paths) if path[depth : depth + 1] == (node,)
            )

    def positions_noise(self, vocab: int) -> NDArray[np.float64]:
        """The target's draws behind the committed text and behind each node of the tree."""
        progress = self.progress
        depths = [0]
        for parent in self.tree.parents:
            depths.append(depths[parent + 1] + 1)
        first = len(progress.context) - progress.prompt_length
        noise = progress.noise.for_positions(
            progress.job.request, first, max(depths) + 1, draw_levels(vocab)
        )
        return noise[depths]

    def histories(self) -> list[History] | None:
        """What the penalties see of each row, None if there are none."""
        progress = self.progress
        if not progress.sampling.reads_history:
            return None
        prompt = progress.context[: progress.prompt_length]
        outputs = [tuple(progress.context[progress.prompt_length :])]
        for token, parent in zip(self.tree.tokens, self.tree.parents, strict=True):
            outputs.append((*outputs[parent + 1], token))
        return [History(prompt, output) for output in outputs]

    def logprobs(self, place: int) -> tuple[float, Alternatives]:
        """Log-probabilities of the token at a place of the kept path, and of the likeliest ones.

        0.0 and nothing if nobody asked.
        """
        if self.progress.logprobs is None:
            return 0.0, ()
        token = self.draft.tokens[place] if place < self.accepted else self.token
        if self.progress.sampling.temperature == 0 and self._plain is None:
            sampling = replace(
                self.progress.sampling, temperature=1.0, top_k=None, top_p=None, min_p=None
            )
            self._plain = target_law(
                self.logits, np.stack(self.tree.masks), self.histories(), sampling
            )
        law = self.law if self._plain is None else self._plain
        row = law[self.rows_of(self.chosen)[place]].double()
        row = row / row.sum()
        count = min(self.progress.job.top_logprobs, int(row.count_nonzero()))
        values, ids = row.topk(count)
        top = tuple(zip(ids.tolist(), values.log().tolist(), strict=True))
        return float(row[token].log()), top


def judge(works: Sequence[Work]) -> None:
    """Fill in law and decision, or the error, of every work."""
    backend = loop_backend(works[0].logits) if works else None
    if backend is None:
        _apart(_group(works, lambda work: work.progress.sampling), _laws)
    else:
        decided = [work for work in works if work.verifier in DECIDED]
        kernels = _group(decided, lambda work: (DECIDED[work.verifier], work.progress.ends))
        _apart(kernels, lambda group: decide_by_kernels(group, backend))
        others = [work for work in works if work.verifier not in DECIDED]
        _apart([others] if others else [], lambda group: laws_by_kernels(group, backend))
        works = others
    sound = [work for work in works if work.error is None]
    _apart(_group(sound, lambda work: (work.verifier, work.progress.ends)), _decide)


def _group(works: Sequence[Work], key: Callable[[Work], Any]) -> list[list[Work]]:
    groups: list[tuple[Any, list[Work]]] = []
    for work in works:
        value = key(work)
        for known, members in groups:
            if known == value:
                members.append(work)
                break
        else:
            groups.append((value, [work]))
    return [members for _, members in groups]


def _apart(groups: list[list[Work]], run: Callable[[list[Work]], object]) -> None:
    """Run on whole groups; where one fails, on each member alone."""
    for group in groups:
        try:
            run(group)
        except StructspecError as error:
            if len(group) == 1:
                group[0].error = error
                continue
            _apart([[work] for work in group], run)


def _laws(works: list[Work]) -> None:
    sampling = works[0].progress.sampling
    logits = works[0].logits if len(works) == 1 else torch.cat([work.logits for work in works])
    masks = np.stack([mask for work in works for mask in work.tree.masks])
    histories = None
    if sampling.reads_history:
        histories = [history for work in works for history in work.histories() or ()]
    law = target_law(logits, masks, histories, sampling)
    sizes = [len(work.tree.masks) for work in works]
    for work, rows in zip(works, law.split(sizes), strict=True):
        work.law = rows


def _decide(works: list[Work]) -> None:
    name = works[0].verifier
    if name == TREE:
        _decide_tree(works)
    else:
        (_decide_several if name in drafts_verifiers else _decide_one)(works)


def _decide_one(works: list[Work]) -> None:
    drafts = [work.drafts[0] for work in works]
    lengths = [len(draft) for draft in drafts]
    longest = max(lengths)
    device, dtype = works[0].law.device, works[0].law.dtype
    if len(works) == 1:
        law = works[0].law[None]
    else:
        law = torch.nn.utils.rnn.pad_sequence([work.law for work in works], batch_first=True)
    sampled = [draft.q for draft in drafts]
    q: Tensor | None = None
    onehot: Tensor | None = None
    if any(rows is not None for rows in sampled):
        if len(works) == 1:
            q = sampled[0][None]
        else:
            q = torch.zeros((len(works), longest, law.shape[2]), dtype=dtype, device=device)
            for i, rows in enumerate(sampled):
                if rows is not None:
                    q[i, : lengths[i]] = rows
        onehot = torch.tensor([_marks(draft, longest) for draft in drafts], dtype=torch.bool)
        onehot = onehot.reshape(len(works), longest)
    tokens = torch.zeros((len(works), longest), dtype=torch.long)
    uniforms = np.zeros((len(works), longest + 1))
    for i, (work, draft) in enumerate(zip(works, drafts, strict=True)):
        tokens[i, : lengths[i]] = torch.tensor(draft.tokens, dtype=torch.long)
        progress = work.progress
        names = [progress.job.request], [progress.stats.steps]
        own = progress.noise.for_verification(*names, lengths[i])[0]
        uniforms[i, : lengths[i]], uniforms[i, -1] = own[:-1], own[-1]
    verdict = verifiers[works[0].verifier](
        law,
        q,
        tokens,
        torch.tensor(lengths),
        torch.from_numpy(uniforms),
        onehot=onehot,
        eos_ids=sorted(works[0].progress.ends),
    )
    accepted, following = verdict.accepted.tolist(), verdict.token.tolist()
    for i, work in enumerate(works):
        work.accepted, work.token = accepted[i], following[i]


def _marks(draft: Draft, length: int) -> list[bool]:
    """Which places are deterministic, padded to `length`."""
    marks = [draft.q is None] * len(draft) if draft.onehot is None else list(draft.onehot)
    return marks + [True] * (length - len(marks))


def _decide_several(works: list[Work]) -> None:
    """K drafts per request, rows gathered from the nodes that they share."""
    count = max(len(work.drafts) for work in works)
    longest = max(len(draft) for work in works for draft in work.drafts)
    width = works[0].law.shape[1]
    like: dict[str, Any] = {"dtype": works[0].law.dtype, "device": works[0].law.device}
    law = torch.zeros((len(works), count, longest + 1, width), **like)
    sampled = any(draft.q is not None for work in works for draft in work.drafts)
    q = torch.zeros((len(works), count, longest, width), **like) if sampled else None
    tokens = torch.zeros((len(works), count, longest), dtype=torch.long)
    lengths = torch.zeros((len(works), count), dtype=torch.long)
    onehot = torch.ones((len(works), count, longest), dtype=torch.bool)
    uniforms = np.zeros((len(works), count, longest + 1))
    for i, work in enumerate(works):
        progress = work.progress
        names = [progress.job.request], [progress.stats.steps]
        uniforms[i] = progress.noise.for_drafts(*names, count, longest)[0]
        for k, draft in enumerate(work.drafts):
            length = len(draft)
            law[i, k, : length + 1] = work.law[work.rows_of(k)]
            tokens[i, k, :length] = torch.tensor(draft.tokens, dtype=torch.long)
            lengths[i, k] = length
            onehot[i, k] = torch.tensor(_marks(draft, longest), dtype=torch.bool)
            if q is not None and draft.q is not None:
                q[i, k, :length] = draft.q
    verdict = drafts_verifiers[works[0].verifier](
        law,
        q,
        tokens,
        lengths,
        torch.from_numpy(uniforms),
        onehot=onehot if sampled else None,
        eos_ids=sorted(works[0].progress.ends),
    )
    assert verdict.row is not None
    chosen = verdict.row.tolist()
    accepted, following = verdict.accepted.tolist(), verdict.token.tolist()
    for i, work in enumerate(works):
        work.chosen, work.accepted, work.token = chosen[i], accepted[i], following[i]


def _decide_tree(works: list[Work]) -> None:
    """Draw the target's own tokens, and follow deterministic drafts while they agree."""
    law = works[0].law if len(works) == 1 else torch.cat([work.law for work in works])
    noise = [work.positions_noise(law.shape[1]) for work in works]
    drawn = draw_rows(law, np.concatenate(noise))
    first = 0
    for work in works:
        tree, node, row = work.tree, -1, first
        children = {place: i for i, place in enumerate(zip(tree.parents, tree.tokens, strict=True))}
        while True:
            work.token = int(drawn[row])
            if work.token == NO_MASS:
                work.error = ModelError(
                    f"internal error: the law behind {work.accepted} drafted tokens has no mass"
                )
                break
            child = children.get((node, work.token))
            if child is None:
                break
            node, row = child, first + child + 1
            work.accepted += 1
            if tree.tokens[node] in work.progress.ends:
                work.token = -1
                break
        work.choose(node)
        first += len(tree.masks)
