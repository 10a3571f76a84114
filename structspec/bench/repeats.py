"""What it saves to remember what earlier answers of the same type wrote.

Seven functions are called again and again (`repeats_tasks`); each call is answered by two models,
the same network with and without `Model.history`, in turns, greedily and sampled at temperature 1
with a seed for each call. Both write the same texts unless a tie is broken differently, which is
counted. Everything else is as `structspec.load` makes it: both keep what prompts began with.

    make bench-repeats
    python -m structspec.bench.repeats --calls 24

Writes `docs/results/repeats.json` and a table of `docs/decoding.md`.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Mapping, Sequence
from typing import Any

from structspec.bench.bootstrap import interval
from structspec.bench.pages import markdown_table, write_measured
from structspec.bench.repeats_tasks import Repeated, repeated

__all__ = ["answer", "main", "table"]

COMMAND = "python -m structspec.bench.repeats"


def answer(
    models: Mapping[str, Any], work: Repeated, max_tokens: int, temperature: float = 0.0
) -> list[dict[str, Any]]:
    """All calls of one function, each answered by every model; who is first alternates."""
    from structspec.api import generate

    names = list(models)
    found = []
    for call, prompt in enumerate(work.prompts):
        row: dict[str, Any] = {
            "temperature": temperature,
            "function": work.name,
            "call": call + 1,
        }
        texts = []
        for name in names if call % 2 else names[::-1]:
            began = time.perf_counter()
            result = generate(
                models[name],
                prompt,
                work.schema,
                temperature=temperature,
                seed=call,
                max_tokens=max_tokens,
            )
            row[name] = {
                "seconds": time.perf_counter() - began,
                "forwards": result.stats.forwards,
                "drafted": result.stats.drafted,
                "accepted": result.stats.accepted,
            }
            row |= {"tokens": result.stats.tokens, "prompt": result.stats.prompt_tokens}
            texts.append(result.text)
        row["equal"] = len(set(texts)) == 1
        found.append(row)
    return found


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Function by function: tokens per forward without and with the history, and what it saves."""
    lines = []
    for function in [*dict.fromkeys(row["function"] for row in rows), "all"]:
        some = [row for row in rows if function in ("all", row["function"])]
        tokens = sum(row["tokens"] for row in some)
        per_forward = [
            f"{tokens / sum(row[name]['forwards'] for row in some):.2f}"
            for name in ("without", "with")
        ]
        low, high = interval(some, _quicker)
        lines.append(
            [
                function,
                str(len(some)),
                f"{tokens:,}",
                *per_forward,
                f"{_quicker(some):.2f} [{low:.2f}, {high:.2f}]",
                f"{sum(row['equal'] for row in some)} of {len(some)}",
            ]
        )
    head = ["function", "calls", "tokens", "tokens per forward, without", "with the history"]
    return markdown_table([*head, "answers come quicker", "same text"], lines)


def _quicker(rows: Sequence[Mapping[str, Any]]) -> float:
    """Seconds of all calls without the history over those with it."""
    seconds = [sum(row[name]["seconds"] for row in rows) for name in ("without", "with")]
    return float(seconds[0] / seconds[1])


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--calls", type=int, default=24, help="of each function")
    parser.add_argument("--tools", type=int, default=4, help="functions beside the first three")
    parser.add_argument("--temperatures", type=float, nargs="+", default=[0.0, 1.0])
    parser.add_argument("--max-tokens", type=int, default=100)
    parser.add_argument("--threads", type=int, default=1, help="torch threads")
    parser.add_argument("--no-docs", action="store_true", help="only print")
    options = parser.parse_args(arguments)
    import torch
    from rich.progress import track

    from structspec.history import History
    from structspec.models import PREFIX_CACHE, Model, load

    torch.set_num_threads(options.threads)
    without = load("default", dtype="float32", history=False)
    same: dict[str, Any] = {"name": without.name, "vocab": without.vocab}
    same["prefix_cache"] = PREFIX_CACHE
    models = {
        "without": without,
        "with": Model(without.model, without.tokenizer, history=True, **same),
    }
    works = list(repeated(options.calls, options.tools))
    # what is loaded or compiled once is not measured
    for work in works:
        answer({"without": without}, Repeated(work.name, work.schema, work.prompts[:1]), 100)
    without.prefix_cache.clear()
    rows: list[dict[str, Any]] = []
    parts = []
    for temperature in options.temperatures:
        models["with"].history = History()
        own: list[dict[str, Any]] = []
        for work in track(works, transient=True):
            own += answer(models, work, options.max_tokens, temperature)
        median = statistics.median(_quicker([row]) for row in own)
        parts.append(f"Temperature {temperature:g}:\n\n{table(own)}")
        print(f"{parts[-1]}\nmedian of the calls: {median:.2f}")
        rows += own
    text = "\n\n".join(part.rstrip("\n") for part in parts)
    if not options.no_docs:
        command = (
            f"{COMMAND} --calls {options.calls} --tools {options.tools} "
            f"--temperatures {' '.join(f'{t:g}' for t in options.temperatures)} "
            f"--max-tokens {options.max_tokens} --threads {options.threads}"
        )
        write_measured("repeats", "decoding", COMMAND, command, rows, text)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
