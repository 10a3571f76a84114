"""What machine code was made from: a digest of sources.

numba looks at the date of the file of a cached function. But a kernel holds copies of the kernels
and constants of other files, so after an upgrade that changed only those, old machine code would
walk new tables. Here a cache is as old as its file and all that this imports, directly or not, from
this package (or from beside it, if it is of no package).

Contents count, not dates: sources may be copied, checked out again or normalised with their cache.
Only imports at the left margin count; kernels take constants from no others.

    >>> len(digest([__file__]))
    32
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable
from functools import lru_cache

__all__ = ["digest", "file_of", "sources_of"]

_PACKAGE = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))
_NAME = os.path.basename(_PACKAGE)
_IMPORT = re.compile(rb"\nfrom ([\w.]+) import (\([^)]*\)|[^\n]*)")


def digest(files: Iterable[str]) -> str:
    """The digest of everything that the kernels of these files may hold."""
    return _digest(tuple(map(_real, files)))


def sources_of(file: str) -> set[str]:
    """A file and all of ours that it imports, directly or not."""
    found: set[str] = set()
    waiting = [_real(file)]
    while waiting:
        path = waiting.pop()
        if path not in found:
            found.add(path)
            waiting += _source(path)[1]
    return found


@lru_cache(maxsize=1024)
def _real(file: str) -> str:
    return os.path.realpath(file)


@lru_cache(maxsize=1024)
def file_of(module: str, beside: str = "") -> str | None:
    """The file of a module of this package, or of one in the folder `beside`; None for others."""
    name, _, rest = module.partition(".")
    # In a checkout some rooms stand beside the package.
    roots = [_PACKAGE, os.path.dirname(_PACKAGE)] if name == _NAME else [beside] if beside else []
    inside = (rest if name == _NAME else module).split(".")
    for root in roots if inside != [""] else []:  # the package's own face is no kernel's
        path = os.path.join(root, *inside)
        for candidate in (path + ".py", os.path.join(path, "__init__.py")):
            if os.path.isfile(candidate):
                return candidate
    return None


@lru_cache(maxsize=256)
def _digest(files: tuple[str, ...]) -> str:
    made = hashlib.sha256()
    for path in sorted(set().union(*map(sources_of, files)), key=_last_names):
        made.update(f"{_last_names(path)} ".encode() + _source(path)[0])
    return made.hexdigest()[:32]


def _last_names(path: str) -> tuple[str, str, str]:
    folder, name = os.path.split(path)
    return os.path.basename(folder), name, "" if folder.startswith(_PACKAGE) else "beside"


@lru_cache(maxsize=1024)
def _source(path: str) -> tuple[bytes, tuple[str, ...]]:
    """The digest of a file, and what it imports."""
    with open(path, "rb") as file:
        content = file.read()
    beside = "" if path.startswith(_PACKAGE + os.sep) else os.path.dirname(path)
    imported = set()
    for module, names in _IMPORT.findall(b"\n" + content):
        module = module.decode()
        found = file_of(module, beside)
        imported.add(found)
        if found is None or found.endswith("__init__.py"):  # the names may be modules
            for name in re.findall(r"\w+", names.decode()) if module.startswith(_NAME) else ():
                imported.add(file_of(f"{module}.{name}", beside))
    return hashlib.sha256(content).digest(), tuple(path for path in imported if path)
