"""`EagleDraft` and `MedusaDraft`: drafting with heads on the target's own states.

Owns what a head needs of a request: the target's tapped states of every place that it has read
(`TargetRows.features`), the head's own short cache, and the features of drafted places, which are
the head's own output until the target has read them.

Invariants
- the persistent cache holds places whose features are the target's; drafts run on branches of it;
- a head drafts only tokens of its vocabulary; where none of them is legal the draft ends, which
  its own prefix decides;
- everything else (noise, forced spans, lengths, laws) is `model.ModelDrafter`'s.

Cost: one layer per free token, one more per forced token inside the draft; the target's states are
kept for the whole text, taps × hidden size per token.

Sibling: `model.ModelDraft` drafts with a whole model. `heads` holds the modules and their files.

Example::

    head = EagleHead.load("head", model.model)
    structspec.generate(model, prompt, Person, draft=EagleDraft(head))
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from structspec.drafting.alignment import Alignment
from structspec.drafting.copying import Copy, CopyIndex
from structspec.drafting.draft import Draft, Mask, Request
from structspec.drafting.heads import EagleHead, HeadCache, MedusaHeads
from structspec.drafting.model import DraftSettings, ModelDraft, ModelDrafter, _Path
from structspec.errors import DraftError

__all__ = ["EagleDraft", "HeadFiles", "MedusaDraft"]

# From this share of copying on the head is not asked.
_SURE = 0.75
# Copies of the first draft, and the most of later ones.
_COPIES = (8, 16)
# So far behind the text a head of its own states knows little.
_DEEPEST = 12


@dataclass(frozen=True)
class EagleDraft(DraftSettings):
    """Drafts with an `EagleHead`.

    A head that mixes copies into its law is not asked where it would copy almost surely: there the
    copied token itself is drafted, one-hot, which costs nothing.
    """

    head: EagleHead

    def begin(self, request: Request) -> ModelDrafter:
        """A drafter for one request."""
        return _EagleDrafter(request, _settings(self, request, self.head.taps), self.head)


@dataclass(frozen=True)
class MedusaDraft(DraftSettings):
    """Drafts with `MedusaHeads`."""

    heads: MedusaHeads

    def begin(self, request: Request) -> ModelDrafter:
        """A drafter for one request."""
        depth = 0 if request.model is None else len(request.model.model.base_model.layers)
        return _MedusaDrafter(request, _settings(self, request, (depth,)), self.heads)


@dataclass(frozen=True)
class HeadFiles(DraftSettings):
    """Drafts with the heads in a folder, read for the target of the first request.

    kind: "eagle" or "medusa".
    """

    kind: str
    folder: str
    # the network that was read for last, and its heads
    _read: list[Any] = field(default_factory=list, init=False, repr=False, compare=False)

    def begin(self, request: Request) -> ModelDrafter:
        """A drafter for one request."""
        if request.model is None:
            raise DraftError("draft heads read the states of the target; decode with a Model")
        network = request.model.model
        made: Any
        heads: Any
        made, heads = (
            (EagleDraft, EagleHead) if self.kind == "eagle" else (MedusaDraft, MedusaHeads)
        )
        if not self._read or self._read[0] is not network:
            self._read[:] = network, heads.load(self.folder, network)
        drafter: ModelDrafter = made(self._read[1], **self.settings()).begin(request)
        return drafter


def _settings(source: DraftSettings, request: Request, taps: tuple[int, ...]) -> ModelDraft:
    rows = request.rows
    if request.model is None or rows is None or not rows.shares_cache:
        raise DraftError(
            "draft heads read the states of a target with plain full attention; use another draft"
        )
    if rows.taps not in ((), taps):
        raise DraftError(f"this target's states are tapped at {rows.taps} already, not {taps}")
    rows.taps = taps
    return ModelDraft(request.model, **source.settings())


class _HeadDrafter(ModelDrafter):
    """What drafters with heads share: the target's row, and logits over some ids."""

    def __init__(self, request: Request, settings: ModelDraft) -> None:
        vocab = request.constraint.vocab
        alignment = Alignment.of(vocab, vocab)
        super().__init__(request, settings, alignment, request.rows, request.row, shared=True)
        self._head = None  # of the target; these have their own
        sampling = self._sampling
        truncated = sampling.top_k is not None or sampling.top_p is not None or bool(sampling.min_p)
        plain = not (truncated or sampling.reads_history or sampling.logit_bias)
        self._sparse = plain and settings.masked

    def close(self) -> None:
        """Nothing is held but the target's row, which is the loop's."""

    def _over(self, logits: Tensor, ids: Tensor) -> Tensor:
        """Logits [1, n] of some ids as a row over all of the target's."""
        row = logits.new_full((1, self._width), -torch.inf)
        return row.index_copy(1, ids, logits)


@dataclass
class _Run:
    """A path's own branch: the head's cache, its last state, how many drafted tokens it read."""

    cache: HeadCache
    state: Tensor
    read: int = 0


class _EagleDrafter(_HeadDrafter):
    def __init__(self, request: Request, settings: ModelDraft, head: EagleHead) -> None:
        super().__init__(request, settings)
        self._eagle = head
        self._cache = HeadCache()
        self._known = head.draft_ids.cpu().numpy()
        self._copies = CopyIndex(request.constraint.vocab)
        self._sure = np.zeros(0, dtype=bool)
        if head.copy is not None:
            shares = torch.sigmoid(head.copy.detach().float())
            self._sure = (shares >= _SURE).cpu().numpy()
        self._most_copies = _COPIES[0]
        self._runs: dict[int, _Run] = {}

    def propose_several(
        self, state: int, context: Sequence[int], left: int, step: int, count: int
    ) -> list[Draft]:
        """See `ModelDrafter`."""
        self._copies.extend(context[len(self._copies) :])
        return super().propose_several(state, context, left, step, count)

    def observe(self, draft: Draft, accepted: int) -> None:
        """Adapt the length, and how much is copied, to what was kept."""
        super().observe(draft, accepted)
        pairs = zip(self._copied, self._last, strict=True)
        copied = next((c for c, d in pairs if d is draft), list[int]())
        if not copied or not self._settings.adaptive:
            return
        right = sum(place < accepted for place in copied)
        if right == len(copied):
            self._most_copies = min(_COPIES[1], 2 * self._most_copies)
        elif accepted in copied:  # a copy was refused, not a token before it
            self._most_copies = max(1, (self._most_copies + right + 1) // 2)

    def _extend_spans(self, path: _Path) -> None:
        """Forced spans and sure copies in turn."""
        builder = path.builder
        while True:
            super()._extend_spans(path)
            if path.done or not builder.room or len(path.copied) >= self._most_copies:
                return
            if not (self._settings.masked and self._sure.any()):
                return
            copy = self._copies.look(builder.tokens, builder.mask)
            if copy is None or not self._sure[copy.kind] or not builder.add(copy.token):
                return
            path.copied.append(len(builder.tokens) - 1)

    def _extend_forced(self, path: _Path) -> None:
        super()._extend_forced(path)
        if len(path.builder.tokens) >= _DEEPEST:
            path.done = True

    @torch.inference_mode()
    def _run(
        self, base: list[int], paths: list[_Path], active: list[_Path]
    ) -> list[tuple[Tensor, Tensor | None]]:
        if active[0].row < 0:
            state = self._absorb(base)
            if state is None:
                for path in paths:
                    path.done = True
                return []
            for row, path in enumerate(paths):
                path.row = row
                self._runs[row] = _Run(self._cache.branch(), state)
            # places that the target has not read yet come first in every branch
            unread = base[self._cache.length + 1 :]
            for run in self._runs.values():
                self._feed(run, unread)
        results = []
        for path in active:
            run = self._runs[path.row]
            self._feed(run, path.builder.tokens[run.read :])
            run.read = len(path.builder.tokens)
            results.append(self._logits_of(run.state, path))
        return results

    def _absorb(self, base: list[int]) -> Tensor | None:
        """Read what the target has learnt of the text since; the head's state at its end.

        None before the target's first forward, and where the text has not gone on.
        """
        rows, row = self._rows, self._cache_rows[0]
        known = min(rows.length(row), len(base) - 1)
        if known < 1:
            return None
        first = min(self._cache.length, known - 1)
        if first < self._cache.length and self._cache.keys is not None:
            # the last place is read again for its state
            assert self._cache.values is not None
            self._cache.keys = self._cache.keys[:, :first]
            self._cache.values = self._cache.values[:, :first]
        features = self._eagle.reduce(self._cast(rows.features(row)[first:known]))
        tokens = torch.tensor(base[first + 1 : known + 1], device=features.device)
        return self._eagle(features, tokens, self._cache)[-1:]

    def _cast(self, states: Tensor) -> Tensor:
        return states.to(self._eagle.fc.weight.dtype)

    def _feed(self, run: _Run, tokens: Sequence[int]) -> None:
        """Go on behind tokens whose features are the head's own."""
        for token in tokens:
            one = torch.tensor([token], device=run.state.device)
            run.state = self._eagle(run.state, one, run.cache)

    def _logits_of(self, state: Tensor, path: _Path) -> tuple[Tensor, Tensor | None]:
        ids, head = self._eagle.draft_ids, self._eagle
        mask = path.builder.mask if self._settings.masked else None
        copy = None if head.copy is None else self._copies.look(path.builder.tokens, mask)
        if mask is None:
            return self._over(self._mixed(head.logits(state), copy, ids), ids), None
        legal = self._legal(mask)
        if not legal.size:  # `_law` ends the draft
            return self._over(head.logits(state), ids), None
        places = torch.from_numpy(legal).to(state.device)
        some = ids[places]
        logits = self._mixed(head.logits(state, places), copy, some)
        if self._sparse:
            return logits, some
        return self._over(logits, some), None

    def _mixed(self, logits: Tensor, copy: Copy | None, ids: Tensor) -> Tensor:
        if copy is None:
            return logits
        token, kind = (torch.tensor([x], device=ids.device) for x in (copy.token, copy.kind))
        return self._eagle.with_copies(logits, token, kind, ids)

    def _legal(self, mask: Mask) -> np.ndarray:
        """Places of the draft's vocabulary that a packed mask allows."""
        bits = np.unpackbits(mask.view(np.uint8), bitorder="little")
        return np.flatnonzero(bits[self._known[self._known < len(bits)]])

    def _law(
        self, path: _Path, logits: Tensor, ids: Tensor | None, context: Sequence[int]
    ) -> Tensor | None:
        if ids is None and self._settings.masked and not self._legal(path.builder.mask).size:
            return None
        return super()._law(path, logits, ids, context)


class _MedusaDrafter(_HeadDrafter):
    def __init__(self, request: Request, settings: ModelDraft, heads: MedusaHeads) -> None:
        super().__init__(request, settings)
        self._medusa = heads

    @torch.inference_mode()
    def _run(
        self, base: list[int], paths: list[_Path], active: list[_Path]
    ) -> list[tuple[Tensor, Tensor | None]]:
        rows, row = self._rows, self._cache_rows[0]
        known = min(rows.length(row), len(base))
        results: list[tuple[Tensor, Tensor | None]] = []
        for number, path in enumerate(paths):
            path.row = number
        for path in active:
            # the target itself says the token behind its last place; head 0 the one after that
            head = len(base) - known - 1 + len(path.builder.tokens)
            if known < 1 or not 0 <= head < len(self._medusa.heads):
                path.done = True
                continue
            state = rows.features(row)[known - 1 : known]
            results.append((self._translated(self._medusa.logits(state, head)), None))
        return results
