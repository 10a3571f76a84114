"""`DeviceDrafter`: a model's drafts drawn in a loop that does not ask the host.

Owns the draft loop on the device. Behind the text and its forced span every turn masks, draws and
advances in `kernels.draft_step` and runs the draft model on what was drawn, for all drafts of the
round together. On CUDA the turns of a round are captured once in a CUDA graph per length and
replayed; elsewhere, and for models that cannot be captured, they run one by one.

Where the masks come from:

- the constraint's automaton, determinised whole on the device (`ConstraintWalk`), if it has at most
  `MOST_STATES` states, the vocabulary holds its single bytes, and the budget cannot bind within the
  draft (every state's distance fits in what would be left);
- otherwise `MaskPool`: rows filled by the host, which then sees each token before the next turn.

Invariants
- as `ModelDraft`: tokens are drawn from the rows of `q` that are handed on, by the request's own
  uniforms (index = place in the draft), and the number of turns is fixed before the first;
- the host walks the drawn tokens once more: states and masks of the draft are the constraint's own;
- a place that the grammar forces inside the loop costs a turn, unlike a span in front of it.

Cost: a turn is one forward of K rows and two launches (four without a table of masks); one transfer
per round brings the tokens home.

Sibling: `model.ModelDrafter` draws on the host, and does all that this cannot: top-k, top-p, min-p,
penalties, other vocabularies, unmasked drafts.

Example::

    ModelDraft(model=small)                      # on CUDA with Triton this drafter is made
    ModelDraft(model=small, on_device=True)      # anywhere, for tests
"""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from structspec.attention import MASK_FORMS
from structspec.drafting.alignment import Alignment
from structspec.drafting.draft import Draft, DraftBuilder, Request
from structspec.drafting.loop_cache import LoopCache
from structspec.drafting.model import DraftPath, ModelDraft, ModelDrafter
from structspec.drafting.together import Plan
from structspec.errors import BudgetExceeded, DraftError, KernelError
from structspec.forward.rows import TargetRows
from structspec.forward.slots import fits
from structspec.kernels.automaton_walk.determinise import ConstraintWalk
from structspec.kernels.automaton_walk.pool import MaskPool
from structspec.kernels.backend import choose, loop_backend
from structspec.kernels.draft_step import DraftStep
from structspec.kernels.logit_rows import LogitRows
from structspec.kernels.masked_softmax_stats import masked_softmax_stats
from structspec.masks.constraint import Constraint

__all__ = ["MOST_STATES", "DeviceDrafter", "device_can_draft"]

MOST_STATES = 4096
"""States of an automaton that is put on the device for a draft loop."""

_BUCKET = 256
_GREEDY = 1e-6

_walks: weakref.WeakKeyDictionary[Constraint, ConstraintWalk | None] = weakref.WeakKeyDictionary()


def device_can_draft(settings: ModelDraft, request: Request, alignment: Alignment) -> bool:
    """Whether this drafter can do what is asked, and is wanted."""
    model, sampling = settings.model, request.sampling
    wanted = settings.on_device
    if wanted is None:
        like = torch.empty(0, dtype=model.dtype, device=model.device)
        wanted = model.device.type == "cuda" and loop_backend(like) == "triton"
    if not wanted or not settings.masked or not alignment.identical:
        return False
    if sampling is not None and not sampling.plain:
        return False
    attention = getattr(model.model.config, "_attn_implementation", None)
    return attention in MASK_FORMS and fits(model.model)


class DeviceDrafter(ModelDrafter):
    """Drafts for one request; made by `ModelDraft.begin`. See the module."""

    def __init__(
        self,
        request: Request,
        settings: ModelDraft,
        alignment: Alignment,
        rows: TargetRows,
        row: int,
    ) -> None:
        super().__init__(request, settings, alignment, rows, row)
        self._loops: dict[int, _Loop] = {}
        self.captured = 0
        """Rounds that were replayed from a CUDA graph."""

    def close(self) -> None:
        """Give back the memory of the loops."""
        super().close()
        self._loops.clear()

    def _plan(self, state: int, context: Sequence[int], left: int, step: int, count: int) -> Plan:
        yield from ()  # its rounds are captured whole: nothing is shared with other requests
        return self._propose(state, context, left, step, count)

    @torch.inference_mode()
    def _propose(
        self, state: int, context: Sequence[int], left: int, step: int, count: int
    ) -> list[Draft]:
        constraint, limit = self._request.constraint, self._settings.limit
        paths = [
            DraftPath(DraftBuilder(constraint, state, left, limit), self._uniforms(step, k))
            for k in range(count)
        ]
        for path in paths:
            self._extend_forced(path)  # they all begin alike
        builder = paths[0].builder
        ids = [*context, *builder.tokens]
        length = min(self._length, builder.room)
        if self._settings.model.window is not None:
            length = min(length, self._settings.model.window - len(ids))
        if not paths[0].done and length > 0:
            loop = self._loop(count, len(ids) + length)
            place = len(builder.tokens)
            draws = torch.zeros(count, length, dtype=torch.float64)
            if not self._greedy:
                for k, path in enumerate(paths):
                    draws[k] = torch.from_numpy(path.uniforms[place : place + length])
            drawn = loop.run(ids, builder.state, builder.left, draws)
            self.captured += loop.replayed
            laws = None if self._greedy else loop.laws(length, self._width)
            for k, path in enumerate(paths):
                self._take(path, drawn[k], None if laws is None else laws[:, k])
                path.done = path.done or not path.builder.room
                if not path.done and self._settings.spans:
                    self._spans.extend(path.builder)
        self._free = [path.free for path in paths]
        self._last = [path.build(self._greedy) for path in paths]
        return self._last

    def _take(self, path: DraftPath, tokens: Sequence[int], law: Tensor | None) -> None:
        """Walk the tokens that the device drew."""
        builder = path.builder
        for i, token in enumerate(tokens):
            if token < 0:
                path.done = True
                return
            place = len(builder.tokens)
            ended = not builder.add(token)
            if ended:
                path.done = True
                if law is None:
                    return  # a greedy draft holds no end token
                if not builder.end(token):
                    raise DraftError(
                        f"internal error: the device drew token {token}, which the constraint's "
                        f"state {builder.state} does not allow"
                    )
            path.free.append(place)
            if law is not None:
                path.rows[place] = law[i]
            if ended:
                return

    def _loop(self, count: int, positions: int) -> _Loop:
        """The loop for so many drafts, made anew where the text or the automaton outgrew it."""
        loop = self._loops.get(count)
        walk = _walk_of(self._request.constraint, self._settings.model.device)
        if loop is None or loop.cache.slots < positions or loop.walk is not walk:
            slots = -(-(positions + positions // 2) // _BUCKET) * _BUCKET
            if self._settings.model.window is not None:
                slots = max(min(slots, self._settings.model.window), positions)
            loop = _Loop(self._request, self._settings, walk, count, slots)
            self._loops[count] = loop
        return loop


class _Loop:
    """The buffers of K drafts, and the turns over them."""

    def __init__(
        self, request: Request, settings: ModelDraft, walk: ConstraintWalk | None, count: int,
        slots: int,
    ) -> None:  # fmt: skip
        model, constraint = settings.model, request.constraint
        self.walk = walk
        self.cache = LoopCache(model.model, count, slots)
        self.replayed = 0
        self._constraint = constraint
        self._device = model.device
        temperature = 1.0 if request.sampling is None else request.sampling.temperature
        self._temperature = temperature or _GREEDY
        self._vocab = constraint.vocab.size
        self._name = choose(model.device)
        length = settings.max_length
        wide = model.dtype == torch.float64  # which the kernels of a step do not take
        self._logits = torch.zeros(
            (length, count, self._vocab),
            dtype=torch.float32 if wide else model.dtype,
            device=model.device,
        )
        self._state = torch.zeros(count, dtype=torch.int32, device=model.device)
        self._farthest = 0
        self._step = self._made(length, count, walk)
        if walk is not None:
            self._farthest = int(walk.automaton.cost[2:].max())
        self._pool: MaskPool | None = None
        self._pool_step: DraftStep | None = None
        self._slots: list[Tensor] = []  # mask rows of each place, where the host filled them
        self._graphs: dict[tuple[int, int], Any] = {}
        self._capture = model.device.type == "cuda"

    def _made(self, length: int, count: int, walk: ConstraintWalk | None) -> DraftStep:
        return DraftStep(
            None if walk is None else walk.automaton, count, length, vocab=self._vocab,
            device=self._device, temperature=self._temperature, given=True, backend=self._name,
        )  # fmt: skip

    def run(self, ids: Sequence[int], state: int, left: int, draws: Tensor) -> list[list[int]]:
        """Tokens [K, L] behind the text `ids`, by the uniforms [K, L]; -1 behind an end."""
        count, length = draws.shape
        first = self.cache.read(ids)
        self.cache.spread()
        visible = -(-(len(ids) + length) // _BUCKET) * _BUCKET
        self.cache.start(min(visible, self.cache.slots))
        self._logits[0].copy_(first[:, : self._vocab].expand(count, -1))
        self.replayed = 0
        if self.walk is None or left - length < self._farthest:
            return self._hosted(state, left, draws)
        self._slots = []
        uniforms = self._step.uniforms
        assert uniforms is not None
        uniforms[:, :length].copy_(draws)
        self._state.fill_(self.walk.device_state(state))
        self._turns(length)
        tokens = torch.cat([self._step.tokens[:, :length], self._step.status[:, None]], dim=1)
        return self._home(tokens.tolist())

    def laws(self, length: int, width: int) -> Tensor:
        """The rows of q, [L, K, width], that the last tokens were drawn from."""
        count = self.cache.rows
        if self._slots:
            assert self._pool is not None
            masks, rows = self._pool.rows, torch.cat(self._slots)
        else:
            states = self._step.path_states[:, :length].t().reshape(-1)
            if self._step.table is not None:
                masks, rows = self._step.table, states
            else:
                assert self.walk is not None
                masks = self.walk.automaton.masks(states, backend=self._name)
                rows = torch.arange(len(states), dtype=torch.int32, device=self._device)
        flat = self._logits[:length].view(length * count, self._vocab)
        logits = LogitRows(flat, masks, rows.contiguous(), self._temperature)
        law = masked_softmax_stats(logits, backend=self._name).probabilities(logits)
        padded = torch.nn.functional.pad(law, (0, width - self._vocab))
        return padded.view(length, count, width).to(torch.float32)

    def _turn(self, step: DraftStep, place: int) -> None:
        """Run the model on what was drawn at `place`, for the logits of the next one."""
        tokens = step.tokens[:, place].clamp(min=0).long()
        self._logits[place + 1].copy_(self.cache.turn(tokens)[:, : self._vocab])

    def _turns(self, length: int) -> None:
        """All turns of a round; from a graph where there is one."""
        if self._capture:
            key = (length, self.cache.visible)
            if key not in self._graphs:
                self._graphs[key] = self._captured(length)
            if self._graphs[key] is not None:
                self._graphs[key].replay()
                self.replayed = 1
                return
        self._eager(length)

    def _eager(self, length: int) -> None:
        self._step.begin(self._state)
        for place in range(length):
            self._step(self._logits[place], place)
            if place + 1 < length:
                self._turn(self._step, place)

    def _captured(self, length: int) -> Any:
        """The turns as a CUDA graph, None for a model that cannot be captured."""
        side = torch.cuda.Stream(self._device)
        side.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(side):
            for _ in range(2):  # compiles kernels and fills the allocator
                self._eager(length)
                self.cache.start(self.cache.visible)
        torch.cuda.current_stream(self._device).wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph):
                self._eager(length)
        except RuntimeError as error:
            warnings.warn(
                f"the draft model cannot be captured in a CUDA graph ({error}); its turns run one "
                "by one",
                stacklevel=2,
            )
            self._capture = False
            return None
        finally:
            self.cache.start(self.cache.visible)
        return graph

    def _hosted(self, state: int, left: int, draws: Tensor) -> list[list[int]]:
        """The same where the host fills the masks, token by token."""
        count, length = draws.shape
        if self._pool is None:
            # as many as a round can ask for: `laws` reads all of them behind it
            rows = max(256, count * len(self._logits))
            self._pool = MaskPool(self._constraint, rows=rows, device=self._device)
            self._pool_step = self._made(len(self._logits), count, None)
        step = self._pool_step
        assert step is not None and step.uniforms is not None
        step.uniforms[:, :length].copy_(draws)
        step.begin(self._state)
        states, over = [state] * count, [False] * count
        ends = frozenset(self._constraint.vocab.eos_ids)
        tokens: list[list[int]] = [[] for _ in range(count)]
        self._slots = []
        for place in range(length):
            # a finished draft keeps its last state: what it draws is not used
            self._slots.append(self._pool.slots(states, [left - place] * count))
            step(self._logits[place], place, self._pool.rows, self._slots[-1])
            found = torch.cat([step.tokens[:, place], step.status]).tolist()
            for k, token in enumerate(found[:count]):
                tokens[k].append(-1 if over[k] else token)
                over[k] = over[k] or token < 0 or token in ends
                if not over[k]:
                    states[k] = int(self._constraint.advance(states[k], token))
            if any(found[count:]):
                self._home([[*row, bad] for row, bad in zip(tokens, found[count:], strict=True)])
            if all(over):
                # the rows behind are not drawn from, but there must be as many as places
                self._slots += [self._slots[-1]] * (length - place - 1)
                break
            if place + 1 < length:
                self._turn(step, place)
        return tokens

    def _home(self, rows: list[list[int]]) -> list[list[int]]:
        """Tokens without their statuses; raises for NaN."""
        if any(row[-1] for row in rows):
            raise DraftError(
                "the draft model returned NaN or +inf among its allowed logits; check its weights "
                "and dtype (float16 overflows)"
            )
        return [row[:-1] for row in rows]


def _walk_of(constraint: Any, device: torch.device) -> ConstraintWalk | None:
    """The constraint's automaton on the device, None where it does not fit; remembered."""
    if not isinstance(constraint, Constraint):
        return None  # healed prefixes and the like mask by themselves
    if constraint in _walks:
        walk = _walks[constraint]
        current = walk is None or (
            walk.epoch == constraint.cache.epoch and walk.automaton.device == device
        )
        if current:
            return walk
    try:
        walk = ConstraintWalk.build(constraint, device=device, states=MOST_STATES)
    except (BudgetExceeded, KernelError):
        walk = None
    _walks[constraint] = walk
    return walk
