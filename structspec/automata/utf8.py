"""Code point ranges as UTF-8 byte sequences.

A range of code points is a short union of *byte-range sequences*: every combination of bytes
inside the ranges is one character of the range and conversely. Surrogates are left out, since
they are not Unicode scalar values.

    >>> utf8_sequences(0x7F, 0x80)
    (((127, 127),), ((194, 194), (128, 128)))
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

ByteRange = tuple[int, int]

_LENGTH_LIMITS = (0x7F, 0x7FF, 0xFFFF, 0x10FFFF)


@lru_cache(maxsize=4096)
def utf8_sequences(lo: int, hi: int) -> tuple[tuple[ByteRange, ...], ...]:
    """The byte-range sequences whose union is exactly the characters `lo..hi`."""
    return tuple(_sequences(lo, hi))


def _sequences(lo: int, hi: int) -> Iterator[tuple[ByteRange, ...]]:
    if lo > hi:
        return
    if lo <= 0xDFFF and hi >= 0xD800:
        yield from _sequences(lo, min(hi, 0xD7FF))
        yield from _sequences(max(lo, 0xE000), hi)
        return
    for limit in _LENGTH_LIMITS:
        if lo <= limit < hi:
            yield from _sequences(lo, limit)
            yield from _sequences(limit + 1, hi)
            return
    # Split until all continuation positions below the first difference span 80..BF fully.
    for shift in (6, 12, 18):
        mask = (1 << shift) - 1
        if lo & ~mask != hi & ~mask:
            if lo & mask:
                yield from _sequences(lo, lo | mask)
                yield from _sequences((lo | mask) + 1, hi)
                return
            if hi & mask != mask:
                yield from _sequences(lo, (hi & ~mask) - 1)
                yield from _sequences(hi & ~mask, hi)
                return
    first, last = chr(lo).encode(), chr(hi).encode()
    yield tuple(zip(first, last, strict=True))
