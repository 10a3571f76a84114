"""The states behind tokens, and the text that must follow a state (numba kernels).

Sibling: `fill`, which says what may follow. Text inside a rule takes the states of the network
(`places`), so that an advance makes no configurations on its way.
"""

from __future__ import annotations

import numpy as np

from structspec.automata.memory import Count, Slot, i32, inner, slot, u8, wide
from structspec.automata.pushdown import DEAD
from structspec.machine_code.kernel import kernel
from structspec.machine_code.linking import address, header_at
from structspec.masks.classify import enter, follow
from structspec.masks.places import EXIT, FINAL, HIDDEN, SPLIT, leave_at, pair_of, stride
from structspec.masks.tables import REJECTED, SHORT, STALE, Known, Words

_CLASS_OF, _COUNT, _CONFIGS = slot(Slot.CLASS_OF), slot(Slot.COUNT), int(Count.CONFIGS)
_CONFIG_START, _CONFIG_ITEMS = slot(Slot.CONFIG_START), slot(Slot.CONFIG_ITEMS)
_CONFIG_ACCEPTS, _EDGE_PRIMARY = slot(Slot.CONFIG_ACCEPTS), slot(Slot.EDGE_PRIMARY)
_EDGE_START, _EDGE_CLASS = slot(Slot.EDGE_START), slot(Slot.EDGE_CLASS)
_TOKEN_START, _TOKEN_BYTES = slot(Words.TOKEN_START), slot(Words.TOKEN_BYTES)
_ROW_OF, _PLACE = slot(Known.ROW_OF), slot(Known.PLACE)
_SPECIALS, _CLASS_BYTE = slot(Known.SPECIALS), slot(Known.CLASS_BYTE)
_LOW = (1 << 32) - 1

#: Values of CLASS_BYTE for classes that hold several writable bytes, or none. (Not −1: byte + 1 is
#: compared with 0, "no byte yet", in `only_byte`.)
SEVERAL, NONE = -2, -3


@kernel
def advance_at(header, known, words, state, epoch, token):  # type: ignore[no-untyped-def]
    """The state after a token, or a negative code (`REJECTED`, `STALE`, …). Headers by address.

    Tokens without text lead nowhere, except special tokens that the grammar names.
    """
    header, known, words = header_at(header), header_at(known), header_at(words)
    config = state & _LOW
    if state >> 32 != epoch or config >= i32(header, _COUNT)[_CONFIGS]:
        return STALE
    if len(i32(known, _ROW_OF)) < len(i32(header, _CONFIG_START)):
        return SHORT
    if i32(known, _PLACE)[config] == HIDDEN:
        return STALE
    start, data = i32(words, _TOKEN_START), u8(words, _TOKEN_BYTES)
    if token < 0 or token + 1 >= len(start) or start[token] == start[token + 1]:
        specials = i32(known, _SPECIALS)
        for i in range(0, len(specials), 2):
            if specials[i] == token:
                config = stride(header, known, config, np.int64(specials[i + 1]))
                if config <= DEAD:
                    return REJECTED if config == DEAD else config
                return (epoch << 32) | config
        return REJECTED
    config = _after(header, known, config, data, start[token], start[token + 1])
    if config <= DEAD:
        return REJECTED if config == DEAD else config
    return (epoch << 32) | config


@inner
def _after(header, known, config, data, begin, end):  # type: ignore[no-untyped-def]
    """The configuration after `data[begin:end]`, `DEAD` or a negative code."""
    classes = i32(header, _CLASS_OF)
    frames = wide(0)
    for i in range(begin, end):
        if frames == 0:
            place = enter(header, known, config)
            if place < 0:
                return place
            if place <= SPLIT:
                config = stride(header, known, config, np.int64(classes[data[i]]))
                if config <= DEAD:
                    return config
                continue
            frames = wide(i32(header, _CONFIG_ITEMS)[i32(header, _CONFIG_START)[config] + 1])
            config = place - 1
        config = follow(header, known, config, np.int64(classes[data[i]]))
        if config <= DEAD:
            return config
        if config >= EXIT:
            state = config - FINAL if config >= FINAL else config - EXIT
            config = leave_at(address(header), address(known), state, frames)
            if config <= DEAD:
                return config
            frames = wide(0)
    if frames == 0:
        return config
    state, _ = pair_of(header, config, wide(0))
    return leave_at(address(header), address(known), state, frames)


@kernel
def only_byte(header, known, config, primary):  # type: ignore[no-untyped-def]
    """The single byte that may follow: byte + 1, 0 if there is a choice (or the text may end).

    primary: 1 to leave out edges that only another spelling takes.
    """
    if i32(header, _CONFIG_ACCEPTS)[config]:
        return 0
    start, items = i32(header, _CONFIG_START), i32(header, _CONFIG_ITEMS)
    edge_start, edge_class = i32(header, _EDGE_START), i32(header, _EDGE_CLASS)
    edge_primary, class_byte = i32(header, _EDGE_PRIMARY), i32(known, _CLASS_BYTE)
    found = 0
    for i in range(start[config], start[config + 1], 2):
        state = items[i]
        for e in range(edge_start[state], edge_start[state + 1]):
            byte = class_byte[edge_class[e]]
            if byte == NONE or found == byte + 1 or (primary and not edge_primary[e]):
                continue
            following = stride(header, known, config, np.int64(edge_class[e]))
            if following < 0:
                return following
            if following == DEAD:
                continue
            if byte == SEVERAL or found:
                return 0
            found = byte + 1
    return found


@kernel
def forced_bytes(header, known, config, primary, out):  # type: ignore[no-untyped-def]
    """Write the bytes that must follow to `out`. Returns how many, or a negative code."""
    classes = i32(header, _CLASS_OF)
    for i in range(len(out)):
        byte = only_byte(header, known, config, primary)
        if byte < 0:
            return byte
        if byte == 0:
            return i
        out[i] = byte - 1
        config = stride(header, known, config, np.int64(classes[byte - 1]))
        if config < 0:
            return config
    return len(out)
