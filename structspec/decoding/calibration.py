"""`calibrate`: a draft source whose lengths are chosen by what this machine's forwards cost.

Owns the measurement: the target's cached forward of one token and of several, and a round of the
draft, each a median of a few runs. What is measured becomes part of the source (`costs`), as plain
numbers: texts are a function of the source and the seed, and the clock is not read again. Measured
anew the numbers differ a little, and with them the texts of a seed; keep the numbers
(`source.costs`) to repeat texts in another process.

Cost: about twenty forwards of the target and eight of its rounds with the draft.

Siblings: `drafting.lengths` chooses lengths; `bench.forwards` measures forwards at length.

Example::

    draft = calibrate(model, "eagle")
    structspec.generate(model, prompt, Person, draft=draft)
    draft.costs                                    # DraftCosts(forward=…, token=…, step=…)
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from structspec.decoding.loop import decode_many
from structspec.decoding.progress import Job
from structspec.drafting import DraftSource, draft_source
from structspec.drafting.lengths import DraftCosts
from structspec.drafting.model import DraftSettings
from structspec.errors import DraftError
from structspec.forward.rows import Call, TargetRows
from structspec.kept_grammars import compiled
from structspec.models import Model

__all__ = ["calibrate"]

_CONTEXT = 256
_TOKENS = 8
_REPEATS = 7


def calibrate(model: Model, draft: Any, *, batch_size: int = 1) -> DraftSource:
    """The same draft with measured costs, for batches of so many requests.

    draft: a name or source whose drafts come from a network (see `draft_source`). Raises
    `DraftError` for one that costs nothing, such as "auto": there is nothing to weigh.
    """
    source = draft_source(draft)
    if not isinstance(source, DraftSettings):
        raise DraftError(
            f"{type(source).__name__} runs no network, so its length has no cost to weigh; "
            "calibrate a ModelDraft, EarlyExit, EagleDraft or MedusaDraft, or their names"
        )
    if batch_size < 1:
        raise ValueError(f"batch_size={batch_size} must be at least 1")
    one, several = (_forward_seconds(model, n, batch_size) for n in (1, 1 + _TOKENS))
    step = _step_seconds(model, source, batch_size)
    found = DraftCosts(forward=one, token=max(0.0, several - one) / _TOKENS, step=step)
    return replace(source, costs=found)


def _forward_seconds(model: Model, count: int, batch_size: int) -> float:
    """A forward of `count` tokens of each row behind a text."""
    rows = TargetRows(model)
    ids = _ids(model, _CONTEXT)
    places = [rows.open() for _ in range(batch_size)]
    for row in places:
        rows.forward([Call(row, ids)])

    def run() -> None:
        rows.forward([Call(row, ids[:count], count) for row in places])
        _wait(model)
        for row in places:
            rows.crop(row, count)

    return _median(run)


def _step_seconds(model: Model, source: DraftSettings, batch_size: int) -> float:
    """A free token of the draft, for all requests of a batch together."""
    fixed = replace(source, adaptive=False, length=4, costs=None)
    constraint = compiled({"type": "string", "minLength": 20}, {}).bind(model.vocab)
    tokens = 40
    jobs = [
        Job(_ids(model, 32), constraint, max_tokens=tokens, seed=0, request=i)
        for i in range(batch_size)
    ]
    spent, drafted = 0.0, 0
    for output in decode_many(model, jobs, draft=fixed, batch_size=batch_size):  # type: ignore[arg-type]
        if isinstance(output, Exception):
            raise output
        spent += output.stats.draft_time
        drafted += output.stats.drafted
    return spent * batch_size / max(1, drafted)


def _ids(model: Model, count: int) -> list[int]:
    """Ids of some text that fits into the window."""
    longest = count if model.window is None else min(count, max(1, model.window // 4))
    text = model.vocab.encode(b"The quick brown fox jumps over the lazy dog. ")
    return (text * (longest // len(text) + 1))[:longest]


def _median(run: Callable[[], None]) -> float:
    run()  # what is made once is not counted
    found = []
    for _ in range(_REPEATS):
        began = time.perf_counter()
        run()
        found.append(time.perf_counter() - began)
    return statistics.median(found)


def _wait(model: Model) -> None:
    if model.device.type == "cuda":
        import torch

        torch.cuda.synchronize(model.device)
