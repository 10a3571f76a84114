"""Addresses that become typed pointers inside kernels.

Example::

    @intrinsic
    def floats_at(typingctx, address):
        return pointer(types.float32)
"""

from __future__ import annotations

from typing import Any

from numba import types

__all__ = ["pointer"]


def pointer(element: Any) -> Any:
    """What an intrinsic returns that makes an int64 address a pointer to `element`."""
    signature = types.CPointer(element)(types.int64)

    def codegen(context, builder, sig, args):  # type: ignore[no-untyped-def]
        return builder.inttoptr(args[0], context.get_value_type(sig.return_type))

    return signature, codegen
