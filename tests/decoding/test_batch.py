"""Many requests at once: each as if it were alone, and none able to spoil another."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
import transformers

from structspec.decoding.loop import Loop, decode, decode_many
from structspec.decoding.progress import Job
from structspec.errors import DraftError, ModelError, PromptError, TokenBudgetError
from structspec.forward.rows import Call, TargetRows
from structspec.forward.warp import Sampling
from structspec.models import Model
from structspec.vocab import Vocabulary

Bind = Callable[[str, Vocabulary], Any]
PATTERNS = [
    r'\{"name": "[a-z ]{1,12}", "and": (true|false)\}',
    r"[a-c]{3,20}",
    r"\[[0-9]{1,3}(, [0-9]{1,3}){0,4}\]",
    r"the (hand|and) of (the )?[a-z]{1,9}",
    r"fixed text",
]
PROMPTS = [
    b"and the hand",
    b"x",
    b'"the" and 12, 12, 12',
    b"the hand of the band and the sand",
    b"q",
]


def jobs_of(model: Model, bind: Bind, **options: Any) -> list[Job]:
    return [
        Job(
            model.vocab.encode(prompt),
            bind(pattern, model.vocab),
            max_tokens=40 - 3 * i,
            request=i,
            seed=11,
            **options,
        )
        for i, (pattern, prompt) in enumerate(zip(PATTERNS, PROMPTS, strict=True))
    ]


def alone(model: Model, job: Job, draft: Any) -> Any:
    return decode(
        model,
        job.prompt_ids,
        job.constraint,
        sampling=job.sampling,
        draft=draft,
        max_tokens=job.max_tokens,
        seed=job.seed,
        request=job.request,
    )


@pytest.mark.parametrize("draft", [None, "forced", "lookup", "auto", "forks"])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("batch_size", [2, 8])
def test_a_batch_gives_each_request_what_it_gets_alone(
    byte_model: Model, bind: Bind, draft: Any, temperature: float, batch_size: int
) -> None:
    jobs = jobs_of(byte_model, bind, sampling=Sampling(temperature=temperature))
    together = decode_many(byte_model, jobs, draft=draft, batch_size=batch_size)
    for job, output, pattern in zip(jobs, together, PATTERNS, strict=True):
        assert output == alone(byte_model, job, draft)
        assert not isinstance(output, Exception)
        assert re.fullmatch(pattern, output.text.decode())


def test_the_order_of_requests_changes_nothing(byte_model: Model, bind: Bind) -> None:
    jobs = jobs_of(byte_model, bind)
    forward = decode_many(byte_model, jobs, draft="auto", batch_size=3)
    backward = decode_many(byte_model, jobs[::-1], draft="auto", batch_size=3)
    assert forward == backward[::-1]


def test_penalties_and_settings_may_differ_by_request(byte_model: Model, bind: Bind) -> None:
    settings = [
        Sampling(temperature=0.0),
        Sampling(temperature=1.5, top_p=0.8),
        Sampling(repetition_penalty=1.4, frequency_penalty=0.3),
        Sampling(repetition_penalty=1.4, frequency_penalty=0.3),
        Sampling(top_k=3),
    ]
    jobs = [
        Job(j.prompt_ids, j.constraint, s, j.max_tokens, seed=3, request=j.request)
        for j, s in zip(jobs_of(byte_model, bind), settings, strict=True)
    ]
    together = decode_many(byte_model, jobs, draft="auto")
    assert together == [alone(byte_model, job, "auto") for job in jobs]


def test_requests_with_one_prompt_compute_it_once(byte_model: Model, bind: Bind) -> None:
    prompt = byte_model.vocab.encode(b"the hand of the band and the sand")
    jobs = [
        Job(prompt, bind(r"[a-c]{3,20}", byte_model.vocab), seed=5, request=i, max_tokens=25)
        for i in range(4)
    ]
    seen: list[int] = []
    handle = byte_model.model.register_forward_pre_hook(
        lambda module, args, kwargs: seen.append(kwargs["input_ids"].shape[1]), with_kwargs=True
    )
    try:
        together = decode_many(byte_model, jobs)
    finally:
        handle.remove()
    assert seen[0] == len(prompt) and max(seen[1:]) <= 2
    assert len({output.text for output in together}) > 1  # type: ignore[union-attr]
    assert together == [alone(byte_model, job, None) for job in jobs]


def test_a_request_that_cannot_begin_leaves_the_others_alone(byte_model: Model, bind: Bind) -> None:
    jobs = jobs_of(byte_model, bind)
    bad = [
        Job(jobs[0].prompt_ids, jobs[0].constraint, max_tokens=2),
        Job([97] * 100, jobs[1].constraint),
        Job([], jobs[1].constraint),
    ]
    outcomes = decode_many(byte_model, [bad[0], *jobs[:2], *bad[1:], *jobs[2:]], draft="auto")
    assert isinstance(outcomes[0], TokenBudgetError)
    assert isinstance(outcomes[3], PromptError) and isinstance(outcomes[4], PromptError)
    good = [o for i, o in enumerate(outcomes) if i not in (0, 3, 4)]
    assert good == [alone(byte_model, job, "auto") for job in jobs]


def test_a_row_of_nan_fails_alone_and_keeps_its_text(byte_model: Model, bind: Bind) -> None:
    _, first, second, _, third = jobs_of(byte_model, bind)
    jobs = [first, second, third]
    expected = decode_many(byte_model, jobs)
    (poisonous,) = byte_model.vocab.encode(b"c")  # only the first request may write it

    def poison(module: Any, args: Any, kwargs: Any, output: Any) -> Any:
        output.logits[kwargs["input_ids"][:, 0] == poisonous] = float("nan")
        return output

    handle = byte_model.model.register_forward_hook(poison, with_kwargs=True)
    try:
        outcomes = decode_many(byte_model, jobs)
    finally:
        handle.remove()
    assert isinstance(outcomes[0], ModelError)
    partial = outcomes[0].partial_output  # type: ignore[attr-defined]
    assert partial.tokens == expected[0].tokens[: len(partial.tokens)]  # type: ignore[union-attr]
    assert partial.tokens[-1] == poisonous and partial.finish_reason == "error"
    assert outcomes[1:] == expected[1:]


def test_an_interrupt_keeps_the_text_of_every_request(byte_model: Model, bind: Bind) -> None:
    count = 0

    def interrupt(token: int, data: bytes) -> None:
        nonlocal count
        count += 1
        if count == 9:
            raise KeyboardInterrupt

    jobs = jobs_of(byte_model, bind, on_token=interrupt)
    with pytest.raises(KeyboardInterrupt) as caught:
        decode_many(byte_model, jobs, batch_size=3)
    partial = caught.value.partial_outputs  # type: ignore[attr-defined]
    assert sum(len(output.tokens) for output in partial if output is not None) == 9


def test_rows_are_reused_by_those_that_wait(byte_model: Model, bind: Bind) -> None:
    loop = Loop(byte_model, jobs_of(byte_model, bind), draft="auto", batch_size=2)
    most = 0
    while loop.step():
        most = max(most, sum(outcome is None for outcome in loop.outcomes))
        assert len(loop._active) <= 2
    assert most >= 3 and all(outcome is not None for outcome in loop.outcomes)


def test_logprobs_are_those_of_the_sampled_law(byte_model: Model, bind: Bind) -> None:
    told: list[tuple[float, tuple[tuple[int, float], ...]]] = []
    job = jobs_of(byte_model, bind, top_logprobs=3)[0]
    job = dataclasses.replace(job, on_logprobs=lambda *both: told.append(both))
    for draft in (None, "auto"):
        output = decode_many(byte_model, [job], draft=draft)[0]
        assert not isinstance(output, Exception)
        ids, state, left = list(job.prompt_ids), job.constraint.start, job.max_tokens
        assert left is not None and output.logprobs is not None
        assert output.top_logprobs is not None
        assert told == list(zip(output.logprobs, output.top_logprobs, strict=True))
        told.clear()
        for token, logprob, top in zip(
            output.tokens, output.logprobs, output.top_logprobs, strict=True
        ):
            with torch.inference_mode():
                logits = byte_model.model(torch.tensor([ids])).logits[0, -1]
            allowed = torch.from_numpy(job.constraint.allowed(state, left))
            expected = logits[token] - torch.logsumexp(logits[allowed], 0)
            assert logprob == pytest.approx(float(expected), abs=1e-9)
            law = (logits[allowed] - torch.logsumexp(logits[allowed], 0)).sort(descending=True)
            likeliest = allowed[law.indices[:3]].tolist()
            assert [one for one, _ in top] == likeliest
            assert [value for _, value in top] == pytest.approx(law.values[:3].tolist(), abs=1e-9)
            state, left = job.constraint.advance(state, token), left - 1
            ids.append(token)
        assert output.end_logprob == 0.0


def test_greedy_logprobs_are_those_of_the_masked_law(byte_model: Model, bind: Bind) -> None:
    job = jobs_of(byte_model, bind, logprobs=True, sampling=Sampling(temperature=0.0))[1]
    output = decode_many(byte_model, [job], draft="auto")[0]
    assert not isinstance(output, Exception) and output.logprobs is not None
    assert all(value <= 0.0 for value in output.logprobs) and min(output.logprobs) < -0.01


def test_no_token_is_likely_that_the_settings_exclude(byte_model: Model, bind: Bind) -> None:
    sampling = Sampling(top_k=2)
    job = jobs_of(byte_model, bind, top_logprobs=9, sampling=sampling)[0]
    output = decode_many(byte_model, [job], draft="auto")[0]
    assert not isinstance(output, Exception)
    assert output.logprobs is not None and output.top_logprobs is not None
    for token, logprob, top in zip(
        output.tokens, output.logprobs, output.top_logprobs, strict=True
    ):
        assert 1 <= len(top) <= 2 and dict(top)[token] == logprob
        assert sum(math.exp(value) for _, value in top) == pytest.approx(1)
    assert max(map(len, output.top_logprobs)) == 2
    (refused,) = decode_many(byte_model, [dataclasses.replace(job, top_logprobs=-1)])
    assert isinstance(refused, ValueError) and "top_logprobs" in str(refused)


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"draft_count": 0}, DraftError),
        ({"batch_size": 0}, ValueError),
        ({"draft_count": 2}, DraftError),
    ],
)
def test_counts_below_one_are_refused(
    byte_model: Model, bind: Bind, options: dict[str, int], error: type[Exception]
) -> None:
    with pytest.raises(error, match=r"=\d"):
        decode_many(byte_model, jobs_of(byte_model, bind), **options)  # type: ignore[arg-type]


# -- rows --------------------------------------------------------------------------------------


def reference(model: Model, ids: list[int]) -> torch.Tensor:
    with torch.inference_mode():
        return model.model(input_ids=torch.tensor([ids]), use_cache=False).logits[0, -1]


@pytest.mark.parametrize("kind", ["slots", "eager", "sliding"])
def test_trees_give_the_logits_of_their_paths(
    tiny_model: Model, sliding_model: Model, kind: str
) -> None:
    model = sliding_model if kind == "sliding" else tiny_model
    if kind == "eager":
        model.model.set_attn_implementation("eager")
    try:
        rows = TargetRows(model)
        first, second = rows.open(), rows.open()
        rows.forward([Call(first, [0, 1, 2]), Call(second, [4])])
        # 3 -> (0 -> 1, 2), 4
        nodes, parents = [3, 0, 2, 1, 4], [-1, 0, 0, 1, -1]
        paths = [[], [3], [3, 0], [3, 2], [3, 0, 1], [4]]
        found, other = rows.forward([Call(first, [2, 0, *nodes], 6, parents), Call(second, [1, 1])])
        # eager attention has its softmax in float32
        close = {"rtol": 1e-4, "atol": 1e-4} if kind == "eager" else {}
        for row, path in zip(found, paths, strict=True):
            torch.testing.assert_close(row, reference(model, [0, 1, 2, 2, 0, *path]), **close)
        torch.testing.assert_close(other[0], reference(model, [4, 1, 1]), **close)
        stayed = rows.keep(first, 5, [0, 2])
        rest = [3, 2][stayed:]
        again, more = rows.forward([Call(first, [*rest, 1]), Call(second, [0])])
        torch.testing.assert_close(again[0], reference(model, [0, 1, 2, 2, 0, 3, 2, 1]), **close)
        torch.testing.assert_close(more[0], reference(model, [4, 1, 1, 0]), **close)
    finally:
        if kind == "eager":
            model.model.set_attn_implementation("sdpa")


def test_a_forked_row_goes_its_own_way(tiny_model: Model) -> None:
    rows = TargetRows(tiny_model)
    one, two = rows.open(), rows.open()
    rows.forward([Call(one, [0, 1, 2, 3])])
    rows.fork(one, two)
    left, right = rows.forward([Call(one, [4]), Call(two, [1, 0])])
    torch.testing.assert_close(left[0], reference(tiny_model, [0, 1, 2, 3, 4]))
    torch.testing.assert_close(right[0], reference(tiny_model, [0, 1, 2, 3, 1, 0]))


def test_rows_that_were_closed_leave_no_trace(tiny_model: Model) -> None:
    rows = TargetRows(tiny_model)
    kept, gone = rows.open(), rows.open()
    rows.forward([Call(kept, [0]), Call(gone, [1, 2, 3, 4, 0, 0, 0])])
    with torch.inference_mode():
        for layer in rows._cache.layers:  # type: ignore[union-attr]
            layer.keys[gone] = float("nan")
    rows.close(gone)
    new = rows.open()
    assert new == gone
    rows.forward([Call(new, [2])])
    a, b = rows.forward([Call(kept, [1, 1, 1]), Call(new, [3])])
    torch.testing.assert_close(a[0], reference(tiny_model, [0, 1, 1, 1]))
    torch.testing.assert_close(b[0], reference(tiny_model, [2, 3]))


def test_long_rows_outgrow_the_first_allocation() -> None:
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=6,
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=1000,
    )
    model = Model(transformers.LlamaForCausalLM(config).double().eval(), None, name="long")
    rows = TargetRows(model)
    row = rows.open()
    ids = torch.randint(0, 6, (700,)).tolist()
    rows.forward([Call(row, ids[:200])])
    rows.forward([Call(row, ids[200:690])])
    (logits,) = rows.forward([Call(row, ids[690:])])
    torch.testing.assert_close(logits[0], reference(model, ids))
