"""Several processes compile into one cache; whatever they do not do is left to the caller."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from structspec.machine_code import crew
from structspec.machine_code.catalogue import Entry
from structspec.machine_code.crew import Crew, can_start

ADDRESS = Entry("structspec.machine_code.linking:address", ("int64[:]",), 0.1)
BEGIN = Entry("structspec.automata.pushdown:begin", ("int64[:], int64, int64",), 0.2)
BASE = Entry("structspec.automata.memory:base", ("int64[:], int64",), 5.0)
GONE = Entry("structspec.automata.memory:gone", ("int64",), 0.1)

_COMPILE = """
from structspec.machine_code import catalogue
from structspec.machine_code.crew import Crew
from structspec.machine_code.catalogue import Entry
entries = [{entries}]
assert catalogue.missing(entries) == entries[:3]  # nothing can be made of the last one
work = Crew(entries, 2)
work.run()
assert list(work.failed) == ["structspec.automata.memory:gone"], work.failed
assert work.done == 3 and not catalogue.missing(entries)
"""


def test_two_processes_fill_an_empty_cache(tmp_path: Path) -> None:
    """Not guarded by `if __name__ == "__main__"`, as many scripts are not."""
    script = tmp_path / "script.py"
    entries = ", ".join(
        f"Entry({e.kernel!r}, {e.signatures!r}, {e.seconds})" for e in (ADDRESS, BEGIN, BASE, GONE)
    )
    script.write_text(_COMPILE.format(entries=entries))
    environment = {
        **os.environ,
        "NUMBA_CACHE_DIR": str(tmp_path / "cache"),
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    subprocess.run([sys.executable, str(script)], check=True, env=environment, timeout=240)
    assert list((tmp_path / "cache").rglob("linking.address.*.nbc"))


def test_callees_come_first_then_the_longest_way() -> None:
    work = Crew([ADDRESS, BEGIN, BASE], 1)
    assert work._take() == BASE.kernel
    assert work._take() == ADDRESS.kernel  # `begin` copies it
    work._finish(ADDRESS.kernel, None)
    assert work._take() == BEGIN.kernel
    assert work._take() is None


def test_a_process_that_ends_leaves_its_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crew, "_WORKER", "import sys; sys.stdin.readline(); sys.exit(1)")
    work = Crew([ADDRESS, BASE, GONE], 2)
    work.run()  # returns
    assert work.done == 0 and 1 <= len(work.failed) <= 2


def test_frozen_programs_and_embedders_start_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """`sys.executable` names them, not Python."""
    assert can_start()
    monkeypatch.setattr(sys, "executable", "/usr/bin/editor")
    assert not can_start()
    monkeypatch.setattr(sys, "executable", "")
    assert not can_start()
    monkeypatch.undo()
    monkeypatch.setattr(sys, "frozen", True, raising=False)
    assert not can_start()


def test_an_interruption_ends_the_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crew, "_WORKER", "import sys, time; sys.stdin.readline(); time.sleep(60)")
    work = Crew([ADDRESS, BASE], 2)
    join, started = threading.Thread.join, threading.Thread.start

    def interrupted(self: threading.Thread, timeout: float | None = None) -> None:
        if self.name.startswith("structspec-compile"):
            while len(work._at_work) < 2:
                time.sleep(0.01)
            raise KeyboardInterrupt
        join(self, timeout)

    threads: list[threading.Thread] = []
    monkeypatch.setattr(
        threading.Thread, "start", lambda self: (threads.append(self), started(self))[1]
    )
    monkeypatch.setattr(threading.Thread, "join", interrupted)
    with pytest.raises(KeyboardInterrupt):
        work.run()
    for thread in threads:
        join(thread, 20)
        assert not thread.is_alive()
    assert all(process.poll() is not None for process in work._at_work)


def test_a_worker_ends_when_it_is_told_though_its_pipe_stays_open() -> None:
    """A process that was forked meanwhile holds the other end."""
    process = crew._start()
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write("\n")
    process.stdin.flush()
    assert process.wait(60) == 0
    process.stdin.close()
    process.stdout.close()
