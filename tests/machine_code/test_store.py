"""Machine code on disk: what is damaged, foreign, out of reach or not to be written is no error."""

from __future__ import annotations

import errno
import gc
import logging
import os
import sys
import time
import zipfile
from collections.abc import Callable
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import pytest
from numba.core import config

from structspec.machine_code import places, sources, store
from structspec.machine_code.kernel import kernel
from structspec.machine_code.store import ENDING

_MODULE = """
def twice(n):
    return 2 * n

def thrice(n):
    return 3 * n
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Functions of a file, whose machine code lies in `cache` beside it."""
    file = tmp_path / "some_kernels.py"
    file.write_text(_MODULE)
    spec = spec_from_file_location("some_kernels", file)
    assert spec is not None and spec.loader is not None
    found = module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "some_kernels", found)  # numba imports it by name
    spec.loader.exec_module(found)
    monkeypatch.setattr(config, "CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(places, "_told", [])
    sources._digest.cache_clear()
    yield found
    sources._digest.cache_clear()


def call(function: Callable[[int], int], argument: Any = 21) -> tuple[int, int]:
    """What a fresh dispatcher says, and how often its code was on disk."""
    gc.collect()  # or numba may take parts of an earlier one, whose module it else imports
    compiled = kernel(function)
    answer = compiled(argument)
    return answer, sum(compiled.stats.cache_hits.values())


def files(tmp_path: Path, name: str = "") -> list[Path]:
    return sorted((tmp_path / "cache").rglob(f"*{name}*"))


def machine_code(tmp_path: Path, name: str = "twice") -> Path:
    (found,) = [file for file in files(tmp_path, name) if file.suffix == ENDING]
    return found


def test_machine_code_is_read_again(module: Any, tmp_path: Path) -> None:
    assert call(module.twice) == (42, 0)
    assert call(module.twice) == (42, 1)
    assert call(module.twice, 1.5) == (3, 0)  # other types
    assert call(module.thrice) == (63, 0)
    assert not list(tmp_path.rglob("*.tmp"))


def flipped(content: bytes) -> bytes:
    middle = len(content) // 2
    return (
        content[:middle]
        + bytes(b ^ 0x5A for b in content[middle : middle + 500])
        + content[middle + 500 :]
    )


@pytest.mark.parametrize(
    "damage", [lambda c: b"", lambda c: c[:40], lambda c: c[: len(c) // 2], flipped],
    ids=["empty", "head", "half", "flipped"],
)  # fmt: skip
def test_damaged_machine_code_is_compiled_anew(
    module: Any, tmp_path: Path, damage: Callable[[bytes], bytes]
) -> None:
    call(module.twice)
    file = machine_code(tmp_path)
    whole = file.read_bytes()
    file.write_bytes(damage(whole))
    assert call(module.twice) == (42, 0)
    assert len(file.read_bytes()) > len(whole) // 2
    assert call(module.twice) == (42, 1)


def test_the_code_of_another_function_under_this_name_is_not_run(
    module: Any, tmp_path: Path
) -> None:
    """As an index that names a file of another version or type would have it."""
    call(module.twice)
    call(module.thrice)
    machine_code(tmp_path, "twice").write_bytes(machine_code(tmp_path, "thrice").read_bytes())
    assert call(module.twice) == (42, 0)


@pytest.mark.parametrize("other", ["cpython-399", "cpython-313t"])
def test_the_code_of_another_python_is_not_run(
    module: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, other: str
) -> None:
    """It takes objects apart that look different there; not even under this Python's name."""
    with monkeypatch.context() as there:
        there.setattr(store, "tag", lambda: other)
        call(module.twice)
        assert call(module.twice) == (42, 1)
    foreign = machine_code(tmp_path)
    assert call(module.twice) == (42, 0)
    assert foreign.exists()  # it is not ours to remove
    own = next(file for file in files(tmp_path, "twice") if file != foreign)
    own.write_bytes(foreign.read_bytes())  # renamed by somebody: its head tells
    assert call(module.twice) == (42, 0)


def test_what_a_killed_process_was_writing_goes_after_an_hour(module: Any, tmp_path: Path) -> None:
    call(module.twice)
    code = machine_code(tmp_path)
    new, old = (code.with_name(f"{code.name}.{letter * 16}.tmp") for letter in "ab")
    others = code.with_name("of_somebody.tmp")
    for file in (new, old, others):
        file.write_bytes(code.read_bytes()[:100])
    for file in (old, others):
        os.utime(file, (time.time() - 4000,) * 2)
    assert call(module.twice) == (42, 1)  # reads
    assert old.exists()
    call(module.thrice)  # writes
    assert new.exists() and others.exists() and not old.exists()


def test_older_machine_code_of_the_function_goes(module: Any, tmp_path: Path) -> None:
    call(module.twice)
    call(module.thrice)
    old = machine_code(tmp_path, "twice")
    numba_s = old.with_name("some_kernels.twice-2.py311.nbi")
    numba_s.touch()
    path = Path(module.__file__)
    path.write_text(_MODULE + "\n# changed\n")
    sources._digest.cache_clear()
    assert call(module.twice) == (42, 0)
    assert not old.exists() and not numba_s.exists()
    assert machine_code(tmp_path, "twice").exists() and machine_code(tmp_path, "thrice").exists()


def test_no_room_on_the_disk_is_no_error(
    module: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(self: Path, content: bytes) -> int:
        with open(self, "wb") as file:
            file.write(content[: len(content) // 2])
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    assert call(module.twice) == (42, 0)
    assert call(module.thrice) == (63, 0)
    monkeypatch.undo()
    assert not list(tmp_path.rglob("*.tmp")) and not list(tmp_path.rglob(f"*{ENDING}"))
    warnings = [r for r in caplog.records if r.levelno >= logging.WARNING]
    assert len(warnings) == 1 and "NUMBA_CACHE_DIR" in warnings[0].getMessage()


def test_what_lies_where_nothing_can_be_written_is_read(
    module: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An image is built by one user and run by another."""
    tree, own = tmp_path / "tree", tmp_path / "own"
    monkeypatch.setattr(places, "folders", lambda file: (tree, own))
    call(module.twice)
    assert list(tree.iterdir())
    refused = places.keep

    def keep(path: Path, content: bytes, *, stays: bool = True) -> bool:
        return path.parent != tree and refused(path, content, stays=stays)

    monkeypatch.setattr(places, "keep", keep)
    assert call(module.twice) == (42, 1)
    assert call(module.thrice) == (63, 0)
    assert call(module.thrice) == (63, 1)
    assert [file.name.split(".")[1] for file in own.iterdir()] == ["thrice"]
    assert places.writable(module.__file__) == own


def test_a_chosen_folder_that_cannot_be_made_is_passed_over(
    module: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "in the way").touch()
    monkeypatch.setattr(config, "CACHE_DIR", str(tmp_path / "in the way" / "cache"))
    assert call(module.twice) == (42, 0)
    assert call(module.twice) == (42, 1)
    assert (tmp_path / "__pycache__").is_dir()


def test_kernels_are_compiled_where_numba_is_switched_off(
    module: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NUMBA_DISABLE_JIT=1 is for people's own functions; kernels cannot run as Python."""
    monkeypatch.setattr(config, "DISABLE_JIT", 1)
    assert call(module.twice) == (42, 0)
    assert config.DISABLE_JIT == 1


def test_functions_that_hold_other_values_have_code_of_their_own(
    module: Any, tmp_path: Path
) -> None:
    def plus(number: int) -> Callable[[int], int]:
        def add(n: int) -> int:
            return n + number

        return add

    assert call(plus(1)) == (22, 0)
    assert call(plus(2)) == (23, 0)
    assert call(plus(1)) == (22, 1)


def test_sources_in_an_archive_and_none_at_all(tmp_path: Path) -> None:
    archive = tmp_path / "app.zip"

    def digest(content: str) -> str | None:
        with zipfile.ZipFile(archive, "w") as file:
            file.writestr("rooms/kernels.py", content)
        sources._digest.cache_clear()
        return sources.digest(str(archive / "rooms" / "kernels.py"))

    one, other = digest("a = 1"), digest("a = 2")
    assert one is not None and other is not None and one != other
    assert sources.digest(str(tmp_path / "frozen" / "kernels.py")) is None
    sources._digest.cache_clear()


def test_without_sources_nothing_is_kept(
    module: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sources, "digest", lambda file: None)
    assert call(module.twice) == (42, 0)
    assert call(module.twice) == (42, 0)
    assert not [file for file in files(tmp_path) if file.is_file()]
