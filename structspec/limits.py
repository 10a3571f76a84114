"""Budgets for compiling and running.

>>> from structspec import Limits
>>> Limits(time=1.0).states
400000
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass

from structspec.errors import BudgetExceeded
from structspec.integers import is_int


@dataclass(frozen=True, slots=True)
class Limits:
    """What one compile and one cache may use; passing a limit raises `BudgetExceeded`.

    time: seconds of processor time for compiling (front end and automaton together), so that the
        same schemas pass on a busy machine; and for one call of a constraint, which is asked now
        and then and may take up to twice as long. What such a call found out is kept: the next one
        goes on from there.
    states: states of the compiled network.
    memory: bytes of one run-time cache (configurations, transitions and mask rows).

    Raises TypeError or ValueError for what is no number above 0.
    """

    time: float = 10.0
    states: int = 400_000
    memory: int = 1 << 30

    def __post_init__(self) -> None:
        for name in ("time", "states", "memory"):
            value = getattr(self, name)
            if not is_int(value) and not (name == "time" and isinstance(value, float)):
                raise TypeError(f"Limits({name}=...) takes a number, not {value!r}")
            if not value > 0:
                raise ValueError(f"Limits({name}={value!r}) is out of range; it must be above 0")


class Countdown:
    """Whether a thread has used so many seconds of processor time, cheap to ask often.

    Asking the system for a thread's time is dear, above all in virtual machines. A thread cannot
    have used more time than has passed, so the system is asked only once an eighth of the time has
    passed, and what was used before that is not counted: the end comes never too early, and at most
    an eighth too late.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._asked_from = time.perf_counter() + seconds / 8
        self._end: float | None = None

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """Do not count what happens inside."""
        passed = time.perf_counter()
        # Nothing is counted yet where the system has not been asked.
        used = None if self._end is None else time.thread_time()
        try:
            yield
        finally:
            self._asked_from += time.perf_counter() - passed
            if self._end is not None and used is not None:
                self._end += time.thread_time() - used

    def over(self) -> bool:
        """Whether the time is up."""
        if time.perf_counter() < self._asked_from:
            return False
        used = time.thread_time()
        if self._end is None:
            self._end = used + self._seconds
        return used > self._end


class Stopwatch:
    """Checks the `time` and `states` of a `Limits` from inside long loops of one thread."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._countdown = Countdown(limits.time)

    def stopped(self) -> AbstractContextManager[None]:
        """Do not count what happens inside."""
        return self._countdown.stopped()

    def check(self, states: int = 0) -> None:
        """Raise `BudgetExceeded` if the time is up or `states` is above the limit."""
        if states > self._limits.states:
            raise BudgetExceeded("states", self._limits.states, states, adjustable=True)
        if self._countdown.over():
            raise BudgetExceeded("time", self._limits.time, adjustable=True)
