"""Vocabularies given as byte strings with ranks: tiktoken and tekken.

Owns the reading of a tiktoken `Encoding`, of its raw ranks ({bytes: rank} or a `.tiktoken` file)
and of Mistral's tekken JSON. Here the bytes are stated, nothing has to be worked out.

Invariants: special tokens have no bytes. In tekken the special tokens occupy the first ids, so
the id of a token is its rank plus their number, and the list is cut at the stated size.

Sibling: `source_hf`, for byte-level tokenizers that are stored as text.

Example::

    >>> config = {"default_vocab_size": 4, "default_num_special_tokens": 2, "pattern": "."}
    >>> vocab = [{"rank": 0, "token_bytes": "YQ=="}, {"rank": 1, "token_bytes": "Yg=="}]
    >>> read_tekken({"config": config, "vocab": vocab, "special_tokens": []}).tokens
    [None, None, b'a', b'b']
"""

from __future__ import annotations

import base64
import binascii
import importlib.util
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from structspec.errors import VocabularyError
from structspec.vocab.source import Source

__all__ = ["read_ranks", "read_ranks_file", "read_tekken", "read_tekkenizer", "read_tiktoken"]

# Files up to version 7 do not list their special tokens; the end token is the third of them.
_TEKKEN_UNLISTED = {"<unk>": 0, "<s>": 1, "</s>": 2}


class EncodeRanks:
    """A tiktoken `Encoding` as an `Encode`; `offset` is added to its ids."""

    def __init__(self, encoding: Any, offset: int = 0) -> None:
        self.encoding = encoding
        self.offset = offset

    def __call__(self, data: bytes) -> Sequence[int]:
        try:
            text = data.decode("utf-8")
        except UnicodeDecodeError:
            return ()
        return [i + self.offset for i in self.encoding.encode_ordinary(text)]


def read_tiktoken(encoding: Any) -> Source:
    """A tiktoken `Encoding`."""
    ranks: Mapping[bytes, int] = encoding._mergeable_ranks
    special: dict[str, int] = dict(encoding._special_tokens)
    end = special.get("<|endoftext|>")
    return Source.from_ids(
        _by_id(ranks),
        eos_ids=() if end is None else (end,),
        special=special,
        encode=EncodeRanks(encoding),
    )


def read_ranks(ranks: Mapping[bytes, int]) -> Source:
    """Raw ranks; without a splitting pattern the encoding is the longest match."""
    return Source.from_ids(_by_id(ranks))


def read_ranks_file(path: Path) -> dict[bytes, int]:
    """The ranks in a `.tiktoken` file: a line is a token in base64, a blank and its rank."""
    ranks: dict[bytes, int] = {}
    for number, line in enumerate(path.read_bytes().splitlines(), 1):
        if not line.strip():
            continue
        try:
            token, rank = line.split()
            ranks[base64.b64decode(token, validate=True)] = int(rank)
        except (ValueError, binascii.Error):
            raise VocabularyError(
                f"'{path}', line {number}: {line!r:.60} is not 'base64 rank'"
            ) from None
    return ranks


def read_tekken(document: Mapping[str, Any]) -> Source:
    """The content of a tekken JSON file."""
    config = document["config"]
    try:
        size = int(config["default_vocab_size"])
        specials = int(config["default_num_special_tokens"])
        pattern = str(config["pattern"])
        ranks = {
            base64.b64decode(entry["token_bytes"]): int(entry["rank"])
            for entry in document["vocab"]
            if int(entry["rank"]) < size - specials
        }
    except (KeyError, TypeError, ValueError) as error:
        raise VocabularyError(f"this is no complete tekken file: {error!r}") from None
    if sorted(ranks.values()) != list(range(size - specials)):
        raise VocabularyError(
            f"tekken: expected the ranks 0 to {size - specials - 1}, found {len(ranks)} of them"
        )
    listed = document.get("special_tokens")
    names = (
        dict(_TEKKEN_UNLISTED)
        if listed is None
        else {entry["token_str"]: int(entry["rank"]) for entry in listed}
    )
    encode = None
    if importlib.util.find_spec("tiktoken") is not None:
        import tiktoken

        encoding = tiktoken.Encoding(
            "tekken", pat_str=pattern, mergeable_ranks=ranks, special_tokens={}
        )
        encode = EncodeRanks(encoding, specials)
    return _tekken(ranks, specials, names, encode)


def read_tekkenizer(tokenizer: Any) -> Source:
    """A `Tekkenizer` object of mistral-common."""
    names = dict(tokenizer._special_tokens_reverse_vocab)
    specials = int(tokenizer.num_special_tokens)
    encode = EncodeRanks(tokenizer._model, specials)
    return _tekken(tokenizer._tekken_token2id_nospecial, specials, names, encode)


def _tekken(
    ranks: Mapping[bytes, int],
    specials: int,
    names: dict[str, int],
    encode: EncodeRanks | None,
) -> Source:
    out = {name: index for name, index in names.items() if not 0 <= index < specials}
    if out:
        raise VocabularyError(f"tekken: special tokens outside the first {specials} ids: {out}")
    entries: dict[int, bytes | None] = dict.fromkeys(range(specials))
    entries.update((rank + specials, token) for token, rank in ranks.items())
    end = names.get("</s>")
    return Source.from_ids(
        entries, eos_ids=() if end is None else (end,), special=names, encode=encode
    )


def _by_id(ranks: Mapping[bytes, int]) -> dict[int, bytes | None]:
    entries: dict[int, bytes | None] = {}
    for token, rank in ranks.items():
        if rank in entries:
            raise VocabularyError(f"rank {rank} belongs to both {entries[rank]!r} and {token!r}")
        entries[rank] = token
    return entries
