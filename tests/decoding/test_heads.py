"""Draft heads (EAGLE-3, EAGLE, Medusa) on a tiny target: files, and nothing but speed changes."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch

from structspec.decoding.loop import decode, decode_many
from structspec.decoding.progress import Job
from structspec.drafting import EagleDraft, EagleHead, MedusaDraft, MedusaHeads
from structspec.drafting.head_layer import HeadCache
from structspec.errors import DraftError
from structspec.forward.warp import Sampling
from structspec.models import Model
from structspec.vocab import Vocabulary

Bind = Callable[[str, Vocabulary], Any]
PATTERN = r'\{"name": "[a-z ]{1,12}", "and": (true|false)\}'


@pytest.fixture(scope="module")
def constraint(byte_model: Model, bind: Bind) -> Any:
    return bind(PATTERN, byte_model.vocab)


@pytest.fixture(scope="module")
def prompt(byte_model: Model) -> list[int]:
    return byte_model.vocab.encode(b"and the hand")


def eagle(model: Model, ids: Any = None) -> EagleHead:
    torch.manual_seed(0)
    draft_ids = range(0, model.logit_width, 2) if ids is None else ids
    return EagleHead.for_target(model.model, list(draft_ids), (1, 2, 2)).double()


def copying(model: Model, share: float) -> EagleHead:
    head = eagle(model)
    head.copies()
    assert head.copy is not None
    with torch.no_grad():
        head.copy.fill_(share)
    return head


def medusa(model: Model, heads: int = 3) -> MedusaHeads:
    torch.manual_seed(0)
    return MedusaHeads(16, model.logit_width, heads, 1).double()


DRAFTS: dict[str, Callable[[Model], Any]] = {
    "eagle": lambda model: EagleDraft(eagle(model)),
    "whole vocabulary": lambda model: EagleDraft(eagle(model, range(model.logit_width))),
    "few tokens": lambda model: EagleDraft(eagle(model, [64, 65, 66])),
    "unmasked": lambda model: EagleDraft(eagle(model), masked=False),
    "copies": lambda model: EagleDraft(copying(model, 0.5)),
    "sure copies": lambda model: EagleDraft(copying(model, 4.0)),
    "unmasked copies": lambda model: EagleDraft(copying(model, 0.5), masked=False),
    "medusa": lambda model: MedusaDraft(medusa(model)),
}


@pytest.mark.parametrize("draft", DRAFTS)
def test_greedy_texts_are_those_of_plain_decoding(
    byte_model: Model, constraint: Any, prompt: list[int], draft: str
) -> None:
    greedy = Sampling(temperature=0.0)
    source = DRAFTS[draft](byte_model)
    plain = decode(byte_model, prompt, constraint, sampling=greedy, max_tokens=45)
    fast = decode(byte_model, prompt, constraint, sampling=greedy, draft=source, max_tokens=45)
    assert fast.tokens == plain.tokens and fast.stats.drafted > 0


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("draft", DRAFTS)
def test_sampled_texts_are_valid_and_repeat_in_a_batch(
    byte_model: Model, constraint: Any, prompt: list[int], draft: str, count: int
) -> None:
    source = DRAFTS[draft](byte_model)
    jobs = [Job(prompt[i:], constraint, max_tokens=45, seed=5, request=i) for i in range(3)]
    together = decode_many(byte_model, jobs, draft=source, draft_count=count)
    for i, output in enumerate(together):
        assert not isinstance(output, Exception), output
        assert re.fullmatch(PATTERN, output.text.decode())
        options: dict[str, Any] = {"max_tokens": 45, "seed": 5, "request": i, "draft_count": count}
        assert decode(byte_model, prompt[i:], constraint, draft=source, **options) == output


def test_a_head_cache_goes_on_where_it_was(byte_model: Model) -> None:
    head = eagle(byte_model)
    features, tokens = torch.randn(7, 16).double(), torch.tensor([97, 98, 99, 100, 101, 102, 103])
    with torch.inference_mode():
        whole = head(features, tokens, HeadCache())
        cache = HeadCache()
        head(features[:4], tokens[:4], cache)
        branch = cache.branch()
        head(torch.randn(2, 16).double(), tokens[:2], branch)
        rest = head(features[4:], tokens[4:], cache)
    torch.testing.assert_close(rest, whole[4:])
    assert (branch.length, cache.length) == (6, 7)


def test_features_are_the_targets_states_of_the_kept_text(
    byte_model: Model, constraint: Any, prompt: list[int]
) -> None:
    """Whatever was drafted and dropped, by chains or trees."""
    seen: list[tuple[list[int], torch.Tensor]] = []
    head = eagle(byte_model)

    class Spy(EagleDraft):
        def begin(self, request: Any) -> Any:
            drafter = super().begin(request)
            inner = drafter.plan

            def propose(state: int, context: Any, *rest: Any) -> Any:
                if request.rows.length(request.row):
                    features = request.rows.features(request.row)
                    seen.append((list(context[: len(features)]), features.clone()))
                return inner(state, context, *rest)

            drafter.plan = propose  # type: ignore[method-assign]
            return drafter

    decode(byte_model, prompt, constraint, draft=Spy(head), draft_count=2, max_tokens=45, seed=4)
    assert len(seen) > 3
    for ids, features in seen:
        with torch.inference_mode():
            states = byte_model.model(torch.tensor([ids]), output_hidden_states=True).hidden_states
        expected = torch.cat([states[tap][0] for tap in head.taps], dim=-1)
        torch.testing.assert_close(features, expected)


def test_a_new_head_begins_as_the_targets_last_layer(byte_model: Model) -> None:
    head = EagleHead.for_target(byte_model.model, [97, 98], (0, 1, 1)).double()
    last = byte_model.model.model.layers[-1]
    assert torch.equal(head.midlayer.mlp.up_proj.weight, last.mlp.up_proj.weight)
    assert torch.equal(head.midlayer.self_attn.k_proj.weight[:, 16:], last.self_attn.k_proj.weight)
    states = torch.randn(3, 48).double()
    assert torch.equal(head.reduce(states), states[:, -16:])


def test_a_saved_head_drafts_the_same(
    byte_model: Model, constraint: Any, prompt: list[int], tmp_path: Path
) -> None:
    head = eagle(byte_model).half().double()  # files hold float16
    head.save(tmp_path / "head")
    loaded = EagleHead.load(tmp_path / "head", byte_model.model).double()
    assert loaded.taps == (1, 2, 2) and torch.equal(loaded.draft_ids, head.draft_ids)
    one, two = (
        decode(byte_model, prompt, constraint, draft=EagleDraft(h), max_tokens=45, seed=3)
        for h in (head, loaded)
    )
    assert one == two and one.stats.accepted == two.stats.accepted
    config = json.loads((tmp_path / "head" / "config.json").read_text())
    assert config["draft_vocab_size"] == len(head.draft_ids)


def published(model: Model, layout: str) -> dict[str, torch.Tensor]:
    """Tensors named and shaped as the published checkpoints have them."""
    torch.manual_seed(1)
    size, inner, kv, vocab = 16, 32, 8, model.logit_width
    wide = 2 * size if layout == "eagle3" else size
    layer = "midlayer" if layout == "eagle3" else "layers.0"
    shapes = {
        f"{layer}.self_attn.q_proj.weight": (size, wide),
        f"{layer}.self_attn.k_proj.weight": (kv, wide),
        f"{layer}.self_attn.v_proj.weight": (kv, wide),
        f"{layer}.self_attn.o_proj.weight": (size, size),
        f"{layer}.mlp.gate_proj.weight": (inner, size),
        f"{layer}.mlp.up_proj.weight": (inner, size),
        f"{layer}.mlp.down_proj.weight": (size, inner),
        f"{layer}.post_attention_layernorm.weight": (size,),
        "embed_tokens.weight": (vocab, size),
    }
    if layout == "eagle3":
        shapes |= {
            "fc.weight": (size, 3 * size),
            "midlayer.hidden_norm.weight": (size,),
            "midlayer.input_layernorm.weight": (size,),
            "norm.weight": (size,),
            "lm_head.weight": (40, size),
        }
    else:
        shapes["fc.weight"] = (size, 2 * size)
    tensors = {name: torch.randn(shape) for name, shape in shapes.items()}
    if layout == "eagle3":
        ids = torch.arange(40) * 3
        tensors["d2t"] = ids - torch.arange(40)
        known = torch.zeros(vocab, dtype=torch.bool)
        known[ids] = True
        tensors["t2d"] = known
    return tensors


@pytest.mark.parametrize("layout", ["eagle3", "eagle"])
def test_published_layouts_load_and_draft(
    byte_model: Model, constraint: Any, prompt: list[int], tmp_path: Path, layout: str
) -> None:
    tensors = published(byte_model, layout)
    safetensors.torch.save_file(tensors, tmp_path / "model.safetensors")
    taps = (0, 1, 2) if layout == "eagle3" else None
    head = EagleHead.load(tmp_path, byte_model.model, taps=taps).double()
    assert head.first == (layout == "eagle")
    assert len(head.draft_ids) == (40 if layout == "eagle3" else byte_model.logit_width)
    name = "midlayer" if layout == "eagle3" else "layers.0"
    assert torch.equal(
        head.midlayer.mlp.down_proj.weight.float(), tensors[f"{name}.mlp.down_proj.weight"]
    )
    output = decode(byte_model, prompt, constraint, draft=EagleDraft(head), max_tokens=45, seed=1)
    assert re.fullmatch(PATTERN, output.text.decode()) and output.stats.drafted > 5


def test_published_medusa_heads_load(byte_model: Model, tmp_path: Path) -> None:
    torch.manual_seed(2)
    tensors = {}
    for k in range(2):
        tensors[f"{k}.0.linear.weight"] = torch.randn(16, 16)
        tensors[f"{k}.0.linear.bias"] = torch.randn(16)
        tensors[f"{k}.1.weight"] = torch.randn(byte_model.logit_width, 16)
    torch.save(tensors, tmp_path / "medusa_lm_head.pt")
    heads = MedusaHeads.load(tmp_path, byte_model.model)
    state = torch.randn(1, 16).double()
    x = tensors["1.0.linear.weight"].double() @ state[0] + tensors["1.0.linear.bias"].double()
    expected = tensors["1.1.weight"].double() @ (state[0] + x * x.sigmoid())
    torch.testing.assert_close(heads.logits(state, 1)[0], expected)


def test_files_that_do_not_fit_are_refused_by_name(byte_model: Model, tmp_path: Path) -> None:
    with pytest.raises(DraftError, match="no draft head"):
        EagleHead.load(tmp_path, byte_model.model)
    tensors = published(byte_model, "eagle3")
    del tensors["midlayer.mlp.up_proj.weight"]
    safetensors.torch.save_file(tensors, tmp_path / "model.safetensors")
    with pytest.raises(DraftError, match=r"lacks \['midlayer.mlp.up_proj.weight'\]"):
        EagleHead.load(tmp_path, byte_model.model, taps=(0, 1, 2))
    tensors["midlayer.mlp.up_proj.weight"] = torch.zeros(5, 16)
    safetensors.torch.save_file(tensors, tmp_path / "model.safetensors")
    with pytest.raises(DraftError, match=r"made for another target: .* is \(5, 16\)"):
        EagleHead.load(tmp_path, byte_model.model, taps=(0, 1, 2))
    (tmp_path / "model.safetensors").write_bytes(b"not tensors")
    with pytest.raises(DraftError, match="cannot read"):
        EagleHead.load(tmp_path, byte_model.model)
    with pytest.raises(DraftError, match="0 to 2"):
        EagleHead.for_target(byte_model.model, [1], (1, 3))
    with pytest.raises(DraftError, match="no Medusa"):
        safetensors.torch.save_file({"x": torch.zeros(1)}, tmp_path / "model.safetensors")
        MedusaHeads.load(tmp_path, byte_model.model)
