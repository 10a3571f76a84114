"""Mask rows: which tokens a configuration allows (numba kernels).

A row is made of the plain tokens (see `vocab.plain`) and the others. Where plain text changes
nothing, as in a free string, all plain tokens are one precomputed bitset and the others are decided
by their tails; a bounded string with room for the longest token, the same with a walk of the
others; one that is nearly full, the bitset of its length; anything else is walked, with subtrees
that are allowed or refused as a whole left out. Where most text leads to such a place, as in a key
beside declared keys, the row begins as that place's and the walk looks at what differs (`_beside`).
What begins with white space is walked from behind it, where it changes nothing (`blanks`). Then
special tokens and end tokens. A row that differs from a kept one in nothing but how much white
space may follow is made from that (`twins`).

Rows are uint32[ceil(V / 32)], bit `i % 32` of word `i // 32` is token i. They lie in a pool, equal
rows once. Public states are `epoch << 32 | configuration`.

Siblings: `constraint`, the only caller; `steps`, the states behind tokens. Cost: see docs/masks.md.
Numbers are passed as `np.int64`: numba would compile a kernel once more for each literal.
"""

from __future__ import annotations

import numpy as np
from numba import carray

from structspec.automata.memory import Count, Slot, _pointer_u32, i32, inner, slot, u32, wide
from structspec.automata.pushdown import DEAD
from structspec.machine_code.kernel import kernel
from structspec.machine_code.linking import address, header_at, linked
from structspec.masks.blanks import blank_room
from structspec.masks.classify import chain, classify, enter, follow, may_end
from structspec.masks.covers import NOT_COVERED, covers
from structspec.masks.places import (
    FEW_PAIRS,
    HIDDEN,
    SPLIT,
    WHOLE,
    cost_of,
    floor_of,
    place_of,
    stride,
)
from structspec.masks.pool import keep_row, pool_row
from structspec.masks.tables import FULL, NODES, SHORT, STALE, Known, Tally, Words
from structspec.masks.twins import NO_TWIN, note_twin, twin_key, twin_row
from structspec.masks.walk import walk
from structspec.vocab.blocks import CONTENT, HEIGHT
from structspec.vocab.characters import EVERY

_CLASS_OF, _COUNT, _CONFIG_COST = slot(Slot.CLASS_OF), slot(Slot.COUNT), slot(Slot.CONFIG_COST)
_CONFIG_ACCEPTS, _CONFIGS = slot(Slot.CONFIG_ACCEPTS), int(Count.CONFIGS)
_CONFIG_START, _CONFIG_ITEMS = slot(Slot.CONFIG_START), slot(Slot.CONFIG_ITEMS)
_WALK, _OTHERS, _TAILS = slot(Words.WALK), slot(Words.OTHERS), slot(Words.TAILS)
_UPTO, _EOS, _BEGUN = slot(Words.UPTO), slot(Words.EOS), slot(Words.BEGUN)
_PIECES = slot(Words.PIECES)
_ROW_OF, _SPECIALS, _TALLY = slot(Known.ROW_OF), slot(Known.SPECIALS), slot(Known.COUNT)
_CONTENT, _DEAREST = slot(Known.CONTENT), slot(Known.DEAREST)
_ROWS, _DONE, _WORDS, _BULK = int(Tally.ROWS), int(Tally.DONE), int(Tally.WORDS), int(Tally.BULK)
_ROOM, _BLANK_ROOM = int(Tally.ROOM), int(Tally.BLANK_ROOM)
_PLACE, _ENDLESS, _SIDE = slot(Known.PLACE), slot(Known.ENDLESS), slot(Known.SIDE)
_SIDE_CONFIG, _SIDE_FRAMES = int(Tally.SIDE_CONFIG), int(Tally.SIDE_FRAMES)
_SIDE_WORST = int(Tally.SIDE_WORST)

#: A limit above every cost: nothing is filtered.
UNLIMITED = 1 << 30
_LOW = (1 << 32) - 1


@linked("structspec_compute_row", 6)
def compute_row_at(header_address, known_address, words_address, config, limit, row_address):  # type: ignore[no-untyped-def]
    """Set the bits of all tokens that lead to a configuration of cost ≤ `limit`, and end tokens.

    Returns the largest cost that an allowed token leads to (or a bound above it), or a negative
    code; the row is then unusable.
    """
    header, known = header_at(header_address), header_at(known_address)
    words = header_at(words_address)
    row = carray(_pointer_u32(row_address), (i32(known, _TALLY)[_WORDS],))  # type: ignore[call-arg]
    if len(i32(known, _ROW_OF)) < len(i32(header, _CONFIG_START)):
        return SHORT
    for w in range(len(row)):
        row[w] = 0
    worst = wide(0)
    if limit >= 0:
        worst = _text_row(header, known, words, config, limit, row)
    if worst < 0:
        return worst
    specials, cost = i32(known, _SPECIALS), i32(header, _CONFIG_COST)
    for i in range(0, len(specials), 2):
        following = stride(header, known, config, np.int64(specials[i + 1]))
        if following < 0:
            return following
        if following != DEAD and cost[following] <= limit:
            worst = max(worst, cost[following])
            row[specials[i] >> 5] |= np.uint32(1) << np.uint32(specials[i] & 31)
    if i32(header, _CONFIG_ACCEPTS)[config]:
        eos = u32(words, _EOS)
        for w in range(len(row)):
            row[w] |= eos[w]
    return worst


@kernel
def compute_row(header, known, words, config, limit, row):  # type: ignore[no-untyped-def]
    """`compute_row_at` for headers and a row."""
    return compute_row_at(
        address(header), address(known), address(words), config, limit, row.ctypes.data
    )


@kernel
def _text_row(header, known, words, config, limit, row):  # type: ignore[no-untyped-def]
    """The tokens that write text: those of the configuration's places together."""
    place = enter(header, known, config)
    if place < 0:
        return place
    start = i32(header, _CONFIG_START)
    pairs = (start[config + 1] - start[config]) >> 1
    room, after = blank_room(header, known, config)
    if room < 0:
        return room
    i32(known, _TALLY)[_BLANK_ROOM] = room
    costs = i32(header, _CONFIG_COST)
    if room and costs[after] > limit:
        room = wide(0)
    blanks = wide(-1 if room else 0)
    plain, others = np.int64(_WALK), np.int64(_OTHERS)
    worst = wide(0)
    if place == WHOLE:
        worst = _place_row(header, known, words, config, np.int64(0), limit, row, wide(0), blanks)
    elif pairs > FEW_PAIRS:
        for trie in (plain, others):
            code = walk(
                header, known, words, trie, config, wide(0), limit, row, wide(0), wide(0), blanks
            )
            if code < 0:
                return code
            worst = max(worst, code)
    else:
        for i in range(pairs):
            hollow, frames = place_of(header, known, config, i)
            if hollow < 0:
                return hollow
            more = wide(1 if i else 0)
            code = _place_row(header, known, words, hollow, frames, limit, row, more, blanks)
            if code < 0:
                return code
            worst = max(worst, code)
    if room == 0 or worst < 0:
        return worst
    worst = max(worst, costs[after])
    frames = wide(0)
    if place > SPLIT:
        config, frames = place - 1, wide(i32(header, _CONFIG_ITEMS)[start[config] + 1])
    for trie in (plain, others):
        code = walk(header, known, words, trie, config, frames, limit, row, wide(1), wide(0), room)
        if code < 0:
            return code
        worst = max(worst, code)
    return worst


@kernel
def _place_row(header, known, words, config, frames, limit, row, more, blanks):  # type: ignore[no-untyped-def]
    """Add the tokens that a place allows. more: 1 if the row holds others already. blanks: −1 to
    leave out those that begin with white space.
    """
    plain, others = np.int64(_WALK), np.int64(_OTHERS)
    still = wide(0)
    if not i32(known, _TALLY)[_BULK]:
        worst = walk(header, known, words, plain, config, frames, limit, row, more, still, blanks)
    else:
        worst = _plain_row(header, known, words, config, frames, limit, row)
        if worst == NOT_COVERED:
            target, dearest = _beside(header, known, words, config, frames, limit, more)
            if target < 0:
                return target
            worst = walk(
                header, known, words, plain, config, frames, limit, row, more, target, blanks
            )
            if worst >= 0:
                worst = max(worst, dearest)
        if worst >= 0:
            still = _still(header, known, words, config)
            if still == config:
                others, still, blanks = np.int64(_TAILS), wide(0), wide(0)
                cost = wide(NOT_COVERED)
                if limit == UNLIMITED:
                    cost = _add_pieces(header, known, words, config, frames, row)
                if cost >= 0:
                    worst, still = max(worst, cost), wide(-1)
            elif still and (frames == 0 or limit != UNLIMITED):
                still = wide(0)
            elif still:
                code = _side_row(header, known, words, still, frames)
                if code < 0:
                    return code
                worst = max(worst, code)
    if worst < 0:
        return worst
    code = walk(header, known, words, others, config, frames, limit, row, more, still, blanks)
    return code if code < 0 else max(worst, code)


@inner
def _settled(header, known, config):  # type: ignore[no-untyped-def]
    """Where most text leads and then changes nothing, 0 if it leads on; or a code."""
    target = classify(header, known, config)
    if target <= DEAD:
        return min(target, wide(0))
    onward = classify(header, known, target)
    return target if onward == target else min(onward, wide(0))


@inner
def _beside(header, known, words, config, frames, limit, more):  # type: ignore[no-untyped-def]
    """Where most text leads and then changes nothing and all plain tokens may follow, and their
    largest cost: the walk need only look at what differs. 0 if that is nowhere, or a code.
    """
    if frames == 0 or more:
        return wide(0), wide(0)
    target = _settled(header, known, config)
    if target <= 0 or target == config:
        return min(target, wide(0)), wide(0)
    floor, trie, root = floor_of(header, frames), np.int64(_WALK), np.int64(0)
    worst = covers(header, known, words, trie, target, frames, floor, root, limit)
    if worst < 0:
        return wide(0) if worst == NOT_COVERED else worst, wide(0)
    return target, worst


@inner
def _side_row(header, known, words, config, frames):  # type: ignore[no-untyped-def]
    """Make SIDE the tokens whose tails a place allows. Returns their largest cost or a code."""
    tally, side = i32(known, _TALLY), u32(known, _SIDE)
    if tally[_SIDE_CONFIG] == config and tally[_SIDE_FRAMES] == frames:
        return wide(tally[_SIDE_WORST])
    tally[_SIDE_CONFIG] = 0
    for w in range(len(side)):
        side[w] = 0
    tails, all_ = np.int64(_TAILS), np.int64(UNLIMITED)
    least = _add_pieces(header, known, words, config, frames, side)
    rest = wide(-1 if least >= 0 else 0)
    none = wide(0)
    worst = walk(header, known, words, tails, config, frames, all_, side, none, rest, none)
    if worst >= 0:
        worst = max(worst, least)
        tally[_SIDE_CONFIG], tally[_SIDE_FRAMES] = config, frames
        tally[_SIDE_WORST] = worst
    return worst


@inner
def _add_pieces(header, known, words, config, frames, row):  # type: ignore[no-untyped-def]
    """Add the tokens whose tails are characters beyond ASCII or beginnings of such, if any
    character leads from `config` back to it. Returns a bound above their costs, or `NOT_COVERED`.
    """
    if not u32(known, _CONTENT)[4 * config] & np.uint32(1 << EVERY):
        return wide(NOT_COVERED)
    cost = cost_of(header, known, config, frames, floor_of(header, frames))
    if cost < 0:
        return wide(NOT_COVERED)
    pieces = u32(words, _PIECES)
    for w in range(len(row)):
        row[w] |= pieces[w]
    return cost + 3  # the bytes that a character may lack; each is a token


@inner
def _still(header, known, words, config):  # type: ignore[no-untyped-def]
    """Where plain text leads and then changes nothing, 0 if that is not so; may be `config`.

    Every plain text in front of a token's tail may stand there and leads back. (Plain *tokens* may
    all be allowed while the text before some tail holds a character that no plain token holds.)
    """
    target = _settled(header, known, config)
    if target <= 0:
        return wide(0)
    if may_end(header, known, target):
        return wide(0)
    begun, allowed = u32(words, _BEGUN), u32(known, _CONTENT)
    more = np.uint32(0)
    for w in range(4):
        more |= begun[w] & ~allowed[4 * target + w]
    return target if more == 0 else wide(0)


@kernel
def _plain_row(header, known, words, config, frames, limit, row):  # type: ignore[no-untyped-def]
    """Add the plain tokens, if they are one bitset; else `NOT_COVERED`, or another code."""
    upto = u32(words, _UPTO)
    floor = floor_of(header, frames)
    root = np.int64(0)
    worst = covers(header, known, words, np.int64(_WALK), config, frames, floor, root, limit)
    length = len(upto) // len(row) - 1
    if worst == NOT_COVERED:
        # A string that is nearly full: allowed up to a length, and nothing longer.
        fields, allowed = u32(words, _WALK + NODES), u32(known, _CONTENT)
        for w in range(4):
            if fields[CONTENT + w] & ~allowed[4 * config + w]:
                return wide(NOT_COVERED)
        length = chain(header, known, config, wide(i32(words, _WALK + NODES)[HEIGHT]))
        if length < 0:
            return length
        here = config
        ends = False
        for _ in range(length):
            here = classify(header, known, np.int64(here))
            ends = ends or may_end(header, known, np.int64(here))
        target = classify(header, known, np.int64(here))
        if target < 0:
            return target
        worst = i32(known, _DEAREST)[config] + floor
        if (
            length == 0
            or ends
            or target != DEAD
            or worst > limit
            or i32(known, _ENDLESS)[config]
            or _any_plain(header, known, np.int64(here))
        ):
            return wide(NOT_COVERED)
    if worst < 0:
        return worst
    at = length * len(row)
    for w in range(len(row)):
        row[w] |= upto[at + w]
    return worst


@kernel
def plain_mechanism(header, known, words, config):  # type: ignore[no-untyped-def]
    """How `_plain_row` decides: 2 all plain tokens, 1 up to a length, 0 by a walk; or a code."""
    tally = i32(known, _TALLY)
    if not tally[_BULK]:
        return wide(0)
    if len(i32(known, _ROW_OF)) < len(i32(header, _CONFIG_START)):
        return wide(SHORT)
    place = enter(header, known, config)
    if place < 0:
        return place
    scratch = np.zeros(tally[_WORDS], np.uint32)
    if place == WHOLE:
        return _mechanism(header, known, words, config, np.int64(0), scratch)
    start = i32(header, _CONFIG_START)
    least = wide(2)
    for i in range((start[config + 1] - start[config]) >> 1):
        hollow, frames = place_of(header, known, config, i)
        if hollow < 0:
            return hollow
        least = min(least, _mechanism(header, known, words, hollow, frames, scratch))
    return least


@inner
def _mechanism(header, known, words, config, frames, scratch):  # type: ignore[no-untyped-def]
    root, floor, everything = np.int64(0), floor_of(header, frames), np.int64(UNLIMITED)
    worst = covers(header, known, words, np.int64(_WALK), config, frames, floor, root, everything)
    if worst >= 0:
        return wide(2)
    if worst != NOT_COVERED:
        return worst
    worst = _plain_row(header, known, words, config, frames, everything, scratch)
    if worst == NOT_COVERED:
        return wide(0)
    return worst if worst < 0 else wide(1)


@inner
def _any_plain(header, known, config):  # type: ignore[no-untyped-def]
    """Whether plain text may follow (errors count as such)."""
    classes = i32(header, _CLASS_OF)
    for b in range(0x20, 0x100):
        plain = b != 0x22 and b != 0x5C
        if plain and follow(header, known, config, np.int64(classes[b])) != DEAD:
            return True
    return False


@kernel
def row_at(header, known, words, state, epoch):  # type: ignore[no-untyped-def]
    """The number of a state's row, computed if need be; or a negative code. Headers by address:
    each array that Python passes takes a fifth of a microsecond.
    """
    return row_of(header_at(header), header_at(known), header_at(words), state, epoch)


@inner
def row_of(header, known, words, state, epoch):  # type: ignore[no-untyped-def]
    """`row_at` for kernels."""
    config = state & _LOW
    if state >> 32 != epoch or config >= i32(header, _COUNT)[_CONFIGS]:
        return STALE
    rows = i32(known, _ROW_OF)
    if len(rows) < len(i32(header, _CONFIG_START)):
        return SHORT
    if i32(known, _PLACE)[config] == HIDDEN:
        return STALE
    if rows[config]:
        return rows[config] - 1
    tally = i32(known, _TALLY)
    if tally[_ROWS] == tally[_ROOM]:
        return FULL
    row = pool_row(known, np.int64(tally[_ROWS]))
    key = twin_key(header, known, wide(config))
    worst = wide(NO_TWIN)
    if key >= 0:
        worst = twin_row(header, known, words, wide(config), key, row)
    if worst == NO_TWIN:
        worst = compute_row(header, known, words, config, UNLIMITED, row)
    if worst < 0:
        return worst
    if key >= 0:
        note_twin(known, wide(config), key)
    return keep_row(header, known, config, worst)


@kernel(nogil=True)
def fill_states(header, known, words, states, epoch, out):  # type: ignore[no-untyped-def]
    """Write the rows of many states to `out`, from number DONE on. Returns 0 or a negative code."""
    tally = i32(known, _TALLY)
    for i in range(tally[_DONE], len(states)):
        if states[i] == 0:  # the text has ended
            for w in range(tally[_WORDS]):
                out[i, w] = 0
        else:
            number = row_of(header, known, words, states[i], epoch)
            if number < 0:
                return number
            row = pool_row(known, np.int64(number))
            for w in range(tally[_WORDS]):
                out[i, w] = row[w]
        tally[_DONE] = i + 1
    return 0
