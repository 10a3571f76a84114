"""Determinisation of all rules of a grammar: subset construction over bytes, calls and operations.

A state has at most one target per class, any number of call edges (one target per called rule) and
operation edges. Calls and operations stay nondeterministic; the lazy pushdown automaton follows all
of them at once. The edges come out in the flat form of a `Network`, state by state.

`determinise` works on arrays that its caller owns and may be called again at any time: it returns
when it is done, when an array is full (`GROW`), or after a quota of steps (`PAUSE`), so that its
caller can look at the clock. States that have been made stay; a state that was being expanded is
expanded again.

Cost: each (state, class) once; equal sets of edges are looked at once per state. Sibling:
`fragments`. Source: M. O. Rabin and D. Scott, "Finite automata and their decision problems", 1959.
"""

from __future__ import annotations

import numpy as np

from structspec.automata.encode import FIRST_MASK
from structspec.automata.fragments import BYTE, CALL
from structspec.automata.memory import MINUS_ONE, ONE, ZERO, inner, wide
from structspec.automata.tables import LOOP_BODY, MEMBER
from structspec.automata.views import view_i32, view_i64, view_rows, view_u8
from structspec.machine_code.kernel import kernel

#: Results of `determinise`.
DONE, GROW, PAUSE, OVERFLOW = 0, 1, 2, 3
#: Positions in the array of counters: states, those expanded, elements in the pool of subsets,
#: edges, calls, operations, roots that have a state; 1 if the hash table must be filled again; how
#: many groups and calls of one state there must be room for.
STATES, EXPANDED, ITEMS, EDGES, CALLS, OPS, ROOTS, REHASH, GROUPS = range(9)
N_COUNTS = 9
#: Width of `groups`.
GROUP_WIDTH = 7
# Its columns: the group that it was split from, the edge that split it, the group that this edge
# moves classes to, and which edge did so last (plus one); its state, whether an edge of it is
# primary, whether that is known.
_PARENT, _VIA, _MOVED, _MOVED_BY, _STATE, _PRIMARY, _KNOWN = range(7)


@kernel
def byte_classes(masks, edges, class_of):  # type: ignore[no-untyped-def]
    """The coarsest partition of the bytes that respects all byte edges, into class_of[256].

    Classes are numbered in the order of their first bytes. Returns (number of classes,
    start[M + 1], classes): the classes of each byte set in a compressed row, ascending; set b < 256
    is byte b.
    """
    n_masks = FIRST_MASK + len(masks)
    used = np.zeros(n_masks, np.uint8)
    for e in range(len(edges)):
        if edges[e, 0] == BYTE and edges[e, 1] >= 0:
            used[edges[e, 1] >> 1] = 1
    class_of[:] = 0
    n = 1
    total = np.zeros(257, np.int32)  # bytes of each class
    total[0] = 256
    inside = np.zeros(257, np.int32)  # those in the byte set
    moved = np.zeros(257, np.int32)
    member = np.zeros(256, np.int32)
    for m in range(n_masks):
        if not used[m]:
            continue
        if m < FIRST_MASK:
            if total[class_of[m]] > 1:
                total[class_of[m]] -= 1
                total[n] = 1
                class_of[m] = n
                n += 1
            continue
        n_members = 0
        for b in range(256):
            if (masks[m - FIRST_MASK, b >> 6] >> np.uint64(b & 63)) & np.uint64(1):
                member[n_members] = b
                n_members += 1
                inside[class_of[b]] += 1
        before = n
        for k in range(n_members):
            c = class_of[member[k]]
            if inside[c] < total[c]:
                if moved[c] == 0:
                    moved[c] = n
                    n += 1
                class_of[member[k]] = moved[c]
        for c in range(before):
            if moved[c]:
                total[moved[c]] = inside[c]
                total[c] -= inside[c]
                moved[c] = 0
            inside[c] = 0
    number = np.full(257, -1, np.int32)
    k = 0
    for b in range(256):
        if number[class_of[b]] < 0:
            number[class_of[b]] = k
            k += 1
        class_of[b] = number[class_of[b]]
    start = np.zeros(n_masks + 1, np.int32)
    classes = np.zeros(FIRST_MASK + n * len(masks), np.int32)
    fill = 0
    for m in range(n_masks):
        if m < FIRST_MASK:
            classes[fill] = class_of[m]
            fill += 1
        elif used[m]:
            inside[:] = 0
            for b in range(256):
                if (masks[m - FIRST_MASK, b >> 6] >> np.uint64(b & 63)) & np.uint64(1):
                    inside[class_of[b]] = 1
            for c in range(n):
                if inside[c]:
                    classes[fill] = c
                    fill += 1
        start[m + 1] = fill
    return n, start, classes


@inner
def _close(targets, n, empty, edges, essential, stamp, mark, out):  # type: ignore[no-untyped-def]
    """The essential states that `targets[:n]` reach along empty edges, sorted, into `out`.

    States that only have empty edges say nothing once the closure is known; leaving them out makes
    more subsets equal. `out` is the stack too: it has room for two entries per state.
    """
    top = len(out)
    for k in range(n):
        s = targets[k]
        if stamp[s] != mark:
            stamp[s] = mark
            top -= 1
            out[top] = s
    size = 0
    while top < len(out):
        s = out[top]
        top += 1
        if essential[s]:
            out[size] = s
            size += 1
        e = empty[s]
        while e >= 0:
            t = edges[e, 2]
            if stamp[t] != mark:
                stamp[t] = mark
                top -= 1
                out[top] = t
            e = edges[e, 3]
    gap = size // 2
    if size < 24:
        gap = 1
    while gap > 0:  # shell sort; most subsets are tiny
        for i in range(gap, size):
            value = out[i]
            j = i
            while j >= gap and out[j - gap] > value:
                out[j] = out[j - gap]
                j -= gap
            out[j] = value
        gap = gap // 2
    return size


@inner
def _place(table, items, first, n):  # type: ignore[no-untyped-def]
    h = 29
    for k in range(first, first + n):
        h = (h ^ items[k]) * 0x9E3779B1
        h = (h ^ (h >> 15)) & 0x7FFFFFFFFFFF
    return h & (len(table) - 1)


@inner
def _intern(items, n, start, pool, table, counts):  # type: ignore[no-untyped-def]
    """The number of the subset `items[:n]`, or −1 if there is no room."""
    size = len(table) - 1
    i = _place(table, items, ZERO, n)
    while table[i] > 0:
        s = table[i] - 1
        if start[s + 1] - start[s] == n:
            at = start[s]
            k = 0
            while k < n and pool[at + k] == items[k]:
                k += 1
            if k == n:
                return wide(s)
        i = (i + 1) & size
    s, used = counts[STATES], counts[ITEMS]
    if s + 2 > len(start) or used + n > len(pool) or 2 * (s + 1) > len(table):
        return -1
    for k in range(n):
        pool[used + k] = items[k]
    start[s + 1] = used + n
    table[i] = s + 1
    counts[STATES] = s + 1
    counts[ITEMS] = used + n
    return wide(s)


@inner
def _single(s, empty, edges, essential, stamp, counts, out, one, of_single, start, pool, table):  # type: ignore[no-untyped-def]
    """The state of one target; most targets are such, so a cheaper look-up pays."""
    found = wide(of_single[s])
    if found < 0:
        one[0] = s
        counts[N_COUNTS] += 1
        n = _close(one, ONE, empty, edges, essential, stamp, counts[N_COUNTS], out)
        found = _intern(out, n, start, pool, table, counts)
        of_single[s] = found
    return found


@kernel
def determinise(  # type: ignore[no-untyped-def]
    head, empty, marks, edges, ops, roots, class_start, classes, n_byte_classes, n_classes,
    essential, stamp, out, of_single, counts, start, pool, table, state_of_root,
    edge_start, edge_class, edge_target, edge_primary, call_start, call_rule, call_target,
    op_start, op_kind, op_argument, op_first, op_second, state_marks, one, group_of, groups,
    called, targets, quota, most_states,
):  # fmt: skip
    """Go on determinising; see the module. `counts[N_COUNTS]` is the last stamp.

    Scratch: one[1], group_of[n_classes], groups[G, 7], called[G, 2], targets[E].
    """
    head, empty, stamp, out = view_i32(head), view_i32(empty), view_i32(stamp), view_i32(out)
    marks, edges, ops = view_rows(marks), view_rows(edges), view_rows(ops)
    roots, class_start, classes = view_i32(roots), view_i32(class_start), view_i32(classes)
    essential, of_single, counts = view_u8(essential), view_i32(of_single), view_i64(counts)
    start, pool, table = view_i32(start), view_i32(pool), view_i32(table)
    state_of_root, edge_start = view_i32(state_of_root), view_i32(edge_start)
    edge_class, edge_target = view_i32(edge_class), view_i32(edge_target)
    edge_primary, state_marks = view_u8(edge_primary), view_rows(state_marks)
    call_start, call_rule = view_i32(call_start), view_i32(call_rule)
    call_target, op_start = view_i32(call_target), view_i32(op_start)
    op_kind, op_argument = view_i32(op_kind), view_i32(op_argument)
    op_first, op_second = view_i32(op_first), view_i32(op_second)
    one, group_of, targets = view_i32(one), view_i32(group_of), view_i32(targets)
    groups, called = view_rows(groups), view_rows(called)
    if counts[REHASH]:
        counts[REHASH] = 0
        size = len(table) - 1
        for s in range(counts[STATES]):
            i = _place(table, pool, wide(start[s]), wide(start[s + 1] - start[s]))
            while table[i] > 0:
                i = (i + 1) & size
            table[i] = s + 1
    while counts[ROOTS] < len(roots):
        s = _single(
            roots[counts[ROOTS]], empty, edges, essential, stamp, counts, out, one, of_single,
            start, pool, table,
        )  # fmt: skip
        if s < 0:
            return GROW
        state_of_root[counts[ROOTS]] = s
        counts[ROOTS] += 1
    # Classes of one state by the edges that hold them: each group is a chain of edges.
    steps = 0
    while counts[EXPANDED] < counts[STATES]:
        if counts[STATES] > most_states:
            return OVERFLOW
        if steps > quota:
            return PAUSE
        q = counts[EXPANDED]
        if q + 2 > len(edge_start) or counts[EDGES] + n_classes > len(edge_class):
            return GROW
        if counts[OPS] + len(ops) > len(op_kind):
            return GROW
        lo, hi = start[q], start[q + 1]
        done = 0
        kind, data = 0, -1
        n_groups = 1
        n_byte_edges = 0
        n_calls = 0
        n_ops = counts[OPS]
        n_edges = counts[EDGES]
        owner = -1  # the operation of the first member whose key ends here
        last_edge = -1
        for c in range(n_classes):
            group_of[c] = 0
        groups[0, _MOVED_BY] = 0
        for i in range(lo, hi):
            s = pool[i]
            if i == lo:
                kind, data = marks[s, 0], marks[s, 1]
            done |= marks[s, 2]
            e = head[s]
            while e >= 0:
                steps += 1
                what = edges[e, 0]
                label, target = edges[e, 1], edges[e, 2]
                if what == BYTE:
                    n_byte_edges += 1
                    last_edge = e
                    first_class, last_class = 0, 0
                    special = -1
                    if label < 0:
                        special = n_byte_classes - 1 - (label >> 1)
                        last_class = 1
                    else:
                        first_class = class_start[label >> 1]
                        last_class = class_start[(label >> 1) + 1]
                    steps += last_class - first_class
                    if n_groups + last_class - first_class > len(groups):
                        counts[GROUPS] = n_groups + last_class - first_class
                        return GROW
                    for j in range(first_class, last_class):
                        c = classes[j] if special < 0 else special
                        g = group_of[c]
                        if groups[g, _MOVED_BY] != e + 1:
                            groups[g, _MOVED_BY] = e + 1
                            groups[g, _MOVED] = n_groups
                            groups[n_groups, _PARENT] = g
                            groups[n_groups, _VIA] = e
                            groups[n_groups, _MOVED_BY] = 0
                            groups[n_groups, _KNOWN] = 0
                            n_groups += 1
                        group_of[c] = groups[g, _MOVED]
                elif what == CALL:
                    if n_calls == len(called):
                        counts[GROUPS] = n_calls + 1
                        return GROW
                    k = n_calls
                    while k > 0 and called[k - 1, 0] > label:
                        called[k, 0] = called[k - 1, 0]
                        called[k, 1] = called[k - 1, 1]
                        k -= 1
                    called[k, 0] = label
                    called[k, 1] = target
                    n_calls += 1
                elif ops[label, 0] == MEMBER:
                    if owner < 0 or ops[label, 1] < ops[owner, 1]:
                        owner = label
                elif marks[s, 0] != LOOP_BODY or not _holds(pool, lo, hi, ops[label, 3]):
                    # (An empty copy must not count: no operation where a copy begins.)
                    first, second = MINUS_ONE, MINUS_ONE
                    if ops[label, 2] >= 0:
                        first = _single(
                            ops[label, 2], empty, edges, essential, stamp, counts, out, one,
                            of_single, start, pool, table,
                        )  # fmt: skip
                        if first < 0:
                            return GROW
                    if ops[label, 3] >= 0:
                        second = _single(
                            ops[label, 3], empty, edges, essential, stamp, counts, out, one,
                            of_single, start, pool, table,
                        )  # fmt: skip
                        if second < 0:
                            return GROW
                    op_kind[n_ops] = ops[label, 0]
                    op_argument[n_ops] = ops[label, 1]
                    op_first[n_ops] = first
                    op_second[n_ops] = second
                    n_ops += 1
                e = edges[e, 3]
        if owner >= 0:
            first = _single(
                ops[owner, 2], empty, edges, essential, stamp, counts, out, one, of_single,
                start, pool, table,
            )  # fmt: skip
            if first < 0:
                return GROW
            op_kind[n_ops] = MEMBER
            op_argument[n_ops] = ops[owner, 1]
            op_first[n_ops] = first
            op_second[n_ops] = -1
            n_ops += 1
        if n_byte_edges == 1 and edges[last_edge, 1] >= 0:
            target = _single(
                edges[last_edge, 2], empty, edges, essential, stamp, counts, out, one, of_single,
                start, pool, table,
            )  # fmt: skip
            if target < 0:
                return GROW
            if start[target + 1] > start[target]:
                label = edges[last_edge, 1]
                for j in range(class_start[label >> 1], class_start[(label >> 1) + 1]):
                    edge_class[n_edges] = classes[j]
                    edge_target[n_edges] = target
                    edge_primary[n_edges] = 1 - (label & 1)
                    n_edges += 1
        elif n_byte_edges:
            for c in range(n_classes):
                g = group_of[c]
                if g == 0:
                    continue
                if groups[g, _KNOWN] == 0:
                    n = ZERO
                    primary = 0
                    k = g
                    while k > 0:
                        targets[n] = edges[groups[k, _VIA], 2]
                        n += 1
                        primary |= 1 - (edges[groups[k, _VIA], 1] & 1)
                        k = groups[k, _PARENT]
                    steps += n
                    if n == 1:
                        target = _single(
                            targets[0], empty, edges, essential, stamp, counts, out, one,
                            of_single, start, pool, table,
                        )  # fmt: skip
                    else:
                        counts[N_COUNTS] += 1
                        n = _close(
                            targets, n, empty, edges, essential, stamp, counts[N_COUNTS], out
                        )
                        steps += n
                        target = _intern(out, n, start, pool, table, counts)
                    if target < 0:
                        return GROW
                    groups[g, _KNOWN] = 1
                    groups[g, _STATE] = target
                    groups[g, _PRIMARY] = primary
                target = groups[g, _STATE]
                if start[target + 1] > start[target]:  # nothing follows the empty subset
                    edge_class[n_edges] = c
                    edge_target[n_edges] = target
                    edge_primary[n_edges] = groups[g, _PRIMARY]
                    n_edges += 1
        n_call_edges = counts[CALLS]
        if n_call_edges + n_calls > len(call_rule):
            return GROW
        k = 0
        while k < n_calls:
            rule = called[k, 0]
            n = ZERO
            while k < n_calls and called[k, 0] == rule:
                targets[n] = called[k, 1]
                n += 1
                k += 1
            counts[N_COUNTS] += 1
            n = _close(targets, n, empty, edges, essential, stamp, counts[N_COUNTS], out)
            target = _intern(out, n, start, pool, table, counts)
            if target < 0:
                return GROW
            if n:
                call_rule[n_call_edges] = rule
                call_target[n_call_edges] = target
                n_call_edges += 1
        state_marks[q, 0] = kind
        state_marks[q, 1] = data
        state_marks[q, 2] = done
        edge_start[q + 1] = n_edges
        call_start[q + 1] = n_call_edges
        op_start[q + 1] = n_ops
        counts[EDGES] = n_edges
        counts[CALLS] = n_call_edges
        counts[OPS] = n_ops
        counts[EXPANDED] = q + 1
    return DONE


@inner
def _holds(pool, lo, hi, state):  # type: ignore[no-untyped-def]
    found = False
    for i in range(lo, hi):
        found = found or pool[i] == state
    return found


@kernel
def merge_classes(  # type: ignore[no-untyped-def]
    n_byte_classes, n_classes, edge_start, edge_class, edge_target, edge_primary
):  # fmt: skip
    """Give byte classes that no state tells apart one number, in place.

    Returns (number of the merged classes, new number of each class); edges that say the same are
    left out, and `edge_start` is adapted.
    """
    n_states = len(edge_start) - 1
    count = np.zeros(n_classes, np.int64)
    code = np.full(n_classes, 17, np.int64)
    for q in range(n_states):
        for e in range(edge_start[q], edge_start[q + 1]):
            c = edge_class[e]
            h = (code[c] ^ (q * 2 + edge_primary[e])) * 0x9E3779B1
            h = ((h ^ (h >> 17)) ^ edge_target[e]) * 0x85EBCA6B
            code[c] = h ^ (h >> 15)
            count[c] += 1
    same = np.arange(n_classes).astype(np.int32)
    apart = True
    for c in range(n_byte_classes):
        for d in range(c):
            if same[d] == d and count[c] == count[d] and code[c] == code[d]:
                same[c] = d
                apart = False
                break
    if apart:
        return n_classes, same
    # Equal codes are looked at once more: never wrong, however unlikely.
    target_of = np.zeros(n_classes, np.int32)
    primary_of = np.zeros(n_classes, np.int32)
    met = np.full(n_classes, -1, np.int32)
    wrong = np.zeros(n_classes, np.uint8)
    for q in range(n_states):
        for e in range(edge_start[q], edge_start[q + 1]):
            c = edge_class[e]
            d = same[c]
            if d == c:
                met[c] = q
                target_of[c] = edge_target[e]
                primary_of[c] = edge_primary[e]
            elif met[d] != q or target_of[d] != edge_target[e] or primary_of[d] != edge_primary[e]:
                wrong[c] = 1
    number = np.zeros(n_classes, np.int32)
    n = 0
    for c in range(n_classes):
        if wrong[c]:
            same[c] = c
        if same[c] == c:
            number[c] = n
            n += 1
        else:
            number[c] = number[same[c]]
    fill = 0
    begin = 0
    for q in range(n_states):
        stop = edge_start[q + 1]
        for e in range(begin, stop):
            c = edge_class[e]
            if same[c] == c:
                edge_class[fill] = number[c]
                edge_target[fill] = edge_target[e]
                edge_primary[fill] = edge_primary[e]
                fill += 1
        begin = stop
        edge_start[q + 1] = fill
    return n, number
