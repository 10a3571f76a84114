"""Does a vocabulary say the same as its tokenizer? A check by encoding texts.

Owns `verify`: encode a text with the tokenizer itself, concatenate the bytes that the vocabulary
gives for the ids, compare with the text's UTF-8. A mismatch means wrong bytes, or a tokenizer that
rewrites its input (lower case, Unicode normal forms); choose texts that it leaves alone.

Example::

    verify(Vocabulary.from_tokenizer(tokenizer), tokenizer, ["Hello, wörld", '{"a": [1, 2]}'])
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from structspec.errors import VocabularyError
from structspec.vocab.vocabulary import Vocabulary

__all__ = ["verify"]


def verify(vocab: Vocabulary, tokenizer: Any, texts: Iterable[str]) -> None:
    """Raise `VocabularyError` at the first text whose tokens do not spell it.

    One blank before the text is tolerated if the text has none there: many sentencepiece
    tokenizers put it there themselves.
    """
    for text in texts:
        ids = _encode(tokenizer, text)
        written = vocab.decode(ids)
        wanted = text.encode("utf-8")
        if written not in (wanted, b" " + wanted):
            pairs = [(i, vocab.token_bytes(i)) for i in ids[:24]]
            raise VocabularyError(
                f"the vocabulary disagrees with its tokenizer: {text!r:.80} is encoded as ids "
                f"that write {written!r:.120}; the first ones are {pairs}"
            )


def _encode(tokenizer: Any, text: str) -> list[int]:
    """The tokenizer's ids for `text` without control tokens."""
    if hasattr(tokenizer, "encode_ordinary"):  # tiktoken
        return list(tokenizer.encode_ordinary(text))
    if hasattr(tokenizer, "serialized_model_proto"):  # sentencepiece
        return list(tokenizer.encode(text, add_bos=False, add_eos=False))
    if hasattr(tokenizer, "_tekken_token2id_nospecial"):
        return list(tokenizer.encode(text, bos=False, eos=False))
    ids = tokenizer.encode(text, add_special_tokens=False)
    return list(getattr(ids, "ids", ids))
