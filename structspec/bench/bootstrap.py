"""How far a figure might be off: intervals by drawing the measured items again.

Source: B. Efron, "Bootstrap methods: another look at the jackknife", 1979.

    >>> interval([1.0, 2.0, 3.0], max)
    (1.0, 3.0)
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

__all__ = ["interval"]

_RESAMPLES = 1000


def interval(items: Sequence[Any], statistic: Callable[[Any], float]) -> tuple[float, float]:
    """A 95 % bootstrap interval of a statistic of the items; the same resamples every time."""
    if not items:
        return (0.0, 0.0)
    draw = random.Random(0)
    values = [statistic(draw.choices(items, k=len(items))) for _ in range(_RESAMPLES)]
    values = sorted(value for value in values if value == value)  # a resample may divide by zero
    if not values:
        return (0.0, 0.0)
    return values[len(values) * 25 // 1000], values[min(len(values) - 1, len(values) * 975 // 1000)]
