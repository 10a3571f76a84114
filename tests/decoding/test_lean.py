"""A lean forward is the network's own."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import transformers

from structspec.forward import lean as lean_module
from structspec.forward import rows as rows_module
from structspec.forward.lean import LeanLayers
from structspec.forward.rows import Call, TargetRows
from structspec.models import Model


def network(kind: str = "Llama", **settings: Any) -> Any:
    torch.manual_seed(5)
    config = getattr(transformers, f"{kind}Config")(
        vocab_size=40,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=300,
        initializer_range=0.3,
        **settings,
    )
    return getattr(transformers, f"{kind}ForCausalLM")(config).eval()


@pytest.fixture(params=["Llama", "Mistral", "Qwen2"])
def model(request: pytest.FixtureRequest) -> Model:
    settings = {"sliding_window": None} if request.param == "Mistral" else {}
    return Model(network(request.param, **settings), None, name=request.param)


def logits_of(model: Model, ids: list[int]) -> torch.Tensor:
    with torch.inference_mode():
        return model.model(input_ids=torch.tensor([ids]), use_cache=False).logits[0]


def test_ragged_rows_and_long_prompts_have_the_networks_logits(model: Model) -> None:
    assert LeanLayers.of(model.model) is not None
    rows = TargetRows(model)
    first, second = rows.open(), rows.open()
    prompt = [i * 7 % 40 for i in range(90)]
    close = {"rtol": 1e-4, "atol": 1e-4}
    a, b = rows.forward([Call(first, prompt, 3), Call(second, [4, 5])])
    torch.testing.assert_close(a, logits_of(model, prompt)[-3:], **close)
    torch.testing.assert_close(b, logits_of(model, [4, 5])[-1:], **close)
    a, b = rows.forward([Call(first, [1, 2, 3], 2), Call(second, [9] * 7, 5)])
    torch.testing.assert_close(a, logits_of(model, [*prompt, 1, 2, 3])[-2:], **close)
    torch.testing.assert_close(b, logits_of(model, [4, 5, *[9] * 7])[-5:], **close)
    rows.crop(second, 5)
    (b,) = rows.forward([Call(second, list(range(20)), 20)])
    torch.testing.assert_close(b, logits_of(model, [4, 5, 9, 9, *range(20)])[-20:], **close)


@pytest.mark.parametrize("taps", [(), (0, 2), (1, 3)])
def test_rows_of_unequal_lengths_are_not_padded_but_for_attention(
    model: Model, taps: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every product sees the tokens that are there; logits and tapped states are each row's own."""
    seen: list[int] = []
    plain = lean_module.product

    def counted(layer: torch.nn.Module, x: torch.Tensor) -> torch.Tensor:
        seen.append(x.numel() // x.shape[-1])
        return plain(layer, x)

    rows = TargetRows(model)
    rows.taps = taps
    texts = [list(range(1, 30)), [4, 5], [7] * 12]
    places = [rows.open() for _ in texts]
    for row, text in zip(places, texts, strict=True):
        rows.forward([Call(row, text)])
    more, keep = [[1, 2, 3, 4, 5, 6], [9], [8, 8, 8]], [6, 1, 2]
    monkeypatch.setattr(lean_module, "product", counted)
    found = rows.forward([Call(r, m, k) for r, m, k in zip(places, more, keep, strict=True)])
    assert set(seen) <= {10, 9}  # all tokens, in the last layer perhaps those that are wanted
    for row, text, new, k, logits in zip(places, texts, more, keep, found, strict=True):
        torch.testing.assert_close(
            logits, logits_of(model, [*text, *new])[-k:], rtol=1e-4, atol=1e-4
        )
        if taps:
            with torch.inference_mode():
                ids = torch.tensor([[*text, *new]])
                states = model.model(input_ids=ids, output_hidden_states=True).hidden_states
            expected = torch.cat([states[tap][0] for tap in taps], dim=-1)
            torch.testing.assert_close(rows.features(row), expected, rtol=1e-4, atol=1e-4)


def test_trees_have_the_logits_of_their_paths(model: Model) -> None:
    rows = TargetRows(model)
    row, other = rows.open(), rows.open()
    rows.forward([Call(row, [0, 1, 2]), Call(other, [3] * 9)])
    nodes, parents = [3, 0, 2, 1, 4], [-1, 0, 0, 1, -1]
    paths = [[], [3], [3, 0], [3, 2], [3, 0, 1], [4]]
    found, _ = rows.forward([Call(row, [2, 0, *nodes], 6, parents), Call(other, [1])])
    for logits, path in zip(found, paths, strict=True):
        expected = logits_of(model, [0, 1, 2, 2, 0, *path])[-1]
        torch.testing.assert_close(logits, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("taps", [(0, 1), (2, 3)])
def test_tapped_states_are_those_of_transformers(
    model: Model, taps: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = []
    for lean in (True, False):
        if not lean:
            monkeypatch.setattr(rows_module.LeanLayers, "of", lambda network: None)
        rows = TargetRows(model)
        rows.taps = taps
        row = rows.open()
        rows.forward([Call(row, list(range(12)))])
        rows.forward([Call(row, [5, 6], 2)])
        kept.append((rows.features(row), rows.states([Call(row, [8, 9], 2)])[0]))
    for found, expected in zip(*kept, strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


def test_what_is_not_known_runs_as_it_is() -> None:
    assert LeanLayers.of(network().double()) is None
    assert LeanLayers.of(network().train()) is None
    assert LeanLayers.of(network("Gemma2")) is None
    hooked = network()
    assert LeanLayers.of(hooked) is not None
    handle = hooked.model.layers[1].register_forward_hook(lambda *args: None)
    assert LeanLayers.of(hooked) is None
    handle.remove()
    assert LeanLayers.of(hooked) is not None
    broken = network()
    original = broken.model.norm.forward
    broken.model.norm.forward = lambda x: 2 * original(x)
    assert LeanLayers.of(broken) is None, "the comparison with its own forward must notice"


def test_what_is_altered_later_runs_as_it_is() -> None:
    patched, swapped = network(), network()
    assert LeanLayers.of(patched) is not None and LeanLayers.of(swapped) is not None
    mlp = patched.model.layers[1].mlp
    original = mlp.forward
    mlp.forward = lambda x: 2 * original(x)
    assert LeanLayers.of(patched) is None
    del mlp.forward
    assert LeanLayers.of(patched) is not None

    class Doubled(type(swapped.model.layers[0].mlp)):  # type: ignore[misc]
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return 2 * super().forward(x)

    layer = swapped.model.layers[2]
    doubled = Doubled(swapped.config)
    doubled.load_state_dict(layer.mlp.state_dict())
    layer.mlp = doubled
    assert LeanLayers.of(swapped) is None


def test_what_transformers_notes_of_hidden_states_changes_nothing() -> None:
    """It leaves hooks behind on a network that was asked for them once."""
    asked = network()
    with torch.inference_mode():
        asked(input_ids=torch.tensor([[1, 2, 3]]), output_hidden_states=True)
    assert any(module._forward_hooks for module in asked.modules()), "then this test says nothing"
    assert LeanLayers.of(asked) is not None


def test_a_shortened_network_is_lean_too(model: Model) -> None:
    from structspec.drafting.early_exit import shortened

    short = shortened(model.model, 2)
    rows = TargetRows(model)
    row = rows.open()
    rows.forward([Call(row, [1, 2, 3])])
    (logits,) = rows.forward([Call(row, [4])], short)
    with torch.inference_mode():
        expected = short(input_ids=torch.tensor([[1, 2, 3, 4]]), use_cache=False).logits[0, -1:]
    torch.testing.assert_close(logits, expected, rtol=1e-4, atol=1e-4)
