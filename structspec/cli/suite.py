"""`structspec suite run`: engines over a schema test suite, graded per test.

Exit codes: 0; 1 if an answer was wrong, crashed or timed out (with ``--baseline``: if the first
engine did worse than it); 2 for bad input. Refusals are honest and fail nothing.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path
from typing import Annotated, Any

import typer

from structspec.errors import SchemaError

suite = typer.Typer(no_args_is_help=True, help="Run JSON Schema test suites against engines.")


@suite.callback()
def _group() -> None:
    """Keep `run` a subcommand although it is the only one."""


@suite.command()
def run(
    path: Annotated[
        Path, typer.Argument(help="The suite: a directory, or a file (.json, .jsonl, .jsonl.xz).")
    ],
    form: Annotated[
        str | None,
        typer.Option("--format", help="official, maskbench, cases or folder; default: guessed."),
    ] = None,
    part: Annotated[
        str, typer.Option(help="Of the official suite: required, optional, format or all.")
    ] = "required",
    engine: Annotated[
        list[str] | None,
        typer.Option(
            help="structspec, xgrammar, llguidance, outlines, lmfe, module:factory or "
            "path.py:factory; repeatable; default: structspec."
        ),
    ] = None,
    tokenizer: Annotated[
        str | None,
        typer.Option(help="Directory or hub name for peers; default: one token per byte."),
    ] = None,
    json_out: Annotated[
        Path | None, typer.Option("--json", help="Write everything as JSON; '-' prints it.")
    ] = None,
    junit_out: Annotated[Path | None, typer.Option("--junit", help="Write JUnit XML.")] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="At most this many schemas.")] = None,
    stride: Annotated[int, typer.Option(min=1, help="Only every so many-th schema.")] = 1,
    jobs: Annotated[int, typer.Option(min=1, help="Worker processes of each engine.")] = 1,
    time_limit: Annotated[
        float, typer.Option(min=0.1, help="Seconds for one schema with all its tests.")
    ] = 20.0,
    key_order: Annotated[
        str | None, typer.Option(help="any or declared; default: declared for folders, else any.")
    ] = None,
    assert_formats: Annotated[
        bool | None,
        typer.Option(
            "--assert-formats/--no-assert-formats",
            help="Whether 'format' is asserted; default: as the format of the suite says.",
        ),
    ] = None,
    baseline: Annotated[
        Path | None, typer.Option(help="Compare the first engine with this committed result.")
    ] = None,
    update_baseline: Annotated[
        bool,
        typer.Option("--update-baseline", help="Write the file of --baseline, compare nothing."),
    ] = False,
    show: Annotated[int, typer.Option(min=0, help="How many faulty tests to list.")] = 20,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress bar.")] = False,
) -> None:
    """Judge every text of a suite and count: right, wrong, refused, crashed, timed out."""
    from structspec.suites import load_suite, run_suite
    from structspec.suites.baseline import read_baseline
    from structspec.suites.report import as_json, junit, table

    if key_order not in (None, "any", "declared"):
        raise SchemaError(f"--key-order {key_order!r} is not one of any, declared")
    if update_baseline and (baseline is None or limit is not None or stride > 1):
        raise SchemaError("--update-baseline needs --baseline and the whole suite")
    options: dict[str, Any] = {}
    if key_order is not None:
        options["key_order"] = key_order
    if assert_formats is not None:
        options["assert_formats"] = assert_formats
    committed = None
    if baseline is not None and not update_baseline:
        committed = read_baseline(baseline)  # before the run, which takes long
    loaded = load_suite(path, form, part=part).sample(stride, limit)
    runs = []
    for name in dict.fromkeys(engine or ["structspec"]):
        with _Progress(name, enabled=not quiet and sys.stderr.isatty()) as progress:
            runs.append(
                run_suite(
                    loaded,
                    name,
                    options=options,
                    jobs=jobs,
                    time_limit=time_limit,
                    tokenizer=tokenizer,
                    on_progress=progress.show,
                )
            )
    if json_out is None or str(json_out) != "-":
        typer.echo(table(runs, show=show))
    if json_out is not None:
        _write(json_out, json.dumps(as_json(runs), ensure_ascii=False, indent=1) + "\n")
    if junit_out is not None:
        _write(junit_out, junit(runs))
    failed = any(True for each in runs for _ in each.bad())
    if baseline is not None:
        failed = _ratchet(baseline, runs[0], committed)
    if failed:
        raise SystemExit(1)


def _ratchet(path: Path, result: Any, committed: Any) -> bool:
    """Compare with the committed baseline, or write it if None; whether there is a regression."""
    from structspec.suites.baseline import compare, write_baseline

    if committed is None:
        write_baseline(path, result)
        typer.echo(f"\nwrote the baseline '{path}'", err=True)
        return False
    comparison = compare(committed, result)
    for line in comparison.regressions:
        typer.echo(f"regression: {line}", err=True)
    typer.echo(f"baseline: {comparison.summary}", err=True)
    return bool(comparison.regressions)


def _write(path: Path, text: str) -> None:
    if str(path) == "-":
        typer.echo(text, nl=False)
        return
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise SchemaError(f"cannot write '{path}': {error.strerror}") from error


class _Progress:
    """A bar on standard error with the tally so far; nothing if disabled."""

    def __init__(self, name: str, enabled: bool) -> None:
        self._bar: Any = None
        self._task: Any = None
        if enabled:
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeElapsedColumn

            self._bar = Progress(
                "{task.description}",
                BarColumn(),
                MofNCompleteColumn(),
                TimeElapsedColumn(),
                "{task.fields[tally]}",
                console=Console(stderr=True),
                transient=True,
            )
            self._task = self._bar.add_task(name, total=None, tally="starting")

    def __enter__(self) -> _Progress:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(self, *exc: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def show(self, done: int, total: int, tally: Counter[Any]) -> None:
        """Called after every schema."""
        if self._bar is not None:
            text = ", ".join(f"{count} {name}" for name, count in sorted(tally.items()) if count)
            self._bar.update(self._task, completed=done, total=total, tally=text)
