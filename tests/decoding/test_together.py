"""Requests of a batch share draft forwards, and nobody can tell from the texts."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Any

import numpy as np
import pytest
import torch

from structspec.decoding.loop import decode, decode_many
from structspec.decoding.progress import Job
from structspec.drafting import (
    Draft,
    EagleDraft,
    EagleHead,
    EarlyExit,
    FirstOf,
    LookupDraft,
    MedusaDraft,
    MedusaHeads,
    ModelDraft,
)
from structspec.drafting.head_steps import HeadSteps, MedusaSteps
from structspec.drafting.reads import Reader
from structspec.drafting.together import Ask, draft_alone, draft_together
from structspec.errors import DraftError, ModelError
from structspec.models import Model
from structspec.vocab import Vocabulary
from tests.decoding.test_batch import jobs_of

Bind = Callable[[str, Vocabulary], Any]


def eagle(model: Model, copies: bool = False) -> EagleHead:
    torch.manual_seed(0)
    head = EagleHead.for_target(model.model, list(range(0, model.logit_width, 2)), (1, 2, 2))
    head = head.double()
    if copies:
        head.copies()
        with torch.no_grad():
            head.copy.fill_(1.0)  # type: ignore[union-attr]
    return head


def medusa(model: Model) -> MedusaHeads:
    torch.manual_seed(0)
    return MedusaHeads(16, model.logit_width, 3, 1).double()


SOURCES: dict[str, tuple[Callable[[Model, Model], Any], type]] = {
    "model": (lambda model, small: ModelDraft(small), Reader),
    "early exit": (lambda model, small: EarlyExit(1), Reader),
    "eagle": (lambda model, small: EagleDraft(eagle(model)), HeadSteps),
    "copies": (lambda model, small: EagleDraft(eagle(model, True)), HeadSteps),
    "medusa": (lambda model, small: MedusaDraft(medusa(model)), MedusaSteps),
    "look-up first": (lambda model, small: FirstOf(LookupDraft(), ModelDraft(small)), Reader),
}


@pytest.fixture(scope="module")
def small(byte_model: Model, byte_tokenizer: Any) -> Model:
    from copy import deepcopy

    network = deepcopy(byte_model.model)
    torch.manual_seed(4)
    with torch.no_grad():
        for weight in network.parameters():
            weight += 0.1 * torch.randn_like(weight) * weight.std()
    return Model.wrap(network, byte_tokenizer, name="small")


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("source", SOURCES)
def test_three_requests_together_write_what_each_writes_alone_in_fewer_forwards(
    byte_model: Model,
    small: Model,
    bind: Bind,
    monkeypatch: pytest.MonkeyPatch,
    source: str,
    count: int,
) -> None:
    if source == "look-up first" and count > 1:
        pytest.skip("it makes one draft")
    make, engine = SOURCES[source]
    sizes: list[int] = []
    run = engine.run  # type: ignore[attr-defined]

    def counted(self: Any, asks: Sequence[Any]) -> Any:
        sizes.append(len(asks))
        return run(self, asks)

    monkeypatch.setattr(engine, "run", counted)
    draft = make(byte_model, small)
    jobs = jobs_of(byte_model, bind)[:3]  # forced spans of different lengths, other ends
    together = decode_many(byte_model, jobs, draft=draft, draft_count=count)
    shared, asked = len(sizes), sum(sizes)
    sizes.clear()
    for job, output in zip(jobs, together, strict=True):
        assert not isinstance(output, Exception), output
        alone = decode(
            byte_model,
            job.prompt_ids,
            job.constraint,
            max_tokens=job.max_tokens,
            seed=job.seed,
            request=job.request,
            draft=draft,
            draft_count=count,
        )
        assert output.tokens == alone.tokens
        assert output.stats.drafted == alone.stats.drafted
    # each request asks what it asks alone; together they are fewer calls of the network
    assert asked == sum(sizes) == len(sizes)
    assert shared < len(sizes)


@pytest.mark.parametrize("count", [1, 2])
def test_a_row_that_the_first_layers_read_is_never_taken_for_the_targets(
    byte_model: Model, bind: Bind, count: int
) -> None:
    """Prompts long enough to be shared, drafts that leave rows whose upper layers are empty."""
    constraint = bind(r"[a-c]{3,12}", byte_model.vocab)
    prompt = byte_model.vocab.encode(b"and the hand of the band and the sand")
    jobs = [
        Job(prompt, constraint, max_tokens=14, seed=3, request=i, logprobs=True) for i in range(3)
    ]
    for output in decode_many(byte_model, jobs, draft=EarlyExit(1), draft_count=count):
        assert not isinstance(output, Exception)
        with torch.no_grad():
            logits = byte_model.model(torch.tensor([[*prompt, *output.tokens]])).logits[0]
        state, left = constraint.start, 14
        for i, token in enumerate(output.tokens):
            mask = constraint.mask(state, left).view(np.uint8)
            legal = torch.from_numpy(np.unpackbits(mask, bitorder="little")).bool()
            row = logits[len(prompt) - 1 + i]
            law = row.masked_fill(~legal[: len(row)], -torch.inf).log_softmax(-1)
            assert output.logprobs is not None
            assert output.logprobs[i] == pytest.approx(float(law[token]), abs=1e-9)
            state, left = constraint.advance(state, token), left - 1


@pytest.mark.parametrize("source", ["model", "eagle"])
def test_a_prompt_of_several_requests_is_read_once_by_target_and_draft(
    make_llama: Callable[..., Any], tiny_vocab: Vocabulary, bind: Bind, source: str
) -> None:
    """Heads read the target's states of it, which are copied with its keys and values."""
    target, other = (
        Model(make_llama(6, window=300, seed=seed), None, name=name, vocab=tiny_vocab)
        for seed, name in ((0, "target"), (9, "other"))
    )
    constraint = bind(r"[abc]{3,12}", tiny_vocab)
    prompt = [0, 1, 2, 3, 4] * 16
    jobs = [Job(prompt, constraint, max_tokens=14, seed=3, request=i) for i in range(3)]
    draft = ModelDraft(other) if source == "model" else EagleDraft(eagle(target))
    seen: dict[str, list[int]] = {"target": [], "other": []}
    handles = [
        model.model.register_forward_pre_hook(
            lambda module, args, kwargs, name=model.name: seen[name].append(
                int(kwargs["input_ids"].numel())
            ),
            with_kwargs=True,
        )
        for model in (target, other)
    ]
    base = other.model.base_model.register_forward_pre_hook(
        lambda module, args, kwargs: seen["other"].append(int(kwargs["input_ids"].numel())),
        with_kwargs=True,
    )
    try:
        together = decode_many(target, jobs, draft=draft)
    finally:
        for handle in (*handles, base):
            handle.remove()
    assert sum(size >= len(prompt) for size in seen["target"]) == 1
    assert sum(size >= len(prompt) for size in seen["other"]) == (source == "model")
    for job, output in zip(jobs, together, strict=True):
        assert not isinstance(output, Exception)
        alone = decode(
            target, prompt, constraint, draft=draft, seed=3, request=job.request, max_tokens=14
        )
        assert output.tokens == alone.tokens


class Doubles:
    """An engine that doubles, and fails if anyone asks for a negative number."""

    def __init__(self) -> None:
        self.calls: list[list[int]] = []

    def run(self, asks: Sequence[int]) -> list[int]:
        self.calls.append(list(asks))
        if any(ask < 0 for ask in asks):
            raise ModelError("negative")
        return [2 * ask for ask in asks]


def plan(engine: Doubles, numbers: Sequence[int]) -> Generator[Ask, Any, list[Draft]]:
    found = []
    for number in numbers:
        try:
            answer = yield Ask(engine, number)
        except ModelError as error:
            raise DraftError("the draft failed") from error
        found.append(answer)
    return [Draft(tuple(found))]


def test_plans_of_one_engine_meet_at_every_depth() -> None:
    engine = Doubles()
    outcomes, seconds = draft_together([plan(engine, x) for x in ([1, 2], [3], [], [4, 5, 6])])
    assert [o[0].tokens for o in outcomes] == [(2, 4), (6,), (), (8, 10, 12)]  # type: ignore[index]
    assert engine.calls == [[1, 3, 4], [2, 5], [6]]
    assert len(seconds) == 4 and min(seconds) >= 0


def test_an_error_reaches_the_plan_that_caused_it() -> None:
    engine = Doubles()
    outcomes, _ = draft_together([plan(engine, [1, -1]), plan(engine, [2, 3])])
    assert isinstance(outcomes[0], DraftError) and isinstance(outcomes[0].__cause__, ModelError)
    assert outcomes[1][0].tokens == (4, 6)  # type: ignore[index]
    with pytest.raises(DraftError, match="the draft failed"):
        draft_alone(plan(engine, [-1]))


def test_engines_that_differ_run_apart() -> None:
    first, second = Doubles(), Doubles()
    draft_together([plan(first, [1]), plan(second, [2])])
    assert (first.calls, second.calls) == ([[1]], [[2]])
