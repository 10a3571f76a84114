"""The speculation benchmark: its matrix, and figures worked out by hand."""

from dataclasses import replace
from pathlib import Path

import pytest

from structspec.bench.speculation import _matrix, _parser, _quick, settings
from structspec.bench.speculation_report import Answer, Setting, comparisons, plot, summarise

MODEL = Setting("structspec", "early-exit:24", True, "block", 1, 4, 1.0)


def answer(
    task: str, tokens: int, forwards: int, accepted: int = 0, seconds: float = 1.0
) -> Answer:
    return Answer(task, tuple(range(tokens)), seconds, forwards, accepted + 1, accepted)


def test_the_whole_matrix_has_every_axis() -> None:
    options = _parser().parse_args(["--lengths", "2", "4", "--counts", "1", "3"])
    found = set(settings(options))
    for masked in (True, False):
        for length in (2, 4):
            for verifier, count in (("token", 1), ("block", 1), ("layered", 3)):
                for temperature in (1.0,):
                    wanted = replace(
                        MODEL,
                        masked=masked,
                        length=length,
                        verifier=verifier,
                        count=count,
                        temperature=temperature,
                    )
                    assert wanted in found
    kinds = {(s.kind, s.temperature) for s in found}
    assert kinds == {(k, t) for k in ("structspec", "assisted", "peer") for t in (0.0, 1.0)}
    assert not any(s.count > 1 for s in found if s.temperature == 0)


def test_the_quick_matrix_keeps_the_main_comparisons() -> None:
    options = _parser().parse_args(["--quick"])
    _quick(options)
    found = _matrix(options)
    for wanted in (
        replace(MODEL, masked=False),
        replace(MODEL, verifier="token"),
        replace(MODEL, verifier="layered", count=3),
        replace(MODEL, temperature=0.0),
        Setting("structspec"),
        Setting("peer", "llguidance"),
        Setting("assisted", "lookup:8"),
    ):
        assert wanted in found
    assert len(found) == len(set(found)) <= 13
    assert options.tasks + options.schemas >= 30


def test_summaries_are_sums_over_tasks_that_were_answered() -> None:
    answers = [
        answer("a", 6, 2, 4, 1.0),
        answer("b", 4, 3, 1, 4.0),
        Answer("c", (), 0.0, 0, error="E"),
    ]
    row = summarise(MODEL, answers, [])
    assert (row["tasks"], row["failed"], row["errors"]) == (2, 1, ["E"])
    assert row["tokens_per_forward"] == 10 / 5
    assert row["accepted_per_forward"] == 5 / 5
    assert row["tokens_per_second"] == 10 / 5.0
    low, high = row["tokens_per_forward_95"]
    assert 4 / 3 <= low <= 2 <= high <= 3
    assert row["share_of_time"]["rest"] == 1.0


def test_greedy_texts_are_compared_with_plain_ones() -> None:
    greedy = replace(MODEL, temperature=0.0)
    plain = [answer("a", 5, 5), answer("b", 4, 4)]
    row = summarise(greedy, [answer("a", 5, 2), answer("b", 3, 2)], plain)
    assert row["identical_to_plain"] == 1


def test_comparisons_are_paired_by_task_and_name_what_theory_orders() -> None:
    answers = {
        MODEL: [answer("a", 6, 2, 4), answer("b", 6, 2, 2), answer("only here", 9, 1, 8)],
        replace(MODEL, masked=False): [answer("a", 6, 4, 2), answer("b", 6, 4, 4)],
        replace(MODEL, verifier="token"): [answer("a", 6, 2, 3), answer("b", 6, 2, 1)],
        replace(MODEL, verifier="layered", count=3): [answer("a", 6, 2, 4), answer("b", 6, 2, 4)],
        Setting("peer", "slow", temperature=1.0): [answer("a", 6, 6, seconds=9.0)],
        Setting("peer", "fast", temperature=1.0): [answer("a", 6, 6, seconds=3.0)],
    }
    found = {(row["what"], row["setting"]): row for row in comparisons(answers)}
    cut = found["masked / cut", MODEL.name]
    assert cut["tasks"] == 2
    assert cut["ratio"] == pytest.approx((6 / 4) / (6 / 8))
    assert cut["ratio_95"][0] <= cut["ratio"] <= cut["ratio_95"][1]
    assert found["block / token", MODEL.name]["ratio"] == pytest.approx(6 / 4)
    layered = replace(MODEL, verifier="layered", count=3).name
    assert found["layered K=3 / block K=1", layered]["ratio"] == pytest.approx(8 / 6)
    rival = found["fastest other engine", MODEL.name]
    assert (rival["other"], rival["ratio"], rival["tasks"]) == ("peer fast", 3.0, 1)


def test_the_plot_is_written_for_whatever_was_answered(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    rows = [
        summarise(MODEL, [answer("a", 6, 2, 4)], []),
        summarise(Setting("peer", "none"), [Answer("a", (), 0.0, 0, error="no engine")], []),
    ]
    plot(rows, tmp_path / "plot.svg")
    assert "<svg" in (tmp_path / "plot.svg").read_text()
