"""`CopyIndex`: which token would go on copying the text so far, and how good a reason there is.

A small head learns to copy slowly, and copying is half of what an answer to a request does. Where
the last tokens, or the last bytes, stood somewhere before, the token that followed there is the
candidate. How much that says depends on how much matched and on whether earlier places agree: a
`Copy` names the kind of match, and the head has one learnt weight per kind, by which it mixes the
candidate into its law (`heads.EagleHead.with_copies`).

Invariants
- a candidate is a function of the text and the legal tokens, so a law with it is a proposal as any
  other;
- training and drafting ask the same code.

Cost: a look at the last 32 places of one token, and where little matched one search of the text.

Sibling: `lookup.ContextIndex` drafts whole copies, one-hot, without a head.

Paper: See et al., pointer-generator networks (arXiv 1704.04368).

Example::

    index = CopyIndex(vocab, prompt_ids)
    index.look([], mask)                # behind the prompt: a Copy, or None
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from structspec.errors import VocabularyError
from structspec.packed import Mask, is_set

if TYPE_CHECKING:
    from structspec.vocab import Vocabulary

__all__ = ["KINDS", "STARTING", "Copy", "CopyIndex"]

_LONGEST = 8  # tokens of a match that are told apart
_PLACES = 32  # earlier places of a token that are looked at
_SIZES = (12, 8, 6, 4, 3)  # bytes of a match, where tokens say little
_CONTROL = b"\xff"  # what ids without bytes read as

KINDS = 3 * _LONGEST + len(_SIZES)
"""Kinds of matches: by length, each found once, found often alike, and found often unlike; then
by bytes."""

STARTING = tuple(
    math.log(share / (1 - share))
    for share in (
        *(x for n in range(1, _LONGEST + 1) for x in (1 - 0.85 / n, 1 - 0.5 / n**1.5, 0.1)),
        *(0.1 for _ in _SIZES),
    )
)
"""Log-odds of copying for each kind before training: the more matched, the likelier."""


@dataclass(frozen=True)
class Copy:
    """A candidate and the kind of match behind it, 0 ≤ kind < `KINDS`."""

    token: int
    kind: int


class CopyIndex:
    """A text that grows, and where its tokens stand in it."""

    def __init__(self, vocab: Vocabulary, ids: Iterable[int] = ()) -> None:
        self._vocab = vocab
        self._ids: list[int] = []
        self._text = bytearray()
        self._places: dict[int, list[int]] = {}
        self.extend(ids)

    def __len__(self) -> int:
        return len(self._ids)

    def extend(self, ids: Iterable[int]) -> None:
        """Append ids to the text."""
        for token in ids:
            self._places.setdefault(token, []).append(len(self._ids))
            self._ids.append(token)
            self._text += self._bytes(token)

    def branch(self) -> CopyIndex:
        """A copy that may grow on its own."""
        twin = CopyIndex(self._vocab)
        twin._ids, twin._text = list(self._ids), bytearray(self._text)
        twin._places = {token: list(places) for token, places in self._places.items()}
        return twin

    def look(self, drafted: Sequence[int], mask: Mask | None) -> Copy | None:
        """The candidate behind the text and some drafted tokens; mask None: any token is legal."""
        tail = (*self._ids[-_LONGEST:], *drafted)[-_LONGEST:]
        if not tail:
            return None
        best, followers = 0, list[int]()
        for place in reversed(self._places.get(tail[-1], ())[-_PLACES:]):
            if place + 1 >= len(self._ids):
                continue  # the end of the text itself
            follower = self._ids[place + 1]
            if mask is not None and not is_set(mask, follower):
                continue
            length = self._matches(tail, place)
            if length > best:
                best, followers = length, [follower]
            elif length == best and len(followers) < 3:
                followers.append(follower)
        if best <= 1:
            spelt = self._spelt(drafted, mask)
            if spelt is not None:
                return spelt
        if not best:
            return None
        if len(followers) == 1:
            how = 0
        else:
            how = 1 if len(set(followers)) == 1 else 2
        return Copy(followers[0], 3 * (best - 1) + how)

    def _matches(self, tail: Sequence[int], place: int) -> int:
        """How many tokens up to `place` are the last ones of `tail`."""
        length = 1
        while (
            length < len(tail)
            and place >= length
            and self._ids[place - length] == tail[-1 - length]
        ):
            length += 1
        return length

    def _spelt(self, drafted: Sequence[int], mask: Mask | None) -> Copy | None:
        """The first token of what followed the same bytes."""
        longest = _SIZES[0]
        key = bytes(self._text[-longest:]) + b"".join(self._bytes(token) for token in drafted)
        key = key[-longest:]
        for number, size in enumerate(_SIZES):
            if len(key) < size:
                continue
            # without `drafted` the last match is the tail itself: stop one byte earlier
            at = self._text.rfind(key[-size:], 0, len(self._text) - (0 if drafted else 1))
            if at < 0:
                continue
            follows = bytes(self._text[at + size : at + size + 24]).split(_CONTROL)[0]
            try:
                tokens = self._vocab.encode(follows)
            except VocabularyError:  # the slice cut a character that no token can write
                continue
            # the last token may be cut by the end of the slice
            if len(tokens) > 1 and (mask is None or is_set(mask, tokens[0])):
                return Copy(tokens[0], 3 * _LONGEST + number)
        return None

    def _bytes(self, token: int) -> bytes:
        tokens = self._vocab.tokens
        return (tokens[token] if token < len(tokens) else None) or _CONTROL
