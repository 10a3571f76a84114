"""`generate` with many prompts, many types and several values per prompt."""

from __future__ import annotations

from typing import Any, Literal

import pytest

import structspec
from structspec.errors import BatchError, PromptError, TokenBudgetError
from structspec.models import Model

PROMPTS = ["and the hand", "x", "the band", [97, 98, 99]]
TYPES = [list[bool], Literal["this", "that"], {"type": "string", "maxLength": 5}, int]
OPTIONS: dict[str, Any] = {"max_tokens": 24, "top_p": 0.95}


def test_each_prompt_gets_what_it_gets_alone(byte_model: Model) -> None:
    together = structspec.generate(byte_model, PROMPTS, TYPES, seed=4, **OPTIONS)
    assert len(together) == 4
    for prompt, kind, result in zip(PROMPTS, TYPES, together, strict=True):
        alone = structspec.generate(byte_model, prompt, kind, seed=result.seed, **OPTIONS)
        assert result == alone
    assert together[0].seed == 4
    assert len({result.seed for result in together}) == 4


def test_the_company_changes_nothing(byte_model: Model) -> None:
    longer = structspec.generate(byte_model, PROMPTS, TYPES, seed=4, batch_size=3, **OPTIONS)
    shorter = structspec.generate(byte_model, PROMPTS[:2], TYPES[:2], seed=4, **OPTIONS)
    assert longer[:2] == shorter


def test_n_values_differ_and_each_reproduces_alone(byte_model: Model) -> None:
    values = structspec.generate(byte_model, "the hand", str, n=5, seed=1, **OPTIONS)
    assert len({result.text for result in values}) > 1
    for result in values:
        again = structspec.generate(byte_model, "the hand", str, seed=result.seed, **OPTIONS)
        assert again == result
    nested = structspec.generate(byte_model, ["the hand", "x"], str, n=2, seed=1, **OPTIONS)
    assert [len(group) for group in nested] == [2, 2]
    assert nested[0] == values[:2]


def test_seeds_may_be_given_one_by_one(byte_model: Model) -> None:
    pair = structspec.generate(byte_model, ["x", "x"], str, seed=[7, 7], **OPTIONS)
    assert pair[0] == pair[1]
    with pytest.raises(ValueError, match="3 for 2"):
        structspec.generate(byte_model, ["x", "x"], str, seed=[1, 2, 3])


def test_one_failure_does_not_lose_the_others(byte_model: Model) -> None:
    prompts = ["and", "x" * 100, "the band"]
    with pytest.raises(BatchError, match="1 of 3 requests failed, first number 1") as caught:
        structspec.generate(byte_model, prompts, bool, seed=0, **OPTIONS)
    error = caught.value
    assert list(error.errors) == [1] and isinstance(error.errors[1], PromptError)
    alone = structspec.generate(byte_model, "and", bool, seed=0, **OPTIONS)
    assert error.results[0] == alone
    results = structspec.generate(byte_model, prompts, bool, seed=0, errors="return", **OPTIONS)
    assert isinstance(results[1], PromptError) and results[2] == error.results[2]
    types = [bool, Literal["a much longer text than fits"]]
    results = structspec.generate(
        byte_model, prompts[:2:1][:1] * 2, types, errors="return", max_tokens=6
    )
    assert results[0].value in (True, False) and isinstance(results[1], TokenBudgetError)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"n": 0}, ValueError, "n must be"),
        ({"errors": "ignore"}, ValueError, "ignore"),
        ({"on_token": print, "n": 2}, TypeError, "single"),
        ({"seed": -1}, ValueError, "seed"),
    ],
)
def test_bad_arguments_are_named(
    byte_model: Model, arguments: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        structspec.generate(byte_model, "x", bool, **arguments)
    with pytest.raises(ValueError, match="output_type holds 3 for 2"):
        structspec.generate(byte_model, ["x", "y"], [bool, int, str])


def test_logprobs_come_on_request(byte_model: Model) -> None:
    result = structspec.generate(byte_model, "x", bool, logprobs=True, temperature=0, chat=False)
    assert len(result.logprobs) == len(result.tokens) and result.end_logprob == 0.0
    assert structspec.generate(byte_model, "x", bool, temperature=0).logprobs is None
