"""Drafts drawn on the device: legal, from their own rows, by the host's uniforms."""

from __future__ import annotations

import copy
import os
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from structspec.decoding.loop import decode
from structspec.drafting import ModelDraft, Request, device
from structspec.drafting.device import DeviceDrafter
from structspec.drafting.loop_cache import LoopCache
from structspec.drafting.model import ModelDrafter
from structspec.errors import DraftError
from structspec.forward.warp import Sampling
from structspec.kernels.backend import ENVIRONMENT
from structspec.kernels.checks.interpreter import patch_once
from structspec.models import Model
from structspec.packed import is_set
from structspec.verification.randomness import Purpose, Randomness, sample_inverse
from structspec.vocab import Vocabulary

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
Bind = Callable[[str, Vocabulary], Any]
if INTERPRETED:
    patch_once()
PATTERN = r'\{"a": [ab]{2,9}, "b": (true|false)\}'


@pytest.fixture(autouse=True)
def triton_if_interpreted(monkeypatch: pytest.MonkeyPatch) -> None:
    """`test_kernels_in_the_loop` runs this file once more in an interpreted process."""
    if INTERPRETED:
        monkeypatch.setenv(ENVIRONMENT, "triton")


@pytest.fixture(scope="module")
def single(byte_model: Model) -> Model:
    network = copy.deepcopy(byte_model.model).float()
    return Model(network, None, name="single", vocab=byte_model.vocab)


@pytest.fixture(scope="module")
def constraint(single: Model, bind: Bind) -> Any:
    return bind(PATTERN, single.vocab)


def drafter_of(model: Model, constraint: Any, on_device: bool, **options: Any) -> ModelDrafter:
    source = ModelDraft(model=model, on_device=on_device, **{"length": 5, **options})
    prompt = model.vocab.encode(b"and the")
    return source.begin(Request(constraint, prompt, Sampling(), Randomness(3), 7, model))


def check(constraint: Any, drafts: list[Any], left: int, step: int) -> int:
    """Every token legal, and drawn from its row by the uniform of its place; how many were."""
    sampled = 0
    for k, draft in enumerate(drafts):
        u = Randomness(3).uniforms(7, step, Purpose.DRAFT, k, 32)
        state = constraint.start
        for i, token in enumerate(draft.tokens):
            mask = constraint.mask(state, left - i)
            assert is_set(mask, token) and np.array_equal(mask, draft.masks[i])
            if draft.q is not None and not draft.onehot[i]:
                row = draft.q[i].double().numpy()
                legal = np.unpackbits(mask.view(np.uint8), bitorder="little")[: len(row)]
                assert row.sum() == pytest.approx(1.0, abs=1e-5)
                assert not row[~legal.astype(bool)].any()
                around = [sample_inverse(row, min(max(u[i] + d, 0), 1)) for d in (-1e-5, 0, 1e-5)]
                assert token in around
                sampled += 1
            state = (
                constraint.advance(state, token) if token not in constraint.vocab.eos_ids else state
            )
    return sampled


def test_drafts_are_legal_and_the_hosts_up_to_where_the_shorter_ends(
    single: Model, constraint: Any
) -> None:
    there = drafter_of(single, constraint, True, spans=False, adaptive=False)
    here = drafter_of(single, constraint, False, spans=False, adaptive=False)
    assert isinstance(there, DeviceDrafter) and not isinstance(here, DeviceDrafter)
    prompt = single.vocab.encode(b"and the")
    for step in range(2):
        found = there.propose_several(constraint.start, prompt, 40, step, 2)
        wanted = here.propose_several(constraint.start, prompt, 40, step, 2)
        assert check(constraint, found, 40, step) >= 6
        for ours, theirs in zip(found, wanted, strict=True):
            size = min(len(ours), len(theirs))
            assert size >= 3 and ours.tokens[:size] == theirs.tokens[:size]
            both = [i for i in range(size) if not ours.onehot[i] and not theirs.onehot[i]]
            torch.testing.assert_close(ours.q[both], theirs.q[both], atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize(
    "reason",
    [
        "too many states",
        pytest.param("the budget binds", marks=pytest.mark.full if INTERPRETED else ()),
    ],
)
def test_the_host_fills_masks_where_the_table_does_not_serve(
    single: Model, constraint: Any, monkeypatch: pytest.MonkeyPatch, reason: str
) -> None:
    if reason == "too many states":
        monkeypatch.setattr(device, "MOST_STATES", 3)
    monkeypatch.setattr(device, "_walks", type(device._walks)())
    left = 40 if reason == "too many states" else int(constraint.distance(constraint.start)) + 1
    drafter = drafter_of(single, constraint, True, spans=False)
    drafts = drafter.propose_several(constraint.start, single.vocab.encode(b"and"), left, 0, 2)
    assert check(constraint, drafts, left, 0) >= 6
    (loop,) = drafter._loops.values()  # type: ignore[attr-defined]
    assert (loop.walk is None) == (reason == "too many states")
    assert loop._pool.misses > 0


@pytest.mark.skipif(INTERPRETED, reason="slow when interpreted, and the same path")
def test_texts_are_complete_and_greedy_ones_are_plain_greedys(
    single: Model, constraint: Any
) -> None:
    prompt = single.vocab.encode(b"and the hand")
    draft = ModelDraft(model=single, on_device=True)
    greedy = Sampling(temperature=0.0)
    plain = decode(single, prompt, constraint, sampling=greedy, max_tokens=40)
    fast = decode(single, prompt, constraint, sampling=greedy, draft=draft, max_tokens=40)
    assert fast.tokens == plain.tokens and fast.stats.accepted > 3
    least = int(constraint.distance(constraint.start))
    for tokens in (40, least):
        texts = [
            decode(
                single, prompt, constraint, draft=draft, draft_count=2, max_tokens=tokens, seed=4
            )
            for _ in range(2)
        ]
        assert texts[0].tokens == texts[1].tokens
        assert re.fullmatch(PATTERN, texts[0].text.decode())


def test_a_turn_of_the_loop_cache_is_a_forward_of_each_row(single: Model) -> None:
    cache = LoopCache(single.model, rows=2, slots=32)
    prompt = [1, 2, 3, 4]
    tokens = torch.tensor([[5, 6], [7, 8]])

    def whole(ids: list[int]) -> torch.Tensor:
        return single.model(input_ids=torch.tensor([ids])).logits[0, -1]

    with torch.inference_mode():
        for text in (prompt, [*prompt, 9, 9], [1, 2, 8]):
            torch.testing.assert_close(cache.read(text)[0], whole(text), atol=1e-4, rtol=1e-4)
            cache.spread()
            cache.start(16)
            for turn in range(2):
                found = cache.turn(tokens[:, turn])
                for row in range(2):
                    expected = whole([*text, *tokens[row, : turn + 1].tolist()])
                    torch.testing.assert_close(found[row], expected, atol=1e-4, rtol=1e-4)


@pytest.mark.skipif(INTERPRETED, reason="tests/kernels has it for every kernel")
def test_nan_is_a_draft_error(single: Model, constraint: Any) -> None:
    network = copy.deepcopy(single.model)
    with torch.no_grad():
        network.lm_head.weight.fill_(torch.nan)
    broken = Model(network, None, name="broken", vocab=single.vocab)
    drafter = drafter_of(broken, constraint, True)
    with pytest.raises(DraftError, match="NaN"):
        drafter.propose(constraint.start, single.vocab.encode(b"and"), 40, 0)
