"""Tables of benchmarks are written into pages without touching what stands around them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from structspec.bench.pages import END, begin, markdown_table, write_between_markers, write_report
from structspec.errors import StructspecError

COMMAND = "python -m structspec.bench.masks"


def test_a_page_keeps_what_stands_around_the_markers(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    other = f"{begin('another command')}\nkept\n{END}\n"
    page.write_text(f"before\n{other}{begin(COMMAND)}\nold\n{END}\nafter\n{other}")
    write_between_markers(page, COMMAND, "new")
    assert page.read_text() == f"before\n{other}{begin(COMMAND)}\nnew\n{END}\nafter\n{other}"


def test_a_page_without_the_markers_is_left_alone(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("no marker\n")
    with pytest.raises(StructspecError, match="does not hold the line"):
        write_between_markers(page, COMMAND, "new")
    assert page.read_text() == "no marker\n"


def test_a_table_has_a_line_per_row() -> None:
    assert markdown_table(["", "n"], [["a", "1"]]) == "|  | n |\n|---|---|\n| a | 1 |"


def test_a_report_is_written_whole_and_nothing_lies_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "results" / "report.json"
    for report in ({"µs": 1}, {"µs": 2}):
        write_report(path, report)
        assert json.loads(path.read_text("utf-8")) == report
    with pytest.raises(TypeError):
        write_report(path, {"µs": object()})
    assert json.loads(path.read_text("utf-8")) == {"µs": 2}
    assert list(path.parent.iterdir()) == [path]
