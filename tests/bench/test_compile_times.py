"""The compile benchmark compares over the schemas that both engines compile."""

from __future__ import annotations

from structspec.bench.compile_times import summarise, table
from structspec.bench.masks_run import EngineRun


def test_only_what_both_compile_is_compared() -> None:
    mine, theirs = EngineRun("structspec", "1"), EngineRun("llguidance", "2")
    mine.answers = {
        "a": {"first": [2_000_000]},
        "b": {"first": [3_000_000_000]},
        "c": {"first": [], "refused": "no"},
        "d": {"timeout": "20 s"},
    }
    theirs.answers = {
        "a": {"first": [4_000_000]},
        "b": {"first": [], "refused": "no"},
        "c": {"first": [1_000_000]},
        "d": {"first": [1_000_000]},
    }
    figures = summarise([mine, theirs])
    own = figures["engines"]["structspec"]
    assert (own["refused"], own["timeout"], own["crash"], own["over_1_s"]) == (1, 1, 0, 1)
    assert own["first_mask_ms"]["max"] == 3000 and own["slowest"][0] == [3000.0, "b"]
    pair = figures["pairs"]["llguidance"]
    assert pair["schemas"] == 1 and pair["mine"]["p50"] == 2 and pair["theirs"]["p50"] == 4
    machine = {"cores": 2, "processor": "x", "python": "3"}
    report = {"machine": machine, "command": "c", "schemas": 4, "tokens": 9, "figures": figures}
    assert "| *structspec / llguidance* over 1 | 0.50 |" in table(report)
