"""Run-time memory of a pushdown automaton: growable arrays behind one header.

Kernels take a single argument, `header`: an int64 array that holds the address and length of
every array. Passing thirty arrays costs more than many kernels themselves; one array does not.
Arrays grow here, in Python: a kernel that runs out of room returns `GROW`, the owner calls
`Memory.grow` and repeats the call. Kernels are written so that a repeated call is harmless.

Invariants: arrays that kernels write are owned by `Memory` and never shared; `header` is
rewritten whenever an array moves. Storing an array in `_arrays` is what makes it the one: it is
complete before, and whoever is interrupted after it (Ctrl-C, a time limit that raises) calls
`restore` before the next kernel runs. Sibling: `pushdown`, whose kernels are the only readers.
"""

from __future__ import annotations

from enum import IntEnum
from functools import lru_cache
from struct import pack
from typing import Any

import numpy as np
from numba import carray, types
from numba.extending import intrinsic
from numpy.typing import NDArray

from structspec.automata.arena import Lease, zeros
from structspec.machine_code.kernel import kernel
from structspec.machine_code.pointers import pointer


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
    CALL_COST = 8
    OP_START = 9
    OP_KIND = 10
    OP_ARGUMENT = 11
    OP_FIRST = 12
    OP_SECOND = 13
    FINAL = 14
    KIND = 15
    DATA = 16
    RANK = 17
    BASE = 18
    LOOP_MIN = 19
    LOOP_MAX = 20
    LOOP_COPY = 21
    MEMBERS_START = 22
    MEMBERS_ANY = 23
    MEMBERS_SEPARATOR = 24
    REACH_START = 25
    REACH_MEMBER = 26
    REACH_COST = 27
    MEMBER_REQUIRED = 28
    MEMBER_REPEATABLE = 29
    MEMBER_VALUE = 30
    MEMBER_KEY = 31
    MEMBER_NEXT = 32
    MEMBER_REST = 33
    MEMBER_TOTAL = 34
    # interned objects (growable)
    FRAME_RETURN = 35
    FRAME_REGISTER = 36
    FRAME_PARENTS = 37
    FRAME_COST = 38
    FRAME_HASH = 39
    SET_START = 40
    SET_ITEMS = 41
    SET_HASH = 42
    CONFIG_START = 43
    CONFIG_ITEMS = 44
    CONFIG_ACCEPTS = 45
    CONFIG_COST = 46
    CONFIG_HASH = 47
    NEXT = 48
    BITS = 49
    BITS_HASH = 50
    # counters and scratch
    COUNT = 51
    QUEUE_STATE = 52
    QUEUE_SET = 53
    LIVE_STATE = 54
    LIVE_SET = 55
    LIVE_DONE = 56
    SCRATCH_A = 57
    SCRATCH_B = 58
    EDGE_PRIMARY = 59
    # more of the costs
    MEMBERS_MINIMUM = 60
    MEMBERS_MAXIMUM = 61
    MEMBERS_LEVELS = 62
    MEMBERS_REPEATABLE = 63
    MEMBER_ORDER = 64
    MEMBER_TABLE = 65
    CHARACTERS = 66


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
    WORK = 9


#: Kernel results below zero. PAUSE: nothing is wrong and what was found is kept, but so much was
#: done (`QUOTA` in the counter WORK, a tenth of a second) that the caller should look up.
GROW, OVERFLOW, PAUSE = -1, -2, -6
QUOTA = 1 << 22

# PERF: numba compiles a function once more for every type of its arguments, and every *literal* is
# a type; `int` leaves an int32 as it is. So slots and small numbers that are passed on are numpy
# scalars, and what is read from an array is widened before it is passed on.
ZERO: Any = np.int64(0)
ONE: Any = np.int64(1)
MINUS_ONE: Any = np.int64(-1)
#: The decorator of functions that only kernels call: without the wrappers that Python would need.
inner: Any = kernel(no_cpython_wrapper=True, no_cfunc_wrapper=True)
#: int64 of a number of any integer type.
wide: Any = np.int64


def slot(number: int) -> Any:
    """A slot as kernels want it: a constant, but no literal."""
    return np.int64(number)


@intrinsic
def _pointer_i32(typingctx, address):  # type: ignore[no-untyped-def]
    return pointer(types.int32)


@intrinsic
def _pointer_u8(typingctx, address):  # type: ignore[no-untyped-def]
    return pointer(types.uint8)


@intrinsic
def _pointer_u32(typingctx, address):  # type: ignore[no-untyped-def]
    return pointer(types.uint32)


def _load(element: Any, name: str) -> Any:
    """A load of element `index` behind an address, as int64: no array, no look at the index."""

    def typed(typingctx, address, index):  # type: ignore[no-untyped-def]
        def codegen(context, builder, sig, args):  # type: ignore[no-untyped-def]
            pointer = builder.inttoptr(args[0], context.get_value_type(types.CPointer(element)))
            value = builder.load(builder.gep(pointer, [args[1]]))
            return context.cast(builder, value, element, types.int64)

        return types.int64(types.int64, types.int64), codegen

    typed.__name__ = typed.__qualname__ = name
    return intrinsic(typed)


#: For the innermost loops: what lies at an address (`base`) plus an index. The kernel must know
#: that the index is in range.
at_i32: Any = _load(types.int32, "at_i32")
at_u8: Any = _load(types.uint8, "at_u8")
at_i64: Any = _load(types.int64, "at_i64")


@inner
def base(header, slot):  # type: ignore[no-untyped-def]
    """The address of the array in a slot."""
    return header[2 * slot]


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


@lru_cache(maxsize=64)
def _places(slots: tuple[int, ...]) -> NDArray[np.int64]:
    """The positions of these slots in a header."""
    return np.array([(2 * slot, 2 * slot + 1) for slot in slots], np.int64).ravel()


class Memory:
    """Arrays behind one header, which may be passed to kernels at any time.

    slots: how many arrays there may be; by default those of `Slot`. Some are *reserved* (`arena`):
    how much of them is used follows from `counters`, numbers of entries that kernels keep.
    """

    counters: NDArray[np.int32] | None = None

    def __init__(self, slots: int = len(Slot)) -> None:
        self._arrays: dict[int, NDArray[Any]] = {}
        self._leases: dict[int, tuple[Lease, int]] = {}  # and the first element in the block
        self._spans: dict[int, tuple[int, int]] = {}  # position in `counters`, elements of an entry
        self.header: NDArray[np.int64] = np.zeros(2 * slots, np.int64)

    def put(self, slot: int, array: NDArray[Any]) -> None:
        """Store an array (made contiguous) in a slot."""
        array = np.ascontiguousarray(array)
        self._arrays[slot] = array
        self.header[2 * slot] = array.__array_interface__["data"][0]  # much faster than .ctypes
        self.header[2 * slot + 1] = array.size

    def put_all(self, arrays: dict[Any, NDArray[Any]]) -> None:
        """Copy arrays, as int32, into slots: one block of memory and one look at its address."""
        sizes = [array.size for array in arrays.values()]
        block = np.empty(sum(sizes), np.int32)
        flat = [a if a.ndim == 1 else a.ravel() for a in arrays.values()]
        np.concatenate(flat, out=block, casting="unsafe")
        self._share(block, list(arrays), sizes)

    def put_zeros(self, sizes: dict[Any, int]) -> None:
        """Fill slots with zeros (int32), so many elements each, out of one block of memory."""
        self._share(np.zeros(sum(sizes.values()), np.int32), list(sizes), list(sizes.values()))

    def put_scratch(self, sizes: dict[Any, int]) -> None:
        """The same for slots that nobody reads before writing: they may hold anything at first."""
        self._share(np.empty(sum(sizes.values()), np.int32), list(sizes), list(sizes.values()))

    def _share(self, block: NDArray[np.int32], slots: list[int], sizes: list[int]) -> None:
        address = block.__array_interface__["data"][0]
        held, first = self._arrays, 0
        numbers: list[int] = []
        for slot, size in zip(slots, sizes, strict=True):
            numbers += (address + 4 * first, size)
            held[slot] = block[first : first + size]
            first += size
        packed = pack(f"{len(numbers)}q", *numbers)
        self.header[_places(tuple(slots))] = np.frombuffer(packed, np.int64)

    def get(self, slot: int) -> NDArray[Any]:
        """The array in a slot."""
        return self._arrays[slot]

    def __contains__(self, slot: int) -> bool:
        return slot in self._arrays

    def enlarge(self, slot: int, size: int) -> None:
        """Give the array in a slot at least `size` elements, new ones zero."""
        old = self._arrays[slot]
        if old.size >= size:
            return
        if slot in self._spans:
            self.reserve(slot, size, *self._spans[slot], old.dtype, old[: self._used(slot)])
        else:
            new = np.zeros(size, old.dtype)
            new[: old.size] = old
            self.put(slot, new)

    def restore(self) -> None:
        """Make the header name the arrays again, after something was interrupted."""
        for slot, array in self._arrays.items():
            self.header[2 * slot] = array.__array_interface__["data"][0]
            self.header[2 * slot + 1] = array.size

    def reserve(
        self,
        slot: int,
        size: int,
        counter: int,
        width: int,
        dtype: Any = np.int32,
        content: NDArray[Any] | None = None,
    ) -> None:
        """Put zeros in a slot, of which the first `counters[counter]` times `width` are in use.

        content: what the array begins with.
        """
        self.reserve_all([(slot, size, counter, width, dtype)], content)

    def reserve_all(
        self, tables: list[tuple[int, int, int, int, Any]], content: NDArray[Any] | None = None
    ) -> None:
        """The same for several (slot, size, counter, width, dtype), out of one block.

        Those whose size differs from one use to the next belong at the end: the others then lie on
        the same pages of a block that is used again.
        """
        array, lease = zeros(sum([table[1] for table in tables]))
        address, first = array.__array_interface__["data"][0], 0
        header, arrays = self.header, self._arrays
        for slot, size, counter, width, dtype in tables:
            if lease is not None:
                lease.parts += 1  # a lease that is not told what was used takes it for all
            part = array[first : first + size]
            if dtype is not np.int32:
                part = part.view(dtype)
            if content is not None:
                part[: content.size] = content
            old, used = self._leases.get(slot), self._used(slot) if slot in self._spans else 0
            arrays[slot] = part
            header[2 * slot] = address + 4 * first
            header[2 * slot + 1] = size
            self._spans[slot] = counter, width
            if lease is None:
                self._leases.pop(slot, None)
            else:
                self._leases[slot] = lease, first
            if old is not None:
                old[0].part_used(old[1], old[1] + used)
            first += size

    def _used(self, slot: int) -> int:
        """How many elements of a reserved array may have been written."""
        counter, width = self._spans[slot]
        size = self._arrays[slot].size
        if self.counters is None:
            return size
        # One entry more: lists of ranges have an end, and kernels prepare the next entry.
        return min(size, (int(self.counters[counter]) + 2) * width)

    def _give_back(self, slot: int) -> None:
        found = self._leases.pop(slot, None)
        if found is not None:
            lease, first = found
            lease.part_used(first, first + self._used(slot))

    def __del__(self) -> None:
        for slot in list(self._leases):
            self._give_back(slot)

    @property
    def n_bytes(self) -> int:
        """Bytes in use."""
        return sum(
            self._used(slot) * array.itemsize if slot in self._spans else array.nbytes
            for slot, array in self._arrays.items()
        )

    @property
    def n_reserved(self) -> int:
        """Bytes of addresses; those that are not in use cost nothing."""
        return sum(array.nbytes for array in self._arrays.values())
