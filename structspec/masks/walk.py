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

_CLASS_OF, _NEXT, _COUNT = int(Slot.CLASS_OF), int(Slot.NEXT), int(Slot.COUNT)
_CONFIG_COST, _CLASSES = int(Slot.CONFIG_COST), int(Count.CLASSES)
_STACK, _CONTENT = int(Known.STACK), int(Known.CONTENT)
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
        if mode != ADD:
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


#: `covers`: the subtree must be walked.
NOT_COVERED = -1000


@njit(cache=True)
def covers(header, known, words, trie, config, node, limit):  # type: ignore[no-untyped-def]
    """Whether all tokens below a node are allowed: the largest cost they lead to.

    `NOT_COVERED` if that is not certain, or another negative code.
    """
    target = classify(header, known, config)
    if target <= DEAD:
        return NOT_COVERED if target == DEAD else target
    below, allowed = u32(words, trie + CONTENT), u32(known, _CONTENT)
    for w in range(4):
        if below[4 * node + w] & ~allowed[4 * config + w]:
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
def alive_share(header, known, words, trie, config):  # type: ignore[no-untyped-def]
    """Whether more than half of a trie's tokens begin with a byte that may follow (1 or 0)."""
    byte, first, last = u8(words, trie + BYTE), i32(words, trie + FIRST), i32(words, trie + LAST)
    low, high = i32(words, trie + LOW), i32(words, trie + HIGH)
    classes, table = i32(header, _CLASS_OF), i32(header, _NEXT)
    base = config * i32(header, _COUNT)[_CLASSES]
    alive = 0
    for node in range(first[0], last[0]):
        following = table[base + classes[byte[node]]]
        if following == UNKNOWN:
            code = expand(header, known, config)
            if code < 0:
                return code
            following = table[base + classes[byte[node]]]
        if following != DEAD:
            alive += high[node] - low[node]
    return 1 if 2 * alive > high[0] - low[0] else 0
