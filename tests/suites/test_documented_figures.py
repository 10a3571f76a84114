"""The tables of docs/json-schema.md say what the committed baselines say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]


def baseline(name: str) -> dict[str, Any]:
    return json.loads((ROOT / "tests" / "baselines" / f"{name}.json").read_text(encoding="utf-8"))


def test_the_table_of_the_official_suite_is_that_of_its_baselines() -> None:
    page = (ROOT / "docs" / "json-schema.md").read_text(encoding="utf-8")
    for title, name in (
        ("draft 4", "draft4"),
        ("draft 6", "draft6"),
        ("draft 7", "draft7"),
        ("2019-09", "draft2019-09"),
        ("2020-12", "draft2020-12"),
    ):
        found = baseline(f"official-{name}-required")
        right, refused = found["counts"]["right"], found["counts"]["refused"]
        wrong = found["tests"] - right - refused
        row = f"| {title} | {found['tests']:,} | {right:,} | {refused:,} | {wrong} |"
        assert row in page, row


def test_the_figures_of_maskbench_are_those_of_its_baseline() -> None:
    page = " ".join((ROOT / "docs" / "json-schema.md").read_text(encoding="utf-8").split())
    found = baseline("maskbench-open")
    right, refused = found["counts"]["right"], found["counts"]["refused"]
    assert found["tests"] == right + refused
    assert f"({found['schemas']:,} schemas, {found['tests']:,} tests" in page
    assert f"{right:,} right ({right / found['tests']:.1%})".replace("%", " %") in page
    assert f"{refused:,} refused" in page
    budgets = sum(v["tests"] for k, v in found["refusals"].items() if k.startswith("(budget"))
    assert f"budgets {budgets}" in page
