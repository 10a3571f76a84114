"""Verdicts and laws by the kernels, from the logits as the model left them.

Owns the way from a round's logits to `structspec.kernels` and back: the rows of all requests in one
`LogitRows`, their masks uploaded once each, settings that differ from request to request as numbers
per row, and one transfer that brings the verdicts home. No law of a whole row is ever written where
block or layered verification decides; greedy requests are cut to their argmax and verified with the
others.

Which kernels run is `kernels.backend.loop_backend`: Triton on CUDA, and wherever
`STRUCTSPEC_KERNELS` names one. Elsewhere `judge` takes probabilities and the float64 verifiers of
`structspec.verification`.

Invariants
- the uniforms are those of `Randomness`: block verification decides what its float64 sibling
  decides, up to float32 rounding at a threshold. Layered verification reads two uniforms and solves
  its own plan, so its tokens differ from the sibling's; its law is the target's all the same;
- rows of a prefix that drafts share are passed once, so equal prefixes have equal rows;
- places are padded to a power of two: few variants of a kernel are compiled, whatever the drafts.

Cost: 4 launches for block verification, 7 for layered, 1 more per group of requests that cut
(top-k, top-p, min-p, greedy); two uploads and one transfer back.

Sibling: `judge` groups the requests and calls this.

Example::

    name = loop_backend(works[0].logits)
    if name is not None:
        decide_by_kernels(works, name)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from structspec.errors import StructspecError
from structspec.forward.warp import Sampling, processed
from structspec.kernels.block_verify import block_verify
from structspec.kernels.launch import next_power
from structspec.kernels.layered_verify import layered_verify
from structspec.kernels.logit_rows import LogitRows, check_status
from structspec.kernels.masked_softmax_stats import masked_softmax_stats
from structspec.kernels.row_edges import row_edges
from structspec.kernels.verdict import Verdict

if TYPE_CHECKING:
    from structspec.decoding.judge import Work
    from structspec.drafting.draft import Draft

__all__ = ["DECIDED", "decide_by_kernels", "laws_by_kernels"]

DECIDED = {"block": "block", "greedy": "block", "layered": "layered"}
"""Verifiers that a kernel decides → the kernel. All others read laws (`laws_by_kernels`)."""

_FEWEST_PLACES = 4
_NO_ID = 2**31 - 1


def decide_by_kernels(works: Sequence[Work], backend: str) -> None:
    """Fill in the decision, or the error, of works whose verifiers share one kernel and ends."""
    works = sorted(works, key=lambda work: _order(work.progress.sampling))
    rows = _target_rows(works, backend)
    several = DECIDED[works[0].verifier] == "layered"
    plan = _Places(works)
    device = works[0].logits.device
    tokens, lengths, target_rows, draft_rows, ends = _uploaded(
        [plan.tokens, plan.lengths, plan.target_rows, plan.draft_rows, plan.ends], device
    )
    q = plan.draft_law(device)
    draft = None if q is None else LogitRows(q.log().float() if backend == "triton" else q.log())
    uniforms = torch.from_numpy(plan.uniforms(several)).to(device)
    more: dict[str, Any] = {
        "target_rows": target_rows if several else target_rows[:, 0].contiguous(),
        "draft_rows": None if draft is None else draft_rows if several else draft_rows[:, 0],
        "uniforms": uniforms,
        "eos_ids": ends if len(ends) else None,
        "backend": backend,
    }
    verdict: Verdict
    if several:
        verdict = layered_verify(rows, draft, tokens, lengths, **more)
    else:
        verdict = block_verify(rows, draft, tokens[:, 0], lengths[:, 0], **more)
    answers = torch.stack([verdict.accepted, verdict.path, verdict.token, verdict.status]).cpu()
    for i, work in enumerate(works):
        accepted, path, token, status = answers[:, i].tolist()
        if status:
            try:
                check_status(answers[3, i : i + 1])
            except StructspecError as error:
                work.error = error
            continue
        work.accepted, work.chosen, work.token = accepted, path, token
    asked = [w for w in works if w.progress.logprobs is not None and w.error is None]
    if asked:
        laws_by_kernels(asked, backend)


def laws_by_kernels(works: Sequence[Work], backend: str) -> None:
    """Fill in the law of each work's rows; raises the typed error of a row that has none."""
    works = sorted(works, key=lambda work: _order(work.progress.sampling))
    rows = _target_rows(works, backend)
    stats = masked_softmax_stats(rows, backend=backend)
    check_status(stats.status)
    law = stats.probabilities(rows)
    sizes = [len(work.tree.masks) for work in works]
    for work, part in zip(works, law.split(sizes), strict=True):
        work.law = part


def _order(sampling: Sampling) -> tuple[float, ...]:
    """Any order that puts equal settings together; `logit_bias` goes by identity."""
    cuts = (sampling.top_k or 0, sampling.top_p or 1.0, sampling.min_p or 0.0)
    penalties = (
        sampling.repetition_penalty, sampling.frequency_penalty, sampling.presence_penalty,
    )  # fmt: skip
    return (sampling.temperature, *cuts, *penalties, float(id(sampling.logit_bias)))


# -- rows ------------------------------------------------------------------------------------


def _target_rows(works: Sequence[Work], backend: str) -> LogitRows:
    """The rows of all works, in their order, with everything that makes them laws."""
    scores: list[Tensor] = []
    temperatures: list[float] = []
    cuts: list[tuple[int, int, Sampling]] = []
    for _, group in groupby(works, key=lambda work: _order(work.progress.sampling)):
        members = list(group)
        sampling = members[0].progress.sampling
        logits = torch.cat([work.logits for work in members]) if len(members) > 1 else (
            members[0].logits
        )  # fmt: skip
        histories = None
        if sampling.reads_history:
            histories = [history for work in members for history in work.histories() or ()]
        first = len(temperatures)
        temperatures += [sampling.temperature] * len(logits)
        # as the model left them where nothing is added: the kernels widen in registers
        plain = histories is None and not sampling.logit_bias
        scores.append(logits if plain else processed(logits, histories, sampling))
        if not sampling.temperature or _cuts(sampling):
            cuts.append((first, len(temperatures), sampling))
    x = scores[0] if len(scores) == 1 else torch.cat(scores)
    x = x.contiguous()
    masks, index = _shared_masks(works)
    (mask_rows,) = _uploaded([index], x.device)
    table = torch.from_numpy(masks).to(x.device)
    if len(set(temperatures)) == 1 and temperatures[0]:
        temperature: float | Tensor = temperatures[0]
    else:
        temperature = torch.tensor(temperatures, dtype=torch.float32).to(x.device)
    rows = LogitRows(x, table, mask_rows, temperature)
    if not cuts:
        return rows
    edge = torch.full((len(x),), -torch.inf, dtype=_edge_dtype(x, backend), device=x.device)
    edge_id = torch.full((len(x),), _NO_ID, dtype=torch.int32, device=x.device)
    for first, last, sampling in cuts:
        some = replace(
            rows,
            logits=x[first:last],
            mask_rows=mask_rows[first:last].contiguous(),
            temperature=sampling.temperature or 1.0,
        )
        found = row_edges(
            some,
            top_k=sampling.top_k,
            top_p=sampling.top_p,
            min_p=sampling.min_p,
            greedy=not sampling.temperature,
            backend=backend,
        )
        edge[first:last], edge_id[first:last] = found[0], found[1]
    return replace(rows, edge=edge, edge_id=edge_id)


def _cuts(sampling: Sampling) -> bool:
    nucleus = sampling.top_p is not None and sampling.top_p < 1.0
    return sampling.top_k is not None or nucleus or bool(sampling.min_p)


def _edge_dtype(x: Tensor, backend: str) -> torch.dtype:
    return torch.float64 if backend == "reference" or x.dtype == torch.float64 else torch.float32


def _shared_masks(works: Sequence[Work]) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Every different mask once, and which one each row has; constraints intern their rows."""
    place: dict[int, int] = {}
    kept: list[NDArray[np.uint32]] = []
    index = []
    for work in works:
        for mask in work.tree.masks:
            at = place.setdefault(id(mask), len(kept))
            if at == len(kept):
                kept.append(mask)
            index.append(at)
    return np.stack(kept).view(np.int32), np.array(index, np.int32)


# -- places ----------------------------------------------------------------------------------


class _Places:
    """The drafts of all works as arrays [B, K, L] of tokens, lengths and row numbers."""

    def __init__(self, works: Sequence[Work]) -> None:
        self._works = works
        count = max(len(work.drafts) for work in works)
        longest = max(len(draft) for work in works for draft in work.drafts)
        length = max(_FEWEST_PLACES, next_power(longest))
        shape = (len(works), count, length)
        self.tokens = np.zeros(shape, np.int32)
        self.lengths = np.zeros(shape[:2], np.int32)
        self.target_rows = np.zeros((*shape[:2], length + 1), np.int32)
        self.draft_rows = np.full(shape, -1, np.int32)
        self.ends = np.array(sorted(works[0].progress.ends), np.int32)
        self._parts: list[Tensor] = []
        self._rows = 0
        first = 0
        for i, work in enumerate(works):
            seen: dict[int, int] = {}  # row of the target → row of the draft, where one is known
            for k, draft in enumerate(work.drafts):
                self._place(i, k, draft, work.rows_of(k), first, seen)
            first += len(work.tree.masks)

    def _place(
        self, i: int, k: int, draft: Draft, rows: list[int], first: int, seen: dict[int, int]
    ) -> None:
        size = len(draft)
        self.tokens[i, k, :size] = draft.tokens
        self.lengths[i, k] = size
        self.target_rows[i, k, : size + 1] = np.array(rows) + first
        self.target_rows[i, k, size + 1 :] = first
        if draft.q is None:
            return
        marks = draft.onehot or (False,) * size
        base = self._rows
        self._parts.append(draft.q)
        self._rows += size
        for place in range(size):
            if not marks[place]:
                self.draft_rows[i, k, place] = seen.setdefault(rows[place], base + place)

    def draft_law(self, device: torch.device) -> Tensor | None:
        """All rows that tokens were sampled from, [R, V]; None if every place is one-hot."""
        if not self._parts:
            return None
        parts = [part.to(device) for part in self._parts]
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def uniforms(self, several: bool) -> NDArray[np.float64]:
        """[B, L + 1] for one draft (tests, then the token), [B, 2] for several."""
        tests = 1 if several else self.tokens.shape[2]
        out = np.zeros((len(self._works), tests + 1))
        for i, work in enumerate(self._works):
            progress = work.progress
            names = [progress.job.request], [progress.stats.steps]
            out[i] = progress.noise.for_verification(*names, tests)[0]
        return out


def _uploaded(arrays: Sequence[NDArray[np.int32]], device: torch.device) -> list[Tensor]:
    """Several arrays of integers in one transfer; each begins at a multiple of 16 bytes."""
    starts, total = [], 0
    for array in arrays:
        starts.append(total)
        total += -(-array.size // 4) * 4
    flat = np.zeros(max(total, 1), np.int32)
    for start, array in zip(starts, arrays, strict=True):
        flat[start : start + array.size] = array.ravel()
    there = torch.from_numpy(flat).to(device)
    return [
        there[start : start + array.size].view(array.shape)
        for start, array in zip(starts, arrays, strict=True)
    ]
