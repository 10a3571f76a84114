"""What members lists cost: which members a key state can spell, and what a list still owes.

Numba kernels over the arrays of a `Network`, used by `costs` when it measures a network and by
`pushdown` while it runs.
"""

from __future__ import annotations

import numpy as np

from structspec.automata.memory import ZERO, inner, wide
from structspec.automata.tables import MEMBER, MEMBER_KEY
from structspec.automata.views import view_i32, view_u8
from structspec.machine_code.kernel import kernel

#: No finite text (or token sequence) leads there.
UNREACHABLE = 1 << 28


@inner
def child_along(trie_byte, trie_skip, root, node, byte):  # type: ignore[no-untyped-def]
    """The child of a trie node along a byte, or −1; `root` as in `costs.TokenTrie`."""
    if node == 0:
        return wide(root[byte])
    first = wide(trie_byte[node])
    if root[first] == node:
        return wide(root[256 + 256 * first + byte])
    child, end = node + 1, wide(trie_skip[node])
    while child < end:
        if trie_byte[child] == byte:
            return child
        child = wide(trie_skip[child])
    return -1


@inner
def sort_optional(begin, last, required, repeatable, key, value, order):  # type: ignore[no-untyped-def]
    """Put the members that may be left out and occur once into `order`, cheapest first."""
    n = begin
    for k in range(begin, last):
        if not required[k] and not repeatable[k]:
            order[n] = k
            n += 1
    for k in range(n, last):
        order[k] = -1
    gap = 1
    while 3 * gap < n - begin:  # a shell sort: thousands of members must not take their square
        gap = 3 * gap + 1
    while gap > 0:
        for place in range(begin + gap, n):
            k = order[place]
            cost = key[k] + value[k]
            i = place
            while i - gap >= begin:
                before = order[i - gap]
                there = key[before] + value[before]
                if there < cost or (there == cost and before < k):
                    break
                order[i] = before
                i -= gap
            order[i] = k
        gap //= 3


@inner
def owed_members(  # type: ignore[no-untyped-def]
    begin, last, required, repeatable, key, value, order, minimum, maximum, bits, row
):  # fmt: skip
    """What a list in any order still owes, given its row (`bits[row]` the count, then the bits).

    Returns (cost, cost of the dearest member that only the minimum asks for, how many members
    more than the owed ones may be written).
    """
    cost = 0
    owed = 0
    cheapest = UNREACHABLE  # of the repeatable members
    for k in range(begin, last):
        if repeatable[k]:
            cheapest = min(cheapest, key[k] + value[k])
        elif required[k]:
            i = k - begin
            if (bits[row + 1 + (i >> 5)] >> (i & 31)) & 1 == 0:
                owed += 1
                cost += key[k] + value[k]
                if cost >= UNREACHABLE:
                    return UNREACHABLE, 0, 0
    count = np.int64(bits[row])
    room = UNREACHABLE if maximum < 0 else maximum - count - owed
    if room < 0:
        return UNREACHABLE, 0, 0
    extra = 0
    missing = minimum - count - owed
    if missing > room:
        return UNREACHABLE, 0, 0
    at = begin
    while missing > 0:
        one = cheapest
        while at < last and order[at] >= 0:
            i = order[at] - begin
            if (bits[row + 1 + (i >> 5)] >> (i & 31)) & 1 == 0:
                break
            at += 1
        if at < last and order[at] >= 0 and key[order[at]] + value[order[at]] <= cheapest:
            one = key[order[at]] + value[order[at]]
            at += 1
        if one >= UNREACHABLE:
            return UNREACHABLE, 0, 0
        cost += one
        extra = one
        missing -= 1
        if one == cheapest and missing > 0:
            cost += one * missing
            missing = 0
    return min(cost, UNREACHABLE), extra, room


@inner
def only_member(begin, last, required, minimum, maximum):  # type: ignore[no-untyped-def]
    """The slot that may be the only member of its list; −1: any; −2: none.

    Needed where the separator cannot be written: everything owed after a first member costs too
    much then, but nothing need be owed.
    """
    if minimum > 1 or maximum == 0:
        return -2
    found = -1
    for k in range(begin, last):
        if required[k]:
            if found >= 0:
                return -2
            found = k
    return found


@inner
def owed_after(k, rest, last_extra, room, required, key, value):  # type: ignore[no-untyped-def]
    """What is owed once slot k has been written too, given the result of `owed_members`."""
    if required[k]:
        return rest - key[k] - value[k]
    if room <= 0:
        return UNREACHABLE
    # One member fewer has to be added for the minimum: this one, or the dearest of the chosen.
    return rest - min(key[k] + value[k], last_extra)


@kernel
def reachable_members(  # type: ignore[no-untyped-def]
    n_states, edge_start, edge_class, edge_target, op_start, op_kind, op_argument, kind, data,
    members_start, class_enabled,
):  # fmt: skip
    """For every member key state the members it can still spell and the bytes that takes.

    Returns (start[S + 1], member, bytes, via) in compressed rows sorted by member; `via` is the
    first edge of the shortest way.
    """
    # Reversed edges between key states; of the edges of a state to the same target the first says
    # everything.
    most = 0
    for q in range(n_states):
        if kind[q] == MEMBER_KEY:
            most += min(edge_start[q + 1] - edge_start[q], n_states)
    met = np.full(n_states, -1, np.int32)
    from_state = np.empty(most, np.int32)
    by_edge = np.empty(most, np.int32)
    n_back = 0
    back_start = np.zeros(n_states + 1, np.int32)
    for q in range(n_states):
        if kind[q] == MEMBER_KEY:
            for e in range(edge_start[q], edge_start[q + 1]):
                after = edge_target[e]
                if met[after] != q and class_enabled[edge_class[e]]:
                    met[after] = q
                    from_state[n_back] = q
                    by_edge[n_back] = e
                    n_back += 1
                    back_start[after + 1] += 1
    for q in range(n_states):
        back_start[q + 1] += back_start[q]
    fill = back_start.copy()
    back_state = np.empty(n_back, np.int32)
    back_edge = np.empty(n_back, np.int32)
    for k in range(n_back):
        after = edge_target[by_edge[k]]
        i = fill[after]
        back_state[i] = from_state[k]
        back_edge[i] = by_edge[k]
        fill[after] = i + 1
    # accepting states per member slot
    slots = members_start[-1]
    accept_start = np.zeros(slots + 1, np.int32)
    for q in range(n_states):
        if kind[q] == MEMBER_KEY:
            for o in range(op_start[q], op_start[q + 1]):
                if op_kind[o] == MEMBER:
                    accept_start[members_start[data[q]] + op_argument[o] + 1] += 1
    for k in range(slots):
        accept_start[k + 1] += accept_start[k]
    accept = np.zeros(accept_start[slots], np.int32)
    fill2 = accept_start.copy()
    for q in range(n_states):
        if kind[q] == MEMBER_KEY:
            for o in range(op_start[q], op_start[q + 1]):
                if op_kind[o] == MEMBER:
                    k = members_start[data[q]] + op_argument[o]
                    accept[fill2[k]] = q
                    fill2[k] += 1
    capacity = 1024
    out_state = np.zeros(capacity, np.int32)
    out_member = np.zeros(capacity, np.int32)
    out_bytes = np.zeros(capacity, np.int32)
    out_via = np.zeros(capacity, np.int32)
    count = 0
    seen = np.full(n_states, -1, np.int32)
    queue = np.zeros(n_states, np.int32)
    depth = np.zeros(n_states, np.int32)
    row = np.zeros(n_states + 1, np.int32)
    m = 0
    for slot in range(slots):
        while slot >= members_start[m + 1]:
            m += 1
        head, tail = 0, 0
        for i in range(accept_start[slot], accept_start[slot + 1]):
            q = accept[i]
            seen[q] = slot
            depth[q] = 0
            queue[tail] = q
            tail += 1
        first = tail
        while head < tail:
            q = queue[head]
            if head < first:
                if count == capacity:
                    capacity *= 2
                    out_state = _grown(out_state, capacity)
                    out_member = _grown(out_member, capacity)
                    out_bytes = _grown(out_bytes, capacity)
                    out_via = _grown(out_via, capacity)
                out_state[count] = q
                out_member[count] = slot - members_start[m]
                out_bytes[count] = 0
                out_via[count] = -1
                count += 1
                row[q + 1] += 1
            head += 1
            for i in range(back_start[q], back_start[q + 1]):
                p = back_state[i]
                if seen[p] != slot:
                    seen[p] = slot
                    depth[p] = depth[q] + 1
                    queue[tail] = p
                    tail += 1
                    if count == capacity:
                        capacity *= 2
                        out_state = _grown(out_state, capacity)
                        out_member = _grown(out_member, capacity)
                        out_bytes = _grown(out_bytes, capacity)
                        out_via = _grown(out_via, capacity)
                    out_state[count] = p
                    out_member[count] = slot - members_start[m]
                    out_bytes[count] = depth[p]
                    out_via[count] = back_edge[i]
                    count += 1
                    row[p + 1] += 1
    for q in range(n_states):
        row[q + 1] += row[q]
    fill3 = row.copy()
    member = np.zeros(count, np.int32)
    length = np.zeros(count, np.int32)
    via = np.zeros(count, np.int32)
    for i in range(count):  # members were visited in order, so each row comes out sorted
        q = out_state[i]
        j = fill3[q]
        member[j] = out_member[i]
        length[j] = out_bytes[i]
        via[j] = out_via[i]
        fill3[q] = j + 1
    return row, member, length, via


@inner
def _grown(array, capacity):  # type: ignore[no-untyped-def]
    larger = np.zeros(capacity, np.int32)
    for i in range(len(array)):
        larger[i] = array[i]
    return larger


@inner
def _find_member(reach_start, reach_member, state, member):  # type: ignore[no-untyped-def]
    lo, hi = reach_start[state], reach_start[state + 1]
    while lo < hi:
        mid = (lo + hi) // 2
        if reach_member[mid] < member:
            lo = mid + 1
        else:
            hi = mid
    return lo


@kernel
def key_tokens(  # type: ignore[no-untyped-def]
    edge_start, edge_class, edge_target, sample, reach_start, reach_member, reach_bytes,
    reach_via, trie_byte, trie_skip, trie_terminal, root,
):  # fmt: skip
    """Tokens along the shortest way from each key state to the end of each member's key."""
    reach_start, reach_member = view_i32(reach_start), view_i32(reach_member)
    trie_byte, trie_skip, root = view_u8(trie_byte), view_i32(trie_skip), view_i32(root)
    n_states = len(edge_start) - 1
    n = len(reach_member)
    state_of = np.zeros(n, np.int32)
    for q in range(n_states):
        for i in range(reach_start[q], reach_start[q + 1]):
            state_of[i] = q
    cost = np.full(n, UNREACHABLE, np.int32)
    most = 0  # shorter ways first: a counting sort
    for i in range(n):
        most = max(most, reach_bytes[i])
    place = np.zeros(most + 2, np.int32)
    for i in range(n):
        place[reach_bytes[i] + 1] += 1
    for i in range(most + 1):
        place[i + 1] += place[i]
    order = np.zeros(n, np.int32)
    for i in range(n):
        order[place[reach_bytes[i]]] = i
        place[reach_bytes[i]] += 1
    for index in order:
        if reach_bytes[index] == 0:
            cost[index] = 0
            continue
        k = reach_member[index]
        here = index
        e = reach_via[here]
        if sample[edge_class[e]] < 0:  # a special token
            cost[index] = 1 + cost[_find_member(reach_start, reach_member, edge_target[e], k)]
            continue
        node = ZERO
        best = UNREACHABLE
        while reach_bytes[here] > 0:
            e = reach_via[here]
            if sample[edge_class[e]] < 0:
                break
            node = child_along(trie_byte, trie_skip, root, node, wide(sample[edge_class[e]]))
            if node < 0:
                break
            here = _find_member(reach_start, reach_member, edge_target[e], k)
            if trie_terminal[node]:
                best = min(best, 1 + cost[here])
        cost[index] = best
    return cost
