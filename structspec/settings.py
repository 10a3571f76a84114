"""What holds for the whole process: threads that fill rows, processes that compile kernels.

>>> from structspec import settings
>>> settings.threads() >= 1
True
"""

from __future__ import annotations

import os

from structspec.integers import is_int

__all__ = [
    "PROCESSES_VARIABLE",
    "THREADS_VARIABLE",
    "compile_processes",
    "cores",
    "set_compile_processes",
    "set_threads",
    "threads",
]

THREADS_VARIABLE = "STRUCTSPEC_THREADS"
PROCESSES_VARIABLE = "STRUCTSPEC_COMPILE_PROCESSES"
# More would wait for the longest kernel.
_MOST_PROCESSES = 8
_set: dict[str, int] = {}


def cores() -> int:
    """The cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def set_threads(count: int) -> None:
    """How many threads fill the rows of one call (`Constraint.fill`), 1 unless set.

    The environment variable `STRUCTSPEC_THREADS` does the same. Rows are the same for any number.
    Raises ValueError below 1.
    """
    _set["threads"] = _at_least_one("threads", count)


def threads() -> int:
    """How many threads fill the rows of one call."""
    return _set.get("threads") or _variable(THREADS_VARIABLE) or 1


def set_compile_processes(count: int) -> None:
    """How many processes may compile kernels that are missing on disk; 1: only this one.

    The environment variable `STRUCTSPEC_COMPILE_PROCESSES` does the same; otherwise as many as
    there are cores, at most 8. Raises ValueError below 1.
    """
    _set["processes"] = _at_least_one("processes", count)


def compile_processes() -> int:
    """How many processes may compile kernels."""
    chosen = _set.get("processes") or _variable(PROCESSES_VARIABLE)
    return chosen or min(cores(), _MOST_PROCESSES)


def _at_least_one(what: str, count: int) -> int:
    if not is_int(count):
        raise TypeError(f"{what} is {count!r}; give a number of 1 or more")
    if count < 1:
        raise ValueError(f"{what} is {count}; give a number of 1 or more")
    return int(count)


def _variable(name: str) -> int:
    """The number in an environment variable, 1 for 0, and 0 if it holds none."""
    text = os.environ.get(name, "").strip()
    return max(1, int(text)) if text.isdecimal() else 0
