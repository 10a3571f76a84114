"""Walking a token trie with a configuration (numba kernels).

One look-up of the transition table per node; a refused byte skips its subtree, and so does a
subtree that is allowed as a whole (`classify`). Inside a rule that is the table of the network's
states, whatever the frames (`places`). A walk collects what is allowed as ranges of tokens in the
order of the trie, and adds them to the row or, where most are allowed, takes the others out of a
row that holds all plain tokens.

Sibling: `fill`, which chooses the walks of a row.
"""

from __future__ import annotations

from numba import carray

from structspec.automata.memory import (
    Count,
    Slot,
    _pointer_u32,
    at_i32,
    at_u8,
    base,
    i32,
    inner,
    slot,
    u32,
    wide,
)
from structspec.automata.pushdown import DEAD, UNKNOWN
from structspec.machine_code.linking import address, header_at, linked
from structspec.masks.blanks import is_blank, through_blanks
from structspec.masks.classify import enter
from structspec.masks.covers import NOT_COVERED, covers, maybe
from structspec.masks.expand import expand
from structspec.masks.places import (
    EXIT,
    FINAL,
    SPLIT,
    behind_at,
    calls_at,
    cost_of,
    floor_of,
    hollow_at,
    leave_at,
)
from structspec.masks.ranges import (
    ADD,
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
from structspec.masks.spread import ROOM, any_alive, enter_rules, is_new, push_nodes, spread
from structspec.masks.tables import (
    BYTE,
    IDS,
    MOST_RANGES,
    NODES,
    STACK_WIDTH,
    WIDE,
    Known,
    Tally,
    Words,
)
from structspec.vocab.blocks import FIRST, HEIGHT, HIGH, LAST, LOW, OWN, RECORD

_CLASS_OF, _NEXT, _COUNT = slot(Slot.CLASS_OF), slot(Slot.NEXT), slot(Slot.COUNT)
_CONFIG_COST, _CLASSES = slot(Slot.CONFIG_COST), int(Count.CLASSES)
_STACK, _CONTENT, _TARGET = slot(Known.STACK), slot(Known.CONTENT), slot(Known.TARGET)
_DEPTH, _DEPENDS = slot(Known.DEPTH), slot(Known.DEPENDS)
_RANGES = slot(Known.RANGES)
_SCRATCH, _EXTRA, _UPTO = slot(Known.SCRATCH), slot(Known.EXTRA), slot(Words.UPTO)
_MARKS, _PLACE = slot(Known.MARKS), slot(Known.PLACE)
_SIDE, _EDGE_START = slot(Known.SIDE), slot(Slot.EDGE_START)
_WALK, _TALLY, _BULK = slot(Words.WALK), slot(Known.COUNT), int(Tally.BULK)
_WORDS = int(Tally.WORDS)
_CONFIG_START, _CONFIG_ITEMS = slot(Slot.CONFIG_START), slot(Slot.CONFIG_ITEMS)
_FINAL, _CONFIG_ACCEPTS = slot(Slot.FINAL), slot(Slot.CONFIG_ACCEPTS)
_WALKS = int(Tally.WALKS)


#: Above every cost.
MANY = 1 << 30


@linked("structspec_walk", 11)
def walk_at(  # type: ignore[no-untyped-def]
    header_address, known_address, words_address, trie, config, frames, limit, row_address, more,
    still, blanks,
):  # fmt: skip
    """Add to a row the tokens of a `Blocks` (its first slot in `words`) that a place allows.

    config, frames: see `places`. Allowed: the token leads to a configuration of cost ≤ `limit`.
    more: 1 if the row may hold tokens of this trie already. still: a hollow configuration where
    plain text changes nothing and that allows with `frames` all plain tokens, or the others whose
    tails are in SIDE; 0: none; −1: the row holds the tokens that begin beyond ASCII. blanks: −1 to
    leave out the tokens that begin with white space; above 0 for nothing else, where so much of it
    changes nothing (`blanks`). Returns the largest such cost (or a bound above it), or a negative
    code; the row is then unusable.
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
    extra = u32(known, _EXTRA) if whole else row
    extras, kept = not whole, frames
    worst, top, letter = wide(0), wide(0), wide(0)
    # a place that covers, its frames, up to which height, and the largest cost inside
    same, under, far, dearest = wide(-1), wide(-1), wide(0), wide(0)
    # the last state where a rule may end, its frames, and what is known of them
    met, met_frames, met_stays = wide(-1), wide(-1), wide(0)
    met_cost, met_behind = wide(0), wide(0)
    at, end = at_i32(nodes, wide(FIRST)), at_i32(nodes, wide(LAST))
    lost, lost_frames = wide(-1), wide(-1)  # the last place that cannot be finished
    floor = floor_of(header, frames)
    summaries, still_row = trie == _WALK, still * n_classes
    # 1 where the row holds what `still` allows: what is otherwise is taken out of it or added
    based = wide(0)
    allowed_there = base(known, wide(_SIDE))
    if summaries:
        upto = u32(words, _UPTO)
        allowed_there = base(words, wide(_UPTO)) + 4 * (len(upto) - len(row))
    side = carray(_pointer_u32(allowed_there), (len(row),))
    if still < 0:
        still = wide(0)
        while end > at and at_u8(byte, end - 1) >= 0x80:
            end -= 1
    elif still and not more:
        based, mode = wide(1), wide(ADD)
        for w in range(len(row)):
            row[w] |= side[w]
    place = wide(0)
    apart = wide(0)  # 1 while several places share a subtree: their tokens are added to `extra`
    rough = wide(0)  # 1 behind text that is not plain ASCII
    tally = i32(known, _TALLY)
    tally[_WALKS] = tally[_WALKS] + 1 if tally[_WALKS] < MANY else 1
    marks, marked = u32(known, _MARKS), False
    tokens = at_i32(nodes, wide(HIGH))
    places = base(known, _PLACE)
    skips = wide(1 if blanks else 0)  # 1 where white space is left out
    split = frames == 0 and at_i32(places, config) == SPLIT
    if split:
        extras, marked, apart = True, True, wide(1)
        if whole:
            clear(extra, wide(32 * len(extra)))
        clear(marks, tokens)
    if blanks > 0:
        flags = apart + (0 if summaries else 2) + 8
        top = through_blanks(
            words, trie, wide(summaries), stack, row, blanks, config, frames, floor, flags
        )
        if top < 0:
            return top
        at = end
    elif split:
        top = push_nodes(stack, top, at, end, config, frames, floor, apart + 8 * skips)
        at = end
    while True:
        if at == end:
            if top == 0:
                break
            top -= STACK_WIDTH
            at, end, config = wide(stack[top]), wide(stack[top + 1]), wide(stack[top + 2])
            frames, floor = wide(stack[top + 3]), wide(stack[top + 4])
            flags = wide(stack[top + 5])
            apart, rough, based, skips = flags & 1, (flags >> 1) & 1, (flags >> 2) & 1, flags >> 3
            if frames == 0 and at_i32(places, config) == SPLIT:
                top = spread(header, known, words, trie, stack, top, at, end, config, flags)
                if top < 0:
                    return top
                at = end
            continue
        if n + 2 > MOST_RANGES:
            seen = wide(ranges[2 * n - 1])
            mode = write(known, words, trie, row, more, ranges, n, begun, seen, mode)
            begun = wide(ranges[2 * n - 1])
            n = wide(0)
        here = config * n_classes
        following = wide(DEAD)
        if based:
            while at < end:  # most children are as in `still`
                letter = at_u8(byte, at)
                kind = at_i32(classes, letter)
                following = at_i32(table, here + kind)
                if following != at_i32(table, still_row + kind):
                    break
                at += 1
        else:
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
        entry = following
        low, high = at_i32(nodes, RECORD * node + LOW), at_i32(nodes, RECORD * node + HIGH)
        mine = at_i32(nodes, RECORD * node + OWN)
        plain = 0x20 <= letter < 0x80 and letter != 0x22 and letter != 0x5C
        keeps = wide(0)  # 1: below the node the row holds what `still` allows
        if based:
            if plain and DEAD < entry < EXIT:
                keeps = wide(1)
                take_out(row, ids, low, low + mine)
            else:
                take_out(row, ids, low, high)
                if entry == DEAD:
                    continue
        elif (
            still
            and frames == kept
            and not rough
            and entry == at_i32(table, still_row + at_i32(classes, letter))
        ):
            add_some(row, ids, low, high, side)
            continue
        if skips and is_blank(letter):
            continue
        if whole and letter >= 0xC0 and maybe(nodes, allowed, targets, config, node, wide(1)):
            # whole characters, without going through them
            covered = covers(header, known, words, trie, config, frames, floor, node, limit)
            if covered >= 0:
                worst = max(worst, covered)
                if apart:
                    add_marked(extra, marks, ids, low, high)
                else:
                    n = allow(ranges, n, low, high)
                continue
            if covered != NOT_COVERED:
                return covered
        if apart and all_marked(marks, low, high):
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
                hopeless = following == lost and frames == lost_frames
                if not hopeless:
                    cost = cost_of(header, known, following, frames, floor)
                    hopeless = cost < 0
                if hopeless:
                    lost, lost_frames = following, frames
                    if keeps:
                        take_out(row, ids, low + mine, high)
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
                    and not any_alive(header, known, byte, children, behind, following)
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
        if mine and cost <= limit:
            worst = max(worst, cost)
            if apart:
                add_marked(extra, marks, ids, low, low + mine)
            else:
                n = allow(ranges, n, low, low + mine)
        if children == behind:
            continue
        ragged = rough if plain else wide(1)
        cover, behind_it, beyond_it = following, further, beyond
        if split:  # what the rule allows itself makes what is behind it needless
            cover, behind_it, beyond_it = stays, frames, floor
        if whole and cover > DEAD and maybe(nodes, allowed, targets, cover, node, wide(0)):
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
                    add_marked(extra, marks, ids, low + mine, high)
                else:
                    n = allow(ranges, n, low + mine, high)
                continue
            if covered != NOT_COVERED:
                return covered
        if top + ROOM > len(stack):
            return wide(WIDE)
        top = push_nodes(
            stack, top, at, end, config, frames, floor, apart + 2 * rough + 4 * based + 8 * skips
        )
        at, end, rough, based, skips = children, behind, ragged, keeps, wide(0)
        if not split:
            config, frames, floor = following, further, beyond
            if apart and not is_new(known, at, end, config, frames):
                at = end
            continue
        apart = wide(1)
        if not extras:
            extras = True
            clear(extra, wide(32 * len(extra)))
        if not marked:
            marked = True
            clear(marks, tokens)
        flags = apart + 2 * rough
        # pushed first, looked at last: by then most of it is allowed already
        if following != DEAD and is_new(known, at, end, following, further):
            top = push_nodes(stack, top, at, end, following, further, beyond, flags)
        if entered >= 0 and top >= 0:
            top = enter_rules(header, known, stack, top, at, end, entered, frames, flags)
        if top < 0:
            return top
        if stays and is_new(known, at, end, stays, frames):
            config = stays
        else:
            at = end
    mode = write(known, words, trie, row, more, ranges, n, begun, tokens, mode)
    if mode == TAKE_OUT:
        into = u32(known, _SCRATCH) if more else row
        take_out(into, ids, wide(ranges[2 * n - 1]) if n else begun, tokens)
        if more:
            for w in range(len(row)):
                row[w] |= into[w]
    if whole and extras:
        for w in range(len(row)):
            row[w] |= extra[w]
    return worst


@inner
def walk(header, known, words, trie, config, frames, limit, row, more, still, blanks):  # type: ignore[no-untyped-def]
    """`walk_at` for headers and a row."""
    return walk_at(
        address(header), address(known), address(words), trie, config, frames, limit,
        wide(row.ctypes.data), more, still, blanks,
    )  # fmt: skip
