"""Which byte classes to try to learn that all characters beyond ASCII behave alike.

The result is a flat int32 list for `classify`: the number of groups, then per group the number of
lead classes, the number of continuation bytes, its bit (`vocab.blocks.LEAD_GROUPS`), the lead
classes, and for every continuation byte its number of classes and the classes. A group is a range
of first bytes with one shape of UTF-8 character.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from structspec.vocab.blocks import LEAD_GROUPS, lead_bits

#: Lead bytes and continuation ranges of well-formed UTF-8 (Unicode 15, table 3-7).
_SHAPES: tuple[tuple[tuple[int, int], ...], ...] = (  # no group of first bytes crosses them
    ((0xC2, 0xDF), (0x80, 0xBF)),
    ((0xE0, 0xE0), (0xA0, 0xBF), (0x80, 0xBF)),
    ((0xE1, 0xEC), (0x80, 0xBF), (0x80, 0xBF)),
    ((0xED, 0xED), (0x80, 0x9F), (0x80, 0xBF)),
    ((0xEE, 0xEF), (0x80, 0xBF), (0x80, 0xBF)),
    ((0xF0, 0xF0), (0x90, 0xBF), (0x80, 0xBF), (0x80, 0xBF)),
    ((0xF1, 0xF3), (0x80, 0xBF), (0x80, 0xBF), (0x80, 0xBF)),
    ((0xF4, 0xF4), (0x80, 0x8F), (0x80, 0xBF), (0x80, 0xBF)),
)


def other_probes(class_of: NDArray[np.uint8], enabled: NDArray[np.bool_]) -> NDArray[np.int32]:
    """Probes for the characters beyond ASCII that tokens can write.

    class_of: uint8[256]; enabled: bool[256], the bytes that occur in tokens (others never come).
    """

    class_list = [c if e else -1 for c, e in zip(class_of.tolist(), enabled.tolist(), strict=True)]
    known: dict[tuple[int, int], list[int]] = {}

    def classes(low: int, high: int) -> list[int]:
        found = known.get((low, high))
        if found is None:
            found = known[low, high] = sorted({*class_list[low : high + 1]} - {-1})
        return found

    bits = lead_bits()
    kept = []
    for low, high in LEAD_GROUPS:
        for lead, *more in _SHAPES:
            leads = classes(max(low, lead[0]), min(high, lead[1]))
            following = [classes(lo, hi) for lo, hi in more]
            if leads and all(following):
                kept.append((leads, int(bits[low]), following))
    out = [len(kept)]
    for leads, bit, following in kept:
        out += [len(leads), len(following), bit, *leads]
        for row in following:
            out += [len(row), *row]
    return np.array(out, np.int32)
