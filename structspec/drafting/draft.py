"""`Draft`: tokens proposed ahead of the target, and the interface of whatever proposes them.

Owns the seam between the decoding loop and its drafts. A `DraftSource` is a reusable recipe; its
`begin` makes a `Drafter`, which lives for one request and may remember what it has seen.

Invariants
- every drafted token is legal: `tokens[i]` is a bit of `masks[i]`, which is `mask(s_i, left - i)`
  of the state before it, and `states[i]` is the state behind it. (An unmasked draft, kept for
  comparison, may end with an illegal token: `DraftBuilder.refuse`;)
- `q is None` says that the draft is a deterministic function of the text so far (one-hot): then
  cutting it anywhere keeps the output's law. With `q` [L, V] the tokens were *sampled* from those
  rows, masked and renormalised, and dropping any of them because of its value would bias the text;
- a deterministic draft holds no end token: where only the end is legal the loop ends without a
  forward. A sampled one must keep it, as its last token (`DraftBuilder.end`).

Cost: a mask and a transition per drafted token; a repeated state is a look-up.

Sibling: `structspec.verification` decides what is kept.

Example::

    builder = DraftBuilder(constraint, state, left=20)
    builder.extend(vocab.encode(b'{"name": "'))     # stops at the first illegal token
    draft = builder.build()
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from structspec.packed import Mask, is_set

if TYPE_CHECKING:
    from structspec.vocab import Vocabulary

__all__ = [
    "ConstraintLike",
    "Draft",
    "DraftBuilder",
    "DraftSource",
    "Drafter",
    "Request",
]


class ConstraintLike(Protocol):
    """What drafting and decoding need of a `Constraint`."""

    @property
    def start(self) -> int:
        """The state before any token."""
        ...

    @property
    def vocab(self) -> Vocabulary:
        """The vocabulary that it is bound to."""
        ...

    def mask(self, state: int, left: int | None = None) -> Mask:
        """The legal tokens, given the tokens left in the budget."""
        ...

    def advance(self, state: int, token: int) -> int:
        """The state behind a token."""
        ...

    def advance_bytes(self, state: int, data: bytes) -> int | None:
        """The state behind some bytes, None if they do not fit."""
        ...

    def accepting(self, state: int) -> bool:
        """Whether the text may end here."""
        ...

    def forced(self, state: int) -> bytes:
        """Bytes that every continuation starts with."""
        ...

    def suggest(self, state: int) -> bytes:
        """Bytes that all continuations share up to spelling."""
        ...

    def distance(self, state: int) -> int:
        """Certified bound on the tokens to a complete text."""
        ...


@dataclass(frozen=True, slots=True)
class Draft:
    """A chain of proposed tokens with the states and masks along it.

    `tokens` [L]; `states` [L], behind each token; `masks` L packed rows, before each token; `q`
    the law that each token was sampled from, torch [L, V], or None for a deterministic draft.
    `onehot` [L] marks places that are deterministic although `q` is given; their rows of `q` are
    not read.
    """

    tokens: tuple[int, ...] = ()
    states: tuple[int, ...] = ()
    masks: tuple[Mask, ...] = ()
    q: Any = None
    onehot: tuple[bool, ...] | None = None

    def __len__(self) -> int:
        return len(self.tokens)


class DraftBuilder:
    """Walks the automaton from `state`, collecting legal tokens; refuses all others.

    `left` is the token budget before the first drafted token, `limit` the most tokens to collect.
    """

    def __init__(
        self, constraint: ConstraintLike, state: int, left: int, limit: int | None = None
    ) -> None:
        self.constraint = constraint
        self.state = state
        self.left = left
        self.room = left if limit is None else min(left, limit)
        self.tokens: list[int] = []
        self._states: list[int] = []
        self._masks: list[Mask] = []
        self._mask: Mask | None = None
        self.ends = frozenset(constraint.vocab.eos_ids)

    @property
    def mask(self) -> Mask:
        """The legal tokens at the draft's end, under the budget that is left there."""
        if self._mask is None:
            self._mask = self.constraint.mask(self.state, self.left)
        return self._mask

    def add(self, token: int) -> bool:
        """Append `token` if it is legal, no end token, and there is room; say whether."""
        if not self.room or token in self.ends or not is_set(self.mask, token):
            return False
        self._masks.append(self.mask)
        self.state = self.constraint.advance(self.state, token)
        self._states.append(self.state)
        self.tokens.append(token)
        self._mask = None
        self.left -= 1
        self.room -= 1
        return True

    def end(self, token: int) -> bool:
        """Append the legal end token that a sampled draft drew; nothing may follow it."""
        if token not in self.ends or not is_set(self.mask, token):
            return False
        self._masks.append(self.mask)
        self._states.append(self.state)
        self.tokens.append(token)
        self.room = 0
        return True

    def refuse(self, token: int) -> bool:
        """Append the illegal token that an unmasked draft drew; nothing may follow it.

        The target gives it no probability, so verification refuses it there.
        """
        if is_set(self.mask, token):
            return False
        self._masks.append(self.mask)
        self._states.append(self.state)
        self.tokens.append(token)
        self.room = 0
        return True

    def extend(self, tokens: Iterable[int]) -> int:
        """Append tokens up to the first one that is refused; return how many went in."""
        count = 0
        for token in tokens:
            if not self.add(token):
                break
            count += 1
        return count

    def build(self, q: Any = None, onehot: Sequence[bool] | None = None) -> Draft:
        """The finished draft; `q` [L, V] for sampled tokens, see `Draft`."""
        marks = None if onehot is None else tuple(onehot)
        return Draft(tuple(self.tokens), tuple(self._states), tuple(self._masks), q, marks)


@dataclass(frozen=True)
class Request:
    """What a drafter may know of the request it works for.

    `sampling` are the target's settings and `noise` its `Randomness`: a drafter that samples
    draws from `noise.uniforms(number, step, Purpose.DRAFT, ...)` and from nothing else.
    `model` is the target, `rows` the `TargetRows` that hold its cache and `row` this request's
    row there, for drafts that use the target's own layers or states; None elsewhere. `shared`
    holds what the drafters of one loop have in common, such as the cache of a draft model.
    `steady`: the text is the same whatever is drafted for certain, so that such a draft may depend
    on what other requests wrote.
    """

    constraint: ConstraintLike
    prompt: Sequence[int]
    sampling: Any = None
    noise: Any = None
    number: int = 0
    model: Any = None
    rows: Any = None
    row: int = -1
    shared: dict[Any, Any] = field(default_factory=dict, repr=False, compare=False)
    steady: bool = False


@runtime_checkable
class Drafter(Protocol):
    """Proposes tokens for one request.

    One that runs a network may also have `plan(state, context, left, step, count)`, a generator
    that lets the requests of a round share forwards (`together`).
    """

    def propose(self, state: int, context: Sequence[int], left: int, step: int) -> Draft:
        """A draft behind `context` (prompt and output ids), whose state is `state`.

        `left` is the token budget before the next token, at least 1; `step` counts this
        request's verifications. The draft may be empty.
        """
        ...

    def observe(self, draft: Draft, accepted: int) -> None:
        """Learn that the first `accepted` tokens of `draft` were kept."""
        ...


@runtime_checkable
class DraftSource(Protocol):
    """A recipe for drafts, shareable between requests and threads."""

    def begin(self, request: Request) -> Drafter:
        """A drafter for one request."""
        ...
