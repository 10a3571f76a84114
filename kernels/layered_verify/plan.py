"""Where the knots of a node go: chords of M(z) = Σ min(p, z q) in float64, and the verdict.

M is concave with M(0) = 0, M <= min(z, 1). From its values at `GRID`, `below` and `above` bound it
everywhere, and `solve` looks for two knots whose tents cover the target: a damped iteration in
units of g/W, then a bisection that scales both until the conditions of the package docstring hold
for the bounds, hence for the truth. Scaling ends at κ2 = m, where they always hold.

    >>> import numpy as np
    >>> p = q = np.array([0.5, 0.5])
    >>> table = np.minimum(p, GRID[:, None] * q).sum(1)
    >>> z1, z2, taken = solve(table, drafts=1, scale=1.0, rounds=2)
    >>> bool(z1 == z2 == 1.0), round(taken, 4)
    (True, 1.0)
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from structspec.kernels.verdict import Verdict

__all__ = ["BISECTIONS", "DAMPED", "GRID", "SLACK", "TINY", "LayeredVerdict", "above", "below",
           "slope", "solve"]  # fmt: skip

#: Thirty-two places, two per octave around 1.
GRID: NDArray[np.float64] = 2.0 ** ((np.arange(32) - 16) / 2)
#: Relative room for float32 sums in the bounds.
SLACK = 1e-5
#: Nodes lighter than this are exit-only, and so is the rest of a depth when g falls below it.
TINY = 1e-9
DAMPED, BISECTIONS = 12, 12


@dataclass(frozen=True)
class LayeredVerdict(Verdict):
    """A `Verdict` and the plan behind it, by which tests recompute it.

    knots: [B, K, L, 2], z1 and z2 of the node before place i of the path that owns it (the first
    through it that goes on), 0 where nothing was tried. turns: int32 [B, K, L], when the node was
    served at its depth, -1 if never.
    """

    knots: Tensor
    turns: Tensor


def slope(a: float, b: float, m: int) -> float:
    """(a^m - b^m) / (a - b) without cancellation: Σ a^(m-1-i) b^i."""
    total, power = 1.0, 1.0
    for _ in range(m - 1):
        power *= b
        total = total * a + power
    return total


def below(table: NDArray[np.float64], z: float) -> float:
    """A lower bound of M(z): the chord, or the ray from the origin, or the last value."""
    if z <= GRID[0]:
        value = table[0] * z / GRID[0]
    elif z >= GRID[-1]:
        value = table[-1]
    else:
        j = _cell(z)
        part = (z - GRID[j]) / (GRID[j + 1] - GRID[j])
        value = table[j] + part * (table[j + 1] - table[j])
    return float(value * (1.0 - SLACK))


def above(table: NDArray[np.float64], z: float) -> float:
    """An upper bound of M(z): the neighbours' chords extended, z and 1."""
    j = _cell(z)
    value = min(z, 1.0)
    if j >= 1:
        left = (table[j] - table[j - 1]) / (GRID[j] - GRID[j - 1])
        value = min(value, table[j] + left * (z - GRID[j])) if z >= GRID[j] else value
    if j + 2 < len(GRID):
        right = (table[j + 2] - table[j + 1]) / (GRID[j + 2] - GRID[j + 1])
        value = min(value, table[j + 1] - right * (GRID[j + 1] - z))
    return float(value * (1.0 + SLACK))


def _cell(z: float) -> int:
    return int(np.clip(np.floor(2 * np.log2(max(z, 1e-30)) + 16), 0, len(GRID) - 2))


def solve(
    table: NDArray[np.float64], drafts: int, scale: float, rounds: int
) -> tuple[float, float, float]:
    """Knots z1 >= z2 (equal: one round) and the nominal b2 of a node with m drafts.

    table: M at `GRID`. scale: the nominal g / W.
    """
    m = drafts
    if m == 1:
        return scale, scale, min(below(table, scale) / scale, 1.0)
    if rounds == 1:
        low, high = 1.0, float(m)
        for _ in range(BISECTIONS):
            middle = 0.5 * (low + high)
            z = middle * scale
            fits = middle >= slope(1.0, 1.0 - min(below(table, z) / z, 1.0), m)
            low, high = (low, middle) if fits else (middle, high)
        z = high * scale
        return z, z, min(below(table, z) / z, 1.0)
    k1, k2 = 1.0 + 0.7 * (m - 1), 0.5
    for _ in range(DAMPED):
        b1, b2 = _taken(table, k1 * scale, k2 * scale)
        k1 = 0.5 * (k1 + slope(1.0, 1.0 - b1, m))
        k2 = max(min(0.5 * (k2 + slope(1.0 - b1, 1.0 - b2, m)), 0.98 * k1), 1e-3)
    low, high = np.log(0.9), np.log(m / k2)
    for _ in range(BISECTIONS):
        middle = 0.5 * (low + high)
        factor = np.exp(middle)
        b1, b2 = _taken(table, factor * k1 * scale, factor * k2 * scale)
        fits = factor * k1 >= slope(1.0, 1.0 - b1, m)
        fits &= factor * k2 >= slope(1.0 - b1, 1.0 - b2, m)
        low, high = (low, middle) if fits else (middle, high)
    factor = np.exp(high)
    z1, z2 = factor * k1 * scale, factor * k2 * scale
    return float(z1), float(z2), _taken(table, z1, z2)[1]


def _taken(table: NDArray[np.float64], z1: float, z2: float) -> tuple[float, float]:
    """Lower bounds of b1 and b2, 0 <= b1 <= b2 <= 1."""
    b1 = min(max((below(table, z1) - above(table, z2)) / (z1 - z2), 0.0), 1.0)
    return b1, min(max(below(table, z2) / z2, b1), 1.0)
