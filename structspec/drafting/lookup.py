"""`LookupDraft`: copy what followed the same words earlier in the prompt or the output.

Owns an index of the context. The last few tokens are looked up in it, longest n-gram first, most
recent occurrence first; what followed there is walked through the automaton and cut at the first
illegal token. Tokens alone miss the commonest copy of all: behind a quote the model writes
`San Francisco` where the prompt has ` San Francisco`, other tokens for the same text. So where no
n-gram matches, the last *bytes* are looked up and what follows is tokenised anew.

Invariants
- the draft is a function of the context, hence one-hot, hence free to be cut;
- the index holds only committed tokens; what a draft itself adds is matched but not indexed.

Cost: `max_ngram` dictionary entries per token of context; a byte search over the context per miss.

Sibling: `ForcedDraft` where the grammar leaves no choice, `CombinedDraft` for both.

Paper: Saxena, "Prompt lookup decoding", 2023; Yang et al., "Inference with reference", 2023.

Example::

    drafter = LookupDraft(limit=8).begin(Request(constraint, prompt_ids))
    drafter.propose(state, prompt_ids + output_ids, left=100, step=0)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from structspec.drafting.draft import ConstraintLike, Draft, DraftBuilder, Request
from structspec.errors import VocabularyError

__all__ = ["ContextIndex", "LookupDraft"]

_CONTROL = b"\xff"
"""What ids without bytes read as: a byte that no UTF-8 text contains."""


@dataclass(frozen=True)
class LookupDraft:
    """Drafts by prompt look-up.

    `limit`: tokens per draft. `max_ngram`, `min_ngram`: lengths of the looked-up n-grams.
    `min_bytes`: shortest byte string that is looked up where no n-gram matches; 0 turns that off.
    """

    limit: int = 8
    max_ngram: int = 4
    min_ngram: int = 1
    min_bytes: int = 3

    def begin(self, request: Request) -> _LookupDrafter:
        """A drafter for one request."""
        return _LookupDrafter(request.constraint, self)


class ContextIndex:
    """The n-grams and the text of a growing context, and what followed them."""

    def __init__(self, constraint: ConstraintLike, settings: LookupDraft) -> None:
        self._vocab = constraint.vocab
        self._settings = settings
        self._ids: list[int] = []
        self._text = bytearray()
        # n-gram -> the positions behind its last three occurrences, latest first
        self._places: dict[tuple[int, ...], tuple[int, ...]] = {}

    def update(self, context: Sequence[int]) -> None:
        """Index what `context` has beyond the last call; it must start with what it was."""
        top, low = self._settings.max_ngram, self._settings.min_ngram
        for token in context[len(self._ids) :]:
            self._ids.append(token)
            self._text += _bytes_of(self._vocab.tokens, token)
            end = len(self._ids)
            for n in range(low, min(top, end) + 1):
                gram = tuple(self._ids[end - n :])
                self._places[gram] = (end, *self._places.get(gram, ())[:2])

    def extend(self, builder: DraftBuilder, most: int) -> int:
        """Append at most `most` looked-up tokens to a draft behind the indexed context."""
        if most <= 0:
            return 0
        for tokens in self._continuations(builder.tokens, most):
            count = builder.extend(tokens)
            if count:
                return count
        return builder.extend(self._spelt_anew(builder.tokens, most))

    def _continuations(self, drafted: list[int], most: int) -> Iterator[list[int]]:
        """What followed the last n-gram, best guess first."""
        end = len(self._ids)
        tail = (self._ids[-self._settings.max_ngram :] + drafted)[-self._settings.max_ngram :]
        for n in range(len(tail), self._settings.min_ngram - 1, -1):
            # the tail is indexed too: its own place says nothing about what follows
            for place in self._places.get(tuple(tail[len(tail) - n :]), ()):
                if place < end:
                    yield self._ids[place : place + most]

    def _spelt_anew(self, drafted: list[int], most: int) -> list[int]:
        """Tokens of the text that followed the last bytes of the context."""
        least = self._settings.min_bytes
        if not least:
            return []
        tokens = self._vocab.tokens
        text = bytes(self._text)
        key = (text[-32:] + b"".join(_bytes_of(tokens, t) for t in drafted))[-32:]
        for size in (16, 8, least):
            if size < least or len(key) < size:
                continue
            # without `drafted` the last match is the tail itself: stop one byte earlier
            at = text.rfind(key[-size:], 0, len(text) - (0 if drafted else 1))
            if at < 0:
                continue
            # a draft never copies across a control token
            follows = text[at + size : at + size + 6 * most].split(_CONTROL)[0]
            try:
                # the last token may be cut by the end of the slice
                return self._vocab.encode(follows)[:-1][:most]
            except VocabularyError:  # the slice cut a character that no token can write
                return []
        return []


class _LookupDrafter:
    def __init__(self, constraint: ConstraintLike, settings: LookupDraft) -> None:
        self._constraint = constraint
        self._limit = settings.limit
        self._index = ContextIndex(constraint, settings)

    def propose(self, state: int, context: Sequence[int], left: int, step: int) -> Draft:
        self._index.update(context)
        builder = DraftBuilder(self._constraint, state, left, self._limit)
        self._index.extend(builder, self._limit)
        return builder.build()

    def observe(self, draft: Draft, accepted: int) -> None:
        pass


def _bytes_of(tokens: Sequence[bytes | None], token: int) -> bytes:
    return (tokens[token] if token < len(tokens) else None) or _CONTROL
