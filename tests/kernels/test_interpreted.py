"""The Triton kernels, interpreted: this folder's tests once more in a process of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"


def run_again(marker: str) -> subprocess.CompletedProcess[str]:
    environment = dict(os.environ, TRITON_INTERPRET="1", OMP_NUM_THREADS="1")
    environment["PYTHONPATH"] = os.pathsep.join([str(ROOT), *sys.path])
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-m", marker,
               str(HERE)]  # fmt: skip
    return subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True)


@pytest.mark.skipif(INTERPRETED, reason="this is the interpreted run")
@pytest.mark.parametrize(
    "marker", ["not full", pytest.param("full", marks=pytest.mark.full)], ids=["short", "full"]
)
def test_interpreted_triton_passes_the_same_tests(marker: str) -> None:
    pytest.importorskip("triton", reason="pip install 'structspec[kernels]'")
    result = run_again(marker)
    assert result.returncode == 0, result.stdout[-8000:] + result.stderr[-4000:]
    assert " passed" in result.stdout and " failed" not in result.stdout
