"""The decoding loop: draft, one target forward, verify, commit; for one request or many.

Each round drafts behind the committed text of every active request, runs the target once over what
its cache lacks plus the drafts, computes the masked law of every row, lets a verifier decide, and
drops what was refused. Requests keep different numbers of tokens and stand at different lengths;
those that finish make room for those that wait. Without a draft it is plain masked sampling, the
same code with drafts of length zero.

Invariants
- the law of each output is that of plain sampling from p' = warp(mask(p)), token by token, for
  every draft and verifier (`structspec.verification`);
- each row's mask is `mask(state, left)` with that row's own state and budget, so the text can be
  finished within `max_tokens` (the end token is not counted) and always is;
- a token that is the only legal one is committed without a forward; its cache entries are filled
  by the next one. Where only the end is legal a request ends without a forward;
- randomness is a function of (seed, request, place) of the request alone: it repeats exactly, alone
  or in any batch, up to ties in the rounding of the model's own arithmetic. With drafts that are
  certain of themselves (look-up, forced spans, forks, none) the place is a position of the text,
  which is then the same with any of them; with drafts that are sampled it is a step;
- a request that fails takes no other with it, and what was committed is never lost: an exception
  carries the text so far as `partial_output` (`partial_outputs` where several were under way).

Stop strings end the text where it is *complete*: at the first token boundary at or behind the
string's last byte where the grammar accepts. Nothing is cut off, so the text stays valid; inside
a JSON value a stop string has no effect before the value ends.

Cost: one forward per round over 1 + draft tokens of each request, one softmax per row; masks and
drafts are microseconds beside it, unless a model drafts.

Siblings: `progress` holds a request, `rows` the cache, `judge` laws and verification. transformers'
`generate` decodes without these guarantees.

Example::

    model = structspec.models.load()
    constraint = structspec.compile(schema).bind(model.vocab)
    ids = encode_prompt(model, "A person as JSON: ").ids
    output = decode(model, ids, constraint, draft="auto", max_tokens=100)
    output.text, output.stats.tokens_per_forward
"""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Sequence
from numbers import Integral
from typing import Any

import numpy as np
import torch

from structspec.decoding.judge import STEADY, Work, judge, verifier_name
from structspec.decoding.output import Output
from structspec.decoding.progress import Job, OnToken, Progress
from structspec.drafting import Draft, Drafter, DraftSource, Request, draft_source
from structspec.drafting.together import draft_together, plan_of
from structspec.errors import DraftError, StructspecError
from structspec.forward.rows import Call, TargetRows
from structspec.forward.sampling import Sampling
from structspec.kernels.backend import loop_backend
from structspec.kernels.unpack_masks import unpack_masks
from structspec.models import Model
from structspec.packed import Mask, is_set, single_token

__all__ = ["Loop", "decode", "decode_many"]


def decode(
    model: Model,
    prompt_ids: Sequence[int],
    constraint: Any,
    *,
    sampling: Sampling | None = None,
    draft: DraftSource | str | None = None,
    verifier: str = "block",
    draft_count: int = 1,
    max_tokens: int | None = None,
    stop: str | bytes | Sequence[str | bytes] = (),
    seed: int | None = None,
    request: int = 0,
    on_token: OnToken | None = None,
    logprobs: bool = False,
    top_logprobs: int = 0,
) -> Output:
    """Write one complete text of `constraint` behind `prompt_ids`.

    Args:
        model: the target.
        prompt_ids, constraint, sampling, max_tokens, stop, seed, request, on_token, logprobs,
            top_logprobs: as in `Job`.
        draft: a draft source or its name (see `structspec.drafting.draft_source`), None for plain
            decoding.
        verifier: "block" or "token" for one draft; for several "layered", which "block" becomes
            there. Temperature 0 is always verified greedily.
        draft_count: how many independent drafts to sample per round; needs a draft that can.

    Raises, before the first token, `TokenBudgetError` if `max_tokens` cannot hold a text,
    `PromptError` if the context window cannot, `VocabularyError` if model and constraint do not
    fit, `DraftError` for a draft or verifier that cannot be used. Later `ModelError` if the model
    returns NaN, `DraftError` if a draft does. An exception from the middle carries
    `partial_output`.
    """
    job = Job(
        prompt_ids,
        constraint,
        sampling or Sampling(),
        max_tokens,
        stop,
        seed,
        request,
        on_token,
        logprobs,
        top_logprobs,
    )
    loop = Loop(model, [job], draft=draft, verifier=verifier, draft_count=draft_count)
    loop.run()
    outcome = loop.outcomes[0]
    assert outcome is not None
    if isinstance(outcome, Exception):
        raise outcome
    return outcome


def decode_many(
    model: Model,
    jobs: Sequence[Job],
    *,
    draft: DraftSource | str | None = None,
    verifier: str = "block",
    draft_count: int = 1,
    batch_size: int = 8,
) -> list[Output | Exception]:
    """Write one text for each job, up to `batch_size` of them at a time.

    Returns outcomes in the order of the jobs: an `Output`, or the error of a request that failed,
    with its `partial_output` if it had begun. Arguments and errors that concern all requests as
    in `decode`.
    """
    loop = Loop(
        model,
        jobs,
        draft=draft,
        verifier=verifier,
        draft_count=draft_count,
        batch_size=batch_size,
    )
    loop.run()
    return [outcome for outcome in loop.outcomes if outcome is not None]


class _Active:
    """A request that has a row: its progress and what belongs to its turn in the batch."""

    def __init__(self, index: int, progress: Progress, row: int, drafter: Drafter | None) -> None:
        self.index = index
        self.progress = progress
        self.row = row
        self.drafter = drafter


class Loop:
    """Many requests on one model, one round at a time.

    `outcomes[i]` is None until request i has ended, then its `Output` or its error. `step` runs
    one round and says whether there is more to do. Between rounds `add` takes further requests and
    `give_up` lets one go. `close` gives up what is still under way.
    """

    def __init__(
        self,
        model: Model,
        jobs: Sequence[Job],
        *,
        draft: DraftSource | str | None = None,
        verifier: str = "block",
        draft_count: int = 1,
        batch_size: int = 8,
    ) -> None:
        for name, count in (("batch_size", batch_size), ("draft_count", draft_count)):
            if not isinstance(count, Integral):
                raise TypeError(f"{name}={count!r} is not an int")
        if batch_size < 1:
            raise ValueError(f"batch_size={batch_size} must be at least 1")
        if draft_count < 1:
            raise DraftError(
                f"draft_count={draft_count} must be at least 1; draft=None drafts none"
            )
        self.model = model
        self.outcomes: list[Output | Exception | None] = [None] * len(jobs)
        self._source = draft_source(draft)
        if self._source is None and draft_count > 1:
            raise DraftError(f"draft_count={draft_count} needs a draft")
        # a misnamed or missing kernel shows before the first token
        loop_backend(torch.empty(0, dtype=model.dtype, device=model.device))
        self._count = draft_count
        self._batch_size = batch_size
        self._rows = TargetRows(model)
        self._shared: dict[Any, Any] = {}  # what the requests' drafters have in common
        self._active: list[_Active] = []
        self._waiting: deque[tuple[int, Progress]] = deque()
        self._verifiers: dict[int, str] = {}
        self._verifier = verifier
        for index, job in enumerate(jobs):
            self._enqueue(index, job)

    def add(self, job: Job) -> int:
        """Let one more request wait for a place; returns its index in `outcomes`.

        May be called between rounds. A request that is refused has its error as outcome at once.
        """
        self.outcomes.append(None)
        self._enqueue(len(self.outcomes) - 1, job)
        return len(self.outcomes) - 1

    def give_up(self, index: int) -> None:
        """Let a request go that waits or is under way; its outcome stays None."""
        self._waiting = deque(waiting for waiting in self._waiting if waiting[0] != index)
        for active in [active for active in self._active if active.index == index]:
            self._leave(active)
        self._verifiers.pop(index, None)

    def run(self) -> None:
        """Run all requests to their end."""
        try:
            while self.step():
                pass
        except BaseException as error:
            # an interrupt, too, must not lose what was paid for
            with contextlib.suppress(AttributeError):
                partial = self.partial_outputs()
                error.partial_outputs = partial  # type: ignore[attr-defined]
                if len(partial) == 1:
                    error.partial_output = partial[0]  # type: ignore[attr-defined]
            raise

    def partial_outputs(self) -> list[Output | Exception | None]:
        """What every request has so far: outcomes, and unfinished outputs with reason "error"."""
        outputs = list(self.outcomes)
        for active in self._active:
            if outputs[active.index] is None:
                outputs[active.index] = active.progress.output("error")
        return outputs

    def close(self) -> None:
        """Give up the requests that are under way or wait; their outcomes stay None."""
        self._waiting.clear()
        for active in list(self._active):
            self._leave(active)

    def step(self) -> bool:
        """One round; whether anything is left to do."""
        self._admit()
        for active in list(self._active):
            try:
                choice = active.progress.commit_forced()
            except StructspecError as error:
                self._fail(active, error)
                continue
            if not choice:
                self._finish(active)
        works = self._propose()
        if works:
            self._forward(works)
            self._verify(works)
        return bool(self._active or self._waiting)

    # -- who takes part ----------------------------------------------------------------------

    def _enqueue(self, index: int, job: Job) -> None:
        try:
            self._verifiers[index] = verifier_name(self._verifier, job.sampling, self._count)
            self._waiting.append((index, Progress(job, self.model)))
        except (StructspecError, ValueError) as error:
            self.outcomes[index] = error

    def _admit(self) -> None:
        """Give waiting requests the rows that are free."""
        while self._waiting and len(self._active) < self._batch_size:
            index, progress = self._waiting.popleft()
            progress.begin()
            row = self._rows.open()
            active = _Active(index, progress, row, None)
            self._active.append(active)
            if self._source is None:
                continue
            try:
                active.drafter = self._source.begin(
                    Request(
                        progress.constraint,
                        progress.context[: progress.prompt_length],
                        progress.sampling,
                        progress.noise,
                        progress.job.request,
                        self.model,
                        self._rows,
                        row,
                        self._shared,
                        self._verifiers[index] in ("greedy", *STEADY),
                    )
                )
                if self._count > 1 and not hasattr(active.drafter, "propose_several"):
                    raise DraftError(
                        f"{type(self._source).__name__} makes one draft per round, not "
                        f"draft_count={self._count}; several need a draft that samples"
                    )
            except StructspecError as error:
                self._fail(active, error)

    def _fail(self, active: _Active, error: StructspecError) -> None:
        error.partial_output = active.progress.output("error")  # type: ignore[attr-defined]
        self.outcomes[active.index] = error
        self._leave(active)

    def _finish(self, active: _Active) -> None:
        assert active.progress.finished is not None
        self.outcomes[active.index] = active.progress.output(active.progress.finished)
        self._leave(active)

    def _leave(self, active: _Active) -> None:
        self._active.remove(active)
        del self._verifiers[active.index]
        self._rows.close(active.row)
        close = getattr(active.drafter, "close", None)
        if close is not None:
            close()

    # -- one round ---------------------------------------------------------------------------

    def _propose(self) -> list[Work]:
        """Drafts for every active request; those that run networks share their forwards."""
        asking = [active for active in self._active if active.drafter is not None]
        plans = []
        for active in asking:
            progress = active.progress
            # greedy drafts of one request would be equal
            count = self._count if progress.sampling.temperature else 1
            ask = (progress.state, progress.context, progress.left, progress.stats.steps)
            plans.append(plan_of(active.drafter, *ask, count))
        outcomes, seconds = draft_together(plans)
        drafted = {id(active): [Draft()] for active in self._active}
        for active, outcome, spent in zip(asking, outcomes, seconds, strict=True):
            active.progress.stats.draft_time += spent
            if isinstance(outcome, StructspecError):
                self._fail(active, outcome)
            else:
                drafted[id(active)] = outcome
        works = []
        for active in list(self._active):
            progress = active.progress
            try:
                with progress.timed("mask_time"):
                    drafts = drafted[id(active)]
                    works.append(Work(progress, drafts, self._verifiers[active.index]))
            except StructspecError as error:
                self._fail(active, error)
        return works

    def _of(self, work: Work) -> _Active:
        return next(a for a in self._active if a.progress is work.progress)

    def _forward(self, works: Sequence[Work]) -> None:
        started = time.perf_counter()
        calls = []
        for work in works:
            ids = [*work.progress.pending, *work.tree.tokens]
            row = self._of(work).row
            calls.append(Call(row, ids, 1 + len(work.tree.tokens), work.tree.parents))
        logits = self._rows.forward(calls)
        if logits[0].device.type == "cuda":
            torch.cuda.synchronize(logits[0].device)
        share = (time.perf_counter() - started) / len(works)
        for work, rows in zip(works, logits, strict=True):
            work.logits = rows
            work.progress.pending = []
            work.progress.stats.reused = self._rows.reused(self._of(work).row)
            work.progress.stats.forwards += 1
            work.progress.stats.model_time += share

    def _verify(self, works: Sequence[Work]) -> None:
        started = time.perf_counter()
        judge(works)
        share = (time.perf_counter() - started) / len(works)
        for work in works:
            work.progress.stats.verify_time += share
            active = self._of(work)
            if work.error is not None:
                self._fail(active, work.error)
                continue
            try:
                self._commit(active, work)
            except StructspecError as error:
                self._fail(active, error)
                continue
            if active.progress.finished is not None:
                self._finish(active)

    def _commit(self, active: _Active, work: Work) -> None:
        """Commit what was kept and the token behind it."""
        progress, draft, accepted = active.progress, work.draft, work.accepted
        nodes = work.tree.paths[work.chosen][:accepted]
        with progress.timed("verify_time"):
            if not progress.shaped:
                progress.shaped = _budget_shapes(work)
            cached = self._rows.keep(active.row, len(work.tree.tokens), nodes)
        progress.stats.steps += 1
        progress.stats.drafted += len(draft)
        progress.stats.accepted += accepted
        if active.drafter is not None:
            active.drafter.observe(draft, accepted)
        for i in range(accepted):
            logprob, top = work.logprobs(i)
            if draft.tokens[i] in progress.ends:
                progress.end(logprob)
            else:
                progress.stats.forced += single_token(draft.masks[i]) is not None
                if i >= cached:
                    progress.pending.append(draft.tokens[i])
                progress.commit(draft.tokens[i], draft.states[i], logprob, top)
            if progress.finished is not None:
                return
        logprob, top = work.logprobs(accepted)
        if work.token in progress.ends:
            progress.end(logprob)
        else:
            progress.pending.append(work.token)
            state = int(progress.constraint.advance(progress.state, work.token))
            progress.commit(work.token, state, logprob, top)


def _budget_shapes(work: Work) -> bool:
    """Whether the budget left out the likeliest token that the grammar allows, in any row."""
    progress, draft, logits = work.progress, work.draft, work.logits
    states = [progress.state, *draft.states][: work.accepted + 1]
    rows = work.rows_of(work.chosen)
    for i, state in enumerate(states):
        if i and draft.tokens[i - 1] in progress.ends:
            continue  # nothing was written from here
        mask: Mask = work.tree.masks[rows[i]]
        full = progress.constraint.mask(state)
        if full is mask or np.array_equal(full, mask):
            continue
        legal = unpack_masks(full[None], logits.shape[1], logits.device)[0]
        best = int(logits[rows[i]].masked_fill(~legal, -torch.inf).argmax())
        if not is_set(mask, best):
            return True
    return False
