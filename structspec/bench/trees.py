"""What the rows of a draft tree cost in one call, for trees that drafts really propose.

    make bench-trees
    python -m structspec.bench.trees --tasks 12 --schemas 8

The default model answers tool-calling tasks and MaskBench prompts at temperature 1, and what its
drafts propose in each round is kept, in two runs:

- *eagle*: the head that ships samples 4 drafts of 8 tokens for the layered verifier, which makes 33
  rows with the one before them. Drafts may begin alike, and states repeat wherever text changes
  nothing, as inside a free string. Rounds in which a draft ends early are left out;
- *forks*: the deterministic tree of all branches where the grammar forks, where it has at least
  half as many rows.

Then each tree is gone through again on an empty cache that has only been led to its states: a
call of `Constraint.fill` with all rows. *One cold row* is the mean of the same rows made one by
one, each on a cache of its own that has only been led to its state. Processor time, medians of
`--repeats` runs. Tokens are the model's own (49,152): a draft's tree means nothing elsewhere.

Sibling: `startup` builds trees whose 33 states all differ, of random legal tokens. Writes
`docs/results/trees.json` and a table of `docs/masks.md`.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from structspec import settings
from structspec.bench.machine import describe_machine, on_machine
from structspec.bench.pages import markdown_table, write_between_markers, write_report
from structspec.bench.tasks import ToolTask, read_schema_tasks, read_tasks
from structspec.drafting import Draft, Drafter, DraftSource, Request, draft_source
from structspec.drafting.together import Plan, draft_alone, plan_of
from structspec.errors import StructspecError
from structspec.masks.constraint import Constraint

__all__ = ["DRAFTS", "Recorder", "Round", "alone", "lead", "main", "table", "together"]

COMMAND = "python -m structspec.bench.trees"
#: Drafts of a round, and tokens of each.
COUNT, LENGTH = 4, 8
#: Name -> how many drafts are asked for.
DRAFTS = {"eagle": COUNT, "forks": 1}
#: Rows of a sampled tree; a deterministic one has at least half of that.
ROWS = 1 + COUNT * LENGTH


@dataclass(frozen=True)
class Round:
    """What was drafted behind some committed text: token ids, those of each draft apart."""

    constraint: Constraint
    text: tuple[int, ...]
    drafts: tuple[tuple[int, ...], ...]

    def paths(self, length: int | None = None) -> list[tuple[int, ...]]:
        """Token paths to the rows: before the drafts and behind each of their tokens.

        length: tokens of each draft, and drafts then keep rows of their own for a beginning that
        they share, as verifiers that judge several drafts see them; None: all tokens, once.
        No row is behind an end token.
        """
        ends = self.constraint.vocab.eos_ids
        found = [self.text]
        for draft in self.drafts:
            for at, token in enumerate(draft[:length], 1):
                if token in ends:
                    break
                found.append((*self.text, *draft[:at]))
        return list(dict.fromkeys(found)) if length is None else found


class Recorder:
    """A draft source that keeps what another one proposes: `rounds`, of all its requests."""

    def __init__(self, source: DraftSource) -> None:
        self.rounds: list[Round] = []
        self._source = source

    def begin(self, request: Request) -> _Recording:
        """A drafter for one request."""
        return _Recording(self._source.begin(request), request, self.rounds)


class _Recording:
    def __init__(self, drafter: Drafter, request: Request, rounds: list[Round]) -> None:
        self._drafter = drafter
        self._request = request
        self._rounds = rounds

    def plan(self, state: int, context: Sequence[int], left: int, step: int, count: int) -> Plan:
        """What the drafter proposes, noted."""
        drafts = yield from plan_of(self._drafter, state, context, left, step, count)
        text = tuple(context[len(self._request.prompt) :])
        constraint: Any = self._request.constraint
        self._rounds.append(Round(constraint, text, tuple(draft.tokens for draft in drafts)))
        return drafts

    def propose_several(
        self, state: int, context: Sequence[int], left: int, step: int, count: int
    ) -> list[Draft]:
        """`count` drafts."""
        return draft_alone(self.plan(state, context, left, step, count))

    def propose(self, state: int, context: Sequence[int], left: int, step: int) -> Draft:
        """One draft."""
        return self.propose_several(state, context, left, step, 1)[0]

    def observe(self, draft: Draft, accepted: int) -> None:
        """Pass it on."""
        self._drafter.observe(draft, accepted)

    def close(self) -> None:
        """Pass it on."""
        close = getattr(self._drafter, "close", None)
        if close is not None:
            close()


def lead(c: Constraint, path: Sequence[int]) -> int:
    """The state behind some tokens."""
    state = c.start
    for token in path:
        state = c.advance(state, token)
    return state


def together(
    constraint: Constraint, paths: Sequence[Sequence[int]], out: NDArray[np.uint32], threads: int
) -> tuple[float, float]:
    """Processor and wall time, in µs, of one call for all rows on a cache led to their states."""
    c = constraint.with_cache(constraint.new_cache())
    states = [lead(c, path) for path in paths]
    before = settings.threads()
    settings.set_threads(threads)
    try:
        wall, cpu = time.perf_counter(), time.process_time()
        c.fill(states, out)
        cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    finally:
        settings.set_threads(before)
    return 1e6 * cpu, 1e6 * wall


def alone(constraint: Constraint, paths: Sequence[Sequence[int]], out: NDArray[np.uint32]) -> float:
    """Mean processor time of one row, in µs: each on a cache that was led to its state only."""
    found = [together(constraint, [path], out[:1], 1)[0] for path in paths]
    return statistics.fmean(found)


def measure(tree: Round, length: int | None, repeats: int) -> dict[str, float]:
    """Figures of one tree: rows, states, different rows; together and alone in µs (medians)."""
    paths, c = tree.paths(length), tree.constraint
    out = np.zeros((len(paths), -(-c.vocab.size // 32)), np.uint32)
    scout = c.with_cache(c.new_cache())
    states = {lead(scout, path) for path in paths}
    call = [together(c, paths, out, 1)[0] for _ in range(repeats)]
    row = [alone(c, paths, out[:1]) for _ in range(repeats)]
    return {
        "rows": len(paths),
        "states": len(states),
        "different": len({scout.mask(state).tobytes() for state in states}),
        "together": statistics.median(call),
        "alone": statistics.median(row),
    }


def table(report: Mapping[str, Any]) -> str:
    """The figures as Markdown, by draft and kind of prompt."""
    machine, lines = report["machine"], []
    for draft in DRAFTS:
        own = [tree for tree in report["trees"] if tree["draft"] == draft]
        for kind in [*sorted({tree["kind"] for tree in own}, reverse=True), "all"]:
            some = [tree for tree in own if kind in ("all", tree["kind"])]
            if not some:
                continue
            ratios = np.array([tree["together"] / tree["alone"] for tree in some])
            middle = {k: statistics.median(tree[k] for tree in some) for k in some[0] if k in _KEYS}
            lines.append(
                [
                    draft,
                    kind,
                    str(len(some)),
                    *(f"{middle[k]:.0f}" for k in _KEYS[:3]),
                    f"{middle['together']:.0f}",
                    f"{middle['alone']:.1f}",
                    *(f"{np.quantile(ratios, q):.1f}" for q in (0.5, 0.9, 1)),
                    f"{100 * np.mean(ratios <= 4):.0f} %",
                ]
            )
    head = ["draft", "prompts", "trees", "rows", "states", "different rows", "the call, µs"]
    head += ["one cold row, µs", "ratio, median", "p90", "worst", "≤ 4"]
    return (
        f"{on_machine(machine)}, numba {machine['packages']['numba']}, "
        f"{report['tokens']:,} tokens; `{report['command']}`.\n\n" + markdown_table(head, lines)
    )


_KEYS = ("rows", "states", "different", "together", "alone")


def record(model: Any, task: ToolTask, draft: str, max_tokens: int) -> list[Round]:
    """The rounds of one answer whose trees are to be measured (see the module)."""
    from structspec.api import generate

    source: Any = draft_source(draft)
    count = DRAFTS[draft]
    if count > 1:
        source = replace(source, length=LENGTH, max_length=LENGTH, adaptive=False)
    recorder = Recorder(source)
    generate(
        model,
        task.messages,
        task.schema,
        draft=recorder,
        draft_count=count,
        temperature=1.0,
        max_tokens=max_tokens,
        seed=0,
    )
    if count == 1:
        return [tree for tree in recorder.rounds if 2 * len(tree.paths()) > ROWS]
    return [tree for tree in recorder.rounds if len(tree.paths(LENGTH)) == ROWS]


def main(arguments: list[str] | None = None) -> int:
    """Run the benchmark; see the module."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--tasks", type=int, default=12, help="tool-calling tasks")
    parser.add_argument("--schemas", type=int, default=8, help="MaskBench prompts")
    parser.add_argument("--trees", type=int, default=12, help="of each answer, at most")
    parser.add_argument("--max-tokens", type=int, default=96)
    parser.add_argument("--repeats", type=int, default=5, help="runs of each tree")
    parser.add_argument("--seed", type=int, default=7, help="of the sample of trees")
    parser.add_argument("--threads", type=int, default=1, help="torch threads")
    parser.add_argument("--no-docs", action="store_true", help="only print")
    options = parser.parse_args(arguments)
    import torch
    from rich.progress import track

    from structspec.models import load

    torch.set_num_threads(options.threads)
    model = load("default", dtype="float32", prefix_cache=0, history=False)
    tasks = [*read_tasks(options.tasks), *read_schema_tasks(options.schemas)]
    chosen: list[tuple[ToolTask, str, Round]] = []
    rng = random.Random(options.seed)
    for task in track(tasks, description="answers", transient=True):
        for draft in DRAFTS:
            try:
                rounds = record(model, task, draft, options.max_tokens)
            except StructspecError as error:
                print(f"{task.id}, {draft}: {error}", file=sys.stderr)
                continue
            some = rng.sample(rounds, min(options.trees, len(rounds)))
            chosen += [(task, draft, tree) for tree in some]
    trees: list[dict[str, Any]] = []
    for task, draft, tree in track(chosen, description="trees", transient=True):
        length = LENGTH if DRAFTS[draft] > 1 else None
        found = measure(tree, length, options.repeats)
        trees.append({"task": task.id, "kind": task.kind, "draft": draft, **found})
    report = {
        "command": f"{COMMAND} --tasks {options.tasks} --schemas {options.schemas} "
        f"--trees {options.trees} --repeats {options.repeats}",
        "machine": describe_machine(),
        "model": model.name,
        "tokens": model.vocab.size,
        "trees": trees,
    }
    text = table(report)
    print(text)
    if not options.no_docs:
        write_report(Path("docs/results/trees.json"), report)
        write_between_markers(Path("docs/masks.md"), COMMAND, text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
