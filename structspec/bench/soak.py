"""Soak: many schemas, many tokens, several threads, one process; memory must stay flat.

    make soak
    python -m structspec.bench.soak --tokens 10000000 --schemas 2000 --threads 4

Threads walk random schemas of MaskBench's open half through one `ConstraintCache`, each walk a
seeded random text: a mask, a token that it allows, the state behind it. The cache is far too small
for all schemas, so constraints are evicted and compiled again all the time. Resident memory is
noted twenty times. At the end a fresh process takes a sample of the walks once more: tokens and
rows must be the same, bit for bit.

Exit code 0 if every answer was the same and memory stayed below `--most-mib` and flat: the median
of the last fifth is no more than `--most-grown-mib` above that of the second. (A single note may
fall into the compilation of the largest schemas.) Writes `docs/results/soak.json` and a table of
`docs/masks.md`.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from structspec.bench.machine import describe_machine, on_machine
from structspec.bench.masks_jobs import VOCABULARIES, load_vocabulary, maskbench_jobs
from structspec.bench.pages import markdown_table, write_between_markers, write_report
from structspec.constraint_cache import ConstraintCache
from structspec.errors import BudgetExceeded, StructspecError
from structspec.limits import Limits
from structspec.masks.constraint import Constraint
from structspec.vocab import Vocabulary

__all__ = ["Soak", "main", "replay", "resident", "table", "walk"]

COMMAND = "python -m structspec.bench.soak"
#: What one constraint may learn.
_LIMITS = Limits(memory=64 << 20)
#: A walk ends with this probability where the text is complete.
_ENDS = 0.3
_NOTES = 20


def walk(c: Constraint, seed: int, steps: int) -> Iterator[tuple[int, bytes]]:
    """A random text, token by token, with the row at each step."""
    rng = random.Random(seed)
    state, ends = c.start, set(c.vocab.eos_ids)
    for _ in range(steps):
        row = c.mask(state)
        if c.accepting(state) and rng.random() < _ENDS:
            return
        token = _some_token(row, rng, ends)
        if token is None:
            return
        yield token, row.tobytes()
        state = c.advance(state, token)


def _some_token(row: Any, rng: random.Random, ends: set[int]) -> int | None:
    """One of the allowed tokens: a random one, or the next after a random place."""
    full = np.flatnonzero(row)
    begin = rng.randrange(len(row))
    at = int(np.searchsorted(full, begin))
    for k in range(len(full)):
        word = int(full[(at + k) % len(full)])
        bits = [b for b in range(32) if int(row[word]) >> b & 1]
        bits = [b for b in bits if 32 * word + b not in ends]
        if bits:
            return 32 * word + rng.choice(bits)
    return None


def digest(steps: Iterator[tuple[int, bytes]]) -> tuple[int, str]:
    """How many tokens a walk had, and what it saw."""
    seen, count = hashlib.blake2b(digest_size=16), 0
    for token, row in steps:
        seen.update(token.to_bytes(4, "little") + row)
        count += 1
    return count, seen.hexdigest()


class Soak:
    """One run; see the module. `schemas`: JSON texts. `sample`: how many walks to keep."""

    def __init__(
        self,
        vocab: Vocabulary,
        schemas: Sequence[str],
        *,
        tokens: int,
        threads: int,
        max_bytes: int,
        length: int,
        sample: int = 200,
    ) -> None:
        self.vocab, self.schemas = vocab, schemas
        self.tokens, self.threads, self.length = tokens, threads, length
        self.cache = ConstraintCache(max_bytes)
        self.sample: list[dict[str, Any]] = []
        self.errors: list[str] = []
        self.counts = {"tokens": 0, "walks": 0, "refused": 0, "out_of_budget": 0}
        self.seen: set[int] = set()
        self.memory: list[tuple[int, float]] = []  # tokens so far, MiB
        self._most_sample = sample
        self._lock = threading.Lock()

    def run(self) -> None:
        """Walk until so many tokens are written."""
        workers = [threading.Thread(target=self._work, args=(i,)) for i in range(self.threads)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()

    def _work(self, seed: int) -> None:
        rng = random.Random(seed)
        try:
            while self.counts["tokens"] < self.tokens:
                self._one(rng.randrange(len(self.schemas)), rng.randrange(1 << 30), rng)
        except BaseException as error:
            self.errors.append(f"{type(error).__name__}: {error}"[:300])

    def _one(self, number: int, seed: int, rng: random.Random) -> None:
        try:
            c = self.cache.get(self.schemas[number], self.vocab, limits=_LIMITS)
        except StructspecError:
            self._note(number, "refused", 0)
            return
        kept = rng.random() < 0.02 or len(self.sample) < self.threads
        count = 0
        try:
            if kept and len(self.sample) < self._most_sample:
                count, seen = digest(walk(c, seed, self.length))
                self.sample.append({"schema": number, "seed": seed, "digest": seen})
            else:
                for _ in walk(c, seed, self.length):
                    count += 1
            self._note(number, "walks", count)
        except BudgetExceeded:
            self._note(number, "out_of_budget", count)

    def _note(self, number: int, what: str, tokens: int) -> None:
        with self._lock:
            self.counts[what] += 1
            self.counts["tokens"] += tokens
            self.seen.add(number)
            due = (len(self.memory) + 1) * self.tokens <= self.counts["tokens"] * _NOTES
            if due and len(self.memory) < _NOTES:
                self.memory.append((self.counts["tokens"], resident()))
                print(f"{self.counts} {self.memory[-1][1]:.0f} MiB", file=sys.stderr, flush=True)


def resident() -> float:
    """Resident memory of this process in MiB; 0 where the system does not say."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except OSError:
        return 0.0
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def replay(vocab: Vocabulary, work: Mapping[str, Any]) -> list[str]:
    """The digests of the walks of a sample, each on a constraint of its own."""
    return [
        digest(
            walk(
                _fresh(work["schemas"][str(one["schema"])], vocab), int(one["seed"]), work["length"]
            )
        )[1]
        for one in work["sample"]
    ]


def _fresh(schema: str, vocab: Vocabulary) -> Constraint:
    from structspec.grammar import compile as compile_grammar

    return compile_grammar(schema, limits=_LIMITS).bind(vocab)


def _fifths(memory: Sequence[float]) -> tuple[float, float]:
    """The medians of the second and of the last fifth."""
    fifth = max(1, len(memory) // 5)
    return statistics.median(memory[fifth : 2 * fifth]), statistics.median(memory[-fifth:])


def table(report: Mapping[str, Any]) -> str:
    """The figures as Markdown."""
    machine, counts = report["machine"], report["counts"]
    memory = [mib for _, mib in report["memory"]]
    early, late = _fifths(memory)
    cells = [
        f"{counts['tokens']:,}", f"{report['schemas']:,}", str(report["threads"]),
        f"{counts['walks']:,}", f"{report['compiled']:,}", f"{early:.0f}", f"{late:.0f}",
        f"{max(memory):.0f}",
        f"{report['equal']} of {report['sampled']}", f"{report['seconds'] / 60:.0f}",
    ]  # fmt: skip
    head = [
        "tokens", "schemas", "threads", "texts", "compiles", "MiB in the second fifth",
        "MiB in the last fifth", "MiB at most", "equal in a fresh process", "minutes",
    ]  # fmt: skip
    return f"{on_machine(machine)}; `{report['command']}`.\n\n" + markdown_table(head, [cells])


def main(arguments: list[str] | None = None) -> int:
    """Run the soak; see the module."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tokens", type=int, default=10_000_000)
    parser.add_argument("--schemas", type=int, default=2_000)
    parser.add_argument("--threads", type=int, default=4)
    parser.add_argument("--length", type=int, default=2_000, help="tokens of a text at most")
    parser.add_argument("--cache-mib", type=int, default=192, help="budget of the cache")
    parser.add_argument("--most-mib", type=float, default=1024)
    parser.add_argument("--most-grown-mib", type=float, default=128)
    parser.add_argument("--vocabulary", choices=sorted(VOCABULARIES), default="smollm2-49k")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--no-docs", action="store_true", help="only print")
    parser.add_argument("--replay", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    vocab = load_vocabulary(options.vocabulary)
    if options.replay:
        print(json.dumps(replay(vocab, json.loads(options.replay.read_text(encoding="utf-8")))))
        return 0
    jobs = maskbench_jobs(vocab, options.schemas, options.seed, texts=False)
    schemas = [str(job["schema"]) for job in jobs]
    soak = Soak(
        vocab,
        schemas,
        tokens=options.tokens,
        threads=options.threads,
        max_bytes=options.cache_mib << 20,
        length=options.length,
    )
    began = time.perf_counter()
    soak.run()
    seconds = time.perf_counter() - began
    fresh = _in_a_fresh_process(soak, options.vocabulary)
    equal = sum(a["digest"] == b for a, b in zip(soak.sample, fresh, strict=True))
    report = {
        "command": f"{COMMAND} --tokens {options.tokens} --schemas {options.schemas} "
        f"--threads {options.threads} --vocabulary {options.vocabulary} --length "
        f"{options.length} --cache-mib {options.cache_mib}",
        "machine": describe_machine(),
        "schemas": len(soak.seen),
        "threads": options.threads,
        "length": options.length,
        "cache_mib": options.cache_mib,
        "counts": soak.counts,
        "compiled": soak.cache.misses,
        "evicted": soak.cache.evicted,
        "memory": soak.memory,
        "sampled": len(soak.sample),
        "equal": equal,
        "errors": soak.errors,
        "seconds": round(seconds, 1),
    }
    text = table(report)
    print(text)
    if not options.no_docs:
        write_report(Path("docs/results/soak.json"), report)
        write_between_markers(Path("docs/masks.md"), COMMAND, text)
    memory = [mib for _, mib in soak.memory]
    early, late = _fifths(memory)
    flat = late - early <= options.most_grown_mib
    good = not soak.errors and equal == len(soak.sample) > 0 and max(memory) <= options.most_mib
    for error in soak.errors:
        print(f"error: {error}", file=sys.stderr)
    return 0 if good and flat else 1


def _in_a_fresh_process(soak: Soak, vocabulary: str) -> list[str]:
    """The digests that a new process finds for the sample."""
    chosen = {str(one["schema"]): soak.schemas[one["schema"]] for one in soak.sample}
    work = {"length": soak.length, "sample": soak.sample, "schemas": chosen}
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "sample.json"
        file.write_text(json.dumps(work), encoding="utf-8")
        command = [sys.executable, "-m", "structspec.bench.soak", "--replay", str(file)]
        answer = subprocess.run(
            [*command, "--vocabulary", vocabulary], check=True, capture_output=True, text=True
        )
    found: list[str] = json.loads(answer.stdout.splitlines()[-1])
    return found


if __name__ == "__main__":
    sys.exit(main())
