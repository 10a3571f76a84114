"""Characters that are equal when case is ignored, as Python's `re` sees it.

Owns `ignoring_case`. `re` compares one character with one character: simple lower case, and a few
pairs such as the long s and s. No table of those is public, so candidates are grouped by every
case mapping that `str` has and `re` itself is asked about each pair.

Cost: the first use asks about 4,000 pairs (about 0.3 s); then one pass over the cased characters
inside the given ranges.

Example::

    >>> ignoring_case(((97, 98), (0x31, 0x31)))
    ((49, 49), (65, 66), (97, 98))
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from functools import lru_cache

from structspec.frontends.regex.classes import Ranges, intersection, normalise

__all__ = ["ignoring_case"]

# No script beyond the second plane has case.
_LAST_CASED = 0x20000


def ignoring_case(ranges: Ranges, *, ascii_only: bool = False) -> Ranges:
    """The ranges with every character that equals one of theirs when case is ignored.

    ascii_only: of ASCII letters alone, as `re` does with the flag a.
    """
    if ascii_only:
        upper, lower = intersection(ranges, ((65, 90),)), intersection(ranges, ((97, 122),))
        swapped = [(a + 32, b + 32) for a, b in upper] + [(a - 32, b - 32) for a, b in lower]
        return normalise([*ranges, *swapped])
    cased, others = _variants()
    found = list(ranges)
    for low, high in ranges:
        for code in cased[bisect_left(cased, low) : bisect_right(cased, high)]:
            found.extend((other, other) for other in others[code])
    return normalise(found)


@lru_cache(maxsize=1)
def _variants() -> tuple[list[int], dict[int, tuple[int, ...]]]:
    """All characters that have variants, sorted, and those variants."""
    groups: dict[str, list[str]] = {}
    for code in range(_LAST_CASED):
        character = chr(code)
        forms = {character.lower(), character.upper(), character.casefold()}
        if forms != {character}:
            # Some mappings are longer than one character (İ); their first one is a candidate.
            for form in {character, *(form[0] for form in forms)}:
                groups.setdefault(form, []).append(character)
    near: dict[str, set[str]] = {}
    for form, members in groups.items():
        for character in {form, *members}:
            near.setdefault(character, set()).update({form, *members})
    changed = True
    while changed:  # k, K and the Kelvin sign meet only through a third
        changed = False
        for character, group in near.items():
            wider = set().union(*(near[other] for other in group))
            if wider != group:
                near[character] = wider
                changed = True
    variants: dict[int, tuple[int, ...]] = {}
    for character, group in near.items():
        matches = re.compile(re.escape(character), re.IGNORECASE).fullmatch
        equal = tuple(sorted(ord(o) for o in group if o != character and matches(o)))
        if equal:
            variants[ord(character)] = equal
    return sorted(variants), variants
