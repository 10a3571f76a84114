"""The typer application; `main` runs it."""

from __future__ import annotations

import typer

from structspec import __version__
from structspec.cli.explain import explain
from structspec.cli.generate import generate
from structspec.cli.profile import profile
from structspec.cli.sample import sample
from structspec.cli.serve import serve
from structspec.cli.suite import suite
from structspec.cli.train_draft import train_draft
from structspec.cli.warmup import warmup

app = typer.Typer(
    name="structspec",
    no_args_is_help=True,
    add_completion=False,
    help="Language-model output that fits a JSON Schema or a grammar, drafted under it and "
    "verified in blocks.",
)
app.command()(generate)
app.command()(explain)
app.command()(profile)
app.command()(sample)
app.command()(serve)
app.command()(train_draft)
app.command()(warmup)
app.add_typer(suite, name="suite")


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"structspec {__version__}")
        raise typer.Exit


@app.callback()
def _main(
    version: bool = typer.Option(
        False, "--version", callback=_version, is_eager=True, help="Show the version and exit."
    ),
) -> None:
    del version
