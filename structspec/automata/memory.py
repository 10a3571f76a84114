"""Run-time memory of a pushdown automaton: growable arrays behind one header.

Kernels take a single argument, `header`: an int64 array that holds the address and length of
every array. Passing thirty arrays costs more than many kernels themselves; one array does not.
Arrays grow here, in Python: a kernel that runs out of room returns `GROW`, the owner calls
`Memory.grow` and repeats the call. Kernels are written so that a repeated call is harmless.

Invariants: arrays that kernels write are owned by `Memory` and never shared; `header` is
rewritten whenever an array moves. Sibling: `pushdown`, whose kernels are the only readers.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any

import numpy as np
from numba import carray, njit, types
from numba.extending import intrinsic
from numpy.typing import NDArray


class Slot(IntEnum):
    """Positions of the arrays in the header (address at 2·slot, length at 2·slot + 1)."""

    # the network and its costs (read only)
    CLASS_OF = 0
    EDGE_START = 1
    EDGE_CLASS = 2
    EDGE_TARGET = 3
    CALL_START = 4
    CALL_ENTRY = 5
    CALL_TARGET = 6
    CALL_TAIL = 7
    CALL_REGISTER = 8
    CALL_COST = 9
    OP_START = 10
    OP_KIND = 11
    OP_ARGUMENT = 12
    OP_FIRST = 13
    OP_SECOND = 14
    FINAL = 15
    KIND = 16
    DATA = 17
    RANK = 18
    BASE = 19
    LOOP_MIN = 20
    LOOP_MAX = 21
    LOOP_COPY = 22
    MEMBERS_START = 23
    MEMBERS_ANY = 24
    MEMBERS_SEPARATOR = 25
    REACH_START = 26
    REACH_MEMBER = 27
    REACH_COST = 28
    MEMBER_REQUIRED = 29
    MEMBER_REPEATABLE = 30
    MEMBER_VALUE = 31
    MEMBER_KEY = 32
    MEMBER_NEXT = 33
    MEMBER_REST = 34
    MEMBER_TOTAL = 35
    # interned objects (growable)
    FRAME_RETURN = 36
    FRAME_REGISTER = 37
    FRAME_PARENTS = 38
    FRAME_COST = 39
    FRAME_HASH = 40
    SET_START = 41
    SET_ITEMS = 42
    SET_HASH = 43
    CONFIG_START = 44
    CONFIG_ITEMS = 45
    CONFIG_ACCEPTS = 46
    CONFIG_COST = 47
    CONFIG_HASH = 48
    NEXT = 49
    BITS = 50
    BITS_HASH = 51
    # counters and scratch
    COUNT = 52
    QUEUE_STATE = 53
    QUEUE_SET = 54
    LIVE_STATE = 55
    LIVE_SET = 56
    LIVE_DONE = 57
    SCRATCH_A = 58
    SCRATCH_B = 59
    EDGE_PRIMARY = 60
    CONFIG_UNIFORM = 61
    # the vocabulary (read only; filled in by masks)
    TRIE_BYTE = 62
    TRIE_SKIP = 63
    TRIE_DEPTH = 64
    TRIE_OFFSET = 65
    TRIE_IDS = 66
    REST_BYTE = 67
    REST_SKIP = 68
    REST_DEPTH = 69
    REST_OFFSET = 70
    REST_IDS = 71
    PLAIN_UPTO = 72
    TOKEN_START = 73
    TOKEN_BYTES = 74
    PROBES = 75
    CLASS_BYTE = 76
    STACK = 77
    # more of the costs
    MEMBERS_MINIMUM = 78
    MEMBERS_MAXIMUM = 79
    MEMBERS_LEVELS = 80
    MEMBERS_REPEATABLE = 81
    MEMBER_ORDER = 82
    MEMBER_TABLE = 83
    SPECIALS = 84


class Count(IntEnum):
    """Positions in the array of counters."""

    FRAMES = 0
    SETS = 1
    SET_ITEMS = 2
    CONFIGS = 3
    CONFIG_ITEMS = 4
    BITS = 5
    BITS_WORDS = 6
    CLASSES = 7
    STEPS = 8


#: Kernel results below zero.
GROW, OVERFLOW = -1, -2

# PERF: numba compiles a function once more for every type of its arguments, and every *literal* is
# a type; `int` leaves an int32 as it is. So slots and small numbers that are passed on are numpy
# scalars, and what is read from an array is widened before it is passed on.
ZERO: Any = np.int64(0)
ONE: Any = np.int64(1)
MINUS_ONE: Any = np.int64(-1)
#: The decorator of functions that only kernels call: without the wrappers that Python would need.
_jit: Any = njit
inner: Any = _jit(cache=True, no_cpython_wrapper=True, no_cfunc_wrapper=True)
#: int64 of a number of any integer type.
wide: Any = np.int64


def slot(number: Slot) -> Any:
    """A slot as kernels want it: a constant, but no literal."""
    return np.int64(number)


@intrinsic
def _pointer_i32(typingctx, address):  # type: ignore[no-untyped-def]
    return _pointer(types.int32)


@intrinsic
def _pointer_u8(typingctx, address):  # type: ignore[no-untyped-def]
    return _pointer(types.uint8)


@intrinsic
def _pointer_u32(typingctx, address):  # type: ignore[no-untyped-def]
    return _pointer(types.uint32)


def _pointer(element: Any) -> Any:
    signature = types.CPointer(element)(types.int64)

    def codegen(context, builder, sig, args):  # type: ignore[no-untyped-def]
        return builder.inttoptr(args[0], context.get_value_type(sig.return_type))

    return signature, codegen


@inner
def i32(header, slot):  # type: ignore[no-untyped-def]
    """The int32 array in a slot."""
    return carray(_pointer_i32(header[2 * slot]), (header[2 * slot + 1],))  # type: ignore[call-arg]


@inner
def u8(header, slot):  # type: ignore[no-untyped-def]
    """The uint8 array in a slot."""
    return carray(_pointer_u8(header[2 * slot]), (header[2 * slot + 1],))  # type: ignore[call-arg]


@inner
def u32(header, slot):  # type: ignore[no-untyped-def]
    """The uint32 array in a slot."""
    return carray(_pointer_u32(header[2 * slot]), (header[2 * slot + 1],))  # type: ignore[call-arg]


class Memory:
    """The arrays and the header. `header` may be passed to kernels at any time."""

    def __init__(self) -> None:
        self._arrays: dict[Slot, NDArray[Any]] = {}
        self.header: NDArray[np.int64] = np.zeros(2 * (max(Slot) + 1), np.int64)

    def put(self, slot: Slot, array: NDArray[Any]) -> None:
        """Store an array (made contiguous) in a slot."""
        array = np.ascontiguousarray(array)
        self._arrays[slot] = array
        self.header[2 * slot] = array.__array_interface__["data"][0]  # much faster than .ctypes
        self.header[2 * slot + 1] = array.size

    def get(self, slot: Slot) -> NDArray[Any]:
        """The array in a slot."""
        return self._arrays[slot]

    def __contains__(self, slot: Slot) -> bool:
        return slot in self._arrays

    def enlarge(self, slot: Slot, size: int) -> None:
        """Give the array in a slot at least `size` elements, new ones zero."""
        old = self._arrays[slot]
        if old.size < size:
            new = np.zeros(size, old.dtype)
            new[: old.size] = old
            self.put(slot, new)

    @property
    def n_bytes(self) -> int:
        """Bytes held by all arrays (reserved; untouched pages cost nothing)."""
        return sum(array.nbytes for array in self._arrays.values())
