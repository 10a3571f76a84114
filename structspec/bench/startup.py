"""How long the first mask takes in a fresh process, and what small things cost afterwards.

    make bench-startup
    python -m structspec.bench.startup [--cold]

- *import*: `import structspec`, and all that compiling and binding a schema imports;
- *first mask, warm*: a fresh interpreter up to the first row, its machine code on disk. Once with a
  vocabulary of 932 tokens and once with tekken's 131,072, read from a plain file (reading a
  tokenizer's own file is the tokenizer library's matter);
- *first mask, cold* (`--cold`): the same with an empty disk cache: all kernels are compiled;
- *33 different states*: a call of `Constraint.fill` with 33 states, no two alike, that have no row
  yet (a text's next tokens, and two random legal tokens beside each), against the same rows made
  one by one, each on a cache that has only been led to its state: the mean of those is a row's cold
  cost. States are reached before the clock starts. Schemas are MaskBench's, medians over several
  such trees of each. No draft proposes such trees (`trees` measures those that drafts do);
- *repeated*: a row that is kept, from Python, and a step along a text that was walked before;
- *threads*: the call with 33 different states, with one thread and with two.

Wall times are what a user waits; the processor times beside them do not depend on what else runs.
Writes `docs/results/startup.json` and a table of `docs/masks.md`.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import structspec
from structspec import settings
from structspec.bench.machine import describe_machine, on_machine
from structspec.bench.masks_jobs import load_vocabulary, maskbench_jobs, write_vocabulary
from structspec.bench.pages import markdown_table, write_between_markers, write_report
from structspec.bench.trees import alone, lead, together
from structspec.masks.constraint import Constraint
from structspec.vocab import Vocabulary

__all__ = ["draft_tree", "fresh_process", "main", "rows_of_trees", "small_things", "table"]

COMMAND = "python -m structspec.bench.startup"
#: Rows of a tree.
ROWS = 33
_SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer", "minimum": 0}},
    "required": ["name"],
}
_CHILD = """
import sys, time
began = time.perf_counter(), time.process_time()
import structspec
bare = time.perf_counter(), time.process_time()
structspec.compile, structspec.Vocabulary, structspec.Constraint
core = time.perf_counter(), time.process_time()
if len(sys.argv) > 2:
    from pathlib import Path
    from structspec.bench.masks_worker import read_vocabulary
    read = read_vocabulary(Path(sys.argv[2]))
    tokens, ends = read.tokens, read.eos_ids
else:
    letters = range(97, 123)
    tokens = [bytes((b,)) for b in range(256)] + [bytes((a, b)) for a in letters for b in letters]
    ends = [len(tokens)]
    tokens.append(None)
import json
vocab = structspec.Vocabulary(tokens, ends)
ready = time.perf_counter(), time.process_time()
constraint = structspec.compile(json.loads(sys.argv[1])).bind(vocab)
constraint.mask(constraint.start)
done = time.perf_counter(), time.process_time()
points = {"bare": bare, "core": core, "ready": ready, "done": done}
print(json.dumps({name: [t[k] - began[k] for k in (0, 1)] for name, t in points.items()}))
"""


def fresh_process(
    vocabulary: Path | None = None, environment: Mapping[str, str] | None = None
) -> dict[str, float]:
    """Seconds of a new interpreter up to its first mask.

    bare, core, first: after the imports and the first row, counted from the first line; whole: from
    starting the interpreter to its end. `..._cpu`: processor time, of all processes in `whole_cpu`.
    """
    command = [sys.executable, "-c", _CHILD, json.dumps(_SCHEMA)]
    if vocabulary is not None:
        command.append(str(vocabulary))
    # An installed package has its bytecode on disk; numba's folder stays where it is.
    child = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    child["PYTHONPATH"] = os.pathsep.join(path or os.getcwd() for path in sys.path)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    began = time.perf_counter()
    answer = subprocess.run(
        command, env={**child, **(environment or {})}, check=True, capture_output=True, text=True
    )
    whole = time.perf_counter() - began
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    points = json.loads(answer.stdout.splitlines()[-1])
    reading = [points["ready"][k] - points["core"][k] for k in (0, 1)]
    found = {
        "whole": whole,
        "whole_cpu": after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime,
    }
    for name, point, less in (
        ("bare", "bare", (0, 0)),
        ("core", "core", (0, 0)),
        ("first", "done", reading),  # making the list of tokens is not ours
    ):
        found[name] = points[point][0] - less[0]
        found[f"{name}_cpu"] = points[point][1] - less[1]
    return found


def draft_tree(
    c: Constraint, ids: Sequence[int], begin: int, rng: random.Random
) -> list[list[int]]:
    """Token paths to `ROWS` different states: along a text, and two random ones beside each."""
    paths: list[list[int]] = []
    states: set[int] = set()
    state = c.start
    for at, token in enumerate(ids):
        if at >= begin:
            here = list(ids[:at])
            allowed = [t for t in c.allowed(state).tolist() if t not in c.vocab.eos_ids]
            others = rng.sample(allowed, min(2, len(allowed)))
            for path in (here, *([*here, other] for other in others)):
                reached = lead(c, path)
                if reached not in states and len(paths) < ROWS:
                    states.add(reached)
                    paths.append(path)
        if len(paths) == ROWS:
            break
        state = c.advance(state, token)
    return paths


def rows_of_trees(
    constraint: Constraint, ids: Sequence[int], rng: random.Random, trees: int, threads: int
) -> dict[str, float] | None:
    """Medians over trees, in µs of processor time: a call for all rows, and a row's cold cost.

    None if the text is too short for a tree. together_wall, threads_wall: wall time of the call
    with one thread and with `threads`.
    """
    found: dict[str, list[float]] = {k: [] for k in ("together", "wall", "threads", "alone")}
    out = np.zeros((ROWS, -(-constraint.vocab.size // 32)), np.uint32)
    for _ in range(trees):
        scout = constraint.with_cache(constraint.new_cache())
        begin = rng.randrange(max(1, len(ids) - ROWS // 2))
        paths = draft_tree(scout, ids, begin, rng)
        if len(paths) < ROWS:
            continue
        cpu, wall = together(constraint, paths, out, 1)
        found["together"].append(cpu)
        found["wall"].append(wall)
        found["threads"].append(together(constraint, paths, out, threads)[1])
        found["alone"].append(alone(constraint, paths, out))
    if not found["together"]:
        return None
    return {name: statistics.median(values) for name, values in found.items()}


def small_things(constraint: Constraint, ids: Sequence[int]) -> dict[str, float]:
    """Medians in µs of processor time: a kept row (`mask`, `fill` of one), and `advance`."""
    states = [constraint.start]
    for token in ids:
        states.append(constraint.advance(states[-1], token))
    out = np.zeros((1, -(-constraint.vocab.size // 32)), np.uint32)
    for state in states:
        constraint.mask(state)
    steps = list(zip(states, ids, strict=False))
    one = [[state] for state in states]
    timed: dict[str, list[float]] = {"mask": [], "fill": [], "advance": []}
    for _ in range(9):
        began = time.process_time()
        for _ in range(5):
            for state in states:
                constraint.mask(state)
        timed["mask"].append((time.process_time() - began) / (5 * len(states)))
        began = time.process_time()
        for _ in range(5):
            for lone in one:
                constraint.fill(lone, out)
        timed["fill"].append((time.process_time() - began) / (5 * len(states)))
        began = time.process_time()
        for _ in range(5):
            for state, token in steps:
                constraint.advance(state, token)
        timed["advance"].append((time.process_time() - began) / (5 * len(steps)))
    return {name: 1e6 * statistics.median(values) for name, values in timed.items()}


def table(report: Mapping[str, Any]) -> str:
    """The figures as Markdown."""
    machine, rows = report["machine"], []

    def seconds(label: str, runs: Sequence[Mapping[str, float]], name: str, aim: str) -> None:
        if runs:
            wall = statistics.median(run[name] for run in runs)
            cpu = statistics.median(run[f"{name}_cpu"] for run in runs)
            rows.append([label, f"{wall:.2f} s", f"{cpu:.2f} s", aim])

    small, large, cold = report["warm"], report["warm_tekken"], report["cold"]
    seconds("`import structspec`", small, "bare", "≤ 0.4 s")
    seconds("import all that compiling and binding need", small, "core", "")
    seconds("first mask, warm disk", small, "first", "≤ 1 s")
    seconds("the same with the interpreter's start and end", small, "whole", "")
    seconds("first mask, warm disk, 131,072 tokens", large, "first", "")
    seconds(f"first mask, empty disk, {report['processes']} processes", cold, "whole", "≤ 45 s")
    trees = report["trees"].values()
    if trees:
        ratios = sorted(tree["together"] / tree["alone"] for tree in trees)
        together = statistics.median(tree["together"] for tree in trees)
        rows.append(
            [
                f"{ROWS} rows of different states in one call, over one cold row "
                f"(131,072 tokens, median of {len(ratios)} schemas; worst {ratios[-1]:.1f})",
                "",
                f"{statistics.median(ratios):.1f}",
                "≤ 4",
            ]
        )
        rows.append(["that call", "", f"{together:.0f} µs", ""])
        gains = [tree["wall"] / tree["threads"] for tree in trees]
        rows.append(
            [
                f"how much quicker it is with {report['threads']} threads (median)",
                f"{statistics.median(gains):.2f}",
                "",
                "",
            ]
        )
    for name, label in (
        ("mask", "a repeated state, `mask`"),
        ("fill", "a repeated state, `fill` of one row"),
        ("advance", "`advance`, a token"),
    ):
        found = [things[name] for things in report["small"].values()]
        if found:
            rows.append([label, "", f"{statistics.median(found):.2f} µs", "≤ 2 µs"])
    return (
        f"{on_machine(machine)}, numba "
        f"{machine['packages']['numba']}; `{report['command']}`.\n\n"
        + markdown_table(["", "wall", "processor", "aim"], rows)
    )


def main(arguments: list[str] | None = None) -> int:
    """Run the benchmark; see the module."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=7, help="fresh processes with a warm disk")
    parser.add_argument("--cold", action="store_true", help="also with an empty disk cache")
    parser.add_argument("--schemas", type=int, default=12, help="for draft trees")
    parser.add_argument("--trees", type=int, default=5, help="draft trees of each schema")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--no-docs", action="store_true", help="only print")
    options = parser.parse_args(arguments)
    vocab = load_vocabulary("tekken-131k")
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "vocabulary.npz"
        write_vocabulary(vocab, file)
        for where in (None, file):  # compiles what is missing, writes the bytecode
            fresh_process(where)
        warm = [fresh_process() for _ in range(options.runs)]
        large = [fresh_process(file) for _ in range(options.runs)]
        cold = []
        if options.cold:
            empty = {"NUMBA_CACHE_DIR": str(Path(folder) / "machine-code")}
            cold = [fresh_process(None, empty)]
    trees, small = _trees(vocab, options)
    report = {
        "command": f"{COMMAND}{' --cold' if options.cold else ''} --runs {options.runs} "
        f"--schemas {options.schemas} --trees {options.trees}",
        "machine": describe_machine(),
        "structspec": structspec.__version__,
        "processes": settings.compile_processes(),
        "threads": options.threads,
        "warm": warm,
        "warm_tekken": large,
        "cold": cold,
        "trees": trees,
        "small": small,
    }
    text = table(report)
    print(text)
    if not options.no_docs:
        write_report(Path("docs/results/startup.json"), report)
        write_between_markers(Path("docs/masks.md"), COMMAND, text)
    return 0


def _trees(vocab: Vocabulary, options: argparse.Namespace) -> tuple[dict[str, Any], dict[str, Any]]:
    """Figures of draft trees and of small things, by schema."""
    rng = random.Random(options.seed)
    trees: dict[str, Any] = {}
    small: dict[str, Any] = {}
    for job in maskbench_jobs(vocab, 20 * options.schemas, options.seed):
        texts = [text["ids"] for text in job["texts"] if text["valid"] and len(text["ids"]) > ROWS]
        if not texts or len(trees) == options.schemas:
            continue
        try:
            constraint = structspec.compile(job["schema"]).bind(vocab)
            found = rows_of_trees(constraint, texts[0], rng, options.trees, options.threads)
            if found is not None:
                trees[job["id"]] = found
                small[job["id"]] = small_things(constraint, texts[0])
        except structspec.StructspecError:
            continue
    return trees, small


if __name__ == "__main__":
    sys.exit(main())
