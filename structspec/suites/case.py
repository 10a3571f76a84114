"""What a suite is: groups, each one schema with the texts to judge.

Everything is text: the schema's JSON and the instances' JSON, numbers spelt as in the source. Ids
are unique within a suite and stable as long as its content (`Suite.sha256`) is.

Example::

    >>> from structspec.suites.case import Group, Suite, Test
    >>> group = Group("g", "type", '{"type": "null"}', (Test("g/0", "null", True),))
    >>> suite = Suite("demo", (group,))
    >>> suite.sample(stride=2).n_tests, len(suite.sha256)
    (1, 64)
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

__all__ = ["Group", "Suite", "Test"]


@dataclass(frozen=True, slots=True)
class Test:
    """One text and whether the schema allows it.

    `optional`: a legal spelling that an engine may decline to produce; accepting it is right.
    """

    __test__ = False  # not a class of tests for pytest

    id: str
    text: str
    valid: bool
    description: str = ""
    optional: bool = False


@dataclass(frozen=True, slots=True)
class Group:
    """A schema (JSON text), what it is about, its compile options and its tests.

    `may_refuse`: False if the suite demands that the schema compiles. `fault`: why its files cannot
    be read ("" if they can); then it is counted and never given to an engine.
    """

    id: str
    topic: str
    schema: str
    tests: tuple[Test, ...]
    options: Mapping[str, Any] = field(default_factory=dict)
    description: str = ""
    may_refuse: bool = True
    fault: str = ""


@dataclass(frozen=True)
class Suite:
    """Groups under a name, options for all of them, documents that references may name.

    Options of a group override those of the suite. `resources` maps URIs to JSON texts.
    """

    name: str
    groups: tuple[Group, ...]
    options: Mapping[str, Any] = field(default_factory=dict)
    resources: Mapping[str, str] = field(default_factory=dict)
    sha256: str = ""

    def __post_init__(self) -> None:
        if not self.sha256:
            object.__setattr__(self, "sha256", self._digest())

    @property
    def n_tests(self) -> int:
        """How many texts there are in all groups."""
        return sum(len(group.tests) for group in self.groups)

    def sample(self, stride: int = 1, limit: int | None = None) -> Suite:
        """Every `stride`-th group, at most `limit`; keeps the digest of the whole suite."""
        return replace(self, groups=self.groups[::stride][:limit])

    def _digest(self) -> str:
        digest = hashlib.sha256()

        def add(value: Any) -> None:
            text = json.dumps(value, sort_keys=True, ensure_ascii=True)
            digest.update(text.encode("ascii") + b"\n")

        for uri in sorted(self.resources):
            add([uri, self.resources[uri]])
        for group in self.groups:
            add([group.id, group.schema, dict(group.options)])
            for test in group.tests:
                add([test.id, test.text, test.valid, test.optional])
        return digest.hexdigest()
