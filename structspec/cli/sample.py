"""`structspec sample`: random texts of a schema or grammar.

One text per line, as it is if it fits on a line and else as a JSON string; `--json` always writes
JSON strings, one per line. Exit codes: 0, or 2 if there is no text to sample.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from structspec.cli.files import read_source


def sample(
    source: Annotated[
        Path,
        typer.Argument(
            help="File with a JSON Schema, or a grammar by its ending: .lark, .gbnf, .regex; "
            "'-' reads a schema."
        ),
    ],
    count: Annotated[int, typer.Option("-n", "--count", min=1, help="How many texts.")] = 10,
    seed: Annotated[
        int | None, typer.Option(help="Repeats the texts; default: others each time.")
    ] = None,
    max_bytes: Annotated[int, typer.Option(min=0, help="No text is longer than this.")] = 200,
    start: Annotated[str | None, typer.Option(help="Start rule of a grammar.")] = None,
    dialect: Annotated[str | None, typer.Option(help="Of a .regex file: ecma or python.")] = None,
    whitespace: Annotated[
        str, typer.Option(help="Of JSON: conventional, compact or flexible.")
    ] = "conventional",
    spelling: Annotated[str, typer.Option(help="Of JSON: canonical or any.")] = "canonical",
    as_json: Annotated[bool, typer.Option("--json", help="Write every text as JSON.")] = False,
) -> None:
    """Write random texts of a language, all of them complete."""
    from structspec.sampling import sample as draw

    file = read_source(source, start, dialect)
    grammar = file.compile(whitespace=whitespace, spelling=spelling)
    for found in draw(grammar, count, seed=seed, max_bytes=max_bytes):
        # A grammar over bytes may hold texts that are no UTF-8.
        shown = found.decode("utf-8", "backslashreplace")
        plain = shown.isprintable() and shown and not as_json
        typer.echo(shown if plain else json.dumps(shown, ensure_ascii=not shown.isprintable()))
