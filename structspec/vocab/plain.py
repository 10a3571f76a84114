"""Plain tokens: those that are nothing but ordinary characters of a JSON string.

A token is *plain* if its bytes are complete, well-formed UTF-8 and every character is at least
U+0020 and neither the quote nor the backslash. Inside a string without a pattern all plain tokens
with few enough characters are legal at once: a mask there is one row of `PlainTokens.upto` plus a
walk of `PlainTokens.rest`. `walk`, `others` and `tails` are the same tokens laid out for masks.

Invariants
- `lengths[i]` is the number of code points of token i, 0 if it is not plain;
- bit `i % 32` of word `i // 32` of `upto[l]` is set iff token i is plain and `lengths[i] <= l`;
- every usable token is plain or in `rest`, never both. Plain tokens of more than `LONGEST`
  characters count as not plain, which bounds the number of rows;
- `walk` holds the plain tokens, with summaries; `others` those of `rest`; `tails` holds for each
  of `rest` only what follows its longest plain beginning, so it is much smaller: where plain text
  changes nothing, a token may follow iff its tail may and its beginning has allowed characters;
- `begun` is the set of all characters (as in `Blocks.content`) in those beginnings;
- bit i of `pieces` is set iff the tail of token i is a character beyond ASCII or its beginning;
- `characters` are all of plain tokens and of those beginnings.

Cost: linear in the bytes of the vocabulary (numba); `upto` takes 4 * (Lmax + 1) * ceil(V / 32)
bytes, 1 MiB for 131,000 tokens.

Example::

    >>> plain = PlainTokens.build([b"ab", b'"', b"\\xc3\\xa9", b"\\xc3"], size=4)
    >>> plain.lengths.tolist(), plain.upto[1].tolist(), plain.rest.token_ids.tolist()
    ([2, 0, 1, 0], [4], [1, 3])
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from structspec.machine_code import ready
from structspec.machine_code.kernel import kernel
from structspec.vocab.blocks import Blocks
from structspec.vocab.characters import Characters, character_bits
from structspec.vocab.trie import Trie, concatenate, in_order

__all__ = ["LONGEST", "PlainTokens"]

LONGEST: Final = 64
"""Plain tokens with more characters than this are treated as not plain."""


@dataclass(frozen=True, eq=False)
class PlainTokens:
    """The plain tokens of a vocabulary as bitsets by length, and the trie of all others.

    Shapes: `lengths` int32[V] (code points, 0: not plain), `upto` uint32[Lmax + 1, ceil(V / 32)].
    """

    lengths: npt.NDArray[np.int32]
    upto: npt.NDArray[np.uint32]
    rest: Trie
    walk: Blocks
    others: Blocks
    tails: Blocks
    begun: npt.NDArray[np.uint32]
    pieces: npt.NDArray[np.uint32]
    characters: Characters

    @property
    def longest(self) -> int:
        """Lmax, the largest character length of a plain token; `upto[Lmax]` holds them all."""
        return len(self.upto) - 1

    @classmethod
    def build(
        cls, tokens: Sequence[bytes | None], size: int, order: Sequence[int] | None = None
    ) -> PlainTokens:
        """Classify `tokens` for masks of `size` bits. order: all ids `in_order`, if known."""
        ready.ensure()
        data, offsets = concatenate([token or b"" for token in tokens])
        lengths = np.zeros(size, np.int32)
        lengths[: len(tokens)], begun = _plain_lengths(data, offsets)
        lengths[lengths > LONGEST] = 0
        longest = int(lengths.max()) if size else 0
        upto = np.zeros((longest + 1, (size + 31) // 32), np.uint32)
        ids = np.flatnonzero(lengths)
        masks = np.left_shift(np.uint32(1), (ids % 32).astype(np.uint32))
        np.bitwise_or.at(upto, (lengths[ids], ids // 32), masks)
        np.bitwise_or.accumulate(upto, axis=0, out=upto)
        lengths.flags.writeable = False
        upto.flags.writeable = False
        others = np.flatnonzero(lengths[: len(tokens)] == 0).tolist()
        ordered = np.array(in_order(tokens) if order is None else order, np.int32)
        plain = lengths[ordered] > 0
        rest = Trie.of_sorted(tokens, ordered[~plain].tolist())
        tails: list[bytes | None] = [None] * len(tokens)
        beginnings: set[bytes] = set()
        for i in others:
            if token := tokens[i]:
                start = int(begun[i])
                while start == len(token) or (begun[i] == len(token) and token[start] >> 6 == 2):
                    start -= 1  # a long plain token: its last character stands for it
                tails[i] = token[start:]
                beginnings.add(token[:start])
        pieces = np.zeros(upto.shape[1], np.uint32)
        for i in others:
            if _is_piece(tails[i] or b""):
                pieces[i >> 5] |= np.uint32(1 << (i & 31))
        before = set(b"".join(beginnings).decode())
        characters = before.union(b"".join(tokens[i] or b"" for i in ids.tolist()).decode())
        bits = character_bits(characters)
        begun_set = np.zeros(4, np.uint32)
        for character in before:
            bit = int(bits[ord(character)])
            begun_set[bit >> 5] |= np.uint32(1 << (bit & 31))
        return cls(
            lengths,
            upto,
            rest,
            walk=Blocks.build(Trie.of_sorted(tokens, ordered[plain].tolist()), bits),
            others=Blocks.build(rest),
            tails=Blocks.build(Trie.build(tails)),
            begun=begun_set,
            pieces=pieces,
            characters=Characters(characters, bits),
        )


def _is_piece(tail: bytes) -> bool:
    """Whether a character beyond ASCII begins with these bytes, or is them."""
    if not tail or not 0xC2 <= tail[0] <= 0xF4:
        return False
    length = 2 + (tail[0] >= 0xE0) + (tail[0] >= 0xF0)
    if len(tail) == 1 or len(tail) > length:
        return len(tail) == 1
    try:  # the second byte decides, and any may follow it
        tail.ljust(length, b"\x80").decode()
    except UnicodeDecodeError:
        return False
    return True


@kernel
def _plain_lengths(data: Any, offsets: Any) -> Any:
    """Code points per token, 0 where it is not plain, and the bytes of its plain beginning.

    UTF-8 as in the Unicode standard, D92.
    """
    count = len(offsets) - 1
    lengths = np.zeros(count, np.int32)
    begun = np.zeros(count, np.int32)
    for t in range(count):
        at = offsets[t]
        end = offsets[t + 1]
        characters = 0
        good = True
        while at < end and good:
            lead = data[at]
            low = 0x80
            high = 0xBF
            if lead < 0x80:
                follow = 0
                good = lead >= 0x20 and lead != 0x22 and lead != 0x5C
            elif 0xC2 <= lead <= 0xDF:
                follow = 1
            elif 0xE0 <= lead <= 0xEF:
                follow = 2
                if lead == 0xE0:
                    low = 0xA0
                elif lead == 0xED:
                    high = 0x9F
            elif 0xF0 <= lead <= 0xF4:
                follow = 3
                if lead == 0xF0:
                    low = 0x90
                elif lead == 0xF4:
                    high = 0x8F
            else:
                follow = 0
                good = False
            if at + follow >= end:
                good = False
            if good:
                for k in range(1, follow + 1):
                    if data[at + k] < low or data[at + k] > high:
                        good = False
                    low = 0x80
                    high = 0xBF
            at += follow + 1
            characters += 1
            if good:
                begun[t] = at - offsets[t]
        if good:
            lengths[t] = characters
    return lengths, begun
