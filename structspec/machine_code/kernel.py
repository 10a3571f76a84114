"""The decorator of compiled functions, and their cache on disk.

`kernel` is numba's `njit` with a cache that is looked for when it is first needed and read without
preparing to compile.

Example::

    >>> @kernel
    ... def twice(n):
    ...     return 2 * n
    >>> int(twice(21))
    42
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import njit
from numba.core.caching import FunctionCache, IndexDataCacheFile
from numba.core.ccallback import CFunc
from numba.core.dispatcher import Dispatcher
from numba.core.runtime import rtsys

from structspec.machine_code import sources

__all__ = ["DiskCache", "c_function", "kernel"]

_jit: Any = njit


def kernel(function: Callable[..., Any] | None = None, **options: Any) -> Any:
    """Compile a function when it is first called, and keep the machine code on disk.

    options: those of `numba.njit`. Also used as `@kernel(nogil=True)`.
    """
    if function is None:
        return lambda decorated: kernel(decorated, **options)
    compiled = _jit(**options)(function)
    return (
        _cached(compiled, function) if isinstance(compiled, Dispatcher) else compiled
    )  # switched off


def c_function(function: Callable[..., Any], signature: Any) -> Any:
    """A function compiled for C, from the disk if it is there; has an `address`."""
    made = CFunc(function, (signature.args, signature.return_type), locals={}, options={})
    _cached(made, function)
    made.compile()
    return made


def _cached(compiled: Any, function: Callable[..., Any]) -> Any:
    compiled._cache = DiskCache(function)
    return compiled


class DiskCache:
    """numba's cache of one function, made when it is first asked; old if any of its sources changed
    (`sources`), where numba would look at the date of one.

    PERF: numba gets ready to compile before it looks at the disk (half a second, most of it scipy's
    import if that is installed), and looks for a writable folder at every decorator. Here both wait
    until something must be compiled, or is asked for. See `python -m structspec.bench.startup`.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self._made: Any = None

    @property
    def inner(self) -> Any:
        """numba's own cache."""
        if self._made is None:
            made = FunctionCache(self._function)
            made._cache_file = IndexDataCacheFile(
                made.cache_path,
                made._impl.filename_base,
                sources.digest([self._function.__code__.co_filename]),
            )
            self._made = made
        return self._made

    def load_overload(self, signature: Any, target: Any) -> Any:
        """The compiled function, None if it is not on disk (the target can then compile it)."""
        rtsys.initialize(target)  # symbols that machine code refers to
        with self.inner._guard_against_spurious_io_errors():
            found = self.inner._load_overload(signature, target)
            if found is not None:
                return found
        target.refresh()
        return None

    def save_overload(self, signature: Any, compiled: Any) -> None:
        """Keep a compiled function."""
        self.inner.save_overload(signature, compiled)

    def holds(self, signature: Any, codegen: Any) -> bool:
        """Whether the machine code of a signature is listed on disk, made from today's source."""
        index = self.inner._cache_file._load_index()
        return self.inner._index_key(signature, codegen) in index

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)
