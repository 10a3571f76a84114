"""Every outcome is graded as what it is, and a run survives crashes and hangs."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from structspec.errors import MissingExtra, SchemaError, StructspecError
from structspec.suites import Group, Outcome, Run, Suite, Test, run_suite
from structspec.suites.report import as_json, junit, quantiles, table

ENGINE = f"{Path(__file__).with_name('scripted_engine.py')}:make"

# What the script does, whether the text is valid, the outcome.
TEXTS = [
    ("yes", True, Outcome.RIGHT),
    ("no", False, Outcome.RIGHT),
    ("yes", False, Outcome.FALSE_ACCEPT),
    ("no", True, Outcome.FALSE_REJECT),
    ("refuse", True, Outcome.REFUSED),
    ("budget", False, Outcome.REFUSED),
    ("raise", False, Outcome.CRASH),
    ("panic", True, Outcome.CRASH),
    ("die", False, Outcome.CRASH),
    ("yes", True, Outcome.RIGHT),
    ("exit", True, Outcome.CRASH),
    ("hang", True, Outcome.TIMEOUT),
    ("yes", True, Outcome.TIMEOUT),
]
SCHEMAS = {
    "refuse": Outcome.REFUSED,
    "budget": Outcome.REFUSED,
    "malformed": Outcome.REFUSED,
    "raise": Outcome.CRASH,
    "panic": Outcome.CRASH,
    "die": Outcome.CRASH,
    "hang": Outcome.TIMEOUT,
}


def group(name: str, script: Any, texts: list[tuple[str, bool]], **more: Any) -> Group:
    tests = tuple(Test(f"{name}/{i}", json.dumps(t), v) for i, (t, v) in enumerate(texts))
    return Group(name, "topic", json.dumps(script), tests, **more)


@pytest.fixture(scope="module")
def run() -> Run:
    """One run with everything that can happen."""
    groups = [group("texts", {}, [(text, valid) for text, valid, _ in TEXTS])]
    groups += [group(f"schema-{s}", {"compile": s}, [("yes", True)] * 2) for s in SCHEMAS]
    groups += [
        group("empty-die", {"compile": "die"}, []),
        group("after", {}, [("yes", True)]),
        group("must", {"compile": "refuse"}, [("yes", True)], may_refuse=False),
    ]
    return run_suite(Suite("scripted", tuple(groups)), ENGINE, time_limit=1.5, jobs=2)


def test_each_text_has_its_own_outcome(run: Run) -> None:
    assert [t.outcome for t in run.groups[0].tests] == [outcome for _, _, outcome in TEXTS]


@pytest.mark.parametrize("what", SCHEMAS)
def test_a_schema_that_does_not_compile_decides_all_its_texts(run: Run, what: str) -> None:
    result = next(g for g in run.groups if g.id == f"schema-{what}")
    assert result.failure == SCHEMAS[what] and result.compile_seconds is None
    assert {t.outcome for t in result.tests} == {SCHEMAS[what]} and len(result.tests) == 2


def test_the_run_goes_on_after_crashes_and_hangs(run: Run) -> None:
    after = next(g for g in run.groups if g.id == "after")
    assert [t.outcome for t in after.tests] == [Outcome.RIGHT]
    assert after.compile_seconds is not None and set(quantiles(run)) == {"p50", "p99", "max"}


def test_a_crash_tells_how_the_process_ended_and_what_it_said(run: Run) -> None:
    details = {t.id: t.detail for t in run}
    assert "signal 9" in details["texts/8"] and "the engine said this last" in details["texts/8"]
    assert "exit code 7" in details["texts/10"]
    assert "KeyError" in details["texts/6"] and "scripted_engine.py:" in details["texts/6"]
    assert "1.5 s" in details["texts/11"]


def test_refusals_are_counted_by_keyword_from_attributes(run: Run) -> None:
    assert run.refusals() == {
        "pattern": (2, 3),
        "(budget: states)": (1, 2),
        "(not a schema)": (1, 2),
    }
    refusal = next(g for g in run.groups if g.id == "schema-refuse").refusal
    assert refusal is not None and (refusal.pointer, refusal.reason) == ("/items", "too hard")
    assert [g.id for g in run.groups if g.forbidden_refusal] == ["must"]


def test_the_table_names_every_fault_and_a_schema_without_tests(run: Run) -> None:
    shown = table([run], show=100)
    for line in ("false accept: texts/2", "false reject: texts/3", "timeout: texts/12",
                 "crash: empty-die", "refused although the suite wants it compiled: must",
                 "note: does what it is told"):  # fmt: skip
        assert line in shown
    assert "more; --json has them all" in table([run], show=1)


def test_the_table_shows_engines_side_by_side(run: Run) -> None:
    header, columns, topic, *_ = table([run, run]).split("\n\n")[1].splitlines()
    assert header.split() == ["scripted", "scripted"]
    assert columns.split().count("f.accept") == 2 and topic.startswith("topic")


def test_json_and_junit_hold_every_test(run: Run) -> None:
    value = json.loads(json.dumps(as_json([run])))
    tests = [t for g in value["runs"][0]["groups"] for t in g["tests"]]
    assert len(tests) == value["tests"] == run.suite.n_tests
    assert value["runs"][0]["counts"]["false accept"] == 1
    root = ElementTree.fromstring(junit([run]))
    (holder,) = root
    assert int(holder.get("tests", 0)) == run.suite.n_tests
    counts = run.counts()
    assert int(holder.get("errors", 0)) == counts[Outcome.CRASH] + counts[Outcome.TIMEOUT]
    assert int(holder.get("failures", 0)) == 2


def test_a_spelling_that_may_be_left_out_is_declined_not_wrong() -> None:
    tests = (Test("a", '"no"', True, optional=True), Test("b", '"yes"', True, optional=True))
    run = run_suite(Suite("s", (Group("g", "t", "{}", tests),)), ENGINE)
    assert [t.outcome for t in run] == [Outcome.DECLINED, Outcome.RIGHT]


def test_options_of_the_caller_beat_the_group_and_the_group_beats_the_suite() -> None:
    def check(expected: str, options: dict[str, Any]) -> bool:
        test = Test("t", json.dumps(expected), True)
        groups = (Group("g", "t", '{"options": "key_order"}', (test,), {"key_order": "group"}),)
        run = run_suite(Suite("s", groups, {"key_order": "suite"}), ENGINE, options=options)
        return next(iter(run)).outcome is Outcome.RIGHT

    assert check("group", {}) and check("caller", {"key_order": "caller"})


def test_progress_counts_every_schema_once() -> None:
    seen: list[tuple[int, int]] = []
    suite = Suite("s", tuple(group(f"g{i}", {}, [("die", True), ("yes", True)]) for i in range(3)))
    run_suite(suite, ENGINE, on_progress=lambda done, total, _: seen.append((done, total)))
    assert seen == [(1, 3), (2, 3), (3, 3)]


def test_a_missing_package_says_how_to_install_it() -> None:
    lacking = ENGINE.replace(":make", ":lacking")
    with pytest.raises(MissingExtra, match=r"nosuchengine.*pip install 'structspec\[peers\]'"):
        run_suite(Suite("s", ()), lacking)


def test_an_unknown_engine_and_one_that_does_not_start_are_said() -> None:
    with pytest.raises(SchemaError, match="xgrammar"):
        run_suite(Suite("s", ()), "nonsense")
    with pytest.raises(SchemaError, match="nothing"):
        run_suite(Suite("s", ()), ENGINE.replace(":make", ":nothing"))
    with pytest.raises(StructspecError, match=r"does not start.*exit code 3"):
        run_suite(Suite("s", ()), ENGINE.replace(":make", ":dying"))


def test_a_hang_costs_its_time_limit_and_no_more() -> None:
    started = time.monotonic()
    suite = Suite("s", (group("g", {}, [("hang", True)] * 5),))
    run = run_suite(suite, ENGINE, time_limit=0.5)
    assert run.counts() == {Outcome.TIMEOUT: 5}
    assert time.monotonic() - started < 30
