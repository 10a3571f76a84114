"""Where several places share the nodes of a trie: what a walk still has to look at.

Nodes wait on a stack with the place that they are to be walked with. A configuration of several
pairs is walked pair by pair, each over the nodes whose byte it knows; and a rule that is walked by
itself over all of them.

Sibling: `walk`, the only caller.
"""

from __future__ import annotations

import numpy as np

from structspec.automata.memory import Slot, at_i32, at_u8, base, i32, inner, slot, u32, wide
from structspec.automata.pushdown import push
from structspec.machine_code.kernel import kernel
from structspec.machine_code.linking import address
from structspec.masks.blanks import is_blank
from structspec.masks.places import (
    alive,
    edge_target_of,
    entered_at,
    floor_of,
    hollow_at,
    place_of,
)
from structspec.masks.ranges import all_marked
from structspec.masks.tables import BYTE, NODES, SEEN_MASK, STACK_WIDTH, WIDE, Known, Tally
from structspec.vocab.blocks import HIGH, LOW, RECORD

_CLASS_OF, _QUEUE_STATE = slot(Slot.CLASS_OF), slot(Slot.QUEUE_STATE)
_CONFIG_START, _CONFIG_ITEMS = slot(Slot.CONFIG_START), slot(Slot.CONFIG_ITEMS)
_CALL_START, _CALL_ENTRY = slot(Slot.CALL_START), slot(Slot.CALL_ENTRY)
_TARGET, _ALIVE, _MARKS = slot(Known.TARGET), slot(Known.ALIVE), slot(Known.MARKS)
_SEEN_PLACES, _TALLY, _WALKS = slot(Known.SEEN_PLACES), slot(Known.COUNT), int(Tally.WALKS)
#: What a step pushes at most between two looks at the room.
ROOM = 8 * STACK_WIDTH


@inner
def push_nodes(stack, top, at, end, config, frames, floor, flags):  # type: ignore[no-untyped-def]
    """Push nodes with a place. Returns the new top of the stack.

    flags: a sum of 1, 2, 4 and 8 for what `walk` calls apart, rough, based and skips.
    """
    stack[top], stack[top + 1], stack[top + 2] = at, end, config
    stack[top + 3], stack[top + 4], stack[top + 5] = frames, floor, flags
    return top + STACK_WIDTH


@inner
def is_new(known, at, end, config, frames):  # type: ignore[no-untyped-def]
    """Whether the running walk has not been at these nodes with this place, as far as is known.

    Ambiguous grammars reach one place on many ways.
    """
    seen = i32(known, _SEEN_PLACES)
    walk_number = i32(known, _TALLY)[_WALKS]
    nodes = 2 * at + (end - at == 1)
    entry = 4 * ((nodes * 40503 + config * 1000003 + frames * 31) & SEEN_MASK)
    if (
        seen[entry] == walk_number
        and seen[entry + 1] == nodes
        and seen[entry + 2] == config
        and seen[entry + 3] == frames
    ):
        return False
    seen[entry], seen[entry + 1] = walk_number, nodes
    seen[entry + 2], seen[entry + 3] = config, frames
    return True


@kernel
def enter_rules(header, known, stack, top, at, end, state, frames, flags):  # type: ignore[no-untyped-def]
    """Push the nodes from `at` to `end` with each rule that a state calls under some frames.

    Returns the new top of the stack, or a negative code.
    """
    call_start, call_entry = i32(header, _CALL_START), i32(header, _CALL_ENTRY)
    for c in range(call_start[state], call_start[state + 1]):
        if top + ROOM > len(stack):
            return wide(WIDE)
        pushed = push(address(header), wide(c), frames)
        if pushed < 0:
            return pushed
        if pushed:
            config = entered_at(address(header), address(known), wide(call_entry[c]))
            if is_new(known, at, end, config, pushed):
                top = push_nodes(
                    stack, top, at, end, config, pushed, floor_of(header, pushed), flags
                )
    return top


@inner
def any_alive(header, known, byte, at, end, config):  # type: ignore[no-untyped-def]
    """Whether a configuration knows the byte of some node from `at` to `end`."""
    if at == end:
        return False
    first = alive(header, known, config)
    bits, classes = u32(known, _ALIVE), base(header, _CLASS_OF)
    for node in range(at, end):
        letter = wide(at_i32(classes, at_u8(byte, node)))
        if (bits[first + (letter >> 5)] >> np.uint32(letter & 31)) & np.uint32(1):
            return True
    return False


@kernel
def spread(header, known, words, trie, stack, top, at, end, config, flags):  # type: ignore[no-untyped-def]
    """Push each node from `at` to `end` with each pair of a configuration that knows its byte.

    Nodes whose tokens are all allowed already are left out. Returns the new top of the stack, or a
    negative code.
    """
    first = alive(header, known, config)
    bits, marks, classes = u32(known, _ALIVE), u32(known, _MARKS), base(header, _CLASS_OF)
    byte, nodes = base(words, trie + BYTE), base(words, trie + NODES)
    start, items = i32(header, _CONFIG_START), i32(header, _CONFIG_ITEMS)
    targets, chosen = i32(known, _TARGET), i32(header, _QUEUE_STATE)
    begin, pairs = start[config], (start[config + 1] - start[config]) >> 1
    skips = flags >> 3
    flags &= 3
    for node in range(at, end):
        letter = wide(at_i32(classes, at_u8(byte, node)))
        if (bits[first + (letter >> 5)] >> np.uint32(letter & 31)) & np.uint32(1) == 0:
            continue
        if skips and is_blank(at_u8(byte, node)):
            continue
        record = RECORD * node
        if all_marked(marks, at_i32(nodes, record + LOW), at_i32(nodes, record + HIGH)):
            continue
        n = 0
        for i in range(pairs):
            if edge_target_of(header, wide(items[begin + 2 * i]), letter) >= 0:
                chosen[n] = i
                n += 1
        # those where much text changes nothing are pushed last and looked at first
        for turn in range(2 if n > 1 else 1):
            for k in range(n):
                hollow = wide(0)
                if n > 1:
                    state = wide(items[begin + 2 * chosen[k]])
                    hollow = hollow_at(address(header), address(known), state)
                    if (targets[hollow] == hollow) != (turn == 1):
                        continue
                if top + ROOM > len(stack):
                    return wide(WIDE)
                place, frames = place_of(header, known, config, wide(chosen[k]))
                if place < 0:
                    return place
                if is_new(known, wide(node), wide(node + 1), place, frames):
                    top = push_nodes(
                        stack, top, wide(node), wide(node + 1), place, frames,
                        floor_of(header, frames), flags,
                    )  # fmt: skip
    return top
