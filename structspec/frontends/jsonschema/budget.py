"""What one compile of a schema may cost: seconds, work, and the size of what is written.

`Work` is the meter of one compile. Everything that may run long spends units of it, one or two
microseconds each: one for a subschema, twelve for an intersection of two objects or arrays and one
more for each property that it touches. So a schema that multiplies out is refused after about as
many steps on every machine, and long before the clock; the clock (`Limits.time`) is looked at every
so many units.

The meter is a context variable, because algebra on frozen shapes has no place to keep one. Outside
a compile nothing is counted.

Example::

    >>> from structspec.frontends.jsonschema.budget import Work, spend
    >>> from structspec.limits import Limits
    >>> with Work(Limits()).running() as work:
    ...     spend(5)
    >>> work.spent
    5
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from structspec.automata.chardfa import Budget
from structspec.errors import BudgetExceeded
from structspec.limits import Limits, Stopwatch

__all__ = [
    "MOST_WORK",
    "Work",
    "automaton_budget",
    "expect",
    "meter",
    "most_states",
    "spend",
    "unmetered",
    "write",
]

#: The most units that one compile may spend.
MOST_WORK = 750_000

# How many units may pass between two looks at the clock.
_TICKS = 4096


class Work:
    """The meter of one compile."""

    def __init__(self, limits: Limits, watch: Stopwatch | None = None) -> None:
        self.limits = limits
        self.watch = watch or Stopwatch(limits)
        self.spent = 0
        self._next = _TICKS

    def spend(self, units: int = 1) -> None:
        """Count units. Raises BudgetExceeded if there have been too many or the time is up."""
        self.spent += units
        if self.spent >= self._next:
            self._next = self.spent + _TICKS
            self.watch.check()
            if self.spent > MOST_WORK:
                raise BudgetExceeded("work", MOST_WORK, self.spent)

    def expect(self, units: int) -> None:
        """Raises BudgetExceeded if so many units more would be too many; counts none."""
        if self.spent + units > MOST_WORK:
            raise BudgetExceeded("work", MOST_WORK, self.spent + units)

    @contextmanager
    def running(self) -> Iterator[Work]:
        """Make this the meter of everything inside."""
        token = _CURRENT.set(self)
        try:
            yield self
        finally:
            _CURRENT.reset(token)


_CURRENT: ContextVar[Work | None] = ContextVar("structspec.work", default=None)


@contextmanager
def unmetered() -> Iterator[None]:
    """Do not count the time of what happens inside: the compiling of kernels."""
    work = _CURRENT.get()
    if work is None:
        yield
        return
    with work.watch.stopped():
        yield


def spend(units: int = 1) -> None:
    """Count units of the compile that is running, if any."""
    work = _CURRENT.get()
    if work is not None:
        work.spend(units)


def meter() -> Callable[[int], None]:
    """`spend` for a loop in the compile that is running."""
    work = _CURRENT.get()
    return spend if work is None else work.spend


def expect(units: int) -> None:
    """Refuse at once what is certain to take so many units more."""
    work = _CURRENT.get()
    if work is not None:
        work.expect(units)


def write(states: int) -> None:
    """Refuse what is certain to take more than `states` of `Limits` when it is built."""
    work = _CURRENT.get()
    if work is not None and states > work.limits.states:
        raise BudgetExceeded("states", work.limits.states, states, adjustable=True)


def most_states() -> int:
    """The states that the network of the compile that is running may have."""
    work = _CURRENT.get()
    return Limits().states if work is None else work.limits.states


def automaton_budget(states: int) -> Budget:
    """The budget of one operation on automata over characters."""
    work = _CURRENT.get()
    seconds = Limits().time if work is None else work.limits.time
    return Budget(states=states, seconds=seconds)
