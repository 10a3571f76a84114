"""Before the first kernel of a process runs: is the machine code there?

`ensure` costs nothing once it has been called, and a look at a file the first time, if everything
is on disk. If most of it is missing, it is made by several processes at once and a message on the
logger `structspec` says so; other processes that need it wait for them. Nothing is started if the
folder cannot be written, if there is one core, or if `STRUCTSPEC_COMPILE_PROCESSES=1` or
`structspec.set_compile_processes(1)` say so: kernels are then compiled here, when they are called.

Thread safety: other threads wait in `ensure` until the first one is through.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable

from structspec import settings

__all__ = ["compile_missing", "ensure", "skip"]

# Seconds of compiling that are worth other processes, and worth a message.
_WORTH = 10.0
_lock = threading.RLock()
_asked: list[bool] = []
_busy: list[bool] = []


def ensure() -> None:
    """Have missing machine code made, at the first call of a process."""
    if _asked:
        return
    with _lock:
        if _asked:
            return
        _asked.append(True)  # whatever comes: what is still missing is compiled when it is called
        _busy.append(True)
        try:
            _make(_log, worth=_WORTH)
        except BaseException:  # interrupted: the next call asks again
            _asked.clear()
            raise
        finally:
            _busy.clear()


def skip() -> None:
    """Compile in this process whatever is called."""
    _asked.append(True)


def compile_missing(say: Callable[[str], object], processes: int | None = None) -> int:
    """Make all missing machine code now; returns how many kernels that were.

    processes: None for `settings.compile_processes()`. `say` gets messages.
    """
    with _lock:
        skip()
        return _make(say, worth=0.0, processes=processes)


def _in_child() -> None:
    """In a forked process: whoever was making machine code is not here (and held the lock for
    longer than a fork may wait).
    """
    global _lock
    _lock = threading.RLock()
    if _busy:
        _busy.clear()
        _asked.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)


def _log(message: str) -> None:
    logging.getLogger("structspec").warning(message)


def _make(say: Callable[[str], object], worth: float, processes: int | None = None) -> int:
    from structspec.machine_code import catalogue, crew, linking, places, sources
    from structspec.machine_code.folder import Folder

    if any(folder.stamped() for folder in Folder.candidates()):
        return 0
    entries = catalogue.read()
    missing = catalogue.missing(entries)
    seconds = sum(entry.seconds for entry in missing)
    kept = sources.digest_of_engine() is not None
    folder = Folder.find() if kept else None
    if seconds < worth or not missing:
        if folder is not None:
            folder.write_stamp()  # no need to look again
        return 0
    if folder is None:
        why = None if kept else "this program does not hold their sources"
        places.say_that_nothing_is_kept(linking.__file__, why)
        return 0
    processes = settings.compile_processes() if processes is None else processes
    if processes < 2 or not crew.can_start():
        say(
            f"compiling structspec's kernels for this machine when they are first called; this "
            f"happens once and takes about {seconds:.0f} s ('structspec warmup' does it ahead of "
            "time)"
        )
        return 0
    with folder.locked(lambda: say("waiting: another process compiles structspec's kernels")) as ok:
        if not ok:
            return 0
        missing = catalogue.missing(entries)  # others may have made them
        if missing:
            processes = min(processes, len(missing))
            say(
                f"compiling {len(missing)} kernels of structspec for this machine in {processes} "
                f"processes; this happens once and takes about {seconds / processes:.0f} s "
                f"('structspec warmup' does it ahead of time, {settings.PROCESSES_VARIABLE}=1 "
                "starts no processes)"
            )
            began = time.perf_counter()
            work = crew.Crew(missing, processes)
            work.run()
            passed = time.perf_counter() - began
            left = len(work.unmade)
            rest = f"; {left} are left, as processes ended or did not start" if left else ""
            say(f"{work.done} kernels of structspec compiled in {passed:.0f} s{rest}")
            for kernel, error in work.failed.items():
                logging.getLogger("structspec").debug("%s: %s", kernel, error)
            # The next process that starts makes the rest; without any progress they are left to
            # whoever calls them, or every process would try in vain.
            if left and work.done:
                return work.done
        folder.write_stamp()
    return len(missing)
