"""The decorator of compiled functions, and their machine code on disk.

`kernel` is numba's `njit` with a cache of its own (`store`), which is looked at when a kernel is
first needed and read without preparing to compile. Kernels are compiled wherever they run: numba's
switch `NUMBA_DISABLE_JIT`, with which people step through functions of their own, is not for them
(they work on addresses).

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
from numba.core import config
from numba.core.ccallback import CFunc
from numba.core.compiler_lock import global_compiler_lock
from numba.core.dispatcher import Dispatcher
from numba.core.runtime import rtsys

from structspec import locks
from structspec.machine_code import places
from structspec.machine_code.store import Store

__all__ = ["DiskCache", "c_function", "kernel"]

_jit: Any = njit
if hasattr(global_compiler_lock, "_lock"):  # a forked process could never compile
    locks.watch(global_compiler_lock._lock)


def kernel(function: Callable[..., Any] | None = None, **options: Any) -> Any:
    """Compile a function when it is first called, and keep the machine code on disk.

    options: those of `numba.njit`. Also used as `@kernel(nogil=True)`.
    """
    if function is None:
        return lambda decorated: kernel(decorated, **options)
    settings: Any = config  # its names come from the environment
    switched_off, settings.DISABLE_JIT = settings.DISABLE_JIT, 0
    try:
        compiled = _jit(**options)(function)
    finally:
        settings.DISABLE_JIT = switched_off
    return (
        _cached(compiled, function) if isinstance(compiled, Dispatcher) else compiled
    )  # another target than the CPU


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
    """What numba asks for machine code: the `store` of one function, made when it is first needed.

    PERF: numba gets ready to compile before it looks at the disk (half a second, most of it scipy's
    import if that is installed), and looks for a writable folder at every decorator. Here both wait
    until something must be compiled, or is asked for. See `python -m structspec.bench.startup`.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self._made: Store | None = None

    @property
    def store(self) -> Store:
        """The function's machine code on disk."""
        if self._made is None:
            self._made = Store(self._function)
        return self._made

    @property
    def cache_path(self) -> str:
        """The first folder where it may lie."""
        return str(places.folders(self._function.__code__.co_filename)[0])

    def load_overload(self, signature: Any, target: Any) -> Any:
        """The compiled function, None if it is not on disk (the target can then compile it)."""
        rtsys.initialize(target)  # symbols that machine code refers to
        found = self.store.load(signature, target)
        if found is None:
            target.refresh()
        return found

    def save_overload(self, signature: Any, compiled: Any) -> None:
        """Keep a compiled function, if there is a place."""
        self.store.save(signature, compiled)

    def holds(self, signature: Any, codegen: Any) -> bool:
        """Whether the machine code of a signature is on disk, made from today's source."""
        return self.store.holds(signature, codegen)

    def flush(self) -> None:
        """Nothing: what is on disk stays true (numba asks for it before `recompile`)."""
