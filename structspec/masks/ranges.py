"""What a walk allows, as ranges and as marks (numba kernels).

Positions are those in `Blocks.ids`, the tokens in the order of the trie. A walk collects ranges,
which are written to the row or, where most are allowed, taken out of a row that holds all plain
tokens. Where several places share a subtree ranges overlap: tokens are added at once, and marked by
position, so that what is allowed already need not be walked again.

Sibling: `walk`, the only caller.
"""

from __future__ import annotations

import numpy as np

from structspec.automata.memory import i32, inner, slot, u32, wide
from structspec.machine_code.kernel import kernel
from structspec.masks.tables import IDS, Known, Tally, Words

_SCRATCH, _UPTO = slot(Known.SCRATCH), slot(Words.UPTO)
_WALK, _TALLY, _BULK = slot(Words.WALK), slot(Known.COUNT), int(Tally.BULK)

#: Whether the ranges are added to the row, or what lies between them is taken out of a full one.
UNDECIDED, ADD, TAKE_OUT = 0, 1, 2


@inner
def allow(ranges, n, low, high):  # type: ignore[no-untyped-def]
    """Append a range, which never begins before the last one ends. Returns how many there are."""
    if n and ranges[2 * n - 1] == low:
        ranges[2 * n - 1] = high
        return n
    ranges[2 * n], ranges[2 * n + 1] = low, high
    return n + 1


@kernel
def write(known, words, trie, row, more, ranges, n, begun, seen, mode):  # type: ignore[no-untyped-def]
    """Write ranges, of positions from `begun` up to `seen`. Returns the mode.

    What is taken out is taken out of `row`, or of SCRATCH if `row` holds more.
    """
    if n == 0:
        return mode
    ids = i32(words, trie + IDS)
    into = row
    if more and mode != ADD:
        into = u32(known, _SCRATCH)
    if mode == UNDECIDED:
        mode = wide(ADD)
        size = wide(0)
        for i in range(n):
            size += ranges[2 * i + 1] - ranges[2 * i]
        if trie == _WALK and i32(known, _TALLY)[_BULK] and 2 * size > seen:
            mode = wide(TAKE_OUT)
            upto = u32(words, _UPTO)
            at = len(upto) - len(row)
            for w in range(len(row)):
                into[w] = upto[at + w]
    for i in range(n):
        if mode == ADD:
            add(row, ids, wide(ranges[2 * i]), wide(ranges[2 * i + 1]))
        else:
            take_out(into, ids, begun, wide(ranges[2 * i]))
            begun = wide(ranges[2 * i + 1])
    return mode


@inner
def add(row, ids, low, high):  # type: ignore[no-untyped-def]
    """Set the tokens at the positions from `low` up to `high`."""
    for k in range(low, high):
        token = np.uint64(ids[k])  # unsigned: no look at negative indices
        row[token >> np.uint64(5)] |= np.uint32(1) << np.uint32(token & np.uint64(31))


@inner
def add_some(row, ids, low, high, side):  # type: ignore[no-untyped-def]
    """Add those that another row holds."""
    for k in range(low, high):
        token = np.uint64(ids[k])
        bit = np.uint32(1) << np.uint32(token & np.uint64(31))
        row[token >> np.uint64(5)] |= side[token >> np.uint64(5)] & bit


@inner
def take_out(row, ids, low, high):  # type: ignore[no-untyped-def]
    """Clear the tokens at the positions from `low` up to `high`."""
    for k in range(low, high):
        token = np.uint64(ids[k])
        row[token >> np.uint64(5)] &= ~(np.uint32(1) << np.uint32(token & np.uint64(31)))


@inner
def clear(bits, count):  # type: ignore[no-untyped-def]
    """Clear the words that hold the first `count` bits."""
    for w in range(min(len(bits), (count + 31) >> 5)):
        bits[w] = 0


@inner
def _words_of(low, high):  # type: ignore[no-untyped-def]
    """The first and the last word of a range of bits, and the bits of it in either."""
    # numba shifts in 64 bits; what lies above a word would never be found in one
    head = np.uint32(np.uint32(0xFFFFFFFF) << np.uint32(low & 31))
    tail = np.uint32(np.uint32(0xFFFFFFFF) >> np.uint32(31 - ((high - 1) & 31)))
    return low >> 5, (high - 1) >> 5, head, tail


@inner
def mark(marks, low, high):  # type: ignore[no-untyped-def]
    """Set the bits from `low` up to `high`."""
    first, last, head, tail = _words_of(low, high)
    if first == last:
        marks[first] |= head & tail
        return
    marks[first] |= head
    for w in range(first + 1, last):
        marks[w] = np.uint32(0xFFFFFFFF)
    marks[last] |= tail


@inner
def all_marked(marks, low, high):  # type: ignore[no-untyped-def]
    """Whether all bits from `low` up to `high` are set."""
    first, last, head, tail = _words_of(low, high)
    if first == last:
        return marks[first] & (head & tail) == head & tail
    if marks[first] & head != head or marks[last] & tail != tail:
        return False
    for w in range(first + 1, last):  # noqa: SIM110 - kernels know no generators
        if marks[w] != np.uint32(0xFFFFFFFF):
            return False
    return True


@inner
def add_marked(extra, marks, ids, low, high):  # type: ignore[no-untyped-def]
    """Add a range to a row and mark it."""
    add(extra, ids, low, high)
    mark(marks, low, high)
