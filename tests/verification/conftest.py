"""Tiny models whose laws can be enumerated."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import pytest
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Text = tuple[int, ...]


@dataclass
class TinyModel:
    """Random rows by prefix: `target` and `draft` are what the oracle takes.

    `kind` shapes the rows: random, zeros (each its own support), singletons (many forced tokens),
    equal (p = q), onehot (deterministic draft), mixed (some places deterministic), eos (token 0
    ends), stops (the draft stops by its own prefix), masks (both rows under one mask).
    """

    kind: str
    vocab: int
    seed: int
    rows: dict[tuple[Text, str], Floats] = field(default_factory=dict)

    @property
    def ends(self) -> tuple[int, ...]:
        return (0,) if self.kind == "eos" else ()

    def rng(self, text: Text, what: str) -> np.random.Generator:
        return np.random.default_rng([self.seed, len(what), ord(what[0]), *[t + 1 for t in text]])

    def mask(self, text: Text) -> NDArray[np.bool_]:
        """The tokens that a random grammar allows behind `text`; never empty."""
        rng = self.rng(text, "mask")
        legal = rng.random(self.vocab) < 0.6
        legal[rng.integers(self.vocab)] = True
        return legal

    def raw(self, text: Text, what: str) -> Floats:
        """A positive random row before any mask."""
        row = self.rng(text, what).dirichlet(np.full(self.vocab, 0.7)) + 1e-3
        return row / row.sum()

    def target(self, text: Text) -> Floats:
        return self.cached(text, "target")

    def draft(self, text: Text) -> Floats | None:
        if self.kind == "stops" and self.rng(text, "stop").random() < 0.4:
            return None
        return self.cached(text, "draft")

    def cached(self, text: Text, what: str) -> Floats:
        key = (text, what)
        if key not in self.rows:
            self.rows[key] = self.build(text, what)
        return self.rows[key]

    def build(self, text: Text, what: str) -> Floats:
        row, coin = self.raw(text, what), self.rng(text, "coin").random()
        if self.kind == "equal":
            row = self.raw(text, "target")
        elif self.kind == "zeros":
            rng = self.rng(text, "zeros" + what)
            row = np.where(rng.random(self.vocab) < 0.45, 0.0, row)
            row[rng.integers(self.vocab)] += 0.1
        elif self.kind == "masks":
            row = np.where(self.mask(text), row, 0.0)
        elif self.kind == "singletons" and coin < 0.5:
            row = np.eye(self.vocab)[int(coin * 2 * self.vocab)]
        elif what == "draft" and (self.kind == "onehot" or (self.kind == "mixed" and coin < 0.5)):
            row = np.eye(self.vocab)[self.rng(text, "hot").integers(self.vocab)]
        return row / row.sum()


@pytest.fixture
def tiny() -> Callable[[str, int, int], TinyModel]:
    return TinyModel
