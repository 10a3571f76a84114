"""SentencePiece models: a processor object or a `*.model` file.

Owns the reading of pieces by their *type*: byte pieces are one byte, control, unknown and unused
pieces write nothing, all others are their text with the blank sign U+2581 as a blank, which is
what the library's own decoder does with it wherever it stands.

The model may put a blank before every text (`add_dummy_prefix`); the encoding given to the
vocabulary runs a copy of the model with that switched off, since what we encode continues a text.
The copy needs the protobuf package; without it the longest match is used instead.

Sibling: `source_gguf`, where the same pieces come with the same types.

Example (needs sentencepiece)::

    source = read_model_file(Path("tokenizer.model"))
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from structspec.errors import MissingExtra, VocabularyError
from structspec.vocab.source import Source

__all__ = ["BLANK", "byte_piece", "read_model_file", "read_processor"]

BLANK: Final = "\u2581"
"""The sign that stands for a blank inside pieces."""


def byte_piece(piece: str) -> bytes | None:
    """The byte that a piece like `<0x0A>` stands for, None if it is not spelled like one."""
    if len(piece) != 6 or not piece.startswith("<0x") or piece[5] != ">":
        return None
    try:
        return bytes([int(piece[3:5], 16)])
    except ValueError:
        return None


class EncodePieces:
    """A sentencepiece processor as an `Encode`."""

    def __init__(self, processor: Any) -> None:
        self.processor = processor

    def __call__(self, data: bytes) -> Sequence[int]:
        try:
            text = data.decode("utf-8")
        except UnicodeDecodeError:
            return ()
        ids: Sequence[int] = self.processor.encode(text, add_bos=False, add_eos=False)
        return ids


def read_model_file(path: Path) -> Source:
    """A model file; needs the package sentencepiece."""
    try:
        import sentencepiece
    except ImportError:
        raise MissingExtra("sentencepiece", "tokenizers") from None
    try:
        processor = sentencepiece.SentencePieceProcessor(model_file=str(path))
    except Exception as error:  # the library raises its own RuntimeErrors and OSErrors
        raise VocabularyError(
            f"'{path}' is neither GGUF, JSON, ranks nor a sentencepiece model: {error}"
        ) from None
    return read_processor(processor)


def read_processor(processor: Any) -> Source:
    """A `SentencePieceProcessor`."""
    entries: dict[int, bytes | None] = {}
    special: dict[str, int] = {}
    for index in range(processor.GetPieceSize()):
        piece: str = processor.IdToPiece(index)
        if processor.IsControl(index) or processor.IsUnknown(index):
            special[piece] = index
        elif processor.IsUnused(index):
            entries[index] = None
        elif processor.IsByte(index):
            data = byte_piece(piece)
            if data is None:
                raise VocabularyError(f"the byte piece {index} is spelled {piece!r}, not <0xXX>")
            entries[index] = data
        else:
            entries[index] = piece.replace(BLANK, " ").encode("utf-8")
    encode, dummy_prefix = _continuing(processor)
    end = int(processor.eos_id())
    return Source.from_ids(
        entries,
        eos_ids=(end,) if end >= 0 else (),
        special=special,
        encode=encode,
        dummy_prefix=dummy_prefix,
    )


def _continuing(processor: Any) -> tuple[EncodePieces | None, bool]:
    """The encoding of a text that continues another, and whether the model adds a blank."""
    try:
        import sentencepiece
        from sentencepiece import sentencepiece_model_pb2
    except ImportError:
        return None, True
    model: Any = sentencepiece_model_pb2.ModelProto()  # type: ignore[attr-defined, unused-ignore]
    model.ParseFromString(processor.serialized_model_proto())
    if model.denormalizer_spec.precompiled_charsmap:
        raise VocabularyError(
            "this sentencepiece model rewrites decoded text (denormalizer_spec), so its pieces "
            "have no bytes of their own"
        )
    dummy_prefix = bool(model.normalizer_spec.add_dummy_prefix)
    model.normalizer_spec.add_dummy_prefix = False
    model.normalizer_spec.remove_extra_whitespaces = False
    copy = sentencepiece.SentencePieceProcessor(model_proto=model.SerializeToString())
    return EncodePieces(copy), dummy_prefix
