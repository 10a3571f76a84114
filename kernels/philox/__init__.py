"""The uniforms of `verification.randomness`, computed on the device.

A number is named by (seed, request, step, purpose, row, index); see `Randomness` for why the step
is part of the name. Values are equal bit for bit to the host's: Philox 4x32-10, 53 bits.

`Noise` is what verification kernels take instead of a tensor of uniforms; the Triton kernels then
draw inside and launch nothing more.

    >>> import torch
    >>> noise = Noise(7, torch.tensor([0, 5], dtype=torch.int32),
    ...               torch.tensor([3, 1], dtype=torch.int32))
    >>> noise.uniforms(purpose=2, count=3).shape
    torch.Size([2, 3])
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from structspec.errors import KernelError

__all__ = ["Noise", "philox4x32"]

_LOW = 0xFFFFFFFF
_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_WEYL = (0x9E3779B9, 0xBB67AE85)


@dataclass(frozen=True)
class Noise:
    """The names of B requests' draws: one seed, a request and a step number each, int32 [B]."""

    seed: int
    requests: Tensor
    steps: Tensor

    def __post_init__(self) -> None:
        if not 0 <= self.seed < 2**64:
            raise KernelError(f"seed={self.seed} is out of range; pass 0 <= seed < 2**64")
        for name in ("requests", "steps"):
            tensor = getattr(self, name)
            if tensor.dtype != torch.int32 or tensor.dim() != 1:
                raise KernelError(
                    f"{name} must be int32 [B], got {tensor.dtype} {tuple(tensor.shape)}"
                )
        if self.requests.shape != self.steps.shape or self.requests.device != self.steps.device:
            raise KernelError("requests and steps must have the same length and device")

    @property
    def signed_seed(self) -> int:
        """The seed as the signed 64-bit integer that kernels take."""
        return self.seed - 2**64 if self.seed >= 2**63 else self.seed

    def uniforms(self, purpose: int, count: int, row: int = 0) -> Tensor:
        """float64 [B, count] in [0, 1): indices 0..count-1 of one purpose and row."""
        device = self.requests.device
        blocks = torch.arange((count + 1) // 2, dtype=torch.int64, device=device)[None, :]
        request = (self.requests.to(torch.int64) & _LOW)[:, None]
        step = (self.steps.to(torch.int64) & _LOW)[:, None]
        name = torch.full_like(request, row | purpose << 24)
        words = philox4x32((blocks, name, step, request), self.seed)
        pairs = [
            ((words[i] >> 5).double() * 67108864.0 + (words[i + 1] >> 6).double()) * 2.0**-53
            for i in (0, 2)
        ]
        return torch.stack(pairs, dim=-1).flatten(1)[:, :count]


def philox4x32(
    counter: tuple[Tensor, Tensor, Tensor, Tensor], seed: int
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Philox 4x32-10 on int64 tensors that hold 32-bit words (they broadcast)."""
    c0, c1, c2, c3 = torch.broadcast_tensors(*counter)
    key = [seed & _LOW, seed >> 32]
    for _ in range(10):
        high0, low0 = _multiply(_MULTIPLIERS[0], c0)
        high1, low1 = _multiply(_MULTIPLIERS[1], c2)
        c0, c1, c2, c3 = high1 ^ c1 ^ key[0], low1, high0 ^ c3 ^ key[1], low0
        key = [(key[0] + _WEYL[0]) & _LOW, (key[1] + _WEYL[1]) & _LOW]
    return c0, c1, c2, c3


def _multiply(a: int, b: Tensor) -> tuple[Tensor, Tensor]:
    """High and low words of a 32 x 32-bit product; torch has no unsigned 64-bit product."""
    low_part = a * (b & 0xFFFF)  # < 2**48
    high_part = a * (b >> 16) + (low_part >> 16)  # < 2**49
    return high_part >> 16, ((high_part & 0xFFFF) << 16) | (low_part & 0xFFFF)
