"""Blocks of memory that are used again, and the tables that share one."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from structspec.automata.arena import zeros
from structspec.automata.memory import Count, Memory, Slot
from structspec.bench.soak import resident

_SIZE = 1 << 17
_TABLES = [
    (Slot.CONFIG_COST, _SIZE, Count.CONFIGS, 1, np.int32),
    (Slot.BITS, 4 * _SIZE, Count.FRAMES, 4, np.uint32),
    (Slot.NEXT, 3 * _SIZE, Count.CONFIGS, 3, np.int32),
]


def _used() -> Memory:
    """Memory with three tables, everything written that the counters allow."""
    memory = Memory()
    memory.reserve_all(_TABLES)
    memory.counters = np.zeros(len(Count), np.int32)
    memory.counters[Count.CONFIGS], memory.counters[Count.FRAMES] = 1000, 70
    for slot, _, counter, width, _ in _TABLES:
        memory.get(slot)[: (memory.counters[counter] + 2) * width] = 7
    return memory


def test_tables_of_one_block_lie_behind_each_other_and_are_zero_when_it_is_used_again() -> None:
    memory = _used()
    places = [int(memory.header[2 * slot]) for slot, *_ in _TABLES]
    assert places[1] == places[0] + 4 * _SIZE and places[2] == places[1] + 16 * _SIZE
    for slot, size, *_, dtype in _TABLES:
        assert memory.get(slot).dtype == dtype and memory.header[2 * slot + 1] == size
        assert memory.get(slot).__array_interface__["data"][0] == memory.header[2 * slot]
    del memory
    again = Memory()
    again.reserve_all(_TABLES)
    assert [int(again.header[2 * slot]) for slot, *_ in _TABLES] == places  # the same block
    assert not any(again.get(slot).any() for slot, *_ in _TABLES)


def test_a_table_that_grows_out_of_its_block_keeps_its_content_and_leaves_the_others() -> None:
    memory = _used()
    place = int(memory.header[2 * Slot.NEXT])
    memory.enlarge(Slot.BITS, 8 * _SIZE)
    assert memory.get(Slot.BITS).size == 8 * _SIZE and memory.get(Slot.BITS).dtype == np.uint32
    assert np.count_nonzero(memory.get(Slot.BITS)) == 72 * 4
    assert int(memory.header[2 * Slot.NEXT]) == place
    del memory
    again = Memory()
    again.reserve_all(_TABLES)
    assert not any(again.get(slot).any() for slot, *_ in _TABLES)


def test_what_outlives_its_memory_keeps_the_block_from_being_used_again() -> None:
    memory = _used()
    kept = memory.get(Slot.CONFIG_COST)[:10]
    del memory
    again = Memory()
    again.reserve_all(_TABLES)
    again.get(Slot.CONFIG_COST)[:10] = 1
    assert (kept == 7).all()


@given(st.lists(st.tuples(st.integers(0, _SIZE - 1), st.integers(1, _SIZE)), max_size=4))
@settings(max_examples=40, deadline=None)
def test_a_block_is_zero_whatever_was_written_before(ranges: list[tuple[int, int]]) -> None:
    array, lease = zeros(8 * _SIZE)
    assert lease is not None and not array.any()
    lease.used = [(8 * first, min(8 * (first + size), len(array))) for first, size in ranges]
    for first, end in lease.used:
        array[first:end] = -1
    del array, lease
    again, _ = zeros(8 * _SIZE)
    assert not again.any()


@pytest.mark.skipif(sys.platform != "linux", reason="pages are given back on Linux only")
def test_a_cache_that_needs_little_does_not_hold_the_pages_of_one_that_needed_much() -> None:
    size = 2 << 20  # elements, 8 MiB: four blocks fit what may wait
    before = resident()
    held = [zeros(size) for _ in range(4)]
    for array, lease in held:
        assert lease is not None
        array[:] = 1
        lease.used = [(0, size)]
    assert resident() - before > 24
    del array, lease
    held.clear()
    held = [zeros(size) for _ in range(4)]
    for array, _ in held:
        assert not array[:10].any()
    assert resident() - before < 8
