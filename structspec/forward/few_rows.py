"""`product`: a matrix times a few rows on a CPU, reading the matrix once.

A forward of a few tokens is bound by reading the weights. The product of a general library copies
each matrix into another order first, in every call of more than one row, so two rows cost nearly
twice as much as one. Here every row of the matrix meets all rows of the input while it is in the
nearest cache, and nothing is copied.

Invariants
- the sums are those of a plain product up to rounding;
- where it does not apply (other types and devices, more rows, gradients, other layers) the layer
  itself runs.

Cost: no memory, and a second or two of compiling, once; the time is that of reading the matrix
(`python -m structspec.bench.forwards` measures it beside torch's product).

Siblings: `lean` runs whole layers with it; `structspec.packed` is for wide output matrices and
many rows.

Example::

    y = product(layer, x)               # as layer(x)
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import numba
import numpy as np
import torch
from numba import njit, prange
from torch import Tensor

from structspec.packed import PackedLinear

__all__ = ["MOST_ROWS", "multiply", "product", "products"]

MOST_ROWS = 12
"""More rows than this are arithmetic, not reading: the library's product is as fast."""

_Array = np.ndarray[Any, np.dtype[np.float32]]

_MOST_THREADS = numba.get_num_threads()

# numba's own threads serve one caller at a time
_lock = threading.Lock()


def product(layer: Any, x: Tensor) -> Tensor:
    """`layer(x)` for a linear layer; x [..., size]."""
    return products((layer,), x)[0]


def products(layers: Sequence[Any], x: Tensor) -> list[Tensor]:
    """`layer(x)` for several linear layers of the same input."""
    if not all(_is_plain(layer) for layer in layers):
        return [layer(x) for layer in layers]
    found = _multiplied([layer.weight for layer in layers], x)
    if found is None:
        return [layer(x) for layer in layers]
    return [
        out if layer.bias is None else out.add_(layer.bias)
        for layer, out in zip(layers, found, strict=True)
    ]


def multiply(x: Tensor, weight: Tensor) -> Tensor:
    """`torch.nn.functional.linear(x, weight)`; x [..., size], weight [n, size]."""
    found = _multiplied([weight], x)
    return torch.nn.functional.linear(x, weight) if found is None else found[0]


def _multiplied(weights: Sequence[Tensor], x: Tensor) -> list[Tensor] | None:
    """The products, None where the library's are to be taken."""
    size = x.shape[-1]
    rows = x.numel() // size
    if not 0 < rows <= MOST_ROWS or not all(_applies(weight, x) for weight in weights):
        return None
    flat = x.detach().reshape(rows, size)
    # rows are taken eight or four at a time; those that fill up are dropped
    padded = rows if rows == 1 else -(-rows // 4) * 4
    if padded != rows:
        flat = torch.nn.functional.pad(flat, (0, 0, 0, padded - rows))
    read = flat.contiguous().numpy()
    results = []
    for weight in weights:
        found = np.empty((padded, weight.shape[0]), dtype=np.float32)
        _run(read, weight.detach().numpy(), found)
        results.append(torch.from_numpy(found)[:rows].view(*x.shape[:-1], weight.shape[0]))
    return results


def _run(x: _Array, weight: _Array, out: _Array) -> None:
    threads = min(torch.get_num_threads(), _MOST_THREADS)
    if threads == 1:
        _multiply(x, weight, out, 0, weight.shape[0])
        return
    with _lock:
        before = numba.get_num_threads()
        numba.set_num_threads(threads)
        _multiply_by_threads(x, weight, out, threads)
        numba.set_num_threads(before)


def _is_plain(layer: Any) -> bool:
    kind = type(layer)
    if kind is not torch.nn.Linear and kind is not PackedLinear:
        return False
    return not (layer._forward_hooks or layer._forward_pre_hooks)


def _applies(weight: Tensor, x: Tensor) -> bool:
    if torch.is_grad_enabled() and (x.requires_grad or weight.requires_grad):
        return False
    return bool(
        x.device.type == weight.device.type == "cpu"
        and x.dtype == weight.dtype == torch.float32
        and weight.is_contiguous()
    )


@njit(cache=True, fastmath={"reassoc", "contract"}, boundscheck=False, nogil=True)
def _multiply(x: _Array, weight: _Array, out: _Array, first: int, last: int) -> None:
    """out[:, n] = x · weight[n] for n in first..last-1; one row, or a multiple of four."""
    rows, size = x.shape
    zero = np.float32(0)
    for n in range(first, last):
        if rows == 1:
            a0 = zero
            for k in range(size):
                a0 += weight[n, k] * x[0, k]
            out[0, n] = a0
            continue
        m = 0
        while m + 8 <= rows:
            a0 = a1 = a2 = a3 = a4 = a5 = a6 = a7 = zero
            for k in range(size):
                w = weight[n, k]
                a0 += w * x[m, k]
                a1 += w * x[m + 1, k]
                a2 += w * x[m + 2, k]
                a3 += w * x[m + 3, k]
                a4 += w * x[m + 4, k]
                a5 += w * x[m + 5, k]
                a6 += w * x[m + 6, k]
                a7 += w * x[m + 7, k]
            out[m, n], out[m + 1, n], out[m + 2, n], out[m + 3, n] = a0, a1, a2, a3
            out[m + 4, n], out[m + 5, n], out[m + 6, n], out[m + 7, n] = a4, a5, a6, a7
            m += 8
        if m < rows:
            a0 = a1 = a2 = a3 = zero
            for k in range(size):
                w = weight[n, k]
                a0 += w * x[m, k]
                a1 += w * x[m + 1, k]
                a2 += w * x[m + 2, k]
                a3 += w * x[m + 3, k]
            out[m, n], out[m + 1, n], out[m + 2, n], out[m + 3, n] = a0, a1, a2, a3


@njit(cache=True, parallel=True)
def _multiply_by_threads(x: _Array, weight: _Array, out: _Array, threads: int) -> None:
    """As `_multiply`, rows of the matrix spread over threads."""
    count = weight.shape[0]
    for part in prange(threads):
        _multiply(x, weight, out, count * part // threads, count * (part + 1) // threads)
