"""Whole numbers among arguments."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from structspec.integers import is_int


@pytest.mark.parametrize("value", [True, False, 1.0, "1", None, np.int64(1), [1]])
def test_only_ints_are_ints(value: Any) -> None:
    """Above all not True and False, which Python would take for 1 and 0."""
    assert not is_int(value) and not is_int(value, 0)


def test_the_least_one_is_allowed() -> None:
    assert is_int(-3) and is_int(0, 0) and is_int(2**70, 1)
    assert not is_int(-1, 0)
