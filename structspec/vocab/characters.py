"""Groups of characters that patterns treat alike, as bits of a set of 128.

A subtree of a vocabulary is allowed as a whole if its characters are in the set that leads to one
place. ASCII characters are bits of their own. Those beyond share one with others of the same range
of first bytes and kind: letters, or all the rest. So `\\w` and `\\p{L}`, which take the letters of
nearly every range and not all of any, are sets of whole groups, and so is "any character".

Invariants: bit 0 is `EVERY`, bit 1 is free and bit 2 is `MID`; those of groups are the other
control characters, which never stand in plain text.

Sibling: `blocks`, whose summaries are such sets; `masks.classify` finds the set of a state.

    >>> bits = character_bits("aéж中—")
    >>> [int(bits[ord(c)]) for c in "aéж中—"]
    [97, 5, 7, 17, 14]
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import numpy as np
import numpy.typing as npt

__all__ = ["BLANKS", "EVERY", "LEAD_RANGES", "MID", "Characters", "character_bits", "range_bits"]

BLANKS: Final = (0x20, 0x09, 0x0A, 0x0D)
"""JSON's white space."""

LEAD_RANGES: Final = (
    (0xC2, 0xC2), (0xC3, 0xC3), (0xC4, 0xDF), (0xE0, 0xE0), (0xE1, 0xE1), (0xE2, 0xE2),
    (0xE3, 0xE3), (0xE4, 0xE9), (0xEA, 0xEC), (0xED, 0xED), (0xEE, 0xEE), (0xEF, 0xEF),
    (0xF0, 0xF0), (0xF1, 0xF3), (0xF4, 0xF4),
)  # fmt: skip
"""Ranges of first bytes: blocks that patterns tell apart (white space beyond ASCII, for one) stand
alone, and no range holds two shapes of UTF-8 characters."""

#: Where no letters are: private use, tags.
_NO_LETTERS = (0xEE, 0xF1, 0xF4)

EVERY: Final = 0
"""The bit of sets that hold all characters beyond ASCII, those that no token holds included."""

MID: Final = 2
"""The bit of nodes inside of a character."""


def range_bits() -> list[tuple[int, ...]]:
    """The bits of each of `LEAD_RANGES`: of its letters and of the rest, or of all."""
    bits, free = [], MID + 1
    for low, _ in LEAD_RANGES:
        kinds = 1 if low in _NO_LETTERS else 2
        bits.append(tuple(range(free, free + kinds)))
        free += kinds
    return bits


_BITS = range_bits()
_RANGE_OF = {
    lead: number for number, (low, high) in enumerate(LEAD_RANGES) for lead in range(low, high + 1)
}


def character_bits(characters: Iterable[str]) -> npt.NDArray[np.uint8]:
    """uint8[0x110000]: the bit of each of the characters beyond ASCII, and of all of ASCII."""
    bits = np.zeros(0x110000, np.uint8)
    bits[:128] = range(128)
    for character in characters:
        if character > "\x7f":
            kinds = _BITS[_RANGE_OF[character.encode()[0]]]
            bits[ord(character)] = kinds[0] if character.isalpha() else kinds[-1]
    return bits


class Characters:
    """The characters beyond ASCII of a vocabulary by group, for kernels; `bits` are their bits.

    data: uint8[4n], the UTF-8 bytes of each, filled up with zeros, sorted within a group;
    start: int32[33], those of bit b are `start[b]` to `start[b + 1]`.
    """

    def __init__(self, characters: Iterable[str], bits: npt.NDArray[np.uint8]) -> None:
        rows = sorted((int(bits[ord(c)]), c.encode()) for c in characters if c > "\x7f")
        data = b"".join(data.ljust(4, b"\0") for _, data in rows) or bytes(4)
        self.data = np.frombuffer(bytearray(data), np.uint8)  # kernels want writable arrays
        self.start = np.searchsorted([bit for bit, _ in rows], range(33)).astype(np.int32)
