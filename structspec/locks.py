"""Locks that a fork does not leave locked.

A forked process has one thread: a lock that another thread held stays locked in it for ever, and
what that thread was about to write stays half written. So a fork waits until it holds all locks
made here (a few milliseconds: none is held while a grammar is compiled), and both processes let
them go. Servers that fork workers after they have compiled, `multiprocessing` and data loaders need
nothing else.

Cost: a microsecond for each lock, when it is made and when the process forks.

    >>> with rlock():
    ...     pass
"""

from __future__ import annotations

import logging
import os
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any

__all__ = ["in_child", "lock", "rlock", "watch"]

#: Seconds after which a fork goes on without a lock.
_PATIENCE = 30.0
_PAUSE = 0.05
_known: dict[int, weakref.ref[Any]] = {}
_resets: dict[int, weakref.WeakMethod[Any]] = {}
_held: list[Any] = []


def lock() -> threading.Lock:
    """A `threading.Lock`."""
    return watch(threading.Lock())


def rlock() -> Any:
    """A `threading.RLock`."""
    return watch(threading.RLock())


def watch(made: Any) -> Any:
    """Have forks wait for a lock that is there already; returns it."""
    number = id(made)
    _known[number] = weakref.ref(made, lambda _: _known.pop(number, None))
    return made


def in_child(reset: Callable[[], None]) -> None:
    """Call a method in forked processes, as long as its object lives."""
    number = id(reset.__self__)  # type: ignore[attr-defined]
    _resets[number] = weakref.WeakMethod(reset, lambda _: _resets.pop(number, None))


def _before_fork() -> None:
    end = time.monotonic() + _PATIENCE
    while True:
        # One at a time and none for long, so that the order of locks does not matter.
        busy = None
        for known in list(_known.values()):
            each = known()
            if each is None:
                continue
            if not each.acquire(blocking=False):
                busy = each
                break
            _held.append(each)
        if busy is None:
            return
        _let_go()
        if time.monotonic() > end:
            logging.getLogger("structspec").warning(
                "forked while another thread was at work for %.0f s; the new process may hang "
                "where it needs what that thread held",
                _PATIENCE,
            )
            return
        if busy.acquire(timeout=_PAUSE):
            busy.release()


def _let_go() -> None:
    while _held:
        _held.pop().release()


def _in_child() -> None:
    _let_go()
    for known in list(_resets.values()):
        reset = known()
        if reset is not None:
            reset()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_let_go, after_in_child=_in_child)
