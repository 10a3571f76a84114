"""Device code of the plan: `plan.solve` and its bounds in float32 scalars, one node at a time.

M at the 32 places of the grid is a vector in registers; a value of it is a sum over its lanes.
"""

# Device code is untyped: its arguments are pointers and tensors of Triton.
# mypy: allow-untyped-defs, allow-incomplete-defs

from __future__ import annotations

import triton
import triton.language as tl

from structspec.kernels.layered_verify.plan import BISECTIONS, DAMPED, SLACK

__all__ = ["power", "solve"]

_J = tl.constexpr(32)
_LOW, _HIGH = tl.constexpr(1.0 - SLACK), tl.constexpr(1.0 + SLACK)
_DAMPED, _BISECTIONS = tl.constexpr(DAMPED), tl.constexpr(BISECTIONS)


@triton.jit
def _slope(a, b, m):
    """(a^m - b^m) / (a - b) = Σ a^(m-1-i) b^i; scalars."""
    total = a * 0.0 + 1.0
    power = b * 0.0 + 1.0
    for _ in range(1, m):
        power = power * b
        total = total * a + power
    return total


@triton.jit
def power(x, m):
    """x^m."""
    out = x * 0.0 + 1.0
    for _ in range(m):
        out = out * x
    return out


@triton.jit
def _at(table, j):
    return tl.sum(tl.where(tl.arange(0, 32) == j, table, 0.0), axis=0)


@triton.jit
def _place(j):
    return tl.exp2((j.to(tl.float32) - 16.0) * 0.5)


@triton.jit
def _cell(z):
    j = tl.floor(2.0 * tl.log2(tl.maximum(z, 1.0e-30)) + 16.0).to(tl.int32)
    return tl.minimum(tl.maximum(j, 0), _J - 2)


@triton.jit
def _below(table, z):
    """`plan.below`."""
    j = _cell(z)
    near, far = _place(j), _place(j + 1)
    low, high = _at(table, j), _at(table, j + 1)
    value = low + (z - near) / (far - near) * (high - low)
    value = tl.where((j == 0) & (z <= near), low * z / near, value)
    value = tl.where((j == _J - 2) & (z >= far), high, value)
    return value * _LOW


@triton.jit
def _above(table, z):
    """`plan.above`."""
    j = _cell(z)
    here, following = _at(table, j), _at(table, j + 1)
    value = tl.minimum(z, 1.0)
    left = (here - _at(table, j - 1)) / (_place(j) - _place(j - 1))
    reach = here + left * (z - _place(j))
    value = tl.where((j >= 1) & (z >= _place(j)), tl.minimum(value, reach), value)
    right = (_at(table, j + 2) - following) / (_place(j + 2) - _place(j + 1))
    reach = following - right * (_place(j + 1) - z)
    value = tl.where(j + 2 < _J, tl.minimum(value, reach), value)
    return value * _HIGH


@triton.jit
def _taken(table, z1, z2):
    b1 = (_below(table, z1) - _above(table, z2)) / (z1 - z2)
    b1 = tl.minimum(tl.maximum(b1, 0.0), 1.0)
    return b1, tl.minimum(tl.maximum(_below(table, z2) / z2, b1), 1.0)


@triton.jit
def solve(table, m, scale, ROUNDS: tl.constexpr):
    """`plan.solve`: knots and the nominal b2."""
    z1 = scale
    z2 = scale
    taken = tl.minimum(_below(table, scale) / scale, 1.0)
    if m > 1:
        many = m.to(tl.float32)
        if ROUNDS == 1:
            low = scale * 0.0 + 1.0
            high = many
            for _ in range(_BISECTIONS):
                middle = 0.5 * (low + high)
                z = middle * scale
                b = tl.minimum(_below(table, z) / z, 1.0)
                fits = middle >= _slope(scale * 0.0 + 1.0, 1.0 - b, m)
                low, high = tl.where(fits, low, middle), tl.where(fits, middle, high)
            z1 = high * scale
            z2 = z1
            taken = tl.minimum(_below(table, z1) / z1, 1.0)
        else:
            one = scale * 0.0 + 1.0
            k1 = 1.0 + 0.7 * (many - 1.0)
            k2 = one * 0.5
            for _ in range(_DAMPED):
                b1, b2 = _taken(table, k1 * scale, k2 * scale)
                k1 = 0.5 * (k1 + _slope(one, 1.0 - b1, m))
                k2 = 0.5 * (k2 + _slope(1.0 - b1, 1.0 - b2, m))
                k2 = tl.maximum(tl.minimum(k2, 0.98 * k1), 1.0e-3)
            low = one * -0.105360516
            high = tl.log(many / k2)
            for _ in range(_BISECTIONS):
                middle = 0.5 * (low + high)
                factor = tl.exp(middle)
                b1, b2 = _taken(table, factor * k1 * scale, factor * k2 * scale)
                fits = factor * k1 >= _slope(one, 1.0 - b1, m)
                fits = fits & (factor * k2 >= _slope(1.0 - b1, 1.0 - b2, m))
                low, high = tl.where(fits, low, middle), tl.where(fits, middle, high)
            factor = tl.exp(high)
            z1 = factor * k1 * scale
            z2 = factor * k2 * scale
            b1, taken = _taken(table, z1, z2)
    return z1, z2, taken
