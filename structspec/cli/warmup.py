"""`structspec warmup`: compiles the kernels now, so that no later process has to.

Exit code 0. The machine code is kept on disk; set NUMBA_CACHE_DIR if the package's own folder
cannot be written.
"""

from __future__ import annotations

import typer


def warmup(
    processes: int = typer.Option(
        None, min=1, help="Processes that compile; as many as there are cores unless given."
    ),
) -> None:
    """Compile the kernels and keep them on disk (up to a minute the first time, once)."""
    from structspec.warmup import warm_up

    typer.echo("what is on disk already is quick; the rest is compiled for this machine")
    seconds = warm_up(lambda line: typer.echo(f"  {line}"), processes)
    typer.echo(f"ready after {seconds:.1f} s")
