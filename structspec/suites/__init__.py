"""Schema test suites: loading them, running engines over them, grading, reporting, ratcheting.

``case`` holds what a suite is, ``official``, ``lines`` and ``folder`` read the formats (``loading``
chooses), ``engines`` and ``peers`` wrap the engines, ``runner`` and ``worker`` run one in processes
that survive crashes and hangs, ``outcome`` grades, ``report`` prints, ``baseline`` compares with a
committed result and ``ratchet`` keeps the pinned suites.

Invariants: an engine never sees the expected verdict; a refusal, a crash and a timeout are outcomes
of their own and never count as right; the text given to an engine spells numbers as the suite does.

Example::

    >>> from structspec.suites import Group, Suite, Test
    >>> Suite("demo", (Group("g", "type", "true", (Test("g/0", "1", True),)),)).n_tests
    1
"""

from __future__ import annotations

from structspec.suites.case import Group, Suite, Test
from structspec.suites.loading import FORMATS, load_suite
from structspec.suites.outcome import GroupResult, Outcome, Refusal, Run, TestResult
from structspec.suites.runner import run_suite

__all__ = [
    "FORMATS",
    "Group",
    "GroupResult",
    "Outcome",
    "Refusal",
    "Run",
    "Suite",
    "Test",
    "TestResult",
    "load_suite",
    "run_suite",
]
