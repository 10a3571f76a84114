"""Where the machine code lies: whether all of it is there, and who may make it.

A *stamp*, an empty file beside the machine code, says that everything in the catalogue was made
from these sources, for this processor and these versions. It ends like the others (`.nbc`), so that
whoever deletes those deletes it too.

The *lock* is held by the one process that has machine code made. It is the system's lock on a file
(`flock`, on Windows `locking`), so it ends with the process that holds it, however that ends.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

import llvmlite
import numba
from llvmlite import binding
from numba.core import config

from structspec.machine_code import linking, places, sources
from structspec.machine_code.store import ENDING, tag

__all__ = ["Folder"]

_WAIT = 0.2


class Folder:
    """The folder of the kernels' machine code; `path` is the one where `linking` is kept."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def candidates(cls) -> list[Folder]:
        """Where machine code may lie, in the order of looking."""
        return [cls(path) for path in places.folders(linking.__file__)]

    @classmethod
    def find(cls) -> Folder | None:
        """The folder to write to, None if there is none."""
        path = places.writable(linking.__file__)
        return None if path is None else cls(path)

    @property
    def stamp(self) -> Path:
        """The file that says that everything is there."""
        return self.path / f"kernels-{_state()}.{tag()}{ENDING}"

    def stamped(self) -> bool:
        """Whether everything is there."""
        return self.stamp.exists()

    def write_stamp(self) -> None:
        """Say that everything is there; older stamps go. Does nothing if that cannot be written."""
        with contextlib.suppress(OSError):
            self.path.mkdir(parents=True, exist_ok=True)
            stamp = self.stamp
            for old in self.path.glob(f"kernels-*.{tag()}{ENDING}"):
                if old != stamp:
                    old.unlink(missing_ok=True)
            stamp.touch()

    @contextlib.contextmanager
    def locked(self, on_wait: Callable[[], object]) -> Iterator[bool]:
        """Hold the lock, after waiting for whoever holds it; False if there can be none."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            file = open(self.path / "kernels.lock", "a+b")  # noqa: SIM115
        except OSError:
            yield False
            return
        with file:
            _open.add(file)
            try:
                yield _acquire(file, on_wait)
            finally:
                _open.discard(file)
                _release(file)  # not by closing: forks of this process may hold the file open


_open: set[IO[Any]] = set()


def _close_in_child() -> None:
    while _open:
        _open.pop().close()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_close_in_child)


def _release(file: IO[Any]) -> None:
    with contextlib.suppress(OSError, ValueError):
        if sys.platform == "win32":
            import msvcrt

            file.seek(0)
            msvcrt.locking(file.fileno(), msvcrt.LK_UNLCK, 1)
        else:
            import fcntl

            fcntl.flock(file, fcntl.LOCK_UN)


def _acquire(file: IO[Any], on_wait: Callable[[], object]) -> bool:
    """Wait for the lock of an open file; False if the file system has none."""
    waiting = False
    while True:
        try:
            if sys.platform == "win32":
                import msvcrt

                file.seek(0)
                msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
            else:
                import fcntl

                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except (BlockingIOError, PermissionError):
            if not waiting:
                on_wait()
            waiting = True
            time.sleep(_WAIT)
        except OSError:
            return False


def _state() -> str:
    """A digest of all that the machine code depends on."""
    chosen: Any = config  # its names come from the environment
    parts = (
        sources.digest_of_engine(), numba.__version__, llvmlite.__version__,
        binding.get_process_triple(), chosen.CPU_NAME or binding.get_host_cpu_name(),
        chosen.CPU_FEATURES, chosen.OPT, os.environ.get("NUMBA_CACHE_DIR"),
    )  # fmt: skip
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]
