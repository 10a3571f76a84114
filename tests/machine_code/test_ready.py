"""When machine code is made ahead, and when nothing is started."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from structspec import settings
from structspec.machine_code import catalogue, crew, places, ready
from structspec.machine_code.catalogue import Entry
from structspec.machine_code.folder import Folder
from structspec.machine_code.store import tag as python_tag

ENTRY = Entry("structspec.machine_code.linking:address", ("int64[:]",), 60.0)


class Recorder:
    """Stands for `Crew`."""

    runs: list[int]
    done = 1
    failed: dict[str, str] = {}  # noqa: RUF012
    unmade: set[str] = set()  # noqa: RUF012

    def __init__(self, entries: list[Entry], processes: int) -> None:
        self.runs.append(processes)

    def run(self) -> None:
        pass


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[list[int]]:
    """A cold cache in a folder of its own, and how many processes each crew had."""
    found: list[int] = []
    monkeypatch.setattr(Recorder, "runs", found, raising=False)
    monkeypatch.setattr(crew, "Crew", Recorder)
    monkeypatch.setattr(catalogue, "read", lambda: [ENTRY, ENTRY, ENTRY])
    monkeypatch.setattr(catalogue, "missing", lambda entries: list(entries))
    monkeypatch.setattr(Folder, "find", classmethod(lambda cls: cls(tmp_path)))
    monkeypatch.setattr(Folder, "candidates", classmethod(lambda cls: [cls(tmp_path)]))
    monkeypatch.setattr(ready, "_asked", [])
    monkeypatch.setattr(places, "_told", [])
    monkeypatch.setattr(settings, "_set", {"processes": 2})
    yield found


def test_a_cold_cache_is_filled_once_and_a_message_says_so(
    runs: list[int], caplog: pytest.LogCaptureFixture
) -> None:
    ready.ensure()
    ready.ensure()
    assert runs == [2]
    assert "compiling 3 kernels" in caplog.text and "90 s" in caplog.text
    ready._asked.clear()  # another process: everything is stamped
    ready.ensure()
    assert runs == [2]


def test_one_process_starts_no_others(runs: list[int], caplog: pytest.LogCaptureFixture) -> None:
    settings.set_compile_processes(1)
    ready.ensure()
    assert runs == [] and "when they are first called" in caplog.text


def test_the_environment_variable_starts_no_others(
    runs: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settings, "_set", {})
    monkeypatch.setenv(settings.PROCESSES_VARIABLE, "0")
    ready.ensure()
    assert runs == []


def test_little_that_is_missing_starts_nothing_and_says_nothing(
    runs: list[int], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    quick = Entry(ENTRY.kernel, ENTRY.signatures, 0.5)
    monkeypatch.setattr(catalogue, "missing", lambda entries: [quick])
    ready.ensure()
    assert runs == [] and not caplog.text


def test_a_folder_that_cannot_be_written_starts_nothing_and_a_message_says_what_to_do(
    runs: list[int], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Every process would compile for itself and keep nothing."""
    monkeypatch.setattr(Folder, "find", classmethod(lambda cls: None))
    ready.ensure()
    assert runs == [] and "NUMBA_CACHE_DIR" in caplog.text


def test_what_an_image_brought_is_enough_where_nothing_can_be_written(
    runs: list[int], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    tree = Folder(tmp_path / "tree")
    tree.write_stamp()
    both = [tree, Folder(tmp_path / "own")]
    monkeypatch.setattr(Folder, "candidates", classmethod(lambda cls: both))
    monkeypatch.setattr(Folder, "find", classmethod(lambda cls: None))
    ready.ensure()
    assert runs == [] and ready._asked


def test_whoever_is_interrupted_is_asked_again(
    runs: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(self: Recorder) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as once:
        once.setattr(Recorder, "run", interrupted)
        with pytest.raises(KeyboardInterrupt):
            ready.ensure()
    ready.ensure()
    assert runs == [2, 2]


def test_what_a_killed_process_left_is_made_at_the_next_start(
    runs: list[int], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with monkeypatch.context() as once:
        once.setattr(Recorder, "unmade", {ENTRY.kernel})
        ready.ensure()
    assert "1 are left" in caplog.text
    for _ in range(2):
        ready._asked.clear()  # another process
        ready.ensure()
    assert runs == [2, 2]  # the second one stamps


def test_processes_that_get_nowhere_are_not_tried_again(
    runs: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Recorder, "unmade", {ENTRY.kernel})
    monkeypatch.setattr(Recorder, "done", 0)
    for _ in range(2):
        ready._asked.clear()
        ready.ensure()
    assert runs == [2]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_fork_neither_keeps_the_lock_nor_waits_for_the_compile(tmp_path: Path) -> None:
    """A server that forks workers while a thread compiles."""
    folder = Folder(tmp_path)
    read, write = os.pipe()
    held_by_thread, done = threading.Event(), threading.Event()

    def compiles() -> None:
        with ready._lock:
            held_by_thread.set()
            done.wait()

    thread = threading.Thread(target=compiles)
    thread.start()
    held_by_thread.wait()
    with folder.locked(lambda: None) as held:
        assert held
        child = os.fork()
        if not child:
            os.close(write)
            with ready._lock:  # a new one: who held it is not here
                os.read(read, 1)
            os._exit(0)

    done.set()
    thread.join()

    def wait() -> None:
        raise AssertionError("the fork holds the lock")

    with folder.locked(wait) as again:
        assert again
    os.write(write, b".")
    assert os.waitpid(child, 0)[1] == 0
    os.close(read)
    os.close(write)


def test_whoever_asks_for_machine_code_does_not_count_the_little(runs: list[int]) -> None:
    said: list[str] = []
    assert ready.compile_missing(said.append, processes=3) == 3
    assert runs == [3] and len(said) == 2


_HOLD = """
import sys
from pathlib import Path
from structspec.machine_code.folder import Folder
from structspec.machine_code.store import tag as python_tag
with Folder(Path(sys.argv[1])).locked(lambda: None) as held:
    print(held, flush=True)
    sys.stdin.readline()
"""


def test_a_second_process_waits_and_then_finds_everything(
    runs: list[int],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    holder = subprocess.Popen(
        [sys.executable, "-c", _HOLD, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment,
        text=True,
    )
    assert holder.stdin is not None and holder.stdout is not None
    with holder:
        assert holder.stdout.readline() == "True\n"
        answers = [[ENTRY], []]  # before waiting, and after
        monkeypatch.setattr(catalogue, "missing", lambda entries: answers.pop(0))

        def log(message: str) -> None:
            assert "waiting" in message
            assert holder.stdin is not None
            holder.stdin.write("\n")
            holder.stdin.flush()

        monkeypatch.setattr(ready, "_log", log)
        ready.ensure()
    assert runs == [] and not answers and Folder(tmp_path).stamped()


def test_older_stamps_go(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    tag = python_tag()
    old, other = tmp_path / f"kernels-0.{tag}.nbc", tmp_path / "kernels-0.other.nbc"
    old.touch()
    other.touch()
    folder.write_stamp()
    assert folder.stamped() and not old.exists() and other.exists()


def test_settings_have_a_floor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings, "_set", {})
    for set_ in (settings.set_threads, settings.set_compile_processes):
        with pytest.raises(ValueError, match="1 or more"):
            set_(0)
    monkeypatch.setenv(settings.THREADS_VARIABLE, "3")
    assert settings.threads() == 3
    settings.set_threads(2)
    assert settings.threads() == 2
    monkeypatch.setenv(settings.THREADS_VARIABLE, "many")
    monkeypatch.setattr(settings, "_set", {})
    assert settings.threads() == 1 and settings.compile_processes() >= 1
