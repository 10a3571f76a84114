"""`Alignment`: one model's ids read as another's, where their bytes are exactly the same.

Owns the map between a target's vocabulary and a draft's. Any law over the target's tokens is a
lossless draft, so a foreign vocabulary is sound as long as every id means its own bytes: a target
token is drafted with the probability that the draft gives to *the* token of the same bytes, and
tokens without a twin are not drafted at all. Nothing is retokenised behind a draft, where a
different split would make the draft answer another question.

Invariants
- `to_draft[t]` writes exactly the bytes of t; where several ids share their bytes, the lowest on
  each side stand for all;
- control tokens pair by name, end tokens with end tokens.

Cost: one dictionary over each vocabulary, once per pair.

Sibling: `model.ModelDraft` asks for it.

Example::

    alignment = Alignment.of(target.vocab, draft.vocab)     # raises DraftError if they share little
    alignment.identical, alignment.shared
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from structspec.errors import DraftError, VocabularyError
from structspec.vocab import Vocabulary

__all__ = ["Alignment"]

# Below this part of the target's tokens a draft could hardly ever say what the target would.
_LEAST_SHARED = 0.25


@dataclass(frozen=True, eq=False)
class Alignment:
    """See the module. `identical`: the ids mean the same on both sides, no map is needed."""

    identical: bool
    to_draft: NDArray[np.int64]
    draft: Vocabulary
    target: Vocabulary

    @property
    def shared(self) -> int:
        """How many target tokens have a twin."""
        return int((self.to_draft >= 0).sum())

    @classmethod
    def of(cls, target: Vocabulary, draft: Vocabulary, name: str = "the draft") -> Alignment:
        """The map for two vocabularies; raises `DraftError` if they share too little."""
        if target is draft or (
            target.tokens == draft.tokens
            and target.special == draft.special
            and target.eos_ids == draft.eos_ids
        ):
            return cls(True, np.arange(target.size, dtype=np.int64), draft, target)
        twins: dict[bytes, int] = {}
        for token, data in enumerate(draft.tokens):
            if data:
                twins.setdefault(data, token)
        to_draft = np.full(target.size, -1, np.int64)
        taken: set[bytes] = set()
        for token, data in enumerate(target.tokens):
            if data and data in twins and data not in taken:
                to_draft[token] = twins[data]
                taken.add(data)
        for special, token in target.special.items():
            twin = draft.special.get(special)
            if twin is not None and token < target.size:
                to_draft[token] = twin
        for end in target.eos_ids:
            if end < target.size and to_draft[end] < 0 and draft.eos_ids:
                to_draft[end] = draft.eos_ids[0]
        found = cls(False, to_draft, draft, target)
        written = sum(1 for data in target.tokens if data)
        if found.shared < _LEAST_SHARED * max(1, written):
            raise DraftError(
                f"{name} writes only {found.shared} of the target's {written} tokens with exactly "
                "the same bytes; its drafts would be wrong almost everywhere. Use a draft of the "
                "same family of tokenizers"
            )
        return found

    def context(self, ids: Sequence[int]) -> list[int]:
        """The target's ids as the draft reads them; what has no twin is spelt anew, or left out."""
        if self.identical:
            return list(ids)
        result: list[int] = []
        for token in ids:
            twin = int(self.to_draft[token]) if 0 <= token < len(self.to_draft) else -1
            if twin >= 0:
                result.append(twin)
                continue
            data = self.target.tokens[token] if token < len(self.target.tokens) else None
            if data:
                try:
                    result.extend(self.draft.encode(data))
                except VocabularyError:
                    continue
        return result
