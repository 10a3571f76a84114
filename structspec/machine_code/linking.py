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

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from llvmlite import binding
from numba import carray, types
from numba.extending import intrinsic

from structspec.locks import lock
from structspec.machine_code import ready
from structspec.machine_code.kernel import c_function, kernel
from structspec.machine_code.pointers import pointer

__all__ = ["Linked", "address", "declare", "defined", "header_at", "linked", "load"]

# More than any header has; the length of the array view is never looked at.
_LONGEST_HEADER = 512


@dataclass(frozen=True)
class Linked:
    """A kernel that is called by symbol."""

    symbol: str
    function: Callable[..., Any]
    signature: Any


#: All linked kernels of the modules imported so far, by `module:name`.
defined: dict[str, Linked] = {}
_waiting: list[Linked] = []
_loaded: list[Any] = []  # keeps the machine code alive
_lock = lock()


def linked(symbol: str, arguments: int) -> Callable[[Callable[..., Any]], Any]:
    """Make a function of `arguments` 64-bit integers, returning one, callable by symbol."""
    signature = types.int64(*[types.int64] * arguments)

    def decorate(function: Callable[..., Any]) -> Any:
        made = Linked(symbol, function, signature)
        defined[f"{function.__module__}:{function.__qualname__}"] = made
        _waiting.append(made)
        return types.ExternalFunction(symbol, signature)

    return decorate


def load() -> int:
    """Register the linked kernels of all imported modules, in the order of their definition.

    Returns how many were new.
    """
    if not _waiting:
        return 0
    ready.ensure()
    with _lock:
        count = 0
        while _waiting:
            compiled = c_function(_waiting[0].function, _waiting[0].signature)
            binding.add_symbol(_waiting[0].symbol, compiled.address)
            _loaded.append(compiled)
            _waiting.pop(0)
            count += 1
        return count


def declare() -> None:
    """Register symbols for callers that are compiled here but never run."""
    for each in defined.values():
        if binding.address_of_symbol(each.symbol) is None:
            binding.add_symbol(each.symbol, 1)


@intrinsic
def _pointer_i64(typingctx, number):  # type: ignore[no-untyped-def]
    return pointer(types.int64)


@kernel
def header_at(number):  # type: ignore[no-untyped-def]
    """The header at an address."""
    return carray(_pointer_i64(number), (_LONGEST_HEADER,))  # type: ignore[call-arg]


@kernel
def address(header):  # type: ignore[no-untyped-def]
    """The address of a header."""
    return header.ctypes.data
