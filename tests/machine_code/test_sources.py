"""Machine code is thrown away when anything that it holds a copy of has changed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from structspec import few_rows
from structspec.machine_code import linking, sources

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


def test_rooms_of_the_engine_share_a_digest_and_other_files_do_not() -> None:
    engine = sources.digest_of_engine()
    from structspec.automata import pushdown
    from structspec.masks import walk

    assert sources.digest(pushdown.__file__) == engine == sources.digest(walk.__file__)
    assert sources.digest(linking.__file__) == engine
    alone = sources.digest(few_rows.__file__)
    assert alone not in (engine, sources.digest(__file__))


def test_the_engines_rooms_are_there() -> None:
    """A room that moved would drop out of the digest without a word."""
    for name in sources._ENGINE:
        assert list(sources._sources(sources._room(name))), name
        assert sources._room(name).is_dir(), name
