"""Masks beside other engines: time to the first mask, time per mask, verdicts and memory.

    make bench-masks
    python -m structspec.bench.masks --schemas 100 --python .venv-peers/bin/python

Every engine runs in a process of its own over the same seeded sample of MaskBench and the same
token ids; engines take turns, schema by schema, so that a busy moment of the machine counts for
all. A schema is compiled and walked `--repeats` times, each time from nothing; a mask's time is
the median of them and holds filling a row and taking a token. Times per mask are compared over the
texts that all of `COMMON` walk to the end. Times are CPU time of the process by default, so that
other programs on the machine do not count; `--clock wall` changes it.

Writes `docs/results/masks.json`, `masks.svg` and the tables of `docs/masks.md`.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from structspec.bench.machine import describe_machine
from structspec.bench.masks_jobs import (
    VOCABULARIES,
    hard_jobs,
    load_vocabulary,
    maskbench_jobs,
    write_vocabulary,
)
from structspec.bench.masks_report import plot, tables
from structspec.bench.masks_run import EngineRun, run_engines
from structspec.bench.pages import write_between_markers, write_report
from structspec.errors import MissingExtra

__all__ = ["COMMON", "ENGINES", "main", "summarise"]

COMMAND = "python -m structspec.bench.masks"
#: Engines whose common texts decide over which masks times are compared.
COMMON = ("structspec", "llguidance", "xgrammar-strict")
ENGINES = (*COMMON, "xgrammar", "outlines-core", "lm-format-enforcer")


def percentiles(values: Iterable[float]) -> dict[str, float] | None:
    """Mean, nearest-rank percentiles and maximum; None of nothing."""
    ordered = sorted(values)
    if not ordered:
        return None

    def rank(p: float) -> float:
        return ordered[min(len(ordered) - 1, math.ceil(p * len(ordered)) - 1)]

    return {
        "n": len(ordered),
        "avg": statistics.fmean(ordered),
        "p50": rank(0.5),
        "p90": rank(0.9),
        "p99": rank(0.99),
        "p99.9": rank(0.999),
        "max": ordered[-1],
    }


def mask_times(answer: dict[str, Any], text: int) -> list[float]:
    """Microseconds per mask of one text: the median over the repeats."""
    repeats = answer["texts"][text]["times"]
    return [statistics.median(times) / 1000 for times in zip(*repeats, strict=False)]


def _walked(run: EngineRun, job: dict[str, Any]) -> set[int]:
    texts = run.answers.get(job["id"], {}).get("texts", [])
    return {i for i, text in enumerate(texts) if text["verdict"] == "accepted"}


def summarise(
    runs: Sequence[EngineRun], jobs: Sequence[dict[str, Any]]
) -> tuple[dict[str, Any], dict[str, list[float]]]:
    """Figures per engine, and the times per mask behind them."""
    quick = [run for run in runs if run.engine in COMMON]
    common = {
        job["id"]: set.intersection(*(_walked(run, job) for run in quick)) if quick else set()
        for job in jobs
    }
    figures: dict[str, Any] = {
        "schemas": len(jobs),
        "common_texts": sum(map(len, common.values())),
        "engines": {},
    }
    all_times: dict[str, list[float]] = {}
    for run in runs:
        times: list[float] = []
        verdicts: Counter[str] = Counter()
        first: dict[str, float] = {}
        slowest: list[tuple[float, str]] = []
        for job in jobs:
            answer = run.answers.get(job["id"])
            if answer is None:
                continue
            failure = next((k for k in ("refused", "timeout", "crash") if k in answer), None)
            if failure is not None:
                verdicts[f"{failure} schemas"] += 1
                continue
            first[job["id"]] = statistics.median(answer["first"]) / 1e6
            for i, text in enumerate(job["texts"]):
                verdicts[_verdict(answer["texts"][i]["verdict"], text["valid"])] += 1
            for i in common[job["id"]] & _walked(run, job):
                own = mask_times(answer, i)
                times += own
                if own:
                    slowest.append((max(own), job["id"]))
        all_times[run.engine] = times
        slowest.sort(reverse=True)
        figures["engines"][run.engine] = {
            "version": run.version,
            "setup_seconds": round(run.setup_seconds, 2),
            "setup_memory_mib": round(run.setup_memory / 2**20, 1),
            "grown_mib": round(run.grown / 2**20, 1),
            "not_reached": run.skipped,
            "verdicts": dict(sorted(verdicts.items())),
            "first_mask_ms": percentiles(first.values()),
            "mask_us": percentiles(times),
            "slowest": [[round(t, 1), i] for t, i in slowest[:10]],
            "first": {i: round(t, 3) for i, t in first.items()},
        }
    _first_of_all(figures, quick)
    return figures, all_times


def _first_of_all(figures: dict[str, Any], quick: Sequence[EngineRun]) -> None:
    """Times to the first mask over the schemas that all quick engines compile."""
    firsts = {run.engine: figures["engines"][run.engine]["first"] for run in quick}
    shared = set.intersection(*(set(f) for f in firsts.values())) if firsts else set()
    figures["common_schemas"] = len(shared)
    for engine in figures["engines"].values():
        mine = engine.pop("first")
        engine["common_first_mask_ms"] = percentiles(mine[i] for i in shared if i in mine)
        engine["slowest_first"] = sorted(([t, i] for i, t in mine.items()), reverse=True)[:10]


def _verdict(said: str, valid: bool) -> str:
    if said in ("accepted", "rejected"):
        if (said == "accepted") == valid:
            return "right"
        return "false reject" if valid else "false accept"
    return said.split(":", 1)[0]


def _hard(runs: Sequence[EngineRun], jobs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    rows: dict[str, Any] = {}
    for job in jobs:
        row: dict[str, Any] = {}
        for run in runs:
            answer = run.answers.get(job["id"])
            if answer is None:
                row[run.engine] = {"outcome": "not reached"}
            elif "texts" not in answer or not answer["first"]:
                row[run.engine] = {
                    "outcome": next(k for k in ("refused", "timeout", "crash") if k in answer)
                }
            else:
                text = answer["texts"][0]["verdict"]
                row[run.engine] = {
                    "outcome": text,
                    "first_mask_ms": statistics.median(answer["first"]) / 1e6,
                    "mask_us": percentiles(mask_times(answer, 0)),
                }
                if answer.get("refused"):
                    row[run.engine]["outcome"] = "refused"
        rows[job["id"]] = row
    return rows


def main(arguments: list[str] | None = None) -> int:
    """Run the benchmark; see the module."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--schemas", type=int, default=100)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--clock", choices=("cpu", "wall"), default="cpu")
    parser.add_argument("--engines", default=",".join(ENGINES))
    parser.add_argument("--vocabularies", default=",".join(VOCABULARIES))
    parser.add_argument("--python", default=sys.executable, help="interpreter with the peers")
    parser.add_argument("--time-limit", type=float, default=10.0, help="seconds per schema")
    parser.add_argument("--engine-limit", type=float, default=90.0, help="seconds per engine")
    parser.add_argument("--out", type=Path, default=None, help="default: docs/results/masks.json")
    parser.add_argument("--no-docs", action="store_true", help="only print")
    options = parser.parse_args(arguments)
    engines = options.engines.split(",")
    if not options.no_docs and find_spec("matplotlib") is None:
        raise MissingExtra("matplotlib", "bench")  # now, not after the measurement
    chosen = "" if engines == list(ENGINES) else f" --engines {options.engines}"
    began = time.perf_counter()
    report: dict[str, Any] = {
        "command": f"{COMMAND} --schemas {options.schemas} --seed {options.seed} "
        f"--repeats {options.repeats} --clock {options.clock}{chosen}",
        "machine": describe_machine(),
        "common_engines": [e for e in engines if e in COMMON],
        "vocabularies": {},
    }
    times: dict[str, dict[str, list[float]]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for name in options.vocabularies.split(","):
            report["vocabularies"][name], times[name] = _one(name, engines, options, Path(folder))
    report["seconds"] = round(time.perf_counter() - began, 1)
    text = tables(report)
    print(text)
    if not options.no_docs:
        out = options.out or Path("docs/results/masks.json")
        write_report(out, report)
        plot(times, out.with_suffix(".svg"))
        if options.out is None:
            write_between_markers(Path("docs/masks.md"), COMMAND, text)
    return 0


def _one(
    name: str, engines: Sequence[str], options: argparse.Namespace, folder: Path
) -> tuple[dict[str, Any], dict[str, list[float]]]:
    vocab = load_vocabulary(name)
    vocabulary = folder / f"{name}.npz"
    write_vocabulary(vocab, vocabulary)
    sample, hard = maskbench_jobs(vocab, options.schemas, options.seed), hard_jobs(vocab)
    runs: dict[str, list[EngineRun]] = {}
    for kind, jobs in (("sample", sample), ("hard", hard)):
        file = folder / f"{name}-{kind}.jsonl"
        file.write_text("".join(json.dumps(job) + "\n" for job in jobs), encoding="utf-8")
        began = time.perf_counter()
        runs[kind] = run_engines(
            engines,
            options.python,
            vocabulary,
            file,
            repeats=options.repeats,
            clock=options.clock,
            time_limit=options.time_limit,
            engine_limit=options.engine_limit,
        )
        done = ", ".join(f"{run.engine} {len(run.answers)}" for run in runs[kind])
        print(
            f"{name} {kind}: {done} of {len(jobs)} schemas in {time.perf_counter() - began:.0f} s",
            file=sys.stderr,
            flush=True,
        )
    figures, times = summarise(runs["sample"], sample)
    figures["tokens"] = vocab.size
    figures["hard"] = _hard(runs["hard"], hard)
    return figures, times


if __name__ == "__main__":
    sys.exit(main())
