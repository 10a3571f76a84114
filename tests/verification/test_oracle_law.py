"""The oracle is lossless: exact enumeration over tiny vocabularies, in float64."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from structspec.errors import ModelError
from structspec.verification import oracle

KINDS = [
    "random",
    "zeros",
    "singletons",
    "equal",
    "onehot",
    "mixed",
    "eos",
    "stops",
    "masks",
]
SHAPES = [(2, 4), (3, 3), (4, 2), (3, 1), (3, 0)]
LAWS = {"token": oracle.token_law, "block": oracle.block_law}
Tiny = Callable[[str, int, int], Any]


@pytest.mark.parametrize("name", LAWS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", SHAPES)
def test_law_of_the_text_is_the_target_law(
    tiny: Tiny, name: str, kind: str, shape: tuple[int, int]
) -> None:
    vocab, length = shape
    for seed in range(3):
        m = tiny(kind, vocab, seed)
        exact = oracle.output_law(LAWS[name], m.target, m.draft, length, length + 1, m.ends)
        assert oracle.distance(exact, oracle.plain_law(m.target, length + 1, m.ends)) <= 1e-12


@pytest.mark.parametrize("name", LAWS)
@pytest.mark.parametrize("kind", ["random", "eos", "mixed"])
def test_law_is_exact_at_the_largest_enumerated_size(tiny: Tiny, name: str, kind: str) -> None:
    m = tiny(kind, 4, 11)
    exact = oracle.output_law(LAWS[name], m.target, m.draft, 4, 5, m.ends)
    assert oracle.distance(exact, oracle.plain_law(m.target, 5, m.ends)) <= 1e-12


@pytest.mark.parametrize("name", LAWS)
@pytest.mark.parametrize("kind", ["random", "zeros", "eos", "stops", "masks"])
def test_speculating_again_and_again_keeps_the_law(tiny: Tiny, name: str, kind: str) -> None:
    m = tiny(kind, 3, 5)
    exact = oracle.output_law(LAWS[name], m.target, m.draft, 2, 4, m.ends, speculate_again=True)
    assert oracle.distance(exact, oracle.plain_law(m.target, 4, m.ends)) <= 1e-12


@st.composite
def rational_models(draw: st.DrawFn) -> tuple[int, int, list[np.ndarray], list[np.ndarray]]:
    """Rows of small integer weights: ties, equal rows, zeros and point masses are common."""
    vocab = draw(st.integers(2, 3))
    length = draw(st.integers(0, 3))
    weights = st.lists(st.integers(0, 4), min_size=vocab, max_size=vocab).filter(any)
    rows = st.lists(weights.map(lambda w: np.array(w) / sum(w)), min_size=1, max_size=7)
    return vocab, length, draw(rows), draw(rows)


@settings(max_examples=60, deadline=None)
@given(rational_models())
def test_law_is_exact_on_rational_rows_with_ties(
    model: tuple[int, int, list[np.ndarray], list[np.ndarray]],
) -> None:
    vocab, length, p_rows, q_rows = model

    def pick(rows: list[np.ndarray], text: tuple[int, ...]) -> np.ndarray:
        number = len(text) + sum(x * vocab**i for i, x in enumerate(text))
        return rows[number % len(rows)]

    plain = oracle.plain_law(lambda t: pick(p_rows, t), length + 1)
    for law in LAWS.values():
        exact = oracle.output_law(
            law, lambda t: pick(p_rows, t), lambda t: pick(q_rows, t), length, length + 1
        )
        assert oracle.distance(exact, plain) <= 1e-12


@pytest.mark.parametrize("kind", KINDS)
def test_block_keeps_at_least_as_many_tokens_as_token_wise(tiny: Tiny, kind: str) -> None:
    gains = []
    for seed in range(6):
        m = tiny(kind, 3, seed)
        token, block = (
            oracle.expected_accepted(law, m.target, m.draft, 3, (), m.ends)
            for law in (oracle.token_law, oracle.block_law)
        )
        gains.append(block - token)
    assert min(gains) >= -1e-12
    if kind == "random":
        assert max(gains) > 1e-3


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", [(2, 4), (3, 3), (4, 1)])
def test_block_reaches_the_optimum_of_one_draft(
    tiny: Tiny, kind: str, shape: tuple[int, int]
) -> None:
    vocab, length = shape
    m = tiny(kind, vocab, 3)
    best = oracle.optimal_accepted(m.target, m.draft, length, (), m.ends)
    block = oracle.expected_accepted(oracle.block_law, m.target, m.draft, length, (), m.ends)
    token = oracle.expected_accepted(oracle.token_law, m.target, m.draft, length, (), m.ends)
    assert block == pytest.approx(best, abs=1e-12)
    assert token <= best + 1e-12


def test_one_token_drafts_are_kept_with_the_overlap_of_the_laws() -> None:
    p, q = np.array([[0.5, 0.3, 0.2], [1, 0, 0]]), np.array([[0.2, 0.2, 0.6]])
    for law in LAWS.values():
        kept = oracle.expected_accepted(law, lambda t: p[len(t)], lambda t: q[0], 1)
        assert kept == pytest.approx(np.minimum(p[0], q[0]).sum(), abs=1e-15)


@pytest.mark.parametrize("name", LAWS)
def test_masking_the_draft_never_lowers_expected_acceptance(tiny: Tiny, name: str) -> None:
    for seed in range(12):
        m = tiny("masks", 3, seed)
        masked = oracle.expected_accepted(LAWS[name], m.target, m.draft, 3)
        free = oracle.expected_accepted(LAWS[name], m.target, partial(m.raw, what="draft"), 3)
        assert masked >= free - 1e-12


@pytest.mark.parametrize("name", LAWS)
def test_an_unmasked_draft_is_lossless_if_illegal_tokens_count_as_rejected(
    tiny: Tiny, name: str
) -> None:
    m = tiny("masks", 3, 2)
    exact = oracle.output_law(LAWS[name], m.target, lambda t: m.raw(t, "draft"), 3, 4)
    assert oracle.distance(exact, oracle.plain_law(m.target, 4)) <= 1e-12


def test_greedy_law_is_the_law_of_the_argmax(tiny: Tiny) -> None:
    m = tiny("random", 3, 1)

    def best(text: tuple[int, ...]) -> np.ndarray:
        return oracle.one_hot(int(np.argmax(m.target(text))), 3)

    plain = oracle.plain_law(best, 4)
    assert oracle.output_law(oracle.greedy_law, best, m.draft, 3, 4) == pytest.approx(plain)
    assert len(plain) == 1
    for law in LAWS.values():  # at temperature 0 both samplers are greedy matching
        assert oracle.distance(oracle.output_law(law, best, m.draft, 3, 4), plain) <= 1e-12
    drafted = oracle.expected_accepted(oracle.block_law, best, m.draft, 3)
    matched = oracle.expected_accepted(oracle.greedy_law, best, m.draft, 3)
    assert drafted == pytest.approx(matched, abs=1e-12)


def test_decisions_follow_their_laws(tiny: Tiny) -> None:
    """Each verify function over a grid of uniforms reproduces its own exact law."""
    m = tiny("zeros", 2, 4)
    cells = 40
    grid = (np.arange(cells) + 0.5) / cells
    pairs = [(oracle.token_verify, oracle.token_law), (oracle.block_verify, oracle.block_law)]
    for tokens, _, q in oracle.all_drafts(m.draft, 2):
        p = np.stack([m.target(tokens[:i]) for i in range(3)])
        for verify, law in pairs:
            counts = np.zeros((3, 2))
            for u in np.stack(np.meshgrid(grid, grid, grid), axis=-1).reshape(-1, 3)[::11]:
                decision = verify(p, q, tokens, u)
                counts[decision.accepted, decision.token] += 1
            exact = law(p, q, tokens)
            assert np.abs(counts / counts.sum() - exact.exit[:, None] * exact.emit).max() < 0.03


def test_an_end_token_inside_the_draft_ends_the_text() -> None:
    p, q = np.full((4, 3), 1 / 3), np.full((3, 3), 1 / 3)
    for verify in (oracle.token_verify, oracle.block_verify):
        assert verify(p, q, [1, 0, 2], [0.0] * 4, ends=[0]) == oracle.Decision(2, -1)
    hot = np.eye(3)[[1, 0, 2, 2]]
    assert oracle.greedy_verify(hot, [1, 0, 2], ends=[0]) == oracle.Decision(2, -1)


def test_conventions_at_zero_over_zero() -> None:
    p, q = np.array([[0.5, 0.5, 0.0], [0.2, 0.3, 0.5]]), np.array([[1.0, 0.0, 0.0]])
    assert oracle.path_weights(p, q, [2]).tolist() == [1.0, 0.0]  # 0/0: never kept
    assert oracle.path_weights(p, q, [1]).tolist() == [1.0, 1.0]  # only q = 0: infinite
    for verify in (oracle.token_verify, oracle.block_verify):
        assert verify(p, q, [2], [0.0, 0.0]) == oracle.Decision(0, 1)
    three = np.array([[1.0, 0.0]] * 3)
    # r = 1 - w = 0: h = 1, and a forced token passes for every uniform.
    assert oracle.block_pass_probabilities(three, three[:2], [0, 0]).tolist() == [1.0, 1.0]
    top = 1.0 - 2.0**-53
    assert oracle.block_verify(three, three[:2], [0, 0], [top] * 3) == oracle.Decision(2, 0)


def test_an_exit_without_residual_mass_is_an_error() -> None:
    """Rows that do not sum to one break the premise; nothing is drawn in silence."""
    p, q = np.array([[0.25, 0.25], [0.5, 0.5]]), np.array([[0.5, 0.5]])
    with pytest.raises(ModelError, match="no residual mass"):
        oracle.token_law(p, q, [0])
    with pytest.raises(ModelError, match="has no mass"):
        oracle.token_verify(p, q, [0], [0.9, 0.5])
