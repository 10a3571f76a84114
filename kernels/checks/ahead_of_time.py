"""Compiling recorded launches for a device that is not there.

A launch recorded by `launch.record(dry=True)` holds the very arguments a device would get; this
turns them into a signature and compiles the kernel down to machine code for it, so that a type
error, an unsupported operation or too much shared memory shows on any machine with Triton.

`python -m structspec.kernels.checks.ahead_of_time` prints what every kernel takes at real sizes.
Needs kernels that are not interpreted (no `TRITON_INTERPRET`).
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Container
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from structspec.kernels.launch import Launch, record

__all__ = ["SHARED_LIMIT", "Resources", "compile_launch", "key_of", "recorded", "resources"]

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
    version = tuple(int(part) for part in triton.__version__.split(".")[:2])
    if version < (3, 3):  # constants by name, left out of the signature; no hints on alignment
        names = launch.kernel.arg_names
        kept = {name: kind for name, kind in signature.items() if kind != "constexpr"}
        by_name = {names[key[0]]: value for key, value in constants.items()}
        numbered = {names.index(name): kind for name, kind in kept.items()}
        source = ASTSource(launch.kernel, kept if version >= (3, 2) else numbered, by_name)
    else:
        source = ASTSource(launch.kernel, signature, constants, attributes)
    return triton.compile(
        source,
        target=GPUTarget("cuda", capability, 32),
        options={"num_warps": launch.num_warps},
    )


@dataclass(frozen=True)
class Resources:
    """What one program of a compiled kernel takes: registers per thread, bytes of the rest."""

    registers: int
    local: int
    """Bytes of local memory per thread: what did not fit into registers."""
    shared: int
    warps: int


def resources(compiled: Any) -> Resources | None:
    """What the assembler says of a compiled kernel; None without Triton's own `cuobjdump`."""
    import triton

    tools = Path(triton.__file__).parent / "backends" / "nvidia" / "bin"
    if not (tools / "cuobjdump").is_file():
        return None
    with tempfile.TemporaryDirectory() as folder:
        binary = Path(folder) / "kernel.cubin"
        binary.write_bytes(compiled.asm["cubin"])
        shown = subprocess.run(
            [str(tools / "cuobjdump"), "-res-usage", str(binary)],
            capture_output=True, text=True, check=True,
        )  # fmt: skip
    found = {key: int(value) for key, value in re.findall(r"([A-Z]+):(\d+)", shown.stdout)}
    metadata = compiled.metadata
    return Resources(
        found["REG"], found["STACK"] + found["LOCAL"], metadata.shared, metadata.num_warps
    )


def recorded(names: Container[str] | None = None, **options: Any) -> dict[str, list[Launch]]:
    """The launches of `launches.calls(**options)` by kernel, none of which runs."""
    from structspec.kernels import backend
    from structspec.kernels.checks.launches import calls

    # recording takes host tensors, which Triton itself would refuse
    refuse, backend.triton_interpreted = backend.triton_interpreted, lambda: True
    try:
        found = {}
        for name, call in calls(**options).items():
            if names is None or name in names:
                with record(dry=True) as launches:
                    call()
                found[name] = launches
        return found
    finally:
        backend.triton_interpreted = refuse


def main() -> None:
    """Print a table of all kernels at V = 152,064 in bfloat16, four drafts of eight tokens."""
    seen = recorded(vocab=152_064, drafts=4, length=8)
    different = {key_of(one): (name, one) for name, some in seen.items() for one in some}
    print("| kernel | launch | warps | registers | local bytes | shared bytes |")
    print("|---|---|---|---|---|---|")
    for name, one in different.values():
        took = resources(compile_launch(one))
        if took is None:
            raise SystemExit("this Triton brings no cuobjdump")
        print(f"| `{name}` | `{one.kernel.__name__}` | {took.warps} | {took.registers} | "
              f"{took.local} | {took.shared} |", flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
