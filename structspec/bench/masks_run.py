"""Engines take turns at jobs, each in a worker process of its own, with a time limit.

After each job it is the next engine's turn: a machine that is busy for a minute, or a processor
that slows down, then counts for all of them. A worker waits while it is not its turn. One that
takes too long over a repeat of a job or dies is replaced; the job counts as a timeout or a crash.
Where times are CPU time so is the limit, so that a busy machine does not change who is in time.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from structspec.errors import StructspecError

__all__ = ["EngineRun", "run_engines"]

# Reading a large vocabulary into an engine takes seconds; compiling kernels for the first time
# takes this package a minute.
_START_LIMIT = 300.0
# A process with less than this share of a core does nothing.
_AT_WORK = 0.002


@dataclass
class EngineRun:
    """What one engine answered. `skipped`: jobs for which its total time was up."""

    engine: str
    version: str = ""
    setup_seconds: float = 0.0
    setup_memory: int = 0
    grown: int = 0
    answers: dict[str, dict[str, Any]] = field(default_factory=dict)
    skipped: int = 0


def run_engines(
    engines: Sequence[str],
    python: str,
    vocabulary: Path,
    jobs_file: Path,
    *,
    repeats: int,
    clock: str,
    time_limit: float,
    engine_limit: float,
) -> list[EngineRun]:
    """Run all jobs of a file in all engines; see `masks_worker` for the answers.

    python: the interpreter for engines other than this package. time_limit: seconds for a repeat
    of a job; engine_limit: for one engine's turns together.
    """
    ids = [json.loads(line)["id"] for line in jobs_file.open(encoding="utf-8")]
    how = _How(python, vocabulary, jobs_file, repeats, clock, time_limit)
    turns = [_Turns(engine, how, ids, engine_limit) for engine in engines]
    try:
        for _ in ids:
            for each in turns:
                each.take()
    finally:
        for each in turns:
            each.end()
    return [each.run for each in turns]


@dataclass(frozen=True)
class _How:
    """What all workers of a run have in common; see `run_engines`."""

    python: str
    vocabulary: Path
    jobs: Path
    repeats: int
    clock: str
    time_limit: float


class _Turns:
    """One engine's way through the jobs."""

    def __init__(self, engine: str, how: _How, ids: Sequence[str], limit: float) -> None:
        self.run = EngineRun(engine)
        self._how = how
        self._ids = ids
        self._left = limit
        self._done = 0
        self._worker: _Worker | None = None

    def take(self) -> None:
        """Do the next job, or skip it if the time is up."""
        if self._left <= 0:
            self.run.skipped += 1
            return
        began = time.monotonic()
        try:
            if self._worker is None:
                self._worker = self._started()
            self._do(self._worker)
        finally:
            self._left -= time.monotonic() - began

    def _started(self) -> _Worker:
        worker = _Worker(self.run.engine, self._how, skip=self._done)
        ready = worker.read(_START_LIMIT)
        if ready is None or "ready" not in ready:
            last = worker.last_words()
            worker.end()
            raise StructspecError(f"the engine '{self.run.engine}' does not start: {last}")
        self.run.version, self.run.setup_seconds = ready["ready"], ready["seconds"]
        self.run.setup_memory = max(self.run.setup_memory, ready["memory"])
        return worker

    def _do(self, worker: _Worker) -> None:
        limit = self._how.time_limit
        worker.go()
        answer = worker.read(limit)
        while answer is not None and "repeat" in answer:
            answer = worker.read(limit)
        if answer is None:
            alive = worker.process.poll() is None
            failure = "timeout" if alive else "crash"
            said = f"no answer in {limit:g} s" if alive else worker.last_words()
            answer = {"id": self._ids[self._done], failure: said}
        self._done += 1
        self.run.answers[answer["id"]] = answer
        self.run.grown = max(self.run.grown, answer.get("grown", 0))
        if "timeout" in answer or ("crash" in answer and "grown" not in answer):
            self.end()

    def end(self) -> None:
        """End the worker; the next turn starts another."""
        if self._worker is not None:
            self._worker.end()
            self._worker = None


class _Worker:
    def __init__(self, engine: str, how: _How, skip: int) -> None:
        root = str(Path(__file__).parents[2])
        known = os.environ.get("PYTHONPATH")
        environment = {
            **os.environ,
            "PYTHONPATH": root if not known else f"{root}{os.pathsep}{known}",
            "OMP_NUM_THREADS": "1",
            "RAYON_NUM_THREADS": "1",
        }
        self._cpu = how.clock == "cpu"
        self._log = how.jobs.with_name(f"{engine}.log")
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                [
                    how.python if engine != "structspec" else sys.executable,
                    "-m",
                    "structspec.bench.masks_worker",
                    engine,
                    str(how.vocabulary),
                    str(how.jobs),
                    f"--repeats={how.repeats}",
                    f"--clock={how.clock}",
                    f"--skip={skip}",
                ],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=environment,
            )
        self._lines: queue.Queue[bytes | None] = queue.Queue()
        threading.Thread(target=self._pump, daemon=True).start()

    def _pump(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.put(line)
        self._lines.put(None)

    def go(self) -> None:
        """Let it do the next job."""
        assert self.process.stdin is not None
        with contextlib.suppress(OSError):  # it has ended, as whoever reads will see
            self.process.stdin.write(b"\n")
            self.process.stdin.flush()

    def read(self, limit: float) -> dict[str, Any] | None:
        """The next message; None if there is none in time, or the process has ended."""
        began, spent = time.monotonic(), self._spent()
        seen, used = began, spent  # when it was last seen at work
        while True:
            now = time.monotonic()
            left = limit - (now - began)
            if self._cpu and spent is not None and used is not None:
                so_far = self._spent() or spent
                if so_far - used > _AT_WORK * (now - seen):
                    seen, used = now, so_far
                # a process that sleeps uses no CPU time: it may not take forever either
                left = min(limit - (so_far - spent), limit - (now - seen))
            if left <= 0:
                return None
            try:
                line = self._lines.get(timeout=min(left, 1.0))
            except queue.Empty:
                continue
            break
        if line is None:
            self.process.wait()
            return None
        message: dict[str, Any] = json.loads(line)
        return message

    def _spent(self) -> float | None:
        """Seconds of CPU time of the process; None where the system does not say."""
        try:
            stat = Path(f"/proc/{self.process.pid}/stat").read_text()
            user, system = stat.rpartition(")")[2].split()[11:13]
            return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")
        except (OSError, ValueError, AttributeError):
            return None

    def last_words(self) -> str:
        """The end of what it printed."""
        return self._log.read_text("utf-8", "replace")[-300:].strip() or "no message"

    def end(self) -> None:
        """End the process."""
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
