"""What a draft head is trained on: the target's own answers, under the grammar.

Owns the file of answers (one JSON object per line: id, schema, prompt ids, output ids), the split
into training and held-out tasks, and the choice of the draft's vocabulary.

Invariants
- an answer is sampled at temperature 1 from the law that drafts will have to match;
- the file only grows: a run that was stopped goes on behind its last whole line;
- a held-out task shares no function with any training task, so its functions are new to the head.

Siblings: `decoding.collect` samples them by the loop, `sampler` many at once with the target's
states; `training` reads them.

Example::

    train, held_out = split(tasks, share=0.1)
    ids = choose_vocabulary((a.output for a in read_answers(path)), model, size=5120)
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from structspec.errors import PromptError
from structspec.models import Model

__all__ = [
    "Answer",
    "Functions",
    "Task",
    "choose_vocabulary",
    "read_answers",
    "split",
]


@dataclass(frozen=True)
class Task:
    """A conversation, the schema of its answer, and the names and documents of its functions."""

    id: str
    messages: Sequence[dict[str, Any]]
    schema: Any
    functions: tuple[str, ...] = ()
    documents: Sequence[dict[str, Any]] = ()


@dataclass(frozen=True)
class Answer:
    """One sampled answer."""

    id: str
    schema: Any
    prompt: tuple[int, ...]
    output: tuple[int, ...]


class Functions:
    """Functions that are kept apart, and whether another is one of them or much like one.

    Alike are functions of the same name (letters and digits, without case), and those whose
    parameters have much the same names: three quarters of all, or both of two.
    """

    def __init__(self, documents: Iterable[Mapping[str, Any]] = ()) -> None:
        self.names: set[str] = set()
        self._parameters: set[frozenset[str]] = set()
        for document in documents:
            self.names.add(_plain(document["name"]))
            self._parameters.add(_parameters(document))

    def has(self, document: Mapping[str, Any]) -> bool:
        """Whether a function document ("name", "parameters") is one of these or much like one."""
        if _plain(document["name"]) in self.names:
            return True
        own = _parameters(document)
        for other in self._parameters:
            every = len(own | other)
            if own == other and every == 2:
                return True
            if every >= 3 and len(own & other) >= 0.75 * every:
                return True
        return False


def _plain(name: str) -> str:
    return "".join(c for c in name.lower() if c.isalnum())


def _parameters(document: Mapping[str, Any]) -> frozenset[str]:
    return frozenset((document.get("parameters") or {}).get("properties") or ())


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


def choose_vocabulary(
    outputs: Iterable[Sequence[int]], model: Model, size: int, mass: Any = None
) -> list[int]:
    """The `size` ids that answers use most, end tokens and single bytes of ASCII always, ascending.

    `mass` [V]: how much of the target's laws each id held at some places; it counts like use.
    Where answers use fewer, the lowest other ids fill up: they are the most common of most
    tokenizers.
    """
    vocab = model.vocab
    counts: Counter[int] = Counter()
    for output in outputs:
        counts.update(output)
    if mass is not None:
        scale = max(1, sum(counts.values())) / max(float(mass.sum()), 1e-9)
        counts.update({i: float(share) * scale for i, share in enumerate(mass) if share > 0})
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
