"""`Vocabulary`: what every token id of a model writes, as bytes.

Owns the one answer to "which bytes does id i stand for"; everything else (masks, distances,
drafts) asks it. How the bytes are found in a tokenizer is the business of `sources`.

Invariants
- immutable; `tokens[i] is None` means that id i writes no text at all: control and end tokens,
  padding, ids whose entry is reserved. Such an id never matches text, whatever its name says;
- ids from `len(tokens)` to `size - 1` exist in the logits only and never match;
- an empty byte string makes no progress, so it never matches either;
- equal byte strings are all kept, each is as good as the other.

Cost: the trie, the plain tokens and the fingerprint are computed once, on first use.

Example::

    >>> vocab = Vocabulary([b"a", b"ab", b"</s>"], eos_ids=[2], special={2: "</s>"})
    >>> vocab.encode(b"aab"), vocab.decode([0, 1, 2]), vocab.tokens[2]
    ([0, 1], b'aab', None)
"""

from __future__ import annotations

import hashlib
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from types import MappingProxyType
from typing import Any

import numpy as np

from structspec.errors import VocabularyError
from structspec.vocab.plain import PlainTokens
from structspec.vocab.trie import Trie, in_order

__all__ = ["Encode", "Vocabulary"]

Encode = Callable[[bytes], Sequence[int]]
"""A tokenizer's own encoding of a byte string; its result is checked before it is used."""


class Vocabulary:
    """The bytes of every token id, the end tokens and the control tokens of a model.

    `tokens`: bytes per id, None for ids that write nothing. `eos_ids`: ids that end the text, any
    number of them. `special`: control tokens, as {name: id} or {id: name}; they and the end
    tokens lose their bytes. `logit_width`: the size of the model's output if larger than
    `len(tokens)`. `encode`: the tokenizer's own encoding, see `Encode`.
    """

    size: int
    tokens: tuple[bytes | None, ...]
    eos_ids: tuple[int, ...]
    special: Mapping[str, int]
    special_ids: frozenset[int]
    _encode: Encode | None

    def __init__(
        self,
        tokens: Iterable[bytes | None],
        eos_ids: Iterable[int] | int = (),
        special: Mapping[str, int] | Mapping[int, str] | None = None,
        logit_width: int | None = None,
        encode: Encode | None = None,
    ) -> None:
        if isinstance(tokens, str | bytes) or not isinstance(tokens, Iterable):
            raise VocabularyError(
                f"tokens is of type {type(tokens).__name__}; pass a list with the bytes of every "
                "token id, or read a tokenizer with Vocabulary.from_tokenizer"
            )
        entries = list(tokens)
        for index, token in enumerate(entries):
            if token is not None and not isinstance(token, bytes):
                raise VocabularyError(
                    f"token {index} is {token!r:.60} of type {type(token).__name__}; tokens must "
                    "be bytes, or None for ids that write no text"
                )
        size = len(entries) if logit_width is None else operator.index(logit_width)
        if size < len(entries):
            raise VocabularyError(
                f"logit_width={size} is less than the {len(entries)} tokens of the vocabulary; "
                "pass the width of the model's logits, or fewer tokens"
            )
        if size == 0:
            raise VocabularyError("a vocabulary needs at least one token")
        ends = (eos_ids,) if isinstance(eos_ids, int) else tuple(eos_ids)
        ends = tuple(dict.fromkeys(_valid_id(i, size, "end token") for i in ends))
        names, special_ids = _specials(special or {}, size)
        for index in (*ends, *special_ids):
            if index < len(entries):
                entries[index] = None
        self.__dict__.update(
            size=size,
            tokens=tuple(entries),
            eos_ids=ends,
            special=MappingProxyType(names),
            special_ids=frozenset(special_ids) | frozenset(ends),
            _encode=encode,
        )

    @classmethod
    def from_tokenizer(
        cls,
        tokenizer: Any,
        *,
        eos_ids: Iterable[int] | int | None = None,
        logit_width: int | None = None,
    ) -> Vocabulary:
        """Read the exact bytes of every id of `tokenizer`.

        Accepts: a fast tokenizer of transformers, a `tokenizers.Tokenizer`, a tiktoken `Encoding`
        or its ranks ({bytes: rank}), a sentencepiece processor, a tekken dict, or a path to
        `tokenizer.json`, `tekken.json`, `*.tiktoken`, `*.model`, `*.gguf` or a folder with one of
        them. `eos_ids` replaces the end tokens that the tokenizer names. Raises
        `VocabularyError`, naming what was found, if the bytes are not certain.
        """
        from structspec.vocab.sources import read_tokenizer

        source = read_tokenizer(tokenizer)
        return cls(
            source.tokens,
            source.eos_ids if eos_ids is None else eos_ids,
            source.special,
            logit_width,
            source.encode,
        )

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"a Vocabulary is immutable; '{name}' cannot be set")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"a Vocabulary is immutable; '{name}' cannot be deleted")

    def __reduce__(self) -> tuple[Any, ...]:
        state = (self.tokens, self.eos_ids, dict(self.special), self.size, self._encode)
        return _restore, (*state, self.special_ids)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Vocabulary):
            return NotImplemented
        return self is other or self.fingerprint == other.fingerprint

    def __hash__(self) -> int:
        return hash(self.fingerprint)

    def __repr__(self) -> str:
        return f"Vocabulary(size={self.size}, eos_ids={list(self.eos_ids)})"

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 (hex) of size, bytes, end tokens and control tokens."""
        lengths = np.array([-1 if t is None else len(t) for t in self.tokens], "<i4")
        digest = hashlib.sha256(b"structspec vocabulary 1\0")
        digest.update(repr((self.size, self.eos_ids, sorted(self.special.items()))).encode())
        digest.update(np.array(sorted(self.special_ids), "<i4").tobytes())
        digest.update(lengths.tobytes())
        digest.update(b"".join(token for token in self.tokens if token))
        return digest.hexdigest()

    def special_id(self, name: str) -> int | None:
        """The id of a special token by its name, or by its number as GBNF writes it, `<[5]>`."""
        found = self.special.get(name)
        if found is None and name[:2] == "<[" and name[-2:] == "]>" and name[2:-2].isdecimal():
            number = int(name[2:-2])
            found = number if number in self.special_ids else None
        return found

    @cached_property
    def trie(self) -> Trie:
        """The trie of all tokens that write something."""
        return Trie.of_sorted(self.tokens, self._order)

    @cached_property
    def plain(self) -> PlainTokens:
        """The plain tokens as bitsets by length, and the trie of the others."""
        return PlainTokens.build(self.tokens, self.size, self._order)

    @cached_property
    def _order(self) -> list[int]:
        """All ids that write something, by their bytes."""
        return in_order(self.tokens)

    @cached_property
    def single_bytes(self) -> frozenset[int]:
        """The bytes that some token writes alone."""
        return frozenset(token[0] for token in self.tokens if token and len(token) == 1)

    @cached_property
    def written_bytes(self) -> frozenset[int]:
        """The bytes that occur in some token."""
        return frozenset(b"".join(token for token in self.tokens if token))

    @cached_property
    def _ids(self) -> dict[bytes, int]:
        """The first id of every non-empty byte string."""
        found: dict[bytes, int] = {}
        for index, token in enumerate(self.tokens):
            if token:
                found.setdefault(token, index)
        return found

    @cached_property
    def _longest(self) -> int:
        return max(map(len, self._ids), default=0)

    def token_bytes(self, token_id: int) -> bytes | None:
        """The bytes of one id, None if it writes no text. Raises for ids out of range."""
        index = _valid_id(token_id, self.size, "token")
        return self.tokens[index] if index < len(self.tokens) else None

    def decode(self, ids: Iterable[int]) -> bytes:
        """The bytes that `ids` write together; control tokens write nothing."""
        return b"".join(self.token_bytes(i) or b"" for i in ids)

    def encode(self, data: bytes) -> list[int]:
        """The canonical tokens of `data`; their bytes, concatenated, are exactly `data`.

        The tokenizer's own encoding if there is one and it reproduces `data` (a tokenizer may
        normalise text, which would change it); else the longest match from the left, and where
        that is stuck, the fewest tokens. Raises `VocabularyError` if no tokens write `data`.
        """
        if not data:
            return []
        if self._encode is not None:
            ids = [int(i) for i in self._encode(data)]
            if all(0 <= i < self.size for i in ids) and self.decode(ids) == data:
                return [i for i in ids if self.token_bytes(i)]
        return self._longest_match(data) or self._fewest(data)

    def _longest_match(self, data: bytes) -> list[int]:
        """Greedy longest match; empty if it gets stuck."""
        ids: list[int] = []
        at = 0
        while at < len(data):
            for end in range(min(len(data), at + self._longest), at, -1):
                found = self._ids.get(data[at:end])
                if found is not None:
                    ids.append(found)
                    at = end
                    break
            else:
                return []
        return ids

    def _fewest(self, data: bytes) -> list[int]:
        """A tokenisation with the fewest tokens, by dynamic programming from the right."""
        far = len(data) + 1
        best = [far] * len(data) + [0]
        step = [0] * len(data)
        for at in range(len(data) - 1, -1, -1):
            for end in range(at + 1, min(len(data), at + self._longest) + 1):
                if best[end] + 1 < best[at] and data[at:end] in self._ids:
                    best[at], step[at] = best[end] + 1, end
        if best[0] >= far:
            missing = sorted(set(data) - self.written_bytes)
            why = f"no token contains the bytes {bytes(missing)!r}" if missing else "no split fits"
            raise VocabularyError(f"this vocabulary cannot write {data!r:.80}: {why}")
        ids: list[int] = []
        at = 0
        while at < len(data):
            ids.append(self._ids[data[at : step[at]]])
            at = step[at]
        return ids


def _valid_id(value: Any, size: int, what: str) -> int:
    try:
        index = operator.index(value)
    except TypeError:
        raise VocabularyError(
            f"{what} id {value!r:.60} is a {type(value).__name__}, not an integer"
        ) from None
    if not 0 <= index < size:
        raise VocabularyError(
            f"{what} id {index} is out of range: ids go from 0 to {size - 1}; is logit_width right?"
        )
    return index


def _specials(special: Mapping[Any, Any], size: int) -> tuple[dict[str, int], set[int]]:
    """Names and ids of the control tokens from {name: id} or {id: name}."""
    names: dict[str, int] = {}
    ids: set[int] = set()
    for key, value in special.items():
        name, index = (key, value) if isinstance(key, str) else (value, key)
        if not isinstance(name, str):
            raise VocabularyError(
                f"special={{{key!r:.40}: {value!r:.40}}} is neither {{name: id}} nor {{id: name}}"
            )
        index = _valid_id(index, size, f"special token '{name}'")
        names.setdefault(name, index)
        ids.add(index)
    return names, ids


def _restore(
    tokens: tuple[bytes | None, ...],
    eos_ids: tuple[int, ...],
    special: dict[str, int],
    size: int,
    encode: Encode | None,
    special_ids: frozenset[int],
) -> Vocabulary:
    vocab = Vocabulary(tokens, eos_ids, special, size, encode)
    vocab.__dict__["special_ids"] = special_ids
    return vocab
