"""What plain text does to a configuration: where most characters lead, and for how long (numba).

For a configuration c, `TARGET[c]` is the configuration that the most ordinary characters lead to
and `CONTENT[c]` the set of those characters (`vocab.characters`): a group of characters beyond
ASCII is in it if all that tokens hold lead there.
Following targets with a set of characters that stays allowed is a *chain*; a free string is its own
target, a bounded one has a chain as long as it has room. A subtree of the vocabulary whose
characters are in the set, and which is no higher than the chain is long, is allowed as a whole.

Sibling: `walk`, which asks. The idea of slices that need no walk is llguidance's "slicer"; here
they are derived from the automaton, for any set of characters, instead of declared.
"""

from __future__ import annotations

import numpy as np

from structspec.automata.memory import Count, Slot, i32, inner, slot, u8, u32, wide
from structspec.automata.pushdown import DEAD, UNKNOWN
from structspec.automata.tables import BOUNDED, LOOP_BODY
from structspec.machine_code.kernel import kernel
from structspec.machine_code.linking import address, header_at
from structspec.masks.expand import expand
from structspec.masks.places import (
    EXIT,
    FEW_PAIRS,
    FINAL,
    HIDDEN,
    MANY_PAIRS,
    SPLIT,
    WHOLE,
    hollow_at,
    pair_of,
)
from structspec.masks.tables import Known, Words
from structspec.vocab.characters import EVERY, LEAD_RANGES

_CLASS_OF, _NEXT, _COUNT = slot(Slot.CLASS_OF), slot(Slot.NEXT), slot(Slot.COUNT)
_CONFIG_COST, _CLASSES = slot(Slot.CONFIG_COST), int(Count.CLASSES)
_TARGET, _CONTENT, _PROBES = slot(Known.TARGET), slot(Known.CONTENT), slot(Known.PROBES)
_WORDS, _CHARACTERS = slot(Known.WORDS), slot(Words.CHARACTERS)
_CHARACTER_START = slot(Words.CHARACTER_START)
_DEPTH, _DEEPEST, _DEAREST = slot(Known.DEPTH), slot(Known.DEEPEST), slot(Known.DEAREST)
_PLACE, _FAR, _DEPENDS = slot(Known.PLACE), slot(Known.FAR), slot(Known.DEPENDS)
_ENDLESS, _CONFIG_START = slot(Known.ENDLESS), slot(Slot.CONFIG_START)
_CONFIG_ITEMS, _CONFIG_ACCEPTS = slot(Slot.CONFIG_ITEMS), slot(Slot.CONFIG_ACCEPTS)
_EDGE_START, _FINAL = slot(Slot.EDGE_START), slot(Slot.FINAL)

_RANGES = len(LEAD_RANGES)

#: Longer chains need not be known: no plain token has more characters.
LONGEST_CHAIN = 64


@kernel
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


@inner
def within(header, known, following):  # type: ignore[no-untyped-def]
    """What an entry of a row says about going on in the rule: a configuration, `DEAD` or a code.

    Where the rule may end but goes on, that it may end only adds to what is allowed.
    """
    if following < EXIT:
        return following
    if following >= FINAL:
        state, edges = wide(following - FINAL), i32(header, _EDGE_START)
        if edges[state + 1] > edges[state]:
            return hollow_at(address(header), address(known), state)
    return wide(DEAD)


@inner
def may_end(header, known, config):  # type: ignore[no-untyped-def]
    """Whether the rule of a place may end there: other text may go on then, behind the rule."""
    if i32(known, _PLACE)[config] == HIDDEN:
        state = i32(header, _CONFIG_ITEMS)[i32(header, _CONFIG_START)[config]]
        return i32(header, _FINAL)[state] == 1
    return i32(header, _CONFIG_ACCEPTS)[config] == 1


@kernel
def classify(header, known, config):  # type: ignore[no-untyped-def]
    """Fill TARGET and CONTENT of a configuration. Returns the target or a negative code.

    Of a hollow configuration also FAR: whether most characters leave the simple states of the rule
    only to come back, which is walked more quickly in whole configurations.
    """
    targets = i32(known, _TARGET)
    if targets[config] != UNKNOWN:
        return np.int64(targets[config])
    classes = i32(header, _CLASS_OF)
    base = config * i32(header, _COUNT)[_CLASSES]
    table = i32(header, _NEXT)
    # the majority vote of Boyer and Moore, among the characters that may follow
    best, votes = np.int64(DEAD), 0
    alive, exits, back = 0, 0, 0
    start = i32(header, _CONFIG_START)
    state = wide(-1)
    if start[config + 1] > start[config]:
        state = wide(i32(header, _CONFIG_ITEMS)[start[config]])
    for b in range(0x20, 0x80):
        t = np.int64(table[base + classes[b]])
        if t == UNKNOWN:
            code = expand(header, known, config)
            if code < 0:
                return code
            t = np.int64(table[base + classes[b]])
        if t == DEAD or b == 0x22 or b == 0x5C:
            continue
        alive += 1
        if t >= EXIT:
            exits += 1
            back += t in (EXIT + state, FINAL + state)
        t = within(header, known, t)
        if t < 0:
            return t
        if t == DEAD:
            continue
        if votes == 0:
            best = t
        votes += 1 if t == best else -1
    if best != DEAD:
        content = u32(known, _CONTENT)
        for b in range(0x20, 0x80):
            t = within(header, known, np.int64(table[base + classes[b]]))
            if t == best and b != 0x22 and b != 0x5C:
                content[4 * config + (b >> 5)] |= np.uint32(1) << np.uint32(b & 31)
        code = _add_others(header, known, config, np.int64(best))
        if code < 0:
            return code
    if 2 * exits > alive and exits > 16:
        # rules that are nothing but text, and kinds that count: bodies of loops, bounded strings
        depends = i32(known, _DEPENDS)[config]
        i32(known, _FAR)[config] = depends in (LOOP_BODY, BOUNDED) or 2 * back > alive
    targets[config] = best
    return np.int64(best)


@kernel
def enter(header, known, config):  # type: ignore[no-untyped-def]
    """PLACE of a real configuration (`places`), or a negative code."""
    places = i32(known, _PLACE)
    if places[config]:
        return wide(places[config])
    start = i32(header, _CONFIG_START)
    pairs = (start[config + 1] - start[config]) >> 1
    place = wide(WHOLE)
    if 0 < pairs <= FEW_PAIRS or pairs >= MANY_PAIRS:
        place = wide(SPLIT)
        for i in range(pairs):
            state, _ = pair_of(header, config, i)
            hollow = hollow_at(address(header), address(known), state)
            if hollow < 0:
                return hollow
            target = classify(header, known, hollow)
            if target < 0:
                return target
            if i32(known, _FAR)[hollow] and pairs <= FEW_PAIRS:
                place = wide(WHOLE)
                break
            if pairs == 1:
                place = hollow + 1
    places[config] = place
    return place


@kernel
def _add_others(header, known, config, target):  # type: ignore[no-untyped-def]
    """Add to CONTENT the groups beyond ASCII that lead to `target` (PROBES: see `probes`).

    A range of first bytes is tried by the classes of all its bytes; if that fails, the characters
    of its groups that the vocabulary has are, one by one.
    """
    probes, content = i32(known, _PROBES), u32(known, _CONTENT)
    at = 1
    every = probes[0] == _RANGES
    for _ in range(probes[0]):
        n_leads, n_more = probes[at], probes[at + 1]
        first, last = wide(probes[at + 2]), wide(probes[at + 3])
        leads = at + 4
        at = leads + n_leads
        fits, dead = True, True
        previous = DEAD
        for k in range(n_leads):
            following = follow(header, known, config, np.int64(probes[leads + k]))
            if following < 0:
                return following
            following = within(header, known, following)
            if following < 0:
                return following
            if following == DEAD:
                fits = False
            elif fits and following != previous:
                dead = False
                previous = following
                following = _through(header, known, following, np.int64(at), np.int64(n_more))
                if following < DEAD:
                    return following
                fits = following == target
            else:
                dead = False
            if not (fits or dead):
                break
        every = every and fits
        for bit in range(first, last + 1 if not dead else first):
            all_of_it = wide(1)
            if not fits:
                all_of_it = _all_lead(header, known, config, wide(bit), target)
                if all_of_it < 0:
                    return all_of_it
            if all_of_it:
                content[4 * config] |= np.uint32(1) << np.uint32(bit)
        for _ in range(n_more):
            at += 1 + probes[at]
    if every:
        content[4 * config] |= np.uint32(1) << np.uint32(EVERY)
    return 0


@kernel
def _all_lead(header, known, config, bit, target):  # type: ignore[no-untyped-def]
    """Whether all characters of a group lead to `target`: 1 or 0, or a code."""
    words = header_at(known[2 * _WORDS])
    start, data = i32(words, _CHARACTER_START), u8(words, _CHARACTERS)
    classes = i32(header, _CLASS_OF)
    one, two, three = wide(DEAD), wide(DEAD), wide(DEAD)  # after the bytes before
    for k in range(start[bit], start[bit + 1]):
        same = 0
        while k > start[bit] and same < 3 and data[4 * k + same] == data[4 * k - 4 + same]:
            same += 1
        here = config
        if same:
            here = one if same == 1 else two if same == 2 else three
        for j in range(same, 4):
            byte = data[4 * k + j]
            if byte == 0:
                break
            here = follow(header, known, here, wide(classes[byte]))
            if here >= 0:
                here = within(header, known, here)
            if here < 0:
                return here
            if here == DEAD:
                return wide(0)
            if j == 0:
                one = here
            elif j == 1:
                two = here
            else:
                three = here
        if here != target:
            return wide(0)
    return wide(1)


@kernel
def _through(header, known, config, at, bytes_left):  # type: ignore[no-untyped-def]
    """Where all continuations of a first byte lead; `DEAD` if not to one place."""
    probes = i32(known, _PROBES)
    for _ in range(bytes_left):
        if config == DEAD:
            return config
        reached = np.int64(UNKNOWN)
        for j in range(probes[at]):
            after = follow(header, known, config, np.int64(probes[at + 1 + j]))
            if after < 0:
                return after
            after = within(header, known, after)
            if after < 0:
                return after
            if reached == UNKNOWN:
                reached = after
            elif reached != after:
                return np.int64(DEAD)
        config = reached
        at += 1 + probes[at]
    return config


@kernel
def chain(header, known, config, need):  # type: ignore[no-untyped-def]
    """How many times (up to `need`) the target may be followed; DEAREST is known that far.

    Returns a number or a negative code. The content of each step holds that of the one before.
    A hollow chain has only states whose costs are the same for all frames (DEAREST: without them),
    but for the one where it stays, ENDLESS.
    """
    depths, deepest = i32(known, _DEPTH), i32(known, _DEEPEST)
    if depths[config] >= need or deepest[config]:
        return np.int64(depths[config])
    dearest = i32(known, _DEAREST)
    cost, content = i32(header, _CONFIG_COST), u32(known, _CONTENT)
    depends = i32(known, _DEPENDS)
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
        if depends[target] and target != here:
            onward = classify(header, known, np.int64(target))
            if onward < 0:
                return onward
            if onward != target:
                final = 1
                break
        length += 1
        if depends[target]:
            i32(known, _ENDLESS)[config] = target
        else:
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
