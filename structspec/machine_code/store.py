"""Machine code on disk, one file for each kernel and signature.

A file's name and its head say what it was made from: the sources (`sources`), the versions, the
Python (whose objects machine code takes apart), the processor, the function and the types of its
arguments. So no file ever means something else: two processes that compile at once, or before and
after an upgrade, write different files or equal ones, in one step (`places.keep`). A file that was
cut, or changed on its way, is not read: its head holds the digest of the rest. What cannot be read
or written is compiled, and no error. What a process left that was killed while it wrote is removed
with the first file that is written an hour later or more.

numba's own cache has an index that may name a file which another version wrote, or that was never
written; half an index or half a file there is an error at every start.

Invariants: what `load` returns was saved from these sources for this processor by these versions.
Cost: one file read and one SHA-256 for each kernel that is used.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import pickle
import re
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import llvmlite
import numba
from numba.core import config
from numba.core.compiler import CompileResult
from numba.core.serialize import dumps

from structspec.machine_code import places, sources

__all__ = ["ENDING", "Store", "tag"]

ENDING = ".nbc"
_FORM = b"structspec machine code 1\n"
_DIGEST = hashlib.sha256().digest_size


def tag() -> str:
    """What tells Pythons apart whose machine code differs."""
    return f"{sys.implementation.cache_tag}{getattr(sys, 'abiflags', '')}"


class Store:
    """The machine code of one function."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._file = function.__code__.co_filename
        self._name = f"{Path(self._file).stem}.{function.__qualname__}".translate(_SIMPLE)
        stamp = sources.digest(self._file)
        held = b""
        if function.__closure__ is not None:
            held = dumps(tuple(cell.cell_contents for cell in function.__closure__))
        self._stamp = None if stamp is None else stamp[:12]
        settings: Any = config  # its names come from the environment
        self._made_from = repr((
            stamp, tag(), numba.__version__, llvmlite.__version__, settings.OPT,
            function.__module__, function.__qualname__, function.__code__.co_firstlineno,
            hashlib.sha256(held).hexdigest(),
        ))  # fmt: skip

    def _key(self, signature: Any, codegen: Any) -> bytes:
        text = f"{self._made_from} {signature!r} {codegen.magic_tuple()!r}"
        return hashlib.sha256(text.encode()).digest()

    def _file_name(self, key: bytes) -> str:
        return f"{self._name}.{tag()}.{self._stamp}.{key.hex()[:16]}{ENDING}"

    def holds(self, signature: Any, codegen: Any) -> bool:
        """Whether there is a file for these types (it may turn out to be damaged)."""
        if self._stamp is None:
            return False
        name = self._file_name(self._key(signature, codegen))
        return any((folder / name).is_file() for folder in places.folders(self._file))

    def load(self, signature: Any, target: Any) -> Any:
        """The compiled function for these types, None if there is none."""
        if self._stamp is None:
            return None
        key = self._key(signature, target.codegen())
        name = self._file_name(key)
        for folder in places.folders(self._file):
            content = _read(folder / name, key)
            if content is None:
                continue
            try:
                return CompileResult._rebuild(target, *pickle.loads(content))
            except Exception as error:  # whatever it is, compiling is the remedy
                _log(folder / name, error)
        return None

    def save(self, signature: Any, compiled: Any) -> None:
        """Keep a compiled function, if there is a place."""
        if self._stamp is None or compiled.library.has_dynamic_globals or compiled.lifted:
            return
        key = self._key(signature, compiled.codegen)
        content = dumps(compiled._reduce())
        whole = b"".join((_FORM, key, hashlib.sha256(content).digest(), content))
        for folder in places.folders(self._file):
            if places.keep(folder / self._file_name(key), whole):
                self._tidy(folder)
                return
        places.say_that_nothing_is_kept(self._file)

    def _tidy(self, folder: Path) -> None:
        """Remove what older sources of this function left, and what was never finished."""
        current = f"{self._name}.{tag()}.{self._stamp}."
        # And what numba's own cache, which was used before, called by a name and a line.
        for old in _left(folder, (f"{self._name}.{tag()}.", f"{self._name}-"), current):
            with contextlib.suppress(OSError):
                old.unlink()
        for unfinished in _unfinished(folder):
            with contextlib.suppress(OSError):
                unfinished.unlink()


#: How `places.keep` calls a file until it is whole.
_BESIDE = re.compile(r"\.[0-9a-f]{16}\.tmp$")
_SIMPLE = str.maketrans(dict.fromkeys('<>:"/\\|?*', "_"))


def _read(path: Path, key: bytes) -> bytes | None:
    """What is behind the head of a file; None if there is no file, or it is not what it was."""
    try:
        whole = path.read_bytes()
    except OSError:
        return None
    at = len(_FORM) + len(key)
    content = memoryview(whole)[at + _DIGEST :]
    if whole[:at] == _FORM + key and whole[at : at + _DIGEST] == hashlib.sha256(content).digest():
        return bytes(content)
    _log(path, "it was cut or changed")
    return None


def _log(path: Path, reason: object) -> None:
    logging.getLogger("structspec").info("%s is compiled anew: %s", path, reason)


def _left(folder: Path, starts: tuple[str, ...], current: str) -> list[Path]:
    """The files of machine code that begin so, without the current ones."""
    try:
        names = [entry.name for entry in folder.iterdir()]
    except OSError:
        return []
    return [
        folder / name
        for name in names
        if name.startswith(starts)
        and name.endswith((ENDING, ".nbi"))
        and not name.startswith(current)
    ]


def _unfinished(folder: Path) -> list[Path]:
    """What processes were writing that ended before they could: no write takes an hour."""
    before = time.time() - 3600
    found = []
    with contextlib.suppress(OSError):
        for path in folder.iterdir():
            if _BESIDE.search(path.name):
                with contextlib.suppress(OSError):  # finished by now
                    if path.stat().st_mtime < before:
                        found.append(path)
    return found
