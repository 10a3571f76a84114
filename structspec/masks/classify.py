"""What plain text does to a configuration: where most characters lead, and for how long (numba).

For a configuration c, `TARGET[c]` is the configuration that the most ordinary characters lead to
and `CONTENT[c]` the set of those characters (ASCII ones bit by bit, all others as one: `OTHER`).
Following targets with a set of characters that stays allowed is a *chain*; a free string is its own
target, a bounded one has a chain as long as it has room. A subtree of the vocabulary whose
characters are in the set, and which is no higher than the chain is long, is allowed as a whole.

Sibling: `walk`, which asks. The idea of slices that need no walk is llguidance's "slicer"; here
they are derived from the automaton, for any set of characters, instead of declared.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from structspec.automata.memory import Count, Slot, i32, u32
from structspec.automata.pushdown import DEAD, UNKNOWN
from structspec.masks.expand import expand
from structspec.masks.tables import Known
from structspec.vocab.blocks import OTHER

_CLASS_OF, _NEXT, _COUNT = int(Slot.CLASS_OF), int(Slot.NEXT), int(Slot.COUNT)
_CONFIG_COST, _CLASSES = int(Slot.CONFIG_COST), int(Count.CLASSES)
_TARGET, _CONTENT, _PROBES = int(Known.TARGET), int(Known.CONTENT), int(Known.PROBES)
_DEPTH, _DEEPEST, _DEAREST = int(Known.DEPTH), int(Known.DEEPEST), int(Known.DEAREST)

#: Longer chains need not be known: no plain token has more characters.
LONGEST_CHAIN = 64


@njit(cache=True)
def follow(header, known, config, byte_class):  # type: ignore[no-untyped-def]
    """The configuration after a class, expanding the row where it is not known yet."""
    cell = config * i32(header, _COUNT)[_CLASSES] + byte_class
    found = np.int64(i32(header, _NEXT)[cell])
    if found == UNKNOWN:
        code = expand(header, known, config)
        if code < 0:
            return code
        found = np.int64(i32(header, _NEXT)[cell])
    return found


@njit(cache=True)
def classify(header, known, config):  # type: ignore[no-untyped-def]
    """Fill TARGET and CONTENT of a configuration. Returns the target or a negative code."""
    targets = i32(known, _TARGET)
    if targets[config] != UNKNOWN:
        return np.int64(targets[config])
    classes = i32(header, _CLASS_OF)
    # the majority vote of Boyer and Moore, among the characters that may follow
    best, votes = DEAD, 0
    for b in range(0x20, 0x7F):
        t = follow(header, known, config, np.int64(classes[b]))
        if t < 0:
            return t
        if t == DEAD or b == 0x22 or b == 0x5C:
            continue
        if votes == 0:
            best = t
        votes += 1 if t == best else -1
    if best != DEAD:
        content = u32(known, _CONTENT)
        for b in range(0x20, 0x80):
            if b == 0x22 or b == 0x5C:
                continue
            t = follow(header, known, config, np.int64(classes[b]))
            if t < 0:
                return t
            if t == best:
                content[4 * config + (b >> 5)] |= np.uint32(1) << np.uint32(b & 31)
        all_others = _others_lead_to(header, known, config, np.int64(best))
        if all_others < 0:
            return all_others
        if all_others:
            content[4 * config] |= np.uint32(1) << np.uint32(OTHER)
    targets[config] = best
    return np.int64(best)


@njit(cache=True)
def _others_lead_to(header, known, config, target):  # type: ignore[no-untyped-def]
    """1 if every character beyond ASCII leads to `target`, else 0 (PROBES: see `probes`)."""
    probes = i32(known, _PROBES)
    at = 1
    for _ in range(probes[0]):
        n_leads, n_more = probes[at], probes[at + 1]
        leads = at + 2
        at = leads + n_leads
        previous = 0
        for k in range(n_leads):
            following = follow(header, known, config, np.int64(probes[leads + k]))
            if following < 0:
                return following
            if following == previous:
                continue
            previous = following
            more = at
            for _ in range(n_more):
                if following == DEAD:
                    return 0
                reached = 0
                for j in range(probes[more]):
                    after = follow(
                        header, known, np.int64(following), np.int64(probes[more + 1 + j])
                    )
                    if after < 0:
                        return after
                    if reached == 0:
                        reached = after
                    elif reached != after:
                        return 0
                following = reached
                more += 1 + probes[more]
            if following != target:
                return 0
        for _ in range(n_more):
            at += 1 + probes[at]
    return 1


@njit(cache=True)
def chain(header, known, config, need):  # type: ignore[no-untyped-def]
    """How many times (up to `need`) the target may be followed; DEAREST is known that far.

    Returns a number or a negative code. The content of each step holds that of the one before.
    """
    depths, deepest = i32(known, _DEPTH), i32(known, _DEEPEST)
    if depths[config] >= need or deepest[config]:
        return np.int64(depths[config])
    dearest = i32(known, _DEAREST)
    cost, content = i32(header, _CONFIG_COST), u32(known, _CONTENT)
    here = config
    length = 0
    worst = 0
    final = 0
    while length < need:
        target = classify(header, known, np.int64(here))
        if target < 0:
            return target
        if target == DEAD:
            final = 1
            break
        if length > 0:
            smaller = False
            for w in range(4):
                if content[4 * config + w] & ~content[4 * here + w]:
                    smaller = True
            if smaller:
                final = 1
                break
        length += 1
        worst = max(worst, cost[target])
        if target == here:
            length = LONGEST_CHAIN
            final = 1
            break
        here = target
    depths[config] = length
    deepest[config] = final
    dearest[config] = worst
    return length
