"""Sampling settings under a mask: transformers' order, masks of every width, per-row history."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from structspec.errors import ModelError, VocabularyError
from structspec.forward import warp
from structspec.forward.warp import History, Sampling, draft_law, target_law
from structspec.kernels.unpack_masks import reference, unpack_masks


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


def pack(legal: Tensor) -> np.ndarray:
    """Bool [N, V] as uint32 [N, ceil(V / 32)], bit by bit."""
    n, v = legal.shape
    words = np.zeros((n, -(-v // 32)), dtype=np.uint32)
    for row, token in legal.nonzero().tolist():
        words[row, token // 32] |= np.uint32(1 << token % 32)
    return words


def random_case(seed: int, n: int, v: int, share: float = 0.5) -> tuple[Tensor, Tensor]:
    g = torch.Generator().manual_seed(seed)
    logits = torch.randn(n, v, generator=g) * 3
    legal = torch.rand(n, v, generator=g) < share
    legal[torch.arange(n), torch.randint(v, (n,), generator=g)] = True
    return logits, legal


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 130), st.integers(1, 3), st.integers(0, 99))
def test_masks_of_any_width_unpack_bit_by_bit(size: int, rows: int, seed: int) -> None:
    _, legal = random_case(seed, rows, size)
    words = pack(legal)
    words.flags.writeable = False
    assert torch.equal(unpack_masks(words, size), legal)
    assert torch.equal(torch.from_numpy(reference(words, size)), legal)
    as_int32 = torch.from_numpy(words.view(np.int32).copy())
    assert torch.equal(unpack_masks(as_int32, size), legal)
    assert torch.equal(unpack_masks(as_int32.view(torch.uint32), size), legal)


def test_a_column_of_one_word_unpacks_whatever_its_strides() -> None:
    words = torch.arange(12, dtype=torch.int32).reshape(3, 4)
    for rows in (3, 1):
        column = words[:rows, 2:3]
        expected = [[bool(int(w) >> i & 1) for i in range(5)] for w in column[:, 0]]
        assert unpack_masks(column, 5).tolist() == expected
        assert unpack_masks(column.numpy().astype(np.uint32), 5).tolist() == expected


def test_ids_beyond_the_grammars_vocabulary_are_illegal() -> None:
    law = target_law(torch.zeros(1, 100), pack(torch.ones(1, 40).bool()), None, Sampling())
    assert law[0, :40].sum() == pytest.approx(1.0)
    assert not law[0, 40:].any()


def test_masks_of_the_wrong_shape_or_type_are_refused() -> None:
    with pytest.raises(ValueError, match="one packed row per row of logits"):
        target_law(torch.zeros(2, 40), np.ones((1, 2), np.uint32), None, Sampling())
    with pytest.raises(TypeError, match="32-bit"):
        unpack_masks(torch.ones(1, 2, dtype=torch.int64), 40)


SETTINGS: list[dict[str, Any]] = [
    {},
    {"temperature": 0.3},
    {"top_k": 5},
    {"top_p": 0.7},
    {"min_p": 0.1},
    {"temperature": 1.7, "top_k": 20, "top_p": 0.9, "min_p": 0.02},
    {"temperature": 0.5, "top_p": 0.4, "min_p": 0.3},
    {"top_p": 0.0},
    {"top_k": 1},
]


@pytest.mark.parametrize("options", SETTINGS)
@pytest.mark.parametrize("share", [1.0, 0.5, 0.04])
def test_warp_equals_transformers_warpers_in_their_order(
    options: dict[str, Any], share: float
) -> None:
    process = pytest.importorskip("transformers.generation.logits_process")
    logits, legal = random_case(3, 20, 200, share)
    legal[:, 0] = True
    scores = logits.masked_fill(~legal, -math.inf)
    for name, kind in [
        ("temperature", process.TemperatureLogitsWarper),
        ("top_k", process.TopKLogitsWarper),
        ("top_p", process.TopPLogitsWarper),
        ("min_p", process.MinPLogitsWarper),
    ]:
        if name in options:
            scores = kind(options[name])(None, scores)
    law = target_law(logits, pack(legal), None, Sampling(**options))
    assert torch.allclose(law, scores.softmax(-1), atol=1e-6)
    assert torch.equal(law > 0, scores > -math.inf)


def test_repetition_penalty_and_bias_equal_transformers() -> None:
    process = pytest.importorskip("transformers.generation.logits_process")
    logits, legal = random_case(5, 1, 60)
    prompt, output = [3, 9, 9, 41], [5, 3]
    scores = process.SequenceBiasLogitsProcessor([[[7], 1.5], [[3], -2.0]])(
        torch.tensor([prompt + output]), logits
    )
    scores = process.RepetitionPenaltyLogitsProcessor(1.3)(torch.tensor([prompt + output]), scores)
    sampling = Sampling(repetition_penalty=1.3, logit_bias={7: 1.5, 3: -2.0})
    law = target_law(logits, pack(legal), [History(prompt, output)], sampling)
    expected = scores.masked_fill(~legal, -math.inf).softmax(-1)
    assert torch.allclose(law, expected, atol=1e-6)


def test_each_row_of_a_draft_sees_its_own_prefix() -> None:
    """Row i counts exactly the drafted tokens before it, and the output, but not the prompt."""
    logits = torch.randn(1, 10, dtype=torch.float64).expand(3, 10)
    sampling = Sampling(frequency_penalty=0.5, presence_penalty=0.25)
    rows = History(prompt=[1, 1], output=[2]).extended([3, 3])
    assert [h.output for h in rows] == [(2,), (2, 3), (2, 3, 3)]
    law = target_law(logits, None, rows, sampling)
    for i, (twos, threes) in enumerate([(1, 0), (1, 1), (1, 2)]):
        scores = logits[i].clone()
        for token, count in ((2, twos), (3, threes)):
            scores[token] -= 0.5 * count + 0.25 * (count > 0)
        assert torch.allclose(law[i], scores.softmax(-1), atol=1e-14)
    with pytest.raises(ValueError, match="one history per row: 3 rows, none given"):
        target_law(logits, None, None, sampling)
    assert torch.equal(draft_law(logits, None, sampling), draft_law(logits, None, Sampling()))


def test_prompt_ids_beyond_the_head_are_ignored() -> None:
    law = target_law(torch.zeros(1, 4), None, [History([900, 1])], Sampling(repetition_penalty=2))
    assert law.tolist() == [[0.25] * 4]


def overlap(target: Tensor, draft: Tensor) -> float:
    return float(torch.minimum(target, draft).sum())


def test_top_p_before_the_mask_keeps_the_drafts_acceptance() -> None:
    """Masking the draft first and cutting it afterwards would fall from .654 to .5."""
    target = torch.tensor([[0.5, 0.5, *[0.0] * 7]], dtype=torch.float64)
    draft = torch.tensor([[0.55, 0.10, *[0.05] * 7]], dtype=torch.float64)
    legal = torch.tensor([[True, True, *[False] * 7]])
    sampling = Sampling(top_p=0.6)
    p = target_law(target.log(), pack(legal), None, sampling)
    q = draft_law(draft.log(), pack(legal), sampling)
    assert p[0, :2].tolist() == pytest.approx([0.5, 0.5])
    assert q[0, :2].tolist() == pytest.approx([0.55 / 0.65, 0.10 / 0.65])
    assert overlap(p, q) == pytest.approx(0.654, abs=5e-4)
    mask_first = target_law(draft.log(), pack(legal), None, sampling)
    assert overlap(p, mask_first) == pytest.approx(0.5)
    assert overlap(p, draft_law(draft.log(), None, sampling)) == pytest.approx(0.654, abs=5e-4)


def test_a_draft_whose_warp_leaves_nothing_legal_falls_back_to_its_masked_law() -> None:
    logits = torch.tensor([[5.0, 1.0, 0.0], [0.0, 5.0, 1.0]])
    legal = torch.tensor([[False, True, True]] * 2)
    q = draft_law(logits, pack(legal), Sampling(top_k=1))
    assert q[0].tolist() == pytest.approx([0.0, *torch.tensor([1.0, 0.0]).softmax(0).tolist()])
    assert q[1].tolist() == [0.0, 1.0, 0.0]
    q = draft_law(logits, pack(legal), Sampling(temperature=0.0))
    assert q.tolist() == [[0.0, 1.0, 0.0]] * 2


@pytest.mark.parametrize("options", SETTINGS)
def test_laws_are_normalised_legal_and_exact_on_forced_tokens(options: dict[str, Any]) -> None:
    logits, legal = random_case(8, 30, 70)
    legal[0] = False
    legal[0, 13] = True
    for law in (
        target_law(logits, pack(legal), None, Sampling(**options)),
        draft_law(logits, pack(legal), Sampling(**options)),
    ):
        assert torch.allclose(law.sum(-1), torch.ones(30), atol=1e-5)
        assert not law[~legal].any()
        assert law[0, 13] == 1.0


@settings(max_examples=80, deadline=None)
@given(
    st.integers(0, 999),
    st.sampled_from([0.0, 0.2, 0.5, 0.9, 0.999, 1.0]),
    st.sampled_from([1, 2, 5, 40]),
    st.booleans(),
)
def test_the_nucleus_does_not_depend_on_how_many_columns_are_sorted_first(
    seed: int, top_p: float, columns: int, ties: bool
) -> None:
    logits, legal = random_case(seed, 3, 40, 0.6)
    if ties:
        logits = (logits / 2).round()
    reference = target_law(logits, pack(legal), None, Sampling(top_p=top_p))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(warp, "_NUCLEUS_COLUMNS", columns)
        law = target_law(logits, pack(legal), None, Sampling(top_p=top_p))
    assert torch.equal(law, reference)
    for row, allowed, got in zip(logits, legal, law, strict=True):  # the definition, in words
        p = row.double().masked_fill(~allowed, -math.inf).softmax(-1)
        order = sorted(range(40), key=lambda i: (-float(p[i]), i))
        kept, mass = set(), 0.0
        for i in order:
            if abs(mass - top_p) < 1e-6:
                break  # rounding decides
            if (mass < top_p or not kept) and p[i] > 0:
                kept.add(i)
            mass += float(p[i])
        else:
            assert set(got.nonzero()[:, 0].tolist()) == kept


@pytest.mark.parametrize("options", SETTINGS)
def test_no_rows_give_no_laws(options: dict[str, Any]) -> None:
    none, words = torch.zeros(0, 40), np.zeros((0, 2), np.uint32)
    assert target_law(none, words, None, Sampling(**options)).shape == (0, 40)
    assert draft_law(none, words, Sampling(**options)).shape == (0, 40)


def test_ties_are_broken_by_the_lowest_id() -> None:
    rows = torch.zeros(1, 4)
    assert target_law(rows, None, None, Sampling(temperature=0)).tolist() == [[1.0, 0, 0, 0]]
    assert target_law(rows, None, None, Sampling(top_p=0.5)).tolist() == [[0.5, 0.5, 0, 0]]
    assert target_law(rows, None, None, Sampling(top_k=2)).tolist() == [[0.25] * 4]


def test_half_precision_is_widened_and_tiny_temperatures_do_not_overflow() -> None:
    logits = torch.tensor([[3e4, 1e4, -6e4]], dtype=torch.bfloat16)
    for law in (
        target_law(logits, None, None, Sampling(temperature=1e-40)),
        draft_law(logits, None, Sampling(temperature=1e-40)),
    ):
        assert law.dtype == torch.float32
        assert law.tolist() == [[1.0, 0.0, 0.0]]


def test_rows_that_cannot_be_sampled_are_model_errors() -> None:
    two = torch.zeros(2, 40)
    empty = np.array([[1, 0], [0, 0]], dtype=np.uint32)
    for law in (
        lambda x, m, s: target_law(x, m, None, s),
        lambda x, m, s: draft_law(x, m, s),
    ):
        with pytest.raises(ModelError, match="mask of row 1 allows no token"):
            law(two, empty, Sampling())
        with pytest.raises(ModelError, match="logit -inf"):
            law(
                two,
                np.array([[3, 0]] * 2, np.uint32),
                Sampling(logit_bias={0: -math.inf, 1: -math.inf}),
            )
        for bad in (math.nan, math.inf):
            broken = two.clone()
            broken[1, 3] = bad
            with pytest.raises(ModelError, match=f"returned {bad} in row 1"):
                law(broken, None, Sampling())
    illegal_nan = two.clone()
    illegal_nan[:, 3] = math.nan
    law = target_law(illegal_nan, np.array([[1, 0]] * 2, dtype=np.uint32), None, Sampling())
    assert law[:, 0].tolist() == [1.0, 1.0]


def test_biased_ids_must_exist() -> None:
    with pytest.raises(VocabularyError, match="names id 4, but the model has 4 tokens"):
        target_law(torch.zeros(1, 4), None, None, Sampling(logit_bias={4: 1.0}))


@pytest.mark.parametrize(
    "options",
    [
        {"temperature": -1.0},
        {"temperature": math.nan},
        {"temperature": math.inf},
        {"top_k": 0},
        {"top_k": 2.0},
        {"top_k": True},
        {"top_p": 1.1},
        {"min_p": -0.1},
        {"repetition_penalty": 0.0},
        {"frequency_penalty": math.inf},
        {"presence_penalty": math.nan},
        {"logit_bias": {-1: 1.0}},
        {"logit_bias": {1: math.nan}},
        {"seed": -1},
        {"seed": 2**64},
    ],
)
def test_settings_out_of_range_are_refused_by_name(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(options))):
        Sampling(**options)


def test_settings_are_immutable_and_hashable() -> None:
    bias = {3: 1.0}
    sampling = Sampling(logit_bias=bias)
    bias[3] = 2.0
    assert sampling.logit_bias == {3: 1.0}
    assert hash(sampling) == hash(Sampling(logit_bias={3: 1.0}))
    assert sampling == Sampling(logit_bias={3: 1.0})
