"""Rows made from kept rows, of configurations that differ in white space only (numba kernels).

Two configurations are *twins* if they accept alike, white space may follow both and change nothing
(`blanks`), and they hold the same pairs of frames and of what a state does with anything else. Then
every other byte leads from both to the same configuration, so that their rows agree on all tokens
that do not begin with white space; and on those that begin with no more of it than may follow
either. So the row of the twin that less may follow is the other's without the tokens that begin
with more. In a run of white space all states are twins: draft trees and indented texts hold many.

Of each group of twins the one that the most white space may follow is remembered, as far as the
table has room (TWINS); a row that cannot be made from another is computed.

INVARIANT: an entry of TWINS is looked at only while its configuration's row is kept.
Sibling: `fill`, the only caller. Cost: about a tenth of a computed row. Where no line feed may
follow (JSON's white space always holds it) nothing but that is looked at.
"""

from __future__ import annotations

from structspec.automata.memory import Slot, i32, inner, slot, wide
from structspec.machine_code.kernel import kernel
from structspec.masks.blanks import blank_room, hash_of_edges, same_edges
from structspec.masks.places import edge_target_of
from structspec.masks.pool import pool_row
from structspec.masks.ranges import take_out
from structspec.masks.tables import EDGES_MASK, TWINS_MASK, Known, Tally, Words

__all__ = ["NO_TWIN", "note_twin", "twin_key", "twin_row"]

_CONFIG_START, _CONFIG_ITEMS = slot(Slot.CONFIG_START), slot(Slot.CONFIG_ITEMS)
_CONFIG_ACCEPTS = slot(Slot.CONFIG_ACCEPTS)
_EDGES, _EDGES_OF, _TWINS = slot(Known.EDGES), slot(Known.EDGES_OF), slot(Known.TWINS)
_ROW_OF, _WORST, _TALLY = slot(Known.ROW_OF), slot(Known.WORST), slot(Known.COUNT)
_BLANKS, _BLANKS_START = slot(Words.BLANKS), slot(Words.BLANKS_START)
_CLASS_OF = slot(Slot.CLASS_OF)
_ROOM = int(Tally.BLANK_ROOM)

#: The row must be computed.
NO_TWIN = -1000
#: Configurations of more pairs are not compared.
_MOST_PAIRS = 8


@kernel
def twin_key(header, known, config):  # type: ignore[no-untyped-def]
    """A hash that twins share; −1 if a configuration is not to be compared with others."""
    start, items = i32(header, _CONFIG_START), i32(header, _CONFIG_ITEMS)
    begin, end = start[config], start[config + 1]
    if end - begin > 2 * _MOST_PAIRS:
        return wide(-1)
    line_feed = wide(i32(header, _CLASS_OF)[0x0A])
    taken = False
    for i in range(begin, end, 2):
        taken = taken or edge_target_of(header, wide(items[i]), line_feed) >= 0
    if not taken:
        return wide(-1)
    key = wide(i32(header, _CONFIG_ACCEPTS)[config])
    for i in range(begin, end, 2):
        edges = _edges_of(header, known, wide(items[i]))
        if edges >= 0:
            mixed = ((edges + 1) * 0x9E3779B1 + wide(items[i + 1])) * 0x85EBCA6B
            key += (mixed ^ (mixed >> 15)) & 0xFFFFFFF
    return key & 0x7FFFFFFF


@kernel
def twin_row(header, known, words, config, key, row):  # type: ignore[no-untyped-def]
    """Make a row from that of a twin: a bound above its costs, `NO_TWIN` or another code."""
    twins = i32(known, _TWINS)
    at = 3 * (key & TWINS_MASK)
    other, most = wide(twins[at]), wide(twins[at + 2])
    if other == 0 or twins[at + 1] != key or i32(known, _ROW_OF)[other] == 0:
        return wide(NO_TWIN)
    if not _are_twins(header, known, config, other):
        return wide(NO_TWIN)
    room, _ = blank_room(header, known, config)
    if room < 0:
        return room
    if room == 0 or room > most:
        return wide(NO_TWIN)
    source = pool_row(known, wide(i32(known, _ROW_OF)[other] - 1))
    for w in range(len(row)):
        row[w] = source[w]
    if room < most:
        ids, start = i32(words, _BLANKS), i32(words, _BLANKS_START)
        take_out(row, ids, wide(start[min(room + 1, len(start) - 1)]), wide(len(ids)))
    i32(known, _TALLY)[_ROOM] = room
    return wide(i32(known, _WORST)[other])


@inner
def note_twin(known, config, key):  # type: ignore[no-untyped-def]
    """Remember a configuration whose row was just made."""
    room = wide(i32(known, _TALLY)[_ROOM])
    twins = i32(known, _TWINS)
    at = 3 * (key & TWINS_MASK)
    if room == 0:
        return
    if twins[at + 1] == key and twins[at + 2] >= room and i32(known, _ROW_OF)[twins[at]]:
        return
    twins[at], twins[at + 1], twins[at + 2] = config, key, room


@inner
def _are_twins(header, known, one, other):  # type: ignore[no-untyped-def]
    """Whether two configurations differ in white space only."""
    accepts = i32(header, _CONFIG_ACCEPTS)
    if accepts[one] != accepts[other]:
        return False
    return _holds(header, known, one, other) and _holds(header, known, other, one)


@inner
def _holds(header, known, config, other):  # type: ignore[no-untyped-def]
    """Whether each pair of `other` that takes more than white space has an equal in `config`."""
    start, items = i32(header, _CONFIG_START), i32(header, _CONFIG_ITEMS)
    for i in range(start[other], start[other + 1], 2):
        edges = _edges_of(header, known, wide(items[i]))
        found = edges < 0
        for k in range(start[config], start[config + 1], 2):
            if found:
                break
            if items[k + 1] == items[i + 1]:
                found = _edges_of(header, known, wide(items[k])) == edges
        if not found:
            return False
    return True


@inner
def _edges_of(header, known, state):  # type: ignore[no-untyped-def]
    """A state with the same edges, those of white space left out; −1 if there are no others.

    States for which it is the same have the same edges. (The opposite fails where the table of
    these states has no room: then twins are not found.)
    """
    found = i32(known, _EDGES_OF)
    if found[state] == 0:
        key = hash_of_edges(header, state)
        result = state
        if key < 0:
            result = wide(-1)
        else:
            heads = i32(known, _EDGES)
            at = key & EDGES_MASK
            head = wide(heads[at]) - 1
            if head >= 0 and same_edges(header, head, state):
                result = head
            else:
                heads[at] = state + 1
        found[state] = result + 2
    return wide(found[state]) - 2
