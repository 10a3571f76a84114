"""Sampling many answers at once: the law, the states, the store, and what is measured with them."""

from __future__ import annotations

import copy
import re
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from structspec.bench.exercises import exercises
from structspec.drafting.acceptance import Laws, measure
from structspec.drafting.answers import Functions, Task
from structspec.drafting.eagle_head import EagleHead
from structspec.drafting.sampler import AnswerSampler
from structspec.drafting.states import Group, StateStore
from structspec.errors import ModelError, PromptError
from structspec.kept_grammars import compiled
from structspec.models import Model

TAPS = (0, 1, 2)
SCHEMA = {"enum": ["and", "hand", "the hand", 12, 345]}


@pytest.fixture(scope="module")
def float_model(byte_model: Model) -> Model:
    return Model(copy.deepcopy(byte_model.model).float(), byte_model.tokenizer, name="float")


@pytest.fixture(scope="module")
def tasks() -> list[Task]:
    return [Task(f"t{i}", [{"role": "user", "content": "x" * i}], SCHEMA) for i in range(5)]


@pytest.fixture(scope="module")
def groups(float_model: Model, tasks: list[Task]) -> list[Group]:
    sampler = AnswerSampler(float_model, TAPS, slots=4, max_tokens=20, seed=1)
    return list(sampler.run(tasks, per_task=3))


def test_every_answer_of_every_task_fits_its_schema(
    float_model: Model, groups: list[Group]
) -> None:
    assert {group.id for group in groups} == {f"t{i}" for i in range(5)}
    for group in groups:
        assert len(group.outputs) == 3 and all(group.ended)
        for output in group.outputs:
            text = float_model.vocab.decode(output).decode()
            assert re.fullmatch(r'"(and|(the )?hand)"|12|345', text)


def test_states_are_those_of_one_forward_over_the_text(
    float_model: Model, groups: list[Group]
) -> None:
    for group in groups:
        at = len(group.prompt)
        for output in group.outputs:
            ids = torch.tensor([[*group.prompt, *output]])
            with torch.inference_mode():
                hidden = float_model.model(ids, output_hidden_states=True).hidden_states
            expected = torch.stack([hidden[tap][0] for tap in (*TAPS, len(hidden) - 1)], dim=1)
            n = len(group.prompt)
            np.testing.assert_allclose(group.states[:n], expected[:n], rtol=2e-3, atol=5e-3)
            found = group.states[at : at + len(output)]
            np.testing.assert_allclose(found, expected[n:], rtol=2e-3, atol=5e-3)
            at += len(output)
        assert at == len(group.states)


def test_answers_do_not_depend_on_what_is_sampled_beside_them(
    float_model: Model, tasks: list[Task], groups: list[Group]
) -> None:
    alone = AnswerSampler(float_model, TAPS, slots=1, max_tokens=20, seed=1)
    by_id = {group.id: group for group in groups}
    for group in alone.run(tasks[:2], per_task=3):
        assert group.outputs == by_id[group.id].outputs


def test_tokens_follow_the_masked_law(float_model: Model, tasks: list[Task]) -> None:
    """How often the first token is each legal one, against the softmax over the legal ones."""
    count = 3000
    sampler = AnswerSampler(float_model, TAPS, slots=64, max_tokens=1, seed=2)
    group = next(iter(sampler.run(tasks[:1], per_task=count)))
    seen = Counter(output[0] for output in group.outputs)
    constraint = compiled(SCHEMA, {}).bind(float_model.vocab)
    legal = constraint.allowed(constraint.start)
    with torch.inference_mode():
        logits = float_model.model(torch.tensor([list(group.prompt)])).logits[0, -1]
    law = logits[torch.from_numpy(legal)].double().softmax(-1).numpy()
    expected = {int(t): count * float(p) for t, p in zip(legal, law, strict=True)}
    assert set(seen) <= set(expected) and len(expected) > 1
    chi = sum((seen[t] - e) ** 2 / e for t, e in expected.items())
    assert chi < 5 * len(expected) + 15


def test_an_answer_that_does_not_end_is_cut(float_model: Model) -> None:
    task = Task("long", [], {"type": "string", "minLength": 40})
    sampler = AnswerSampler(float_model, TAPS, slots=2, max_tokens=6)
    (group,) = sampler.run([Task(task.id, [{"role": "user", "content": "a"}], task.schema)], 2)
    assert [len(output) for output in group.outputs] == [6, 6] and not any(group.ended)


def test_tasks_that_cannot_be_answered_are_passed_over(float_model: Model) -> None:
    messages = [{"role": "user", "content": "a"}]
    tasks = [Task("empty", messages, False), Task("good", messages, SCHEMA)]
    sampler = AnswerSampler(float_model, TAPS, slots=2, max_tokens=20)
    assert [group.id for group in sampler.run(tasks, 1)] == ["good"]


def test_layers_of_another_kind_are_refused(float_model: Model) -> None:
    class Louder(torch.nn.Module):
        def __init__(self, inner: Any) -> None:
            super().__init__()
            self.inner = inner

        def forward(self, x: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
            out = self.inner(x, *args, **kwargs)
            return (2 * out[0], *out[1:])

    other = copy.deepcopy(float_model.model)
    layer = other.model.layers[0]
    layer.self_attn.forward = Louder(layer.self_attn.forward.__get__(layer.self_attn)).forward
    with pytest.raises(ModelError, match="Llama"):
        AnswerSampler(Model(other, float_model.tokenizer, name="other"), TAPS)


def test_a_store_gives_back_what_was_put_in(groups: list[Group], tmp_path: Path) -> None:
    store = StateStore(tmp_path, TAPS)
    for group in groups:
        store.add(group)
    store.add(groups[0])
    assert sorted(store.ids()) == sorted(group.id for group in groups) and len(store) == 5
    assert "t3" in store and "t9" not in store
    for group in groups:
        found = store.group(group.id)
        assert (found.prompt, found.outputs, found.ended) == (
            group.prompt,
            group.outputs,
            group.ended,
        )
        assert found.schema == group.schema and np.array_equal(found.states, group.states)
    with pytest.raises(PromptError, match="layers"):
        StateStore(tmp_path, (0, 2)).ids()
    (tmp_path / "cut.safetensors").write_bytes(b"\x00" * 9)
    with pytest.raises(PromptError, match=r"cut\.safetensors"):
        store.ids()


def test_alpha_is_one_where_the_head_has_the_targets_law(
    float_model: Model, groups: list[Group], monkeypatch: pytest.MonkeyPatch
) -> None:
    """And below it for a head that cannot draft all tokens, by what it cannot draft."""
    head = EagleHead.for_target(float_model.model, range(float_model.logit_width), TAPS)
    group = groups[0]
    laws = Laws.of(group, float_model)
    truth = torch.nn.functional.linear(
        torch.from_numpy(group.states[len(group.prompt) :, -1].astype(np.float32)),
        float_model.model.get_output_embeddings().weight.detach(),
    )
    monkeypatch.setattr(EagleHead, "logits", lambda self, states: truth[:, self.draft_ids])
    alpha = measure(head, float_model, group, laws, depths=1)
    np.testing.assert_allclose(alpha.masked[0], 1.0, atol=1e-5)
    np.testing.assert_allclose(alpha.raw[0], 1.0, atol=1e-5)
    assert len(alpha.free[0]) == group.tokens
    few = EagleHead.for_target(float_model.model, range(0, float_model.logit_width, 2), TAPS)
    less = measure(few, float_model, group, laws, depths=1)
    legal = torch.from_numpy(laws.over(np.arange(truth.shape[1])))[torch.from_numpy(laws.index)]
    p = truth.masked_fill(~legal, -torch.inf).softmax(-1)[:, ::2].sum(-1)
    np.testing.assert_allclose(less.masked[0], p, atol=1e-5)
    np.testing.assert_allclose(less.covered, p, atol=1e-5)


def test_alpha_is_what_drafting_computes(float_model: Model, groups: list[Group]) -> None:
    """At depth 2: the head reads its own state of the place before."""
    from structspec.drafting.head_layer import HeadCache

    torch.manual_seed(5)
    head = EagleHead.for_target(float_model.model, range(float_model.logit_width), TAPS)
    with torch.no_grad():
        for parameter in head.parameters():
            parameter += 0.1 * torch.randn_like(parameter)
    group = max(groups, key=lambda g: len(g.outputs[1]))
    laws = Laws.of(group, float_model)
    alpha = measure(head, float_model, group, laws, depths=2)
    output, n, k = group.outputs[1], len(group.prompt), len(group.outputs[0])
    ids = torch.tensor([*group.prompt, *output])
    with torch.inference_mode():
        hidden = float_model.model(ids[None], output_hidden_states=True)
        features = torch.cat([hidden.hidden_states[tap][0] for tap in TAPS], dim=-1)
        for i in range(1, len(output)):
            cache = HeadCache()
            # the target has read the text up to output i - 2; the head goes on alone
            known = n + i - 1
            state = head(head.reduce(features[:known]), ids[1 : known + 1], cache)[-1:]
            state = head(state, ids[known + 1 : known + 2], cache)
            legal = torch.from_numpy(laws.over(np.arange(head.draft_ids.numel())))
            mask = ~legal[laws.index[k + i]]
            p = hidden.logits[0, n + i].masked_fill(mask, -torch.inf).softmax(-1)
            q = head.logits(state)[0].masked_fill(mask, -torch.inf).softmax(-1)
            # the first answer has len - 1 places at depth 2
            found = alpha.masked[1][k - 1 + i - 1]
            assert abs(float(torch.minimum(p, q).sum()) - found) < 5e-3
            token = (*output, float_model.eos_ids[0])[i + 1]
            ratio = alpha.ratios[k + i - 1, 1]
            assert abs(float(q[token] / p[token]) - ratio) < 0.02 * ratio + 1e-3


def test_kept_tokens_are_the_sums_over_all_paths() -> None:
    """Σ over paths of p times what the ratios say is what the oracle's verifiers keep."""
    from itertools import product

    from structspec.drafting.acceptance import kept_tokens

    draw = np.random.default_rng(0)
    p, q = ({s: draw.dirichlet([0.7] * 3) for s in [(), (0,), (1,), (2,)]} for _ in range(2))
    for block in (False, True):
        found = 0.0
        for path in product(range(3), repeat=2):
            ratio = [q[()][path[0]] / p[()][path[0]], q[path[:1]][path[1]] / p[path[:1]][path[1]]]
            chance = p[()][path[0]] * p[path[:1]][path[1]]
            found += chance * float(kept_tokens(np.array([ratio]), block)[0])
        expected = 0.0
        for x in range(3):
            one = min(p[()][x], q[()][x])
            expected += one
            for y in range(3):
                if block:
                    whole = q[()][x] * q[(x,)][y]
                    expected += min(one * p[(x,)][y], whole)
                else:
                    expected += one * min(p[(x,)][y], q[(x,)][y])
        assert abs(found - expected) < 1e-12


def test_exercises_repeat_and_keep_apart() -> None:
    first = list(exercises(40, seed=3))
    assert first == list(exercises(40, seed=3)) and first != list(exercises(40, seed=4))
    documents = [tool["function"] for row in first for tool in row.get("tools", ())]
    taken = Functions(documents[:5])
    again = list(exercises(40, 3, taken))
    assert not any(taken.has(t["function"]) for row in again for t in row.get("tools", ()))
    for row in first:
        assert row["messages"][0]["content"] and ("tools" in row) != ("schema" in row)
