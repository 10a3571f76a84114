"""`Job` and `Progress`: one request as it was asked for, and how far its text has come.

Owns what is committed: ids, text, automaton state, budget, stop strings, logprobs and counts. The
loop decides what to commit; everything that follows from a commit happens here, token by token, in
order. No model and no cache is known here, so a request may lose its cache row and go on elsewhere.

Invariants
- `pending` are committed ids that the model has not read yet;
- the state, the budget and the text are those of the committed ids, never of a draft;
- an output can be asked for at any time and holds everything committed so far.

Cost: constant per token, plus the search of the stop strings.

Sibling: `loop` drafts, runs the model and verifies.

Example::

    progress = Progress(Job(prompt_ids, constraint, max_tokens=50), model)
    progress.commit(token, constraint.advance(progress.state, token))
    progress.output("error").text
"""

from __future__ import annotations

import contextlib
import hashlib
import math
import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from numbers import Integral
from typing import Any

from structspec.decoding.output import Alternatives, FinishReason, Output, Stats
from structspec.errors import ModelError, PromptError, TokenBudgetError, VocabularyError
from structspec.forward.sampling import Sampling
from structspec.integers import is_int
from structspec.models import Model
from structspec.packed import Mask, pack, single_token
from structspec.verification.randomness import Randomness

__all__ = ["Job", "OnLogprobs", "OnToken", "Progress", "row_seed"]

_DEFAULT_MAX_TOKENS = 1024

OnToken = Callable[[int, bytes], object]
OnLogprobs = Callable[[float, Alternatives], object]


def row_seed(seed: int, prompt: int, sample: int) -> int:
    """The seed of one of several requests; the first has the given one.

    A function of the request's own place, so that the size of a batch changes no other's.
    """
    if not prompt and not sample:
        return seed
    text = f"{seed}/{prompt}/{sample}".encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "big") >> 1


@dataclass(frozen=True)
class Job:
    """One request.

    prompt_ids: token ids, at least one. constraint: a grammar bound to the model's vocabulary.
    sampling: default `Sampling()`, plain sampling. max_tokens: output tokens, the end token not
    counted; None: 1,024 or what the context window leaves, whichever is less, but at least what
    the shortest text needs. stop: strings that end the text where it is complete. seed: overrides
    `sampling.seed`; -1 draws a fresh one, reported in the output. request: a number that tells
    requests of one seed apart. on_token: called with (id, bytes) for every committed token, in
    order. logprobs: whether to keep the log-probability of each token; top_logprobs: and those of
    how many of the likeliest ones. on_logprobs: called with both before `on_token` is.
    """

    prompt_ids: Sequence[int]
    constraint: Any
    sampling: Sampling = field(default_factory=Sampling)
    max_tokens: int | None = None
    stop: str | bytes | Sequence[str | bytes] = ()
    seed: int | None = None
    request: int = 0
    on_token: OnToken | None = None
    logprobs: bool = False
    top_logprobs: int = 0
    on_logprobs: OnLogprobs | None = None


class Progress:
    """The committed part of one request; see the module.

    Raises `TokenBudgetError` if `max_tokens` cannot hold a text, `PromptError` if the context
    window cannot, `VocabularyError` if model and constraint do not fit.
    """

    def __init__(self, job: Job, model: Model) -> None:
        self.job = job
        self.constraint = job.constraint
        self.sampling = job.sampling
        prompt = [int(token) for token in job.prompt_ids]
        self.left = _budget(model, prompt, job.constraint, job.max_tokens)
        self.stops = _stop_bytes(job.stop)
        seed = job.sampling.seed if job.seed is None else job.seed
        self.noise = Randomness(secrets.randbits(63) if seed < 0 else seed)
        self.prompt_length = len(prompt)
        self.context = prompt
        self.pending = list(prompt)
        self.state = int(job.constraint.start)
        self.text = bytearray()
        # healed bytes belong to the prompt: they are written again but not returned
        self.hidden = len(getattr(job.constraint, "prefix", b""))
        self.stop_seen = False
        self.shaped = False  # whether the budget kept the model from its likeliest token
        self.finished: FinishReason | None = None
        self.stats = Stats(prompt_tokens=len(prompt))
        if not is_int(job.top_logprobs, 0):
            raise ValueError(f"top_logprobs must be an int from 0 on, not {job.top_logprobs!r}")
        self.logprobs: list[float] | None = [] if job.logprobs or job.top_logprobs else None
        self.top_logprobs: list[Alternatives] | None = [] if job.top_logprobs else None
        self.end_logprob: float | None = None
        self.vocab = job.constraint.vocab
        self.ends = frozenset(self.vocab.eos_ids)
        self._not_ends = ~pack(self.ends, self.vocab.size)
        self._started = time.perf_counter()
        self._ended_at: float | None = None

    def begin(self) -> None:
        """Start the clock: waiting for a place in the batch is not counted."""
        self._started = time.perf_counter()

    def output(self, reason: FinishReason) -> Output:
        """What was committed so far."""
        tokens = tuple(self.context[self.prompt_length :])
        end = self._ended_at or time.perf_counter()
        stats = replace(self.stats, tokens=len(tokens), total_time=end - self._started)
        logprobs = None if self.logprobs is None else tuple(self.logprobs)
        return Output(
            tokens,
            bytes(self.text[self.hidden :]),
            reason,
            self.noise.seed,
            self.job.request,
            stats,
            logprobs,
            self.end_logprob,
            None if self.top_logprobs is None else tuple(self.top_logprobs),
        )

    def commit_forced(self) -> bool:
        """Commit tokens that have no alternative; say whether a choice is left to the model."""
        while self.finished is None:
            with self.timed("mask_time"):
                row = self.constraint.mask(self.state, self.left)
                words = row & self._not_ends
                only = single_token(row)
            if not words.any():
                self._finish_complete(row)
            elif only is None:
                return True
            else:
                if not self.shaped:  # was it the grammar, or the budget, that left one?
                    self.shaped = single_token(self.constraint.mask(self.state)) is None
                self.stats.forced += 1
                self.pending.append(only)
                state = int(self.constraint.advance(self.state, only))
                self.commit(only, state, 0.0, ((only, 0.0),))
        return False

    def commit(
        self, token: int, state: int, logprob: float = math.nan, top: Alternatives = ()
    ) -> None:
        """Make one token part of the text. logprob, top: as `Output` keeps them, if it does."""
        data = self.vocab.tokens[token] or b""
        before = len(self.text)
        self.context.append(token)
        self.text += data
        self.state = state
        self.left -= 1
        if self.logprobs is not None:
            self.logprobs.append(logprob)
        if self.top_logprobs is not None:
            self.top_logprobs.append(top)
        if self.job.on_logprobs is not None:
            self.job.on_logprobs(logprob, top)
        if self.stops and not self.stop_seen:
            self.stop_seen = self._writes_stop(before)
        if self.stop_seen and self.constraint.accepting(state):
            self.finish("stop_string")
        if self.job.on_token is not None:
            self.job.on_token(token, data[max(0, self.hidden - before) :])

    def end(self, logprob: float = 0.0) -> None:
        """The text is complete: an end token was chosen, or nothing else is legal."""
        self.end_logprob = logprob if self.logprobs is not None else None
        self.finish("length" if self.shaped else "stop")

    def finish(self, reason: FinishReason) -> None:
        """Stop here."""
        self.finished = reason
        self._ended_at = time.perf_counter()

    def _finish_complete(self, row: Mask) -> None:
        """Nothing but an end is legal: finish, or report a dead end."""
        if not self.constraint.accepting(self.state):
            raise ModelError(
                f"internal error: state {self.state} allows no token with {self.left} tokens "
                f"left, after {len(self.context) - self.prompt_length} tokens"
            )
        # the budget ended the text if without it there would have been more to say
        if self.left == 0 and (self.constraint.mask(self.state) & self._not_ends).any():
            self.shaped = True
        self.end()

    def _writes_stop(self, before: int) -> bool:
        """Whether the bytes from `before` on complete a stop string."""
        for stop in self.stops:
            start = max(self.hidden, before - len(stop) + 1)
            if self.text.find(stop, start) >= 0:
                return True
        return False

    @contextlib.contextmanager
    def timed(self, name: str) -> Iterator[None]:
        """Add the time of a block to one of the statistics."""
        start = time.perf_counter()
        try:
            yield
        finally:
            spent = time.perf_counter() - start
            setattr(self.stats, name, getattr(self.stats, name) + spent)


def _budget(
    model: Model, prompt_ids: Sequence[int], constraint: Any, max_tokens: int | None
) -> int:
    """The output tokens that may be written, checked against window and shortest text."""
    if not prompt_ids:
        raise PromptError("the prompt is empty; a model needs at least one token to continue")
    if constraint.vocab.size > model.logit_width:
        raise VocabularyError(
            f"the constraint's vocabulary has {constraint.vocab.size} ids, {model.name} has "
            f"{model.logit_width} logits; bind the grammar to model.vocab"
        )
    if max_tokens is not None and not isinstance(max_tokens, Integral):
        raise TypeError(f"max_tokens={max_tokens!r} is not an int; pass None for no limit")
    if max_tokens is not None and max_tokens < 0:
        raise ValueError(f"max_tokens={max_tokens} is negative; pass None for no limit")
    needed = int(constraint.distance(constraint.start))
    room = None if model.window is None else model.window - len(prompt_ids)
    if room is not None and room < max(needed, 1):
        raise PromptError(
            f"the prompt has {len(prompt_ids)} tokens and the context window of {model.name} "
            f"{model.window}, which leaves {max(room, 0)} for an answer that needs {needed}; "
            "shorten the prompt"
        )
    budget = max(_DEFAULT_MAX_TOKENS, needed) if max_tokens is None else max_tokens
    if needed > budget:
        raise TokenBudgetError(budget, needed, constraint.distance_is_exact(constraint.start))
    return budget if room is None else min(budget, room)


def _stop_bytes(stop: str | bytes | Sequence[str | bytes]) -> list[bytes]:
    several = isinstance(stop, Iterable) and not isinstance(stop, str | bytes)
    given: list[Any] = list(stop) if several else [stop]
    for one in given:
        if not isinstance(one, str | bytes):
            raise TypeError(f"the stop string {one!r} is a {type(one).__name__}; pass str or bytes")
    stops = [s.encode() if isinstance(s, str) else s for s in given]
    if b"" in stops:
        raise ValueError("a stop string is empty; it would end every text at once")
    return stops
