"""`ForkDraft`: a tree that holds every branch where the grammar forks into a few.

Owns the deterministic draft tree that needs no model: the chain of `CombinedDraft` (forced spans,
look-up), and beside it, at each place where only a few ways go on, the other ways with the forced
text behind them. `true` or `false`, an enum's values, another item or the end of an array:
whatever the target wants is in the tree, so it is kept.

A way is a legal token where few tokens are legal. Where many are, but they begin with few different
bytes (every spelling of `true` and `false` is legal), a way is a first byte with all the text that
it determines, tokenised canonically; the target may still prefer another spelling.

Invariants
- a function of the text so far, hence one-hot, hence free to hold any part of the tree;
- no end tokens; every path is legal under its own budget.

Cost: that of `CombinedDraft`, and one mask per node; nodes of a tree are rows of the forward.

Sibling: `CombinedDraft` drafts the chain alone.

Papers: tree attention of SpecInfer (arXiv 2305.09781) and Medusa (arXiv 2401.10774).

Example::

    structspec.generate(model, prompt, Person, draft="forks")
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from structspec.drafting.combined import CombinedDraft
from structspec.drafting.draft import Draft, DraftBuilder, Drafter, Request
from structspec.drafting.forced import ForcedSpans
from structspec.packed import unpack

__all__ = ["ForkDraft"]


@dataclass(frozen=True)
class ForkDraft:
    """`chain`: the draft that the tree grows from. `branches`: ways of a fork, at most. `nodes`:
    tokens beside the chain, at most.
    """

    chain: CombinedDraft = field(default_factory=CombinedDraft)
    branches: int = 4
    nodes: int = 24

    def begin(self, request: Request) -> _ForkDrafter:
        """A drafter for one request."""
        return _ForkDrafter(request, self, self.chain.begin(request))


class _ForkDrafter:
    def __init__(self, request: Request, settings: ForkDraft, chain: Drafter) -> None:
        self._constraint = request.constraint
        self._settings = settings
        self._chain = chain
        self._spans = ForcedSpans(request.constraint)
        self._first_bytes = _first_bytes(request)
        self._ends = sorted(request.constraint.vocab.eos_ids)
        self._main = Draft()

    def propose(self, state: int, context: Sequence[int], left: int, step: int) -> Draft:
        """The chain alone."""
        self._main = self._chain.propose(state, context, left, step)
        return self._main

    def propose_tree(self, state: int, context: Sequence[int], left: int, step: int) -> list[Draft]:
        """The chain and its forks, as paths."""
        main = self.propose(state, context, left, step)
        paths, room = [main], self._settings.nodes
        walk = DraftBuilder(self._constraint, state, left)
        for place in range(len(main) + 1):
            if room <= 0 or not walk.room:
                break
            taken = main.tokens[place] if place < len(main) else None
            for way in self._ways(walk, taken):
                branch = DraftBuilder(self._constraint, state, left, place + min(room, 32))
                branch.extend(main.tokens[:place])
                if branch.extend(way) < len(way):
                    continue
                self._spans.extend(branch)
                room -= len(branch.tokens) - place
                paths.append(branch.build())
                if room <= 0:
                    break
            if taken is not None:
                walk.add(taken)
        # an empty chain is the beginning of every other path
        return [path for path in paths if len(path)] or [main]

    def observe(self, draft: Draft, accepted: int) -> None:
        """The chain learns how much of it was kept."""
        same = 0
        for a, b in zip(draft.tokens[:accepted], self._main.tokens, strict=False):
            if a != b:
                break
            same += 1
        self._chain.observe(self._main, same)

    def _ways(self, walk: DraftBuilder, taken: int | None) -> list[list[int]]:
        """The ways on from here, without the one that the chain takes."""
        bits = unpack(walk.mask)
        bits[[end for end in self._ends if end < len(bits)]] = 0
        legal = np.flatnonzero(bits)
        if not legal.size > 1:
            return []
        if legal.size <= self._settings.branches:
            return [[int(token)] for token in legal if token != taken]
        starts = np.unique(self._first_bytes[legal])
        if starts.size > self._settings.branches:
            return []
        vocab = self._constraint.vocab
        avoid = -1 if taken is None else int(self._first_bytes[taken])
        ways = []
        for start in starts.tolist():
            if start == avoid:
                continue
            first = bytes([start])
            behind = self._constraint.advance_bytes(walk.state, first)
            if behind is not None:
                ways.append(vocab.encode(first + self._constraint.suggest(behind)))
        return ways


def _first_bytes(request: Request) -> NDArray[np.int16]:
    """The first byte of each token, -1 for those without text."""
    vocab = request.constraint.vocab
    known = [data[0] if data else -1 for data in vocab.tokens]
    return np.array([*known, *([-1] * (vocab.size - len(known)))], np.int16)
