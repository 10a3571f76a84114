"""`Source`: what any reader finds in a tokenizer.

Owns the record that the readers fill and `Vocabulary.from_tokenizer` takes; no logic of its own
beyond laying ids out in a list. Invariant: ids that nothing defines are None, and an id defined
twice with different bytes is an error, never a choice.

Example::

    >>> Source.from_ids({0: b"a", 2: b"c"}).tokens
    [b'a', None, b'c']
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from structspec.errors import VocabularyError

__all__ = ["Source"]


@dataclass(frozen=True)
class Source:
    """Token bytes by id, end tokens, control tokens by name, and the tokenizer's encoding.

    `dummy_prefix`: the tokenizer puts a blank before a text that it encodes; `encode` does not.
    """

    tokens: list[bytes | None]
    eos_ids: tuple[int, ...] = ()
    special: Mapping[str, int] = field(default_factory=dict)
    encode: Callable[[bytes], Sequence[int]] | None = None
    dummy_prefix: bool = False

    @classmethod
    def from_ids(
        cls,
        entries: Mapping[int, bytes | None],
        *,
        eos_ids: Iterable[int] = (),
        special: Mapping[str, int] | None = None,
        encode: Callable[[bytes], Sequence[int]] | None = None,
        dummy_prefix: bool = False,
    ) -> Source:
        """Lay entries {id: bytes} out in a list; special ids lose their bytes."""
        names = dict(special or {})
        ids = [*entries, *names.values()]
        if not ids:
            raise VocabularyError("the tokenizer has no tokens")
        if min(ids) < 0:
            raise VocabularyError(f"the tokenizer has a negative id, {min(ids)}")
        top = max(ids)
        if top > 64 * (len(ids) + 4096):
            raise VocabularyError(
                f"the tokenizer's largest id is {top} but it has only {len(ids)} tokens; "
                "ids must be nearly contiguous"
            )
        tokens: list[bytes | None] = [None] * (top + 1)
        for index, data in entries.items():
            tokens[index] = data
        for index in names.values():
            tokens[index] = None
        return cls(tokens, tuple(eos_ids), names, encode, dummy_prefix)

    def with_eos(self, eos_ids: Iterable[int]) -> Source:
        """The same with other end tokens."""
        return replace(self, eos_ids=tuple(eos_ids))
