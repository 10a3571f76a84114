"""The process of one engine in the mask benchmark: reads jobs, prints one JSON line for each.

    python -m structspec.bench.masks_worker ENGINE VOCABULARY.npz JOBS.jsonl

A job is `{"id", "schema", "texts": [{"ids", "valid"}]}`, or has a "grammar" in several notations
instead of a schema. It is compiled and walked `--repeats` times, each time from nothing; a line
`{"id", "repeat"}` says that one of them is done. Times are nanoseconds; those of one mask hold the
row and the token behind it. The first row of every text is left out: it belongs to the time to the
first mask.

Before each job it waits for a line on its standard input, so that engines can take turns. What
engines print goes to standard error. The parent (`masks`) ends a worker that takes too long.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import itertools
import json
import os
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from structspec.bench.masks_engines import DRIVERS, Driver, Refused, TokenList

__all__ = ["main", "measure", "read_vocabulary"]

CLOCKS: dict[str, Callable[[], int]] = {
    "wall": time.perf_counter_ns,
    "cpu": time.process_time_ns,
}
_WARM_UP = (
    '{"type": "object", "properties": {"a": {"type": "integer", "minimum": 3}, "b": {"type": '
    '"string", "maxLength": 9}, "c": {"type": "array", "items": {"enum": [1, "x"]}}}}'
)


def read_vocabulary(path: Path) -> TokenList:
    """The vocabulary that `masks_jobs.write_vocabulary` wrote."""
    with np.load(path, allow_pickle=False) as file:
        data, lengths = file["data"].tobytes(), file["lengths"].tolist()
        ends = file["eos_ids"].tolist()
    tokens: list[bytes | None] = []
    at = 0
    for length in lengths:
        tokens.append(None if length < 0 else data[at : at + length])
        at += max(length, 0)
    return TokenList(tokens, ends)


def measure(
    driver: Driver,
    job: dict[str, Any],
    repeats: int,
    clock: Callable[[], int],
    on_repeat: Callable[[int], object] = lambda repeat: None,
) -> dict[str, Any]:
    """Compile and walk one job; see the module for what the times mean."""
    overhead = _overhead(clock)
    answer: dict[str, Any] = {"id": job["id"], "first": [], "texts": []}
    for repeat in range(repeats):
        gc.collect()
        gc.freeze()  # what earlier jobs left for good is not looked through again
        began = clock()
        try:
            if "grammar" in job:
                start = driver.compile_grammar(job["grammar"])
            else:
                start = driver.compile(job["schema"])
            start().fill()
        except Refused as error:
            answer["refused"] = " ".join(str(error).split())[:300]
            return answer
        answer["first"].append(clock() - began - overhead)
        for number, text in enumerate(job["texts"]):
            verdict, times = _walk(driver, start, text["ids"], clock, overhead)
            if repeat == 0:
                answer["texts"].append({"verdict": verdict, "times": [times]})
            else:
                answer["texts"][number]["times"].append(times)
        del start
        on_repeat(repeat)
    return answer


def _walk(
    driver: Driver, start: Callable[[], Any], ids: list[int], clock: Callable[[], int], spent: int
) -> tuple[str, list[int]]:
    """Walk one text: "accepted", "rejected" or a refusal at run time, and the times per mask."""
    times: list[int] = []
    row = driver.row[0]
    try:
        walk = start()
        fill, take = walk.fill, walk.take
        for token in ids:
            before = clock()
            fill()
            fits = take(token)
            times.append(clock() - before - spent)
            masked = (
                fits if not driver.exact_rows else bool((int(row[token >> 5]) >> (token & 31)) & 1)
            )
            if not fits or not masked:
                if fits != masked:
                    return f"inconsistent: mask {masked}, token {fits}", times[1:]
                return "rejected", times[1:]
        return ("accepted" if walk.complete() else "rejected"), times[1:]
    except Refused as error:
        return f"refused: {str(error)[:200]}", times[1:]


def _overhead(clock: Callable[[], int]) -> int:
    """The median time of reading the clock twice."""
    ticks = [clock() for _ in range(201)]
    return sorted(b - a for a, b in itertools.pairwise(ticks))[100]


def _forget_peak() -> int:
    """Start the peak of the resident memory anew where the system can; returns what is held."""
    with contextlib.suppress(OSError):  # the peak then includes reading the vocabulary
        Path("/proc/self/clear_refs").write_text("5")
    return _peak()


def _peak() -> int:
    try:
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def main(arguments: list[str] | None = None) -> int:
    """Answer all jobs; the last line holds the process's memory."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("engine", choices=sorted(DRIVERS))
    parser.add_argument("vocabulary", type=Path)
    parser.add_argument("jobs", type=Path)
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--clock", choices=sorted(CLOCKS), default="cpu")
    parser.add_argument("--skip", type=int, default=0, help="jobs that are done already")
    options = parser.parse_args(arguments)
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what engines print must not mix with the answers
    clock = CLOCKS[options.clock]
    began = time.perf_counter()
    driver = DRIVERS[options.engine](read_vocabulary(options.vocabulary))
    measure(driver, {"id": "", "schema": _WARM_UP, "texts": [{"ids": [0]}]}, 1, clock)

    def say(message: dict[str, Any]) -> None:
        print(json.dumps(message), file=answers, flush=True)

    base = _forget_peak()
    say({"ready": driver.version, "seconds": time.perf_counter() - began, "memory": base})
    with options.jobs.open(encoding="utf-8") as file:
        for number, line in enumerate(file):
            if number < options.skip:
                continue
            if not sys.stdin.readline():
                break
            job = json.loads(line)

            def report(repeat: int, name: str = job["id"]) -> None:
                say({"id": name, "repeat": repeat})

            try:
                answer = measure(driver, job, options.repeats, clock, report)
            except BaseException as error:  # panics of Rust are BaseException
                if isinstance(error, KeyboardInterrupt):
                    raise
                answer = {"id": job["id"], "crash": f"{type(error).__name__}: {error}"[:300]}
            answer["grown"] = _peak() - base
            say(answer)
    return 0


if __name__ == "__main__":
    sys.exit(main())
