"""The script for machines with a GPU, as far as it goes without one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from structspec.kernels import gpu_check
from structspec.kernels.gpu_benchmarks import synthetic_automaton
from structspec.kernels.gpu_timing import Timing

ROOT = Path(__file__).resolve().parents[2]


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    # As `make gpu-check` runs it: a file of a checkout, nothing on the path but the packages.
    environment = {
        k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "TRITON_INTERPRET")
    }
    environment["OMP_NUM_THREADS"] = "1"
    return subprocess.run(
        [sys.executable, str(ROOT / "kernels" / "gpu_check.py"), *arguments],
        env=environment, cwd=ROOT, capture_output=True, text=True,
    )  # fmt: skip


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a CUDA device")
def test_without_a_device_it_says_so_and_exits_with_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert gpu_check.main([]) == 2
    assert "no CUDA device" in capsys.readouterr().err


@pytest.mark.full
def test_a_dry_run_finds_all_kernels_right_and_times_them(tmp_path: Path) -> None:
    pytest.importorskip("triton", reason="pip install 'structspec[kernels]'")
    target = tmp_path / "gpu.json"
    result = run("--dry-run", "--seconds", "600", "--json", str(target))
    assert result.returncode == 0, result.stdout + result.stderr
    report = json.loads(target.read_text())
    assert report["dry_run"] and {c["outcome"] for c in report["correctness"]} == {"right"}
    timed = {line["kernel"] for line in report["timings"] if line.get("timing")}
    assert timed == {
        "masked_softmax_stats", "block_verify", "layered_verify", "automaton_walk", "draft_step",
        "gather_head",
    }  # fmt: skip


@pytest.mark.full
def test_all_checks_of_a_device_are_right_for_the_torch_kernels() -> None:
    results = gpu_check._run_checks(torch.device("cpu"), False, "torch", float("inf"))
    assert len(results) > 40 and [r for r in results if r["outcome"] != "right"] == []


def test_inputs_that_cannot_be_made_are_a_failure_and_hide_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def checks(device: object, tiny: bool, backend: str) -> object:
        yield "gather_head", "fine", list
        raise RuntimeError("out of memory")

    monkeypatch.setattr(gpu_check, "_checks", checks)
    results = gpu_check._run_checks(torch.device("cpu"), True, "torch", float("inf"))
    assert [r["outcome"] for r in results] == ["right", "wrong"]
    assert "out of memory" in results[1]["complaints"][0]


def test_a_wrong_kernel_is_named_and_not_timed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def checks(device: object, tiny: bool, backend: str) -> object:
        yield "block_verify", "a lie", lambda: ["h_1 = 0, the oracle has 1"]
        yield "gather_head", "a crash", lambda: 1 / 0
        yield "row_edges", "missing", lambda: __import__("no_such_package")

    monkeypatch.setattr(gpu_check, "_checks", checks)
    results = gpu_check._run_checks(torch.device("cpu"), True, "torch", float("inf"))
    assert [r["outcome"] for r in results] == ["wrong", "failed", "left out"]
    assert "the oracle has 1" in capsys.readouterr().out


def test_percentiles_and_the_synthetic_automaton() -> None:
    timing = Timing.of([5.0, 1.0, 2.0, 3.0, 4.0])
    assert (timing.p10, timing.median, timing.p90) == (1.0, 3.0, 5.0)
    automaton = synthetic_automaton(600, torch.device("cpu"))
    state = torch.tensor([2], dtype=torch.int32)
    for byte in b'{"name": "x\xc3\xa9"' + b', "count": 12}':
        state = automaton.advance(state, torch.tensor([byte], dtype=torch.int32), backend="torch")
    assert int(automaton.accepting[int(state)]) == 1
