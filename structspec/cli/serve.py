"""`structspec serve`: a model behind OpenAI's API, its answers held to schemas and grammars."""

from __future__ import annotations

import os
from typing import Annotated

import typer


def serve(
    model: Annotated[
        str,
        typer.Option("--model", "-m", help="'default', a directory, a .gguf file or a hub name."),
    ] = "default",
    host: Annotated[str, typer.Option(help="0.0.0.0 answers other machines, too.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes any free one.")] = 8000,
    name: Annotated[
        str | None, typer.Option(help="What clients call the model; default: its own name.")
    ] = None,
    draft: Annotated[
        str,
        typer.Option(
            help="auto, forced, lookup, forks, eagle, early-exit:LAYERS, model:NAME, eagle:DIR, "
            "medusa:DIR or none."
        ),
    ] = "auto",
    draft_count: Annotated[int, typer.Option(min=1, help="Drafts per round.")] = 1,
    verifier: Annotated[str, typer.Option(help="block or token.")] = "block",
    batch_size: Annotated[
        int, typer.Option(min=1, help="Answers that are written at the same time.")
    ] = 8,
    waiting: Annotated[
        int, typer.Option(min=0, help="Answers that may wait for a place; more are refused.")
    ] = 256,
    device: Annotated[str | None, typer.Option(help="cpu, cuda, cuda:1, …")] = None,
    dtype: Annotated[str | None, typer.Option(help="float32, bfloat16 or float16.")] = None,
    threads: Annotated[
        int | None, typer.Option(min=1, help="CPU threads of torch; default: torch's choice.")
    ] = None,
    prefix_cache: Annotated[
        int, typer.Option(min=0, help="MiB for what prompts begin with.")
    ] = 256,
    grammar_cache: Annotated[int, typer.Option(min=0, help="MiB for compiled schemas.")] = 512,
    compile_seconds: Annotated[
        float, typer.Option(min=0.001, help="Processor time that one schema may take.")
    ] = 10.0,
    body_mib: Annotated[int, typer.Option(min=1, help="MiB that a request may hold.")] = 4,
    grace: Annotated[
        float, typer.Option(min=0.0, help="Seconds that answers may go on after Ctrl-C.")
    ] = 10.0,
    api_key: Annotated[
        str | None,
        typer.Option(envvar="STRUCTSPEC_API_KEY", help="What clients must send; default: nothing."),
    ] = None,
    allow_origin: Annotated[
        list[str] | None, typer.Option(help="Web pages that may ask, * for all; repeatable.")
    ] = None,
) -> None:
    """Serve a model by OpenAI's API: chats, tools, schemas, grammars, streams."""
    from structspec import models
    from structspec.extras import require

    require("fastapi", "uvicorn", "prometheus_client", "torch", "transformers")
    from structspec.server import Settings, create_app
    from structspec.server.running import run
    from structspec.warmup import warm_up

    if threads is not None:
        import torch

        torch.set_num_threads(threads)
    typer.echo(f"loading {model}", err=True)
    loaded = models.load(model, device=device, dtype=dtype, prefix_cache=prefix_cache << 20)
    warm_up(lambda _: None)
    settings = Settings(
        name=name,
        api_key=api_key,
        draft=draft,
        draft_count=draft_count,
        verifier=verifier,
        batch_size=batch_size,
        waiting=waiting,
        cache_bytes=grammar_cache << 20,
        compile_seconds=compile_seconds,
        most_bytes=body_mib << 20,
        origins=tuple(allow_origin or ()),
    )
    app = create_app(loaded, settings)
    typer.echo(f"serving {name or loaded.name}", err=True)
    level = os.environ.get("STRUCTSPEC_LOG_LEVEL", "info").lower()
    run(app, host=host, port=port, grace=grace, log_level=level)
