"""`call_tools` on the default model: real tasks, judged by `jsonschema` and by accepted answers."""

from __future__ import annotations

import pytest

from structspec.bench.answers import matches
from structspec.bench.call_tools import WAYS, answer, read_call_tasks, summarise
from structspec.tools import ToolCall

GREEDY, PLAIN, FREE, SAMPLED, _ = WAYS


@pytest.fixture
def tasks(data_directory, monkeypatch):
    monkeypatch.setenv("STRUCTSPEC_DATA", str(data_directory))
    return lambda count: list(read_call_tasks(count))


@pytest.mark.model
def test_two_real_tasks_give_valid_calls_greedily_and_sampled_and_drafts_change_nothing(
    default_model, tasks
):
    for task in tasks(2):
        fast, plain, sampled = (
            answer(default_model, task, way, max_tokens=64) for way in (GREEDY, PLAIN, SAMPLED)
        )
        for row in (fast, plain, sampled):
            assert row.parsed and row.valid, row
        assert fast.text == plain.text
        assert fast.forwards < plain.forwards


@pytest.mark.model
@pytest.mark.full
def test_a_hundred_real_tasks_give_valid_calls(default_model, tasks, capsys):
    rows = []
    for task in tasks(100):
        made = [answer(default_model, task, way) for way in (GREEDY, PLAIN, SAMPLED)]
        rows += made
        assert all(row.parsed and row.valid for row in made), made
    with capsys.disabled():
        print(f"\n{summarise(rows)}")


@pytest.mark.model
def test_a_free_reply_is_judged_by_the_same_reader(default_model, tasks):
    (task,) = tasks(1)
    row = answer(default_model, task, FREE, max_tokens=12)
    assert not row.parsed and row.error and not row.valid and not row.accepted


def test_answers_are_compared_as_the_source_of_the_tasks_compares_them():
    accepted = [
        {"f": {"a": [1, 2], "b": ["New York", ""], "c": [{"x": [1, ""], "y": ["q"]}, ""]}},
        {"g": {"l": [[1, "a"], []]}},
    ]
    right = [
        ToolCall("g", {"l": [1.0, "A"]}),
        ToolCall("f", {"a": 2, "b": "new-york", "c": {"y": "Q"}}),
    ]
    assert matches(right, accepted) and matches(right[::-1], accepted)
    for name, arguments in (
        ("f", {"a": 3}),
        ("f", {"a": True}),
        ("f", {"b": "New York"}),
        ("f", {"a": 1, "d": 1}),
        ("f", {"a": 1, "c": {"x": 1}}),
        ("h", {"a": 1}),
    ):
        assert not matches([right[0], ToolCall(name, arguments)], accepted), arguments
    assert not matches(right[:1], accepted) and not matches([*right, right[0]], accepted)
    assert matches([], [])


def test_missing_tasks_are_named(monkeypatch, tmp_path):
    monkeypatch.setenv("STRUCTSPEC_DATA", str(tmp_path))
    with pytest.raises(FileNotFoundError, match="STRUCTSPEC_DATA"):
        next(read_call_tasks(1))
