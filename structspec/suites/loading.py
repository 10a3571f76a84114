"""Choosing the reader for a path.

Example: ``load_suite(Path("JSON-Schema-Test-Suite/tests/draft7"))``.
"""

from __future__ import annotations

from pathlib import Path

from structspec.errors import SchemaError
from structspec.suites.case import Suite
from structspec.suites.exact import read
from structspec.suites.folder import load_folder
from structspec.suites.lines import load_cases, load_maskbench
from structspec.suites.official import DIALECTS, load_official

__all__ = ["FORMATS", "detect", "load_suite"]

#: The names that `load_suite` knows.
FORMATS = ("official", "maskbench", "cases", "folder")


def load_suite(path: Path, form: str | None = None, *, part: str = "required") -> Suite:
    """Load a suite; `form` (one of `FORMATS`) defaults to what `detect` says.

    `part` is for the official suite: "required", "optional", "format" or "all". Raises SchemaError
    if the path does not exist or does not have the form.
    """
    if not path.exists():
        raise SchemaError(f"no file or directory '{path}'")
    form = form or detect(path)
    if form == "official":
        return load_official(path, part)
    if form == "maskbench":
        return load_maskbench(path)
    if form == "cases":
        return load_cases(path)
    if form == "folder":
        return load_folder(path)
    raise SchemaError(f"format {form!r} is not one of {', '.join(FORMATS)}")


def detect(path: Path) -> str:
    """The form that a path's name and first lines suggest."""
    if path.is_dir():
        official = any((path / p / d).is_dir() for p in ("", "tests") for d in DIALECTS)
        return "official" if official or set(path.resolve().parts) & set(DIALECTS) else "folder"
    if path.suffix == ".xz":
        return "maskbench"
    if path.suffix == ".jsonl":
        with path.open(encoding="utf-8") as file:
            first = read(file.readline() or "{}", f"line 1 of '{path}'")
        return "maskbench" if isinstance(first, dict) and "tests" in first else "cases"
    return "official" if set(path.resolve().parts) & set(DIALECTS) else "folder"
