"""A token trie laid out for mask walks: the children of a node lie side by side.

A walk asks of every child whether its byte may follow, and most may not: with siblings in one run
that is one pass over a few cache lines. Blocks of siblings stand in depth-first order.

Invariants
- node 0 is the root; the children of node n are `first[n] .. last[n] − 1`, sorted by byte;
- `ids[low[n] : high[n]]` are all tokens of the subtree of n, those that end at n first: `own[n]`;
- with summaries (only for tries of well-formed UTF-8): `height[n]` is the most characters that a
  token completes below n, and `content[4n : 4n + 4]` a set of 128 bits, the ASCII characters that
  occur below n and for characters beyond ASCII the bit of their first byte, `LEAD_BIT`. A node
  inside of a character also has the bits `MID` and that of its character;
- without summaries `height[n]` counts bytes, and `content[4n]` is 1 if nothing but JSON's white
  space stands below n, else 0.

Cost: one linear pass over a `Trie` (numba), 41 bytes a node.
Sibling: `trie.Trie`, the depth-first form it is made from, smaller and easier to search.

Example::

    >>> from structspec.vocab.characters import character_bits
    >>> from structspec.vocab.trie import Trie
    >>> blocks = Blocks.build(Trie.build([b"a", b"ab", b"c"]), character_bits("abc"))
    >>> blocks.byte[blocks.first[0] : blocks.last[0]].tobytes(), blocks.height.tolist()
    (b'ac', [2, 1, 0, 0])
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from structspec.machine_code.kernel import kernel
from structspec.vocab.characters import BLANKS, MID
from structspec.vocab.trie import Trie

__all__ = ["Blocks"]

#: Fields of a node; CONTENT takes four.
FIRST, LAST, LOW, OWN, HIGH, HEIGHT, CONTENT = range(7)
#: Fields per node.
RECORD: Final = 10


@dataclass(frozen=True, eq=False)
class Blocks:
    """See the module. Shapes: N nodes; `byte` uint8[N], `nodes` int32[N, RECORD], a node's fields
    side by side since a walk that looks at one wants the others; `ids` int32[tokens]. All arrays
    are read-only."""

    byte: npt.NDArray[np.uint8]
    nodes: npt.NDArray[np.int32]
    ids: npt.NDArray[np.int32]
    max_depth: int

    @property
    def size(self) -> int:
        """The number of nodes, the root included."""
        return len(self.byte)

    @property
    def first(self) -> npt.NDArray[np.int32]:
        """int32[N], a view."""
        return self.nodes[:, FIRST]

    @property
    def last(self) -> npt.NDArray[np.int32]:
        """int32[N], a view."""
        return self.nodes[:, LAST]

    @property
    def low(self) -> npt.NDArray[np.int32]:
        """int32[N], a view."""
        return self.nodes[:, LOW]

    @property
    def own(self) -> npt.NDArray[np.int32]:
        """int32[N], a view."""
        return self.nodes[:, OWN]

    @property
    def high(self) -> npt.NDArray[np.int32]:
        """int32[N], a view."""
        return self.nodes[:, HIGH]

    @property
    def height(self) -> npt.NDArray[np.int32]:
        """int32[N], a view."""
        return self.nodes[:, HEIGHT]

    @property
    def content(self) -> npt.NDArray[np.uint32]:
        """uint32[4N], a copy."""
        return np.ascontiguousarray(self.nodes[:, CONTENT:]).view(np.uint32).ravel()

    @classmethod
    def build(cls, trie: Trie, bits: npt.NDArray[np.uint8] | None = None) -> Blocks:
        """Lay out a trie, with summaries if the bits of its characters are given.

        bits: `character_bits` of all characters; the tokens are then well-formed UTF-8.
        """
        arrays = _lay_out(
            trie.byte.copy(),
            trie.skip.copy(),
            trie.token_offset.copy(),
            bits is not None,
            np.zeros(1, np.uint8) if bits is None else bits,
        )
        byte, *fields, content = arrays
        nodes = np.zeros((len(byte), RECORD), np.int32)
        for place, field in zip((FIRST, LAST, LOW, OWN, HIGH, HEIGHT), fields, strict=True):
            nodes[:, place] = field
        nodes[:, CONTENT:] = content.view(np.int32).reshape(-1, 4)
        byte.flags.writeable = nodes.flags.writeable = False
        return cls(byte, nodes, trie.token_ids, trie.max_depth)


@kernel
def _lay_out(old_byte: Any, skip: Any, offset: Any, summaries: bool, bits: Any) -> Any:
    n = len(old_byte)
    place = np.zeros(n, np.int32)
    byte = np.zeros(n, np.uint8)
    first = np.zeros(n, np.int32)
    last = np.zeros(n, np.int32)
    low = np.zeros(n, np.int32)
    own = np.zeros(n, np.int32)
    high = np.zeros(n, np.int32)
    height = np.zeros(n, np.int32)
    content = np.zeros(4 * n, np.uint32)
    free = 1
    for o in range(n):  # depth first, so the place of o is known
        p = place[o]
        byte[p] = old_byte[o]
        low[p] = offset[o]
        own[p] = offset[o + 1] - offset[o]
        high[p] = offset[skip[o]]
        first[p] = free
        child = o + 1
        while child < skip[o]:
            place[child] = free
            free += 1
            child = skip[child]
        last[p] = free
    if not summaries:
        for p in range(n):
            content[4 * p] = 1
        for o in range(n - 1, -1, -1):
            child = o + 1
            while child < skip[o]:
                b, p, c = old_byte[child], place[o], place[child]
                height[p] = max(height[p], height[c] + 1)
                if content[4 * c] == 0 or b not in BLANKS:
                    content[4 * p] = 0
                child = skip[child]
    else:
        missing = np.zeros(n, np.uint8)  # bytes that the character at the node still needs
        point = np.zeros(n, np.int32)  # the code point, as far as it is there
        for o in range(n):
            child = o + 1
            while child < skip[o]:
                b = np.int32(old_byte[child])
                if missing[o]:
                    missing[child] = missing[o] - 1
                    point[child] = point[o] << 6 | (b & 0x3F)
                elif b >= 0xF0:
                    missing[child], point[child] = 3, b & 7
                elif b >= 0xE0:
                    missing[child], point[child] = 2, b & 15
                elif b >= 0xC0:
                    missing[child], point[child] = 1, b & 31
                else:
                    point[child] = b
                child = skip[child]
        for o in range(n - 1, -1, -1):
            p = place[o]
            child = o + 1
            while child < skip[o]:
                c = place[child]
                whole = missing[child] == 0
                height[p] = max(height[p], height[c] + (1 if whole else 0))
                if whole:
                    bit = bits[point[child]]
                    content[4 * p + (bit >> 5)] |= np.uint32(1) << np.uint32(bit & 31)
                content[4 * p] |= content[4 * c] & ~(np.uint32(1) << np.uint32(MID))
                for w in range(1, 4):
                    content[4 * p + w] |= content[4 * c + w]
                child = skip[child]
            if missing[o]:
                content[4 * p] |= np.uint32(1) << np.uint32(MID)
    return byte, first, last, low, own, high, height, content
