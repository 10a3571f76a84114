"""Which byte classes to try to learn that all characters beyond ASCII behave alike.

The result is a flat int32 list for `classify`: the number of ranges, then per range of first bytes
(`vocab.characters.LEAD_RANGES`) the number of lead classes, the number of continuation bytes, the
first and last of its bits, the lead classes, and for every continuation byte its number of classes
and the classes.

Cost: one look at each byte per range, in compiled code.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from structspec.automata.memory import inner
from structspec.machine_code.kernel import kernel
from structspec.vocab.characters import LEAD_RANGES, range_bits

#: Lead bytes and continuation ranges of well-formed UTF-8 (Unicode 15, table 3-7).
_SHAPES: tuple[tuple[tuple[int, int], ...], ...] = (  # no range of first bytes crosses them
    ((0xC2, 0xDF), (0x80, 0xBF)),
    ((0xE0, 0xE0), (0xA0, 0xBF), (0x80, 0xBF)),
    ((0xE1, 0xEC), (0x80, 0xBF), (0x80, 0xBF)),
    ((0xED, 0xED), (0x80, 0x9F), (0x80, 0xBF)),
    ((0xEE, 0xEF), (0x80, 0xBF), (0x80, 0xBF)),
    ((0xF0, 0xF0), (0x90, 0xBF), (0x80, 0xBF), (0x80, 0xBF)),
    ((0xF1, 0xF3), (0x80, 0xBF), (0x80, 0xBF), (0x80, 0xBF)),
    ((0xF4, 0xF4), (0x80, 0x8F), (0x80, 0xBF), (0x80, 0xBF)),
)


def _plan() -> NDArray[np.int32]:
    """Rows of bits, number of continuation bytes, then (low, high) of each byte; 0 beyond."""
    rows = []
    for (low, high), bits in zip(LEAD_RANGES, range_bits(), strict=True):
        for lead, *more in _SHAPES:
            first = (max(low, lead[0]), min(high, lead[1]))
            if first[0] <= first[1]:
                ranges = [bound for pair in (first, *more) for bound in pair]
                rows.append([bits[0], bits[-1], len(more), *ranges, *[0] * (8 - len(ranges))])
    return np.array(rows, np.int32)


_PLAN = _plan()
# The leads and up to three continuation bytes, each of at most 64 classes and their number.
_MOST = 4 * 65 + 4


def other_probes(class_of: NDArray[np.uint8], enabled: NDArray[np.bool_]) -> NDArray[np.int32]:
    """Probes for the characters beyond ASCII that tokens can write.

    class_of: uint8[256]; enabled: bool[256], the bytes that occur in tokens (others never come).
    """
    out = np.empty(1 + len(_PLAN) * _MOST, np.int32)
    return out[: _write(_PLAN, class_of, enabled, out)].copy()


@kernel
def _write(plan, class_of, enabled, out):  # type: ignore[no-untyped-def]
    n = 1
    ranges = 0
    for g in range(len(plan)):
        begin = n
        n += 4
        n, found = _classes(class_of, enabled, plan[g, 3], plan[g, 4], out, n)
        out[begin], out[begin + 1] = found, plan[g, 2]
        out[begin + 2], out[begin + 3] = plan[g, 0], plan[g, 1]
        complete = found > 0
        for k in range(1, plan[g, 2] + 1):
            n += 1
            place = n - 1
            n, found = _classes(class_of, enabled, plan[g, 3 + 2 * k], plan[g, 4 + 2 * k], out, n)
            out[place] = found
            complete = complete and found > 0
        if complete:
            ranges += 1
        else:
            n = begin
    out[0] = ranges
    return n


@inner
def _classes(class_of, enabled, low, high, out, n):  # type: ignore[no-untyped-def]
    """Append the classes of a range of bytes, sorted; returns (new length, how many)."""
    begin = n
    for b in range(low, high + 1):
        if not enabled[b]:
            continue
        c = np.int32(class_of[b])
        i = n
        while i > begin and out[i - 1] > c:
            i -= 1
        if i > begin and out[i - 1] == c:
            continue
        for j in range(n, i, -1):
            out[j] = out[j - 1]
        out[i] = c
        n += 1
    return n, n - begin
