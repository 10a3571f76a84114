"""Tiny models whose laws can be enumerated, and batches of several drafts from such models."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

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


@dataclass
class DraftsCase:
    """A batch of K drafts per request from random models; rows that nobody may read are NaN.

    `models[b]` are target and draft of request b, `drafts[b]` its drafts, `uniforms` [B, K, L+1].
    `near` is how much of the target the draft's rows hold; `hot` the share of deterministic
    places.
    """

    size: int
    count: int
    length: int
    vocab: int
    seed: int
    hot: float = 0.0
    ends: tuple[int, ...] = ()
    dtype: Any = np.float64
    models: list[Any] = field(default_factory=list)
    drafts: list[list[Text]] = field(default_factory=list)

    def __post_init__(self) -> None:
        rng = np.random.default_rng(self.seed)
        shape = (self.size, self.count, self.length)
        self.uniforms = rng.random((*shape[:2], self.length + 1))
        p = np.full((*shape[:2], self.length + 1, self.vocab), np.nan, self.dtype)
        q = np.full((*shape, self.vocab), np.nan, self.dtype)
        tokens = np.full(shape, -1, dtype=np.int64)
        onehot = np.zeros(shape, dtype=bool)
        lengths = rng.integers(0, self.length + 1, shape[:2])
        lengths[rng.random(self.size) < 0.5] = self.length
        for b in range(self.size):
            model = RandomRows(self.vocab, int(rng.integers(2**31)), self.hot, self.dtype)
            self.models.append(model)
            self.drafts.append([model.sample(rng, n, self.ends) for n in lengths[b]])
            lengths[b] = [len(d) for d in self.drafts[b]]
            owners: set[Text] = set()
            for longer in (1, 0):  # the owner of a node is the first draft that goes on
                for k, drafted in enumerate(self.drafts[b]):
                    tokens[b, k, : len(drafted)] = drafted
                    for i in range(len(drafted) + 1 - longer):
                        node = drafted[:i]
                        over = bool(node and node[-1] in self.ends)
                        if node in owners or over:
                            continue
                        owners.add(node)
                        p[b, k, i] = model.target(node)
                        if longer:
                            onehot[b, k, i] = model.is_hot(node)
                            q[b, k, i] = np.nan if onehot[b, k, i] else model.draft(node)
        self.arrays = (p, q, tokens, lengths, onehot)

    def arguments(self, device: str = "cpu") -> dict[str, Any]:
        import torch

        p, q, tokens, lengths, onehot = (torch.from_numpy(a).to(device) for a in self.arrays)
        return {
            "target": p,
            "draft": q,
            "tokens": tokens,
            "lengths": lengths,
            "uniforms": torch.from_numpy(self.uniforms).to(device),
            "onehot": onehot,
            "eos_ids": self.ends,
        }

    def of_request(self, b: int) -> dict[str, Any]:
        """The arguments of request b alone."""
        return {
            name: value[b : b + 1] if hasattr(value, "shape") else value
            for name, value in self.arguments().items()
        }


class RandomRows:
    """Target and draft rows of one request, random functions of the prefix."""

    def __init__(self, vocab: int, seed: int, hot: float, dtype: Any) -> None:
        self.vocab, self.seed, self.hot, self.dtype = vocab, seed, hot, dtype
        self.cache: dict[tuple[str, Text], Floats] = {}

    def rng(self, what: str, text: Text) -> np.random.Generator:
        return np.random.default_rng([self.seed, ord(what), *[t + 1 for t in text]])

    def is_hot(self, text: Text) -> bool:
        return bool(self.rng("h", text).random() < self.hot)

    def raw(self, what: str, text: Text) -> Floats:
        if (what, text) not in self.cache:
            rng = self.rng(what, text)
            row = rng.dirichlet(np.full(self.vocab, 0.6)) + 1e-6
            if what == "q":
                near = rng.choice([0.2, 0.7, 0.95, 1.0])
                row = near * self.raw("p", text) + (1.0 - near) * row
            legal = self.rng("m", text).random(self.vocab) < 0.75
            legal[0] = True
            row = np.where(legal, row, 0.0)
            self.cache[what, text] = (row / row.sum()).astype(self.dtype)
        return self.cache[what, text]

    def target(self, text: Text) -> Floats:
        row = self.raw("p", text).astype(np.float64)
        return row / row.sum()

    def draft(self, text: Text) -> Floats:
        if self.is_hot(text):
            likely = self.rng("t", text).random() < 0.6
            return np.eye(self.vocab)[int(self.raw("p", text).argmax()) if likely else 0]
        row = self.raw("q", text).astype(np.float64)
        return row / row.sum()

    def sample(self, rng: np.random.Generator, length: int, ends: tuple[int, ...]) -> Text:
        text: Text = ()
        while len(text) < length and not (text and text[-1] in ends):
            text = (*text, int(rng.choice(self.vocab, p=self.draft(text))))
        return text


@pytest.fixture
def drafts_case() -> Callable[..., DraftsCase]:
    return DraftsCase
