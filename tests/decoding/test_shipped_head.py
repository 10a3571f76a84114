"""The head that ships: small, legal, for the default model only, and better than look-up."""

from __future__ import annotations

import json
import shutil
import tomllib
from dataclasses import replace
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest
import torch

import structspec
from structspec.bench.tasks import ToolTask, read_tasks, tasks_apart
from structspec.decoding.loop import decode
from structspec.drafting import draft_source
from structspec.drafting.answers import Functions
from structspec.drafting.draft import Request
from structspec.drafting.eagle import HeadFiles
from structspec.drafting.eagle_head import EagleHead
from structspec.drafting.head_files import SHIPPED
from structspec.errors import DraftError
from structspec.models import Model
from structspec.packed import is_set

ROOT = Path(__file__).parents[2]
SCHEMA = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "maxLength": 12},
        "kind": {"enum": ["rain", "wind", "sun"]},
        "days": {"type": "integer", "minimum": 1, "maximum": 14},
    },
    "required": ["city", "kind", "days"],
    "additionalProperties": False,
}


@pytest.fixture(scope="module")
def tasks(data_directory: Path) -> list[ToolTask]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("STRUCTSPEC_DATA", str(data_directory))
        return list(read_tasks(6))


def test_the_weights_are_small_and_go_into_a_wheel() -> None:
    files = [path for path in SHIPPED.iterdir() if path.is_file()]
    assert {path.name for path in files} == {"config.json", "model.safetensors"}
    assert sum(path.stat().st_size for path in files) <= 16 * 2**20
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    patterns = declared["tool"]["setuptools"]["package-data"]["structspec.drafting"]
    for path in files:
        inside = path.relative_to(ROOT / "structspec" / "drafting").as_posix()
        assert any(fnmatch(inside, pattern) for pattern in patterns)


@pytest.mark.model
def test_the_head_is_found_by_name(default_model: Model) -> None:
    for name in ("eagle", "eagle:default"):
        source = draft_source(name)
        assert isinstance(source, HeadFiles) and Path(source.folder) == SHIPPED
    head = EagleHead.load(SHIPPED, default_model.model)
    assert set(default_model.eos_ids) <= set(head.draft_ids.tolist())
    assert max(head.taps) < len(default_model.model.model.layers)


@pytest.mark.model
def test_it_answers_with_what_the_schema_allows(default_model: Model) -> None:
    result = structspec.generate(
        default_model, "The weather as JSON.", SCHEMA, draft="eagle", max_tokens=60, seed=1
    )
    assert set(result.value) == {"city", "kind", "days"}
    assert result.stats.accepted > 0


@pytest.mark.model
def test_it_drafts_legal_tokens_only(default_model: Model) -> None:
    """Each drafted token is a bit of the mask before it, at every round of a real request."""
    seen: list[tuple[Any, Any]] = []

    class Spy(HeadFiles):
        def begin(self, request: Request) -> Any:
            drafter = super().begin(request)
            inner = drafter.plan

            def propose(*arguments: Any) -> Any:
                drafts = yield from inner(*arguments)
                seen.extend((request, draft) for draft in drafts)
                return drafts

            drafter.plan = propose  # type: ignore[method-assign]
            return drafter

    structspec.generate(
        default_model,
        "The weather as JSON.",
        SCHEMA,
        draft=Spy("eagle", str(SHIPPED)),
        max_tokens=60,
        seed=2,
    )
    drafted = 0
    for _, draft in seen:
        for token, mask, row in zip(draft.tokens, draft.masks, range(len(draft)), strict=True):
            assert is_set(mask, token)
            drafted += 1
            if draft.q is not None and not (draft.onehot and draft.onehot[row]):
                legal = set(torch.nonzero(draft.q[row]).flatten().tolist())
                assert token in legal and all(is_set(mask, i) for i in legal)
    assert drafted > 10


@pytest.mark.model
def test_more_of_its_tokens_are_kept_than_of_look_up(
    default_model: Model, tasks: list[ToolTask]
) -> None:
    kept = {}
    for name in ("eagle", "lookup"):
        stats = [
            structspec.generate(
                default_model,
                task.messages,
                task.schema,
                draft=name,
                temperature=1.0,
                max_tokens=40,
                seed=3,
            ).stats
            for task in sorted(tasks, key=lambda task: len(str(task.messages)))[:4]
        ]
        kept[name] = sum(s.accepted for s in stats) / sum(s.forwards for s in stats)
    assert kept["eagle"] > kept["lookup"]


@pytest.mark.model
def test_another_target_is_refused(default_model: Model, byte_model: Model) -> None:
    with pytest.raises(DraftError, match=r"trained for SmolLM2-135M-Instruct.*hidden_size"):
        EagleHead.load(SHIPPED, byte_model.model)
    constraint = structspec.compile(SCHEMA).bind(byte_model.vocab)
    with pytest.raises(DraftError, match="train-draft"):
        decode(byte_model, [97], constraint, draft="eagle", max_tokens=60)


@pytest.mark.model
def test_the_same_sizes_with_other_weights_are_refused(
    default_model: Model, tmp_path: Path
) -> None:
    folder = tmp_path / "head"
    shutil.copytree(SHIPPED, folder)
    path = folder / "config.json"
    config = json.loads(path.read_text("utf-8"))
    config["target"]["fingerprint"][5] += 0.5
    path.write_text(json.dumps(config))
    with pytest.raises(DraftError, match="other weights"):
        EagleHead.load(folder, default_model.model)


def test_no_training_task_has_a_function_like_an_evaluation_task(data_directory: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("STRUCTSPEC_DATA", str(data_directory))
        first, others = tasks_apart(30)
    taken = Functions(tool["function"] for task in first for tool in task.tools)
    assert len(first) == 30 and len(others) > 300
    assert all(taken.has(tool["function"]) for task in first for tool in task.tools)
    assert not any(taken.has(tool["function"]) for row in others for tool in row["tools"])


def test_functions_are_alike_by_name_or_by_parameters() -> None:
    def document(name: str, *parameters: str) -> dict[str, Any]:
        return {"name": name, "parameters": {"properties": {key: {} for key in parameters}}}

    taken = Functions([document("get_weather", "place", "day", "unit"), document("f", "a", "b")])
    assert taken.has(document("getWeather"))
    assert taken.has(document("forecast", "place", "day", "unit", "language"))
    assert taken.has(document("g", "b", "a"))
    assert not taken.has(document("forecast", "place", "day", "language"))
    assert not taken.has(document("h", "a"))


def test_the_source_keeps_its_settings() -> None:
    source = draft_source("eagle")
    assert isinstance(source, HeadFiles)
    assert replace(source, length=2, adaptive=False).settings()["length"] == 2
