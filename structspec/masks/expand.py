"""Whole rows of the transition table at once (numba kernel).

A walk of the vocabulary asks a configuration for almost every byte class, and most classes lead to
the same place by the same edges: a string's closing and interning is then done once, not per class.

Sibling: `automata.pushdown.step`, which answers for a single class.
"""

from __future__ import annotations

from structspec.automata.memory import OVERFLOW, ZERO, Count, Slot, i32, inner, slot, wide
from structspec.automata.pushdown import DEAD, UNKNOWN, close
from structspec.machine_code.kernel import kernel
from structspec.machine_code.linking import address, header_at, linked
from structspec.masks.places import edge_target_of, leave_at, near
from structspec.masks.tables import WIDE, Known

_NEXT, _COUNT = slot(Slot.NEXT), slot(Slot.COUNT)
_CLASSES, _STEPS, _WORK = int(Count.CLASSES), int(Count.STEPS), int(Count.WORK)
_CONFIG_START, _CONFIG_ITEMS = slot(Slot.CONFIG_START), slot(Slot.CONFIG_ITEMS)
_EDGE_START, _EDGE_CLASS = slot(Slot.EDGE_START), slot(Slot.EDGE_CLASS)
_EDGE_TARGET = slot(Slot.EDGE_TARGET)
_QUEUE_STATE, _QUEUE_SET = slot(Slot.QUEUE_STATE), slot(Slot.QUEUE_SET)
_CURSORS, _SEEN = slot(Known.CURSORS), slot(Known.SEEN)


@linked("structspec_expand", 3)
def expand_at(header_address, known_address, config):  # type: ignore[no-untyped-def]
    """Fill `NEXT[config, every class]`. Returns 0 or a negative code; may be repeated."""
    header, known = header_at(header_address), header_at(known_address)
    count, table = i32(header, _COUNT), i32(header, _NEXT)
    start, items = i32(header, _CONFIG_START), i32(header, _CONFIG_ITEMS)
    edge_start, edge_class = i32(header, _EDGE_START), i32(header, _EDGE_CLASS)
    edge_target = i32(header, _EDGE_TARGET)
    queue_state, queue_set = i32(header, _QUEUE_STATE), i32(header, _QUEUE_SET)
    cursors, seen = i32(known, _CURSORS), i32(known, _SEEN)
    seen_target = seen[2 * count[_CLASSES] :]
    classes = count[_CLASSES]
    base = config * classes
    lo, pairs = start[config], (start[config + 1] - start[config]) >> 1
    if 2 * pairs > len(cursors):
        return WIDE
    if pairs > len(queue_state):
        return OVERFLOW
    if pairs == 1 and items[lo + 1] == 0:
        return _expand_hollow(header, known, wide(items[lo]), base)
    for i in range(pairs):
        cursors[i] = edge_start[items[lo + 2 * i]]
        cursors[pairs + i] = edge_start[items[lo + 2 * i] + 1]
    count[_WORK] += 8 * classes
    n_seen = 0  # classes whose edges were closed, as pairs of class and a hash of the edges
    while True:  # a merge of the pairs' edges, which are sorted by class
        c = classes
        for i in range(pairs):
            if cursors[i] < cursors[pairs + i] and edge_class[cursors[i]] < c:
                c = edge_class[cursors[i]]
        if c == classes:
            break
        n = 0
        h = 7
        for i in range(pairs):
            e = cursors[i]
            if e < cursors[pairs + i] and edge_class[e] == c:
                queue_state[n] = edge_target[e]
                queue_set[n] = items[lo + 2 * i + 1]
                n += 1
                h = ((h * 31 + i) * 1000003 + edge_target[e]) & 0x7FFFFFFF
                cursors[i] = e + 1
        if table[base + c] != UNKNOWN:
            continue
        result = UNKNOWN
        for s in range(n_seen):
            if seen[2 * s + 1] == h and (
                edge_target[cursors[0] - 1] == seen_target[s]
                if pairs == 1
                else _same(header, lo, pairs, seen[2 * s], c)
            ):
                result = table[base + seen[2 * s]]
                break
        if result == UNKNOWN:
            state = wide(queue_state[0])
            if n == 1:
                result = leave_at(header_address, known_address, state, wide(queue_set[0]))
            else:
                count[_STEPS] += 1
                result = close(header_address, wide(n), ZERO)
            if result < 0:
                return result
            seen[2 * n_seen] = c
            seen[2 * n_seen + 1] = h
            seen_target[n_seen] = state
            n_seen += 1
        table[base + c] = result
    for c in range(classes):  # only now: a repeated call must not find unfinished classes refused
        if table[base + c] == UNKNOWN:
            table[base + c] = DEAD
    return 0


@inner
def _expand_hollow(header, known, state, base):  # type: ignore[no-untyped-def]
    """The row of a hollow configuration (`places`), which begins at `base`."""
    edge_start, edge_class = i32(header, _EDGE_START), i32(header, _EDGE_CLASS)
    edge_target, table = i32(header, _EDGE_TARGET), i32(header, _NEXT)
    last, result = wide(-1), wide(DEAD)
    for e in range(edge_start[state], edge_start[state + 1]):
        target = wide(edge_target[e])
        if target != last:
            result = near(header, known, target)
            if result < 0:
                return result
            last = target
        table[base + edge_class[e]] = result
    for c in range(i32(header, _COUNT)[_CLASSES]):
        if table[base + c] == UNKNOWN:
            table[base + c] = DEAD
    return ZERO


@kernel
def expand(header, known, config):  # type: ignore[no-untyped-def]
    """`expand_at` for headers."""
    return expand_at(address(header), address(known), config)


@inner
def _same(header, lo, pairs, a, b):  # type: ignore[no-untyped-def]
    """Whether two classes take the same edges from all pairs of a configuration."""
    items = i32(header, _CONFIG_ITEMS)
    for i in range(pairs):
        state = wide(items[lo + 2 * i])
        if edge_target_of(header, state, wide(a)) != edge_target_of(header, state, wide(b)):
            return False
    return True
