"""Where a walk stands: in a configuration, or in a state with frames (numba kernels).

Text inside a rule moves one state and leaves its frames alone, so a walk need not make a
configuration of every step. A *hollow* configuration holds one state and no frames (set 0); its row
of the transition table says where each class leads within the rule, and whatever is learnt about it
(`expand`, `classify`) is shared by all frames. Where the rule may end, the row holds `FINAL` plus
the state: the text goes on there or, with the same frames always, behind the rule (`behind_at`).
Where a step does more (it calls or runs an operation), the row holds `EXIT` plus the state, and
`leave_at` finds the configuration.

A rule that begins in many states is walked by itself, too: its configuration with nothing behind
it (`entered_at`) beside the frames of the call. Its rows are shared by all calls; where it accepts,
the text goes on behind the rule.

A *place* is a pair of a configuration and a frame set: a real configuration and 0, or a hollow one
and the frames. `PLACE[configuration]` says how a walk goes on: from the hollow configuration of its
one pair, from those of its few pairs one after the other (its tokens are the union of theirs), or
from the configuration itself, where most steps would leave anyway (numbers, bounded strings).

Invariants: a hollow configuration is never a public state; frames that cannot be finished from a
state of kind PLAIN or LOOP_BODY do not exist, for other kinds the walk asks (`DEPENDS`).
"""

from __future__ import annotations

import numpy as np

from structspec.automata.interning import intern_config
from structspec.automata.memory import (
    MINUS_ONE,
    ONE,
    ZERO,
    Count,
    Slot,
    i32,
    inner,
    slot,
    u32,
    wide,
)
from structspec.automata.pushdown import DEAD, UNKNOWN, close, cost_after, pop
from structspec.machine_code.kernel import kernel
from structspec.machine_code.linking import address, header_at, linked
from structspec.masks.tables import ALIVE_MASK, ALIVE_WIDTH, MEMO_MASK, Known

_COUNT, _NEXT, _TARGET = slot(Slot.COUNT), slot(Slot.NEXT), slot(Known.TARGET)
_CONFIG_START, _CONFIG_ITEMS = slot(Slot.CONFIG_START), slot(Slot.CONFIG_ITEMS)
_EDGE_START, _EDGE_CLASS = slot(Slot.EDGE_START), slot(Slot.EDGE_CLASS)
_EDGE_TARGET, _CALL_START = slot(Slot.EDGE_TARGET), slot(Slot.CALL_START)
_OP_START, _FINAL, _KIND = slot(Slot.OP_START), slot(Slot.FINAL), slot(Slot.KIND)
_BASE, _CLASSES, _STEPS = slot(Slot.BASE), int(Count.CLASSES), int(Count.STEPS)
_LIVE_STATE, _LIVE_SET = slot(Slot.LIVE_STATE), slot(Slot.LIVE_SET)
_QUEUE_STATE, _QUEUE_SET = slot(Slot.QUEUE_STATE), slot(Slot.QUEUE_SET)
_SET_START, _SET_ITEMS = slot(Slot.SET_START), slot(Slot.SET_ITEMS)
_FRAME_COST = slot(Slot.FRAME_COST)
_HOLLOW, _PLACE, _DEPENDS = slot(Known.HOLLOW), slot(Known.PLACE), slot(Known.DEPENDS)
_MEMO, _PRICES, _CONFIG_COST = slot(Known.MEMO), slot(Known.PRICES), slot(Slot.CONFIG_COST)
_ENTERED, _CALLS, _ALIVE, _FAR = (
    slot(Known.ENTERED),
    slot(Known.CALLS),
    slot(Known.ALIVE),
    slot(Known.FAR),
)
_CALL_ENTRY, _CALL_COST = slot(Slot.CALL_ENTRY), slot(Slot.CALL_COST)
_UNREACHABLE = 1 << 28

#: Entries of the table from here on: the step leaves the rule's simple states; the rule may end.
EXIT, FINAL = 1 << 28, 1 << 29
#: PLACE: not known, a hollow configuration itself; walk it as it is; pair by pair. From 3 on: the
#: hollow configuration plus one.
HIDDEN, WHOLE, SPLIT = -1, 1, 2
#: Configurations of up to FEW_PAIRS pairs are walked pair by pair, and so are those of MANY_PAIRS
#: and more, of which a text of an ambiguous grammar makes new ones all the time; those in between
#: as they are. A rule that begins in so many states is walked by itself (`entered_at`).
FEW_PAIRS, MANY_PAIRS = 4, 16


@linked("structspec_hollow", 3)
def hollow_at(header_address, known_address, state):  # type: ignore[no-untyped-def]
    """The hollow configuration of a state, made if need be; or a negative code."""
    header, known = header_at(header_address), header_at(known_address)
    made = i32(known, _HOLLOW)
    if made[state]:
        return wide(made[state])
    live_state, live_set = i32(header, _LIVE_STATE), i32(header, _LIVE_SET)
    live_state[0], live_set[0] = state, 0
    cost = min(wide(i32(header, _BASE)[state]), ZERO + _UNREACHABLE)
    number = intern_config(header, live_state, live_set, ONE, ZERO, cost)
    if number < 0:
        return number
    i32(known, _PLACE)[number] = HIDDEN
    i32(known, _DEPENDS)[number] = i32(header, _KIND)[state]
    made[state] = number
    return number


@inner
def near(header, known, state):  # type: ignore[no-untyped-def]
    """What a hollow row holds for an edge to a state: see the module; a hollow number, `DEAD`."""
    op_start, call_start = i32(header, _OP_START), i32(header, _CALL_START)
    edge_start = i32(header, _EDGE_START)
    if op_start[state + 1] > op_start[state] or call_start[state + 1] > call_start[state]:
        return wide(EXIT + state)
    if i32(header, _FINAL)[state]:
        made = hollow_at(address(header), address(known), wide(state))
        return made if made < 0 else wide(FINAL + state)
    if edge_start[state + 1] == edge_start[state]:
        return wide(DEAD)
    if i32(header, _KIND)[state] <= 1 and i32(header, _BASE)[state] >= _UNREACHABLE:
        return wide(DEAD)
    return hollow_at(address(header), address(known), wide(state))


@linked("structspec_leave", 4)
def leave_at(header_address, known_address, state, frames):  # type: ignore[no-untyped-def]
    """The configuration of a state that was just reached with some frames, or a negative code."""
    header, known = header_at(header_address), header_at(known_address)
    memo = i32(known, _MEMO)
    at = 3 * ((state * 31 + frames * 1000003) & MEMO_MASK)
    if memo[at] == state and memo[at + 1] == frames:
        return wide(memo[at + 2])
    i32(header, _COUNT)[_STEPS] += 1
    i32(header, _QUEUE_STATE)[0], i32(header, _QUEUE_SET)[0] = state, frames
    result = close(header_address, ONE, ZERO)
    if result >= 0:
        memo[at], memo[at + 1], memo[at + 2] = state, frames, result
    return result


@linked("structspec_entered", 3)
def entered_at(header_address, known_address, entry):  # type: ignore[no-untyped-def]
    """The configuration of a rule that was just entered and is all of the text, or a code.

    entry: the first state of the rule. Where such a text ends, the rule does.
    """
    header, known = header_at(header_address), header_at(known_address)
    made = i32(known, _ENTERED)
    if made[entry]:
        return wide(made[entry])
    i32(header, _COUNT)[_STEPS] += 1
    i32(header, _LIVE_STATE)[0], i32(header, _LIVE_SET)[0] = entry, 1
    result = close(header_address, MINUS_ONE, ZERO)
    if result >= 0:
        made[entry] = result
    return result


@linked("structspec_calls", 3)
def calls_at(header_address, known_address, state):  # type: ignore[no-untyped-def]
    """Whether the rules that a state calls are walked by themselves: 1 or 0, or a code."""
    header, known = header_at(header_address), header_at(known_address)
    found = i32(known, _CALLS)
    if found[state]:
        return wide(found[state]) - 1
    op_start, call_start = i32(header, _OP_START), i32(header, _CALL_START)
    start, result = i32(header, _CONFIG_START), ZERO
    if op_start[state + 1] == op_start[state]:
        for c in range(call_start[state], call_start[state + 1]):
            if i32(header, _CALL_COST)[c] >= _UNREACHABLE:
                continue
            entry = wide(i32(header, _CALL_ENTRY)[c])
            config = entered_at(header_address, known_address, entry)
            if config < 0:
                return config
            if start[config + 1] - start[config] >= 2 * MANY_PAIRS:
                result = ONE
    found[state] = result + 1
    return result


@linked("structspec_behind", 3)
def behind_at(header_address, known_address, frames):  # type: ignore[no-untyped-def]
    """The configuration behind the running rule, or a negative code."""
    memo = i32(header_at(known_address), _MEMO)
    at = 3 * ((frames * 1000003) & MEMO_MASK)
    if memo[at] == -1 and memo[at + 1] == frames:
        return wide(memo[at + 2])
    i32(header_at(header_address), _COUNT)[_STEPS] += 1
    result = pop(header_address, frames)
    if result >= 0:
        memo[at], memo[at + 1], memo[at + 2] = -1, frames, result
    return result


@inner
def cost_of(header, known, hollow, frames, floor):  # type: ignore[no-untyped-def]
    """The cost at a place inside a rule, −1 if no frame lets the rule be finished.

    floor: `floor_of` the frames.
    """
    if not i32(known, _DEPENDS)[hollow]:
        return i32(header, _CONFIG_COST)[hollow] + floor
    prices = i32(known, _PRICES)
    at = 3 * ((hollow + frames * 1000003) & MEMO_MASK)
    if prices[at] == hollow and prices[at + 1] == frames:
        return wide(prices[at + 2])
    state = i32(header, _CONFIG_ITEMS)[i32(header, _CONFIG_START)[hollow]]
    cost = cost_after(address(header), wide(state), frames)
    prices[at], prices[at + 1], prices[at + 2] = hollow, frames, cost
    return cost


@kernel
def stride(header, known, config, byte_class):  # type: ignore[no-untyped-def]
    """The configuration after one class, without the rest of the row; or a negative code."""
    table = i32(header, _NEXT)
    cell = config * i32(header, _COUNT)[_CLASSES] + byte_class
    if table[cell] != UNKNOWN:
        return wide(table[cell])
    start, items = i32(header, _CONFIG_START), i32(header, _CONFIG_ITEMS)
    queue_state, queue_set = i32(header, _QUEUE_STATE), i32(header, _QUEUE_SET)
    n = ZERO
    for i in range(start[config], start[config + 1], 2):
        target = edge_target_of(header, wide(items[i]), byte_class)
        if target < 0:
            continue
        if n == len(queue_state):
            return wide(-2)
        queue_state[n], queue_set[n] = target, items[i + 1]
        n += 1
    result = wide(DEAD)
    if n == 1:
        result = leave_at(address(header), address(known), wide(queue_state[0]), wide(queue_set[0]))
    elif n:
        i32(header, _COUNT)[_STEPS] += 1
        result = close(address(header), n, ZERO)
    if result > 0:
        table[cell] = result
    return result


@inner
def edge_target_of(header, state, byte_class):  # type: ignore[no-untyped-def]
    """Where a class leads from a state, −1 if nowhere."""
    edge_start, edge_class = i32(header, _EDGE_START), i32(header, _EDGE_CLASS)
    lo, hi = edge_start[state], edge_start[state + 1]
    while lo < hi:
        mid = (lo + hi) >> 1
        if edge_class[mid] < byte_class:
            lo = mid + 1
        else:
            hi = mid
    if lo < edge_start[state + 1] and edge_class[lo] == byte_class:
        return wide(i32(header, _EDGE_TARGET)[lo])
    return MINUS_ONE


@inner
def pair_of(header, config, i):  # type: ignore[no-untyped-def]
    """The state and the frame set of pair i of a configuration."""
    at = i32(header, _CONFIG_START)[config] + 2 * i
    items = i32(header, _CONFIG_ITEMS)
    return wide(items[at]), wide(items[at + 1])


@inner
def place_of(header, known, config, i):  # type: ignore[no-untyped-def]
    """The place of pair i of a configuration: a configuration (or a code) and a frame set."""
    state, frames = pair_of(header, config, i)
    hollow = hollow_at(address(header), address(known), state)
    if hollow < 0 or not i32(known, _FAR)[hollow] or i32(known, _TARGET)[hollow] == hollow:
        return hollow, frames
    # Most steps would leave: a real configuration of the pair alone. Not where most text changes
    # nothing, as in a comment that may end anywhere: there the rule allows whole subtrees.
    cost = cost_after(address(header), state, frames)
    i32(header, _LIVE_STATE)[0], i32(header, _LIVE_SET)[0] = state, frames
    live_state, live_set = i32(header, _LIVE_STATE), i32(header, _LIVE_SET)
    return wide(intern_config(header, live_state, live_set, ONE, ZERO, cost)), ZERO


@kernel
def alive(header, known, config):  # type: ignore[no-untyped-def]
    """Where in ALIVE the bits of the classes begin that some pair of a configuration knows.

    What a pair knows may still lead nowhere under its frames.
    """
    found = u32(known, _ALIVE)
    at = ALIVE_WIDTH * (config & ALIVE_MASK)
    if found[at] == config:
        return at + 1
    found[at] = 0
    for w in range(1, ALIVE_WIDTH):
        found[at + w] = 0
    start, items = i32(header, _CONFIG_START), i32(header, _CONFIG_ITEMS)
    edge_start, edge_class = i32(header, _EDGE_START), i32(header, _EDGE_CLASS)
    for i in range(start[config], start[config + 1], 2):
        for e in range(edge_start[items[i]], edge_start[items[i] + 1]):
            c = edge_class[e]
            if c < 256:
                found[at + 1 + (c >> 5)] |= np.uint32(1) << np.uint32(c & 31)
    found[at] = config
    return at + 1


@inner
def floor_of(header, frames):  # type: ignore[no-untyped-def]
    """The smallest cost behind the end of the running rule, over all frames; 0 of no frames."""
    if frames == 0:
        return ZERO
    set_start, set_items = i32(header, _SET_START), i32(header, _SET_ITEMS)
    costs = i32(header, _FRAME_COST)
    best = wide(_UNREACHABLE)
    for k in range(set_start[frames], set_start[frames + 1]):
        best = min(best, wide(costs[set_items[k]]))
    return best
