"""Failures reported of other engines that only the loop can show; see docs/verification.md."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from structspec.decoding.loop import decode, decode_many
from structspec.decoding.output import Output
from structspec.decoding.progress import Job
from structspec.drafting import Draft, Request
from structspec.drafting.draft import DraftBuilder
from structspec.errors import ModelError
from structspec.forward.warp import Sampling
from structspec.models import Model
from structspec.vocab import Vocabulary

Bind = Callable[[str, Vocabulary], Any]


class DeadEnd:
    """A constraint that, behind some tokens, allows nothing although its text is not complete."""

    def __init__(self, constraint: Any, after: int) -> None:
        self._constraint = constraint
        self._dead = {constraint.start} if after == 0 else set()
        self._depths = {constraint.start: 0}
        self._after = after

    def __getattr__(self, name: str) -> Any:
        return getattr(self._constraint, name)

    def advance(self, state: int, token: int) -> int:
        following = int(self._constraint.advance(state, token))
        depth = self._depths[following] = self._depths[state] + 1
        if depth >= self._after:
            self._dead.add(following)
        return following

    def accepting(self, state: int) -> bool:
        return state not in self._dead and bool(self._constraint.accepting(state))

    def mask(self, state: int, left: int | None = None) -> Any:
        row = self._constraint.mask(state, left)
        return np.zeros_like(row) if state in self._dead else row


@pytest.mark.parametrize("draft", [None, "auto"])
def test_a_dead_end_ends_its_own_request_and_the_batch_goes_on(
    byte_model: Model, bind: Bind, draft: Any
) -> None:
    """sp-all-zero-mask, sp-masked-everything-picks-token-zero: the empty row is never sampled."""
    prompt = byte_model.vocab.encode(b"the hand")
    good = bind(r"[a-c]{6,9}", byte_model.vocab)
    bad = DeadEnd(bind(r"[a-c]{6,9}", byte_model.vocab), after=3)
    jobs = [Job(prompt, c, seed=4, request=i) for i, c in enumerate((good, bad, good))]
    outcomes = decode_many(byte_model, jobs, draft=draft)
    for i in (0, 2):
        expected = decode(byte_model, prompt, good, draft=draft, seed=4, request=i)
        assert outcomes[i] == expected
    error = outcomes[1]
    assert isinstance(error, ModelError)
    kept = error.partial_output  # type: ignore[attr-defined]
    assert len(kept.tokens) == 3 and set(kept.text) <= set(b"abc")


class Wavering:
    """Drafts of 3, 0, 1, 0, … tokens, legal ones, at another place of the row in each request."""

    lengths = (3, 0, 1, 0, 0, 2)

    def begin(self, request: Request) -> Wavering:
        drafter = Wavering()
        drafter.request = request  # type: ignore[attr-defined]
        return drafter

    def propose(self, state: int, context: Sequence[int], left: int, step: int) -> Draft:
        request: Request = self.request  # type: ignore[attr-defined]
        count = self.lengths[(step + request.number) % len(self.lengths)]
        builder = DraftBuilder(request.constraint, state, left, count)
        while builder.room:
            bits = np.unpackbits(builder.mask.view(np.uint8), bitorder="little")
            if not builder.extend(np.flatnonzero(bits)[:1].tolist()):
                break
        return builder.build()

    def observe(self, draft: Draft, accepted: int) -> None:
        pass


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_drafts_that_shrink_to_nothing_keep_rows_and_requests_apart(
    byte_model: Model, bind: Bind, temperature: float
) -> None:
    """sp-draft-length-zero, sp-mask-rows-shift-in-the-batch: one row more than drafted
    tokens, for each request and round."""
    prompts = [byte_model.vocab.encode(text) for text in (b"the hand", b"x", b"and and")]
    patterns = (r"[a-c]{8,20}", r"(the|an)d? [0-9]{3,9}", r'\{"a": "[a-z]{1,9}"\}')
    sampling = Sampling(temperature=temperature)
    jobs = [
        Job(prompt, bind(pattern, byte_model.vocab), sampling, 30, seed=2, request=i)
        for i, (prompt, pattern) in enumerate(zip(prompts, patterns, strict=True))
    ]
    together = decode_many(byte_model, jobs, draft=Wavering())
    for job, output in zip(jobs, together, strict=True):
        options = {"sampling": sampling, "max_tokens": 30, "seed": 2, "request": job.request}
        single = decode(byte_model, job.prompt_ids, job.constraint, draft=Wavering(), **options)
        assert isinstance(output, Output)
        assert output == single
        if temperature == 0:
            plain = decode(byte_model, job.prompt_ids, job.constraint, **options)
            assert output.tokens == plain.tokens
    assert sum(output.stats.drafted for output in together) > 0  # type: ignore[union-attr]
