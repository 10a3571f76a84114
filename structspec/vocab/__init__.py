"""Vocabularies: which bytes each token id writes, the tries and bulk classes over them.

`Vocabulary` is the one name that other rooms need; `sources` reads tokenizers, `trie` and `plain`
hold what masks walk.
"""

from structspec.vocab.plain import PlainTokens
from structspec.vocab.selfcheck import verify
from structspec.vocab.trie import Trie
from structspec.vocab.vocabulary import Vocabulary

__all__ = ["PlainTokens", "Trie", "Vocabulary", "verify"]
