"""From logits to the law that is sampled: the user's sampling settings under a mask.

Owns the two laws that the speculative loop compares, both for many
rows at once:

- `target_law`: p' = warp(mask(processors(logits))): processors that look at history (bias,
  penalties) see each row's own prefix, then the grammar's mask, then temperature, top-k, top-p and
  min-p in the order in which transformers applies them, then one softmax;
- `draft_law`: q' = renormalise(mask(warp(processors(logits)))), the mask *last*. A draft that is
  masked first and then cut by top-p may lose tokens that its target keeps, and acceptance falls:
  target (.5, .5), draft (.55, .10) and seven illegal tokens of .05, top-p .6 give .654 in this
  order and .5 in the other. Where the warp leaves nothing legal, q' is the masked law at the same
  temperature.

Invariants
- An illegal token has probability exactly 0, a forced one exactly 1; each row sums to 1 up to
  rounding. Half precision is widened to float32; float64 stays.
- Ties: equal logits at top-k's edge are all kept; at top-p's edge lower ids go first; temperature
  0 is the point mass on the lowest id among the largest.
- Nothing is random here, and equal rows give equal laws wherever they stand in the batch.

Cost: a few passes over [N, V]; top-p selects and sorts the largest 512 logits, more if need be.

Sibling: `structspec.verification` judges drafts by these laws.

Example::

    >>> import torch
    >>> logits = torch.tensor([[2.0, 1.0, 0.0]]).log_softmax(-1)
    >>> mask = torch.tensor([[0b110]], dtype=torch.int32)              # token 0 is illegal
    >>> target_law(logits, mask, None, Sampling(top_k=1)).tolist()
    [[0.0, 1.0, 0.0]]
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from structspec.errors import ModelError, VocabularyError
from structspec.forward.sampling import Sampling
from structspec.kernels.unpack_masks import PackedMasks, unpack_masks

__all__ = ["History", "Sampling", "draft_law", "processed", "target_law"]

# PERF: sorting whole rows of 152k logits costs 20 ms each on one core; a nucleus is mostly small.
_NUCLEUS_COLUMNS = 512


@dataclass(frozen=True)
class History:
    """The tokens in front of one row: what the penalties look at."""

    prompt: Sequence[int] = ()
    output: Sequence[int] = ()

    def extended(self, drafted: Sequence[int]) -> list[History]:
        """The histories of the len(drafted) + 1 rows of a draft: each sees the tokens before it."""
        output = tuple(self.output)
        return [History(self.prompt, output + tuple(drafted[:i])) for i in range(len(drafted) + 1)]


def target_law(
    logits: Tensor,
    masks: PackedMasks | None,
    histories: Sequence[History] | None,
    sampling: Sampling,
) -> Tensor:
    """p' of each row: processors, mask, warp, softmax.

    Args:
        logits: [N, V]; V may exceed the grammar's vocabulary (padded heads), the rest is illegal.
        masks: packed uint32 [N, ceil(V / 32)], bit i % 32 of word i // 32 (numpy uint32, torch
            uint32 or int32), or None where nothing is masked.
        histories: one per row; needed if `sampling.reads_history`.
        sampling: the settings.

    Returns probabilities [N, V], float32 (float64 for float64 logits).

    Raises `ModelError` if a row's mask is empty or the model gives its legal tokens no finite
    logit, NaN or +inf; `VocabularyError` for a biased id that is not in the vocabulary.
    """
    scores = processed(logits, histories, sampling)
    legal = _legal(masks, scores)
    if legal is not None:
        scores = scores.masked_fill(~legal, -math.inf)
    _check_rows(scores, legal)
    if sampling.temperature == 0:
        return _argmax_law(scores)
    return torch.softmax(_truncate(_temper(scores, sampling), sampling), dim=-1)


def draft_law(
    logits: Tensor,
    masks: PackedMasks | None,
    sampling: Sampling,
    histories: Sequence[History] | None = None,
) -> Tensor:
    """q' of each row: processors, warp, then mask, renormalised; arguments as `target_law`.

    Any q' is lossless; giving the draft its target's processors only raises acceptance, so
    without `histories` the penalties are left out.
    """
    scores = processed(logits, histories, sampling, needed=False)
    legal = _legal(masks, scores)
    masked = scores if legal is None else scores.masked_fill(~legal, -math.inf)
    _check_rows(masked, legal)
    if legal is not None:
        _check_rows(scores, None)  # the warp sees illegal tokens too
    if sampling.temperature == 0:
        # The largest legal logit, which is the largest one if that is legal.
        return _argmax_law(masked)
    if legal is None:
        return torch.softmax(_truncate(_temper(scores, sampling), sampling), dim=-1)
    kept = _truncate(_temper(scores, sampling), sampling)
    kept = kept.masked_fill(~legal, -math.inf)
    nothing = (kept == -math.inf).all(dim=-1, keepdim=True)
    return torch.softmax(torch.where(nothing, _temper(masked, sampling), kept), dim=-1)


def processed(
    logits: Tensor, histories: Sequence[History] | None, sampling: Sampling, needed: bool = True
) -> Tensor:
    """Bias, repetition, frequency and presence penalties, in this order, row by row."""
    if logits.dim() != 2:
        raise ValueError(f"logits must be [N, V], got {tuple(logits.shape)}")
    scores = logits if logits.dtype == torch.float64 else logits.float()
    if sampling.logit_bias:
        scores = scores + _bias_row(sampling.logit_bias, scores)
    if not sampling.reads_history or (histories is None and not needed):
        return scores
    if histories is None or len(histories) != scores.shape[0]:
        given = "none" if histories is None else str(len(histories))
        raise ValueError(
            f"penalties need one history per row: {scores.shape[0]} rows, {given} given"
        )
    if sampling.repetition_penalty != 1.0:
        seen = _counts([[*h.prompt, *h.output] for h in histories], scores) > 0
        penalty = sampling.repetition_penalty
        punished = torch.where(scores < 0, scores * penalty, scores / penalty)
        scores = torch.where(seen, punished, scores)
    if sampling.frequency_penalty or sampling.presence_penalty:
        counts = _counts([h.output for h in histories], scores)
        scores = scores - sampling.frequency_penalty * counts
        scores = scores - sampling.presence_penalty * (counts > 0).to(scores.dtype)
    return scores


def _bias_row(bias: Mapping[int, float], scores: Tensor) -> Tensor:
    vocab = scores.shape[1]
    beyond = [token for token in bias if token >= vocab]
    if beyond:
        raise VocabularyError(
            f"logit_bias names id {beyond[0]}, but the model has {vocab} tokens (0..{vocab - 1})"
        )
    row = torch.zeros(vocab, dtype=scores.dtype)
    row[list(bias)] = torch.tensor(list(bias.values()), dtype=scores.dtype)
    return row.to(scores.device)


def _counts(histories: Sequence[Sequence[int]], scores: Tensor) -> Tensor:
    """Occurrences [N, V] of each id in each row's tokens; ids beyond the model's are ignored."""
    rows = np.repeat(np.arange(len(histories)), [len(h) for h in histories])
    ids = np.fromiter((t for h in histories for t in h), dtype=np.int64, count=rows.size)
    known = (ids >= 0) & (ids < scores.shape[1])
    index = torch.from_numpy(rows[known] * scores.shape[1] + ids[known])
    counts = torch.bincount(index, minlength=scores.numel()).reshape(scores.shape)
    return counts.to(device=scores.device, dtype=scores.dtype)


def _legal(masks: PackedMasks | None, scores: Tensor) -> Tensor | None:
    if masks is None:
        return None
    if len(masks.shape) != 2 or masks.shape[0] != scores.shape[0]:
        raise ValueError(
            f"masks must have one packed row per row of logits: {scores.shape[0]} rows, masks "
            f"{tuple(masks.shape)}"
        )
    return unpack_masks(masks, scores.shape[1], scores.device)


def _check_rows(scores: Tensor, legal: Tensor | None) -> None:
    best = scores.amax(dim=-1)  # NaN wins
    if bool(torch.isfinite(best).all()):
        return
    row = int((~torch.isfinite(best)).nonzero()[0])
    if legal is not None and not bool(legal[row].any()):
        raise ModelError(f"the mask of row {row} allows no token: a dead end in the grammar")
    if float(best[row]) == -math.inf:
        raise ModelError(
            f"row {row}: every allowed token has logit -inf; check logit_bias and the model"
        )
    raise ModelError(
        f"the model returned {float(best[row])} in row {row}; "
        "check its weights and dtype (float16 overflows)"
    )


def _argmax_law(scores: Tensor) -> Tensor:
    best = scores.argmax(dim=-1, keepdim=True)  # the first of equals
    return torch.zeros_like(scores).scatter_(1, best, 1.0)


def _temper(scores: Tensor, sampling: Sampling) -> Tensor:
    if sampling.temperature == 1.0:
        return scores
    # The maximum moves to 0 first, so that a tiny temperature cannot overflow to +inf.
    return (scores - scores.amax(dim=-1, keepdim=True)) / sampling.temperature


def _truncate(scores: Tensor, sampling: Sampling) -> Tensor:
    """top-k, top-p and min-p: what they remove becomes -inf."""
    if scores.shape[0] == 0:
        return scores
    if sampling.top_k is not None and sampling.top_k < scores.shape[1]:
        edge = scores.topk(sampling.top_k, dim=-1).values[:, -1:]
        scores = scores.masked_fill(scores < edge, -math.inf)
    if sampling.top_p is not None and sampling.top_p < 1.0:
        scores = _keep_nucleus(scores, sampling.top_p)
    if sampling.min_p:
        edge = scores.amax(dim=-1, keepdim=True) + math.log(sampling.min_p)
        scores = scores.masked_fill(scores < edge, -math.inf)
    return scores


def _keep_nucleus(scores: Tensor, top_p: float) -> Tensor:
    """Keep tokens until the mass in front of the next one reaches top_p; at least one."""
    probabilities = torch.softmax(scores, dim=-1)
    total = probabilities.sum(dim=-1, keepdim=True, dtype=_wide(scores))
    vocab, left = scores.shape[1], int((scores > -math.inf).sum(dim=-1).amax())
    columns = min(_NUCLEUS_COLUMNS, left)  # left >= 1: the rows are checked
    while True:
        if columns < vocab:
            ids = scores.topk(columns, dim=-1).indices.sort(dim=-1).values
        else:
            ids = torch.arange(vocab, device=scores.device).expand_as(scores)
        # Stable, over ascending ids: among equal logits the lower id comes first.
        values, order = scores.gather(1, ids).sort(dim=-1, descending=True, stable=True)
        ids = ids.gather(1, order)
        mass = probabilities.gather(1, ids).to(total.dtype) / total
        keep = mass.cumsum(dim=-1) - mass < top_p
        keep[:, 0] = True
        if columns == vocab:
            break
        # Enough columns if no token outside them equals or exceeds one that is kept.
        last, edge = values[:, -1], values.masked_fill(~keep, math.inf).amin(dim=-1)
        if bool(((edge > last) | (last == -math.inf)).all()):
            break
        columns = min(columns * 16, vocab)
    kept = values.masked_fill(~keep, -math.inf)
    return torch.full_like(scores, -math.inf).scatter_(1, ids, kept)


def _wide(scores: Tensor) -> torch.dtype:
    return torch.float32 if scores.device.type == "mps" else torch.float64
