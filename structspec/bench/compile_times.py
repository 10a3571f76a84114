"""From schema text to the first mask, on every schema of MaskBench's open half.

    make bench-compile
    python -m structspec.bench.compile_times --python .venv-peers/bin/python

Every engine runs in a process of its own over the same schemas and token ids, and compiles each
schema once, with no cache between schemas; the time ends with the first row. Engines take turns,
schema by schema, so that a busy moment of the machine counts for all.
Times are CPU time of the process by default, so that other programs on the machine do not count.
They are compared over the schemas that both engines of a ratio compile. Which engine is *right* on
these schemas is the suites' matter (docs/suites.md); this only counts what is refused.

Writes `docs/results/compile_times.json` and a table of `docs/masks.md`.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from structspec.bench.machine import describe_machine, on_machine
from structspec.bench.masks import percentiles
from structspec.bench.masks_jobs import (
    VOCABULARIES,
    load_vocabulary,
    maskbench_jobs,
    write_vocabulary,
)
from structspec.bench.masks_run import EngineRun, run_engines
from structspec.bench.pages import (
    markdown_number,
    markdown_table,
    write_between_markers,
    write_report,
)

__all__ = ["main", "summarise", "table"]

COMMAND = "python -m structspec.bench.compile_times"
_PERCENTILES = ("avg", "p50", "p90", "p99", "p99.9", "max")
_FAILURES = ("refused", "timeout", "crash")


def summarise(runs: Sequence[EngineRun]) -> dict[str, Any]:
    """Figures per engine, and how the first engine compares with each of the others."""
    first: dict[str, dict[str, float]] = {}
    figures: dict[str, Any] = {"engines": {}, "pairs": {}}
    for run in runs:
        failed = {
            kind: sum(1 for answer in run.answers.values() if kind in answer) for kind in _FAILURES
        }
        first[run.engine] = {
            job: answer["first"][0] / 1e6
            for job, answer in run.answers.items()
            if answer.get("first") and not any(kind in answer for kind in _FAILURES)
        }
        figures["engines"][run.engine] = {
            "version": run.version,
            "grown_mib": round(run.grown / 2**20, 1),
            "not_reached": run.skipped,
            **failed,
            "over_1_s": sum(1 for t in first[run.engine].values() if t > 1000),
            "first_mask_ms": percentiles(first[run.engine].values()),
            "slowest": sorted(
                ([round(t, 1), job] for job, t in first[run.engine].items()), reverse=True
            )[:20],
        }
    for other in runs[1:]:
        mine, theirs = first[runs[0].engine], first[other.engine]
        shared = sorted(mine.keys() & theirs.keys())
        figures["pairs"][other.engine] = {
            "schemas": len(shared),
            "mine": percentiles(mine[job] for job in shared),
            "theirs": percentiles(theirs[job] for job in shared),
        }
    return figures


def table(report: Mapping[str, Any]) -> str:
    """The figures as Markdown."""
    machine, figures = report["machine"], report["figures"]
    rows = []
    for engine, found in figures["engines"].items():
        times = found["first_mask_ms"]
        cells = [markdown_number(times[p]) for p in _PERCENTILES] if times else ["–"] * 6
        counts = [str(found[kind]) for kind in ("over_1_s", *_FAILURES, "not_reached")]
        rows.append([f"{engine} {found['version']}", *cells, *counts])
    for other, pair in figures["pairs"].items():
        if pair["mine"] and pair["theirs"]:
            ratios = [f"{pair['mine'][p] / pair['theirs'][p]:.2f}" for p in _PERCENTILES]
            label = f"*{next(iter(figures['engines']))} / {other}* over {pair['schemas']:,}"
            rows.append([label, *ratios, *[""] * 5])
    head = ["ms", *_PERCENTILES, "over 1 s", *_FAILURES, "not reached"]
    return (
        f"{on_machine(machine)}; "
        f"`{report['command']}`; {report['schemas']:,} schemas, {report['tokens']:,} tokens.\n\n"
        + markdown_table(head, rows)
    )


def main(arguments: list[str] | None = None) -> int:
    """Run the benchmark; see the module."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--schemas", type=int, default=1_000_000, help="a seeded sample of so many")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--clock", choices=("cpu", "wall"), default="cpu")
    parser.add_argument("--engines", default="structspec,llguidance")
    parser.add_argument("--vocabulary", choices=sorted(VOCABULARIES), default="tekken-131k")
    parser.add_argument("--python", default=sys.executable, help="interpreter with the peers")
    parser.add_argument("--time-limit", type=float, default=20.0, help="seconds per schema")
    parser.add_argument("--engine-limit", type=float, default=3600.0, help="seconds per engine")
    parser.add_argument("--no-docs", action="store_true", help="only print")
    options = parser.parse_args(arguments)
    vocab = load_vocabulary(options.vocabulary)
    jobs = maskbench_jobs(vocab, options.schemas, options.seed, texts=False)
    with tempfile.TemporaryDirectory() as folder:
        vocabulary, file = Path(folder) / "vocabulary.npz", Path(folder) / "jobs.jsonl"
        write_vocabulary(vocab, vocabulary)
        file.write_text("".join(json.dumps(job) + "\n" for job in jobs), encoding="utf-8")
        runs = run_engines(
            options.engines.split(","),
            options.python,
            vocabulary,
            file,
            repeats=1,
            clock=options.clock,
            time_limit=options.time_limit,
            engine_limit=options.engine_limit,
        )
    for run in runs:
        print(f"{run.engine}: {len(run.answers)} of {len(jobs)}", file=sys.stderr, flush=True)
    whole = "" if len(jobs) < options.schemas else f" --schemas {options.schemas}"
    others = "" if options.engines == "structspec,llguidance" else f" --engines {options.engines}"
    report = {
        "command": f"{COMMAND} --vocabulary {options.vocabulary} --clock {options.clock}"
        f"{whole}{others}",
        "machine": describe_machine(),
        "schemas": len(jobs),
        "tokens": vocab.size,
        "figures": summarise(runs),
    }
    text = table(report)
    print(text)
    if not options.no_docs:
        write_report(Path("docs/results/compile_times.json"), report)
        write_between_markers(Path("docs/masks.md"), COMMAND, text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
