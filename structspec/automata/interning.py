"""Hash-consing of frames, frame sets, member sets and configurations (numba kernels).

Everything that the pushdown automaton builds at run time is interned: equal contents have equal
numbers, so comparing and caching is comparing integers.

- frame = (return state, register, parents): `parents` is a frame set. Frame 0 is the bottom.
- frame set = sorted frame numbers. Set 0 is empty, set 1 holds the bottom frame.
- member set = how many members were written (up to a limit), and a bit for each that may occur only
  once. Row 0 is empty.
- configuration = sorted (state, frame set) pairs and whether the text is complete. Numbers 0
  (not known yet) and 1 (dead) are reserved.

Every function returns a number or `GROW` (a table is full; nothing was changed).
"""

from __future__ import annotations

from structspec.automata.memory import GROW, Count, Slot, i32, inner, slot, u32, wide
from structspec.machine_code.kernel import kernel

_COUNT = slot(Slot.COUNT)
_FRAMES, _SETS, _SET_ITEMS = int(Count.FRAMES), int(Count.SETS), int(Count.SET_ITEMS)
_CONFIGS, _CONFIG_ITEMS = int(Count.CONFIGS), int(Count.CONFIG_ITEMS)
_BITS, _BITS_WORDS = int(Count.BITS), int(Count.BITS_WORDS)
_FRAME_RETURN, _FRAME_REGISTER = slot(Slot.FRAME_RETURN), slot(Slot.FRAME_REGISTER)
_FRAME_PARENTS, _FRAME_COST = slot(Slot.FRAME_PARENTS), slot(Slot.FRAME_COST)
_FRAME_HASH, _SET_START, _SET_POOL = (
    slot(Slot.FRAME_HASH),
    slot(Slot.SET_START),
    slot(Slot.SET_ITEMS),
)
_SET_HASH, _CONFIG_START = slot(Slot.SET_HASH), slot(Slot.CONFIG_START)
_CONFIG_POOL, _CONFIG_ACCEPTS = slot(Slot.CONFIG_ITEMS), slot(Slot.CONFIG_ACCEPTS)
_CONFIG_COST, _CONFIG_HASH = slot(Slot.CONFIG_COST), slot(Slot.CONFIG_HASH)
_BITS_POOL, _BITS_HASH = slot(Slot.BITS), slot(Slot.BITS_HASH)
_SCRATCH_B = slot(Slot.SCRATCH_B)


@inner
def _mix(h, x):  # type: ignore[no-untyped-def]
    h = (h ^ (wide(x) & 0xFFFFFFFF)) * 0x9E3779B1
    return (h ^ (h >> 15)) & 0x7FFFFFFFFFFF


@kernel
def intern_frame(header, state, register, parents, cost):  # type: ignore[no-untyped-def]
    """The number of the frame; `cost` is its cost after the return, kept if the frame is new."""
    returns, registers = i32(header, _FRAME_RETURN), i32(header, _FRAME_REGISTER)
    parent, table = i32(header, _FRAME_PARENTS), i32(header, _FRAME_HASH)
    size = len(table) - 1
    i = _mix(_mix(_mix(wide(17), state), register), parents) & size
    while table[i] > 0:
        f = wide(table[i]) - 1
        if returns[f] == state and registers[f] == register and parent[f] == parents:
            return f
        i = (i + 1) & size
    count = i32(header, _COUNT)
    f = wide(count[_FRAMES])
    if f >= len(returns) or 2 * (f + 1) > len(table):
        return GROW
    returns[f] = state
    registers[f] = register
    parent[f] = parents
    i32(header, _FRAME_COST)[f] = cost
    table[i] = f + 1
    count[_FRAMES] = f + 1
    return f


@kernel
def intern_set(header, items, n):  # type: ignore[no-untyped-def]
    """The number of the set `items[:n]`, which must be sorted and free of duplicates."""
    if n == 0:
        return 0
    start, pool, table = i32(header, _SET_START), i32(header, _SET_POOL), i32(header, _SET_HASH)
    size = len(table) - 1
    h = wide(29)
    for k in range(n):
        h = _mix(h, wide(items[k]))
    i = h & size
    while table[i] > 0:
        s = wide(table[i]) - 1
        if start[s + 1] - start[s] == n:
            equal = True
            for k in range(n):
                if pool[start[s] + k] != items[k]:
                    equal = False
                    break
            if equal:
                return s
        i = (i + 1) & size
    count = i32(header, _COUNT)
    s, used = wide(count[_SETS]), wide(count[_SET_ITEMS])
    if s + 2 > len(start) - 1 or used + n > len(pool) or 2 * (s + 1) > len(table):
        return GROW
    for k in range(n):
        pool[used + k] = items[k]
    start[s + 1] = used + n
    table[i] = s + 1
    count[_SETS] = s + 1
    count[_SET_ITEMS] = used + n
    return s


@inner
def union_sets(header, a, b):  # type: ignore[no-untyped-def]
    """The number of the union of two sets."""
    if a == b or b == 0:
        return a
    if a == 0:
        return b
    start, pool = i32(header, _SET_START), i32(header, _SET_POOL)
    out = i32(header, _SCRATCH_B)
    i, j, n = wide(start[a]), wide(start[b]), 0
    if start[a + 1] - i + start[b + 1] - j > len(out):
        return -2
    while i < start[a + 1] or j < start[b + 1]:
        if j == start[b + 1] or (i < start[a + 1] and pool[i] < pool[j]):
            out[n] = pool[i]
            i += 1
        elif i == start[a + 1] or pool[j] < pool[i]:
            out[n] = pool[j]
            j += 1
        else:
            out[n] = pool[i]
            i += 1
            j += 1
        n += 1
    return intern_set(header, out, n)


@inner
def has_bit(header, row, k):  # type: ignore[no-untyped-def]
    """Whether member k is in a member set."""
    words = i32(header, _COUNT)[_BITS_WORDS]
    return (u32(header, _BITS_POOL)[row * words + 1 + (k >> 5)] >> (k & 31)) & 1 == 1


@inner
def with_member(header, row, k, levels):  # type: ignore[no-untyped-def]
    """The number of the member set `row` plus one member, counted up to `levels`.

    k: the member's bit, or −1 for one that may occur again.
    """
    count = i32(header, _COUNT)
    words, n = wide(count[_BITS_WORDS]), wide(count[_BITS])
    pool, table = u32(header, _BITS_POOL), i32(header, _BITS_HASH)
    if (n + 1) * words > len(pool) or 2 * (n + 1) > len(table):
        return GROW
    h = wide(31)
    for w in range(words):  # build the row in the free place behind the last one
        value = pool[row * words + w]
        if w == 0:
            if value < levels:
                value += 1
        elif k >= 0 and w - 1 == k >> 5:
            value |= 1 << (k & 31)
        pool[n * words + w] = value
        h = _mix(h, wide(pool[n * words + w]))
    size = len(table) - 1
    i = h & size
    while table[i] > 0:
        other = wide(table[i]) - 1
        equal = True
        for w in range(words):
            if pool[other * words + w] != pool[n * words + w]:
                equal = False
                break
        if equal:
            return other
        i = (i + 1) & size
    table[i] = n + 1
    count[_BITS] = n + 1
    return n


@kernel
def intern_config(header, states, sets, n, accepts, cost):  # type: ignore[no-untyped-def]
    """The number of the configuration of `n` pairs, which must be sorted by state."""
    start, pool = i32(header, _CONFIG_START), i32(header, _CONFIG_POOL)
    accepting, table = i32(header, _CONFIG_ACCEPTS), i32(header, _CONFIG_HASH)
    size = len(table) - 1
    h = 37 + accepts
    for k in range(n):
        h = _mix(_mix(h, wide(states[k])), wide(sets[k]))
    i = h & size
    while table[i] > 0:
        c = wide(table[i]) - 1
        if start[c + 1] - start[c] == 2 * n and accepting[c] == accepts:
            equal = True
            at = start[c]
            for k in range(n):
                if pool[at + 2 * k] != states[k] or pool[at + 2 * k + 1] != sets[k]:
                    equal = False
                    break
            if equal:
                return c
        i = (i + 1) & size
    count = i32(header, _COUNT)
    c, used = wide(count[_CONFIGS]), wide(count[_CONFIG_ITEMS])
    if c + 2 > len(start) - 1 or used + 2 * n > len(pool) or 2 * (c + 1) > len(table):
        return GROW
    for k in range(n):
        pool[used + 2 * k] = states[k]
        pool[used + 2 * k + 1] = sets[k]
    start[c + 1] = used + 2 * n
    accepting[c] = accepts
    i32(header, _CONFIG_COST)[c] = cost
    table[i] = c + 1
    count[_CONFIGS] = c + 1
    count[_CONFIG_ITEMS] = used + 2 * n
    return c


@kernel
def rehash(header, which):  # type: ignore[no-untyped-def]
    """Fill an emptied hash table again after it has grown. which: 0 frames, 1 sets, 2 configs,
    3 member sets."""
    count = i32(header, _COUNT)
    if which == 0:
        table = i32(header, _FRAME_HASH)
        returns, registers = i32(header, _FRAME_RETURN), i32(header, _FRAME_REGISTER)
        parent = i32(header, _FRAME_PARENTS)
        for f in range(1, count[_FRAMES]):
            h = _mix(_mix(_mix(wide(17), wide(returns[f])), wide(registers[f])), wide(parent[f]))
            _place(table, h, f)
    elif which == 1:
        table = i32(header, _SET_HASH)
        start, pool = i32(header, _SET_START), i32(header, _SET_POOL)
        for s in range(1, count[_SETS]):
            h = wide(29)
            for k in range(start[s], start[s + 1]):
                h = _mix(h, wide(pool[k]))
            _place(table, h, s)
    elif which == 2:
        table = i32(header, _CONFIG_HASH)
        start, pool = i32(header, _CONFIG_START), i32(header, _CONFIG_POOL)
        accepting = i32(header, _CONFIG_ACCEPTS)
        for c in range(2, count[_CONFIGS]):
            h = 37 + wide(accepting[c])
            for k in range(start[c], start[c + 1]):
                h = _mix(h, wide(pool[k]))
            _place(table, h, c)
    else:
        table = i32(header, _BITS_HASH)
        bits, words = u32(header, _BITS_POOL), count[_BITS_WORDS]
        for row in range(count[_BITS]):
            h = wide(31)
            for w in range(words):
                h = _mix(h, wide(bits[row * words + w]))
            _place(table, h, row)


@inner
def _place(table, h, number):  # type: ignore[no-untyped-def]
    size = len(table) - 1
    i = h & size
    while table[i] > 0:
        i = (i + 1) & size
    table[i] = number + 1
