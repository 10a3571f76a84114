"""Outcomes of judging texts, and what a run holds.

=============  ====================================================================
right          the engine's answer is the suite's
declined       a legal other spelling that the suite lets an engine leave out
refused        the engine said, typed, that it cannot do this schema (or this text)
timeout        no answer within the schema's time
unreadable     the file of the schema or of an instance is not JSON; no engine saw it
crash          the process died, or something other than a refusal was raised
false reject   a valid text was called invalid
false accept   an invalid text was called valid: the worst outcome
=============  ====================================================================

The order is that of `Outcome.rank`; a baseline calls a move down this table a regression.

Example::

    >>> from structspec.suites.outcome import Outcome, grade
    >>> from structspec.suites.case import Test
    >>> grade(Test("t", "1", valid=False), accepted=True)
    <Outcome.FALSE_ACCEPT: 'false accept'>
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from structspec.suites.case import Suite, Test

__all__ = ["GroupResult", "Outcome", "Refusal", "Run", "TestResult", "grade"]


class Outcome(StrEnum):
    """See the module; members stand from best to worst."""

    RIGHT = "right"
    DECLINED = "declined"
    REFUSED = "refused"
    TIMEOUT = "timeout"
    UNREADABLE = "unreadable"
    CRASH = "crash"
    FALSE_REJECT = "false reject"
    FALSE_ACCEPT = "false accept"

    @property
    def rank(self) -> int:
        """0 for the best outcome, higher is worse."""
        return list(Outcome).index(self)

    @property
    def bad(self) -> bool:
        """Whether it is neither an answer that the suite allows nor an honest refusal."""
        return self.rank > Outcome.REFUSED.rank


def grade(test: Test, accepted: bool) -> Outcome:
    """The outcome of an answer."""
    if accepted == test.valid:
        return Outcome.RIGHT
    if accepted:
        return Outcome.FALSE_ACCEPT
    return Outcome.DECLINED if test.optional else Outcome.FALSE_REJECT


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why an engine refused: the error's class, the keyword, the pointer and the reason.

    `keyword` is what refusals are counted by; engines that name none leave a short label.
    """

    kind: str
    keyword: str
    pointer: str
    reason: str


@dataclass(frozen=True, slots=True)
class TestResult:
    """One test's outcome; `detail` says more about crashes, timeouts and refusals."""

    __test__ = False  # not a class of tests for pytest

    id: str
    outcome: Outcome
    detail: str = ""


@dataclass(frozen=True, slots=True)
class GroupResult:
    """One schema's outcomes; `compile_seconds` is None if it did not compile.

    `failure`: the outcome of the schema itself if it did not compile (refused, crash, timeout).
    """

    id: str
    topic: str
    tests: tuple[TestResult, ...]
    compile_seconds: float | None = None
    refusal: Refusal | None = None
    failure: Outcome | None = None
    detail: str = ""
    may_refuse: bool = True

    @property
    def forbidden_refusal(self) -> bool:
        """Whether it was refused although the suite demands that it compiles."""
        return self.failure is Outcome.REFUSED and not self.may_refuse


@dataclass(frozen=True)
class Run:
    """One engine over one suite."""

    suite: Suite
    engine: str
    version: str
    options: Mapping[str, Any]
    groups: tuple[GroupResult, ...]
    seconds: float = 0.0
    notes: tuple[str, ...] = ()

    def __iter__(self) -> Iterator[TestResult]:
        for group in self.groups:
            yield from group.tests

    def counts(self) -> Counter[Outcome]:
        """Tests per outcome."""
        return Counter(result.outcome for result in self)

    def by_topic(self) -> dict[str, Counter[Outcome]]:
        """Tests per outcome for each topic, in the suite's order."""
        table: dict[str, Counter[Outcome]] = {}
        for group in self.groups:
            table.setdefault(group.topic, Counter()).update(t.outcome for t in group.tests)
        return table

    def refusals(self) -> dict[str, tuple[int, int]]:
        """For each keyword the schemas and the tests that were refused for it, most first."""
        schemas: Counter[str] = Counter()
        tests: Counter[str] = Counter()
        for group in self.groups:
            if group.failure is Outcome.REFUSED and group.refusal is not None:
                schemas[group.refusal.keyword] += 1
                tests[group.refusal.keyword] += len(group.tests)
        order = sorted(schemas, key=lambda keyword: (-schemas[keyword], keyword))
        return {keyword: (schemas[keyword], tests[keyword]) for keyword in order}

    def entries(self) -> Iterator[TestResult]:
        """All tests; a schema without tests stands for itself, right if it compiled."""
        for group in self.groups:
            if group.tests:
                yield from group.tests
            else:
                yield TestResult(group.id, group.failure or Outcome.RIGHT, group.detail)

    def bad(self) -> Iterator[TestResult]:
        """The entries that were wrong, crashed, timed out or could not be read."""
        return (result for result in self.entries() if result.outcome.bad)
