"""What a cached forward of n tokens costs beside that of one, and where the time goes.

    python -m structspec.bench.forwards --threads 1 2 --json docs/results/forwards.json

Speculation pays by the ratio cost(n) / cost(1). Per setting the table shows the whole forward with
logits of all n rows, the same as transformers runs it, and the output matrix alone, by the product
for few rows and by torch's; a line for the prompt comes first. With one thread the clock is the
thread's own processor time, which other processes on the machine disturb less; with more it is the
wall.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from structspec.bench.machine import describe_machine
from structspec.bench.pages import write_report

#: Cached tokens in front of the forward: a tool-calling prompt.
_PROMPT = 400


def _cost(run: Callable[[], object], clock: Callable[[], float], repeats: int) -> float:
    """Milliseconds of one run: the lower quartile, since everything that disturbs adds."""
    run()
    times = []
    for _ in range(repeats):
        started = clock()
        run()
        times.append(clock() - started)
    return sorted(times)[repeats // 4] * 1e3


def measure(
    model: Any, stock: Any, counts: list[int], clock: Callable[[], float], repeats: int
) -> list[dict[str, float]]:
    """One row per number of tokens. stock: the same model just as transformers makes it."""
    import torch

    from structspec.forward.rows import Call, TargetRows
    from structspec.linear import linear

    prompt = list(range(100, 100 + _PROMPT))
    ours, theirs = TargetRows(model), TargetRows(stock)
    theirs.lean = False
    for rows in (ours, theirs):
        rows.forward([Call(rows.open(), prompt)])
    layer = model.model.get_output_embeddings()

    def forward(ids: list[int], rows: TargetRows) -> None:
        rows.forward([Call(0, ids, keep=min(len(ids), max(counts)))])
        rows.crop(0, len(ids))

    def head(states: torch.Tensor, few: bool) -> None:
        with torch.inference_mode():
            (linear if few else torch.nn.functional.linear)(states, layer.weight)

    found = []
    for count in (_PROMPT, *counts):
        ids = prompt if count == _PROMPT else list(range(700, 700 + count))
        states = torch.randn(min(count, max(counts)), layer.in_features, dtype=layer.weight.dtype)
        result = {"tokens": float(count)}
        # in turn, so that a machine that gets slower meets both
        for name, run in (
            ("forward_ms", partial(forward, ids, ours)),
            ("transformers_ms", partial(forward, ids, theirs)),
            ("head_ms", partial(head, states, True)),
            ("torch_head_ms", partial(head, states, False)),
        ):
            few = 3 if count == _PROMPT else repeats
            result[name] = _cost(run, clock, few)
        found.append(result)
    return found


def main(arguments: list[str] | None = None) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model", default="default")
    parser.add_argument("--dtypes", nargs="*", default=["float32"])
    parser.add_argument("--attention", nargs="*", default=["sdpa"], choices=["sdpa", "eager"])
    parser.add_argument("--threads", nargs="*", type=int, default=[1])
    parser.add_argument("--counts", nargs="*", type=int, default=[1, 2, 3, 4, 6, 8, 12, 16])
    parser.add_argument("--repeats", type=int, default=12)
    parser.add_argument("--json", type=Path, default=None)
    options = parser.parse_args(arguments)
    import torch
    from rich.console import Console
    from rich.table import Table

    from structspec.models import load

    report: dict[str, Any] = {
        "command": "python -m structspec.bench.forwards " + " ".join(arguments or sys.argv[1:]),
        "machine": describe_machine(),
        "settings": [],
    }
    columns = (
        *("tokens", "forward_ms", "ratio"),
        *("transformers_ms", "transformers_ratio", "head_ms", "torch_head_ms"),
    )
    for dtype in options.dtypes:
        for attention in options.attention:
            model, stock = (
                load(options.model, dtype=dtype, attn_implementation=attention, quick=quick)
                for quick in (True, False)
            )
            for threads in options.threads:
                torch.set_num_threads(threads)
                clock = time.thread_time if threads == 1 else time.perf_counter
                rows = measure(model, stock, options.counts, clock, options.repeats)
                for row in rows:
                    for kind in ("forward", "transformers"):
                        name = "ratio" if kind == "forward" else f"{kind}_ratio"
                        row[name] = row[f"{kind}_ms"] / rows[1][f"{kind}_ms"]
                setting = {"dtype": dtype, "attention": attention, "threads": threads, "rows": rows}
                report["settings"].append(setting)
                table = Table(title=f"{dtype}, {attention}, {threads} thread(s)")
                for column in columns:
                    table.add_column(column.removesuffix("_ms"), justify="right")
                for row in rows:
                    cells = (row.get(column) for column in columns)
                    table.add_row(*("" if c is None else f"{c:.2f}" for c in cells))
                Console().print(table)
    if options.json:
        write_report(options.json, report)
    return 0


if __name__ == "__main__":
    sys.exit(main())
