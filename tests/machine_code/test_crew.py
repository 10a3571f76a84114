"""Several processes compile into one cache; whatever they do not do is left to the caller."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

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
    assert len(work.unmade) == 3


_DIES_ONCE = """
import json, os, pathlib, signal, sys
for line in sys.stdin:
    if not line.strip():
        break
    try:
        pathlib.Path({mark!r}).touch(exist_ok=False)
    except FileExistsError:
        print(json.dumps({{"kernel": "", "error": None}}), flush=True)
    else:
        os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="this system kills otherwise")
def test_the_others_go_on_when_a_process_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(crew, "_WORKER", _DIES_ONCE.format(mark=str(tmp_path / "mark")))
    work = Crew([ADDRESS, BASE, GONE], 2)
    work.run()
    assert work.done == 2 and len(work.unmade) == 1 and work.unmade == set(work.failed)


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


_WARM = """
import logging
from structspec.machine_code import catalogue, linking, ready
from structspec.machine_code.catalogue import Entry
catalogue.read = lambda: [{entries}]
logging.basicConfig(level=logging.INFO)  # it says which machine code was damaged
ready.compile_missing(lambda line: print(line, flush=True), 2)
for entry in catalogue.read():
    entry.load()
    linking.declare()
    entry.compile()
"""


def _children(pid: int) -> set[int]:
    """Children of all threads."""
    found: set[int] = set()
    with contextlib.suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            with contextlib.suppress(OSError):
                found |= set(map(int, (task / "children").read_text().split()))
    return found


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="needs /proc")
@pytest.mark.parametrize("whom", ["a process of the crew", "the parent"])
def test_after_kill_9_the_next_start_makes_the_rest(tmp_path: Path, whom: str) -> None:
    entries = ", ".join(
        f"Entry({e.kernel!r}, {e.signatures!r}, {e.seconds})" for e in (ADDRESS, BEGIN, BASE)
    )
    command = [sys.executable, "-c", _WARM.format(entries=entries)]
    environment = {
        **os.environ,
        "NUMBA_CACHE_DIR": str(tmp_path),
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    streams: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    with subprocess.Popen(command, env=environment, text=True, **streams) as first:
        assert first.stdout is not None
        assert first.stdout.readline().startswith("compiling 3 kernels")
        while len(crew_ := _children(first.pid)) < 2:
            time.sleep(0.01)
        # in the middle: one kernel is made, another is not
        while not list(tmp_path.rglob("*.nbc")):
            time.sleep(0.01)
        os.kill(min(crew_) if whom != "the parent" else first.pid, signal.SIGKILL)
        said = first.stdout.read()
        ended = first.wait(120)
        assert ended == (-signal.SIGKILL if whom == "the parent" else 0), said
    if whom != "the parent":
        assert "1 are left, as processes ended" in said or "3 kernels" in said
    end = time.monotonic() + 60
    while any(Path(f"/proc/{pid}").exists() for pid in crew_):  # they see that nobody listens
        assert time.monotonic() < end
        time.sleep(0.05)
    again = subprocess.run(command, env=environment, text=True, timeout=240, **streams)
    assert again.returncode == 0, again.stdout
    assert "waiting" not in again.stdout and "anew" not in again.stdout
    (stamp,) = tmp_path.rglob("kernels-*.nbc")
    assert len({path.name.split(".")[1] for path in tmp_path.rglob("*.nbc") if path != stamp}) >= 3
