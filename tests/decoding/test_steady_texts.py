"""A seed stands for a text: the same with any draft that is certain of itself, and with none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from structspec.decoding.loop import decode, decode_many  # noqa: E402
from structspec.decoding.progress import Job  # noqa: E402
from structspec.drafting import (  # noqa: E402
    CombinedDraft,
    FirstOf,
    ForcedDraft,
    ForkDraft,
    LookupDraft,
    ModelDraft,
)
from structspec.forward.sampling import Sampling  # noqa: E402
from structspec.kernels.backend import ENVIRONMENT  # noqa: E402
from structspec.models import Model  # noqa: E402
from structspec.vocab import Vocabulary  # noqa: E402

PATTERN = "(ab|ba|c(a|b|c)c){3,9}"
PROMPT = [4, 0, 2, 1, 4, 4, 2]
CERTAIN: dict[str, Any] = {
    "none": None,
    "auto": CombinedDraft(),
    "forced": ForcedDraft(),
    "lookup": LookupDraft(),
    "forks": ForkDraft(),
    "first of two": FirstOf(LookupDraft(), ForcedDraft()),
}
SAMPLINGS = {
    "plain": Sampling(temperature=1.6),
    "cut": Sampling(temperature=1.2, top_k=4, top_p=0.9),
    "penalties": Sampling(temperature=1.3, repetition_penalty=1.4, frequency_penalty=0.3),
}


@pytest.fixture
def model(make_llama: Callable[..., Any], tiny_vocab: Vocabulary) -> Model:
    """With a history of its own."""
    return Model(make_llama(6, seed=4), None, name="tiny", vocab=tiny_vocab, history=True)


@pytest.fixture
def constraint(bind: Callable[..., Any], tiny_vocab: Vocabulary) -> Any:
    return bind(PATTERN, tiny_vocab)


@pytest.mark.parametrize("kernels", [None, "torch"])
@pytest.mark.parametrize("settings", SAMPLINGS)
def test_every_certain_draft_gives_the_text_of_plain_sampling(
    model: Model, constraint: Any, settings: str, kernels: str | None, monkeypatch: Any
) -> None:
    texts: dict[int, set[Any]] = {}
    accepted = dict.fromkeys(CERTAIN, 0)
    for name, draft in CERTAIN.items():
        # plain decoding never by kernels: theirs must be the same texts
        if kernels and draft is not None:
            monkeypatch.setenv(ENVIRONMENT, kernels)
        for seed in range(8):
            output = decode(
                model,
                PROMPT,
                constraint,
                draft=draft,
                sampling=SAMPLINGS[settings],
                seed=seed,
                max_tokens=22,
                logprobs=True,
            )
            assert output.logprobs is not None
            logprobs = tuple(round(value, 3) for value in output.logprobs)
            texts.setdefault(seed, set()).add((output.tokens, output.finish_reason, logprobs))
            accepted[name] += output.stats.accepted
    assert all(len(found) == 1 for found in texts.values()), texts
    assert len({found.pop()[0] for found in texts.values()}) > 2
    assert accepted.pop("none") == 0
    assert all(accepted.values()), accepted


def test_a_batch_of_different_settings_gives_the_same_texts(
    model: Model, constraint: Any, monkeypatch: Any
) -> None:
    jobs = [
        Job(PROMPT, constraint, sampling, 22, seed=seed)
        for seed in range(4)
        for sampling in (*SAMPLINGS.values(), Sampling(temperature=0))
    ]
    alone = [
        decode(model, PROMPT, constraint, sampling=job.sampling, seed=job.seed, max_tokens=22)
        for job in jobs
    ]
    for kernels in (None, "torch", "reference"):
        if kernels:
            monkeypatch.setenv(ENVIRONMENT, kernels)
        found = decode_many(model, jobs, draft="auto", batch_size=5)
        assert [o.tokens for o in found] == [o.tokens for o in alone]  # type: ignore[union-attr]


def test_what_earlier_answers_wrote_speeds_up_sampled_requests_and_changes_none(
    model: Model, constraint: Any
) -> None:
    sampling = Sampling(temperature=0.5)

    def run(draft: str | None, seed: int) -> Any:
        return decode(
            model, PROMPT, constraint, draft=draft, sampling=sampling, seed=seed, max_tokens=22
        )

    plain = [run(None, seed) for seed in range(30)]
    assert model.history is not None and len(model.history) == 0
    found = [run("auto", seed) for seed in range(30)]
    assert [o.tokens for o in found] == [o.tokens for o in plain]
    assert len(model.history) > 0
    again = [run("auto", seed) for seed in range(30)]
    assert [o.tokens for o in again] == [o.tokens for o in plain]
    first, last = (sum(o.stats.forwards for o in outputs) for outputs in (found[:8], again[:8]))
    assert last < first


def test_greedy_and_sampled_habits_are_kept_apart(model: Model, constraint: Any) -> None:
    greedy = {"sampling": Sampling(temperature=0), "draft": "auto", "max_tokens": 22}
    before = decode(model, PROMPT, constraint, **greedy)
    assert model.history is not None
    model.history.clear()
    for seed in range(20):
        decode(
            model, PROMPT, constraint, draft="auto", sampling=Sampling(temperature=3.0), seed=seed,
            max_tokens=22,
        )  # fmt: skip
    assert len(model.history) > 0
    after = decode(model, PROMPT, constraint, **greedy)
    assert after == before
    assert (after.stats.drafted, after.stats.forwards) == (
        before.stats.drafted,
        before.stats.forwards,
    )


def test_a_draft_that_samples_behind_look_up_asks_no_history(
    model: Model, small_model: Model, constraint: Any
) -> None:
    """Which of the two drafts decides about the text, so others' answers must not decide which."""
    draft = FirstOf(CombinedDraft(), ModelDraft(small_model))

    def run() -> Any:
        return decode(
            model, PROMPT, constraint, draft=draft, sampling=Sampling(), seed=5, max_tokens=22
        )

    first = run()
    for seed in range(20):
        decode(model, PROMPT, constraint, draft="auto", sampling=Sampling(), seed=seed)
    assert model.history is not None and len(model.history) > 0
    assert run() == first


def test_a_named_verifier_that_draws_otherwise_asks_no_history(
    model: Model, constraint: Any
) -> None:
    def run() -> Any:
        return decode(
            model, PROMPT, constraint, draft="auto", verifier="token", sampling=Sampling(), seed=5,
            max_tokens=22,
        )  # fmt: skip

    first = run()
    for seed in range(20):
        decode(model, PROMPT, constraint, draft="auto", sampling=Sampling(), seed=seed)
    assert run() == first
