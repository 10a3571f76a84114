"""`StateStore`: sampled answers with the target's states at every place, on disk.

Owns a folder with one safetensors file per prompt. A `Group` is a prompt, some answers to it and
float16 states at each place: what an EAGLE head reads (taps) and, last, what the target's own
output matrix makes its logits of. Training from it runs no forward of the target.

Invariants
- a file is written beside its place and renamed: an interrupt leaves whole groups only;
- groups are read one at a time; the store never holds more than what it is asked for.

Cost: 2 · size · (taps + 1) bytes per place, 5.8 KB on SmolLM2-135M with four taps.

Sibling: `sampler.AnswerSampler` makes groups; `training` reads them.

Example::

    store = StateStore(Path("run/states"), taps=(2, 9, 18, 28))
    store.add(group); store.ids(); store.group(task_id)
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from structspec.drafting.answers import Answer
from structspec.errors import MissingExtra, PromptError
from structspec.models import Model

__all__ = ["Group", "StateStore", "observe"]


@dataclass(frozen=True)
class Group:
    """A prompt and answers to it.

    `states` float16 [n + Σ len(outputs), taps + 1, size]: of the prompt's ids, then of each
    answer's in turn. `ended`: whether the answer was finished by an end token, not cut.
    """

    id: str
    schema: Any
    prompt: tuple[int, ...]
    outputs: tuple[tuple[int, ...], ...]
    ended: tuple[bool, ...]
    states: np.ndarray

    @property
    def tokens(self) -> int:
        """Tokens of all answers."""
        return sum(len(output) for output in self.outputs)


def observe(model: Model, answers: Iterable[Answer], taps: Sequence[int]) -> Iterator[Group]:
    """Groups of one answer each, whose states come from a forward of the target over the whole.

    For answers that were sampled without states, and for any model.
    """
    import torch

    for answer in answers:
        ids = torch.tensor([[*answer.prompt, *answer.output]], device=model.device)
        with torch.inference_mode():
            output = model.model(input_ids=ids, output_hidden_states=True)
            states = torch.stack(
                [output.hidden_states[tap][0] for tap in (*taps, len(output.hidden_states) - 1)],
                dim=1,
            )
        yield Group(
            answer.id,
            answer.schema,
            tuple(answer.prompt),
            (tuple(answer.output),),
            (True,),
            states.half().cpu().numpy(),
        )


class StateStore:
    """See the module. `taps` are those of the states that it holds."""

    def __init__(self, folder: Path, taps: Sequence[int]) -> None:
        self.folder = Path(folder)
        self.taps = tuple(taps)

    def __len__(self) -> int:
        return sum(1 for _ in self._files())

    def ids(self) -> list[str]:
        """The ids of the groups, in an order that does not depend on when they were added."""
        return [self._meta(path)["id"] for path in self._files()]

    def __contains__(self, name: str) -> bool:
        return self._path(name).is_file()

    def __iter__(self) -> Iterator[Group]:
        for path in self._files():
            yield self._read(path)

    def group(self, name: str) -> Group:
        """One group, read from its file."""
        return self._read(self._path(name))

    def add(self, group: Group) -> None:
        """Write a group; one of the same id is replaced."""
        self.folder.mkdir(parents=True, exist_ok=True)
        meta = {
            "id": group.id,
            "schema": group.schema,
            "lengths": [len(output) for output in group.outputs],
            "ended": list(group.ended),
            "taps": list(self.taps),
        }
        tensors = {
            "prompt": np.array(group.prompt, dtype=np.int32),
            "output": np.array([t for o in group.outputs for t in o], dtype=np.int32),
            "states": np.ascontiguousarray(group.states, dtype=np.float16),
        }
        path = self._path(group.id)
        beside = path.with_suffix(".new")
        text = json.dumps(meta, ensure_ascii=False)
        _safetensors().save_file(tensors, beside, metadata={"structspec": text})
        os.replace(beside, path)

    def _files(self) -> Iterator[Path]:
        yield from sorted(self.folder.glob("*.safetensors"))

    def _path(self, name: str) -> Path:
        digest = hashlib.blake2b(name.encode(), digest_size=10).hexdigest()
        return self.folder / f"{digest}.safetensors"

    def _meta(self, path: Path) -> dict[str, Any]:
        from safetensors import safe_open

        try:
            with safe_open(path, "np") as file:
                meta: dict[str, Any] = json.loads((file.metadata() or {})["structspec"])
        except Exception as error:  # a file of another origin, or cut
            raise PromptError(f"{path} holds no answers with states: {error}") from error
        if tuple(meta["taps"]) != self.taps:
            raise PromptError(
                f"{path} holds states of the layers {meta['taps']}, not {list(self.taps)}; "
                "move the folder away to collect anew"
            )
        return meta

    def _read(self, path: Path) -> Group:
        meta = self._meta(path)
        tensors = _safetensors().load_file(path)
        output = tensors["output"].tolist()
        outputs, at = [], 0
        for length in meta["lengths"]:
            outputs.append(tuple(output[at : at + length]))
            at += length
        return Group(
            meta["id"],
            meta["schema"],
            tuple(tensors["prompt"].tolist()),
            tuple(outputs),
            tuple(meta["ended"]),
            tensors["states"],
        )


def _safetensors() -> Any:
    try:
        import safetensors.numpy
    except ImportError as error:
        raise MissingExtra("safetensors", "models") from error
    return safetensors.numpy
