"""What the end of a rule costs while an automaton runs: the register of a frame decides.

Numba kernels over the header of a running automaton. The register is a count of copies or of
characters, or says which members of an object have been written. `costs` has the formulas and
solves them for a whole network; siblings are `member_costs`, which knows lists without a header,
and `pushdown`, the only caller.
"""

from __future__ import annotations

from structspec.automata.interning import has_bit
from structspec.automata.member_costs import UNREACHABLE, only_member, owed_after, owed_members
from structspec.automata.memory import Count, Slot, i32, inner, slot, u32, wide

__all__ = ["cost_under", "cost_with", "key_cost", "owed", "registers_of", "slots_of"]

_KIND, _DATA, _BASE = slot(Slot.KIND), slot(Slot.DATA), slot(Slot.BASE)
_CHARACTERS, _COUNT, _BITS = slot(Slot.CHARACTERS), slot(Slot.COUNT), slot(Slot.BITS)
_BITS_WORDS = int(Count.BITS_WORDS)
_LOOP_MIN, _LOOP_MAX, _LOOP_COPY = slot(Slot.LOOP_MIN), slot(Slot.LOOP_MAX), slot(Slot.LOOP_COPY)
_MEMBERS_START, _MEMBERS_ANY = slot(Slot.MEMBERS_START), slot(Slot.MEMBERS_ANY)
_MINIMUM, _MAXIMUM = slot(Slot.MEMBERS_MINIMUM), slot(Slot.MEMBERS_MAXIMUM)
_REACH_START, _REACH_MEMBER = slot(Slot.REACH_START), slot(Slot.REACH_MEMBER)
_REACH_COST, _NEXT_REQUIRED = slot(Slot.REACH_COST), slot(Slot.MEMBER_NEXT)
_REQUIRED, _REPEATABLE = slot(Slot.MEMBER_REQUIRED), slot(Slot.MEMBER_REPEATABLE)
_VALUE, _KEY, _ORDER = slot(Slot.MEMBER_VALUE), slot(Slot.MEMBER_KEY), slot(Slot.MEMBER_ORDER)
_REST, _TOTAL, _TABLE = slot(Slot.MEMBER_REST), slot(Slot.MEMBER_TOTAL), slot(Slot.MEMBER_TABLE)
_FRAME_REGISTER, _FRAME_COST = slot(Slot.FRAME_REGISTER), slot(Slot.FRAME_COST)
_SET_START, _SET_ITEMS = slot(Slot.SET_START), slot(Slot.SET_ITEMS)


@inner
def slots_of(header, m):  # type: ignore[no-untyped-def]
    """The first slot of a members list, and its last: the sentinel."""
    start = i32(header, _MEMBERS_START)
    return wide(start[m]), wide(start[m + 1]) - 1


@inner
def registers_of(header, m):  # type: ignore[no-untyped-def]
    """How many slots a members list has: registers of one in declared order are this apart."""
    start = i32(header, _MEMBERS_START)
    return wide(start[m + 1]) - wide(start[m])


@inner
def key_cost(header, state, m, register):  # type: ignore[no-untyped-def]
    """Cost from a key state to the end of the members list."""
    reach_start, reach_member = i32(header, _REACH_START), i32(header, _REACH_MEMBER)
    reach_cost = i32(header, _REACH_COST)
    begin_, _ = slots_of(header, m)
    best = UNREACHABLE
    if i32(header, _MEMBERS_ANY)[m]:
        required, value, key = i32(header, _REQUIRED), i32(header, _VALUE), i32(header, _KEY)
        repeatable = i32(header, _REPEATABLE)
        rest, last_extra, room = owed(header, m, register)
        if rest >= UNREACHABLE:
            if u32(header, _BITS)[register * i32(header, _COUNT)[_BITS_WORDS]]:
                return UNREACHABLE  # not the first member
            alone = only_member(
                begin_, begin_ + registers_of(header, m) - 1, required,
                wide(i32(header, _MINIMUM)[m]), wide(i32(header, _MAXIMUM)[m]),
            )  # fmt: skip
            for i in range(reach_start[state], reach_start[state + 1]):
                slot = begin_ + wide(reach_member[i])
                if alone in (-1, slot) and not has_bit(header, register, wide(reach_member[i])):
                    best = min(best, reach_cost[i] + value[slot])
            return best
        for i in range(reach_start[state], reach_start[state + 1]):
            k = wide(reach_member[i])
            slot = begin_ + k
            if not repeatable[slot] and has_bit(header, register, k):
                continue
            after = owed_after(slot, rest, last_extra, room, required, key, value)
            best = min(best, reach_cost[i] + value[slot] + after)
        return best
    stride = registers_of(header, m)
    index = register % stride
    limit = i32(header, _NEXT_REQUIRED)[begin_ + index]
    total, row = i32(header, _TOTAL), i32(header, _TABLE)[m] + register - index
    lo, hi = reach_start[state], reach_start[state + 1]
    while lo < hi:
        mid = (lo + hi) >> 1
        if reach_member[mid] < index:
            lo = mid + 1
        else:
            hi = mid
    for i in range(lo, reach_start[state + 1]):
        if reach_member[i] > limit:
            break
        best = min(best, reach_cost[i] + total[row + reach_member[i]])
    return best


@inner
def owed(header, m, register):  # type: ignore[no-untyped-def]
    """`owed_members` of a list in any order whose register is `register`."""
    begin_, last = slots_of(header, m)
    row = register * i32(header, _COUNT)[_BITS_WORDS]
    return owed_members(
        begin_, last, i32(header, _REQUIRED), i32(header, _REPEATABLE), i32(header, _KEY),
        i32(header, _VALUE), i32(header, _ORDER), wide(i32(header, _MINIMUM)[m]),
        wide(i32(header, _MAXIMUM)[m]), u32(header, _BITS), row,
    )  # fmt: skip


@inner
def cost_with(header, state, register):  # type: ignore[no-untyped-def]
    """Cost from a state to the end of its rule (`costs` has the formulas)."""
    kind = i32(header, _KIND)[state]
    if kind == 3:
        return key_cost(header, state, wide(i32(header, _DATA)[state]), register)
    base = wide(i32(header, _BASE)[state])
    if kind == 0 or base >= UNREACHABLE:
        return base
    data = wide(i32(header, _DATA)[state])
    if kind == 4:
        characters = register + wide(i32(header, _CHARACTERS)[state])
        return base if characters <= i32(header, _LOOP_MAX)[data] else UNREACHABLE
    if kind == 1:
        missing = max(0, wide(i32(header, _LOOP_MIN)[data]) - register - 1)
        if missing == 0:
            return base
        return min(UNREACHABLE, base + missing * wide(i32(header, _LOOP_COPY)[data]))
    if i32(header, _MEMBERS_ANY)[data]:
        rest = owed(header, data, register)[0]
    else:
        rest = wide(i32(header, _REST)[i32(header, _TABLE)[data] + register])
    return min(UNREACHABLE, base + rest)


@inner
def cost_under(header, state, frames):  # type: ignore[no-untyped-def]
    """Cost from a state to the end of the whole text, over all frames it may run under."""
    set_start, set_items = i32(header, _SET_START), i32(header, _SET_ITEMS)
    registers, costs = i32(header, _FRAME_REGISTER), i32(header, _FRAME_COST)
    kind = i32(header, _KIND)[state]
    best = UNREACHABLE
    for k in range(set_start[frames], set_start[frames + 1]):
        frame = wide(set_items[k])
        here = wide(i32(header, _BASE)[state])
        if kind:
            here = cost_with(header, state, wide(registers[frame]))
        best = min(best, here + wide(costs[frame]))
    return best
