"""The pinned suites: nothing wrong, and no outcome worse than the committed baseline.

New baselines: ``python -m structspec.suites.ratchet --update``.
"""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest

from structspec.suites import Outcome, Run
from structspec.suites.baseline import compare, read_baseline
from structspec.suites.ratchet import PINNED, Pinned

BASELINES = Path(__file__).resolve().parents[1] / "baselines"
NAMES = {pinned.name: pinned for pinned in PINNED}
REQUIRED = [name for name in NAMES if name.endswith("-required")]
OTHERS = [name for name in NAMES if name.endswith(("-optional", "-format"))]
# Every so many-th schema of MaskBench in the daily tests.
STRIDE = 40


def check(pinned: Pinned, data: Path, stride: int = 1) -> Run:
    """Run, compare with the baseline, warn about improvements."""
    if not (data / pinned.path).exists():
        pytest.skip(f"third-party data is missing: {data / pinned.path}; set STRUCTSPEC_DATA")
    run = pinned.run(pinned.load(data).sample(stride))
    result = compare(read_baseline(pinned.file(BASELINES)), run)
    assert not result.regressions, "\n".join(result.regressions[:50])
    if result.improvements:
        warnings.warn(f"{pinned.name}: {result.summary}", stacklevel=2)
    return run


def wrong(run: Run) -> list[str]:
    """Everything that is neither right nor an honest refusal."""
    return [f"{t.outcome}: {t.id} {t.detail}" for t in run.bad()]


@pytest.mark.parametrize("name", REQUIRED)
def test_required_tests_have_no_wrong_answer(name: str, data_directory: Path) -> None:
    run = check(NAMES[name], data_directory)
    assert run.counts()[Outcome.RIGHT] > 0
    assert not wrong(run)


@pytest.mark.full
@pytest.mark.parametrize("name", OTHERS)
def test_optional_and_format_tests_have_got_no_worse(name: str, data_directory: Path) -> None:
    check(NAMES[name], data_directory)


def test_a_sample_of_maskbench_has_no_wrong_answer(data_directory: Path) -> None:
    assert not wrong(check(NAMES["maskbench-open"], data_directory, STRIDE))


@pytest.mark.full
def test_maskbench_has_no_wrong_answer(data_directory: Path) -> None:
    assert not wrong(check(NAMES["maskbench-open"], data_directory))
