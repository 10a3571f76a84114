"""Kernels that other kernels call by name instead of by copy.

numba links every function into every caller and optimises the whole again, so a deep tree of
kernels compiles for minutes. A *linked* kernel is compiled once, as a C function whose address is
registered under a symbol; callers hold only the symbol. Its arguments are 64-bit integers: a
header travels as its address (`address`), and becomes an array again with `header_at`.

`load` must run before any caller does; it compiles what is not cached on disk.

Example: `expand_at` is defined with `@linked("structspec_expand", 3)` and called as
`expand_at(address(header), address(known), config)`.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from llvmlite import binding
from numba import carray, cfunc, njit, types
from numba.extending import intrinsic

__all__ = ["address", "header_at", "linked", "load"]

# More than any header has; the length of the array view is never looked at.
_LONGEST_HEADER = 512
_waiting: list[tuple[str, Callable[..., Any], Any]] = []
_loaded: list[Any] = []  # keeps the machine code alive
_lock = threading.Lock()


def linked(symbol: str, arguments: int) -> Callable[[Callable[..., Any]], Any]:
    """Make a function of `arguments` 64-bit integers, returning one, callable by symbol."""
    signature = types.int64(*[types.int64] * arguments)

    def decorate(function: Callable[..., Any]) -> Any:
        _waiting.append((symbol, function, signature))
        return types.ExternalFunction(symbol, signature)

    return decorate


def load() -> int:
    """Register the linked kernels of all imported modules, in the order of their definition.

    Returns how many were new.
    """
    if not _waiting:
        return 0
    with _lock:
        if _waiting and not _on_disk(_waiting[0][1]):
            logging.getLogger("structspec").warning(
                "compiling structspec's kernels for this machine; this happens once and may take "
                "a minute ('structspec warmup' does it ahead of time)"
            )
        count = 0
        while _waiting:
            symbol, function, signature = _waiting[0]
            compiled = cfunc(signature, cache=True)(function)
            binding.add_symbol(symbol, compiled.address)
            _loaded.append(compiled)
            _waiting.pop(0)
            count += 1
        return count


def _on_disk(function: Callable[..., Any]) -> bool:
    """Whether numba's cache seems to hold a function."""
    code = function.__code__
    path = Path(code.co_filename)
    folder = os.environ.get("NUMBA_CACHE_DIR")
    pattern = f"{path.stem}.{function.__qualname__}-*.nbi"
    if folder:
        return any(Path(folder).rglob(pattern))
    return any((path.parent / "__pycache__").glob(pattern))


@intrinsic
def _pointer_i64(typingctx, number):  # type: ignore[no-untyped-def]
    signature = types.CPointer(types.int64)(types.int64)

    def codegen(context, builder, sig, args):  # type: ignore[no-untyped-def]
        return builder.inttoptr(args[0], context.get_value_type(sig.return_type))

    return signature, codegen


@njit(cache=True)
def header_at(number):  # type: ignore[no-untyped-def]
    """The header at an address."""
    return carray(_pointer_i64(number), (_LONGEST_HEADER,))  # type: ignore[call-arg]


@njit(cache=True)
def address(header):  # type: ignore[no-untyped-def]
    """The address of a header."""
    return header.ctypes.data
