"""From a tokenizer, whatever its kind, to the exact bytes of every id.

Owns `Source`, the common result, and the choice of reader; one sibling per kind does the work:
`source_hf` (tokenizer.json), `source_ranks` (tiktoken, tekken), `source_sentencepiece`,
`source_gguf`. Which kind it is follows from the object's attributes or the file's content, never
from a model's name.

Invariants: no package of the tokenizer's is imported unless such an object or file is given. What
cannot be determined exactly raises `VocabularyError` naming what was found.

Cost: one pass over the vocabulary; reading the JSON of 130,000 tokens takes most of a second.

Example::

    >>> source = read_tokenizer({b"a": 0, b"b": 1, b"ab": 2})
    >>> source.tokens
    [b'a', b'b', b'ab']
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from structspec.errors import VocabularyError
from structspec.vocab.source import Source

__all__ = ["Source", "read_tokenizer"]

_FOLDER_NAMES = ("tokenizer.json", "tekken.json", "tokenizer.model")


def read_tokenizer(tokenizer: Any) -> Source:
    """Read `tokenizer`; see `Vocabulary.from_tokenizer` for what may be given."""
    if isinstance(tokenizer, str | os.PathLike):
        return _read_path(Path(tokenizer))
    if isinstance(tokenizer, Mapping):
        return _read_mapping(tokenizer)
    if hasattr(tokenizer, "_mergeable_ranks"):
        from structspec.vocab.source_ranks import read_tiktoken

        return read_tiktoken(tokenizer)
    if hasattr(tokenizer, "_tekken_token2id_nospecial"):
        from structspec.vocab.source_ranks import read_tekkenizer

        return read_tekkenizer(tokenizer)
    if hasattr(tokenizer, "serialized_model_proto") and hasattr(tokenizer, "IdToPiece"):
        from structspec.vocab.source_sentencepiece import read_processor

        return read_processor(tokenizer)
    if hasattr(tokenizer, "backend_tokenizer"):
        from structspec.vocab.source_hf import read_transformers

        return read_transformers(tokenizer)
    if hasattr(tokenizer, "to_str") and hasattr(tokenizer, "get_added_tokens_decoder"):
        from structspec.vocab.source_hf import read_spec

        return read_spec(json.loads(tokenizer.to_str()))
    for attribute in ("instruct_tokenizer", "tokenizer"):  # wrappers: chat tokenizer, processor
        inner = getattr(tokenizer, attribute, None)
        if inner is not None and inner is not tokenizer:
            return read_tokenizer(inner)
    if type(getattr(tokenizer, "_model", None)).__name__ == "SentencePieceProcessor":
        return read_tokenizer(tokenizer._model)
    raise VocabularyError(
        f"cannot read token bytes from a {type(tokenizer).__module__}.{type(tokenizer).__name__}; "
        "pass a fast (tokenizers-based) tokenizer, the path of its tokenizer.json, or "
        "Vocabulary(tokens=[bytes, ...]) directly"
    )


def _read_path(path: Path) -> Source:
    if path.is_dir():
        found = [path / name for name in _FOLDER_NAMES if (path / name).is_file()]
        found = found or sorted(path.glob("*.gguf"))
        if not found:
            raise VocabularyError(
                f"the folder '{path}' has none of {', '.join(_FOLDER_NAMES)} and no *.gguf"
            )
        if len(found) > 1 and found[0].suffix == ".gguf":
            names = ", ".join(p.name for p in found)
            raise VocabularyError(f"the folder '{path}' has several models ({names}); pass one")
        path = found[0]
    if not path.is_file():
        raise VocabularyError(f"there is no tokenizer file '{path}'")
    with path.open("rb") as file:
        head = file.read(4096)
    if head.startswith(b"GGUF"):
        from structspec.vocab.source_gguf import read_gguf

        return read_gguf(path)
    if head.lstrip().startswith(b"{"):
        try:
            document = json.loads(path.read_text("utf-8"))
        except ValueError as error:
            raise VocabularyError(f"'{path}' is not valid JSON: {error}") from None
        if "model" in document:
            from structspec.vocab.source_hf import read_spec, sibling_eos_ids

            source = read_spec(document)
            return source if source.eos_ids else source.with_eos(sibling_eos_ids(path, source))
        return _read_mapping(document, str(path))
    if path.suffix == ".tiktoken" or _looks_like_ranks(head):
        from structspec.vocab.source_ranks import read_ranks, read_ranks_file

        return read_ranks(read_ranks_file(path))
    from structspec.vocab.source_sentencepiece import read_model_file

    return read_model_file(path)


def _read_mapping(document: Mapping[Any, Any], name: str = "the mapping") -> Source:
    if document and all(isinstance(key, bytes) for key in document):
        from structspec.vocab.source_ranks import read_ranks

        return read_ranks(document)
    if "vocab" in document and "config" in document:
        from structspec.vocab.source_ranks import read_tekken

        return read_tekken(document)
    if isinstance(document.get("model"), Mapping):
        from structspec.vocab.source_hf import read_spec

        return read_spec(document)
    keys = ", ".join(map(repr, list(document)[:6]))
    raise VocabularyError(
        f"{name} is no tokenizer that can be read: its keys are {keys}; expected those of a "
        "tokenizer.json ('model'), of tekken ('config', 'vocab'), or ranks {bytes: int}"
    )


def _looks_like_ranks(head: bytes) -> bool:
    parts = head.split(b"\n", 1)[0].split()
    return len(parts) == 2 and parts[1].isdigit()
