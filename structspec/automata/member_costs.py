"""What members lists cost: which members a key state can spell, and what a list still owes.

Numba kernels over the arrays of a `Network`, used by `costs` when it measures a network and by
`pushdown` while it runs.
"""

from __future__ import annotations

import numpy as np

from structspec.automata.memory import ZERO, inner, wide
from structspec.automata.tables import MEMBER, MEMBER_KEY
from structspec.automata.views import view_i32, view_rows, view_u8
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

    Returns (start[S + 1], member, bytes, ways): compressed rows sorted by member, and ways[N, 5],
    the same entries member by member, shortest ways first: state (then: position in the rows),
    member, bytes, the first edge of the shortest way (−1: the key ends there), the entry behind it.
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
    back = np.empty((n_back, 2), np.int32)  # state and edge
    for k in range(n_back):
        after = edge_target[by_edge[k]]
        i = fill[after]
        back[i, 0] = from_state[k]
        back[i, 1] = by_edge[k]
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
    # PERF: an array that a loop assigns anew is counted at every step of that loop, with atomic
    # instructions. So there is room for all entries of one member before its search begins.
    all_ways = np.empty((1024 + 2 * n_states, 5), np.int32)
    count = 0
    seen = np.full(n_states, -1, np.int32)
    row = np.zeros(n_states + 1, np.int32)
    m = 0
    for slot in range(slots):
        while slot >= members_start[m + 1]:
            m += 1
        if count + n_states > len(all_ways):
            all_ways = _twice(all_ways)
        ways = view_rows(all_ways)
        head = count
        for i in range(accept_start[slot], accept_start[slot + 1]):
            q = accept[i]
            seen[q] = slot
            ways[count, 0] = q
            ways[count, 1] = slot - members_start[m]
            ways[count, 2] = 0
            ways[count, 3] = -1
            ways[count, 4] = -1
            count += 1
            row[q + 1] += 1
        while head < count:  # breadth first
            q = ways[head, 0]
            for i in range(back_start[q], back_start[q + 1]):
                before = back[i, 0]
                if seen[before] != slot:
                    seen[before] = slot
                    ways[count, 0] = before
                    ways[count, 1] = ways[head, 1]
                    ways[count, 2] = ways[head, 2] + 1
                    ways[count, 3] = back[i, 1]
                    ways[count, 4] = head
                    count += 1
                    row[before + 1] += 1
            head += 1
    for q in range(n_states):
        row[q + 1] += row[q]
    fill3 = row.copy()
    member = np.empty(count, np.int32)
    length = np.empty(count, np.int32)
    for i in range(count):  # members were visited in order, so each row comes out sorted
        q = all_ways[i, 0]
        j = fill3[q]
        fill3[q] = j + 1
        member[j] = all_ways[i, 1]
        length[j] = all_ways[i, 2]
        all_ways[i, 0] = j
    return row, member, length, all_ways[:count]


@inner
def _twice(rows):  # type: ignore[no-untyped-def]
    n, width = rows.shape
    larger = np.empty((2 * n, width), np.int32)
    for i in range(n):
        for j in range(width):
            larger[i, j] = rows[i, j]
    return larger


@kernel
def key_tokens(  # type: ignore[no-untyped-def]
    edge_class, sample, ways, trie_byte, trie_skip, trie_terminal, root
):  # fmt: skip
    """Tokens along the shortest way from each key state to the end of each member's key.

    ways: as `reachable_members` returns them; the costs come in the order of its rows.
    """
    trie_byte, trie_skip, root = view_u8(trie_byte), view_i32(trie_skip), view_i32(root)
    n = len(ways)
    byte = np.empty(n, np.int32)  # on the first edge; −1 for a special token, or none
    tokens = np.empty(n, np.int32)
    cost = np.empty(n, np.int32)
    for i in range(n):  # what lies behind an entry comes before it
        byte[i] = -1
        best = UNREACHABLE
        if ways[i, 4] < 0:
            best = 0
        elif sample[edge_class[ways[i, 3]]] < 0:  # a special token
            best = 1 + tokens[ways[i, 4]]
        else:
            byte[i] = sample[edge_class[ways[i, 3]]]
            node = ZERO
            here = wide(i)
            while byte[here] >= 0:
                node = child_along(trie_byte, trie_skip, root, node, wide(byte[here]))
                if node < 0:
                    break
                here = wide(ways[here, 4])
                if trie_terminal[node]:
                    best = min(best, 1 + tokens[here])
        tokens[i] = best
        cost[ways[i, 0]] = best
    return cost
