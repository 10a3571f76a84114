"""Running an engine over a suite in processes that survive crashes and hangs.

Each worker process holds one engine and gets one schema at a time. A schema has `time_limit`
seconds for compiling and all its texts; when they are up the process is killed and every text
without an answer is a timeout. When a process dies, the text it was judging is a crash, a new
process takes the rest; a death while compiling is a crash of the whole schema.

Cost: starting a worker takes a second or two (the engine's import); then what the engine takes.

Example::

    if __name__ == "__main__":  # workers import the main module, as all of multiprocessing does
        run = run_suite(load_suite(Path("my-schemas")), "structspec", jobs=2)
        print(run.counts())
"""

from __future__ import annotations

import multiprocessing
import tempfile
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from structspec.errors import MissingExtra, SchemaError, StructspecError
from structspec.suites.case import Group, Suite
from structspec.suites.outcome import GroupResult, Outcome, Refusal, Run, TestResult, grade
from structspec.suites.worker import Task, serve

__all__ = ["TIME_LIMIT", "run_suite"]

#: Seconds for one schema and all its texts.
TIME_LIMIT = 20.0

# An engine may compile kernels when it is first imported.
_START_LIMIT = 900.0

OnProgress = Callable[[int, int, "Counter[Outcome]"], None]


def run_suite(
    suite: Suite,
    engine: str = "structspec",
    *,
    options: Mapping[str, Any] | None = None,
    jobs: int = 1,
    time_limit: float = TIME_LIMIT,
    tokenizer: str | None = None,
    on_progress: OnProgress | None = None,
) -> Run:
    """Run an engine (see `engines.make_engine`) over a suite.

    options: compile options that override those of the suite and of its groups.
    on_progress: called with (schemas done, schemas, tests per outcome so far).

    Raises MissingExtra or SchemaError if the engine cannot be made, StructspecError if its process
    does not start.
    """
    started = time.perf_counter()
    pool = _Pool(suite, engine, dict(options or {}), time_limit, tokenizer, on_progress)
    try:
        pool.run(max(1, jobs))
    finally:
        pool.close()
    return Run(
        suite,
        pool.identity[0],
        pool.identity[1],
        {**suite.options, **(options or {})},
        tuple(sheet.result() for sheet in pool.sheets),
        time.perf_counter() - started,
        pool.identity[2],
    )


class _Sheet:
    """The results of one group while they arrive."""

    def __init__(self, group: Group) -> None:
        self.group = group
        self.tests: list[TestResult] = []
        self.compile_seconds: float | None = None
        self.refusal: Refusal | None = None
        self.failure: Outcome | None = None
        self.detail = ""

    @property
    def complete(self) -> bool:
        return len(self.tests) == len(self.group.tests)

    def add(self, outcome: Outcome, detail: str = "") -> None:
        test = self.group.tests[len(self.tests)]
        self.tests.append(TestResult(test.id, outcome, detail))

    def answer(self, accepted: bool) -> None:
        self.add(grade(self.group.tests[len(self.tests)], accepted))

    def fail(self, outcome: Outcome, detail: str) -> None:
        """The schema itself failed; so does every text."""
        self.failure, self.detail = outcome, detail
        self.rest(outcome, detail)

    def rest(self, outcome: Outcome, detail: str) -> None:
        while not self.complete:
            self.add(outcome, detail)

    def result(self) -> GroupResult:
        return GroupResult(
            self.group.id,
            self.group.topic,
            tuple(self.tests),
            self.compile_seconds,
            self.refusal,
            self.failure,
            self.detail,
            self.group.may_refuse,
        )


class _Worker:
    """One process, its pipe, and what it is doing."""

    def __init__(self, arguments: tuple[Any, ...], log: Path) -> None:
        # spawn: forking a process whose libraries run threads can hang.
        context = multiprocessing.get_context("spawn")
        self.log = log
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(
            target=serve, args=(theirs, *arguments, str(log)), daemon=True
        )
        self.process.start()
        theirs.close()
        self.ready = False
        self.sheet: _Sheet | None = None
        self.compiled = False
        self.deadline = time.monotonic() + _START_LIMIT

    def give(self, sheet: _Sheet, options: Mapping[str, Any], seconds: float) -> None:
        texts = tuple(test.text for test in sheet.group.tests[len(sheet.tests) :])
        self.sheet, self.compiled = sheet, False
        self.deadline = time.monotonic() + seconds
        self.pipe.send(Task(sheet.group.schema, options, texts))

    def last_words(self) -> str:
        """How the process ended, with the last line that it printed."""
        self.process.join(5)
        code = self.process.exitcode
        how = f"killed by signal {-code}" if code is not None and code < 0 else f"exit code {code}"
        try:
            lines = self.log.read_text("utf-8", "replace").split("\n")
        except OSError:
            lines = []
        said = next((line.strip() for line in reversed(lines) if line.strip()), "")
        return f"the process ended: {how}{f'; {said[:300]}' if said else ''}"

    def end(self) -> None:
        if self.process.is_alive():
            self.process.kill()
        self.process.join(5)
        self.pipe.close()


class _Pool:
    """Hands groups to workers; one thread, driven by messages and deadlines."""

    def __init__(
        self,
        suite: Suite,
        engine: str,
        options: dict[str, Any],
        time_limit: float,
        tokenizer: str | None,
        on_progress: OnProgress | None,
    ) -> None:
        self.sheets = [_Sheet(group) for group in suite.groups]
        self.identity: tuple[str, str, tuple[str, ...]] = (engine, "", ())
        self._waiting = deque(sheet for sheet in self.sheets if not sheet.group.fault)
        self._overrides = options
        common = {**suite.options, **options}
        if suite.resources:
            common["resources"] = dict(suite.resources)
        self._arguments = (engine, tokenizer, common)
        self._time_limit = time_limit
        self._on_progress = on_progress
        self._workers: list[_Worker] = []
        self._logs = tempfile.TemporaryDirectory(prefix="structspec-suite-")
        self._started = 0
        self._done = 0
        self._tally: Counter[Outcome] = Counter()

    def run(self, jobs: int) -> None:
        for sheet in self.sheets:
            if sheet.group.fault:
                sheet.fail(Outcome.UNREADABLE, sheet.group.fault)
                self._finish(sheet)
        self._start()  # even for an empty suite: is the engine there?
        while self._waiting or any(w.sheet or not w.ready for w in self._workers):
            while len(self._workers) < min(jobs, len(self._waiting)):
                self._start()
            now = time.monotonic()
            patience = min(3600.0, max(0.0, min(w.deadline for w in self._workers) - now))
            pipes: dict[Any, _Worker] = {w.pipe: w for w in self._workers}
            for pipe in wait(list(pipes), timeout=patience):
                self._read(pipes[pipe])
            for worker in [w for w in self._workers if w.deadline <= time.monotonic()]:
                # What it managed to say before its time was up counts.
                if worker.pipe.poll():
                    self._read(worker)
                else:
                    self._late(worker)

    def close(self) -> None:
        for worker in self._workers:
            worker.end()
        self._workers.clear()
        self._logs.cleanup()

    def _start(self) -> None:
        self._started += 1
        log = Path(self._logs.name) / f"{self._started}.log"
        self._workers.append(_Worker(self._arguments, log))

    def _next(self, worker: _Worker) -> None:
        worker.sheet = None
        worker.deadline = float("inf")
        if self._waiting:
            sheet = self._waiting.popleft()
            options = {**sheet.group.options, **self._overrides}
            worker.give(sheet, options, self._time_limit)

    def _finish(self, sheet: _Sheet) -> None:
        self._done += 1
        self._tally.update(test.outcome for test in sheet.tests)
        if self._on_progress is not None:
            self._on_progress(self._done, len(self.sheets), self._tally)

    def _read(self, worker: _Worker) -> None:
        pipe: Connection = worker.pipe
        try:
            message = pipe.recv()
            while self._take(worker, message) and pipe.poll():
                message = pipe.recv()
        except (EOFError, OSError):
            self._died(worker)

    def _take(self, worker: _Worker, message: tuple[Any, ...]) -> bool:
        """Note one message; False if the worker has nothing more to say for now."""
        kind = message[0]
        if kind == "missing":
            raise MissingExtra(message[1], message[2])
        if kind == "unusable":
            raise SchemaError(message[1])
        if kind == "ready":
            worker.ready = True
            self.identity = (message[1], message[2], message[3])
            self._next(worker)
            return False
        sheet = worker.sheet
        assert sheet is not None, message
        if kind == "done":
            self._finish(sheet)
            self._next(worker)
            return False
        if kind == "compiled":
            worker.compiled = True
            if sheet.compile_seconds is None:
                sheet.compile_seconds = message[1]
        elif kind == "refused":
            sheet.refusal = message[1]
            sheet.fail(Outcome.REFUSED, message[1].reason)
        elif kind == "crash":
            sheet.fail(Outcome.CRASH, message[1])
        elif kind == "answer":
            sheet.answer(message[1])
        elif kind == "text-refused":
            sheet.add(Outcome.REFUSED, message[1].reason)
        elif kind == "text-crash":
            sheet.add(Outcome.CRASH, message[1])
        return True

    def _died(self, worker: _Worker) -> None:
        self._workers.remove(worker)
        words = worker.last_words()
        worker.end()
        sheet = worker.sheet
        if not worker.ready:
            raise StructspecError(f"the engine {self._arguments[0]!r} does not start: {words}")
        if sheet is not None and not worker.compiled:
            sheet.fail(Outcome.CRASH, words)
        elif sheet is not None and not sheet.complete:
            sheet.add(Outcome.CRASH, words)
        self._replace(sheet)

    def _late(self, worker: _Worker) -> None:
        self._workers.remove(worker)
        worker.end()
        if not worker.ready:
            raise StructspecError(
                f"the engine {self._arguments[0]!r} did not start within {_START_LIMIT:g} s"
            )
        sheet = worker.sheet
        assert sheet is not None
        detail = f"no answer within {self._time_limit:g} s"
        if worker.compiled:
            sheet.rest(Outcome.TIMEOUT, detail)
        else:
            sheet.fail(Outcome.TIMEOUT, f"{detail}, still compiling")
        self._replace(sheet)

    def _replace(self, sheet: _Sheet | None) -> None:
        """After a worker is gone: its unfinished group goes first to the next one."""
        if sheet is not None and sheet.complete:
            self._finish(sheet)
        elif sheet is not None:
            self._waiting.appendleft(sheet)
        if self._waiting:
            self._start()
