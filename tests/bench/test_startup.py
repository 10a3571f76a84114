"""The benchmark of the first mask: its draft trees, its children and its table."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import structspec
from structspec.bench import startup
from structspec.bench.pages import begin
from structspec.bench.startup import ROWS, draft_tree, fresh_process, rows_of_trees, small_things
from structspec.bench.startup import table as startup_table
from structspec.bench.trees import lead
from structspec.vocab import Vocabulary

VOCAB = Vocabulary([*(bytes((b,)) for b in range(256)), b"ab", b"12", b'":', None], [259])
SCHEMA = {"type": "array", "items": {"type": "integer", "maximum": 99999}, "maxItems": 400}
TEXT = "[" + ", ".join(str(17 * i) for i in range(60)) + "]"


def test_a_draft_tree_has_as_many_states_as_rows() -> None:
    c = structspec.compile(SCHEMA).bind(VOCAB)
    ids = VOCAB.encode(TEXT.encode())
    paths = draft_tree(c, ids, 5, random.Random(1))
    states = {lead(c, path) for path in paths}
    assert len(paths) == len(states) == ROWS


def test_rows_are_timed_together_and_alone() -> None:
    c = structspec.compile(SCHEMA).bind(VOCAB)
    ids = VOCAB.encode(TEXT.encode())
    found = rows_of_trees(c, ids, random.Random(1), trees=2, threads=2)
    assert found is not None and all(value > 0 for value in found.values())
    assert rows_of_trees(c, ids[:3], random.Random(1), trees=1, threads=2) is None
    assert set(small_things(c, ids)) == {"mask", "fill", "advance"}


def test_a_fresh_process_says_how_long_it_took() -> None:
    """And imports neither torch nor pydantic on the way, or it would take twice as long."""
    found = fresh_process(environment={"PYTHONVERBOSE": ""})
    assert 0 < found["bare_cpu"] < found["core_cpu"] < found["first_cpu"] < found["whole_cpu"]


def test_the_table_shows_medians_and_aims() -> None:
    run = {k: 0.5 for name in ("bare", "core", "first", "whole") for k in (name, f"{name}_cpu")}
    tree = {"together": 300.0, "wall": 300.0, "threads": 200.0, "alone": 100.0}
    report: dict[str, Any] = {
        "command": startup.COMMAND,
        "machine": {
            "cores": 2,
            "processor": "a processor",
            "python": "3",
            "packages": {"numba": "1"},
        },
        "warm": [run, run],
        "warm_tekken": [run],
        "cold": [],
        "processes": 2,
        "threads": 2,
        "trees": {"a": tree},
        "small": {"a": {"mask": 0.2, "fill": 1.5, "advance": 1.4}},
    }
    text = startup_table(report)
    assert "| 0.50 s | 0.50 s | ≤ 1 s |" in text and "| 3.0 | ≤ 4 |" in text
    assert "empty disk" not in text and "1.40 µs" in text


def test_the_page_has_a_place_for_the_tables() -> None:
    from structspec.bench import soak

    page = (Path(__file__).parents[2] / "docs" / "masks.md").read_text(encoding="utf-8")
    assert begin(startup.COMMAND) in page and begin(soak.COMMAND) in page
