"""What a batch gains when its requests share draft forwards.

Decodes the same tool-calling tasks in batches of several sizes, twice each: drafts of a round made
together, one call of the draft per depth, and each by itself. Both write the same texts up to
rounding. CPU seconds are counted, not wall-clock, and the two take turns, so that another process
on the machine disturbs both alike. The first two rounds of each batch, in which the target and then
the head read the prompts, are left out.

Example: `python -m structspec.bench.batches --sizes 1 4 8 --json docs/results/batches.json`
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from structspec.bench.machine import describe_machine
from structspec.bench.pages import write_report
from structspec.bench.tasks import ToolTask, read_tasks
from structspec.decoding import loop as decoding_loop
from structspec.decoding.calibration import calibrate
from structspec.drafting.together import draft_together
from structspec.errors import StructspecError
from structspec.kept_grammars import compiled
from structspec.prompt import encode_prompt

__all__ = ["main", "measure"]


class Clock:
    """Stands in for `draft_together`: counts its CPU seconds, together or each plan alone."""

    def __init__(self, together: bool) -> None:
        self.together = together
        self.seconds = 0.0

    def __call__(self, plans: Sequence[Any]) -> tuple[list[Any], list[float]]:
        """See `draft_together`."""
        began = time.process_time()
        if self.together:
            found = draft_together(plans)
        else:
            each = [draft_together([plan]) for plan in plans]
            found = [outcomes[0] for outcomes, _ in each], [seconds[0] for _, seconds in each]
        self.seconds += time.process_time() - began
        return found


def measure(
    model: Any, tasks: Sequence[ToolTask], draft: Any, size: int, together: bool, options: Any
) -> dict[str, float]:
    """CPU seconds and tokens of all tasks in batches of `size`, prompts left out."""
    clock = Clock(together)
    plain, decoding_loop.draft_together = decoding_loop.draft_together, clock
    tokens, seconds, drafting = 0, 0.0, 0.0
    try:
        for first in range(0, len(tasks), size):
            loop = decoding_loop.Loop(
                model,
                [
                    _job(model, task, first + i, options)
                    for i, task in enumerate(tasks[first : first + size])
                ],
                draft=draft,
                batch_size=size,
            )
            more = loop.step() and loop.step()
            before = _written(loop)
            clock.seconds = 0.0
            began = time.process_time()
            while more:
                more = loop.step()
            seconds += time.process_time() - began
            drafting += clock.seconds
            tokens += _written(loop) - before
    finally:
        decoding_loop.draft_together = plain
    return {"tokens": tokens, "seconds": seconds, "draft_seconds": drafting}


def _written(loop: Any) -> int:
    outputs = loop.partial_outputs()
    return sum(len(o.tokens) for o in outputs if not isinstance(o, StructspecError) and o)


def _milliseconds(source: Any) -> dict[str, float] | None:
    costs = getattr(source, "costs", None)
    if costs is None:
        return None
    return {name: round(1e3 * value, 2) for name, value in asdict(costs).items()}


def _job(model: Any, task: ToolTask, number: int, options: Any) -> Any:
    from structspec.decoding.progress import Job
    from structspec.forward.warp import Sampling

    return Job(
        encode_prompt(model, task.messages).ids,
        compiled(task.schema, {}).bind(model.vocab),
        Sampling(temperature=options.temperature),
        options.max_tokens,
        seed=0,
        request=number,
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print a table, and write JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--tasks", type=int, default=8)
    parser.add_argument("--sizes", type=int, nargs="+", default=[1, 4, 8])
    parser.add_argument("--drafts", nargs="+", default=["eagle"])
    parser.add_argument("--max-tokens", type=int, default=48)
    parser.add_argument("--temperature", type=float, default=1.0)
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args(arguments)

    import torch

    from structspec.models import load

    torch.set_num_threads(options.threads)
    model = load("default", dtype="float32", prefix_cache=0, history=False)
    pool = sorted(read_tasks(4 * options.tasks), key=lambda task: len(str(task.messages)))
    tasks = pool[: options.tasks]
    rows = []
    for draft in options.drafts:
        for size in options.sizes:
            sums: dict[bool, dict[str, float]] = {}
            name, _, calibrated = draft.partition("+")
            source = calibrate(model, name, batch_size=size) if calibrated else name
            for repeat in range(options.repeats):
                for together in (True, False) if repeat % 2 else (False, True):
                    found = measure(model, tasks, source, size, together, options)
                    known = sums.setdefault(together, dict.fromkeys(found, 0.0))
                    for name, value in found.items():
                        known[name] += value
            for together, total in sorted(sums.items()):
                row = {
                    "draft": draft,
                    "costs_ms": _milliseconds(source),
                    "batch_size": size,
                    "drafts": "together" if together else "apart",
                    "tokens": int(total["tokens"]),
                    "tokens_per_cpu_second": round(total["tokens"] / total["seconds"], 2),
                    "draft_ms_per_token": round(1e3 * total["draft_seconds"] / total["tokens"], 2),
                    "ms_per_token": round(1e3 * total["seconds"] / total["tokens"], 2),
                }
                rows.append(row)
                print("  ".join(f"{k}={v}" for k, v in row.items()), flush=True)
    if options.json is not None:
        report = {
            "machine": describe_machine(),
            "threads": options.threads,
            "tasks": len(tasks),
            "max_tokens": options.max_tokens,
            "temperature": options.temperature,
            "repeats": options.repeats,
            "rows": rows,
        }
        write_report(options.json, report)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
