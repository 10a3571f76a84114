"""Rows that are kept: each content once, in chunks of a pool (numba kernels).

Siblings: `fill`, which makes rows in the pool's free place; `tables.Knowledge`, which adds chunks.
"""

from __future__ import annotations

import numpy as np
from numba import carray

from structspec.automata.memory import _pointer_u32, i32, inner, slot
from structspec.machine_code.kernel import kernel
from structspec.machine_code.linking import header_at
from structspec.masks.tables import CHUNK_BITS, Known, Tally

_ROW_OF, _WORST, _POOL = slot(Known.ROW_OF), slot(Known.WORST), slot(Known.POOL)
_POOL_HASH, _TALLY = slot(Known.POOL_HASH), slot(Known.COUNT)
_ROWS, _WORDS = int(Tally.ROWS), int(Tally.WORDS)
_IN_CHUNK = (1 << CHUNK_BITS) - 1


@kernel
def pool_row(known, number):  # type: ignore[no-untyped-def]
    """A row of the pool, or the free place behind the last one."""
    words = i32(known, _TALLY)[_WORDS]
    chunk = header_at(known[2 * _POOL])[number >> CHUNK_BITS]
    address = chunk + (number & _IN_CHUNK) * words * 4
    return carray(_pointer_u32(address), (words,))  # type: ignore[call-arg]


@inner
def _hash(row):  # type: ignore[no-untyped-def]
    """A hash of 31 bits: a sum of mixed words, so that the processor takes several at once."""
    total = np.uint32(0)
    for w in range(len(row)):
        x = np.uint32(row[w] ^ np.uint32(np.uint32(w) * np.uint32(0x9E3779B1)))
        x = np.uint32(x * np.uint32(0x85EBCA6B))
        x = np.uint32(x ^ (x >> np.uint32(15)))
        x = np.uint32(x * np.uint32(0xC2B2AE35))
        total = np.uint32(total + x)
    return np.int64(total >> np.uint32(1))


@kernel
def keep_row(header, known, config, worst):  # type: ignore[no-untyped-def]
    """Keep the row that lies in the pool's free place for a configuration.

    Returns the row's number: that of an equal row if there is one.
    """
    tally, table = i32(known, _TALLY), i32(known, _POOL_HASH)
    words, rows = tally[_WORDS], tally[_ROWS]
    row = pool_row(known, np.int64(rows))
    h = _hash(row)
    mask = len(table) // 2 - 1
    i = h & mask
    found = -1
    while table[2 * i]:
        if table[2 * i + 1] == h:
            other = pool_row(known, np.int64(table[2 * i] - 1))
            differs = np.uint32(0)
            for w in range(words):  # all of it: several words at once
                differs |= other[w] ^ row[w]
            if differs == 0:
                found = table[2 * i] - 1
                break
        i = (i + 1) & mask
    if found < 0:
        found = rows
        table[2 * i] = rows + 1
        table[2 * i + 1] = h
        tally[_ROWS] = rows + 1
    i32(known, _ROW_OF)[config] = found + 1
    i32(known, _WORST)[config] = worst
    return found
