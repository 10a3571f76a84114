"""Several processes that compile kernels into the same cache on disk.

Each is a fresh interpreter (`worker`), told one kernel at a time: of those whose callees are
compiled, the one with the longest way to go. They are started with `subprocess`, so that scripts
need no guard around their main part, and import what this process would.

Cost: about two seconds per process to start; the rest is shared evenly until only a chain of
kernels is left. A process that dies leaves its kernel to whoever calls it first (`unmade`).
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

from structspec import settings
from structspec.machine_code.catalogue import Entry, callees

__all__ = ["Crew", "can_start"]

_WORKER = "from structspec.machine_code.worker import main; main()"


def can_start() -> bool:
    """Whether this interpreter can start others of its kind.

    Not in frozen programs, nor where Python is embedded: what `sys.executable` names would then
    start the program once more.
    """
    program = Path(sys.executable or "").name.lower()
    return program.startswith(("python", "pypy")) and not getattr(sys, "frozen", False)


class Crew:
    """Compiles `entries` with so many processes; `say` gets (done, of how many) after each."""

    def __init__(
        self,
        entries: Sequence[Entry],
        processes: int,
        say: Callable[[int, int], object] = lambda done, total: None,
    ) -> None:
        self._entries = {entry.kernel: entry for entry in entries}
        needed = callees(entries)
        # What is not among the entries is there already.
        self._needs = {k: needed[k] & self._entries.keys() for k in self._entries}
        self._left = set(self._entries)
        self._running: set[str] = set()
        self._way = self._ways()
        self._processes = processes
        self._say = say
        self._changed = threading.Condition()
        self._at_work: list[subprocess.Popen[str]] = []
        self._answered: set[str] = set()
        self.failed: dict[str, str] = {}
        self.done = 0

    @property
    def unmade(self) -> set[str]:
        """Kernels that no process answered for: it ended, or could not be started."""
        return self._entries.keys() - self._answered

    def _ways(self) -> dict[str, float]:
        """Seconds from the beginning of a kernel to the end of the longest chain behind it."""
        callers: dict[str, list[str]] = {kernel: [] for kernel in self._entries}
        for kernel, needs in self._needs.items():
            for need in needs - {kernel}:
                callers[need].append(kernel)
        ways: dict[str, float] = {}

        def way(kernel: str) -> float:
            if kernel not in ways:
                ways[kernel] = 0.0  # kernels that call themselves
                behind = max((way(c) for c in callers[kernel]), default=0.0)
                ways[kernel] = self._entries[kernel].seconds + behind
            return ways[kernel]

        for kernel in self._entries:
            way(kernel)
        return ways

    def run(self) -> None:
        """Compile; returns when all is done or all processes have ended."""
        threads = [
            threading.Thread(target=self._employ, name=f"structspec-compile-{i}", daemon=True)
            for i in range(self._processes)
        ]
        try:
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        except BaseException:  # interrupted
            self._stop()
            raise

    def _stop(self) -> None:
        """Give nothing more to do, and end the processes."""
        with self._changed:
            self._left.clear()
            self._changed.notify_all()
            for process in self._at_work:
                process.terminate()

    def _take(self) -> str | None:
        """The next kernel, None if there is none left; waits while others' work is needed."""
        with self._changed:
            while self._left:
                open_needs = self._left | self._running
                ready = [k for k in self._left if not (self._needs[k] - {k}) & open_needs]
                if not ready and not self._running:
                    ready = list(self._left)  # kernels that call each other
                if ready:
                    chosen = max(ready, key=lambda kernel: (self._way[kernel], kernel))
                    self._left.discard(chosen)
                    self._running.add(chosen)
                    return chosen
                self._changed.wait()
            return None

    def _finish(self, kernel: str, error: str | None, *, answered: bool = True) -> None:
        with self._changed:
            self._running.discard(kernel)
            if answered:
                self._answered.add(kernel)
            if error is None:
                self.done += 1
            else:
                self.failed[kernel] = error
            self._changed.notify_all()
            self._say(self.done + len(self.failed), len(self._entries))

    def _employ(self) -> None:
        """Run one process until nothing is left to do."""
        try:
            process = _start()
        except OSError as refusal:
            logging.getLogger("structspec").debug("no process to compile with: %s", refusal)
            return
        assert process.stdin is not None and process.stdout is not None
        with self._changed:
            self._at_work.append(process)
        with process:
            while (kernel := self._take()) is not None:
                entry = self._entries[kernel]
                order = {"kernel": kernel, "signatures": entry.signatures}
                error: str | None = "its process ended"
                answered = False
                try:
                    process.stdin.write(json.dumps(order) + "\n")
                    process.stdin.flush()
                    if answer := process.stdout.readline():
                        error = json.loads(answer)["error"]
                        answered = True
                        continue
                    return
                except (OSError, ValueError) as broken:
                    error = str(broken)
                    return
                finally:
                    self._finish(kernel, error, answered=answered)
            # Not only the end of the pipe: forks of this process may hold that open.
            with contextlib.suppress(OSError):
                process.stdin.write("\n")
                process.stdin.flush()


def _start() -> subprocess.Popen[str]:
    environment = {
        **os.environ,
        settings.PROCESSES_VARIABLE: "1",  # a worker never starts others
        "PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path),
    }
    return subprocess.Popen(
        [sys.executable, "-P", "-c", _WORKER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=environment,
        text=True,
        encoding="utf-8",
    )
