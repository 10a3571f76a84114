"""The benchmark of batches runs plans both ways, to the same drafts."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any

import pytest

pytest.importorskip("torch")

from structspec.bench.batches import Clock
from structspec.drafting import Draft
from structspec.drafting.together import Ask


class Engine:
    def __init__(self) -> None:
        self.sizes: list[int] = []

    def run(self, asks: Sequence[int]) -> list[int]:
        self.sizes.append(len(asks))
        return [ask + 1 for ask in asks]


def plan(engine: Engine, depth: int) -> Generator[Ask, Any, list[Draft]]:
    token = 0
    for _ in range(depth):
        token = yield Ask(engine, token)
    return [Draft((token,))]


def test_together_and_apart_differ_in_calls_only() -> None:
    found, sizes = [], []
    for together in (True, False):
        engine, clock = Engine(), Clock(together)
        outcomes, seconds = clock([plan(engine, depth) for depth in (2, 1, 3)])
        found.append(outcomes)
        sizes.append(engine.sizes)
        assert len(seconds) == 3 and clock.seconds >= 0
    assert found[0] == found[1] == [[Draft((2,))], [Draft((1,))], [Draft((3,))]]
    assert sizes == [[3, 2, 1], [1] * 6]
