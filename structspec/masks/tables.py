"""What constraints need of a vocabulary, computed once for each vocabulary.

Owns the flat token bytes, the end tokens' row, the parts of the trie that costs need, and which
bytes can be written. Binding a second grammar to the same vocabulary costs none of this.

    >>> from structspec.vocab import Vocabulary
    >>> vocab = Vocabulary([b"a", b"ab", None], eos_ids=[2])
    >>> tables_of(vocab) is tables_of(vocab), tables_of(vocab).covered
    (True, False)
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from structspec.automata.costs import TokenTrie
from structspec.vocab import Vocabulary

__all__ = ["VocabularyTables", "tables_of"]

_KEY = "_mask_tables"


@dataclass(frozen=True, eq=False)
class VocabularyTables:
    """Token i is token_bytes[token_start[i]:token_start[i + 1]]; enabled: bool[256], the bytes that
    occur in some token; eos: uint32[ceil(V / 32)]. Covered: every such byte is a token of its own.
    """

    token_start: NDArray[np.int32]
    token_bytes: NDArray[np.uint8]
    trie: TokenTrie
    enabled: NDArray[np.bool_]
    eos: NDArray[np.uint32]
    covered: bool


def tables_of(vocab: Vocabulary) -> VocabularyTables:
    """The tables, kept with the vocabulary (two threads may both make them: they are equal)."""
    found = vocab.__dict__.get(_KEY)
    if found is None:
        found = vocab.__dict__[_KEY] = _make(vocab)
    assert isinstance(found, VocabularyTables)
    return found


def _make(vocab: Vocabulary) -> VocabularyTables:
    lengths = np.fromiter((len(t or b"") for t in vocab.tokens), np.int64, len(vocab.tokens))
    start = np.zeros(len(vocab.tokens) + 1, np.int32)
    start[1:] = np.cumsum(lengths)
    data = np.frombuffer(b"".join(t or b"" for t in vocab.tokens) + b"\0", np.uint8)
    terminal = (np.diff(vocab.trie.token_offset) > 0).astype(np.uint8)
    enabled = np.zeros(256, np.bool_)
    enabled[list(vocab.written_bytes)] = True
    eos = np.zeros(-(-vocab.size // 32), np.uint32)
    for token in vocab.eos_ids:
        eos[token >> 5] |= np.uint32(1 << (token & 31))
    # Copies: kernels are compiled for writable arrays only.
    byte, skip = vocab.trie.byte.copy(), vocab.trie.skip.copy()
    root, child = np.full(256, -1, np.int32), 1
    while child < len(byte):
        root[byte[child]] = child
        child = int(skip[child])
    trie = TokenTrie(byte, skip, terminal, root)
    covered = vocab.written_bytes <= vocab.single_bytes
    return VocabularyTables(start, data, trie, enabled, eos, covered)
