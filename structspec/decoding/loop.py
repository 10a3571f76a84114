"""The decoding loop: draft, one target forward, verify, commit.

Owns one request from its prompt to a complete text. Each round drafts behind the committed text,
runs the target once over what its cache lacks plus the draft, computes the masked law of every
row, lets a verifier decide, and crops what was refused. Without a draft it is plain masked
sampling, the same code with drafts of length zero.

Invariants
- the law of the output is that of plain sampling from p' = warp(mask(p)), token by token, for
  every draft and verifier (`structspec.verification`);
- each row's mask is `mask(state, left)` with that row's own state and budget, so the text can be
  finished within `max_tokens` (the end token is not counted) and always is;
- a token that is the only legal one is committed without a forward; its cache entries are filled
  by the next one. Where only the end is legal the loop ends without a forward;
- randomness is a function of (seed, request, step), so a request repeats exactly;
- what was committed is never lost: an exception that leaves `decode`, an interrupt included,
  carries the text so far as `partial_output`.

Stop strings end the text where it is *complete*: at the first token boundary at or behind the
string's last byte where the grammar accepts. Nothing is cut off, so the text stays valid; inside
a JSON value a stop string has no effect before the value ends.

Cost: one forward per round over 1 + draft tokens, one softmax per row; masks and drafts are
microseconds beside it.

Sibling: transformers' `generate` decodes without these guarantees.

Example::

    model = structspec.models.load()
    constraint = structspec.compile(schema).bind(model.vocab)
    ids = encode_prompt(model, "A person as JSON: ").ids
    output = decode(model, ids, constraint, draft="auto", max_tokens=100)
    output.text, output.stats.tokens_per_forward
"""

from __future__ import annotations

import contextlib
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from structspec.decoding.output import FinishReason, Output, Stats
from structspec.decoding.target import Target
from structspec.decoding.warp import History, Sampling, target_law
from structspec.drafting import Draft, DraftSource, Request, draft_source
from structspec.drafting.draft import Mask, single_token
from structspec.errors import (
    DraftError,
    ModelError,
    PromptError,
    TokenBudgetError,
    VocabularyError,
)
from structspec.kernels.unpack_masks import unpack_masks
from structspec.models import Model
from structspec.verification.randomness import Randomness
from structspec.verification.registry import verifier as find_verifier

__all__ = ["decode"]

_DEFAULT_MAX_TOKENS = 1024

OnToken = Callable[[int, bytes], object]


def decode(
    model: Model,
    prompt_ids: Sequence[int],
    constraint: Any,
    *,
    sampling: Sampling | None = None,
    draft: DraftSource | str | None = None,
    verifier: str = "block",
    max_tokens: int | None = None,
    stop: str | bytes | Sequence[str | bytes] = (),
    seed: int | None = None,
    request: int = 0,
    on_token: OnToken | None = None,
) -> Output:
    """Write one complete text of `constraint` behind `prompt_ids`.

    Args:
        model: the target.
        prompt_ids: token ids, at least one.
        constraint: a grammar bound to the model's vocabulary.
        sampling: temperature and the rest; default `Sampling()`, plain sampling.
        draft: a draft source or its name ("auto", "forced", "lookup"), None for plain decoding.
        verifier: "block" or "token"; temperature 0 is always verified greedily.
        max_tokens: output tokens, the end token not counted. None: 1,024 or what the context
            window leaves, whichever is less, but at least what the shortest text needs.
        stop: strings that end the text where it is complete (see the module).
        seed: overrides `sampling.seed`; -1 draws a fresh one, reported in the output.
        request: a number that tells requests of one seed apart.
        on_token: called with (id, bytes) for every committed token, in order.

    Raises, before the first token, `TokenBudgetError` if `max_tokens` cannot hold a text,
    `PromptError` if the context window cannot, `VocabularyError` if model and constraint do not
    fit, `DraftError` for a draft or verifier that cannot be used. Later `ModelError` if the model
    returns NaN. An exception from the middle carries `partial_output`.
    """
    prompt_ids = [int(token) for token in prompt_ids]
    settings = sampling or Sampling()
    chosen = settings.seed if seed is None else secrets.randbits(63) if seed < 0 else seed
    budget = _budget(model, prompt_ids, constraint, max_tokens)
    run = _Run(
        model=model,
        prompt=prompt_ids,
        constraint=constraint,
        sampling=settings,
        source=draft_source(draft),
        verifier=_verifier_name(verifier, settings),
        budget=budget,
        stops=_stop_bytes(stop),
        noise=Randomness(chosen),
        request=request,
        on_token=on_token,
    )
    try:
        run.run()
    except BaseException as error:
        # an interrupt, too, must not lose what was paid for
        with contextlib.suppress(AttributeError):
            error.partial_output = run.output("error")  # type: ignore[attr-defined]
        raise
    assert run.finished is not None
    return run.output(run.finished)


class _Run:
    """The state of one request."""

    def __init__(
        self,
        *,
        model: Model,
        prompt: Sequence[int],
        constraint: Any,
        sampling: Sampling,
        source: DraftSource | None,
        verifier: str,
        budget: int,
        stops: list[bytes],
        noise: Randomness,
        request: int,
        on_token: OnToken | None,
    ) -> None:
        self.target = Target(model)
        self.constraint = constraint
        self.sampling = sampling
        self.verify = find_verifier(verifier)
        self.noise = noise
        self.request = request
        self.on_token = on_token
        self.stops = stops
        self.stop_seen = False
        self.shaped = False  # whether the budget kept the model from its likeliest token
        self.prompt_length = len(prompt)
        self.context = list(prompt)
        self.pending = list(prompt)  # committed ids that the cache lacks
        self.state = int(constraint.start)
        self.left = budget
        self.text = bytearray()
        # healed bytes belong to the prompt: they are written again but not returned
        self.hidden = len(getattr(constraint, "prefix", b""))
        self.finished: FinishReason | None = None
        self.stats = Stats(prompt_tokens=len(prompt))
        self.started = time.perf_counter()
        self.vocab = constraint.vocab
        self.ends = frozenset(self.vocab.eos_ids)
        self.not_ends = _all_but(self.ends, (self.vocab.size + 31) // 32)
        about = Request(constraint, prompt, sampling, noise, request)
        self.drafter = None if source is None else source.begin(about)

    def run(self) -> None:
        """Decode until the text is finished."""
        while self.finished is None:
            if self._commit_forced():
                self._step()

    def output(self, reason: FinishReason) -> Output:
        """What was committed so far."""
        tokens = tuple(self.context[self.prompt_length :])
        stats = replace(
            self.stats,
            tokens=len(tokens),
            forwards=self.target.forwards,
            total_time=time.perf_counter() - self.started,
        )
        text = bytes(self.text[self.hidden :])
        return Output(tokens, text, reason, self.noise.seed, self.request, stats)

    def _commit_forced(self) -> bool:
        """Commit tokens that have no alternative; say whether a choice is left to the model."""
        while self.finished is None:
            with self._timed("mask_time"):
                row = self.constraint.mask(self.state, self.left)
                words = row & self.not_ends
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
                self._commit(only, int(self.constraint.advance(self.state, only)))
        return False

    def _finish_complete(self, row: Mask) -> None:
        """Nothing but an end is legal: finish, or report a dead end."""
        if not self.constraint.accepting(self.state):
            raise ModelError(
                f"internal error: state {self.state} allows no token with {self.left} tokens "
                f"left, after {len(self.context) - self.prompt_length} tokens"
            )
        # the budget ended the text if without it there would have been more to say
        if self.left == 0 and (self.constraint.mask(self.state) & self.not_ends).any():
            self.shaped = True
        self.finished = self._ended()

    def _ended(self) -> FinishReason:
        return "length" if self.shaped else "stop"

    def _step(self) -> None:
        """One round: draft, forward, verify, commit."""
        draft = self._propose()
        length = len(draft)
        if length and draft.tokens[-1] in self.ends:
            last = draft.masks[-1]  # the row behind an end token is never read
        else:
            with self._timed("mask_time"):
                state = draft.states[-1] if length else self.state
                last = self.constraint.mask(state, self.left - length)
        with self._timed("model_time"):
            logits = self.target.forward([*self.pending, *draft.tokens], keep=length + 1)
            if logits.device.type == "cuda":
                torch.cuda.synchronize(logits.device)
        self.pending = []
        with self._timed("verify_time"):
            accepted, token = self._judge(logits, draft, last)
            if not self.shaped:
                states = [self.state, *draft.states][: accepted + 1]
                self.shaped = self._budget_shapes(logits, states, [*draft.masks, last])
            self.target.crop(length - accepted)
        self.stats.steps += 1
        self.stats.drafted += length
        self.stats.accepted += accepted
        if self.drafter is not None:
            self.drafter.observe(draft, accepted)
        for i in range(accepted):
            if draft.tokens[i] in self.ends:
                self.finished = self._ended()
            else:
                self.stats.forced += single_token(draft.masks[i]) is not None
                self._commit(draft.tokens[i], draft.states[i])
            if self.finished is not None:
                return
        if token in self.ends:
            self.finished = self._ended()
        else:
            self.pending = [token]
            self._commit(token, int(self.constraint.advance(self.state, token)))

    def _budget_shapes(
        self, logits: torch.Tensor, states: Sequence[int], masks: Sequence[Mask]
    ) -> bool:
        """Whether the budget left out the likeliest token that the grammar allows, in any row."""
        for i, (state, mask) in enumerate(zip(states, masks, strict=False)):
            if i and self.constraint.accepting(state) and self.left <= i:
                continue  # ended by an end token: nothing was written from here
            full = self.constraint.mask(state)
            if full is mask or np.array_equal(full, mask):
                continue
            legal = unpack_masks(full[None], logits.shape[1], logits.device)[0]
            best = int(logits[i].masked_fill(~legal, -torch.inf).argmax())
            if not (int(mask[best >> 5]) >> (best & 31)) & 1:
                return True
        return False

    def _propose(self) -> Draft:
        if self.drafter is None:
            return Draft()
        with self._timed("draft_time"):
            return self.drafter.propose(self.state, self.context, self.left, self.stats.steps)

    def _judge(self, logits: torch.Tensor, draft: Draft, last: Mask) -> tuple[int, int]:
        """Kept tokens and the token behind them, -1 if the kept ones end the text."""
        length = len(draft)
        histories = None
        if self.sampling.reads_history:
            prompt = self.context[: self.prompt_length]
            so_far = self.context[self.prompt_length :]
            histories = History(prompt, so_far).extended(draft.tokens)
        law = target_law(logits, np.stack([*draft.masks, last]), histories, self.sampling)
        uniforms = self.noise.for_verification([self.request], [self.stats.steps], length)
        verdict = self.verify(
            law[None],
            None if draft.q is None else draft.q[None],
            torch.tensor([draft.tokens], dtype=torch.long).reshape(1, length),
            torch.tensor([length]),
            torch.from_numpy(uniforms),
            onehot=None if draft.onehot is None else torch.tensor([draft.onehot]),
            eos_ids=self.vocab.eos_ids,
        )
        return int(verdict.accepted[0]), int(verdict.token[0])

    def _commit(self, token: int, state: int) -> None:
        """Make one token part of the text."""
        data = self.vocab.tokens[token] or b""
        before = len(self.text)
        self.context.append(token)
        self.text += data
        self.state = state
        self.left -= 1
        if self.stops and not self.stop_seen:
            self.stop_seen = self._writes_stop(before)
        if self.stop_seen and self.constraint.accepting(state):
            self.finished = "stop_string"
        if self.on_token is not None:
            self.on_token(token, data[max(0, self.hidden - before) :])

    def _writes_stop(self, before: int) -> bool:
        """Whether the bytes from `before` on complete a stop string."""
        for stop in self.stops:
            start = max(self.hidden, before - len(stop) + 1)
            if self.text.find(stop, start) >= 0:
                return True
        return False

    @contextlib.contextmanager
    def _timed(self, name: str) -> Iterator[None]:
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


def _verifier_name(name: str, sampling: Sampling) -> str:
    find_verifier(name)  # refuses unknown names at temperature 0 too
    if sampling.temperature == 0:
        return "greedy"
    if name == "greedy":
        raise DraftError(
            f"the greedy verifier is lossless at temperature 0 only, not at "
            f"{sampling.temperature}; use verifier='block'"
        )
    return name


def _stop_bytes(stop: str | bytes | Sequence[str | bytes]) -> list[bytes]:
    given = [stop] if isinstance(stop, (str, bytes)) else list(stop)
    stops = [s.encode() if isinstance(s, str) else bytes(s) for s in given]
    if b"" in stops:
        raise ValueError("a stop string is empty; it would end every text at once")
    return stops


def _all_but(ids: frozenset[int], words: int) -> Mask:
    """A packed mask of every id except `ids`."""
    row = np.full(words, 0xFFFFFFFF, np.uint32)
    for token in ids:
        row[token >> 5] &= np.uint32(0xFFFFFFFF ^ (1 << (token & 31)))
    return row
