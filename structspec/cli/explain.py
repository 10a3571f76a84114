"""`structspec explain`: what a compile makes of every keyword, and how large the result is.

Exit codes: 0 if the schema compiles, 2 if it is refused or is no schema. A refused schema is
explained all the same: its other keywords come from a compile that drops what cannot be exact.
"""

from __future__ import annotations

import json
import time
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer

from structspec.cli.files import SourceFile, read_source
from structspec.errors import BudgetExceeded, StructspecError, UnsupportedFeature


def explain(
    schema: Annotated[
        Path,
        typer.Argument(
            help="File with a JSON Schema, or a grammar by its ending: .lark, .gbnf, .regex; "
            "'-' reads a schema."
        ),
    ],
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
    key_order: Annotated[str, typer.Option(help="declared or any.")] = "declared",
    whitespace: Annotated[
        str, typer.Option(help="flexible, conventional or compact.")
    ] = "flexible",
    spelling: Annotated[str, typer.Option(help="any or canonical.")] = "any",
    assert_formats: Annotated[
        bool,
        typer.Option("--assert-formats/--no-assert-formats", help="Whether 'format' is asserted."),
    ] = True,
    default_dialect: Annotated[
        str | None,
        typer.Option(help="URI of the draft for a schema without $schema; default: 2020-12."),
    ] = None,
    start: Annotated[str | None, typer.Option(help="Start rule of a grammar.")] = None,
    dialect: Annotated[str | None, typer.Option(help="Of a .regex file: ecma or python.")] = None,
) -> None:
    """Say for each keyword or rule whether it is exact, and what was built."""
    source = read_source(schema, start, dialect)
    options: dict[str, Any] = {
        "key_order": key_order,
        "whitespace": whitespace,
        "spelling": spelling,
        "assert_formats": assert_formats,
        "default_dialect": default_dialect,
    }
    import_module("structspec.grammar")  # takes longer than most compiles, and is none of it
    started = time.perf_counter()
    refusal: UnsupportedFeature | BudgetExceeded | None = None
    grammar = None
    try:
        grammar = source.compile(**options)
    except (UnsupportedFeature, BudgetExceeded) as error:
        refusal = error
    seconds = time.perf_counter() - started
    entries: list[dict[str, str]] = []
    built: dict[str, int] | None = None
    if grammar is not None:
        entries = [_entry(entry) for entry in grammar.report]
        built = {
            "states": grammar.network.n_states,
            "rules": grammar.network.n_rules,
            "byte_classes": grammar.network.n_classes,
        }
    elif isinstance(refusal, UnsupportedFeature):
        entries = _without(source, options, refusal)
    refused = _refusal(refusal)
    if as_json:
        typer.echo(
            json.dumps(
                {
                    "compiles": grammar is not None,
                    "keywords": entries,
                    "built": built,
                    "compile_seconds": round(seconds, 6),
                    "refused": refused,
                },
                ensure_ascii=False,
                indent=2,
            )
        )
    else:
        _print(entries, built, seconds, grammar is not None and grammar.is_empty)
    if refusal is not None:
        raise refusal


def _entry(entry: Any, status: str | None = None, note: str | None = None) -> dict[str, str]:
    return {
        "pointer": entry.pointer,
        "keyword": entry.keyword,
        "status": status or entry.status,
        "note": entry.note if note is None else note,
    }


def _without(
    source: SourceFile, options: dict[str, Any], refusal: UnsupportedFeature
) -> list[dict[str, str]]:
    """The report of a refused schema: what would have to be dropped counts as refused."""
    first = {
        "pointer": refusal.pointer,
        "keyword": refusal.keyword,
        "status": "refused",
        "note": refusal.reason,
    }
    try:
        loose = source.compile(on_unsupported="widen", **options)
    except StructspecError:
        return [first]
    entries = [
        _entry(entry, "refused") if entry.status == "widened" else _entry(entry)
        for entry in loose.report
    ]
    places = {(e["pointer"], e["keyword"]) for e in entries if e["status"] == "refused"}
    return entries if (first["pointer"], first["keyword"]) in places else [first, *entries]


def _refusal(error: UnsupportedFeature | BudgetExceeded | None) -> dict[str, Any] | None:
    if isinstance(error, UnsupportedFeature):
        return {"keyword": error.keyword, "pointer": error.pointer, "reason": error.reason}
    if isinstance(error, BudgetExceeded):
        return {
            "budget": error.what,
            "limit": error.limit,
            "needed": error.needed,
            "keyword": error.keyword,
            "pointer": error.pointer,
        }
    return None


def _print(
    entries: list[dict[str, str]],
    built: dict[str, int] | None,
    seconds: float,
    empty: bool,
) -> None:
    rows = [("status", "keyword", "pointer", "note")]
    rows += [(e["status"], e["keyword"], e["pointer"] or "(root)", e["note"]) for e in entries]
    widths = [max(len(row[i]) for row in rows) for i in range(3)]
    if entries:
        for row in rows:
            cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=False)]
            typer.echo("  ".join([*cells, row[3]]).rstrip())
        typer.echo()
    if built is None:
        typer.echo("nothing was built: the schema is refused")
        return
    size = ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in built.items())
    typer.echo(f"{size}; compiled in {1000 * seconds:.1f} ms")
    if empty:
        typer.echo("no text satisfies the schema: its language is empty")
