"""What machine code was made from: a digest of sources.

numba looks at the date of the file of a cached function. But a kernel holds copies of the kernels
and constants of other files, so after an upgrade that changed only those, old machine code would
walk new tables. Here a cache is as old as all the files that may be in it: the rooms of the engine
copy from each other, any other room from itself; both from this one.

Contents count, not dates: sources may be copied, checked out again or normalised with their cache.
Of a package inside an archive (a zip file on the path) the whole archive counts. A frozen program
has no sources: then nothing says what machine code was made from, and none is kept.

    >>> len(digest(__file__))
    32
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path

__all__ = ["digest", "digest_of_engine"]

_PACKAGE = Path(__file__).resolve().parents[1]
_HERE = "machine_code"
_ENGINE = ("automata", "masks", "vocab", "kernels/automaton_walk", _HERE)


def digest(file: str) -> str | None:
    """The digest of everything that a kernel of this file may hold; None if sources are missing."""
    path = Path(file).resolve()
    if any(path.parent == room for room in map(_room, _ENGINE)):
        return digest_of_engine()
    # A module of the package's top is a room by itself.
    return _digest((path,) if path.parent == _PACKAGE else (path.parent,))


def digest_of_engine() -> str | None:
    """The digest of the rooms that make automata and masks; None if sources are missing."""
    return _digest(tuple(_room(name) for name in _ENGINE))


def _room(name: str) -> Path:
    folder = _PACKAGE / name
    beside = _PACKAGE.parent / name  # in a checkout it is at the top
    return beside if beside.is_dir() and not folder.is_dir() else folder


@lru_cache(maxsize=16)
def _digest(rooms: tuple[Path, ...]) -> str | None:
    found = hashlib.sha256()
    try:
        for room in (*rooms, _room(_HERE)):
            for source in _sources(room):
                content = source.read_bytes()
                found.update(f"{room.name}/{source.name} {len(content)}\n".encode())
                found.update(content)
    except OSError:
        return None
    return found.hexdigest()[:32]


def _sources(room: Path) -> Iterable[Path]:
    if room.is_dir():
        # Without sources (only their byte code is installed) this is as in a frozen program.
        return sorted(room.glob("*.py")) or (room / "__init__.py",)
    return (next((above for above in room.parents if above.is_file()), room),)
