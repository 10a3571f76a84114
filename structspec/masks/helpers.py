"""Rows of one call on several threads: caches that compute beside a constraint's own.

Kernels write to the cache they run on, so threads cannot share one. A *helper* is a cache of its
own of the same constraint; configurations are copied to it, rows come back and are kept as if the
first cache had computed them. Equal rows follow from equal configurations, so answers do not depend
on the number of threads. Helpers learn and stay, with the memory that this takes.

Thread safety: helpers belong to a cache and are used under its lock, each by one thread at a time.
Where members come in any order the sets of members that were written have numbers of their own in
each cache; rows are then computed on one thread.

Cost: some 30 µs for each configuration that a helper has not seen, some 10 µs for each row that
comes back, and a helper learns anew what the first cache knows; kernels run without Python's lock.
Worth it for rows that cost much more, so the first rows of a call are computed here and timed
before anybody is asked. See `settings.set_threads`, and docs/masks.md for figures.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np
from numpy.typing import NDArray

from structspec.automata.memory import Count, Slot
from structspec.errors import BudgetExceeded
from structspec.locks import lock
from structspec.masks.cache import END, TRACKED, Cache, Copier
from structspec.masks.fill import fill_states
from structspec.masks.pool import keep_row

__all__ = ["FEWEST", "keep_rows"]

#: Missing rows for which other threads are asked.
FEWEST = 8
# So many of them are timed first, and others are asked if one took this long, in seconds.
_TIMED = 3
_WORTH = 0.0003

_lock = lock()
_pools: dict[int, ThreadPoolExecutor] = {}


def keep_rows(
    cache: Cache, states: Sequence[int], words: int, threads: int, fresh: Callable[[], Cache]
) -> None:
    """Compute the rows that some states of a cache do not have, and keep them; hold its lock.

    words: of a row. fresh: makes a helper. Leaves to the caller what cannot be computed here.
    """
    wanted = _missing(cache, states)
    if len(wanted) < FEWEST or cache.automaton.memory.get(Slot.COUNT)[Count.BITS] > 1:
        return
    began = time.perf_counter()
    _compute(cache, np.array(wanted[:_TIMED], np.int64), words)
    if time.perf_counter() - began < _TIMED * _WORTH:
        return
    wanted = wanted[_TIMED:]
    while len(cache.helpers) < threads - 1:
        helper = fresh()
        cache.helpers.append((helper, Copier(cache.automaton, helper.automaton)))
    helpers = cache.helpers[: threads - 1]
    shares = [wanted[i::threads] for i in range(threads)]
    running: list[tuple[list[int], Future[tuple[NDArray[np.uint32], list[int]]]]] = []
    try:
        for share, (helper, copier) in zip(shares[1:], helpers, strict=True):
            copies = np.array([copier.configuration(c) for c in share], np.int64)
            running.append((share, _pool(threads - 1).submit(_compute, helper, copies, words)))
        _compute(cache, np.array(shares[0], np.int64), words)
        for share, future in running:
            rows, worst = future.result()
            for config, row, cost in zip(share, rows, worst, strict=True):
                cache.free_row()[:] = row
                cache.run(keep_row, cache.header, cache.known, config, cost)
    except BaseException as error:
        # A helper that is let go may still be at work, on memory of its own; nobody asks it again.
        cache.helpers.clear()
        if not isinstance(error, BudgetExceeded):
            raise


def _missing(cache: Cache, states: Sequence[int]) -> list[int]:
    """The configurations of states without a row, each once; stale states are left out."""
    found: dict[int, None] = {}
    for state in states:
        if state != END and state < TRACKED and cache.is_current(state):
            configuration = cache.configuration(state)
            if not cache.has_row(configuration):
                found[configuration] = None
    return list(found)


def _compute(
    cache: Cache, configurations: NDArray[np.int64], words: int
) -> tuple[NDArray[np.uint32], list[int]]:
    """The rows of configurations and their largest costs, on the thread that calls."""
    rows = np.empty((len(configurations), words), np.uint32)
    states = np.array([cache.state(int(c)) for c in configurations], np.int64)
    cache.done = 0
    cache.run(fill_states, cache.header, cache.known, cache.words, states, cache.epoch, rows)
    return rows, [cache.worst(int(c)) for c in configurations]


def _pool(threads: int) -> ThreadPoolExecutor:
    with _lock:
        pool = _pools.get(threads)
        if pool is None:
            pool = ThreadPoolExecutor(threads, thread_name_prefix="structspec-rows")
            _pools[threads] = pool
        return pool


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pools.clear)  # its threads stay in the parent
