"""`ForcedDraft`: draft what the grammar already determines.

Owns the byte spans that every continuation shares: keys, separators, constants, the closing of
objects. They are tokenised canonically and proposed one-hot.

Invariants
- a forced *text* is not a forced *token*: `"`, `"n` and `"name` may all be legal first tokens of
  the same text and the model may prefer any, so spans are verified like every draft;
- where exactly one token is legal it is drafted whatever its bytes are; there p' = q' = 1;
- the last token of a span is proposed although it might merge with what follows it: if the model
  prefers the merged token, verification replaces just that one.

Cost: one tokenisation per span, remembered per byte string; no model runs.

Sibling: `LookupDraft` guesses where the grammar leaves a choice.

Example::

    drafter = ForcedDraft().begin(Request(constraint, prompt_ids))
    drafter.propose(constraint.start, prompt_ids, left=100, step=0).tokens
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from structspec.drafting.draft import ConstraintLike, Draft, DraftBuilder, Request
from structspec.packed import single_token

__all__ = ["ForcedDraft", "ForcedSpans"]


@dataclass(frozen=True)
class ForcedDraft:
    """Drafts forced spans only. `limit` is the most tokens per draft."""

    limit: int = 32

    def begin(self, request: Request) -> _ForcedDrafter:
        """A drafter for one request."""
        return _ForcedDrafter(request.constraint, self.limit)


class ForcedSpans:
    """Adds the forced part behind a draft to it."""

    def __init__(self, constraint: ConstraintLike) -> None:
        self._constraint = constraint
        self._encoded: dict[bytes, list[int]] = {}

    def extend(self, builder: DraftBuilder) -> int:
        """Append forced spans and single legal tokens while there are any; count them."""
        before = len(builder.tokens)
        while builder.room:
            span = self._constraint.suggest(builder.state)
            if span and builder.extend(self._tokens(span)):
                continue
            # No common text, yet the vocabulary or the budget may leave a single token.
            only = single_token(builder.mask)
            if only is None or not builder.add(only):
                break
        return len(builder.tokens) - before

    def _tokens(self, span: bytes) -> list[int]:
        found = self._encoded.get(span)
        if found is None:
            found = self._encoded[span] = self._constraint.vocab.encode(span)
        return found


class _ForcedDrafter:
    def __init__(self, constraint: ConstraintLike, limit: int) -> None:
        self._constraint = constraint
        self._limit = limit
        self._spans = ForcedSpans(constraint)

    def propose(self, state: int, context: Sequence[int], left: int, step: int) -> Draft:
        builder = DraftBuilder(self._constraint, state, left, self._limit)
        self._spans.extend(builder)
        return builder.build()

    def observe(self, draft: Draft, accepted: int) -> None:
        pass
