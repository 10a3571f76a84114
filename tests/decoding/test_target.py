"""The key/value cache: appending, undoing, refusing."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import transformers

from structspec.errors import PromptError
from structspec.forward.target import Target
from structspec.models import Model

IDS = [0, 3, 1, 4, 2, 2, 0, 1, 3, 0, 4, 1]


def reference(model: Model, ids: list[int]) -> torch.Tensor:
    """Logits without any cache."""
    with torch.inference_mode():
        return model.model(input_ids=torch.tensor([ids]), use_cache=False).logits[0]


def close(found: torch.Tensor, expected: torch.Tensor, kind: str) -> None:
    """As close as float64 is; recurrent states are float32, whatever the weights."""
    if kind == "recurrent_model":
        torch.testing.assert_close(found.double(), expected.double(), rtol=1e-5, atol=1e-5)
    else:
        torch.testing.assert_close(found, expected)


@pytest.fixture(scope="module")
def convolution_model() -> Model:
    torch.manual_seed(4)
    config = transformers.Lfm2Config(
        vocab_size=6,
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=64,
        layer_types=["conv", "full_attention"],
        initializer_range=0.6,
    )
    model = transformers.Lfm2ForCausalLM(config).to(torch.float64).eval()
    return Model(model, None, name="convolution")


@pytest.fixture(scope="module")
def recurrent_model() -> Model:
    torch.manual_seed(0)
    config = transformers.Mamba2Config(
        vocab_size=6, hidden_size=16, num_hidden_layers=2, state_size=8, num_heads=4, head_dim=8,
        n_groups=1, chunk_size=4, initializer_range=0.6,
    )  # fmt: skip
    model = transformers.Mamba2ForCausalLM(config).to(torch.float64).eval()
    return Model(model, None, name="recurrent")


KINDS = ["tiny_model", "sliding_model", "convolution_model", "recurrent_model"]


@pytest.mark.parametrize("chunks", [[12], [1] * 12, [5, 3, 4], [9, 1, 2]])
@pytest.mark.parametrize("kind", KINDS)
def test_any_chunking_gives_the_uncached_logits(
    request: pytest.FixtureRequest, kind: str, chunks: list[int]
) -> None:
    model: Model = request.getfixturevalue(kind)
    expected = reference(model, IDS)
    target = Target(model)
    position = 0
    for size in chunks:
        part = IDS[position : position + size]
        rows = target.forward(part, keep=min(2, size))
        position += size
        target.crop(0)
        close(rows, expected[position - rows.shape[0] : position], kind)
    assert target.length == len(IDS)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("rejected", [1, 2, 5])
def test_a_crop_leaves_no_trace(request: pytest.FixtureRequest, kind: str, rejected: int) -> None:
    model: Model = request.getfixturevalue(kind)
    target = Target(model)
    target.forward(IDS[:7] + [5] * rejected, keep=rejected + 1)
    target.crop(rejected)
    rows = target.forward([*IDS[7:9], 4, 4, 4], keep=5)
    close(rows[:2], reference(model, IDS[:9])[-2:], kind)
    target.crop(3)
    rows = target.forward(IDS[9:], keep=3)
    close(rows, reference(model, IDS)[-3:], kind)


def test_forwards_and_length_are_counted(tiny_model: Model) -> None:
    target = Target(tiny_model)
    target.forward([0, 1, 2])
    target.forward([3, 4], keep=2)
    target.crop(1)
    assert (target.forwards, target.length) == (2, 4)


def test_logits_keep_the_dtype_of_the_model(tiny_model: Model) -> None:
    """What reads them widens them; a copy of all rows in float32 would cost a trip to memory."""
    assert Target(tiny_model).forward([0]).dtype == torch.float64
    half = Model(tiny_copy(tiny_model).to(torch.bfloat16), None, name="half")
    assert Target(half).forward([0]).dtype == torch.bfloat16


def tiny_copy(model: Model) -> Any:
    copy = type(model.model)(model.model.config)
    copy.load_state_dict(model.model.state_dict())
    return copy.eval()


def test_passing_the_window_names_both_numbers(tiny_model: Model) -> None:
    target = Target(tiny_model)
    target.forward([0] * 60)
    with pytest.raises(PromptError, match=r"65 tokens .* window of 64"):
        target.forward([1] * 5)
    assert target.length == 60


@pytest.mark.parametrize("kind", KINDS)
def test_ids_leave_that_several_forwards_brought(request: pytest.FixtureRequest, kind: str) -> None:
    """As a draft model's row loses them: appended one by one, dropped together."""
    model: Model = request.getfixturevalue(kind)
    target = Target(model)
    ids = list(IDS)
    target.forward(ids)
    for dropped in (1, 3, 2, 5, 4, 14):
        for token in (5, 1, 2, 0, 3):
            target.crop(0)
            target.forward([token])
            ids.append(token)
        target.crop(dropped)
        del ids[len(ids) - dropped :]
        rows = target.forward([4, 2], keep=2)
        ids += [4, 2]
        close(rows, reference(model, ids)[-2:], kind)
