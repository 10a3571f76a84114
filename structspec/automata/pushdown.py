"""The lazily determinised pushdown automaton: one step of a configuration on one byte class.

A configuration maps network states to sets of frames; a frame is where to return to, the register
of the rule that is running, and the set of frames below. Pushes to the same rule share their
parents, so ambiguous grammars stay polynomial. Configurations are numbers, and
`NEXT[configuration, class]` is filled on demand: a step that has been taken costs one look-up.

A step has three phases (INVARIANT: no rule is entered and left without a byte):
1. bytes, then operations and pops, in any order (they distribute over unions of sets);
2. calls in rank order, so that a rule's frame set is complete before its own calls are made;
3. what cannot be finished (`costs`) is dropped, the rest is interned.

Sources: M. Tomita, "Efficient parsing for natural language", 1986 (graph-structured stacks);
A. Cox, "Regular expression matching can be simple and fast", 2007 (lazy determinisation).
"""

from __future__ import annotations

from structspec.automata.interning import (
    has_bit,
    intern_config,
    intern_frame,
    intern_set,
    union_sets,
    with_member,
)
from structspec.automata.member_costs import UNREACHABLE
from structspec.automata.memory import (
    GROW,
    MINUS_ONE,
    ONE,
    OVERFLOW,
    PAUSE,
    QUOTA,
    ZERO,
    Count,
    Slot,
    i32,
    inner,
    slot,
    wide,
)
from structspec.automata.register_costs import (
    cost_under,
    cost_with,
    key_cost,
    owed,
    registers_of,
)
from structspec.machine_code.kernel import kernel
from structspec.machine_code.linking import address, header_at, linked

#: Reserved configuration numbers.
UNKNOWN, DEAD = 0, 1

_CLASS_OF, _NEXT, _COUNT = slot(Slot.CLASS_OF), slot(Slot.NEXT), slot(Slot.COUNT)
_EDGE_START, _EDGE_CLASS = slot(Slot.EDGE_START), slot(Slot.EDGE_CLASS)
_EDGE_TARGET = slot(Slot.EDGE_TARGET)
_CALL_START, _CALL_ENTRY = slot(Slot.CALL_START), slot(Slot.CALL_ENTRY)
_CALL_TARGET, _CALL_TAIL, _CALL_COST = (
    slot(Slot.CALL_TARGET),
    slot(Slot.CALL_TAIL),
    slot(Slot.CALL_COST),
)
_OP_START, _OP_KIND, _OP_ARGUMENT = slot(Slot.OP_START), slot(Slot.OP_KIND), slot(Slot.OP_ARGUMENT)
_OP_FIRST, _OP_SECOND = slot(Slot.OP_FIRST), slot(Slot.OP_SECOND)
_FINAL, _KIND, _DATA, _RANK, _BASE = (
    slot(Slot.FINAL),
    slot(Slot.KIND),
    slot(Slot.DATA),
    slot(Slot.RANK),
    slot(Slot.BASE),
)
_CHARACTERS = slot(Slot.CHARACTERS)
_LOOP_MIN, _LOOP_MAX = slot(Slot.LOOP_MIN), slot(Slot.LOOP_MAX)
_MEMBERS_START, _MEMBERS_ANY = slot(Slot.MEMBERS_START), slot(Slot.MEMBERS_ANY)
_MEMBERS_SEPARATOR = slot(Slot.MEMBERS_SEPARATOR)
_REPEATABLE, _NEXT_REQUIRED = slot(Slot.MEMBER_REPEATABLE), slot(Slot.MEMBER_NEXT)
_REST, _TABLE, _MAXIMUM = (
    slot(Slot.MEMBER_REST),
    slot(Slot.MEMBER_TABLE),
    slot(Slot.MEMBERS_MAXIMUM),
)
_LEVELS, _FIRST_REPEATABLE = slot(Slot.MEMBERS_LEVELS), slot(Slot.MEMBERS_REPEATABLE)
_BITS, _BITS_WORDS = slot(Slot.BITS), int(Count.BITS_WORDS)
_FRAME_RETURN, _FRAME_REGISTER = slot(Slot.FRAME_RETURN), slot(Slot.FRAME_REGISTER)
_FRAME_PARENTS, _FRAME_COST = slot(Slot.FRAME_PARENTS), slot(Slot.FRAME_COST)
_SET_START, _SET_ITEMS = slot(Slot.SET_START), slot(Slot.SET_ITEMS)
_CONFIG_START, _CONFIG_ITEMS = slot(Slot.CONFIG_START), slot(Slot.CONFIG_ITEMS)
_QUEUE_STATE, _QUEUE_SET = slot(Slot.QUEUE_STATE), slot(Slot.QUEUE_SET)
_LIVE_STATE, _LIVE_SET, _LIVE_DONE = (
    slot(Slot.LIVE_STATE),
    slot(Slot.LIVE_SET),
    slot(Slot.LIVE_DONE),
)
_SCRATCH_A, _CLASSES, _STEPS = slot(Slot.SCRATCH_A), int(Count.CLASSES), int(Count.STEPS)
_WORK = int(Count.WORK)


@kernel
def step(header, config, byte_class):  # type: ignore[no-untyped-def]
    """The configuration after one byte of the class: a number, `DEAD`, or a negative code."""
    count = i32(header, _COUNT)
    table = i32(header, _NEXT)
    cell = config * count[_CLASSES] + byte_class
    known = wide(table[cell])
    if known != UNKNOWN:
        return known
    count[_STEPS] += 1
    start, items = i32(header, _CONFIG_START), i32(header, _CONFIG_ITEMS)
    edge_start, edge_class = i32(header, _EDGE_START), i32(header, _EDGE_CLASS)
    edge_target = i32(header, _EDGE_TARGET)
    queue_state, queue_set = i32(header, _QUEUE_STATE), i32(header, _QUEUE_SET)
    n = ZERO
    for i in range(start[config], start[config + 1], 2):
        state = items[i]
        lo, hi = edge_start[state], edge_start[state + 1]
        while lo < hi:
            mid = (lo + hi) >> 1
            if edge_class[mid] < byte_class:
                lo = mid + 1
            else:
                hi = mid
        if lo < edge_start[state + 1] and edge_class[lo] == byte_class:
            if n == len(queue_state):
                return OVERFLOW
            queue_state[n] = edge_target[lo]
            queue_set[n] = items[i + 1]
            n += 1
    result = DEAD
    if n:
        result = close(address(header), n, ZERO)
        if result < 0:
            return result
    table[cell] = result
    return result


@kernel
def begin(header, entry, nullable):  # type: ignore[no-untyped-def]
    """The start configuration: the start rule entered with the bottom frame."""
    i32(header, _LIVE_STATE)[0] = entry
    i32(header, _LIVE_SET)[0] = 1
    return close(address(header), wide(-1), wide(nullable))


@linked("structspec_close", 3)
def close(header_address, n, accepts):  # type: ignore[no-untyped-def]
    """All phases for the queue's first n pairs: the configuration, `DEAD` or a negative code.

    n: −1 to begin with the live pair 0 as it is; accepts: 1 if the text is complete already.
    """
    header = header_at(header_address)
    if i32(header, _COUNT)[_WORK] > QUOTA:
        return wide(PAUSE)
    if n < 0:
        return _finish(header, ONE, accepts)
    return _close(header, n, accepts)


@linked("structspec_pop", 2)
def pop(header_address, frames):  # type: ignore[no-untyped-def]
    """The configuration after the end of the running rule: what `close` makes of all returns."""
    header = header_at(header_address)
    queue_state, queue_set = i32(header, _QUEUE_STATE), i32(header, _QUEUE_SET)
    n, accepts = _return(header, queue_state, queue_set, ZERO, frames, ZERO)
    if n < 0:
        return n
    return close(header_address, n, accepts)


@linked("structspec_push", 3)
def push(header_address, call, frames):  # type: ignore[no-untyped-def]
    """The frames of a rule that is called under `frames`: a set, 0 if no text can be finished so.

    Or a negative code. For a tail call they are `frames`.
    """
    return _pushed(header_at(header_address), call, frames)


@linked("structspec_cost_after", 3)
def cost_after(header_address, state, frames):  # type: ignore[no-untyped-def]
    """Cost from a state to the end of the text, −1 if no frame lets it be finished (`_prune`)."""
    header = header_at(header_address)
    set_start, set_items = i32(header, _SET_START), i32(header, _SET_ITEMS)
    registers, costs = i32(header, _FRAME_REGISTER), i32(header, _FRAME_COST)
    best = MINUS_ONE
    if i32(header, _KIND)[state] <= 1 and i32(header, _BASE)[state] < UNREACHABLE:
        best = ZERO + UNREACHABLE
    for k in range(set_start[frames], set_start[frames + 1]):
        frame = wide(set_items[k])
        here = cost_with(header, state, wide(registers[frame]))
        if here < UNREACHABLE and (best < 0 or here + costs[frame] < best):
            best = min(ZERO + UNREACHABLE, here + wide(costs[frame]))
    return best


@inner
def _return(header, queue_state, queue_set, n, frames, accepts):  # type: ignore[no-untyped-def]
    """Enqueue what a final state with these frames returns to: the new n, or a code; accepts."""
    returns, parents = i32(header, _FRAME_RETURN), i32(header, _FRAME_PARENTS)
    set_start, set_items = i32(header, _SET_START), i32(header, _SET_ITEMS)
    for k in range(set_start[frames], set_start[frames + 1]):
        frame = wide(set_items[k])
        if returns[frame] < 0:
            accepts = ONE
        else:
            state, parent = wide(returns[frame]), wide(parents[frame])
            n = _enqueue(queue_state, queue_set, n, state, parent)
            if n < 0:
                break
    return n, accepts


@inner
def _close(header, n, accepts):  # type: ignore[no-untyped-def]
    """Phase 1: operations and pops of the queue's first n pairs; then the other phases."""
    queue_state, queue_set = i32(header, _QUEUE_STATE), i32(header, _QUEUE_SET)
    live_state, live_set = i32(header, _LIVE_STATE), i32(header, _LIVE_SET)
    edge_start, call_start = i32(header, _EDGE_START), i32(header, _CALL_START)
    op_start, final = i32(header, _OP_START), i32(header, _FINAL)
    op_first, op_second = i32(header, _OP_FIRST), i32(header, _OP_SECOND)
    count, set_start = i32(header, _COUNT), i32(header, _SET_START)
    live = ZERO
    i = 0
    while i < n:
        state, frames = wide(queue_state[i]), wide(queue_set[i])
        i += 1
        count[_WORK] += 8 + n + live + set_start[frames + 1] - set_start[frames]
        for op in range(op_start[state], op_start[state + 1]):
            for second in range(ZERO, ONE + ONE):
                target = wide(op_second[op]) if second else wide(op_first[op])
                if target < 0:
                    continue
                result = _operate(header, op, second, frames)
                if result < 0:
                    return result
                if result > 0:
                    n = _enqueue(queue_state, queue_set, n, target, result)
                    if n < 0:
                        return n
        if final[state]:
            n, accepts = _return(header, queue_state, queue_set, n, frames, accepts)
            if n < 0:
                return n
        if edge_start[state + 1] > edge_start[state] or call_start[state + 1] > call_start[state]:
            live = _add_live(header, live_state, live_set, live, state, frames)
            if live < 0:
                return live
    return _finish(header, live, accepts)


@inner
def _finish(header, live, accepts):  # type: ignore[no-untyped-def]
    """Phases 2 and 3: calls in rank order, then pruning and interning of the live pairs."""
    live_state, live_set = i32(header, _LIVE_STATE), i32(header, _LIVE_SET)
    done = i32(header, _LIVE_DONE)
    call_start, call_entry = i32(header, _CALL_START), i32(header, _CALL_ENTRY)
    rank, count = i32(header, _RANK), i32(header, _COUNT)
    for i in range(live):
        done[i] = 0
    while True:
        chosen = -1
        for i in range(live):
            if not done[i] and (chosen < 0 or rank[live_state[i]] < rank[live_state[chosen]]):
                chosen = i
        if chosen < 0:
            break
        done[chosen] = 1
        count[_WORK] += 2 * live
        state, frames = wide(live_state[chosen]), wide(live_set[chosen])
        for c in range(call_start[state], call_start[state + 1]):
            pushed = _pushed(header, wide(c), frames)
            if pushed < 0:
                return pushed
            if pushed == 0:
                continue
            before = live
            live = _add_live(header, live_state, live_set, live, wide(call_entry[c]), pushed)
            if live < 0:
                return live
            if live > before:
                done[before] = 0
    edge_start = i32(header, _EDGE_START)
    kept = ZERO
    cost = ZERO if accepts else ZERO + UNREACHABLE
    for i in range(live):
        state = wide(live_state[i])
        if edge_start[state + 1] == edge_start[state]:
            continue
        frames = _prune(header, state, wide(live_set[i]))
        if frames < 0:
            return frames
        if frames == 0:
            continue
        cost = min(cost, cost_under(header, state, frames))
        # insertion sort by state: configurations have few pairs
        k = kept
        while k > 0 and live_state[k - 1] > state:
            live_state[k] = live_state[k - 1]
            live_set[k] = live_set[k - 1]
            k -= 1
        live_state[k] = state
        live_set[k] = frames
        kept += 1
    if kept == 0 and not accepts:
        return DEAD
    return intern_config(header, live_state, live_set, kept, accepts, cost)


@inner
def _pushed(header, call, frames):  # type: ignore[no-untyped-def]
    """The frame set of a called rule (see `push`)."""
    if i32(header, _CALL_COST)[call] >= UNREACHABLE:
        return ZERO
    if i32(header, _CALL_TAIL)[call]:
        return frames
    target = wide(i32(header, _CALL_TARGET)[call])
    after = cost_under(header, target, frames)
    if after >= UNREACHABLE:
        return ZERO
    frame = intern_frame(header, target, ZERO, frames, after)
    if frame < 0:
        return frame
    scratch = i32(header, _SCRATCH_A)
    scratch[0] = frame
    return wide(intern_set(header, scratch, ONE))


@inner
def _enqueue(queue_state, queue_set, n, state, frames):  # type: ignore[no-untyped-def]
    for i in range(n):
        if queue_state[i] == state and queue_set[i] == frames:
            return n
    if n == len(queue_state):
        return OVERFLOW
    queue_state[n] = state
    queue_set[n] = frames
    return n + 1


@inner
def _add_live(header, live_state, live_set, live, state, frames):  # type: ignore[no-untyped-def]
    for i in range(live):
        if live_state[i] == state:
            merged = union_sets(header, wide(live_set[i]), frames)
            if merged < 0:
                return merged
            set_start = i32(header, _SET_START)
            i32(header, _COUNT)[_WORK] += set_start[merged + 1] - set_start[merged]
            live_set[i] = merged
            return live
    if live == len(live_state):
        return OVERFLOW
    live_state[live] = state
    live_set[live] = frames
    return live + 1


@inner
def _operate(header, op, second, frames):  # type: ignore[no-untyped-def]
    """The frames with which an operation reaches its first or second target (set 0: none)."""
    registers, returns = i32(header, _FRAME_REGISTER), i32(header, _FRAME_RETURN)
    parents, costs = i32(header, _FRAME_PARENTS), i32(header, _FRAME_COST)
    set_start, set_items = i32(header, _SET_START), i32(header, _SET_ITEMS)
    out = i32(header, _SCRATCH_A)
    kind, argument = wide(i32(header, _OP_KIND)[op]), wide(i32(header, _OP_ARGUMENT)[op])
    if set_start[frames + 1] - set_start[frames] > len(out):
        return OVERFLOW
    n = ZERO
    for k in range(set_start[frames], set_start[frames + 1]):
        frame = wide(set_items[k])
        register = wide(registers[frame])
        if kind == 0:  # count
            register = _counted(header, argument, register, second)
        elif kind == 1:  # member
            register = _member_written(header, op, argument, register)
            if register == GROW:
                return GROW
        elif kind == 3:  # character
            register = _read(header, argument, register, op, second)
        elif not _may_follow(header, argument, register, second):
            register = -2
        if register == -2:
            continue
        changed = frame
        if register != registers[frame]:
            changed = intern_frame(
                header, wide(returns[frame]), register, wide(parents[frame]), wide(costs[frame])
            )
            if changed < 0:
                return changed
        i = n  # keep `out` sorted and free of duplicates
        while i > 0 and out[i - 1] > changed:
            i -= 1
        if i > 0 and out[i - 1] == changed:
            continue
        for j in range(n, i, -1):
            out[j] = out[j - 1]
        out[i] = changed
        n += 1
    return intern_set(header, out, n)


@inner
def _counted(header, loop, register, again):  # type: ignore[no-untyped-def]
    """The register after one more copy, or −2 if it may not leave (or go round again)."""
    least, most = wide(i32(header, _LOOP_MIN)[loop]), wide(i32(header, _LOOP_MAX)[loop])
    register += 1
    if again:
        if most >= 0 and register >= most:
            return -2
    elif register < least:
        return -2
    # Without an upper limit a count beyond the lower one says nothing more.
    return min(register, least) if most < 0 else register


@inner
def _read(header, bound, register, op, again):  # type: ignore[no-untyped-def]
    """The register after one more character, or −2 if no text that is short enough follows."""
    register += 1
    fewest = ZERO
    if again:
        fewest = wide(i32(header, _CHARACTERS)[i32(header, _OP_SECOND)[op]])
    return MINUS_ONE - 1 if register + fewest > i32(header, _LOOP_MAX)[bound] else register


@inner
def _member_written(header, op, k, register):  # type: ignore[no-untyped-def]
    """The register after member k of the list that operation `op` belongs to; −2: not allowed."""
    data = i32(header, _DATA)
    m = wide(data[i32(header, _OP_FIRST)[op]])
    first = wide(i32(header, _MEMBERS_START)[m]) + k
    repeatable = i32(header, _REPEATABLE)[first]
    most, levels = wide(i32(header, _MAXIMUM)[m]), wide(i32(header, _LEVELS)[m])
    if i32(header, _MEMBERS_ANY)[m]:
        if most >= 0:
            row = register * i32(header, _COUNT)[_BITS_WORDS]
            if i32(header, _BITS)[row] >= most:
                return -2
        if repeatable:
            return with_member(header, register, MINUS_ONE, levels) if levels else register
        if has_bit(header, register, k):
            return -2
        return with_member(header, register, k, levels)
    stride = registers_of(header, m)
    count, index = register // stride, register % stride
    if k < index or k > i32(header, _NEXT_REQUIRED)[first - k + index] or count == most:
        return -2
    after = wide(i32(header, _FIRST_REPEATABLE)[m]) if repeatable else k + 1
    return min(count + 1, levels) * stride + after


@inner
def _may_follow(header, m, register, more):  # type: ignore[no-untyped-def]
    """After a member: whether the list may end, or (more) another member may follow."""
    if more:
        separator = wide(i32(header, _MEMBERS_SEPARATOR)[m])
        return key_cost(header, separator, m, register) < UNREACHABLE
    if i32(header, _MEMBERS_ANY)[m]:
        return owed(header, m, register)[0] == 0
    return i32(header, _REST)[i32(header, _TABLE)[m] + register] == 0


@inner
def _prune(header, state, frames):  # type: ignore[no-untyped-def]
    """The frames under which the state can still be finished."""
    kind = i32(header, _KIND)[state]
    if kind <= 1:
        return frames if i32(header, _BASE)[state] < UNREACHABLE else 0
    set_start, set_items = i32(header, _SET_START), i32(header, _SET_ITEMS)
    registers = i32(header, _FRAME_REGISTER)
    out = i32(header, _SCRATCH_A)
    n = ZERO
    total = set_start[frames + 1] - set_start[frames]
    if total > len(out):
        return OVERFLOW
    for k in range(set_start[frames], set_start[frames + 1]):
        if cost_with(header, state, wide(registers[set_items[k]])) < UNREACHABLE:
            out[n] = set_items[k]
            n += 1
    return frames if n == total else intern_set(header, out, n)


@kernel
def run(header, config, data):  # type: ignore[no-untyped-def]
    """Advance over the bytes of `data` (uint8[n]).

    Returns (configuration, bytes consumed): `DEAD` after the first byte that does not fit, or a
    negative code with the configuration before that byte unchanged in the cache.
    """
    classes = i32(header, _CLASS_OF)
    for i in range(len(data)):
        following = step(header, config, wide(classes[data[i]]))
        if following <= DEAD:
            return following, i
        config = following
    return config, len(data)
