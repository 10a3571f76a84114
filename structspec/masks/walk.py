"""Walking a token trie with a configuration (numba kernels).

One look-up of the transition table per node; a refused byte skips its subtree, and so does a
subtree that is allowed as a whole (`classify`). Inside a rule that is the table of the network's
states, whatever the frames (`places`). A walk collects what is allowed as ranges of tokens in the
order of the trie, and adds them to the row or, where most are allowed, takes the others out of a
row that holds all plain tokens.

Sibling: `fill`, which chooses the walks of a row.
"""

from __future__ import annotations

import numpy as np
from numba import carray

from structspec.automata.memory import (
    Count,
    Slot,
    _pointer_u32,
    at_i32,
    at_i64,
    at_u8,
    base,
    i32,
    inner,
    slot,
    u32,
    wide,
)
from structspec.automata.pushdown import DEAD, UNKNOWN, push
from structspec.machine_code.kernel import kernel
from structspec.machine_code.linking import address, header_at, linked
from structspec.masks.classify import chain, classify, enter
from structspec.masks.expand import expand
from structspec.masks.places import (
    EXIT,
    FINAL,
    SPLIT,
    alive,
    behind_at,
    calls_at,
    cost_of,
    edge_target_of,
    entered_at,
    floor_of,
    hollow_at,
    leave_at,
    place_of,
)
from structspec.masks.ranges import (
    TAKE_OUT,
    UNDECIDED,
    add_marked,
    add_some,
    all_marked,
    allow,
    clear,
    take_out,
    write,
)
from structspec.masks.tables import (
    BYTE,
    IDS,
    MOST_RANGES,
    NODES,
    SEEN_MASK,
    STACK_WIDTH,
    WIDE,
    Known,
    Tally,
    Words,
)
from structspec.vocab.blocks import CONTENT, FIRST, HEIGHT, HIGH, LAST, LOW, OWN, RECORD
from structspec.vocab.characters import MID

_CLASS_OF, _NEXT, _COUNT = slot(Slot.CLASS_OF), slot(Slot.NEXT), slot(Slot.COUNT)
_CONFIG_COST, _CLASSES = slot(Slot.CONFIG_COST), int(Count.CLASSES)
_STACK, _CONTENT, _TARGET = slot(Known.STACK), slot(Known.CONTENT), slot(Known.TARGET)
_DEPTH, _DEPENDS = slot(Known.DEPTH), slot(Known.DEPENDS)
_DEAREST, _ENDLESS, _RANGES = slot(Known.DEAREST), slot(Known.ENDLESS), slot(Known.RANGES)
_SCRATCH, _EXTRA, _UPTO = slot(Known.SCRATCH), slot(Known.EXTRA), slot(Words.UPTO)
_MARKS, _PLACE = slot(Known.MARKS), slot(Known.PLACE)
_QUEUE_STATE = slot(Slot.QUEUE_STATE)
_SIDE, _EDGE_START = slot(Known.SIDE), slot(Slot.EDGE_START)
_WALK, _TALLY, _BULK = slot(Words.WALK), slot(Known.COUNT), int(Tally.BULK)
_WORDS = int(Tally.WORDS)
_CONFIG_START, _CONFIG_ITEMS = slot(Slot.CONFIG_START), slot(Slot.CONFIG_ITEMS)
_CALL_START, _CALL_ENTRY = slot(Slot.CALL_START), slot(Slot.CALL_ENTRY)
_FINAL, _CONFIG_ACCEPTS = slot(Slot.FINAL), slot(Slot.CONFIG_ACCEPTS)
_ALIVE, _SEEN_PLACES, _WALKS = slot(Known.ALIVE), slot(Known.SEEN_PLACES), int(Tally.WALKS)


#: Above every cost.
MANY = 1 << 30
#: What a step pushes at most between two looks at the room.
_ROOM = 8 * STACK_WIDTH


@linked("structspec_walk", 10)
def walk_at(  # type: ignore[no-untyped-def]
    header_address, known_address, words_address, trie, config, frames, limit, row_address, more,
    still,
):  # fmt: skip
    """Add to a row the tokens of a `Blocks` (its first slot in `words`) that a place allows.

    config, frames: see `places`. Allowed: the token leads to a configuration of cost ≤ `limit`.
    more: 1 if the row may hold tokens of this trie already. still: a hollow configuration where
    plain text changes nothing and whose tails with `frames` are in SIDE, or 0. Returns the largest
    such cost (or a bound above it), or a negative code; the row is then unusable.
    """
    header, known = header_at(header_address), header_at(known_address)
    words = header_at(words_address)
    row = carray(_pointer_u32(row_address), (i32(known, _TALLY)[_WORDS],))  # type: ignore[call-arg]
    byte, nodes, ids = base(words, trie + BYTE), base(words, trie + NODES), i32(words, trie + IDS)
    classes, costs = base(header, _CLASS_OF), base(header, _CONFIG_COST)
    allowed, targets = base(known, _CONTENT), base(known, _TARGET)
    depends = base(known, _DEPENDS)
    start, items = i32(header, _CONFIG_START), i32(header, _CONFIG_ITEMS)
    edges, finals = i32(header, _EDGE_START), i32(header, _FINAL)
    accepts = i32(header, _CONFIG_ACCEPTS)
    stack, ranges = i32(known, _STACK), i32(known, _RANGES)
    n_classes = wide(i32(header, _COUNT)[_CLASSES])
    table = base(header, _NEXT)
    whole = trie == _WALK and i32(known, _TALLY)[_BULK] == 1
    mode, n, begun = wide(UNDECIDED), wide(0), wide(0)
    into = row
    extra = u32(known, _EXTRA) if whole else row
    extras, side, kept = not whole, u32(known, _SIDE), frames
    worst, top, letter = wide(0), wide(0), wide(0)
    # a place that covers, its frames, up to which height, and the largest cost inside
    same, under, far, dearest = wide(-1), wide(-1), wide(0), wide(0)
    # the last state where a rule may end, its frames, and what is known of them
    met, met_frames, met_stays = wide(-1), wide(-1), wide(0)
    met_cost, met_behind = wide(0), wide(0)
    at, end = at_i32(nodes, wide(FIRST)), at_i32(nodes, wide(LAST))
    floor = floor_of(header, frames)
    place = wide(0)
    apart = wide(0)  # 1 while several places share a subtree: their tokens are added to `extra`
    rough = wide(0)  # 1 behind text that is not plain ASCII
    tally = i32(known, _TALLY)
    tally[_WALKS] = tally[_WALKS] + 1 if tally[_WALKS] < MANY else 1
    marks, marked = u32(known, _MARKS), False
    places = base(known, _PLACE)
    if frames == 0 and at_i32(places, config) == SPLIT:
        extras, marked, apart = True, True, wide(1)
        if whole:
            clear(extra)
        clear(marks)
        top = _push(stack, top, at, end, config, frames, floor, apart)
        at = end
    while True:
        if at == end:
            if top == 0:
                break
            top -= STACK_WIDTH
            at, end, config = wide(stack[top]), wide(stack[top + 1]), wide(stack[top + 2])
            frames, floor = wide(stack[top + 3]), wide(stack[top + 4])
            apart, rough = wide(stack[top + 5]) & 1, wide(stack[top + 5]) >> 1
            if frames == 0 and at_i32(places, config) == SPLIT:
                top = _spread(
                    header, known, words, trie, stack, top, at, end, config, apart + 2 * rough
                )
                if top < 0:
                    return top
                at = end
            continue
        if n + 2 > MOST_RANGES:
            seen = wide(ranges[2 * n - 1])
            mode, into = write(known, words, trie, row, more, ranges, n, begun, seen, mode, into)
            begun = wide(ranges[2 * n - 1])
            n = wide(0)
        here = config * n_classes
        following = wide(DEAD)
        while at < end:  # most children are refused
            letter = at_u8(byte, at)
            following = at_i32(table, here + at_i32(classes, letter))
            if following != DEAD:
                break
            at += 1
        if at == end:
            continue
        node = at
        at += 1
        if following == UNKNOWN:
            code = expand(header, known, config)
            if code < 0:
                return code
            at = node
            continue
        if whole and letter >= 0xC0 and _maybe(nodes, allowed, targets, config, node, wide(1)):
            # whole characters, without going through them
            covered = covers(header, known, words, trie, config, frames, floor, node, limit)
            if covered >= 0:
                worst = max(worst, covered)
                begin = at_i32(nodes, RECORD * node + LOW)
                if apart:
                    add_marked(extra, marks, ids, begin, at_i32(nodes, RECORD * node + HIGH))
                else:
                    n = allow(ranges, n, begin, at_i32(nodes, RECORD * node + HIGH))
                continue
            if covered != NOT_COVERED:
                return covered
        if apart and all_marked(
            marks, at_i32(nodes, RECORD * node + LOW), at_i32(nodes, RECORD * node + HIGH)
        ):
            continue
        # the next place, and what a token that ends there costs
        further, beyond, split, cost = frames, floor, False, wide(0)
        stays = wide(0)  # where a rule that may end goes on with the same frames
        entered = wide(-1)  # the state whose rules are walked by themselves
        children, behind = (
            at_i32(nodes, RECORD * node + FIRST),
            at_i32(nodes, RECORD * node + LAST),
        )
        ended = False  # a rule walked by itself may end here
        if frames and following < EXIT:
            cost = at_i32(costs, following)
            ended = cost == 0 and accepts[following] == 1
            cost += floor
            if at_i32(depends, following):
                cost = cost_of(header, known, following, frames, floor)
                if cost < 0:
                    continue
        if frames == 0 or following >= EXIT or ended:
            if ended:
                if start[following + 1] > start[following]:
                    stays = following
                following = behind_at(address(header), address(known), frames)
            else:
                cost = wide(MANY)
            if following >= FINAL:
                if following != met or frames != met_frames:
                    met, met_frames = following, frames
                    met_stays, met_cost = wide(0), wide(MANY)
                    state = wide(following - FINAL)
                    if edges[state + 1] > edges[state]:
                        met_stays = hollow_at(address(header), address(known), state)
                        met_cost = cost_of(header, known, met_stays, frames, floor)
                        if met_cost < 0:
                            met_stays, met_cost = wide(0), wide(MANY)
                    met_behind = behind_at(address(header), address(known), frames)
                stays, cost, following = met_stays, met_cost, met_behind
            elif following >= EXIT:
                following -= EXIT
                alone = calls_at(address(header), address(known), following)
                if alone < 0:
                    return alone
                if alone:
                    entered = following
                    stays = hollow_at(address(header), address(known), entered)
                    if stays < 0:
                        return stays
                    cost = cost_of(header, known, stays, frames, floor)
                    if cost < 0:
                        continue
                    following = wide(DEAD)
                    if finals[entered]:
                        following = behind_at(address(header), address(known), frames)
                    if edges[entered + 1] == edges[entered]:
                        stays = wide(0)
                else:
                    following = leave_at(address(header), address(known), following, frames)
            if following < 0:
                return following
            if following == DEAD and entered < 0:
                if stays == 0:
                    continue
                following = stays
            else:
                split = stays != 0 or entered >= 0
                if following != DEAD:
                    cost = min(cost, at_i32(costs, following))
                    further, beyond = wide(0), wide(0)
                if (
                    stays
                    and entered < 0
                    and not _any_alive(header, known, byte, children, behind, following)
                ):
                    following, further, beyond, split = stays, frames, floor, False
                elif following != DEAD and children != behind:
                    place = enter(header, known, following)
                    if place < 0:
                        return place
                    split = split or place == SPLIT
                    if place > SPLIT:
                        further = wide(items[start[following] + 1])
                        beyond = floor_of(header, further)
                        following = place - 1
        begin, mine = at_i32(nodes, RECORD * node + LOW), at_i32(nodes, RECORD * node + OWN)
        if mine and cost <= limit:
            worst = max(worst, cost)
            if apart:
                add_marked(extra, marks, ids, begin, begin + mine)
            else:
                n = allow(ranges, n, begin, begin + mine)
        if children == behind:
            continue
        ragged = rough
        if letter < 0x20 or letter >= 0x80 or letter == 0x22 or letter == 0x5C:
            ragged = wide(1)
        elif following == still and further == kept and not (split or rough):
            add_some(row, ids, begin + mine, at_i32(nodes, RECORD * node + HIGH), side)
            continue
        cover, behind_it, beyond_it = following, further, beyond
        if split:  # what the rule allows itself makes what is behind it needless
            cover, behind_it, beyond_it = stays, frames, floor
        if whole and cover > DEAD and _maybe(nodes, allowed, targets, cover, node, wide(0)):
            tall = at_i32(nodes, RECORD * node + HEIGHT)
            if cover == same and behind_it == under and tall <= far:
                covered = dearest
            else:
                covered = covers(
                    header, known, words, trie, cover, behind_it, beyond_it, node, limit
                )
                if covered >= 0:  # most subtrees are covered by the same place
                    same, under, dearest = cover, behind_it, covered
                    far = wide(i32(known, _DEPTH)[cover])
            if covered >= 0:
                worst = max(worst, covered)
                if apart:
                    add_marked(extra, marks, ids, begin + mine, at_i32(nodes, RECORD * node + HIGH))
                else:
                    n = allow(ranges, n, begin + mine, at_i32(nodes, RECORD * node + HIGH))
                continue
            if covered != NOT_COVERED:
                return covered
        if top + _ROOM > len(stack):
            return wide(WIDE)
        top = _push(stack, top, at, end, config, frames, floor, apart + 2 * rough)
        at, end, rough = children, behind, ragged
        if not split:
            config, frames, floor = following, further, beyond
            if apart and not _is_new(known, at, end, config, frames):
                at = end
            continue
        apart = wide(1)
        if not extras:
            extras = True
            clear(extra)
        if not marked:
            marked = True
            clear(marks)
        flags = apart + 2 * rough
        # pushed first, looked at last: by then most of it is allowed already
        if following != DEAD and _is_new(known, at, end, following, further):
            top = _push(stack, top, at, end, following, further, beyond, flags)
        if entered >= 0 and top >= 0:
            top = _enter_rules(header, known, stack, top, at, end, entered, frames, flags)
        if top < 0:
            return top
        if stays and _is_new(known, at, end, stays, frames):
            config = stays
        else:
            at = end
    seen = at_i32(nodes, wide(HIGH))
    mode, into = write(known, words, trie, row, more, ranges, n, begun, seen, mode, into)
    if mode == TAKE_OUT:
        take_out(into, ids, wide(ranges[2 * n - 1]) if n else begun, seen)
        if more:
            for w in range(len(row)):
                row[w] |= into[w]
    if whole and extras:
        for w in range(len(row)):
            row[w] |= extra[w]
    return worst


@inner
def walk(header, known, words, trie, config, frames, limit, row, more, still):  # type: ignore[no-untyped-def]
    """`walk_at` for headers and a row."""
    return walk_at(
        address(header), address(known), address(words), trie, config, frames, limit,
        wide(row.ctypes.data), more, still,
    )  # fmt: skip


@inner
def _push(stack, top, at, end, config, frames, floor, apart):  # type: ignore[no-untyped-def]
    stack[top], stack[top + 1], stack[top + 2] = at, end, config
    stack[top + 3], stack[top + 4], stack[top + 5] = frames, floor, apart
    return top + STACK_WIDTH


@inner
def _is_new(known, at, end, config, frames):  # type: ignore[no-untyped-def]
    """Whether the running walk has not been at these nodes with this place, as far as is known.

    Ambiguous grammars reach one place on many ways.
    """
    seen = i32(known, _SEEN_PLACES)
    walk_number = i32(known, _TALLY)[_WALKS]
    nodes = 2 * at + (end - at == 1)
    entry = 4 * ((nodes * 40503 + config * 1000003 + frames * 31) & SEEN_MASK)
    if (
        seen[entry] == walk_number
        and seen[entry + 1] == nodes
        and seen[entry + 2] == config
        and seen[entry + 3] == frames
    ):
        return False
    seen[entry], seen[entry + 1] = walk_number, nodes
    seen[entry + 2], seen[entry + 3] = config, frames
    return True


@kernel
def _enter_rules(header, known, stack, top, at, end, state, frames, flags):  # type: ignore[no-untyped-def]
    """Push the nodes from `at` to `end` with each rule that a state calls under some frames.

    Returns the new top of the stack, or a negative code.
    """
    call_start, call_entry = i32(header, _CALL_START), i32(header, _CALL_ENTRY)
    for c in range(call_start[state], call_start[state + 1]):
        if top + _ROOM > len(stack):
            return wide(WIDE)
        pushed = push(address(header), wide(c), frames)
        if pushed < 0:
            return pushed
        if pushed:
            config = entered_at(address(header), address(known), wide(call_entry[c]))
            if _is_new(known, at, end, config, pushed):
                top = _push(stack, top, at, end, config, pushed, floor_of(header, pushed), flags)
    return top


@inner
def _any_alive(header, known, byte, at, end, config):  # type: ignore[no-untyped-def]
    """Whether a configuration knows the byte of some node from `at` to `end`."""
    if at == end:
        return False
    first = alive(header, known, config)
    bits, classes = u32(known, _ALIVE), base(header, _CLASS_OF)
    for node in range(at, end):
        letter = wide(at_i32(classes, at_u8(byte, node)))
        if (bits[first + (letter >> 5)] >> np.uint32(letter & 31)) & np.uint32(1):
            return True
    return False


@kernel
def _spread(header, known, words, trie, stack, top, at, end, config, flags):  # type: ignore[no-untyped-def]
    """Push each node from `at` to `end` with each pair of a configuration that knows its byte.

    Nodes whose tokens are all allowed already are left out. Returns the new top of the stack, or a
    negative code.
    """
    first = alive(header, known, config)
    bits, marks, classes = u32(known, _ALIVE), u32(known, _MARKS), base(header, _CLASS_OF)
    byte, nodes = base(words, trie + BYTE), base(words, trie + NODES)
    start, items = i32(header, _CONFIG_START), i32(header, _CONFIG_ITEMS)
    targets, chosen = i32(known, _TARGET), i32(header, _QUEUE_STATE)
    begin, pairs = start[config], (start[config + 1] - start[config]) >> 1
    for node in range(at, end):
        letter = wide(at_i32(classes, at_u8(byte, node)))
        if (bits[first + (letter >> 5)] >> np.uint32(letter & 31)) & np.uint32(1) == 0:
            continue
        record = RECORD * node
        if all_marked(marks, at_i32(nodes, record + LOW), at_i32(nodes, record + HIGH)):
            continue
        n = 0
        for i in range(pairs):
            if edge_target_of(header, wide(items[begin + 2 * i]), letter) >= 0:
                chosen[n] = i
                n += 1
        # those where much text changes nothing are pushed last and looked at first
        for turn in range(2 if n > 1 else 1):
            for k in range(n):
                hollow = wide(0)
                if n > 1:
                    state = wide(items[begin + 2 * chosen[k]])
                    hollow = hollow_at(address(header), address(known), state)
                    if (targets[hollow] == hollow) != (turn == 1):
                        continue
                if top + _ROOM > len(stack):
                    return wide(WIDE)
                place, frames = place_of(header, known, config, wide(chosen[k]))
                if place < 0:
                    return place
                if _is_new(known, wide(node), wide(node + 1), place, frames):
                    top = _push(
                        stack, top, wide(node), wide(node + 1), place, frames,
                        floor_of(header, frames), flags,
                    )  # fmt: skip
    return top


@kernel(inline="always")
def _maybe(nodes, allowed, targets, config, node, inside):  # type: ignore[no-untyped-def]
    """Whether the characters below a node fit, as far as is known of the configuration.

    inside: 1 if the node may be the first byte of a character that begins in `config`.
    """
    target = at_i32(targets, config)
    if target == DEAD:
        return False
    # Two words of 64 bits each.
    below = nodes + 4 * (RECORD * node + CONTENT)
    first = at_i64(below, wide(0))
    if target == UNKNOWN:
        return inside == 1 or (first >> MID) & 1 == 0
    first &= ~at_i64(allowed, 2 * config)
    if inside:
        first &= ~(1 << MID)
    return first == 0 and at_i64(below, wide(1)) & ~at_i64(allowed, 2 * config + 1) == 0


#: `covers`: the subtree must be walked.
NOT_COVERED = -1000


@kernel
def covers(header, known, words, trie, config, frames, floor, node, limit):  # type: ignore[no-untyped-def]
    """Whether all tokens below a node are allowed: the largest cost they lead to.

    `NOT_COVERED` if that is not certain, or another negative code.
    """
    target = classify(header, known, config)
    if target < 0:
        return target
    nodes, allowed = base(words, trie + NODES), base(known, _CONTENT)
    # The caller has looked at MID.
    if not _maybe(nodes, allowed, base(known, _TARGET), config, node, wide(1)):
        return wide(NOT_COVERED)
    need = at_i32(nodes, RECORD * node + HEIGHT)
    length = chain(header, known, config, need)
    if length < 0:
        return length
    if length < need:
        return wide(NOT_COVERED)
    dearest = i32(known, _DEAREST)[config] + floor
    endless = wide(i32(known, _ENDLESS)[config])
    if endless:
        cost = cost_of(header, known, endless, frames, floor)
        if cost < 0:
            return wide(NOT_COVERED)
        dearest = max(dearest, cost)
    return dearest if dearest <= limit else wide(NOT_COVERED)
