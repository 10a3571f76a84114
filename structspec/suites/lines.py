"""Reading suites that hold one case per line: MaskBench and this project's own cases.

MaskBench (``.jsonl`` or ``.jsonl.xz``): ``id``, ``schema``, ``tests`` of ``valid``, ``data`` and
``description``; the text judged is ``json.dumps(data, ensure_ascii=False)``. The collection that a
schema comes from, the part of the id before ``---`` or ``_``, is its topic.

Own cases: ``schema`` with complete texts ``valid``, ``valid_other_spelling`` (an engine may decline
to write them) and ``invalid``; texts under ``either`` are not judged.

Example: ``load_maskbench(Path("open.jsonl.xz")).sample(stride=40)``.
"""

from __future__ import annotations

import lzma
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from structspec.errors import SchemaError
from structspec.suites.case import Group, Suite, Test
from structspec.suites.exact import read, write

__all__ = ["load_cases", "load_maskbench"]

_COLLECTION = re.compile(r"---|_")


def load_maskbench(path: Path) -> Suite:
    """Load MaskBench cases. Raises SchemaError with the line that does not have its form."""
    return Suite(
        f"maskbench-{_stem(path)}",
        tuple(_maskbench(number, case) for number, case in _lines(path)),
        {"key_order": "any"},
    )


def load_cases(path: Path) -> Suite:
    """Load cases with texts. Raises SchemaError with the line that does not have their form."""
    return Suite(
        f"cases-{_stem(path)}",
        tuple(_case(number, case) for number, case in _lines(path)),
        {"key_order": "any"},
    )


def _maskbench(number: int, case: dict[str, Any]) -> Group:
    _demand(case, number, "id", "schema", "tests")
    name = case["id"]
    return Group(
        name,
        _COLLECTION.split(name, maxsplit=1)[0],
        write(case["schema"]),
        tuple(
            Test(f"{name}/{i}", write(t["data"]), t["valid"], t.get("description", ""))
            for i, t in enumerate(case["tests"])
        ),
    )


def _case(number: int, case: dict[str, Any]) -> Group:
    _demand(case, number, "id", "schema")
    name = case["id"]
    kinds = (("valid", True), ("valid_other_spelling", True), ("invalid", False))
    tests = tuple(
        Test(f"{name}/{kind}/{i}", text, valid, "", optional=kind == "valid_other_spelling")
        for kind, valid in kinds
        for i, text in enumerate(case.get(kind, ()))
    )
    return Group(
        name,
        case.get("topic", "cases"),
        write(case["schema"]),
        tests,
        {"assert_formats": case.get("formats_asserted", False)},
        case.get("note", ""),
        may_refuse=case.get("may_refuse_schema", False),
    )


def _lines(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    opener: Any = lzma.open if path.suffix == ".xz" else open
    try:
        with opener(path, "rt", encoding="utf-8") as file:
            for number, line in enumerate(file, 1):
                if line.strip():
                    case = read(line, f"line {number} of '{path}'")
                    if not isinstance(case, dict):
                        raise SchemaError(f"line {number} of '{path}' is not an object")
                    yield number, case
    except (OSError, lzma.LZMAError) as error:
        raise SchemaError(f"cannot read '{path}': {error}") from error


def _demand(case: dict[str, Any], number: int, *names: str) -> None:
    missing = [name for name in names if name not in case]
    if missing:
        raise SchemaError(f"line {number} lacks {', '.join(map(repr, missing))}")


def _stem(path: Path) -> str:
    return path.name.split(".", 1)[0]
