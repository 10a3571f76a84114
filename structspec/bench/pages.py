"""What benchmarks leave behind: reports as JSON, and tables inside documentation pages.

A table stands between two markers of its page, so that a command can write it again.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from structspec.bench.machine import describe_machine, on_machine
from structspec.errors import StructspecError

__all__ = [
    "END",
    "begin",
    "markdown_number",
    "markdown_table",
    "write_between_markers",
    "write_measured",
    "write_report",
]

END = "<!-- end -->"


def begin(command: str) -> str:
    """The marker before the tables of a command, such as `python -m structspec.bench.masks`."""
    return f"<!-- begin: {command} -->"


def write_report(path: Path, report: Any) -> None:
    """Write JSON, whole or not at all: what an interrupted run left can be gone on with."""
    path.parent.mkdir(parents=True, exist_ok=True)
    made = path.with_name(path.name + ".new")
    made.write_text(json.dumps(report, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    os.replace(made, path)


def write_between_markers(path: Path, command: str, text: str) -> None:
    """Replace what stands between a command's marker and the next `END` of a page.

    Raises `StructspecError` if the page does not hold both.
    """
    page = path.read_text(encoding="utf-8")
    before, marker, rest = page.partition(begin(command))
    _, end, after = rest.partition(END)
    if not marker or not end:
        raise StructspecError(
            f"'{path}' does not hold the line '{begin(command)}' and '{END}' behind it; put both "
            "where the tables shall stand"
        )
    path.write_text(f"{before}{marker}\n{text}\n{END}{after}", encoding="utf-8")


def write_measured(
    name: str, page: str, marker: str, command: str, rows: Sequence[Any], text: str
) -> None:
    """Rows as `docs/results/NAME.json`, and their table as `text` on a page of `docs`.

    marker: the command of the page's marker; command: with the arguments that were given.
    """
    machine = describe_machine()
    report = {"command": command, "machine": machine, "rows": rows}
    write_report(Path(f"docs/results/{name}.json"), report)
    about = f"{on_machine(machine)}, torch {machine['packages']['torch']}; `{command}`."
    write_between_markers(Path(f"docs/{page}.md"), marker, f"{about}\n\n{text}")


def markdown_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table of cells that are written already."""
    lines = ["| " + " | ".join(head) + " |", "|" + "|".join("---" for _ in head) + "|"]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)])


def markdown_number(value: float) -> str:
    """Three significant digits, or whole with thousands apart."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
