"""What a draft head is trained on: the target's own answers, under the grammar.

Owns the file of answers (one JSON object per line: id, schema, prompt ids, output ids), the split
into training and held-out tasks, and the choice of the draft's vocabulary.

Invariants
- an answer is sampled at temperature 1 from the law that drafts will have to match;
- the file only grows: a run that was stopped goes on behind its last whole line;
- a held-out task shares no function with any training task, so its functions are new to the head.

Cost: one generation per answer; it is nearly all of the time that training takes.

Sibling: `training` reads them.

Example::

    train, held_out = split(tasks, share=0.1)
    collect(model, train, Path("answers.jsonl"), max_tokens=200)
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from structspec.errors import PromptError, StructspecError
from structspec.models import Model

__all__ = ["Answer", "Task", "choose_vocabulary", "collect", "read_answers", "split"]


@dataclass(frozen=True)
class Task:
    """A conversation, the schema of its answer, and the names of the functions in it."""

    id: str
    messages: Sequence[dict[str, Any]]
    schema: Any
    functions: tuple[str, ...] = ()


@dataclass(frozen=True)
class Answer:
    """One sampled answer."""

    id: str
    schema: Any
    prompt: tuple[int, ...]
    output: tuple[int, ...]


def split(tasks: Sequence[Task], share: float) -> tuple[list[Task], list[Task]]:
    """Training tasks and held-out ones, which have no function in common.

    A function is held out by its name alone, so that the split does not move when tasks are added.
    Tasks with functions of both kinds are left out of both; those without any count by their id.
    """

    def is_held_out(name: str) -> bool:
        digest = hashlib.blake2b(name.encode(), digest_size=8).digest()
        return int.from_bytes(digest, "big") < share * 2**64

    train, held_out = [], []
    for task in tasks:
        kinds = {is_held_out(name) for name in task.functions or (task.id,)}
        if kinds == {True}:
            held_out.append(task)
        elif kinds == {False}:
            train.append(task)
    return train, held_out


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
    from structspec.api import compiled
    from structspec.decoding.loop import decode
    from structspec.decoding.prompt import encode_prompt

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


def read_answers(path: Path) -> Iterator[Answer]:
    """The answers in a file, none if there is no file; a torn last line is passed over."""
    if not path.is_file():
        return
    with path.open(encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            try:
                row = json.loads(line)
                yield Answer(row["id"], row["schema"], tuple(row["prompt"]), tuple(row["output"]))
            except (ValueError, KeyError, TypeError) as error:
                if not line.endswith("\n"):
                    return
                raise PromptError(f"{path}, line {number} is not an answer: {error}") from error


def choose_vocabulary(answers: Iterable[Answer], model: Model, size: int) -> list[int]:
    """The `size` ids that answers use most, end tokens and single bytes of ASCII always, ascending.

    Where answers use fewer, the lowest other ids fill up: they are the most common of most
    tokenizers.
    """
    vocab = model.vocab
    counts: Counter[int] = Counter()
    for answer in answers:
        counts.update(answer.output)
    always = [
        token
        for token, data in enumerate(vocab.tokens)
        if data is not None and len(data) == 1 and data[0] < 128
    ]
    chosen = dict.fromkeys([*(e for e in vocab.eos_ids if e < model.logit_width), *always])
    for token, _ in counts.most_common():
        if len(chosen) >= size:
            break
        chosen[token] = None
    for token, data in enumerate(vocab.tokens):
        if len(chosen) >= size:
            break
        if data:
            chosen[token] = None
    return sorted(chosen)


def _drop_torn_line(path: Path) -> None:
    """Cut a last line that an interrupt left unfinished."""
    if not path.is_file():
        return
    data = path.read_bytes()
    if data and not data.endswith(b"\n"):
        path.write_bytes(data[: data.rfind(b"\n") + 1])
