"""Healing the seam between a prompt's text and its continuation.

A prompt that ends in the middle of what would be one token (`The answer is ` before `{"`, where
the model knows ` {"`) makes the model continue from a split it never saw. `heal` takes such tokens
back from the prompt and lets the model write them anew, under a constraint that first demands the
bytes which were taken: `PrefixedConstraint`.

Invariants
- only text that goes on is healed, never a chat template's closing control token;
- the texts that the healed constraint allows are exactly prefix + the constraint's texts;
- states of the prefix are negative, all other states are the constraint's own;
- `distance` and budgets count the rewritten tokens too, and keep their promise.

Cost: one trie look-up per byte of the prefix and one walk per token that spans the seam.

Sibling: `prompt` makes the ids that are healed here.

Example::

    ids, constraint = heal(prompt_ids, constraint)       # unchanged if no token spans the seam
    healed = getattr(constraint, "prefix", b"")          # bytes to take off the output's front
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from structspec.errors import TokenRejected
from structspec.packed import Mask, pack
from structspec.vocab import Vocabulary

__all__ = ["PrefixedConstraint", "heal"]

_MOST_TOKENS = 4


@dataclass(frozen=True)
class _Phase:
    """The legal tokens behind some bytes of the prefix, where each leads, and how far it is."""

    successors: dict[int, int]
    distances: dict[int, int]
    mask: Mask


class PrefixedConstraint:
    """`constraint`, with `prefix` to be written first. The prefix must not be empty."""

    def __init__(self, constraint: Any, prefix: bytes) -> None:
        if not prefix:
            raise ValueError("the prefix is empty; use the constraint itself")
        self.base = constraint
        self.prefix = prefix
        self.start = -1
        self._phases: dict[int, _Phase] = {}

    @property
    def vocab(self) -> Vocabulary:
        """The base constraint's vocabulary."""
        vocab: Vocabulary = self.base.vocab
        return vocab

    def mask(self, state: int, left: int | None = None) -> Mask:
        """As `Constraint.mask`."""
        if state >= 0:
            row: Mask = self.base.mask(state, left)
            return row
        phase = self._phase(-1 - state)
        if left is None:
            return phase.mask
        return pack((t for t, d in phase.distances.items() if d <= left - 1), self.vocab.size)

    def fill(
        self, states: Sequence[int], out: Mask, left: int | Sequence[int | None] | None = None
    ) -> None:
        """As `Constraint.fill`."""
        budgets = left if isinstance(left, Sequence) else [left] * len(states)
        for row, state, budget in zip(out, states, budgets, strict=False):
            row[:] = self.mask(state, budget)

    def advance(self, state: int, token: int) -> int:
        """As `Constraint.advance`."""
        if state >= 0:
            return int(self.base.advance(state, token))
        successors = self._phase(-1 - state).successors
        if token not in successors:
            raise TokenRejected(
                token, state, list(successors)[:16], f"the text must go on with {self.prefix!r}"
            )
        return successors[token]

    def advance_bytes(self, state: int, data: bytes) -> int | None:
        """As `Constraint.advance_bytes`."""
        if state >= 0:
            reached = self.base.advance_bytes(state, data)
            return None if reached is None else int(reached)
        done = -1 - state
        rest = self.prefix[done:]
        if not data.startswith(rest):
            return -1 - (done + len(data)) if rest.startswith(data) else None
        return self.advance_bytes(int(self.base.start), data[len(rest) :])

    def accepting(self, state: int) -> bool:
        """As `Constraint.accepting`; never inside the prefix."""
        return state >= 0 and bool(self.base.accepting(state))

    def forced(self, state: int) -> bytes:
        """As `Constraint.forced`: the rest of the prefix and what follows it."""
        if state >= 0:
            return bytes(self.base.forced(state))
        return self.prefix[-1 - state :] + bytes(self.base.forced(self.base.start))

    def suggest(self, state: int) -> bytes:
        """As `Constraint.suggest`."""
        if state >= 0:
            return bytes(self.base.suggest(state))
        return self.prefix[-1 - state :] + bytes(self.base.suggest(self.base.start))

    def distance(self, state: int) -> int:
        """As `Constraint.distance`."""
        if state >= 0:
            return int(self.base.distance(state))
        return self._distances[-1 - state]

    def distance_is_exact(self, state: int) -> bool:
        """As `Constraint.distance_is_exact`."""
        return bool(self.base.distance_is_exact(self.base.start if state < 0 else state))

    @cached_property
    def _distances(self) -> list[int]:
        """Certified bounds at each byte of the prefix, from its end backwards."""
        known: dict[int, int] = {}
        for done in range(len(self.prefix) - 1, -1, -1):
            steps = [
                known.get(-1 - state, _FAR) if state < 0 else int(self.base.distance(state))
                for state in _successors(self, done).values()
            ]
            known[done] = 1 + min(steps, default=_FAR)
        return [known[done] for done in range(len(self.prefix))]

    def _phase(self, done: int) -> _Phase:
        found = self._phases.get(done)
        if found is None:
            all_ = _successors(self, done)
            distances = {t: self.distance(s) for t, s in all_.items()}
            # tokens that lead where the rest of the prefix cannot be written are no choice
            kept = {t: s for t, s in all_.items() if distances[t] < _FAR}
            found = _Phase(kept, {t: distances[t] for t in kept}, pack(kept, self.vocab.size))
            self._phases[done] = found
        return found


_FAR = 1 << 40
"""Distance of a place from which the prefix cannot be finished."""


def heal(ids: Sequence[int], constraint: Any) -> tuple[list[int], Any]:
    """Take back the prompt's last tokens if a token could span its end.

    Returns the shortened ids and the constraint to decode with; both unchanged where no token of
    the vocabulary both continues the prompt's last bytes and begins the constrained text. The
    first id is never taken, nor is a control token.
    """
    vocab: Vocabulary = constraint.vocab
    removed = 0
    prefix = b""
    suffix = b""
    for count in range(1, min(_MOST_TOKENS, len(ids) - 1) + 1):
        token = ids[-count]
        data = vocab.tokens[token] if token < len(vocab.tokens) else None
        if not data:
            break
        suffix = data + suffix
        if _spans(constraint, suffix):
            removed, prefix = count, suffix
    if not removed:
        return list(ids), constraint
    healed = PrefixedConstraint(constraint, prefix)
    return list(ids[:-removed]), healed


def _spans(constraint: Any, suffix: bytes) -> bool:
    """Whether some token starts with `suffix` and goes on with a legal beginning."""
    return any(
        _behind(constraint, rest) is not None for _, rest in _longer(constraint.vocab, suffix)
    )


def _successors(prefixed: PrefixedConstraint, done: int) -> dict[int, int]:
    """Legal tokens behind `done` bytes of the prefix → the state behind each."""
    vocab, base = prefixed.vocab, prefixed.base
    rest = prefixed.prefix[done:]
    found: dict[int, int] = {}
    for size in range(1, len(rest) + 1):
        node = vocab.trie.find(rest[:size])
        if node < 0:
            break
        state = base.start if size == len(rest) else -1 - (done + size)
        for token in vocab.trie.ids_at(node):
            found[int(token)] = state
    behind: dict[bytes, int | None] = {}
    for token, tail in _longer(vocab, rest):
        if tail not in behind:
            behind[tail] = _behind(base, tail)
        reached = behind[tail]
        if reached is not None:
            found[token] = reached
    return {token: found[token] for token in sorted(found)}


def _longer(vocab: Vocabulary, start: bytes) -> list[tuple[int, bytes]]:
    """Tokens that begin with `start` and are longer, with what they add."""
    trie = vocab.trie
    node = trie.find(start)
    if node < 0:
        return []
    first, last = int(trie.token_offset[node + 1]), int(trie.token_offset[trie.skip[node]])
    result = []
    for token in trie.token_ids[first:last]:
        data = vocab.tokens[int(token)]
        if data is not None:
            result.append((int(token), data[len(start) :]))
    return result


def _behind(constraint: Any, data: bytes) -> int | None:
    """The state behind `data` from the start; None if it is illegal."""
    state = constraint.advance_bytes(constraint.start, data)
    return None if state is None else int(state)
