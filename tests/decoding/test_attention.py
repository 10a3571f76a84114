"""Grouped attention: transformers' `sdpa` without copies of keys and values."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor

from structspec import attention
from structspec.forward.rows import Call, TargetRows
from structspec.models import Model, quicken


def llama(heads: int, key_heads: int, kind: str = "sdpa") -> Any:
    torch.manual_seed(5)
    config = transformers.LlamaConfig(
        vocab_size=40,
        hidden_size=48,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=heads,
        num_key_value_heads=key_heads,
        max_position_embeddings=64,
        initializer_range=0.4,
        attn_implementation=kind,
    )
    return transformers.LlamaForCausalLM(config).eval()


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The options of every call of torch's attention."""
    seen: list[dict[str, Any]] = []
    real: Callable[..., Tensor] = torch.nn.functional.scaled_dot_product_attention

    def spy(*arguments: Any, **options: Any) -> Tensor:
        seen.append({**options, "keys": arguments[1].shape[1]})
        return real(*arguments, **options)

    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", spy)
    return seen


def test_rows_trees_and_padding_are_those_of_sdpa(calls: list[dict[str, Any]]) -> None:
    stock = llama(6, 2)
    ours = copy.deepcopy(stock)
    quicken(ours)
    assert ours.config._attn_implementation == attention.NAME
    assert stock.config._attn_implementation == "sdpa"
    found = []
    for network in (stock, ours):
        rows = TargetRows(Model(network, None, name="n"))
        rows.lean = False  # the network's own forward
        one, two = rows.open(), rows.open()
        logits = rows.forward([Call(one, [1, 2, 3, 4, 5, 6, 7]), Call(two, [9, 8])])
        logits += rows.forward([Call(one, [3, 1, 4, 1, 5], keep=5)])
        logits += rows.forward([Call(one, [2, 6, 5, 3], 3, [-1, 0, 0]), Call(two, [1, 1, 2])])
        found.append(torch.cat(logits))
    torch.testing.assert_close(found[1], found[0], rtol=1e-4, atol=1e-4)
    assert all(call["keys"] == 2 for call in calls if call.get("enable_gqa"))
    assert any(call.get("enable_gqa") and call["attn_mask"] is not None for call in calls)


def test_left_padded_batches_are_generated_as_before() -> None:
    stock = llama(6, 2)
    ours = copy.deepcopy(stock)
    quicken(ours)
    ids = torch.tensor([[0, 0, 5, 6], [7, 8, 9, 10]])
    inputs = {"input_ids": ids, "attention_mask": (ids > 0).long()}
    options = {"do_sample": False, "max_new_tokens": 12, "pad_token_id": 0}
    assert torch.equal(stock.generate(**inputs, **options), ours.generate(**inputs, **options))


@pytest.mark.parametrize("heads, key_heads, kind", [(6, 6, "sdpa"), (6, 2, "eager")])
def test_models_without_shared_heads_or_of_other_kinds_stay(
    heads: int, key_heads: int, kind: str
) -> None:
    network = llama(heads, key_heads, kind)
    assert not attention.share_key_heads(network)
    assert network.config._attn_implementation == kind


def test_gradients_flow_as_before() -> None:
    stock = llama(6, 2)
    ours = copy.deepcopy(stock)
    quicken(ours)
    ids = torch.tensor([[1, 2, 3, 4]])
    losses = [network(input_ids=ids, labels=ids).loss for network in (stock, ours)]
    for loss in losses:
        loss.backward()
    torch.testing.assert_close(losses[1], losses[0])
    for mine, theirs in zip(ours.parameters(), stock.parameters(), strict=True):
        torch.testing.assert_close(mine.grad, theirs.grad, rtol=1e-4, atol=1e-5)
