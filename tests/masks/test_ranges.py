"""Ranges of positions, marked and found again, against sets."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from structspec.masks.ranges import all_marked, mark

SIZE = 200
RANGE = st.tuples(st.integers(0, SIZE - 1), st.integers(1, SIZE)).map(
    lambda pair: (pair[0], min(SIZE, sum(pair)))
)


@numba.njit
def marked(marks: Any, low: int, high: int) -> None:
    mark(marks, low, high)


@numba.njit
def is_marked(marks: Any, low: int, high: int) -> bool:
    return all_marked(marks, low, high)


@given(st.lists(RANGE, max_size=5), st.lists(RANGE, min_size=1, max_size=20))
@settings(max_examples=200, deadline=None)
def test_a_range_is_marked_if_all_of_it_is(
    ranges: list[tuple[int, int]], asked: list[tuple[int, int]]
) -> None:
    marks, held = np.zeros(-(-SIZE // 32), np.uint32), set()
    for low, high in ranges:
        marked(marks, low, high)
        held |= set(range(low, high))
        assert is_marked(marks, low, high)
    bits = np.unpackbits(marks.view(np.uint8), bitorder="little")
    assert set(np.flatnonzero(bits).tolist()) == held
    for low, high in asked:
        assert is_marked(marks, low, high) == held.issuperset(range(low, high))
