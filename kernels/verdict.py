"""What a batched verification returns, and the checks its arguments share.

>>> import torch
>>> verdict = Verdict(*(torch.zeros(1, dtype=torch.int32) for _ in range(4)),
...                   torch.zeros(1, 1))
>>> verdict.check() is verdict
True
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from structspec.errors import KernelError
from structspec.kernels.logit_rows import LogitRows, check_status
from structspec.kernels.philox import Noise

__all__ = [
    "Verdict",
    "check_ends",
    "check_places",
    "check_tokens",
    "check_uniforms",
    "noise_arguments",
]


@dataclass(frozen=True)
class Verdict:
    """B decisions, all on the device.

    accepted: int32 [B], how many drafted tokens are kept. path: int32 [B], of which draft (0 for a
    single one; one of those that share the kept prefix). token: int32 [B], what follows
    them, -1 if the kept prefix ends with an end token or the status is bad. status: int32 [B], see
    `logit_rows.Status`. thresholds: what the uniforms are compared with (see the verifier).
    """

    accepted: Tensor
    path: Tensor
    token: Tensor
    status: Tensor
    thresholds: Tensor

    def check(self) -> Verdict:
        """Raise the typed error of the first bad request; waits for the device."""
        check_status(self.status, "request")
        return self


def check_places(
    name: str, rows: Tensor | None, shape: tuple[int, ...], total: int, device: torch.device
) -> None:
    """Raise `KernelError` unless a row map (or, without one, the number of rows) fits `shape`."""
    if rows is None:
        places = 1
        for size in shape:
            places *= size
        if total != places:
            raise KernelError(
                f"{name}: {total} rows of logits for places {shape}; pass {places} rows in that "
                f"order, or `{name}_rows` with the row of each place"
            )
        return
    if rows.dtype != torch.int32 or tuple(rows.shape) != shape or not rows.is_contiguous():
        raise KernelError(
            f"{name}_rows must be contiguous int32 {shape}, got {rows.dtype} {tuple(rows.shape)}"
        )
    if rows.device != device:
        raise KernelError(f"{name}_rows lie on {rows.device}, the tokens on {device}")


def check_uniforms(
    uniforms: Tensor | None,
    noise: Noise | None,
    shape: tuple[int, int],
    meaning: str,
    device: torch.device,
) -> None:
    """Raise `KernelError` unless exactly one source of randomness is given and fits."""
    if (uniforms is None) == (noise is None):
        raise KernelError("pass either `uniforms` or `noise`")
    if uniforms is not None and (
        tuple(uniforms.shape) != shape or uniforms.dtype not in (torch.float32, torch.float64)
    ):
        raise KernelError(
            f"uniforms must be float32 or float64 {shape}: {meaning}; got {uniforms.dtype} "
            f"{tuple(uniforms.shape)}"
        )
    if noise is not None and noise.requests.shape[0] != shape[0]:
        raise KernelError(f"noise names {noise.requests.shape[0]} requests, the batch {shape[0]}")
    source = noise.requests if uniforms is None and noise is not None else uniforms
    if source is not None and source.device != device:
        raise KernelError(f"the randomness lies on {source.device}, the tokens on {device}")


def check_ends(eos_ids: Tensor | None, device: torch.device) -> None:
    """Raise `KernelError` unless end tokens are int32 [E] on the tokens' device."""
    if eos_ids is None:
        return
    if eos_ids.dtype != torch.int32 or eos_ids.dim() != 1 or not eos_ids.is_contiguous():
        raise KernelError(
            f"eos_ids must be contiguous int32 [E], got {eos_ids.dtype} {tuple(eos_ids.shape)}"
        )
    if eos_ids.device != device:
        raise KernelError(f"eos_ids lie on {eos_ids.device}, the tokens on {device}")


def noise_arguments(
    uniforms: Tensor | None, noise: Noise | None, filler: Tensor
) -> tuple[tuple[Any, ...], dict[str, bool]]:
    """Kernel arguments (uniforms, seed, requests, steps) and the constant GIVEN."""
    if noise is None:
        assert uniforms is not None
        return (uniforms.contiguous(), 0, filler, filler), {"GIVEN": True}
    return (filler, noise.signed_seed, noise.requests, noise.steps), {"GIVEN": False}


def check_tokens(
    target: LogitRows, draft: LogitRows | None, tokens: Tensor, lengths: Tensor, dim: int
) -> None:
    """Raise `KernelError` unless tokens [.., L] and lengths [..] fit each other and the rows."""
    for name, tensor, expected in (("tokens", tokens, dim), ("lengths", lengths, dim - 1)):
        if tensor.dtype != torch.int32 or tensor.dim() != expected or not tensor.is_contiguous():
            raise KernelError(
                f"{name} must be contiguous int32 with {expected} dimension(s), got "
                f"{tensor.dtype} {tuple(tensor.shape)}"
            )
        if tensor.device != target.logits.device:
            raise KernelError(f"{name} lie on {tensor.device}, logits on {target.logits.device}")
    if tokens.shape[:-1] != lengths.shape:
        raise KernelError(
            f"tokens {tuple(tokens.shape)} and lengths {tuple(lengths.shape)} do not fit"
        )
    if draft is not None and draft.vocab != target.vocab:
        raise KernelError(
            f"target and draft must have equally many columns, got {target.vocab} and {draft.vocab}"
        )
