"""Machine code is thrown away when anything that it holds a copy of has changed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from structspec import few_rows
from structspec.machine_code import catalogue, sources
from structspec.masks import walk

ROOT = Path(__file__).resolve().parents[2]

_CALLEE = """
from structspec.machine_code.kernel import kernel

{constant}

@kernel
def step(n):
    return {body}
"""
_CALLER = """
import sys
from callee import CONSTANT, step
from structspec.machine_code.kernel import kernel

@kernel
def walk(n):
    return step(n) + CONSTANT

print(walk(5), sum(walk.stats.cache_hits.values()), sum(walk.stats.cache_misses.values()))
"""


def run(folder: Path) -> list[int]:
    """What `walk(5)` says in a fresh process, then how often its code was on disk, and was not."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), *sys.path])}
    environment.pop("NUMBA_CACHE_DIR", None)
    command = [sys.executable, str(folder / "caller.py")]
    answer = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return [int(word) for word in answer.stdout.split()]


def write(folder: Path, body: str, constant: str = "CONSTANT = 0") -> None:
    """Write the callee, dated as ever, and no byte code of it."""
    path = folder / "callee.py"
    path.write_text(_CALLEE.format(body=body, constant=constant))
    os.utime(path, (1, 1))
    for old in folder.glob("__pycache__/callee.*.pyc"):
        old.unlink()


def test_a_changed_callee_or_constant_of_another_file_is_compiled_anew(tmp_path: Path) -> None:
    """All of the same size and date: neither says what is inside."""
    (tmp_path / "caller.py").write_text(_CALLER)
    write(tmp_path, "n + 2")
    assert run(tmp_path) == [7, 0, 1]
    assert run(tmp_path) == [7, 1, 0]
    write(tmp_path, "n * 2")
    assert run(tmp_path) == [10, 0, 1]
    write(tmp_path, "n * 2", "CONSTANT = 5")
    assert run(tmp_path) == [15, 0, 1]
    assert run(tmp_path) == [15, 1, 0]


def test_a_kernel_is_as_old_as_what_its_file_imports() -> None:
    """`walk` copies kernels of `pushdown`, which copies some of `interning`."""
    found = {Path(path).relative_to(ROOT).as_posix() for path in sources.sources_of(walk.__file__)}
    assert {f"structspec/masks/{name}.py" for name in ("walk", "places", "tables")} <= found
    assert {f"structspec/automata/{name}.py" for name in ("pushdown", "interning")} <= found
    assert not any("frontends" in path or "/source_" in path for path in found)
    assert sources.digest([walk.__file__]) != sources.digest([few_rows.__file__])


def test_the_file_of_every_kernel_is_found() -> None:
    """Also of rooms that stand beside the package in a checkout."""
    modules = {entry.kernel.partition(":")[0] for entry in catalogue.read()}
    for module in (*modules, "structspec.kernels.automaton_walk.determinise"):
        path = sources.file_of(module)
        assert path is not None and Path(path).is_file(), module
    assert sources.file_of("numpy") is None
