"""`call_tools` on the default model: real tasks, judged by `jsonschema` and by accepted answers."""

from __future__ import annotations

import pytest

from structspec.bench import call_tools
from structspec.bench.answers import matches
from structspec.bench.call_tools import WAYS, answer, answers, logit_gap, read_call_tasks
from structspec.bench.call_tools_report import TIE, Answer, summarise, table
from structspec.tools import ToolCall

GREEDY, PLAIN, FREE, SAMPLED, SAMPLED_PLAIN, _ = WAYS


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


@pytest.mark.model
def test_tasks_that_are_decoded_together_are_answered_as_alone(default_model, tasks):
    """Sampled with one seed: up to ties, a batch changes nothing."""
    two = tasks(2)
    together = answers(default_model, two, [SAMPLED_PLAIN], max_tokens=64)
    assert [row.id for row in together] == [task.id for task in two]
    assert all(row.parsed and row.valid for row in together)
    alone = [answer(default_model, task, SAMPLED_PLAIN, max_tokens=64) for task in two]
    assert [row.text for row in together] == [row.text for row in alone]


@pytest.mark.model
def test_the_gap_of_replies_is_that_of_their_logits_at_the_first_difference(default_model):
    import torch

    prompt = [1, 500, 300]
    with torch.inference_mode():
        logits = default_model.model(torch.tensor([[*prompt, 40]])).logits[0, -1]
    end = max(float(logits[i]) for i in default_model.vocab.eos_ids)
    gap = abs(float(logits[50] - logits[60]))
    assert logit_gap(default_model, prompt, [40, 50, 9], [40, 60]) == pytest.approx(gap, abs=1e-4)
    shorter = logit_gap(default_model, prompt, [40, 50], [40])
    assert shorter == pytest.approx(abs(float(logits[50]) - end), abs=1e-4)
    assert logit_gap(default_model, prompt, [40], [40]) is None


def _row(task: str, way: str, text: str, gap: float | None = None) -> Answer:
    return Answer(task, way, True, True, False, 10, 2, text, "", gap)


def test_greedy_replies_that_differ_are_ties_only_where_two_logits_are_equal():
    rows = [
        *(_row("same", way.name, "x") for way in (GREEDY, PLAIN)),
        _row("tie", GREEDY.name, "x", TIE / 2),
        _row("tie", PLAIN.name, "y"),
        _row("apart", GREEDY.name, "x", 0.5),
        _row("apart", PLAIN.name, "y"),
        _row("unknown", GREEDY.name, "x"),
        _row("unknown", PLAIN.name, "y"),
    ]
    pairs = summarise(rows)["greedy_pairs"]
    assert pairs["tasks"] == 4 and pairs["identical"] == 1
    assert [row["id"] for row in pairs["ties"]] == ["tie"]
    assert [row["id"] for row in pairs["different"]] == ["apart", "unknown"]
    machine = {"cores": 2, "processor": "p"}
    report = {"model": "m", "machine": machine, "command": "c", "summary": summarise(rows)}
    assert "identical in 1 of 4 tasks; ties of two logits: 1, tie (0.0005 apart)" in table(report)


@pytest.mark.model
def test_an_interrupted_run_goes_on_where_it_stopped(
    default_model, tasks, monkeypatch, tmp_path, capsys
):
    asked: list[str] = []

    def fake(model, chunk, ways, *, max_tokens):
        asked.extend(task.id for task in chunk)
        if len(asked) > 2:
            raise KeyboardInterrupt
        return [_row(task.id, way.name, "x") for task in chunk for way in ways]

    monkeypatch.setattr(call_tools, "answers", fake)
    monkeypatch.setattr(call_tools, "_ROUND", 2)
    monkeypatch.setattr("structspec.models.load", lambda *_, **__: default_model)
    file = tmp_path / "r.json"
    given = ["--tasks", "3", "--json", str(file), "--resume"]
    with pytest.raises(KeyboardInterrupt):
        call_tools.main(given)
    first = [task.id for task in tasks(3)]
    assert asked == first
    asked.clear()
    assert call_tools.main(given) == 0
    assert asked == first[2:]
    assert call_tools.main(given) == 0 and asked == first[2:], "nothing is left to do"
    with pytest.raises(SystemExit):
        call_tools.main(["--tasks", "2", "--json", str(file), "--resume"])
    assert "was made by" in capsys.readouterr().err


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
