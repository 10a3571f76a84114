"""`structspec train-draft`: an EAGLE-3 head for a model, trained on its own constrained answers."""

from __future__ import annotations

import json
import lzma
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from structspec.errors import PromptError


def train_draft(
    tasks: Annotated[
        Path,
        typer.Option(
            "--tasks",
            "-t",
            help='JSON lines with "id", "messages" and "schema" or "tools"; may be .xz.',
        ),
    ],
    out: Annotated[
        Path, typer.Option("--out", "-o", help="Folder of the run; an unfinished one goes on.")
    ],
    model: Annotated[
        str,
        typer.Option("--model", "-m", help="'default', a directory, a .gguf file or a hub name."),
    ] = "default",
    answers: Annotated[int, typer.Option(min=1, help="Tasks to answer, at most.")] = 2000,
    per_task: Annotated[int, typer.Option(min=1, help="Answers per task.")] = 1,
    max_tokens: Annotated[int, typer.Option(min=1, help="Tokens per answer, at most.")] = 256,
    held_out: Annotated[
        float, typer.Option(min=0.0, max=0.9, help="Share of functions kept for evaluation.")
    ] = 0.1,
    steps: Annotated[int, typer.Option(min=1, help="Training steps in all.")] = 1000,
    batch: Annotated[int, typer.Option(min=1, help="Answers per step.")] = 8,
    learning_rate: Annotated[float, typer.Option(min=0.0, help="Peak of the schedule.")] = 5e-4,
    vocabulary: Annotated[int, typer.Option(min=1, help="Ids that the head can draft.")] = 5120,
    depths: Annotated[int, typer.Option(min=1, help="Drafted tokens per place.")] = 4,
    seed: Annotated[int, typer.Option(min=0)] = 0,
    device: Annotated[str | None, typer.Option(help="cpu, cuda, cuda:1, …")] = None,
    threads: Annotated[
        int | None, typer.Option(min=1, help="CPU threads of torch; default: torch's choice.")
    ] = None,
) -> None:
    """Train a draft head on a model's own answers under the grammar.

    Answers are sampled first (answers.jsonl), then the head is trained (checkpoint.pt, curve.json,
    curve.svg) and written to the folder "head", which --draft eagle:OUT/head reads. Both parts go
    on where they were interrupted.
    """
    from rich.console import Console
    from rich.progress import Progress

    from structspec.drafting.answers import collect, read_answers, split
    from structspec.drafting.training import Point, Recipe, Trainer
    from structspec.models import load

    if threads is not None:
        import torch

        torch.set_num_threads(threads)
    console = Console()
    target = load(model, device=device)
    train, kept_apart = split(list(_read_tasks(tasks)), held_out)
    console.print(
        f"{len(train)} training tasks, {len(kept_apart)} whose functions are held out; "
        f"{target.name} answers up to {answers}"
    )
    evaluated = max(1, round(answers * held_out)) if held_out and kept_apart else 0
    files = {"answers.jsonl": train[:answers], "held_out.jsonl": kept_apart[:evaluated]}
    with Progress(console=console) as progress:
        for name, part in files.items():
            bar = progress.add_task(name, total=len(part) * per_task)
            collect(
                target,
                part,
                out / name,
                max_tokens=max_tokens,
                per_task=per_task,
                seed=seed,
                report=_completing(progress, bar),
            )
        recipe = Recipe(
            steps=steps,
            batch=batch,
            learning_rate=learning_rate,
            vocabulary=vocabulary,
            depths=depths,
            seed=seed,
        )
        trainer = Trainer(
            target,
            list(read_answers(out / "answers.jsonl")),
            recipe,
            out,
            list(read_answers(out / "held_out.jsonl")),
        )
        bar = progress.add_task("training", total=steps, completed=trainer.step)

        def report(point: Point) -> None:
            shares = " ".join(f"{share:.3f}" for share in point.acceptance)
            progress.update(bar, completed=point.step)
            if point.held_out:
                progress.console.print(
                    f"step {point.step}: held-out loss {point.loss:.3f}, acceptance {shares}"
                )

        trainer.run(report)
    trainer.save()
    trainer.head.save(out / "head")
    console.print(f"the head is in '{out / 'head'}': use --draft eagle:{out / 'head'}")


def _completing(progress: Any, bar: Any) -> Callable[[int, int], None]:
    def report(done: int, tokens: int) -> None:
        progress.update(bar, completed=done)

    return report


def _read_tasks(path: Path) -> Iterator[Any]:
    from structspec.bench.tasks import answer_schema
    from structspec.drafting.answers import Task

    opened = lzma.open if path.suffix == ".xz" else open
    try:
        with opened(path, "rt", encoding="utf-8") as file:
            for number, line in enumerate(file, 1):
                try:
                    row = json.loads(line)
                    tools = row.get("tools") or []
                    schema = row["schema"] if "schema" in row else answer_schema(tools)
                    messages = row["messages"]
                except (ValueError, KeyError, TypeError, AttributeError) as error:
                    raise PromptError(
                        f"{path}, line {number}: a task needs messages and a schema or tools "
                        f"({error!r})"
                    ) from error
                if tools:
                    listed = "\n".join(json.dumps(t["function"], ensure_ascii=False) for t in tools)
                    system = (
                        "You call functions. Answer with a JSON list of calls, each an object with "
                        f'the keys "name" and "arguments". The functions:\n{listed}'
                    )
                    messages = [{"role": "system", "content": system}, *messages]
                names = tuple(tool["function"]["name"] for tool in tools)
                yield Task(str(row.get("id", number)), messages, schema, names)
    except OSError as error:
        raise PromptError(f"cannot read the tasks '{path}': {error.strerror}") from error
