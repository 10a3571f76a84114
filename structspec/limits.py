"""Budgets for compiling and running.

>>> from structspec import Limits
>>> Limits(time=1.0).states
400000
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from structspec.errors import BudgetExceeded


@dataclass(frozen=True, slots=True)
class Limits:
    """What one compile and one cache may use; passing a limit raises `BudgetExceeded`.

    time: seconds of processor time for compiling (front end and automaton together), so that the
        same schemas pass on a busy machine.
    states: states of the compiled network.
    memory: bytes of one run-time cache (configurations, transitions and mask rows).
    """

    time: float = 10.0
    states: int = 400_000
    memory: int = 1 << 30


class Stopwatch:
    """Checks the `time` and `states` of a `Limits` from inside long loops of one thread."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._start = time.thread_time()

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """Do not count what happens inside."""
        start = time.thread_time()
        try:
            yield
        finally:
            self._start += time.thread_time() - start

    def check(self, states: int = 0) -> None:
        """Raise `BudgetExceeded` if the time is up or `states` is above the limit."""
        if states > self._limits.states:
            raise BudgetExceeded("states", self._limits.states, states, adjustable=True)
        spent = time.thread_time() - self._start
        if spent > self._limits.time:
            raise BudgetExceeded("time", self._limits.time, adjustable=True)
