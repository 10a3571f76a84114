"""`structspec profile`: where the time of masks goes, state by state, along one text.

Exit codes: 0 if the text fits the schema, 1 if it does not, 2 for bad input.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from structspec.cli.files import SourceFile, read_source, read_text
from structspec.errors import SchemaError, TokenRejected

_WARM_CALLS = 20


def profile(
    schema: Annotated[
        Path,
        typer.Argument(
            help="File with a JSON Schema, or a grammar by its ending: .lark, .gbnf, .regex; "
            "'-' reads a schema."
        ),
    ],
    text: Annotated[Path, typer.Option(help="File with the text to follow.")],
    tokenizer: Annotated[
        str | None,
        typer.Option(help="Tokenizer file or folder; without it, every byte is a token."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the rows as JSON.")] = False,
    slowest: Annotated[
        int | None, typer.Option(min=1, help="Show only so many states, slowest first.")
    ] = None,
) -> None:
    """Time every mask along a text: cold, warm, how many tokens, and how it was made."""
    source = read_source(schema)
    data = read_text(text, "text").rstrip("\n").encode()
    phases, rows, error = measure(source, data, tokenizer)
    if slowest is not None:
        rows = sorted(rows, key=lambda row: -row["cold_us"])[:slowest]
    if as_json:
        typer.echo(json.dumps({"milliseconds": phases, "states": rows}, ensure_ascii=False))
    else:
        _print(phases, rows)
    if error is not None:
        typer.echo(f"the text does not fit: {error}")
        raise SystemExit(1)


def measure(
    source: SourceFile, data: bytes, tokenizer: str | None
) -> tuple[dict[str, float], list[dict[str, Any]], str | None]:
    """Milliseconds of each phase, a row per state, and why the text does not fit (or None)."""
    from structspec.vocab import Vocabulary
    from structspec.warmup import warm_up

    if tokenizer is None:
        vocab = Vocabulary([*(bytes((b,)) for b in range(256)), None], [256])
    elif not Path(tokenizer).exists():
        raise SchemaError(f"no tokenizer at '{tokenizer}'")
    else:
        vocab = Vocabulary.from_tokenizer(Path(tokenizer))
    warm_up()
    _ = vocab.plain, vocab.fingerprint
    phases: dict[str, float] = {}
    began = time.perf_counter()
    grammar = source.compile()
    phases["compile"] = 1000 * (time.perf_counter() - began)
    began = time.perf_counter()
    constraint = grammar.bind(vocab)
    phases["bind"] = 1000 * (time.perf_counter() - began)
    rows: list[dict[str, Any]] = []
    state, error = constraint.start, None
    tokens = vocab.encode(data)
    for number, token in enumerate([*tokens, None]):
        known = constraint.mechanism(state, computed=False)
        began = time.perf_counter_ns()
        row = constraint.mask(state)
        cold = time.perf_counter_ns() - began
        began = time.perf_counter_ns()
        for _ in range(_WARM_CALLS):
            constraint.mask(state)
        warm = (time.perf_counter_ns() - began) / _WARM_CALLS
        entry = {
            "position": number,
            "token": None
            if token is None
            else (vocab.token_bytes(token) or b"").decode("utf-8", "replace"),
            "cold_us": round(cold / 1000, 2),
            "warm_us": round(warm / 1000, 2),
            "allowed": int(sum(int(word).bit_count() for word in row)),
            "how": "cached" if known == "cached" else constraint.mechanism(state),
            "advance_us": None,
        }
        rows.append(entry)
        if token is None:
            if not constraint.accepting(state):
                error = "it is incomplete"
            break
        began = time.perf_counter_ns()
        try:
            state = constraint.advance(state, token)
        except TokenRejected as rejected:
            error = str(rejected)
            break
        entry["advance_us"] = round((time.perf_counter_ns() - began) / 1000, 2)
    return phases, rows, error


def _print(phases: dict[str, float], rows: list[dict[str, Any]]) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console()
    console.print(", ".join(f"{name} {value:.1f} ms" for name, value in phases.items()))
    table = Table()
    for name in ("#", "next token", "cold µs", "warm µs", "advance µs", "allowed", "how"):
        table.add_column(name, justify="left" if name in ("next token", "how") else "right")
    for row in rows:
        token = "(end)" if row["token"] is None else json.dumps(row["token"], ensure_ascii=False)
        step = "" if row["advance_us"] is None else f"{row['advance_us']:.1f}"
        table.add_row(
            str(row["position"]),
            token.replace("[", "\\["),
            f"{row['cold_us']:.1f}",
            f"{row['warm_us']:.2f}",
            step,
            str(row["allowed"]),
            row["how"],
        )
    console.print(table)
    by_how: dict[str, list[float]] = {}
    for row in rows:
        by_how.setdefault(row["how"], []).append(row["cold_us"])
    for how, times in sorted(by_how.items(), key=lambda pair: -sum(pair[1])):
        console.print(f"{how}: {len(times)} states, {sum(times):.0f} µs in all")
