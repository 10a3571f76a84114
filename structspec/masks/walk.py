"""Walking a token trie with a configuration (numba kernels).

One look-up of the transition table per node; a refused byte skips its subtree, and so does a
subtree that is allowed as a whole (`classify`). A walk either adds the allowed tokens to an empty
row or, where most are allowed, takes the others out of a row that holds all plain tokens.

Sibling: `fill`, which chooses the walks of a row.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from structspec.automata.memory import Count, Slot, i32, u8, u32
from structspec.automata.pushdown import DEAD, UNKNOWN
from structspec.masks.classify import chain, classify
from structspec.masks.expand import expand
from structspec.masks.tables import (
    BYTE,
    CONTENT,
    FIRST,
    HEIGHT,
    HIGH,
    IDS,
    LAST,
    LOW,
    OWN,
    Known,
)
from structspec.vocab.blocks import MID

_CLASS_OF, _NEXT, _COUNT = int(Slot.CLASS_OF), int(Slot.NEXT), int(Slot.COUNT)
_CONFIG_COST, _CLASSES = int(Slot.CONFIG_COST), int(Count.CLASSES)
_STACK, _CONTENT, _TARGET = int(Known.STACK), int(Known.CONTENT), int(Known.TARGET)
_DEAREST = int(Known.DEAREST)

#: Modes: add to the row, node by node; add, whole subtrees at once; take out of the row.
ADD, ADD_WHOLE, TAKE_OUT = 0, 1, 2


@njit(cache=True)
def walk(header, known, words, trie, config, limit, mode, row):  # type: ignore[no-untyped-def]
    """Visit the tokens of a `Blocks` (its first slot in `words`) that `config` allows.

    Allowed: the token leads to a configuration of cost ≤ `limit`. Returns the largest such cost
    (or a bound above it), or a negative code; the row is then unusable.
    """
    byte, first, last = u8(words, trie + BYTE), i32(words, trie + FIRST), i32(words, trie + LAST)
    low, own, high = i32(words, trie + LOW), i32(words, trie + OWN), i32(words, trie + HIGH)
    ids = i32(words, trie + IDS)
    stack, classes, costs = i32(known, _STACK), i32(header, _CLASS_OF), i32(header, _CONFIG_COST)
    below, allowed = u32(words, trie + CONTENT), u32(known, _CONTENT)
    targets = i32(known, _TARGET)
    n_classes = i32(header, _COUNT)[_CLASSES]
    table = i32(header, _NEXT)
    worst = 0
    top = 0
    at, end, base = first[0], last[0], config * n_classes
    while True:
        if at == end:
            if top == 0:
                return worst
            top -= 3
            at, end, base = stack[top], stack[top + 1], stack[top + 2]
            continue
        node = at
        at += 1
        if mode != ADD and byte[node] >= 0xC0:  # whole characters, without going through them
            config = base // n_classes
            if _maybe(below, allowed, targets, config, node, 1):
                dearest = covers(
                    header, known, words, trie, np.int64(config), np.int64(node), limit
                )
                if dearest >= 0:
                    worst = max(worst, dearest)
                    if mode == ADD_WHOLE:
                        for k in range(low[node], high[node]):
                            row[ids[k] >> 5] |= np.uint32(1) << np.uint32(ids[k] & 31)
                    continue
                if dearest != NOT_COVERED:
                    return dearest
        following = table[base + classes[byte[node]]]
        if following <= DEAD:
            if following == UNKNOWN:
                code = expand(header, known, np.int64(base // n_classes))
                if code < 0:
                    return code
                following = table[base + classes[byte[node]]]
            if following == DEAD:
                if mode == TAKE_OUT:
                    for k in range(low[node], high[node]):
                        row[ids[k] >> 5] &= ~(np.uint32(1) << np.uint32(ids[k] & 31))
                continue
        if own[node]:
            cost = costs[following]
            if cost <= limit:
                worst = max(worst, cost)
                if mode != TAKE_OUT:
                    for k in range(low[node], low[node] + own[node]):
                        row[ids[k] >> 5] |= np.uint32(1) << np.uint32(ids[k] & 31)
            elif mode == TAKE_OUT:
                for k in range(low[node], low[node] + own[node]):
                    row[ids[k] >> 5] &= ~(np.uint32(1) << np.uint32(ids[k] & 31))
        if first[node] == last[node]:
            continue
        if mode != ADD and _maybe(below, allowed, targets, following, node, 0):
            dearest = covers(header, known, words, trie, np.int64(following), np.int64(node), limit)
            if dearest >= 0:
                worst = max(worst, dearest)
                if mode == ADD_WHOLE:
                    for k in range(low[node] + own[node], high[node]):
                        row[ids[k] >> 5] |= np.uint32(1) << np.uint32(ids[k] & 31)
                continue
            if dearest != NOT_COVERED:
                return dearest
        stack[top], stack[top + 1], stack[top + 2] = at, end, base
        top += 3
        at, end, base = first[node], last[node], following * n_classes


@njit(cache=True)
def _maybe(below, allowed, targets, config, node, inside):  # type: ignore[no-untyped-def]
    """Whether the characters below a node fit, as far as is known of the configuration.

    inside: 1 if the node may be the first byte of a character that begins in `config`.
    """
    if targets[config] == DEAD:
        return False
    if targets[config] == UNKNOWN:
        return inside == 1 or (below[4 * node] >> np.uint32(MID)) & 1 == 0
    first = below[4 * node] & ~allowed[4 * config]
    if inside:
        first &= ~(np.uint32(1) << np.uint32(MID))
    return not (
        first
        or below[4 * node + 1] & ~allowed[4 * config + 1]
        or below[4 * node + 2] & ~allowed[4 * config + 2]
        or below[4 * node + 3] & ~allowed[4 * config + 3]
    )


#: `covers`: the subtree must be walked.
NOT_COVERED = -1000


@njit(cache=True)
def covers(header, known, words, trie, config, node, limit):  # type: ignore[no-untyped-def]
    """Whether all tokens below a node are allowed: the largest cost they lead to.

    `NOT_COVERED` if that is not certain, or another negative code.
    """
    target = classify(header, known, config)
    if target < 0:
        return target
    below, allowed = u32(words, trie + CONTENT), u32(known, _CONTENT)
    # The caller has looked at MID.
    if not _maybe(below, allowed, i32(known, _TARGET), config, node, 1):
        return NOT_COVERED
    need = np.int64(i32(words, trie + HEIGHT)[node])
    length = chain(header, known, config, need)
    if length < 0:
        return length
    dearest = i32(known, _DEAREST)[config]
    if length < need or dearest > limit:
        return NOT_COVERED
    return dearest


@njit(cache=True)
def mostly_alive(header, known, words, trie, config):  # type: ignore[no-untyped-def]
    """Whether most of a trie's tokens begin with two bytes that may follow (1, 0 or a code)."""
    first, last, low = i32(words, trie + FIRST), i32(words, trie + LAST), i32(words, trie + LOW)
    byte, high = u8(words, trie + BYTE), i32(words, trie + HIGH)
    classes, table = i32(header, _CLASS_OF), i32(header, _NEXT)
    n_classes = i32(header, _COUNT)[_CLASSES]
    most = (high[0] - low[0]) // 2
    alive = 0
    for node in range(first[0], last[0]):
        following = table[config * n_classes + classes[byte[node]]]
        if following == UNKNOWN:
            code = expand(header, known, config)
            if code < 0:
                return code
            following = table[config * n_classes + classes[byte[node]]]
        if following == DEAD:
            continue
        if 16 * (high[node] - low[node]) < most:  # too few to be worth a closer look
            alive += high[node] - low[node]
            continue
        for child in range(first[node], last[node]):
            after = table[following * n_classes + classes[byte[child]]]
            if after == UNKNOWN:
                code = expand(header, known, np.int64(following))
                if code < 0:
                    return code
                after = table[following * n_classes + classes[byte[child]]]
            if after != DEAD:
                alive += high[child] - low[child]
    return 1 if alive > most else 0
