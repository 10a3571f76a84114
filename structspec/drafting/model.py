"""`ModelDraft`: a smaller model that drafts under the same grammar.

Owns drafting by sampling from a model: its cache, its law q' = renormalise(mask(warp(q))), forced
spans inside the draft (they cost no forward), and the length. Several drafts per round are
independent samples that share what the text so far costs.

Invariants
- every sampled token comes from the row of `q` that is handed on, by the request's own noise, and
  none is dropped because of its value: a draft ends by its length, which was fixed before it, or
  by its own prefix (no room, an end token, a state where the draft can say nothing);
- the length counts *free* places, those that the grammar does not force;
- at temperature 0 the draft is greedy, hence one-hot, and holds no end token;
- with `masked=False`, for comparison, the draft is not masked. Its first illegal token is kept as
  its last: the target gives it no probability, so it is refused and the residual drawn there.
  Cutting it off instead would bias the text.

Cost: one forward of the draft model per free token, for all drafts of all requests of the round at
once (`reads`, `together`).

Siblings: `device.DeviceDrafter` draws such drafts without asking the host; `early_exit.EarlyExit`
runs the target's own first layers; `forced`, `lookup` and `combined` need no model.

Papers: Leviathan et al. 2022 (arXiv 2211.17192), Chen et al. 2023 (arXiv 2302.01318).

Example::

    structspec.generate(target, prompt, Person, draft=ModelDraft(small), draft_count=3)
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass, fields
from typing import Any, TypeAlias

import torch
from torch import Tensor

from structspec.drafting.alignment import Alignment
from structspec.drafting.draft import Draft, DraftBuilder, Request
from structspec.drafting.forced import ForcedSpans
from structspec.drafting.lengths import DraftCosts, DraftLength
from structspec.drafting.output_head import Head
from structspec.drafting.reads import Reader, Wanted, shared_rows
from structspec.drafting.together import Ask, Plan, draft_alone
from structspec.errors import DraftError, ModelError
from structspec.forward.rows import TargetRows
from structspec.forward.warp import History, Sampling, draft_law
from structspec.models import Model
from structspec.packed import count, single_token, unpack
from structspec.verification.randomness import Purpose, sample_inverse

__all__ = ["DraftPath", "DraftSettings", "Found", "ModelDraft", "ModelDrafter"]

#: Asks, and then logits of each active path, over all ids or over those beside them.
Found: TypeAlias = Generator[Ask, Any, list[tuple[Tensor, Tensor | None]]]

# More legal tokens than this and gathering rows of the output matrix costs more than it saves.
_SPARSE = 4096


@dataclass(frozen=True, kw_only=True)
class DraftSettings:
    """How long and how free a model's drafts are, whichever model it is.

    `length`: free tokens of the first draft; later ones adapt between 1 and `max_length` unless
    `adaptive` is off. `costs`: what rounds take (`decoding.calibrate` measures it); adaptive drafts
    then have the length of the most expected tokens per second, from none to `max_length`.
    `limit`: all tokens of a draft, forced ones included. `spans`: whether forced spans go in.
    `masked`: whether the grammar masks the draft.
    """

    length: int = 4
    max_length: int = 8
    adaptive: bool = True
    limit: int = 32
    spans: bool = True
    masked: bool = True
    costs: DraftCosts | None = None

    def settings(self) -> dict[str, Any]:
        """These settings as keyword arguments of another draft."""
        return {field.name: getattr(self, field.name) for field in fields(DraftSettings)}


@dataclass(frozen=True)
class ModelDraft(DraftSettings):
    """Drafts with `model`.

    `on_device`: whether drafts are drawn without asking the host (`device.DeviceDrafter`) where
    that is possible; None: on CUDA with Triton.

    Raises `DraftError` for lengths below 1, and from `begin` for a vocabulary that does not fit.
    """

    model: Model
    on_device: bool | None = None

    def __post_init__(self) -> None:
        for name in ("length", "max_length", "limit"):
            value = getattr(self, name)
            if not isinstance(value, int) or value < 1:
                raise DraftError(f"{name}={value!r} must be at least 1; draft=None drafts nothing")
        if self.length > self.max_length:
            object.__setattr__(self, "max_length", self.length)

    def begin(self, request: Request) -> ModelDrafter:
        """A drafter for one request, with a cache row of its own."""
        target, draft = request.constraint.vocab, self.model.vocab
        alignment = Alignment.of(target, draft, self.model.name)
        if alignment.identical and target.size > self.model.logit_width:
            raise DraftError(
                f"{self.model.name} has {self.model.logit_width} logits for a vocabulary of "
                f"{target.size} ids; use a draft of the target's own family"
            )
        from structspec.drafting.device import DeviceDrafter, device_can_draft

        rows = shared_rows(request, self.model)
        drafter = DeviceDrafter if device_can_draft(self, request, alignment) else ModelDrafter
        return drafter(request, self, alignment, rows, rows.open())


class ModelDrafter:
    """Drafts for one request; made by `begin`. `shared`: the row is the target's own."""

    def __init__(
        self,
        request: Request,
        settings: ModelDraft,
        alignment: Alignment,
        rows: TargetRows,
        row: int,
        network: Any = None,
        shared: bool = False,
    ) -> None:
        self._request = request
        self._settings = settings
        self._alignment = alignment
        self._rows = rows
        self._cache_rows = [row]
        self._network = network
        self._shared = shared
        self._spans = ForcedSpans(request.constraint)
        self._lengths = DraftLength(
            settings.length, settings.max_length, adaptive=settings.adaptive, costs=settings.costs
        )
        self._length = 0  # of this round
        sampling: Sampling = request.sampling or Sampling()
        self._sampling = sampling
        whole = network if network is not None else settings.model.model
        sparse = sampling.plain and settings.masked and alignment.identical
        self._head = Head.of(whole) if sparse and rows.shares_cache else None
        model = request.model
        self._width = settings.model.logit_width if model is None else model.logit_width
        self._free: list[list[int]] = []  # places of the free tokens of the last drafts
        self._copied: list[list[int]] = []  # and of their copies
        self._last: list[Draft] = []

    def propose(self, state: int, context: Sequence[int], left: int, step: int) -> Draft:
        """One draft; see `Drafter`."""
        return self.propose_several(state, context, left, step, 1)[0]

    def propose_several(
        self, state: int, context: Sequence[int], left: int, step: int, count: int
    ) -> list[Draft]:
        """`count` independent drafts behind `context`."""
        return draft_alone(self.plan(state, context, left, step, count))

    def plan(self, state: int, context: Sequence[int], left: int, step: int, count: int) -> Plan:
        """The same as a plan, whose forwards other requests may share (`together`)."""
        self._length = self._lengths.next(step)
        try:
            drafts = yield from self._plan(state, context, left, step, count)
            return drafts
        except ModelError as error:
            raise DraftError(f"the draft {self._settings.model.name} failed: {error}") from error

    def observe(self, draft: Draft, accepted: int) -> None:
        """Adapt the length to what was kept."""
        free = next(
            (f for f, d in zip(self._free, self._last, strict=True) if d is draft), list[int]()
        )
        right = sum(place < accepted for place in free)
        self._lengths.learn(len(free), right, accepted in free)

    def close(self) -> None:
        """Give back the cache rows."""
        for row in self._cache_rows[1 if self._shared else 0 :]:
            self._rows.close(row)
        self._cache_rows = self._cache_rows[:1]

    # -- one round -----------------------------------------------------------------------------

    def _plan(self, state: int, context: Sequence[int], left: int, step: int, count: int) -> Plan:
        limit = self._settings.limit
        paths = [
            DraftPath(
                DraftBuilder(self._request.constraint, state, left, limit), self._uniforms(step, k)
            )
            for k in range(count)
        ]
        base = self._alignment.context(context)
        window = self._settings.model.window
        if window is not None and len(base) + limit > window:
            # another tokenizer's spelling, or the window's edge: draft what fits
            limit = max(0, window - len(base))
            for path in paths:
                path.builder.room = min(path.builder.room, limit)
        first = self._rows.length(self._cache_rows[0])
        while True:
            for path in paths:
                self._extend_forced(path)
            active = [path for path in paths if not path.done]
            if not active:
                break
            found = yield from self._run(base, paths, active)
            for path, (states, sparse) in zip(
                [path for path in active if not path.done], found, strict=True
            ):
                self._sample(path, states, sparse, context)
        if self._shared:
            self._rows.crop(self._cache_rows[0], self._rows.length(self._cache_rows[0]) - first)
        self._free = [path.free for path in paths]
        self._copied = [path.copied for path in paths]
        self._last = [path.build(self._greedy) for path in paths]
        return self._last

    @property
    def _greedy(self) -> bool:
        return self._sampling.temperature == 0

    def _uniforms(self, step: int, row: int) -> Any:
        if self._greedy:
            return None
        return self._request.noise.uniforms(
            self._request.number, step, Purpose.DRAFT, row, self._settings.limit
        )

    def _extend_forced(self, path: DraftPath) -> None:
        """What needs no model, then decide whether the draft goes on."""
        if path.done:
            return
        self._extend_spans(path)
        if not path.builder.room or len(path.free) >= self._length:
            path.done = True

    def _extend_spans(self, path: DraftPath) -> None:
        """Forced spans."""
        builder = path.builder
        if self._settings.spans:
            self._spans.extend(builder)
        while builder.room and (only := single_token(builder.mask)) is not None:
            if not builder.add(only):  # only the end is legal: the loop ends by itself
                path.done = True
                return

    def _run(self, base: list[int], paths: list[DraftPath], active: list[DraftPath]) -> Found:
        """Logits behind each active path, with their ids where only some were computed."""
        reader = Reader(self._rows, self._network, self._head)
        if self._shared and not self._rows.length(self._cache_rows[0]):
            # the target is about to read the prompt: nothing is gained by reading it before
            for path in paths:
                path.done = True
            return []
        if active[0].row < 0:
            # all drafts start from one text and one forced span: they are read once
            (found,) = yield Ask(reader, [self._wanted(base, active[0], self._cache_rows[0])])
            for row, path in zip(self._forked(len(paths)), paths, strict=True):
                path.row = row
            return [self._translated(*found)] * len(active)
        found = yield Ask(reader, [self._wanted(base, path, path.row) for path in active])
        return [self._translated(*each) for each in found]

    def _wanted(self, base: list[int], path: DraftPath, row: int) -> Wanted:
        """The text that a row is to hold, and what is wanted behind it."""
        ids = base + self._alignment.context(path.builder.tokens)
        if self._head is None:
            return Wanted(row, ids)
        mask = path.builder.mask
        few = count(mask) <= _SPARSE
        return Wanted(row, ids, mask if few else None)

    def _forked(self, count: int) -> list[int]:
        """Cache rows for `count` drafts, all holding what the first one holds."""
        while len(self._cache_rows) < count:
            self._cache_rows.append(self._rows.open())
        for row in self._cache_rows[1:count]:
            self._rows.fork(self._cache_rows[0], row)
        return self._cache_rows[:count]

    def _translated(self, logits: Tensor, ids: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """The draft's logits over the target's ids, as wide as the target's, if over all ids."""
        return (self._wide(logits) if ids is None else logits), ids

    def _wide(self, logits: Tensor) -> Tensor:
        if self._alignment.identical:
            missing = self._width - logits.shape[1]
            if missing <= 0:
                return logits[:, : self._width]
            return torch.nn.functional.pad(logits, (0, missing), value=-torch.inf)
        twins = torch.from_numpy(self._alignment.to_draft).to(logits.device)
        known = (twins >= 0) & (twins < logits.shape[1])
        picked = logits[:, twins.clamp(0, logits.shape[1] - 1)].masked_fill(~known, -torch.inf)
        missing = self._width - picked.shape[1]
        return torch.nn.functional.pad(picked, (0, missing), value=-torch.inf)

    def _sample(
        self, path: DraftPath, logits: Tensor, ids: Tensor | None, context: Sequence[int]
    ) -> None:
        """Draw the next token of a path."""
        builder = path.builder
        row = self._law(path, logits, ids, context)
        if row is None:
            path.done = True
            return
        if self._greedy:
            token = int(row.argmax())
            if not builder.add(token):  # an end token, or an illegal one of an unmasked draft
                path.done = True
                return
        else:
            place = len(builder.tokens)
            token = sample_inverse(row.cpu().numpy(), float(path.uniforms[place]))
            if not builder.add(token):
                builder.end(token) or builder.refuse(token)
            path.rows[place] = row
        path.free.append(len(builder.tokens) - 1)

    def _law(
        self, path: DraftPath, logits: Tensor, ids: Tensor | None, context: Sequence[int]
    ) -> Tensor | None:
        """q' [V] at a path's end; None where the draft has nothing legal to say."""
        mask = path.builder.mask
        sampling = self._sampling
        if ids is not None:
            rows = draft_law(logits, None, sampling)[0]
            row = torch.zeros(self._width, dtype=rows.dtype, device=rows.device)
            return row.index_copy(0, ids, rows)
        if not self._settings.masked:
            return draft_law(logits, None, sampling, self._histories(path, context))[0]
        if not self._alignment.identical:
            twins = self._alignment.to_draft
            bits = unpack(mask)[: len(twins)]
            if not (bits.astype(bool) & (twins[: len(bits)] >= 0)).any():
                return None
        return draft_law(logits, mask[None], sampling, self._histories(path, context))[0]

    def _histories(self, path: DraftPath, context: Sequence[int]) -> list[History] | None:
        if not self._sampling.reads_history:
            return None
        prompt = len(self._request.prompt)
        output = (*context[prompt:], *path.builder.tokens)
        return [History(context[:prompt], output)]


class DraftPath:
    """One draft under construction.

    `rows`: q [V] of each sampled place; `free`: places that were drawn; `copied`:
    places that were copied, one-hot. `row`: its cache row, -1 before the first run.
    """

    def __init__(self, builder: DraftBuilder, uniforms: Any) -> None:
        self.builder = builder
        self.uniforms = uniforms
        self.rows: dict[int, Tensor] = {}
        self.free: list[int] = []
        self.copied: list[int] = []
        self.row = -1
        self.done = False

    def build(self, greedy: bool) -> Draft:
        """The draft with its laws; a greedy one needs none."""
        if greedy or not self.rows:
            return self.builder.build()
        example = next(iter(self.rows.values()))
        q = example.new_zeros((len(self.builder.tokens), len(example)))
        for place, row in self.rows.items():
            q[place] = row
        marks = [place not in self.rows for place in range(len(self.builder.tokens))]
        return self.builder.build(q, marks)
