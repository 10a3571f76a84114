"""What it saves that the beginning of a prompt is read once.

Conversations about tool-calling tasks: the task's request, then twice more the conversation so far
and a request to do it again with other values. Two models answer each turn, the same network
with and without `Model.prefix_cache`, in an order that rotates; seconds are compared turn by turn.
Answers are greedy, so that both write the same texts unless a tie is broken differently, which is
counted.

    python -m structspec.bench.conversations --tasks 12

Writes `docs/results/conversations.json` and a table of `docs/decoding.md`.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any

from structspec.bench.pages import markdown_table, write_measured
from structspec.bench.tasks import ToolTask, read_tasks
from structspec.kept_grammars import compiled

__all__ = ["converse", "main", "table"]

COMMAND = "python -m structspec.bench.conversations"
_AGAIN = "Please do that once more, with other values."


def converse(
    models: Mapping[str, Any], task: ToolTask, turns: int, max_tokens: int, first: int = 0
) -> list[dict[str, Any]]:
    """The turns of one conversation, each answered by every model; `first` rotates their order.

    The first model's text is what the conversation goes on with.
    """
    from structspec.api import generate

    messages: list[dict[str, str]] = list(task.messages)
    names = list(models)
    found = []
    for turn in range(turns):
        row: dict[str, Any] = {"task": task.id, "turn": turn + 1, "seconds": {}}
        texts = {}
        for i in range(len(names)):
            name = names[(i + first + turn) % len(names)]
            began = time.perf_counter()
            result = generate(
                models[name], messages, task.schema, temperature=0, max_tokens=max_tokens
            )
            row["seconds"][name] = time.perf_counter() - began
            texts[name] = result.text
            if name == names[0]:
                stats = result.stats
                row |= {
                    "prompt": stats.prompt_tokens,
                    "reused": stats.reused,
                    "tokens": stats.tokens,
                }
        row["equal"] = len(set(texts.values())) == 1
        found.append(row)
        messages = [
            *messages,
            {"role": "assistant", "content": texts[names[0]]},
            {"role": "user", "content": _AGAIN},
        ]
    return found


def _fits(model: Any, task: ToolTask, options: argparse.Namespace) -> bool:
    """Whether an answer of so many tokens exists."""
    constraint = compiled(task.schema, {}).bind(model.vocab)
    return constraint.distance(constraint.start) <= options.max_tokens


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Turn by turn: tokens, the share that was not read, and how much quicker."""
    lines = []
    for turn in sorted({row["turn"] for row in rows}):
        some = [row for row in rows if row["turn"] == turn]
        prompt = sum(row["prompt"] for row in some)
        ratios = [row["seconds"]["nothing kept"] / row["seconds"]["kept"] for row in some]
        lines.append(
            [
                str(turn),
                f"{statistics.median(row['prompt'] for row in some):.0f}",
                f"{100 * sum(row['reused'] for row in some) / prompt:.0f} %",
                f"{statistics.median(row['tokens'] for row in some):.0f}",
                f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})",
                f"{sum(row['equal'] for row in some)} of {len(some)}",
            ]
        )
    return markdown_table(
        ["turn", "prompt, tokens", "not read again", "answer, tokens", "quicker", "same text"],
        lines,
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--tasks", type=int, default=12)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--max-tokens", type=int, default=64)
    parser.add_argument("--threads", type=int, default=1, help="torch threads")
    parser.add_argument("--no-docs", action="store_true", help="only print")
    options = parser.parse_args(arguments)
    import torch
    from rich.progress import track

    from structspec.models import Model, load

    torch.set_num_threads(options.threads)
    kept = load("default", dtype="float32", history=False)
    models = {
        "kept": kept,
        "nothing kept": Model(kept.model, kept.tokenizer, name=kept.name, vocab=kept.vocab),
    }
    fitting = (task for task in read_tasks(4 * options.tasks) if _fits(kept, task, options))
    tasks = list(islice(fitting, options.tasks + 1))
    # what is loaded or compiled once is not measured
    converse(models, tasks.pop(), 1, options.max_tokens)
    rows = []
    for number, task in enumerate(track(tasks, transient=True)):
        rows += converse(models, task, options.turns, options.max_tokens, number)
    text = table(rows)
    print(text)
    if not options.no_docs:
        command = (
            f"{COMMAND} --tasks {options.tasks} --turns {options.turns} "
            f"--max-tokens {options.max_tokens} --threads {options.threads}"
        )
        write_measured("conversations", "decoding", COMMAND, command, rows, text)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
