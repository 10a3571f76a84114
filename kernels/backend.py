"""Which implementation of a kernel runs: reference, torch or Triton.

The environment variable `STRUCTSPEC_KERNELS` names one of them; unset, Triton runs on CUDA tensors
if it is installed and torch everywhere else. `reference` is float64 numpy on the host, slow, and
the definition of what the others compute.

`loop_backend` is the same choice for the decoding loop, which has a path of its own on the CPU.

Triton on CPU tensors works only interpreted: set `TRITON_INTERPRET=1` before anything imports
triton (transformers and torch may).

    >>> import torch
    >>> choose(torch.device("cpu"), "torch")
    'torch'
"""

from __future__ import annotations

import os
from typing import Literal, TypeAlias, cast

import torch

from structspec.errors import KernelError, MissingExtra

__all__ = [
    "ENVIRONMENT",
    "Backend",
    "choose",
    "loop_backend",
    "triton_installed",
    "triton_interpreted",
]

ENVIRONMENT = "STRUCTSPEC_KERNELS"
Backend: TypeAlias = Literal["reference", "torch", "triton"]
_NAMES = ("reference", "torch", "triton")


def choose(device: torch.device, backend: str | None = None) -> Backend:
    """The implementation for tensors on `device`; `backend` overrides the environment.

    Raises `KernelError` for an unknown name and for Triton on a device it cannot run on,
    `MissingExtra` if Triton was asked for and is not installed.
    """
    name = backend or os.environ.get(ENVIRONMENT) or None
    if name is None:
        return "triton" if device.type == "cuda" and triton_installed() else "torch"
    if name not in _NAMES:
        raise KernelError(
            f"unknown kernels {name!r} (argument `backend` or {ENVIRONMENT}); "
            f"choose one of {', '.join(_NAMES)}"
        )
    if name == "triton":
        if not triton_installed():
            raise MissingExtra("triton", "kernels")
        if device.type != "cuda" and not triton_interpreted():
            raise KernelError(
                f"Triton kernels need CUDA tensors, got {device}; on a CPU set TRITON_INTERPRET=1 "
                "before triton is imported, or use the torch kernels"
            )
    return cast(Backend, name)


def loop_backend(values: torch.Tensor) -> Backend | None:
    """The kernels that the decoding loop uses on `values`, None for its own float64 path.

    What `STRUCTSPEC_KERNELS` names; else `choose`'s on CUDA, and none for other devices and for
    float64, which the Triton kernels do not take. Raises as `choose`.
    """
    named = bool(os.environ.get(ENVIRONMENT))
    if not named and (values.device.type != "cuda" or values.dtype == torch.float64):
        return None
    return choose(values.device)


def triton_installed() -> bool:
    """Whether triton can be imported (it is, by this call)."""
    try:
        import triton  # noqa: F401
    except ImportError:
        return False
    return True


def triton_interpreted() -> bool:
    """Whether kernels were defined under `TRITON_INTERPRET=1`."""
    from structspec.kernels.triton_rows import INTERPRETED

    return INTERPRETED
