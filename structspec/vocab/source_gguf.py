"""Vocabularies inside GGUF model files.

Owns a reader for the file's metadata (key-value section only; tensors are not touched) and the
meaning of `tokenizer.ggml.*`: `tokens`, `token_type` and `model`, which says how tokens are
spelled: `gpt2` in the byte-level alphabet, `llama` (and `t5`) as sentencepiece pieces.

Invariants: token types as in the format's description: 1 normal, 2 unknown, 3 control, 4 user
defined, 5 unused, 6 byte. Unknown, control and unused tokens write nothing. End tokens are those
that the file names as end of text, of turn or of message.

Cost: the metadata is read once; 50,000 tokens take about 0.1 s. The file's own encoding is not
available: `Vocabulary.encode` uses the longest match.
Sibling: `source_hf`, if the model comes with a tokenizer.json.

Example::

    source = read_gguf(Path("model.gguf"))
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any, BinaryIO, Final

from structspec.errors import VocabularyError
from structspec.vocab.source import Source
from structspec.vocab.source_hf import byte_level
from structspec.vocab.source_sentencepiece import BLANK, byte_piece

__all__ = ["read_gguf", "read_metadata"]

_SCALARS: Final = dict(enumerate("BbHhIif?")) | {10: "Q", 11: "q", 12: "d"}
_STRING: Final = 8
_ARRAY: Final = 9
_NORMAL, _UNKNOWN, _CONTROL, _USER, _UNUSED, _BYTE = 1, 2, 3, 4, 5, 6
_END_KEYS: Final = ("eos_token_id", "eot_token_id", "eom_token_id")


def read_gguf(path: Path) -> Source:
    """The vocabulary of a GGUF file."""
    metadata = read_metadata(path, "tokenizer.ggml.")
    model = metadata.get("tokenizer.ggml.model")
    tokens = metadata.get("tokenizer.ggml.tokens")
    types = metadata.get("tokenizer.ggml.token_type")
    if tokens is None:
        raise VocabularyError(f"'{path.name}' has no tokenizer.ggml.tokens")
    if model not in ("gpt2", "llama", "t5"):
        raise VocabularyError(
            f"'{path.name}' has a tokenizer of the kind {model!r}; 'gpt2', 'llama' and 't5' "
            "state the bytes of their tokens"
        )
    if types is None or len(types) != len(tokens):
        raise VocabularyError(
            f"'{path.name}' has {len(tokens)} tokens but "
            f"{'no' if types is None else len(types)} token types, so control tokens are unknown"
        )
    entries: dict[int, bytes | None] = {}
    special: dict[str, int] = {}
    for index, (spelled, kind) in enumerate(zip(tokens, types, strict=True)):
        text = _text(spelled, index)
        if kind in (_UNKNOWN, _CONTROL):
            special.setdefault(text, index)
            entries[index] = None
        elif kind == _UNUSED:
            entries[index] = None
        elif kind == _BYTE:
            data = byte_piece(text)
            if data is None:
                raise VocabularyError(f"the byte token {index} is spelled {text!r}, not <0xXX>")
            entries[index] = data
        elif kind not in (_NORMAL, _USER):
            raise VocabularyError(f"token {index} ({text!r}) has the unknown type {kind}")
        elif model == "gpt2":
            data = byte_level(text) if kind == _NORMAL else text.encode("utf-8")
            if data is None:
                raise VocabularyError(
                    f"token {index} ({text!r}) is not spelled in the byte-level alphabet"
                )
            entries[index] = data
        else:
            entries[index] = text.replace(BLANK, " ").encode("utf-8")
    ends = [metadata.get(f"tokenizer.ggml.{key}") for key in _END_KEYS]
    eos_ids = dict.fromkeys(int(end) for end in ends if end is not None)
    prefix = metadata.get("tokenizer.ggml.add_space_prefix", model != "gpt2")
    return Source.from_ids(entries, eos_ids=eos_ids, special=special, dummy_prefix=bool(prefix))


def _text(spelled: bytes, index: int) -> str:
    try:
        return spelled.decode("utf-8")
    except UnicodeDecodeError:
        raise VocabularyError(f"token {index} is stored as {spelled!r}, not UTF-8") from None


def read_metadata(path: Path, prefix: str) -> dict[str, Any]:
    """The metadata whose key starts with `prefix`; token texts stay bytes, other strings str."""
    with path.open("rb") as file:
        try:
            return _read_metadata(file, prefix)
        except (struct.error, UnicodeDecodeError, OverflowError, MemoryError):
            raise VocabularyError(f"'{path.name}' is not a complete GGUF file") from None


def _read_metadata(file: BinaryIO, prefix: str) -> dict[str, Any]:
    if file.read(4) != b"GGUF":
        raise VocabularyError("this is not a GGUF file")
    version = file.read(4)
    # The version is a small number: whichever order makes it small is the file's byte order.
    order = "<" if struct.unpack("<I", version)[0] < 1 << 16 else ">"
    if struct.unpack(order + "I", version)[0] not in (2, 3):
        raise VocabularyError(f"GGUF version {version!r} is not supported, only 2 and 3")
    _, pairs = _unpack(file, order + "QQ")
    found: dict[str, Any] = {}
    for _ in range(pairs):
        key = _string(file, order).decode("utf-8")
        (kind,) = _unpack(file, order + "I")
        value = _value(file, order, kind)
        if key.startswith(prefix):
            found[key] = value.decode("utf-8") if isinstance(value, bytes) else value
    return found


def _unpack(file: BinaryIO, layout: str) -> tuple[Any, ...]:
    return struct.unpack(layout, file.read(struct.calcsize(layout)))


def _string(file: BinaryIO, order: str) -> bytes:
    (length,) = _unpack(file, order + "Q")
    data = file.read(length)
    if len(data) != length:
        raise struct.error
    return data


def _value(file: BinaryIO, order: str, kind: int) -> Any:
    if kind == _STRING:
        return _string(file, order)
    if kind == _ARRAY:
        (inner, count) = _unpack(file, order + "IQ")
        if inner in _SCALARS:
            return list(_unpack(file, f"{order}{count}{_SCALARS[inner]}"))
        return [_value(file, order, inner) for _ in range(count)]
    if kind not in _SCALARS:
        raise VocabularyError(f"the GGUF metadata has the unknown type {kind}")
    return _unpack(file, order + _SCALARS[kind])[0]
