"""`collect`: answers of the target, sampled by the loop, for a draft head to learn from.

Owns sampling one answer after the other and appending them to a file that an interrupt leaves
usable.

Invariants
- an answer is sampled at temperature 1 from the masked law that drafts will have to match, by a
  seed that only its task and number decide;
- the file only grows: a run that was stopped goes on behind its last whole line.

Cost: one generation per answer; it is nearly all of the time that training takes.

Siblings: `drafting.sampler` samples many answers at once on networks laid out as Llama;
`drafting.answers` reads the file.

Example::

    train, held_out = split(tasks, share=0.1)
    collect(model, train, Path("answers.jsonl"), max_tokens=200)
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable
from pathlib import Path

from structspec.decoding.loop import decode
from structspec.drafting.answers import Task, read_answers
from structspec.errors import StructspecError
from structspec.kept_grammars import compiled
from structspec.models import Model
from structspec.prompt import encode_prompt

__all__ = ["collect"]


def collect(
    model: Model,
    tasks: Iterable[Task],
    path: Path,
    *,
    max_tokens: int = 256,
    per_task: int = 1,
    seed: int = 0,
    report: Callable[[int, int], None] | None = None,
) -> int:
    """Sample answers to tasks and append them to `path`; return how many it holds then.

    Answers that are there already are passed over, tasks that cannot be answered are too.
    `report` is called with (answers, output tokens) after each.
    """
    done = {answer.id for answer in read_answers(path)}
    tokens = 0
    path.parent.mkdir(parents=True, exist_ok=True)
    _drop_torn_line(path)
    with path.open("a", encoding="utf-8") as file:
        for task in tasks:
            for k in range(per_task):
                name = f"{task.id}#{k}"
                if name in done:
                    continue
                digest = hashlib.blake2b(f"{seed}/{name}".encode(), digest_size=7).digest()
                try:
                    constraint = compiled(task.schema, {}).bind(model.vocab)
                    prompt = encode_prompt(model, list(task.messages)).ids
                    output = decode(
                        model,
                        prompt,
                        constraint,
                        draft="auto",
                        max_tokens=max_tokens,
                        seed=int.from_bytes(digest, "big"),
                    )
                except StructspecError:
                    continue
                row = {
                    "id": name,
                    "schema": task.schema,
                    "prompt": list(prompt),
                    "output": list(output.tokens),
                }
                file.write(json.dumps(row, ensure_ascii=False) + "\n")
                file.flush()
                done.add(name)
                tokens += len(output.tokens)
                if report is not None:
                    report(len(done), tokens)
    return len(done)


def _drop_torn_line(path: Path) -> None:
    """Cut a last line that an interrupt left unfinished."""
    if not path.is_file():
        return
    data = path.read_bytes()
    if data and not data.endswith(b"\n"):
        path.write_bytes(data[: data.rfind(b"\n") + 1])
