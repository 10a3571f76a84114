"""The compiled scans and rounds of a CPU against the same in torch, on rows of every kind."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from structspec.verification import levels, scans
from structspec.verification.levels_on_cpu import rounds_on_cpu


def law(rng: np.random.Generator, width: int, zeros: float) -> Tensor:
    row = rng.exponential(size=width) ** 3 * (rng.random(width) >= zeros)
    row[rng.integers(width)] += 0.1
    return torch.from_numpy(row / row.sum())


@pytest.mark.parametrize("rounds", [1, 2, 3])
@pytest.mark.parametrize("zeros", [0.0, 0.5, 0.98])
def test_rounds_are_those_of_the_torch_path(rounds: int, zeros: float) -> None:
    rng = np.random.default_rng(rounds)
    for width in (2, 7, 300):
        for m in (2, 3, 7):
            for weight, g in ((1.0, 1.0), (0.4, 0.7), (1e-6, 0.3), (0.5, 1e-9), (0.5, 0.0)):
                q = law(rng, width, zeros)
                p = q if rng.random() < 0.2 else law(rng, width, zeros)
                c = weight * p
                tokens = torch.from_numpy(rng.choice(np.flatnonzero(q.numpy()), 4))
                accept, residual, after = rounds_on_cpu(
                    c.numpy(), q.numpy(), g, m, rounds, tokens.numpy()
                )
                expected = levels.together(
                    c[None],
                    q[None],
                    torch.tensor([g], dtype=torch.float64),
                    torch.tensor([m]),
                    rounds,
                    tokens[None],
                )
                close = {"rtol": 1e-9, "atol": 1e-12}
                np.testing.assert_allclose(accept, expected.accept[0].numpy(), **close)
                np.testing.assert_allclose(residual, expected.residual[0].numpy(), **close)
                assert after == pytest.approx(float(expected.g[0]), rel=1e-9, abs=1e-12)
                assert (residual >= 0.0).all() and (residual <= c.numpy()).all()


def test_inputs_are_not_written_to() -> None:
    rng = np.random.default_rng(0)
    c, q = law(rng, 50, 0.3).numpy(), law(rng, 50, 0.3).numpy()
    before = c.copy(), q.copy()
    rounds_on_cpu(c, q, 0.9, 3, 2, np.flatnonzero(q)[:3])
    assert (c == before[0]).all() and (q == before[1]).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_scans_are_the_sums_of_their_formulas(dtype: torch.dtype) -> None:
    rng = np.random.default_rng(1)
    target = torch.stack([law(rng, 999, 0.4) for _ in range(6)]).reshape(2, 3, 999).to(dtype) * 3
    draft = torch.stack([law(rng, 999, 0.4) for _ in range(4)]).reshape(2, 2, 999).to(dtype) * 2
    draft[1, 1] = target[1, 1]  # p = q leaves nothing
    rows, places = torch.tensor([0, 0, 1, 1]), torch.tensor([0, 1, 0, 1])
    p, q = target[rows, places].double(), draft[rows, places].double()
    p_sums, q_sums = p.sum(-1), q.sum(-1)
    w = torch.tensor([1.0, 0.3, 0.9, 1.0], dtype=torch.float64)
    g = torch.tensor([1.0, 0.5, 0.0, 1.0], dtype=torch.float64)
    assert scans.fits(target, draft) and not scans.fits(target, None)
    pairs = scans.Pairs(target, draft, rows, places, p_sums, q_sums)
    p, q = p / p_sums[:, None], q / q_sums[:, None]
    above = (w[:, None] * p - q).clamp(min=0).sum(-1)
    both = torch.minimum(w[:, None] * p, g[:, None] * q).sum(-1)
    torch.testing.assert_close(scans.excess(pairs, w), above, rtol=1e-12, atol=1e-15)
    torch.testing.assert_close(scans.overlap(pairs, w, g), both, rtol=1e-12, atol=1e-15)
    assert float(scans.excess(pairs, w)[3]) == 0.0
