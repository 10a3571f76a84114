"""`structspec generate`: one value of a schema, or text of a grammar, written by a model."""

from __future__ import annotations

import json
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from structspec.cli.files import read_source, read_text
from structspec.errors import PromptError


def generate(
    schema: Annotated[
        Path,
        typer.Option(
            "--schema",
            "-s",
            help="File with a JSON Schema, or a grammar by its ending: .lark, .gbnf, .regex; "
            "'-' reads a schema.",
        ),
    ],
    prompt: Annotated[
        str | None, typer.Option("--prompt", "-p", help="What to ask the model.")
    ] = None,
    prompt_file: Annotated[
        Path | None,
        typer.Option("--prompt-file", help="Read the prompt from a file instead; '-' reads it."),
    ] = None,
    model: Annotated[
        str,
        typer.Option("--model", "-m", help="'default', a directory, a .gguf file or a hub name."),
    ] = "default",
    as_json: Annotated[
        bool, typer.Option("--json", help="Print value, text, tokens and statistics as JSON.")
    ] = False,
    max_tokens: Annotated[
        int | None,
        typer.Option(min=1, help="The text is complete within this many tokens; default: 1024."),
    ] = None,
    temperature: Annotated[
        float, typer.Option(min=0.0, help="0 picks the likeliest token each time.")
    ] = 0.0,
    top_p: Annotated[
        float | None, typer.Option(min=0.0, max=1.0, help="Nucleus sampling threshold.")
    ] = None,
    top_k: Annotated[
        int | None, typer.Option(min=1, help="Sample among the k likeliest tokens.")
    ] = None,
    min_p: Annotated[
        float | None,
        typer.Option(min=0.0, max=1.0, help="Drop tokens below this share of the likeliest."),
    ] = None,
    stop: Annotated[
        list[str] | None,
        typer.Option(help="End the text behind this string where it is complete; repeatable."),
    ] = None,
    seed: Annotated[int, typer.Option(help="Repeats a sampled answer.")] = 0,
    draft: Annotated[
        str,
        typer.Option(
            help="auto, forced, lookup, forks, eagle, early-exit:LAYERS, model:NAME, eagle:DIR, "
            "medusa:DIR or none."
        ),
    ] = "auto",
    verifier: Annotated[str, typer.Option(help="block or token.")] = "block",
    device: Annotated[str | None, typer.Option(help="cpu, cuda, cuda:1, …")] = None,
    dtype: Annotated[str | None, typer.Option(help="float32, bfloat16 or float16.")] = None,
    threads: Annotated[
        int | None, typer.Option(min=1, help="CPU threads of torch; default: torch's choice.")
    ] = None,
    key_order: Annotated[str, typer.Option(help="declared or any.")] = "declared",
    whitespace: Annotated[
        str, typer.Option(help="conventional, compact or flexible.")
    ] = "conventional",
    start: Annotated[str | None, typer.Option(help="Start rule of a grammar.")] = None,
    dialect: Annotated[str | None, typer.Option(help="Of a .regex file: ecma or python.")] = None,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="No progress and no line of statistics.")
    ] = False,
) -> None:
    """Let a model write one JSON value that fits a schema, or one text of a grammar."""
    text = _prompt(prompt, prompt_file)
    source = read_source(schema, start, dialect)
    compiled = source.compile(spelling="canonical", whitespace=whitespace, key_order=key_order)
    with _Progress(enabled=not quiet and sys.stderr.isatty()) as progress:
        from structspec import api, models

        progress.say(f"loading {model}")
        if threads is not None:
            import torch

            torch.set_num_threads(threads)
        loaded = models.load(model, device=device, dtype=dtype)
        progress.say("preparing masks")
        result = api.generate(
            loaded,
            text,
            compiled,
            draft=draft,
            verifier=verifier,
            max_tokens=max_tokens,
            temperature=temperature,
            top_p=top_p,
            top_k=top_k,
            min_p=min_p,
            stop=stop or (),
            seed=seed,
            on_token=progress.token,
        )
    if as_json:
        stats = result.stats
        report: dict[str, Any] = {
            "value": result.value,
            "text": result.text,
            "tokens": list(result.tokens),
            "finish_reason": result.finish_reason,
            "seed": result.seed,
            "stats": {
                **asdict(stats),
                "tokens_per_forward": stats.tokens_per_forward,
                "acceptance": stats.acceptance,
            },
        }
        typer.echo(json.dumps(report, ensure_ascii=False))
    else:
        is_json = compiled.spec is not None
        shown = json.dumps(result.value, ensure_ascii=False, indent=2) if is_json else result.text
        typer.echo(shown)
        if not quiet:
            stats = result.stats
            typer.echo(
                f"{stats.tokens} tokens, {stats.forwards} target forwards "
                f"({stats.tokens_per_forward:.2f} tokens each), "
                f"{stats.accepted} of {stats.drafted} drafted tokens accepted, "
                f"{stats.total_time:.1f} s",
                err=True,
            )


def _prompt(prompt: str | None, prompt_file: Path | None) -> str:
    if (prompt is None) == (prompt_file is None):
        raise PromptError("give the prompt with either --prompt TEXT or --prompt-file FILE")
    if prompt is not None:
        return prompt
    assert prompt_file is not None
    return read_text(prompt_file, "prompt")


class _Progress:
    """One line on standard error that says what is going on; nothing if disabled."""

    def __init__(self, enabled: bool) -> None:
        self._status: Any = None
        self._tokens = 0
        self._started = time.perf_counter()
        if enabled:
            from rich.console import Console

            self._status = Console(stderr=True).status("starting")

    def __enter__(self) -> _Progress:
        if self._status is not None:
            self._status.start()
        return self

    def __exit__(self, *exc: object) -> None:
        if self._status is not None:
            self._status.stop()

    def say(self, what: str) -> None:
        """Show what is being done."""
        if self._status is not None:
            self._status.update(f"{what} …")

    def token(self, _token: int, _data: bytes) -> None:
        """Count a token."""
        if self._tokens == 0:
            self._started = time.perf_counter()
        self._tokens += 1
        seconds = time.perf_counter() - self._started
        rate = f", {self._tokens / seconds:.0f} tokens/s" if seconds > 0.5 else ""
        self.say(f"{self._tokens} tokens{rate}")
