"""Mask rows: which tokens a configuration allows (numba kernels).

A row is the union of *bulk classes* and a pruned walk of the token trie. Inside strings nearly the
whole vocabulary is allowed; where every ordinary character leads to the same configuration
(`uniform`), the plain tokens of each character length are one precomputed bitset and only the
others are walked. A walk takes one table look-up per trie node and skips refused subtrees.

Rows are uint32[ceil(V / 32)], bit `i % 32` of word `i // 32` is token i. End tokens are set by the
caller; special tokens that the grammar names (SPECIALS: pairs of id and class) take one step each.
Sibling: `constraint`, which caches rows. The idea of slices that need no walk is
llguidance's "slicer"; here it is derived from the automaton instead of the grammar.
"""

from __future__ import annotations

from numba import njit

from structspec.automata.memory import Count, Slot, i32, u8, u32
from structspec.automata.pushdown import DEAD, step

_CLASS_OF, _COUNT, _CONFIG_COST = int(Slot.CLASS_OF), int(Slot.COUNT), int(Slot.CONFIG_COST)
_CONFIG_ACCEPTS, _UNIFORM = int(Slot.CONFIG_ACCEPTS), int(Slot.CONFIG_UNIFORM)
_CONFIG_START, _CONFIG_ITEMS = int(Slot.CONFIG_START), int(Slot.CONFIG_ITEMS)
_EDGE_START, _EDGE_CLASS = int(Slot.EDGE_START), int(Slot.EDGE_CLASS)
_EDGE_PRIMARY = int(Slot.EDGE_PRIMARY)
_TRIE_BYTE, _REST_BYTE = int(Slot.TRIE_BYTE), int(Slot.REST_BYTE)
_PLAIN_UPTO, _PROBES, _CLASS_BYTE = int(Slot.PLAIN_UPTO), int(Slot.PROBES), int(Slot.CLASS_BYTE)
_TOKEN_START, _TOKEN_BYTES = int(Slot.TOKEN_START), int(Slot.TOKEN_BYTES)
_SPECIALS = int(Slot.SPECIALS)
_STACK, _CLASSES = int(Slot.STACK), int(Count.CLASSES)

#: Values of CLASS_BYTE for classes that hold several writable bytes, or none. (Not −1: byte + 1 is
#: compared with 0, "no byte yet", in `only_byte`.)
SEVERAL, NONE = -2, -3
#: A limit above every cost: nothing is filtered.
UNLIMITED = 1 << 30
#: `uniform`: ordinary characters lead to several configurations.
MIXED = 1 << 30


@njit(cache=True)
def fill_row(header, config, limit, bulk, row):  # type: ignore[no-untyped-def]
    """Set the bits of all tokens that lead to a configuration of cost ≤ `limit`.

    `row` must be zero. `bulk`: 1 if PLAIN_UPTO and the REST trie may be used. Returns the
    largest cost that an allowed token leads to, or a negative code (then the row is unusable).
    """
    worst = _fill_text(header, config, limit, bulk, row)
    specials, cost = i32(header, _SPECIALS), i32(header, _CONFIG_COST)
    for i in range(0, len(specials), 2):
        if worst < 0:
            break
        following = step(header, config, specials[i + 1])
        if following < 0:
            return following
        if following != DEAD and cost[following] <= limit:
            worst = max(worst, cost[following])
            row[specials[i] >> 5] |= 1 << (specials[i] & 31)
    return worst


@njit(cache=True)
def _fill_text(header, config, limit, bulk, row):  # type: ignore[no-untyped-def]
    """`fill_row` for the tokens that write text."""
    if bulk:
        following = uniform(header, config, 0)
        if following < 0:
            return following
        if following != MIXED:
            worst = _bulk_rows(header, config, limit, row)
            if worst < 0:
                return worst
            if worst != MIXED:
                rest = _walk(header, config, limit, row, _REST_BYTE)
                return rest if rest < 0 else max(worst, rest)
    return _walk(header, config, limit, row, _TRIE_BYTE)


@njit(cache=True)
def _walk(header, config, limit, row, trie):  # type: ignore[no-untyped-def]
    nodes, skip, depth = u8(header, trie), i32(header, trie + 1), i32(header, trie + 2)
    offset, ids = i32(header, trie + 3), i32(header, trie + 4)
    classes, cost, stack = (
        i32(header, _CLASS_OF),
        i32(header, _CONFIG_COST),
        i32(header, _STACK),
    )
    stack[0] = config
    worst = 0
    i, n = 1, len(nodes)
    while i < n:
        d = depth[i]
        following = step(header, stack[d - 1], classes[nodes[i]])
        if following < 0:
            return following
        if following == DEAD:
            i = skip[i]
            continue
        stack[d] = following
        if offset[i + 1] > offset[i] and cost[following] <= limit:
            worst = max(worst, cost[following])
            for k in range(offset[i], offset[i + 1]):
                row[ids[k] >> 5] |= 1 << (ids[k] & 31)
        i += 1
    return worst


@njit(cache=True)
def _bulk_rows(header, config, limit, row):  # type: ignore[no-untyped-def]
    """Plain tokens by character length, along the chain of uniform successors.

    Returns `MIXED`, with `row` untouched, if the chain ends where some ordinary characters fit
    and others do not: longer tokens must then be walked.
    """
    upto, cost = u32(header, _PLAIN_UPTO), i32(header, _CONFIG_COST)
    words = len(row)
    longest = len(upto) // words - 1
    worst = 0
    here = config
    length = 0
    while length < longest:  # first only look how the chain ends
        following = uniform(header, here, 1)
        if following < 0 or following == MIXED:
            return following
        if following in (DEAD, here):
            break
        length += 1
        here = following
    here = config
    run = 0  # lengths from here on have not been added yet
    length = 0
    while length < longest:
        following = uniform(header, here, 1)
        if following == DEAD:
            break
        fits = cost[following] <= limit
        if fits:
            worst = max(worst, cost[following])
        elif length > run:
            _add_lengths(upto, row, words, run, length)
        if following == here:  # a free string: every further length looks the same
            length = longest
        else:
            length += 1
        if not fits:
            run = length
        here = following
    if length > run:
        _add_lengths(upto, row, words, run, length)
    return worst


@njit(cache=True)
def _add_lengths(upto, row, words, above, last):  # type: ignore[no-untyped-def]
    for w in range(words):
        row[w] |= upto[last * words + w] & ~upto[above * words + w]


@njit(cache=True)
def uniform(header, config, patient):  # type: ignore[no-untyped-def]
    """The configuration that *every* plain character leads to: `DEAD` if none fits, or `MIXED`.

    patient: 0 to answer `MIXED` instead of `DEAD` as soon as one does not fit, which is what most
    configurations outside strings want. Checked on all byte classes of plain characters (PROBES:
    a flat list of groups, each the lead classes followed by the classes of every continuation
    byte), then remembered.
    """
    known = i32(header, _UNIFORM)[config]
    if known:
        return known
    probes = i32(header, _PROBES)
    groups = probes[0]
    at = 1
    target = 0
    for _ in range(groups):
        n_leads, n_more = probes[at], probes[at + 1]
        leads = at + 2
        at = leads + n_leads
        previous = 0
        for k in range(n_leads):
            following = step(header, config, probes[leads + k])
            if following < 0:
                return following
            if n_more and following == previous:
                continue
            previous = following
            more = at
            for _ in range(n_more):
                if following == DEAD:
                    break
                n_classes = probes[more]
                reached = 0
                for j in range(n_classes):
                    after = step(header, following, probes[more + 1 + j])
                    if after < 0:
                        return after
                    if reached == 0:
                        reached = after
                    elif reached != after:
                        i32(header, _UNIFORM)[config] = MIXED
                        return MIXED
                following = reached
                more += 1 + n_classes
            if target == 0:
                target = following
            if following != target:
                i32(header, _UNIFORM)[config] = MIXED
                return MIXED
            if following == DEAD and not patient:
                return MIXED
        for _ in range(n_more):
            at += 1 + probes[at]
    if target == 0:
        target = MIXED
    i32(header, _UNIFORM)[config] = target
    return target


@njit(cache=True)
def advance_token(header, config, token):  # type: ignore[no-untyped-def]
    """The configuration after a token: a number, `DEAD`, or a negative code.

    Tokens without text lead nowhere, except special tokens that the grammar names.
    """
    start, data = i32(header, _TOKEN_START), u8(header, _TOKEN_BYTES)
    classes = i32(header, _CLASS_OF)
    if token + 1 >= len(start) or start[token] == start[token + 1]:
        specials = i32(header, _SPECIALS)
        for i in range(0, len(specials), 2):
            if specials[i] == token:
                return step(header, config, specials[i + 1])
        return DEAD
    for i in range(start[token], start[token + 1]):
        config = step(header, config, classes[data[i]])
        if config <= DEAD:
            return config
    return config


@njit(cache=True)
def only_byte(header, config, primary):  # type: ignore[no-untyped-def]
    """The single byte that may follow: byte + 1, 0 if there is a choice (or the text may end).

    primary: 1 to leave out edges that only another spelling takes.
    """
    if i32(header, _CONFIG_ACCEPTS)[config]:
        return 0
    start, items = i32(header, _CONFIG_START), i32(header, _CONFIG_ITEMS)
    edge_start, edge_class = i32(header, _EDGE_START), i32(header, _EDGE_CLASS)
    edge_primary, class_byte = i32(header, _EDGE_PRIMARY), i32(header, _CLASS_BYTE)
    found = 0
    for i in range(start[config], start[config + 1], 2):
        state = items[i]
        for e in range(edge_start[state], edge_start[state + 1]):
            byte = class_byte[edge_class[e]]
            if byte == NONE or found == byte + 1 or (primary and not edge_primary[e]):
                continue
            following = step(header, config, edge_class[e])
            if following < 0:
                return following
            if following == DEAD:
                continue
            if byte == SEVERAL or found:
                return 0
            found = byte + 1
    return found
