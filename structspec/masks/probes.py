"""Which byte classes to try to learn that all ordinary characters behave alike.

The result is a flat int32 list for `fill.uniform`: the number of groups, then per group the
number of lead classes, the number of continuation bytes, the lead classes, and for every
continuation byte its number of classes and the classes. A group is one shape of UTF-8 character.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

#: Lead bytes and continuation ranges of well-formed UTF-8 (Unicode 15, table 3-7).
_SHAPES: tuple[tuple[tuple[int, int], ...], ...] = (
    ((0xC2, 0xDF), (0x80, 0xBF)),
    ((0xE0, 0xE0), (0xA0, 0xBF), (0x80, 0xBF)),
    ((0xE1, 0xEC), (0x80, 0xBF), (0x80, 0xBF)),
    ((0xED, 0xED), (0x80, 0x9F), (0x80, 0xBF)),
    ((0xEE, 0xEF), (0x80, 0xBF), (0x80, 0xBF)),
    ((0xF0, 0xF0), (0x90, 0xBF), (0x80, 0xBF), (0x80, 0xBF)),
    ((0xF1, 0xF3), (0x80, 0xBF), (0x80, 0xBF), (0x80, 0xBF)),
    ((0xF4, 0xF4), (0x80, 0x8F), (0x80, 0xBF), (0x80, 0xBF)),
)


def plain_probes(class_of: NDArray[np.uint8], enabled: NDArray[np.bool_]) -> NDArray[np.int32]:
    """Probes for the characters from U+0020 on except the quote and the backslash.

    class_of: uint8[256]; enabled: bool[256], the bytes that occur in tokens (others never come).
    """

    class_list = [c if e else -1 for c, e in zip(class_of.tolist(), enabled.tolist(), strict=True)]
    known: dict[tuple[int, int], list[int]] = {}

    def classes(values: tuple[int, int]) -> list[int]:
        found = known.get(values)
        if found is None:
            found = known[values] = sorted({*class_list[values[0] : values[1] + 1]} - {-1})
        return found

    parts = ((0x20, 0x21), (0x23, 0x5B), (0x5D, 0x7F))  # ASCII but the quote and the backslash
    ordinary = sorted({c for part in parts for c in classes(part)})
    groups: list[tuple[list[int], list[list[int]]]] = [(ordinary, [])]
    for shape in _SHAPES:
        leads, *following = [classes(span) for span in shape]
        groups.append((leads, following))
    out = []
    kept = [(lead, more) for lead, more in groups if lead and all(more)]
    for lead, more in kept:
        out += [len(lead), len(more), *lead]
        for row in more:
            out += [len(row), *row]
    return np.array([len(kept), *out], np.int32)
