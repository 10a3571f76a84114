"""`structspec train-draft`: an EAGLE-3 head for a model, trained on its own constrained answers."""

from __future__ import annotations

import json
import lzma
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from structspec.errors import ModelError, PromptError


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
    evaluation: Annotated[
        Path | None,
        typer.Option(
            "--evaluation",
            "-e",
            help="Tasks to measure on; refused if they share functions with the others. "
            "Default: some of the tasks, chosen by function.",
        ),
    ] = None,
    answers: Annotated[int, typer.Option(min=1, help="Tasks to answer, at most.")] = 2000,
    per_task: Annotated[int, typer.Option(min=1, help="Answers per task.")] = 4,
    max_tokens: Annotated[int, typer.Option(min=1, help="Tokens per answer, at most.")] = 96,
    longest_prompt: Annotated[
        int, typer.Option(min=1, help="Pass over training tasks with longer prompts (tokens).")
    ] = 1024,
    slots: Annotated[int, typer.Option(min=1, help="Answers sampled side by side.")] = 32,
    minutes: Annotated[
        float | None,
        typer.Option(min=0.0, help="Collect for about so long, at most; default: no limit."),
    ] = None,
    held_out: Annotated[
        float, typer.Option(min=0.0, max=0.9, help="Share of functions kept for evaluation.")
    ] = 0.1,
    taps: Annotated[
        list[int] | None,
        typer.Option("--tap", help="Layers that the head reads; default: four, spread."),
    ] = None,
    start: Annotated[
        Path | None, typer.Option(help="Folder of a head to go on from instead of a new one.")
    ] = None,
    steps: Annotated[
        int, typer.Option(min=0, help="Training steps in all; 0 collects only.")
    ] = 1000,
    batch: Annotated[int, typer.Option(min=1, help="Tasks per step.")] = 4,
    learning_rate: Annotated[float, typer.Option(min=0.0, help="Peak of the schedule.")] = 1e-3,
    vocabulary: Annotated[int, typer.Option(min=1, help="Ids that the head can draft.")] = 5120,
    depths: Annotated[int, typer.Option(min=1, help="Drafted tokens per place.")] = 4,
    every: Annotated[int, typer.Option(min=1, help="Steps between checkpoints.")] = 50,
    seed: Annotated[int, typer.Option(min=0, help="Repeats the answers and the training.")] = 0,
    device: Annotated[str | None, typer.Option(help="cpu, cuda, cuda:1, …")] = None,
    threads: Annotated[
        int | None, typer.Option(min=1, help="CPU threads of torch; default: torch's choice.")
    ] = None,
) -> None:
    """Train a draft head on a model's own answers under the grammar.

    Answers are sampled first, many at once, and kept with the model's states (folder "states"),
    then the head is trained (checkpoint.pt, curve.json, curve.svg) and written to the folder
    "head", which --draft eagle:OUT/head reads. Both parts go on where they were interrupted.
    """
    from rich.console import Console
    from rich.progress import Progress

    from structspec.drafting.answers import split
    from structspec.drafting.curves import Point
    from structspec.drafting.eagle_head import EagleHead
    from structspec.drafting.states import StateStore
    from structspec.drafting.training import Recipe, Trainer
    from structspec.models import load

    if threads is not None:
        import torch

        torch.set_num_threads(threads)
    read = list(_read_tasks(tasks))  # before the model, so that a wrong file is told at once
    if not read:
        raise PromptError(f"the file '{tasks}' holds no task")
    console = Console()
    target = load(model, device=device)
    if evaluation is None:
        train, kept_apart = split(read, held_out)
        kept_apart = kept_apart[: max(1, round(answers * held_out))]
    else:
        train, kept_apart = read, list(_read_tasks(evaluation))
        _refuse_overlap(train, kept_apart)
    console.print(
        f"{len(train)} training tasks, {len(kept_apart)} whose functions are held out; "
        f"{target.name} answers up to {answers}"
    )
    depth = len(target.model.base_model.layers)
    layers = tuple(taps or (max(1, round(depth * x)) for x in (0.05, 0.3, 0.6, 0.93)))
    kept, measured = (StateStore(out / name, layers) for name in ("states", "held_out"))
    deadline = math.inf if minutes is None else time.monotonic() + 60 * minutes
    with Progress(console=console) as progress:
        for store, part, count, longest, widest in (
            (measured, kept_apart, 1, max(128, max_tokens), 1024),
            (kept, train[:answers], per_task, max_tokens, longest_prompt),
        ):
            bar = progress.add_task(store.folder.name, total=len(part))
            sizes = {"max_tokens": longest, "longest_prompt": widest, "slots": slots}
            for done in _collect(target, store, part, count, sizes, seed, deadline):
                progress.update(bar, completed=done)
        if not len(kept):
            raise PromptError(
                f"none of the {len(train)} training tasks could be answered: their schemas are "
                "refused (`structspec explain` says why), their prompts are longer than "
                f"--longest-prompt {longest_prompt}, or --minutes were over"
            )
        if not steps:
            return
        recipe = Recipe(
            steps=steps,
            batch=batch,
            learning_rate=learning_rate,
            vocabulary=vocabulary,
            depths=depths,
            warmup=min(20, max(1, steps // 10)),
            shallow=0.4 if start is None else 0.0,
            seed=seed,
        )
        _describe(kept, measured, recipe, out / "collected.json")
        first = None if start is None else EagleHead.load(start, target.model)
        apart = measured if len(measured) else None
        trainer = Trainer(target, kept, recipe, out, apart, first)
        bar = progress.add_task("training", total=steps, completed=trainer.step)

        def report(point: Point) -> None:
            shares = " ".join(f"{share:.3f}" for share in point.acceptance)
            progress.update(bar, completed=point.step)
            if point.held_out:
                progress.console.print(f"step {point.step}: held-out acceptance {shares}")

        trainer.run(report, every)
    trainer.save()
    console.print(f"the head is in '{out / 'head'}': use --draft eagle:{out / 'head'}")


def _describe(kept: Any, measured: Any, recipe: Any, path: Path) -> None:
    """Write what the head is trained on, for reports."""
    groups = [kept.group(name) for name in kept.ids()]
    found = {
        "recipe": asdict(recipe),
        "taps": list(kept.taps),
        "tasks": len(groups),
        "answers": sum(len(group.outputs) for group in groups),
        "answer_tokens": sum(group.tokens for group in groups),
        "prompt_tokens": sum(len(group.prompt) for group in groups),
        "held_out_tasks": len(measured),
    }
    path.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


def _refuse_overlap(train: Sequence[Any], kept_apart: Sequence[Any]) -> None:
    from structspec.drafting.answers import Functions

    taken = Functions(document for task in kept_apart for document in task.documents)
    for task in train:
        for document in task.documents:
            if taken.has(document):
                raise PromptError(
                    f"task {task.id!r} asks for the function {document['name']!r}, which is one of "
                    "the evaluation's or much like one; take it out of --tasks"
                )


def _collect(
    target: Any,
    store: Any,
    tasks: Sequence[Any],
    per_task: int,
    sizes: Mapping[str, int],
    seed: int,
    deadline: float,
) -> Iterator[int]:
    """Answer the tasks that the store lacks until the deadline; yields how many it holds."""
    from structspec.decoding.collect import collect
    from structspec.drafting.answers import read_answers
    from structspec.drafting.sampler import AnswerSampler
    from structspec.drafting.states import observe

    yield len(store)
    missing = (t for t in tasks if time.monotonic() < deadline and t.id not in store)
    try:
        sampler = AnswerSampler(target, store.taps, seed=seed, **sizes)
    except ModelError:  # layers of another kind: one answer at a time, then once more for states
        path = store.folder.with_suffix(".jsonl")
        longest = sizes["max_tokens"]
        collect(target, missing, path, max_tokens=longest, per_task=per_task, seed=seed)
        new = (a for a in read_answers(path) if a.id not in store)
        groups = observe(target, new, store.taps)
    else:
        groups = sampler.run(missing, per_task)
    for done, group in enumerate(groups, len(store) + 1):
        store.add(group)
        yield done


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
                documents = tuple(tool["function"] for tool in tools)
                names = tuple(document["name"] for document in documents)
                yield Task(str(row.get("id", number)), messages, schema, names, documents)
    except OSError as error:
        raise PromptError(f"cannot read the tasks '{path}': {error.strerror or error}") from error
    except (UnicodeDecodeError, lzma.LZMAError) as error:
        raise PromptError(
            f"the tasks '{path}' are not lines of JSON in UTF-8 (in .xz if so named): {error}"
        ) from error
