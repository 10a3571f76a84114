"""Counter-based uniforms: published vectors, independence of the batch, and the two samplers."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from structspec.errors import ModelError
from structspec.verification import randomness
from structspec.verification.randomness import Purpose, Randomness
from structspec.verification.rows import sample_rows


@pytest.mark.parametrize(
    ("counter", "key", "expected"),
    [
        ("00000000 00000000 00000000 00000000", "00000000 00000000", "6627e8d5 e169c58d bc57ac4c"),
        ("ffffffff ffffffff ffffffff ffffffff", "ffffffff ffffffff", "408f276d 41c83b0e a20bc7c6"),
        ("243f6a88 85a308d3 13198a2e 03707344", "a4093822 299f31d0", "d16cfe09 94fdcceb 5001e420"),
    ],
)
def test_philox_gives_the_published_words(counter: str, key: str, expected: str) -> None:
    def words(text: str) -> np.ndarray:
        return np.array([int(w, 16) for w in text.split()], dtype=np.uint64)

    got = randomness.philox4x32(words(counter), words(key))
    assert got[:3].tolist() == words(expected).tolist()


def test_a_draw_depends_on_its_name_alone() -> None:
    noise = Randomness(99)
    batch = noise.uniforms_batch([4, 0, 7], [2, 9, 2], Purpose.DRAFT, [0, 1, 2], count=5)
    for i, (request, step, row) in enumerate([(4, 2, 0), (0, 9, 1), (7, 2, 2)]):
        for count in (1, 2, 5):
            alone = noise.uniforms(request, step, Purpose.DRAFT, row, count)
            assert alone.tolist() == batch[i, :count].tolist()


def test_padding_a_batch_changes_no_test_and_no_emitted_token() -> None:
    noise = Randomness(1)
    wide = noise.for_verification([3, 8], [0, 5], 7)
    for length in range(7):
        narrow = noise.for_verification([3, 8], [0, 5], length)
        assert narrow.shape == (2, length + 1)
        assert (narrow[:, :length] == wide[:, :length]).all()
        assert (narrow[:, -1] == wide[:, -1]).all()
    assert (wide[1, :7] == noise.uniforms(8, 5, Purpose.ACCEPT, count=7)).all()
    assert wide[1, 7] == noise.uniforms(8, 5, Purpose.EMIT)[0]


def test_every_part_of_the_name_matters() -> None:
    base = {"request": 1, "step": 2, "purpose": Purpose.ACCEPT, "row": 3}
    draws = [Randomness(0).uniforms(**base)[0], Randomness(2**40).uniforms(**base)[0]]
    for change in ({"request": 2}, {"step": 3}, {"purpose": Purpose.EMIT}, {"row": 4}):
        draws.append(Randomness(0).uniforms(**{**base, **change})[0])
    assert len(set(draws)) == len(draws)


def test_uniforms_are_uniform_and_uncorrelated_between_steps() -> None:
    draws = Randomness(5).uniforms_batch(0, np.arange(2000), Purpose.ACCEPT, count=8)
    assert draws.min() >= 0.0
    assert draws.max() < 1.0
    counts = np.histogram(draws, 16, (0, 1))[0]
    assert ((counts - 1000) ** 2 / 1000).sum() < 40  # chi-square with 15 degrees of freedom
    assert abs(np.corrcoef(draws[:-1, 0], draws[1:, 0])[0, 1]) < 0.08
    assert np.abs(np.corrcoef(draws.T) - np.eye(8)).max() < 0.1


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.sampled_from([0.0, 0.0, 1e-30, 0.1, 1.0, 3.0]), min_size=1, max_size=6).filter(any),
    st.sampled_from([0.0, 0.25, 0.5, 1.0 - 2.0**-53]) | st.floats(0, 1, exclude_max=True),
)
def test_inverse_sampling_draws_only_mass_and_equals_torch(mass: list[float], u: float) -> None:
    index = randomness.sample_inverse(mass, u)
    assert mass[index] > 0.0
    below, total = sum(mass[:index]), sum(mass)
    assert below <= u * total * (1 + 1e-12) <= (below + mass[index]) * (1 + 1e-9)
    rows = torch.tensor([mass], dtype=torch.float64)
    assert int(sample_rows(rows, torch.tensor([u], dtype=torch.float64))[0]) == index


def test_gumbel_sampling_has_the_law_of_the_row() -> None:
    mass = np.array([0.5, 0.0, 1.5, 2.0])
    noise = Randomness(3).uniforms_batch(0, np.arange(4000), Purpose.EMIT, count=4)
    drawn = np.bincount([randomness.sample_gumbel(mass, u) for u in noise], minlength=4) / 4000
    assert np.abs(drawn - mass / mass.sum()).max() < 0.03
    assert drawn[1] == 0.0
    assert np.isfinite(randomness.gumbel([0.0, 1.0 - 2.0**-53])).all()


def test_rows_without_mass_cannot_be_sampled() -> None:
    for mass in ([0.0, 0.0], [np.nan, 1.0], []):
        with pytest.raises(ModelError):
            randomness.sample_inverse(mass, 0.5)
        with pytest.raises(ModelError):
            randomness.sample_gumbel(mass, np.full(len(mass), 0.5))


def test_names_out_of_range_are_refused() -> None:
    with pytest.raises(ValueError, match="seed=-1 is out of range"):
        Randomness(-1)
    with pytest.raises(ValueError, match="step must be"):
        Randomness(0).uniforms(0, -1, Purpose.DRAFT)
    with pytest.raises(ValueError, match="row must be"):
        Randomness(0).uniforms(0, 0, Purpose.DRAFT, row=2**24)


def test_the_oracle_and_the_randomness_import_without_torch() -> None:
    code = (
        "import sys, structspec.verification.oracle, structspec.verification.randomness;"
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_draws_of_positions_are_the_same_in_every_step() -> None:
    noise = Randomness(11)
    whole = noise.for_positions(request=3, first=0, count=9, levels=7)
    assert (noise.for_positions(3, 4, 5, levels=7) == whole[4:]).all()
    assert (noise.for_positions(3, 0, 9, levels=2) == whole[:, :2]).all()
    assert len(set(whole.ravel().tolist())) == 63
    # and no test's or token's of a step
    steps = noise.for_verification([3] * 9, list(range(9)), 4)
    assert not set(whole.ravel().tolist()) & set(steps.ravel().tolist())
    assert noise.for_positions(4, 0, 1)[0, 0] != whole[0, 0]
