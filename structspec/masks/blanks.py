"""White space between the tokens of JSON: runs that change nothing but how many may follow.

Vocabularies have a hundred tokens that are nothing but white space, and hundreds that begin with
it. Where it may stand it mostly leads from one state to the next of a bounded run, whose states
differ in nothing else; whatever may follow may as well follow now. So a row need not visit these
states: its walks leave out what begins with white space, and one walk more goes through the white
space of the vocabulary and then on from where it began.

Sibling: `fill`, which asks; `walk`, which goes through.
"""

from __future__ import annotations

from structspec.automata.memory import Slot, at_i32, at_u8, base, i32, inner, slot, wide
from structspec.automata.pushdown import DEAD
from structspec.automata.tables import MEMBER_KEY
from structspec.machine_code.kernel import kernel
from structspec.masks.places import edge_target_of, stride
from structspec.masks.ranges import add
from structspec.masks.tables import BYTE, IDS, NODES, STACK_WIDTH, WIDE, Known
from structspec.vocab.blocks import CONTENT, FIRST, HEIGHT, HIGH, LAST, LOW, OWN, RECORD
from structspec.vocab.characters import BLANKS

__all__ = ["blank_room", "hash_of_edges", "is_blank", "same_edges", "through_blanks"]

_CLASS_OF, _CONFIG_START = slot(Slot.CLASS_OF), slot(Slot.CONFIG_START)
_CONFIG_ITEMS = slot(Slot.CONFIG_ITEMS)
_EDGE_START, _EDGE_CLASS = slot(Slot.EDGE_START), slot(Slot.EDGE_CLASS)
_EDGE_TARGET, _BLANKS = slot(Slot.EDGE_TARGET), slot(Known.BLANKS)
_CALL_START, _CALL_ENTRY = slot(Slot.CALL_START), slot(Slot.CALL_ENTRY)
_CALL_TARGET, _CALL_TAIL = slot(Slot.CALL_TARGET), slot(Slot.CALL_TAIL)
_OP_START, _OP_KIND, _OP_ARGUMENT = slot(Slot.OP_START), slot(Slot.OP_KIND), slot(Slot.OP_ARGUMENT)
_OP_FIRST, _OP_SECOND = slot(Slot.OP_FIRST), slot(Slot.OP_SECOND)
_FINAL, _KIND, _DATA, _BASE = slot(Slot.FINAL), slot(Slot.KIND), slot(Slot.DATA), slot(Slot.BASE)
_CHARACTERS, _REACH_START = slot(Slot.CHARACTERS), slot(Slot.REACH_START)
_REACH_MEMBER, _REACH_COST = slot(Slot.REACH_MEMBER), slot(Slot.REACH_COST)
#: White space leads to several places.
MIXED = -2
#: Longer runs that end are walked as they are; those without end are as long as any token.
_LONGEST, _ENDLESS = 1 << 10, 1 << 30
#: Configurations of more pairs are walked as they are.
_MOST_PAIRS = 8


@inner
def is_blank(letter):  # type: ignore[no-untyped-def]
    """Whether a byte is JSON's white space."""
    return letter in BLANKS


@kernel
def blank_room(header, known, config):  # type: ignore[no-untyped-def]
    """How much white space may follow a real configuration and change nothing, 0 if it would.

    After n bytes of it, up to that many, everything else may follow that may follow now, and more
    may not follow. Returns this number and the configuration after the first byte, or a negative
    code.
    """
    classes = i32(header, _CLASS_OF)
    start, items = i32(header, _CONFIG_START), i32(header, _CONFIG_ITEMS)
    begin, end = start[config], start[config + 1]
    if end - begin > 2 * _MOST_PAIRS:
        return wide(0), wide(DEAD)
    space, room = wide(classes[0x20]), wide(-1)
    for i in range(begin, end, 2):
        target = _on_blanks(header, wide(items[i]))
        if target >= 0:
            mine = 1 + _room_of(header, known, target)
            if mine == 0 or (room >= 0 and mine != room):
                return wide(0), wide(DEAD)
            room = mine
        elif target == MIXED:
            return wide(0), wide(DEAD)
    if room < 0:
        return wide(0), wide(DEAD)
    after = stride(header, known, config, space)
    if after <= DEAD:
        return min(after, wide(0)), wide(DEAD)
    # After one byte the same must be possible, and only what took it may take more: the states
    # that follow differ in nothing else, so what holds here holds after every further byte.
    if not (_within(header, config, after) and _within(header, after, config)):
        return wide(0), wide(DEAD)
    for k in range(start[after], start[after + 1], 2):
        if _on_blanks(header, wide(items[k])) != -1:
            found = False
            for i in range(begin, end, 2):
                if items[i + 1] == items[k + 1]:
                    found = found or _on_blanks(header, wide(items[i])) == items[k]
            if not found:
                return wide(0), wide(DEAD)
    return room, after


@inner
def _within(header, config, other):  # type: ignore[no-untyped-def]
    """Whether a configuration allows whatever another does behind the same frames, white space
    left out. Calls and operations do not count: what they lead to stands in it as well.
    """
    start, items = i32(header, _CONFIG_START), i32(header, _CONFIG_ITEMS)
    for i in range(start[other], start[other + 1], 2):
        found = _nothing_else(header, wide(items[i]))
        for k in range(start[config], start[config + 1], 2):
            if found:
                break
            if items[k + 1] == items[i + 1]:
                found = same_edges(header, wide(items[k]), wide(items[i]))
        if not found:
            return False
    return True


@inner
def _nothing_else(header, state):  # type: ignore[no-untyped-def]
    """Whether white space is all that a state takes."""
    classes, start = i32(header, _CLASS_OF), i32(header, _EDGE_START)
    edge_class = i32(header, _EDGE_CLASS)
    for e in range(start[state], start[state + 1]):  # noqa: SIM110
        if not _of_blanks(classes, edge_class[e]):
            return False
    return True


@inner
def _of_blanks(classes, byte_class):  # type: ignore[no-untyped-def]
    """Whether a class of bytes holds white space."""
    for letter in BLANKS:  # noqa: SIM110
        if classes[letter] == byte_class:
            return True
    return False


@inner
def _on_blanks(header, state):  # type: ignore[no-untyped-def]
    """Where all white space leads from a state, −1 if nowhere, `MIXED` if to several places."""
    classes = i32(header, _CLASS_OF)
    target = edge_target_of(header, state, wide(classes[0x20]))
    for letter in BLANKS:
        if edge_target_of(header, state, wide(classes[letter])) != target:
            return wide(MIXED)
    return target


@kernel
def _room_of(header, known, state):  # type: ignore[no-untyped-def]
    """How many bytes of white space lead on from a state to others that differ in nothing else,
    −1 if some lead elsewhere.
    """
    rooms = i32(known, _BLANKS)
    if rooms[state]:
        return wide(rooms[state]) - 2
    length, here = wide(0), state
    if not _apart(header):
        length = wide(-1)
    while 0 <= length < _LONGEST:
        target = _on_blanks(header, here)
        if target == -1:
            break
        if target == here:
            length = wide(_ENDLESS)
        elif target == MIXED or not _alike(header, here, target):
            length = wide(-1)
            break
        else:
            length += 1
            here = target
    if length == _LONGEST:
        length = wide(-1)
    rooms[state] = length + 2
    here, left = state, length
    while left > 0:  # what was found of those on the way
        target = _on_blanks(header, here)
        if target == here:
            break
        left -= length < _ENDLESS
        here = target
        rooms[here] = left + 2
    return length


@inner
def _apart(header):  # type: ignore[no-untyped-def]
    """Whether no other byte is of a class with white space: edges of these classes are left out."""
    classes = i32(header, _CLASS_OF)
    for byte in range(256):
        if _of_blanks(classes, classes[byte]) and not is_blank(byte):
            return False
    return True


@inner
def _alike(header, one, other):  # type: ignore[no-untyped-def]
    """Whether two states differ in nothing but where white space leads."""
    kind, data, final = i32(header, _KIND), i32(header, _DATA), i32(header, _FINAL)
    costs, characters = i32(header, _BASE), i32(header, _CHARACTERS)
    if (
        kind[one] != kind[other]
        or data[one] != data[other]
        or final[one] != final[other]
        or costs[one] != costs[other]
        or characters[one] != characters[other]
    ):
        return False
    calls, operations = i32(header, _CALL_START), i32(header, _OP_START)
    members = i32(header, _REACH_START)
    return (
        _same(calls, i32(header, _CALL_ENTRY), one, other)
        and _same(calls, i32(header, _CALL_TARGET), one, other)
        and _same(calls, i32(header, _CALL_TAIL), one, other)
        and _same(operations, i32(header, _OP_KIND), one, other)
        and _same(operations, i32(header, _OP_ARGUMENT), one, other)
        and _same(operations, i32(header, _OP_FIRST), one, other)
        and _same(operations, i32(header, _OP_SECOND), one, other)
        and same_edges(header, one, other)
        and (
            kind[one] != MEMBER_KEY
            or (
                _same(members, i32(header, _REACH_MEMBER), one, other)
                and _same(members, i32(header, _REACH_COST), one, other)
            )
        )
    )


@inner
def _same(start, values, one, other):  # type: ignore[no-untyped-def]
    """Whether two states have the same run of values; that of state q begins at `start[q]`."""
    a, b = start[one], start[other]
    n = start[one + 1] - a
    if start[other + 1] - b != n:
        return False
    for k in range(n):  # noqa: SIM110 - kernels know no generators
        if values[a + k] != values[b + k]:
            return False
    return True


@inner
def hash_of_edges(header, state):  # type: ignore[no-untyped-def]
    """A hash of what `same_edges` compares, −1 if that is nothing."""
    classes, start = i32(header, _CLASS_OF), i32(header, _EDGE_START)
    edge_class, target = i32(header, _EDGE_CLASS), i32(header, _EDGE_TARGET)
    found = wide(-1)
    for e in range(start[state], start[state + 1]):
        if not _of_blanks(classes, edge_class[e]):
            mixed = (found + 2) * 0x9E3779B1 + wide(edge_class[e]) * 1000003 + wide(target[e])
            found = (mixed ^ (mixed >> 29)) & 0x7FFFFFFF
    return found


@inner
def same_edges(header, one, other):  # type: ignore[no-untyped-def]
    """Whether all edges lead to the same states, those of white space left out."""
    classes, start = i32(header, _CLASS_OF), i32(header, _EDGE_START)
    edge_class, target = i32(header, _EDGE_CLASS), i32(header, _EDGE_TARGET)
    a, b = start[one], start[other]
    while True:
        while a < start[one + 1] and _of_blanks(classes, edge_class[a]):
            a += 1
        while b < start[other + 1] and _of_blanks(classes, edge_class[b]):
            b += 1
        if a == start[one + 1] or b == start[other + 1]:
            return a == start[one + 1] and b == start[other + 1]
        if edge_class[a] != edge_class[b] or target[a] != target[b]:
            return False
        a += 1
        b += 1


@kernel
def through_blanks(words, trie, plain, stack, row, room, config, frames, floor, flags):  # type: ignore[no-untyped-def]
    """Add the tokens of up to `room` bytes of white space to a row, and push what follows them.

    plain: 1 if the trie holds plain tokens. Each level is pushed with the place where the walk
    begins; its white space is to be left out. Returns the new top of the stack, or `WIDE`.
    """
    byte, nodes, ids = base(words, trie + BYTE), base(words, trie + NODES), i32(words, trie + IDS)
    stack[0], stack[1], stack[2] = at_i32(nodes, wide(FIRST)), at_i32(nodes, wide(LAST)), 0
    top, level = wide(STACK_WIDTH), wide(0)
    while level < top:
        depth = stack[level + 2] + 1
        for child in range(stack[level], stack[level + 1]):
            if depth > room or not is_blank(at_u8(byte, wide(child))):
                continue
            node = wide(RECORD * child)
            low, high = at_i32(nodes, node + LOW), at_i32(nodes, node + HIGH)
            tall = at_i32(nodes, node + HEIGHT)
            if not plain and at_i32(nodes, node + CONTENT) == 1 and depth + tall <= room:
                add(row, ids, low, high)  # nothing but white space below
                continue
            add(row, ids, low, low + at_i32(nodes, node + OWN))
            first, last = at_i32(nodes, node + FIRST), at_i32(nodes, node + LAST)
            if first == last:
                continue
            if top + STACK_WIDTH > len(stack):
                return wide(WIDE)
            stack[top], stack[top + 1], stack[top + 2] = first, last, depth
            top += STACK_WIDTH
        level += STACK_WIDTH
    for level in range(STACK_WIDTH, top, STACK_WIDTH):  # the first level is that of other walks
        at = level - STACK_WIDTH
        stack[at], stack[at + 1], stack[at + 2] = stack[level], stack[level + 1], config
        stack[at + 3], stack[at + 4], stack[at + 5] = frames, floor, flags
    return top - STACK_WIDTH
