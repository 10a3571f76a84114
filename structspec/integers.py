"""Whether an argument is a whole number. Python calls True and False ints; no caller means them.

>>> from structspec.integers import is_int
>>> is_int(3, 1), is_int(0, 1), is_int(True), is_int(3.0)
(True, False, False, False)
"""

from __future__ import annotations

from typing import Any, TypeGuard

__all__ = ["is_int"]


def is_int(value: Any, least: int | None = None) -> TypeGuard[int]:
    """Whether `value` is an int, and at least `least` if that is given; a bool is none."""
    if isinstance(value, bool) or not isinstance(value, int):
        return False
    return least is None or value >= least
