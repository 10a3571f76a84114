"""Compiling recorded launches for a device that is not there.

A launch recorded by `launch.record(dry=True)` holds the very arguments a device would get; this
turns them into a signature and compiles the kernel down to machine code for it, so that a type
error, an unsupported operation or too much shared memory shows on any machine with Triton.

Needs kernels that are not interpreted (no `TRITON_INTERPRET`).
"""

from __future__ import annotations

from typing import Any

import torch

from structspec.kernels.launch import Launch

__all__ = ["SHARED_LIMIT", "compile_launch", "key_of"]

#: Bytes of shared memory a program may use on sm_90.
SHARED_LIMIT = 227 * 1024

_POINTERS = {
    torch.float64: "*fp64", torch.float32: "*fp32", torch.bfloat16: "*bf16",
    torch.float16: "*fp16", torch.int64: "*i64", torch.int32: "*i32", torch.int16: "*i16",
    torch.uint8: "*u8",
}  # fmt: skip


def _signature(launch: Launch) -> tuple[dict[str, str], dict[tuple[int, ...], Any], dict[Any, Any]]:
    names = launch.kernel.arg_names
    signature: dict[str, str] = {}
    constants: dict[tuple[int, ...], Any] = {}
    attributes: dict[Any, Any] = {}
    for i, (name, value) in enumerate(zip(names, launch.arguments, strict=False)):
        if isinstance(value, torch.Tensor):
            signature[name] = _POINTERS[value.dtype]
            if value.data_ptr() % 16 == 0:
                attributes[(i,)] = [["tt.divisibility", 16]]
        elif isinstance(value, float):
            signature[name] = "fp32"
        elif value == 1:  # the launcher makes a constant of it
            signature[name] = "constexpr"
            constants[(i,)] = 1
        else:
            signature[name] = "i32" if -(2**31) <= value < 2**31 else "i64"
            if value % 16 == 0:
                attributes[(i,)] = [["tt.divisibility", 16]]
    for name, value in launch.constants.items():
        signature[name] = "constexpr"
        constants[(names.index(name),)] = value
    return {name: signature[name] for name in names}, constants, attributes


def key_of(launch: Launch) -> tuple[Any, ...]:
    """What decides the machine code: kernel, signature, constants."""
    signature, constants, _ = _signature(launch)
    return launch.kernel.__name__, tuple(signature.items()), tuple(constants.items())


def compile_launch(launch: Launch, capability: int = 90) -> Any:
    """The compiled kernel of a launch; its `asm` holds PTX, `metadata.shared` the bytes."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    signature, constants, attributes = _signature(launch)
    source = ASTSource(launch.kernel, signature, constants, attributes)
    return triton.compile(
        source,
        target=GPUTarget("cuda", capability, 32),
        options={"num_warps": launch.num_warps},
    )
