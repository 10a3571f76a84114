"""What the build must know of every entry of a `Program` before it makes states.

One depth-first walk finds the weights (how many byte edges an entry takes when written out; a
recursive rule weighs `MOST_WEIGHT`) and whether an entry can serve as the key of a member. A fixed
point finds which entries match the empty string.

Cost: linear, times a few rounds for the fixed point. Sibling: `fragments`, which asks.
"""

from __future__ import annotations

import numpy as np

from structspec.automata.encode import (
    AUTOMATON,
    BYTES,
    CHARS,
    MEMBERS,
    REPEAT,
    SEQUENCE,
    SPECIAL,
)
from structspec.machine_code.kernel import kernel

#: Weights stop here.
MOST_WEIGHT = 1 << 20
#: Bits of `obstacles`: why an entry cannot be part of a key.
HOLDS_MEMBERS, RECURSIVE, HOLDS_BOUNDED = 1, 2, 4
#: What `fault_of_keys` says of a key that matches the empty string.
EMPTY_KEY = 8


@kernel
def analyse(kind, first, last, low, high, longest, child, accepting):  # type: ignore[no-untyped-def]
    """(nullable uint8[N], weight int32[N], obstacles uint8[N])."""
    n = len(kind)
    nullable = np.zeros(n, np.uint8)
    changed = True
    while changed:
        changed = False
        for i in range(n - 1, -1, -1):  # children mostly have higher numbers
            if nullable[i]:
                continue
            what = kind[i]
            empty = False
            if what == BYTES:
                empty = first[i] == last[i]
            elif what == SEQUENCE:
                empty = True
                for k in range(first[i], last[i]):
                    empty = empty and nullable[child[k]] != 0
            elif what == AUTOMATON:
                for k in range(low[i], high[i]):
                    empty = empty or accepting[k] == 0
            elif what == MEMBERS:
                empty = high[i] == 1
            elif what != CHARS and what != SPECIAL:
                empty = what == REPEAT and low[i] == 0
                for k in range(first[i], last[i]):
                    empty = empty or nullable[child[k]] != 0
            if empty:
                nullable[i] = 1
                changed = True
    weight = np.zeros(n, np.int32)
    obstacles = np.zeros(n, np.uint8)
    mark = np.zeros(n, np.uint8)  # 1: on the path, 2: done
    stack = np.zeros(n, np.int32)
    place = np.zeros(n, np.int32)
    for root in range(n):
        if mark[root]:
            continue
        depth = 0
        stack[0] = root
        place[0] = first[root]
        mark[root] = 1
        while depth >= 0:
            i = stack[depth]
            what = kind[i]
            leaf = what in (BYTES, CHARS, SPECIAL, MEMBERS)
            if not leaf and place[depth] < last[i]:
                k = child[place[depth]]
                place[depth] += 1
                if mark[k] == 0:
                    mark[k] = 1
                    depth += 1
                    stack[depth] = k
                    place[depth] = first[k]
                elif mark[k] == 1:  # only rules close a circle
                    weight[k] = MOST_WEIGHT
                    obstacles[i] |= RECURSIVE
                continue
            total = int(weight[i])
            if what == BYTES:
                total = last[i] - first[i]
            elif what == CHARS:
                total = low[i]
            elif what == SPECIAL:
                total = 1
            elif what == MEMBERS:
                total = MOST_WEIGHT
                obstacles[i] |= HOLDS_MEMBERS
            else:
                for k in range(first[i], last[i]):
                    part = child[k]
                    obstacles[i] |= obstacles[part]
                    total = min(MOST_WEIGHT, total + weight[part])
                if what == AUTOMATON and longest[i] >= 0:
                    obstacles[i] |= HOLDS_BOUNDED
                if what == REPEAT:
                    copies = high[i] if high[i] >= 0 else low[i] + 1
                    total *= max(1, copies)
            weight[i] = min(MOST_WEIGHT, total)
            mark[i] = 2
            depth -= 1
    return nullable, weight, obstacles


@kernel
def fault_of_keys(kind, first, last, child, nullable, obstacles):  # type: ignore[no-untyped-def]
    """`EMPTY_KEY` or the obstacles of the first list of members that has such keys; else 0."""
    for entry in range(len(kind)):
        if kind[entry] != MEMBERS:
            continue
        found = 0
        for k in range(first[entry] + 1, last[entry], 2):
            if nullable[child[k]]:
                return EMPTY_KEY
            found |= obstacles[child[k]]
        if found:
            return found
    return 0
