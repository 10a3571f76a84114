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

Sibling: `model.ModelDraft` drafts with a whole model. `eagle_head` and `medusa_heads` hold the
modules.

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
from structspec.drafting.draft import Draft, Request
from structspec.drafting.eagle_head import EagleHead
from structspec.drafting.head_layer import HeadCache
from structspec.drafting.head_steps import HeadSteps, MedusaSteps, Step
from structspec.drafting.lengths import guesses_after
from structspec.drafting.medusa_heads import MedusaHeads
from structspec.drafting.model import DraftPath, DraftSettings, Found, ModelDraft, ModelDrafter
from structspec.drafting.together import Ask, Plan
from structspec.errors import DraftError
from structspec.packed import Mask, unpack

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
        network = None if request.model is None else request.model.model
        layers = None if network is None else getattr(network.base_model, "layers", None)
        if network is not None and layers is None:
            raise DraftError(
                f"the layers of {type(network).__name__} are not where heads look for them "
                "(base_model.layers); use another draft"
            )
        depth = 0 if layers is None else len(layers)
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
        self._sparse = self._sampling.plain and settings.masked

    def close(self) -> None:
        """Nothing is held but the target's row, which is the loop's."""

    def _over(self, logits: Tensor, ids: Tensor) -> Tensor:
        """Logits [1, n] of some ids as a row over all of the target's."""
        row = logits.new_full((1, self._width), -torch.inf)
        return row.index_copy(1, ids, logits)


@dataclass
class _Run:
    """A path's own branch of the head's cache, and what it has still to read.

    `state`: the head's at its last place; `left`: tokens to read; `read`: drafted tokens that it
    has read, or that are left.
    """

    cache: HeadCache
    state: Tensor
    left: list[int]
    read: int

    def step(self, places: Tensor) -> Step:
        """The next token; logits are wanted behind the last one. Its feature is the head's own."""
        token = self.left.pop(0)
        return Step(self.cache, self.state, [token], wanted=None if self.left else places)

    def branch(self) -> _Run:
        """A run that goes on from here by itself."""
        return _Run(self.cache.branch(), self.state, [], self.read)


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

    def plan(self, state: int, context: Sequence[int], left: int, step: int, count: int) -> Plan:
        """See `ModelDrafter`."""
        self._copies.extend(context[len(self._copies) :])
        drafts = yield from super().plan(state, context, left, step, count)
        return drafts

    def observe(self, draft: Draft, accepted: int) -> None:
        """Adapt the length, and how much is copied, to what was kept."""
        super().observe(draft, accepted)
        pairs = zip(self._copied, self._last, strict=True)
        copied = next((c for c, d in pairs if d is draft), list[int]())
        if self._settings.adaptive:
            self._most_copies = guesses_after(self._most_copies, _COPIES[1], copied, accepted)

    def _extend_spans(self, path: DraftPath) -> None:
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

    def _extend_forced(self, path: DraftPath) -> None:
        super()._extend_forced(path)
        if len(path.builder.tokens) >= _DEEPEST:
            path.done = True

    def _run(self, base: list[int], paths: list[DraftPath], active: list[DraftPath]) -> Found:
        head = HeadSteps(self._eagle)
        if active[0].row < 0:
            # all drafts start from one text and one forced span: they are fed once
            places = self._places(active[0])
            features, known = self._learnt(base)
            if places is None or features is None:
                for path in paths:
                    path.done = True
                return []
            drafted = active[0].builder.tokens
            left = [*base[known + 1 :], *drafted]
            tokens, wanted = base[known + 1 - len(features) : known + 1], None if left else places
            step = Step(self._cache, features, tokens, tapped=True, wanted=wanted)
            ((state, logits),) = yield Ask(head, [step])
            run = _Run(self._cache.branch(), state, left, len(drafted))
            while run.left:
                ((run.state, logits),) = yield Ask(head, [run.step(places)])
            for row, path in enumerate(paths):
                path.row = row
                self._runs[row] = run.branch()
            return [self._over_ids(logits, active[0], places)] * len(active)
        asked = []
        for path in active:
            run = self._runs[path.row]
            places = self._places(path)
            if places is None:
                path.done = True
                continue
            run.left += path.builder.tokens[run.read :]
            run.read = len(path.builder.tokens)
            asked.append((path, run, places))
        found: dict[int, Tensor] = {}
        while feeding := [each for each in asked if each[1].left]:
            answers = yield Ask(head, [run.step(places) for _, run, places in feeding])
            for (path, run, _), (state, logits) in zip(feeding, answers, strict=True):
                run.state, found[path.row] = state, logits
        return [self._over_ids(found[path.row], path, places) for path, _, places in asked]

    def _learnt(self, base: list[int]) -> tuple[Tensor | None, int]:
        """The target's states of places that the head has not read, and how many places it knows.

        None before the target's first forward, and where the text has not gone on.
        """
        rows, row = self._rows, self._cache_rows[0]
        known = min(rows.length(row), len(base) - 1)
        if known < 1:
            return None, 0
        first = min(self._cache.length, known - 1)
        if first < self._cache.length and self._cache.keys is not None:
            # the last place is read again for its state
            assert self._cache.values is not None
            self._cache.keys = self._cache.keys[:, :first]
            self._cache.values = self._cache.values[:, :first]
        return rows.features(row)[first:known], known

    def _places(self, path: DraftPath) -> Tensor | None:
        """Places of the draft's vocabulary whose logits a path needs; None: none is legal."""
        if not self._settings.masked:
            return torch.arange(len(self._known), device=self._eagle.draft_ids.device)
        legal = self._legal(path.builder.mask)
        return torch.from_numpy(legal).to(self._eagle.draft_ids.device) if legal.size else None

    @torch.inference_mode()
    def _over_ids(
        self, logits: Tensor, path: DraftPath, places: Tensor
    ) -> tuple[Tensor, Tensor | None]:
        """Logits over some ids of the target, or as a row over all of them; copies mixed in."""
        ids = self._eagle.draft_ids[places]
        if self._eagle.copy is not None:
            mask = path.builder.mask if self._settings.masked else None
            logits = self._mixed(logits, self._copies.look(path.builder.tokens, mask), ids)
        return (logits, ids) if self._sparse else (self._over(logits, ids), None)

    def _mixed(self, logits: Tensor, copy: Copy | None, ids: Tensor) -> Tensor:
        if copy is None:
            return logits
        token, kind = (torch.tensor([x], device=ids.device) for x in (copy.token, copy.kind))
        return self._eagle.with_copies(logits, token, kind, ids)

    def _legal(self, mask: Mask) -> np.ndarray:
        """Places of the draft's vocabulary that a packed mask allows."""
        bits = unpack(mask)
        return np.flatnonzero(bits[self._known[self._known < len(bits)]])

    def _law(
        self, path: DraftPath, logits: Tensor, ids: Tensor | None, context: Sequence[int]
    ) -> Tensor | None:
        if ids is None and self._settings.masked and not self._legal(path.builder.mask).size:
            return None
        return super()._law(path, logits, ids, context)


class _MedusaDrafter(_HeadDrafter):
    def __init__(self, request: Request, settings: ModelDraft, heads: MedusaHeads) -> None:
        super().__init__(request, settings)
        self._medusa = heads

    def _run(self, base: list[int], paths: list[DraftPath], active: list[DraftPath]) -> Found:
        rows, row = self._rows, self._cache_rows[0]
        known = min(rows.length(row), len(base))
        wanted: list[tuple[Tensor, int]] = []
        for number, path in enumerate(paths):
            path.row = number
        for path in active:
            # the target itself says the token behind its last place; head 0 the one after that
            head = len(base) - known - 1 + len(path.builder.tokens)
            if known < 1 or not 0 <= head < len(self._medusa.heads):
                path.done = True
                continue
            wanted.append((rows.features(row)[known - 1 : known], head))
        if not wanted:
            return []
        found = yield Ask(MedusaSteps(self._medusa), wanted)
        return [self._translated(logits, None) for logits in found]
