"""Views of a kernel's arguments that carry no reference count.

Numba counts references of every array that a kernel passes to another one, with an atomic
instruction before and after each call. In loops that call small helpers this costs more than the
helpers do. A *view* is the same memory without an owner,
so there is nothing to count.

INVARIANT: a view does not keep its memory alive. Make views of *arguments* only, whose owner is the
caller in Python; an array that the kernel made itself may be freed after its last use by name.

Sibling: `memory`, which reaches all arrays of a cache through one header.
"""

from __future__ import annotations

from numba import carray, types
from numba.extending import intrinsic

from structspec.automata.memory import inner

__all__ = ["view_i32", "view_i64", "view_rows", "view_u8"]


def _to(element):  # type: ignore[no-untyped-def]
    signature = types.CPointer(element)(types.int64)

    def codegen(context, builder, sig, args):  # type: ignore[no-untyped-def]
        return builder.inttoptr(args[0], context.get_value_type(sig.return_type))

    return signature, codegen


@intrinsic
def _i32(typingctx, address):  # type: ignore[no-untyped-def]
    return _to(types.int32)


@intrinsic
def _i64(typingctx, address):  # type: ignore[no-untyped-def]
    return _to(types.int64)


@intrinsic
def _u8(typingctx, address):  # type: ignore[no-untyped-def]
    return _to(types.uint8)


@inner
def view_i32(array):  # type: ignore[no-untyped-def]
    """int32[n]."""
    return carray(_i32(array.ctypes.data), (len(array),))  # type: ignore[call-arg]


@inner
def view_i64(array):  # type: ignore[no-untyped-def]
    """int64[n]."""
    return carray(_i64(array.ctypes.data), (len(array),))  # type: ignore[call-arg]


@inner
def view_u8(array):  # type: ignore[no-untyped-def]
    """uint8[n]."""
    return carray(_u8(array.ctypes.data), (len(array),))  # type: ignore[call-arg]


@inner
def view_rows(array):  # type: ignore[no-untyped-def]
    """int32[n, width]."""
    return carray(_i32(array.ctypes.data), array.shape)  # type: ignore[call-arg]
