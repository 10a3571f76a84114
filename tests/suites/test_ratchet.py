"""The ratchet: what was better may not get worse, what got better asks to be committed."""

from __future__ import annotations

from pathlib import Path

import pytest

from structspec.errors import SchemaError
from structspec.suites import Group, GroupResult, Outcome, Run, Suite, Test, TestResult
from structspec.suites.baseline import baseline_of, compare, read_baseline, write_baseline


def run(*outcomes: Outcome, schema: str = "{}", failure: Outcome | None = None) -> Run:
    """One schema with these outcomes, and one without tests that compiled or failed."""
    tests = tuple(Test(f"t{i}", str(i), True) for i in range(len(outcomes)))
    groups = (Group("g", "topic", schema, tests), Group("lone", "topic", "{}", ()))
    results = tuple(TestResult(f"t{i}", o) for i, o in enumerate(outcomes))
    return Run(
        Suite("s", groups),
        "structspec",
        "1",
        {"key_order": "any"},
        (
            GroupResult("g", "topic", results, 0.1),
            GroupResult("lone", "topic", (), None, None, failure),
        ),
    )


R, F, A, N = Outcome.RIGHT, Outcome.REFUSED, Outcome.FALSE_ACCEPT, Outcome.FALSE_REJECT


def test_the_same_outcomes_are_as_in_the_baseline(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "s.json"
    write_baseline(path, run(R, F, A))
    result = compare(read_baseline(path), run(R, F, A))
    assert not result.regressions and not result.improvements
    assert result.summary == "as in the baseline"


def test_a_baseline_holds_digest_counts_and_the_ids_that_are_not_right() -> None:
    baseline = baseline_of(run(R, F, A, F))
    assert baseline["not_right"] == {"false accept": ["t2"], "refused": ["t1", "t3"]}
    assert baseline["counts"] == {"right": 1, "refused": 2, "false accept": 1}
    assert len(baseline["sha256"]) == 64 and baseline["options"] == {"key_order": "any"}


@pytest.mark.parametrize(
    ("before", "after"),
    [(R, F), (R, A), (R, Outcome.CRASH), (F, Outcome.TIMEOUT), (F, N), (N, A), (Outcome.CRASH, N)],
)
def test_worse_is_a_regression_and_the_way_back_an_improvement(
    before: Outcome, after: Outcome
) -> None:
    worse = compare(baseline_of(run(R, before)), run(R, after))
    assert worse.regressions == (f"t1: {before} -> {after}",) and not worse.improvements
    better = compare(baseline_of(run(R, after)), run(R, before))
    assert not better.regressions and len(better.improvements) == 1
    assert "commit the new baseline" in better.summary


def test_an_improvement_does_not_hide_a_regression() -> None:
    result = compare(baseline_of(run(R, F)), run(F, R))
    assert len(result.regressions) == len(result.improvements) == 1


def test_a_schema_without_tests_is_watched_too() -> None:
    result = compare(baseline_of(run(R)), run(R, failure=Outcome.CRASH))
    assert result.regressions == ("lone: right -> crash",)


def test_a_sample_is_compared_for_what_ran() -> None:
    whole = run(R, A)
    part = Run(whole.suite, "structspec", "1", whole.options, whole.groups[1:])
    assert not compare(baseline_of(whole), part).improvements


def test_another_suite_or_other_options_cannot_be_compared() -> None:
    baseline = baseline_of(run(R))
    with pytest.raises(SchemaError, match="suite content"):
        compare(baseline, run(R, schema="true"))
    baseline["options"] = {"key_order": "declared"}
    with pytest.raises(SchemaError, match="options"):
        compare(baseline, run(R))


def test_a_missing_baseline_is_named(tmp_path: Path) -> None:
    with pytest.raises(SchemaError, match="none"):
        read_baseline(tmp_path / "none.json")
