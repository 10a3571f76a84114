"""Tables of benchmarks are written into pages without touching what stands around them."""

from __future__ import annotations

from pathlib import Path

import pytest

from structspec.bench.pages import END, begin, markdown_table, write_between_markers
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
