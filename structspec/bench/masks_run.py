"""Running one engine's worker process over jobs, with a time limit for each repeat of a job.

A worker that takes too long or dies is replaced; the job it was at counts as a timeout or a crash.
Where times are CPU time so is the limit, so that a busy machine does not change who is in time.
"""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from structspec.errors import StructspecError

__all__ = ["EngineRun", "run_engine"]

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


def run_engine(
    engine: str,
    python: str,
    vocabulary: Path,
    jobs_file: Path,
    *,
    repeats: int,
    clock: str,
    time_limit: float,
    engine_limit: float,
    on_answer: Callable[[], None] = lambda: None,
) -> EngineRun:
    """Run all jobs of a file; see `masks_worker` for the answers."""
    ids = [json.loads(line)["id"] for line in jobs_file.open(encoding="utf-8")]
    run = EngineRun(engine)
    done = 0
    ends = time.monotonic() + engine_limit
    while done < len(ids):
        worker = _Worker(engine, python, vocabulary, jobs_file, repeats, clock, done)
        try:
            ready = worker.read(_START_LIMIT)
            if ready is None or "ready" not in ready:
                raise StructspecError(
                    f"the engine '{engine}' does not start: {worker.last_words()}"
                )
            run.version, run.setup_seconds = ready["ready"], ready["seconds"]
            run.setup_memory = max(run.setup_memory, ready["memory"])
            while done < len(ids):
                left = ends - time.monotonic()
                if left <= 0:
                    run.skipped = len(ids) - done
                    return run
                answer = worker.read(time_limit)
                while answer is not None and "repeat" in answer:
                    answer = worker.read(time_limit)
                if answer is None:
                    alive = worker.process.poll() is None
                    answer = {
                        "id": ids[done],
                        "timeout" if alive else "crash": f"no answer in {time_limit:g} s"
                        if alive
                        else worker.last_words(),
                    }
                run.answers[answer["id"]] = answer
                run.grown = max(run.grown, answer.get("grown", 0))
                done += 1
                on_answer()
                if "timeout" in answer or ("crash" in answer and "grown" not in answer):
                    break
        finally:
            worker.end()
    return run


class _Worker:
    def __init__(
        self,
        engine: str,
        python: str,
        vocabulary: Path,
        jobs: Path,
        repeats: int,
        clock: str,
        skip: int,
    ) -> None:
        root = str(Path(__file__).parents[2])
        known = os.environ.get("PYTHONPATH")
        environment = {
            **os.environ,
            "PYTHONPATH": root if not known else f"{root}{os.pathsep}{known}",
            "OMP_NUM_THREADS": "1",
            "RAYON_NUM_THREADS": "1",
        }
        self._cpu = clock == "cpu"
        self._log = jobs.with_name(f"{engine}.log")
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                [
                    python if engine != "structspec" else sys.executable,
                    "-m",
                    "structspec.bench.masks_worker",
                    engine,
                    str(vocabulary),
                    str(jobs),
                    f"--repeats={repeats}",
                    f"--clock={clock}",
                    f"--skip={skip}",
                ],
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
