"""Draws down a tree of ids: the row's law, no id without mass, hardly a change by rounding."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

from structspec.verification.draws import NO_MASS, draw_levels, draw_rows  # noqa: E402
from structspec.verification.randomness import Purpose, Randomness  # noqa: E402
from structspec.verification.rows import sample_rows  # noqa: E402


def uniforms(count: int, vocab: int, seed: int = 3) -> np.ndarray:
    return Randomness(seed).uniforms_batch(
        0, np.arange(count), Purpose.PLAIN, count=draw_levels(vocab)
    )


def law_of(row: np.ndarray) -> np.ndarray:
    """The law of `draw_rows` on a row, by cutting each uniform's range at its threshold."""
    vocab = len(row)
    levels = draw_levels(vocab)
    law = np.zeros(vocab)

    def walk(chosen: list[float], mass: float, low: int, high: int) -> None:
        if high - low == 1:
            drawn = draw_rows(torch.from_numpy(row[None]), np.array([chosen]))
            assert drawn[0] == low
            law[low] += mass
            return
        middle = (low + high) // 2
        left, right = row[low:middle].sum(), row[middle:high].sum()
        for side, bounds, u in ((left, (low, middle), 0.0), (right, (middle, high), 1 - 2**-53)):
            if side > 0:
                walk([*chosen, u], mass * side / (left + right), *bounds)

    padded = 64 << (levels - 6)
    row = np.concatenate([row, np.zeros(padded - vocab)])
    law = np.zeros(padded)
    walk([], 1.0, 0, padded)
    return law[:vocab]


@pytest.mark.parametrize("vocab", [1, 2, 63, 64, 65, 130, 300])
def test_the_extreme_uniforms_reach_every_id_with_mass_and_no_other(vocab: int) -> None:
    rng = np.random.default_rng(vocab)
    row = rng.dirichlet(np.full(vocab, 0.2)) * (rng.random(vocab) < 0.6)
    row[rng.integers(vocab)] += 0.1
    assert np.abs(law_of(row) - row / row.sum()).max() < 1e-14


@pytest.mark.parametrize("vocab", [5, 100, 1000])
def test_many_draws_have_the_rows_frequencies(vocab: int) -> None:
    rng = np.random.default_rng(1)
    row = rng.dirichlet(np.full(vocab, 0.5))
    size = 60_000
    rows = torch.from_numpy(row).expand(size, -1)
    drawn = draw_rows(rows, uniforms(size, vocab))
    expected = row * size
    common = expected > 8
    found = np.bincount(drawn, minlength=vocab)
    value = ((found - expected)[common] ** 2 / expected[common]).sum()
    freedom = int(common.sum())
    assert value < freedom + 5 * np.sqrt(2 * freedom)


@given(st.data())
def test_no_id_without_mass_is_drawn(data: st.DataObject) -> None:
    vocab = data.draw(st.integers(1, 200))
    masses = data.draw(
        st.lists(
            st.sampled_from([0.0, 0.0, 1e-300, 1e-9, 0.5, 3.0]), min_size=vocab, max_size=vocab
        )
    )
    rows = torch.tensor([masses], dtype=torch.float64)
    level = st.sampled_from([0.0, 0.5, 1 - 2**-53])
    u = data.draw(st.lists(level, min_size=draw_levels(vocab), max_size=draw_levels(vocab)))
    (drawn,) = draw_rows(rows, np.array([u])).tolist()
    assert (drawn == NO_MASS) == (not any(masses))
    assert drawn == NO_MASS or masses[drawn] > 0


def test_rows_without_finite_mass_are_told() -> None:
    rows = torch.tensor([[0.0, 0.0], [torch.nan, 1.0], [torch.inf, 1.0], [0.0, 1.0]])
    assert draw_rows(rows, uniforms(4, 2)).tolist() == [NO_MASS] * 3 + [1]


def test_a_draw_does_not_depend_on_the_others() -> None:
    rng = np.random.default_rng(0)
    rows = torch.from_numpy(rng.dirichlet(np.full(700, 0.1), size=9))
    u = uniforms(9, 700)
    together = draw_rows(rows, u).tolist()
    alone = [int(draw_rows(rows[i : i + 1], u[i : i + 1])[0]) for i in range(9)]
    assert together == alone


def test_errors_of_rounding_change_far_fewer_draws_than_by_inversion() -> None:
    """A row as of a language model: few likely ids, thousands of unlikely ones."""
    rng = np.random.default_rng(5)
    vocab, size = 30_000, 1500
    logits = rng.normal(0, 3, vocab)
    row = np.exp(logits - logits.max())
    changed = row * np.exp(rng.normal(0, 1e-5, vocab))
    rows, others = (torch.from_numpy(r).expand(size, -1) for r in (row, changed))
    u = uniforms(size, vocab)
    by_tree = (draw_rows(rows, u) != draw_rows(others, u)).sum()
    first = torch.from_numpy(u[:, 0])
    by_inversion = int((sample_rows(rows, first) != sample_rows(others, first)).sum())
    assert by_tree <= 1
    assert by_inversion > 10 * max(1, by_tree)
