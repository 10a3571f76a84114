"""The suites that this project pins, and one command that checks or renews their baselines.

``python -m structspec.suites.ratchet`` compares every pinned suite with the file of its name in
``tests/baselines``; ``--update`` writes the files instead. A regression ends it with code 1, an
improvement is reported and asks for ``--update``. The data lies in ``$STRUCTSPEC_DATA`` (the
official suite in ``json-schema-test-suite``, MaskBench in ``maskbench/open.jsonl.xz``).

Example: ``python -m structspec.suites.ratchet --only draft7 --update``.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from structspec.errors import StructspecError
from structspec.suites.baseline import compare, read_baseline, write_baseline
from structspec.suites.case import Suite
from structspec.suites.loading import load_suite
from structspec.suites.official import DIALECTS
from structspec.suites.outcome import Run
from structspec.suites.report import table
from structspec.suites.runner import run_suite

__all__ = ["PINNED", "Pinned", "main"]


@dataclass(frozen=True)
class Pinned:
    """A suite whose results are committed: where it lies in the data, and how it is run."""

    name: str
    path: str
    form: str
    part: str = "required"
    options: Mapping[str, Any] = field(default_factory=dict)

    def load(self, data: Path) -> Suite:
        """Load it from the data's directory."""
        return load_suite(data / self.path, self.form, part=self.part)

    def run(self, suite: Suite, jobs: int = 1) -> Run:
        """Run this package's engine over (part of) it."""
        return run_suite(suite, "structspec", options=self.options, jobs=jobs)

    def file(self, baselines: Path) -> Path:
        """Its baseline."""
        return baselines / f"{self.name}.json"


def _official(part: str) -> list[Pinned]:
    root = "json-schema-test-suite/tests"
    options = {"key_order": "any", **({"assert_formats": False} if part == "required" else {})}
    return [
        Pinned(f"official-{draft}-{part}", f"{root}/{draft}", "official", part, options)
        for draft in DIALECTS
    ]


#: Required tests with formats as annotations, as the specification's default says; optional tests;
#: format tests with formats asserted; the open half of MaskBench with this package's defaults.
PINNED = (
    *_official("required"),
    *_official("optional"),
    *_official("format"),
    Pinned("maskbench-open", "maskbench/open.jsonl.xz", "maskbench", "", {"key_order": "any"}),
)


def main(arguments: list[str] | None = None) -> int:
    """Check or renew baselines; returns the exit code."""
    root = Path(__file__).resolve().parents[2]
    data = os.environ.get("STRUCTSPEC_DATA", root.parent / "shared" / "data")
    parser = argparse.ArgumentParser(prog="structspec.suites.ratchet", description=__doc__)
    parser.add_argument("--update", action="store_true", help="write the baselines")
    parser.add_argument("--only", default="", help="only suites whose name contains this")
    parser.add_argument("--jobs", type=int, default=1, help="worker processes")
    parser.add_argument("--data", type=Path, default=Path(data))
    parser.add_argument("--baselines", type=Path, default=root / "tests" / "baselines")
    given = parser.parse_args(arguments)
    failed = False
    for pinned in PINNED:
        if given.only not in pinned.name:
            continue
        run = pinned.run(pinned.load(given.data), given.jobs)
        print(table([run], by_topic=False), flush=True)
        path = pinned.file(given.baselines)
        if given.update:
            write_baseline(path, run)
            print(f"wrote {path.name}\n")
            continue
        result = compare(read_baseline(path), run)
        failed |= bool(result.regressions)
        print("\n".join([*result.regressions, result.summary, ""]), flush=True)
    return int(failed)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except StructspecError as error:
        sys.exit(f"error: {error}")
