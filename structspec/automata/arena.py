"""Blocks of zeroed memory that are used again: what grows with a text must not wait for pages.

The tables of a cache grow while masks are made. Memory fresh from the operating system costs a
page fault per 4 KiB at first use (more than a step of the automaton), or one for a whole huge page,
which takes milliseconds in a virtual machine; and growing by copying touches everything again. So
large tables are *reserved*: far more addresses than most grammars need, which cost nothing until
they are used, and blocks come back when their last array is gone, are zeroed where they were
written, and serve the next cache.

Invariants: no block serves two leases at once; what `lease` returns is zero (unless `clean` is
False); no more than `KEPT` bytes of written memory wait for their next use. Cost: a lease is a list
operation; giving back writes zeros over what was used.

Sibling: `memory`, which puts arrays behind headers.

    >>> array, lease = zeros(1 << 17)
    >>> array[:3] = 7
    >>> lease.used = [(0, 3)]
    >>> del array, lease
    >>> int(zeros(1 << 17)[0].max())
    0
"""

from __future__ import annotations

import ctypes
import mmap
import sys
from collections import defaultdict
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["KEPT", "Lease", "give_back", "zeros"]

#: Bytes of written memory that may wait for use.
KEPT = 48 << 20
#: The pages of a block with more written memory than this go back to the operating system: the next
#: cache may need few of them, and would hold them without counting them.
_LARGEST = 1 << 20
_SMALLEST = 1 << 16

_ADVICE = getattr(mmap, "MADV_NOHUGEPAGE", None)
# Only Linux promises that such pages are zero when they are touched again.
_GIVE_BACK = getattr(mmap, "MADV_DONTNEED", None) if sys.platform == "linux" else None


@dataclass(slots=True)
class _Block:
    """Addresses of the operating system. written: bytes that have been used at some time."""

    memory: mmap.mmap
    address: int
    size: int
    written: int = 0


# Blocks that wait, by size and whether they are zero. Lists, because their append and pop are
# atomic: leases end at any moment, also within these functions.
_waiting: dict[tuple[int, bool], list[_Block]] = defaultdict(list)
_kept = [0]


class Lease:
    """The owner of a block as long as some array refers to it.

    used: (first, end) element positions (int32) that may have been written; None: all.
    parts: how many arrays share the block and have not said yet what was used of them.
    """

    __slots__ = ("__array_interface__", "__weakref__", "_block", "_clean", "parts", "used")

    def __init__(self, block: _Block, elements: int, clean: bool) -> None:
        self._block = block
        self._clean = clean
        self.used: list[tuple[int, int]] | None = None
        self.parts = 0
        self.__array_interface__ = {
            "version": 3, "typestr": "<i4", "shape": (elements,), "data": (block.address, False),
        }  # fmt: skip

    def part_used(self, first: int, end: int) -> None:
        """One of the `parts` is done with; these elements of the block may have been written."""
        if self.used is None:
            self.used = []
        self.used.append((first, end))
        self.parts -= 1  # last: where this is interrupted, all of the block counts as used

    def __del__(self) -> None:
        if sys is None or sys.is_finalizing():
            return
        block, used = self._block, self.used
        if used is None or self.parts:
            used = [(0, block.size // 4)]
        written = max(block.written, sum(end - first for first, end in used) * 4)
        if written > _LARGEST:
            if _GIVE_BACK is None:
                return
            block.memory.madvise(_GIVE_BACK)
            written = 0
        elif _kept[0] + written > KEPT:
            return
        elif self._clean:
            array = np.frombuffer(block.memory, np.int32)
            for first, end in used:
                array[first:end] = 0
        block.written = written
        _kept[0] += written
        _waiting[block.size, self._clean].append(block)


def zeros(elements: int, *, clean: bool = True) -> tuple[NDArray[np.int32], Lease | None]:
    """An int32 array of zeros, and its lease to say what was used of it; None if it is small.

    clean: False if the array may hold anything.
    """
    if 4 * elements < _SMALLEST:
        return np.zeros(elements, np.int32), None
    size = 1 << (4 * elements - 1).bit_length()
    try:
        block = _waiting[size, clean].pop()
        _kept[0] -= block.written
    except IndexError:
        made = _reserve(size)
        if made is None:
            return np.zeros(elements, np.int32), None
        block = made
    lease = Lease(block, elements, clean)
    return np.asarray(lease), lease


def give_back() -> None:
    """Have the C allocator return what it keeps of freed memory, where it can (glibc).

    It keeps it for each thread apart, so where several compile, as much waits as is in use.
    """
    if _TRIM is not None:
        _TRIM(0)


def _trim() -> Any:
    try:
        return ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError, TypeError):
        return None


_TRIM = _trim()


def _reserve(size: int) -> _Block | None:
    try:
        memory = mmap.mmap(-1, size, **_PRIVATE)
        if _ADVICE is not None:
            memory.madvise(_ADVICE)
    except (OSError, ValueError):  # the process's addresses are limited
        return None
    address = np.frombuffer(memory, np.uint8).__array_interface__["data"][0]
    return _Block(memory, address, size)


_PRIVATE: dict[str, Any] = (
    {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS} if hasattr(mmap, "MAP_PRIVATE") else {}
)
