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

from structspec.automata.memory import ONE, ZERO, Count, Slot, i32, inner, slot, u8, u32, wide
from structspec.automata.pushdown import DEAD, step

_CLASS_OF, _COUNT, _CONFIG_COST = slot(Slot.CLASS_OF), slot(Slot.COUNT), slot(Slot.CONFIG_COST)
_CONFIG_ACCEPTS, _UNIFORM = slot(Slot.CONFIG_ACCEPTS), slot(Slot.CONFIG_UNIFORM)
_CONFIG_START, _CONFIG_ITEMS = slot(Slot.CONFIG_START), slot(Slot.CONFIG_ITEMS)
_EDGE_START, _EDGE_CLASS = slot(Slot.EDGE_START), slot(Slot.EDGE_CLASS)
_EDGE_PRIMARY = slot(Slot.EDGE_PRIMARY)
_TRIE_BYTE, _REST_BYTE = slot(Slot.TRIE_BYTE), slot(Slot.REST_BYTE)
_PLAIN_UPTO, _PROBES, _CLASS_BYTE = slot(Slot.PLAIN_UPTO), slot(Slot.PROBES), slot(Slot.CLASS_BYTE)
_TOKEN_START, _TOKEN_BYTES = slot(Slot.TOKEN_START), slot(Slot.TOKEN_BYTES)
_SPECIALS = slot(Slot.SPECIALS)
_STACK, _CLASSES = slot(Slot.STACK), int(Count.CLASSES)

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
    worst = ZERO
    specials, cost = i32(header, _SPECIALS), i32(header, _CONFIG_COST)
    for i in range(0, len(specials), 2):
        following = step(header, config, wide(specials[i + 1]))
        if following < 0:
            return following
        cost = i32(header, _CONFIG_COST)
        if following != DEAD and cost[following] <= limit:
            worst = max(worst, wide(cost[following]))
            row[specials[i] >> 5] |= 1 << (specials[i] & 31)
    trie = _TRIE_BYTE
    if bulk:
        following = uniform(header, config, ZERO)
        if following < 0:
            return following
        if following != MIXED:
            plain = _bulk_rows(header, config, limit, row)
            if plain < 0:
                return plain
            if plain != MIXED:
                worst = max(worst, plain)
                trie = _REST_BYTE
    walked = _walk(header, config, limit, row, trie)
    return walked if walked < 0 else max(worst, walked)


@inner
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
        following = step(header, wide(stack[d - 1]), wide(classes[nodes[i]]))
        if following < 0:
            return following
        if following == DEAD:
            i = skip[i]
            continue
        stack[d] = following
        if offset[i + 1] > offset[i] and cost[following] <= limit:
            worst = max(worst, wide(cost[following]))
            for k in range(offset[i], offset[i + 1]):
                row[ids[k] >> 5] |= 1 << (ids[k] & 31)
        i += 1
    return worst


@inner
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
    length = ZERO
    while length < longest:  # first only look how the chain ends
        following = uniform(header, here, ONE)
        if following < 0 or following == MIXED:
            return following
        if following in (DEAD, here):
            break
        length += 1
        here = following
    here = config
    run = ZERO  # lengths from here on have not been added yet
    length = ZERO
    while length < longest:
        following = uniform(header, here, ONE)
        if following == DEAD:
            break
        fits = cost[following] <= limit
        if fits:
            worst = max(worst, wide(cost[following]))
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


@inner
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
    known = wide(i32(header, _UNIFORM)[config])
    if known:
        return known
    probes = i32(header, _PROBES)
    groups = probes[0]
    at = 1
    target = 0
    for _ in range(groups):
        n_leads, n_more = wide(probes[at]), wide(probes[at + 1])
        leads = at + 2
        at = leads + n_leads
        previous = 0
        for k in range(n_leads):
            following = step(header, config, wide(probes[leads + k]))
            if following < 0:
                return following
            if n_more and following == previous:
                continue
            previous = following
            more = at
            for _ in range(n_more):
                if following == DEAD:
                    break
                n_classes = wide(probes[more])
                reached = 0
                for j in range(n_classes):
                    after = step(header, following, wide(probes[more + 1 + j]))
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
            at += 1 + wide(probes[at])
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
                return step(header, config, wide(specials[i + 1]))
        return DEAD
    for i in range(start[token], start[token + 1]):
        config = step(header, config, wide(classes[data[i]]))
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
            byte = wide(class_byte[edge_class[e]])
            if byte == NONE or found == byte + 1 or (primary and not edge_primary[e]):
                continue
            following = step(header, config, wide(edge_class[e]))
            if following < 0:
                return following
            if following == DEAD:
                continue
            if byte == SEVERAL or found:
                return 0
            found = byte + 1
    return found
