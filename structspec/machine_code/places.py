"""Folders for machine code: where it may lie, and where some can be written.

Where `NUMBA_CACHE_DIR` is set and can be used, that is the only one. Otherwise machine code lies
beside its sources, as an installer or an image may have left it, or with the user: whoever may not
write beside the package still reads what is there, and adds to the user's own folder.

>>> from structspec.machine_code import linking
>>> [folder.name for folder in folders(linking.__file__)][:1]  # doctest: +SKIP
['__pycache__']
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import uuid
from functools import lru_cache
from pathlib import Path
from typing import Any

from numba.core import config
from numba.misc.appdirs import AppDirs

__all__ = ["folders", "keep", "say_that_nothing_is_kept", "writable"]

_told: list[bool] = []


@lru_cache(maxsize=256)
def _folders(directory: str, chosen: str) -> tuple[Path, ...]:
    # Two folders of one name must not meet; the name says which room it was.
    name = f"{Path(directory).name}_{hashlib.sha256(directory.encode()).hexdigest()[:32]}"
    if chosen:
        path = Path(chosen)
        with contextlib.suppress(OSError):
            path.mkdir(parents=True, exist_ok=True)
        if path.is_dir():
            return (path / name,)
    own = AppDirs(appname="numba", appauthor=False).user_cache_dir
    return (Path(directory, "__pycache__"), Path(own, name))


def folders(file: str) -> tuple[Path, ...]:
    """Where the machine code of a source file may lie, in the order of looking."""
    settings: Any = config  # its names come from the environment
    return _folders(os.path.dirname(os.path.abspath(file)), settings.CACHE_DIR)


def writable(file: str) -> Path | None:
    """The first of these folders where files can be made, None if there is none."""
    for folder in folders(file):
        if keep(folder / f"probe.{uuid.uuid4().hex[:16]}", b"", stays=False):
            return folder
    return None


def keep(path: Path, content: bytes, *, stays: bool = True) -> bool:
    """Write a file in one step: readers see all of it or nothing. False if it cannot be written."""
    # Not `tempfile`: other users may read what this one compiled, as far as the umask lets them.
    beside = path.with_name(f"{path.name}.{uuid.uuid4().hex[:16]}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            beside.write_bytes(content)
            if stays:
                os.replace(beside, path)
        finally:
            beside.unlink(missing_ok=True)
    except OSError:  # no right, no room, no such place
        return False
    return True


def say_that_nothing_is_kept(file: str, why: str | None = None) -> None:
    """Warn, once in a process, that every process compiles anew, and what to do.

    why: None if no folder for the machine code of this file can be written.
    """
    if not _told:
        _told.append(True)
        tried = ", ".join(map(str, folders(file)))
        reason = why or (
            f"no folder for them can be written (tried {tried}): set NUMBA_CACHE_DIR to one that "
            "can, or run 'structspec warmup' once as a user who may write there"
        )
        logging.getLogger("structspec").warning(
            "structspec's kernels are compiled anew in every process, which takes a minute or "
            "more, since %s",
            reason,
        )
