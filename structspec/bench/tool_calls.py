"""Tokens per target forward and wall-clock on tool-calling tasks, plain beside speculative.

    python -m structspec.bench.tool_calls --tasks 50 --json docs/results/tool_calls.json
    python -m structspec.bench.tool_calls --tasks 50 --temperature 1

Each task is answered by the same model, with and without drafts, in one run, greedily or sampled
with the same seed; the texts must be identical. Where they are not, the logits of the two tokens at
the first difference are reported: with batched arithmetic a tie may break differently, and where a
text is sampled so may a draw that lies within the rounding of a threshold (one text in fifty may).
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from structspec.bench.machine import describe_machine
from structspec.bench.pages import write_report
from structspec.bench.tasks import ToolTask, read_tasks
from structspec.errors import TokenBudgetError

#: Two logits closer than this count as a tie in float32 (rounding of a 576-wide dot product).
TIE = 1e-3


@dataclass(frozen=True)
class Comparison:
    """One task answered twice. `gap`: logit distance at the first difference, if there is one."""

    id: str
    tokens: int
    plain_seconds: float
    plain_forwards: int
    seconds: float
    forwards: int
    drafted: int
    accepted: int
    forced: int
    model_seconds: float
    mask_seconds: float
    draft_seconds: float
    verify_seconds: float
    identical: bool
    first_difference: int | None = None
    gap: float | None = None

    @property
    def is_tie(self) -> bool:
        """Whether the texts differ only because two logits were equal up to rounding."""
        return self.gap is not None and self.gap < TIE


def compare(
    model: Any,
    task: ToolTask,
    *,
    draft: str = "auto",
    max_tokens: int = 256,
    temperature: float = 0.0,
) -> Comparison:
    """Answer a task plainly and speculatively; see `Comparison`."""
    from structspec.api import generate

    common: dict[str, Any] = {"max_tokens": max_tokens, "temperature": temperature, "seed": 0}
    plain = generate(model, task.messages, task.schema, draft=None, **common)
    fast = generate(model, task.messages, task.schema, draft=draft, **common)
    difference, gap = None, None
    if plain.tokens != fast.tokens:
        difference = next(
            (i for i, (a, b) in enumerate(zip(plain.tokens, fast.tokens, strict=False)) if a != b),
            min(len(plain.tokens), len(fast.tokens)),
        )
        gap = _gap(model, task, plain.tokens, fast.tokens, difference)
    stats = fast.stats
    return Comparison(
        id=task.id,
        tokens=stats.tokens,
        plain_seconds=plain.stats.total_time,
        plain_forwards=plain.stats.forwards,
        seconds=stats.total_time,
        forwards=stats.forwards,
        drafted=stats.drafted,
        accepted=stats.accepted,
        forced=stats.forced,
        model_seconds=stats.model_time,
        mask_seconds=stats.mask_time,
        draft_seconds=stats.draft_time,
        verify_seconds=stats.verify_time,
        identical=plain.tokens == fast.tokens,
        first_difference=difference,
        gap=gap,
    )


def _gap(
    model: Any, task: ToolTask, plain: Sequence[int], fast: Sequence[int], at: int
) -> float | None:
    """Distance of the logits of the two tokens that were chosen at position `at`."""
    import torch

    from structspec.prompt import encode_prompt

    if at >= len(plain) or at >= len(fast):
        return None
    ids = [*encode_prompt(model, task.messages).ids, *plain[:at]]
    with torch.inference_mode():
        logits = model.model(torch.tensor([ids], device=model.device)).logits[0, -1]
    return abs(float(logits[plain[at]] - logits[fast[at]]))


def summarise(rows: Sequence[Comparison]) -> dict[str, Any]:
    """Means and ratios over all tasks."""
    tokens, forwards = sum(r.tokens for r in rows), sum(r.forwards for r in rows)
    return {
        "tasks": len(rows),
        "tokens": tokens,
        "tokens_per_forward": tokens / forwards,
        "plain_tokens_per_forward": tokens / sum(r.plain_forwards for r in rows),
        "accepted_per_drafted": sum(r.accepted for r in rows)
        / max(1, sum(r.drafted for r in rows)),
        "forced_share": sum(r.forced for r in rows) / tokens,
        "speedup_median": statistics.median(r.plain_seconds / r.seconds for r in rows),
        "speedup_total": sum(r.plain_seconds for r in rows) / sum(r.seconds for r in rows),
        "share_of_time": {
            part: sum(getattr(r, f"{part}_seconds") for r in rows) / sum(r.seconds for r in rows)
            for part in ("model", "mask", "draft", "verify")
        },
        "identical": sum(r.identical for r in rows),
        "ties": sum(r.is_tie for r in rows),
        "different": sum(not r.identical and not r.is_tie for r in rows),
    }


def main(arguments: list[str] | None = None) -> int:
    """Run the comparison; exit code 1 if any text differs without a tie."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tasks", type=int, default=50)
    parser.add_argument("--model", default="default")
    parser.add_argument("--draft", default="auto")
    parser.add_argument("--max-tokens", type=int, default=256)
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("--threads", type=int, default=1, help="torch threads")
    parser.add_argument("--json", type=Path, default=None)
    options = parser.parse_args(arguments)
    import torch
    from rich.progress import Progress

    from structspec.models import load

    torch.set_num_threads(options.threads)
    model = load(options.model, dtype="float32", prefix_cache=0, history=False)
    rows: list[Comparison] = []
    started = time.perf_counter()
    with Progress(transient=True) as progress:
        bar = progress.add_task("tasks", total=options.tasks)
        for task in read_tasks(2 * options.tasks):
            if len(rows) == options.tasks:
                break
            try:
                row = compare(
                    model,
                    task,
                    draft=options.draft,
                    max_tokens=options.max_tokens,
                    temperature=options.temperature,
                )
            except TokenBudgetError:  # its shortest answer is longer than that: another one
                continue
            rows.append(row)
            progress.advance(bar)
            if not row.identical:
                kind = "tie" if row.is_tie else "DIFFERENT"
                progress.console.print(
                    f"{row.id}: {kind} at token {row.first_difference}, logit gap {row.gap}"
                )
    summary = summarise(rows)
    print(json.dumps(summary, indent=2))
    if options.json:
        report = {
            "command": "python -m structspec.bench.tool_calls "
            f"--tasks {options.tasks} --draft {options.draft} --max-tokens {options.max_tokens} "
            f"--temperature {options.temperature:g}",
            "machine": {**describe_machine(), "torch_threads": torch.get_num_threads()},
            "model": model.name,
            "seconds": round(time.perf_counter() - started, 1),
            "summary": summary,
            "tasks": [asdict(row) for row in rows],
        }
        write_report(options.json, report)
    may_differ = len(rows) // 50 if options.temperature else 0
    return 1 if summary["different"] > may_differ else 0


if __name__ == "__main__":
    sys.exit(main())
