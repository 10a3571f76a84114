"""Training a draft head: the unrolled pass is what drafting does, the loss falls, runs go on."""

from __future__ import annotations

import copy
import json
import xml.dom.minidom
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
import torch

from structspec.decoding.collect import collect
from structspec.decoding.loop import decode
from structspec.drafting import EagleDraft, EagleHead
from structspec.drafting.answers import (
    Answer,
    Task,
    choose_vocabulary,
    read_answers,
    split,
)
from structspec.drafting.curves import Point, draw_curves
from structspec.drafting.head_layer import HeadCache
from structspec.drafting.states import Group, observe
from structspec.drafting.training import Recipe, Trainer
from structspec.drafting.unrolled import Places, unroll
from structspec.errors import ModelError, PromptError
from structspec.models import Model
from structspec.vocab import Vocabulary

Bind = Callable[[str, Vocabulary], Any]
SCHEMA = {
    "type": "array",
    "items": {"enum": ["the hand", "band", "and", 12, 345]},
    "minItems": 2,
    "maxItems": 4,
}
TAPS = (1, 2, 2)
RECIPE = Recipe(steps=40, batch=4, learning_rate=3e-3, warmup=2, vocabulary=200, depths=3)


class InMemory:
    """Groups in a dict."""

    taps = TAPS

    def __init__(self, groups: Iterable[Group]) -> None:
        self._groups = {group.id: group for group in groups}

    def ids(self) -> list[str]:
        return list(self._groups)

    def group(self, name: str) -> Group:
        return self._groups[name]

    def first(self, count: int) -> InMemory:
        return InMemory(list(self._groups.values())[:count])


@pytest.fixture(scope="module")
def float_model(byte_model: Model) -> Model:
    return Model(copy.deepcopy(byte_model.model).float(), byte_model.tokenizer, name="float")


@pytest.fixture(scope="module")
def tasks() -> list[Task]:
    return [
        Task(f"t{i}", [{"role": "user", "content": f"{i}"}], SCHEMA, (f"f{i % 9}",))
        for i in range(24)
    ]


@pytest.fixture(scope="module")
def answers(float_model: Model, tasks: list[Task], tmp_path_factory: Any) -> list[Answer]:
    path = tmp_path_factory.mktemp("answers") / "answers.jsonl"
    collect(float_model, tasks, path, max_tokens=30)
    return list(read_answers(path))


@pytest.fixture(scope="module")
def groups(float_model: Model, answers: list[Answer]) -> InMemory:
    return InMemory(observe(float_model, answers, TAPS))


def test_the_unrolled_pass_is_what_drafting_computes(byte_model: Model) -> None:
    """At every place and depth: true features up to a place, then the head's own states."""
    torch.manual_seed(3)
    head = EagleHead.for_target(byte_model.model, [97, 98, 99], (0, 1, 2)).double()
    with torch.no_grad():
        for parameter in head.parameters():
            parameter += 0.2 * torch.randn_like(parameter)
    ids = torch.tensor([97, 100, 98, 102, 99, 97, 120, 101, 110])
    count, low, depths = len(ids) - 1, 3, 4
    with torch.no_grad():
        states = byte_model.model(ids[None], output_hidden_states=True).hidden_states
        features = torch.cat([states[tap][0, :count] for tap in head.taps], dim=-1)
        found = unroll(head, features, Places.of_chain(ids, low), depths)
        for place in range(low, count):
            for depth in range(depths):
                first = place - depth  # the last place that the target has read
                if first < low:
                    continue
                cache = HeadCache()
                reduced = head.reduce(features[: first + 1])
                state = head(reduced, ids[1 : first + 2], cache)[-1:]
                for later in range(first + 1, place + 1):
                    state = head(state, ids[later + 1 : later + 2], cache)
                torch.testing.assert_close(found[depth][place - low], state[0])


def test_answers_are_collected_once_and_a_torn_line_is_repaired(
    float_model: Model, tasks: list[Task], tmp_path: Path
) -> None:
    path = tmp_path / "answers.jsonl"
    assert collect(float_model, tasks[:3], path, max_tokens=30, per_task=2) == 6
    whole = path.read_text()
    path.write_text(whole[:-20])  # as an interrupt leaves it
    assert len(list(read_answers(path))) == 5
    seen: list[int] = []
    report = lambda done, tokens: seen.append(done)  # noqa: E731
    assert collect(float_model, tasks[:3], path, max_tokens=30, per_task=2, report=report) == 6
    assert seen == [6] and path.read_text() == whole
    for answer in read_answers(path):
        text = float_model.vocab.decode(answer.output)
        assert len(json.loads(text)) >= 2
    path.write_text("{}\n")
    with pytest.raises(PromptError, match="line 1"):
        list(read_answers(path))


def test_held_out_functions_are_in_no_training_task() -> None:
    tasks = [
        Task(f"t{i}", [], {}, tuple(f"f{j}" for j in range(i % 40, i % 40 + 1 + i % 2)))
        for i in range(400)
    ]
    train, held_out = split(tasks, 0.3)
    functions = [{f for task in part for f in task.functions} for part in (train, held_out)]
    assert not functions[0] & functions[1] and train and held_out
    assert split(tasks[:100], 0.3)[1] == [task for task in held_out if task in tasks[:100]]


def test_the_vocabulary_holds_what_answers_use(float_model: Model, answers: list[Answer]) -> None:
    outputs = [answer.output for answer in answers]
    ids = choose_vocabulary(outputs, float_model, 150)
    assert ids == sorted(set(ids)) and len(ids) == 150
    assert set(float_model.vocab.eos_ids) <= set(ids)
    used = {token for answer in answers for token in answer.output}
    assert used <= set(choose_vocabulary(outputs, float_model, 200))


def test_the_loss_falls_and_acceptance_rises(
    float_model: Model, answers: list[Answer], groups: InMemory, tmp_path: Path
) -> None:
    trainer = Trainer(float_model, groups, RECIPE, tmp_path, groups.first(6))
    before = trainer.evaluate(groups)
    target = [weight.clone() for weight in float_model.model.parameters()]
    trainer.run(every=20)
    after = trainer.evaluate(groups)
    assert after.loss < 0.6 * before.loss
    assert all(b > a for a, b in zip(before.acceptance, after.acceptance, strict=True))
    assert all(map(torch.equal, target, float_model.model.parameters()))
    assert [point.step for point in trainer.curve if point.held_out] == [20, 40]
    picture = (tmp_path / "curve.svg").read_text()
    assert xml.dom.minidom.parseString(picture).documentElement.tagName == "svg"
    # and it drafts: more of its tokens are kept than of the untrained head's
    kept = []
    for head in (Trainer(float_model, groups, RECIPE, tmp_path / "new").head, trainer.head):
        stats = [
            decode(
                float_model,
                answer.prompt,
                _constraint(float_model),
                draft=EagleDraft(head, spans=False, length=3, adaptive=False),
                max_tokens=30,
                seed=seed,
            ).stats
            for answer in answers
            for seed in range(3)
        ]
        kept.append(sum(s.accepted for s in stats) / sum(s.drafted for s in stats))
    assert kept[1] > kept[0]


def _constraint(model: Model) -> Any:
    from structspec.kept_grammars import compiled

    return compiled(SCHEMA, {}).bind(model.vocab)


def test_a_resumed_run_equals_one_that_went_through(
    float_model: Model, groups: InMemory, tmp_path: Path
) -> None:
    through = Trainer(float_model, groups, RECIPE, tmp_path / "one")
    for _ in range(6):
        through._one_step()
    stopped = Trainer(float_model, groups, RECIPE, tmp_path / "two")
    for _ in range(3):
        stopped._one_step()
    stopped.save()
    resumed = Trainer(float_model, groups, RECIPE, tmp_path / "two")
    assert resumed.step == 3
    for _ in range(3):
        resumed._one_step()
    for a, b in zip(through.head.parameters(), resumed.head.parameters(), strict=True):
        torch.testing.assert_close(a, b)


def test_what_cannot_be_gone_on_with_is_named(
    float_model: Model, groups: InMemory, tmp_path: Path
) -> None:
    with pytest.raises(PromptError, match="collect"):
        Trainer(float_model, InMemory([]), RECIPE, tmp_path)
    (tmp_path / "checkpoint.pt").write_bytes(b"cut")
    with pytest.raises(ModelError, match="start anew"):
        Trainer(float_model, groups, RECIPE, tmp_path)


def test_curves_of_no_points_are_a_picture_too() -> None:
    assert draw_curves([]).startswith("<svg")
    picture = draw_curves([Point(1, float("nan"), (0.5, float("nan"))), Point(2, 1.0, (0.6, 0.4))])
    assert xml.dom.minidom.parseString(picture) and "nan" not in picture


def test_a_head_that_goes_on_may_draft_more_ids(
    float_model: Model, groups: InMemory, tmp_path: Path
) -> None:
    first = EagleHead.for_target(float_model.model, [97, 98, 99], TAPS)
    weights = first.fc.weight.detach().clone()
    trainer = Trainer(float_model, groups, RECIPE, tmp_path, start=first)
    ids = trainer.head.draft_ids.tolist()
    assert ids == sorted(set(ids)) and {97, 98, 99} <= set(ids) and len(ids) >= 200
    assert torch.equal(trainer.head.fc.weight, weights)
    states = torch.randn(2, first.size)
    rows = float_model.model.get_output_embeddings().weight[ids]
    torch.testing.assert_close(trainer.head.logits(states), trainer.head.norm(states) @ rows.T)
    small = EagleHead.for_target(float_model.model, range(210), TAPS)
    assert len(Trainer(float_model, groups, RECIPE, tmp_path, start=small).head.draft_ids) == 210
