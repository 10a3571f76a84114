"""Products of a few rows with a large float32 matrix, at the cost of reading the matrix once.

Owns the compiled loops behind `linear.FewRowsLinear`. Verifying a draft multiplies two to a few
dozen rows by every matrix of the model. Libraries are tuned for one row or for very many: in
between they rearrange the matrix at each call, and eight rows cost twice as much as one. Here every
weight is loaded once and serves eight rows from registers, so that up to that number the memory's
speed, not arithmetic, decides.

How threads share the work: the rows of the matrix are handed out in chunks, by an atomic counter,
so a thread that is held up holds up nobody else. The threads are those of torch itself: its OpenMP
library runs the kernel (`GOMP_parallel`), so neither library waits for the other's threads. Where
torch brings no such library, `most_threads` is 1.

Invariants: sums are float32 in an order that depends on the machine and on whether there is one row
or more, not on the other rows or on the number of threads; nothing is kept between calls.

    >>> import torch
    >>> rows, matrix = torch.ones(3, 4), torch.arange(8.0).reshape(2, 4)
    >>> multiply(rows, matrix, threads=1).tolist()
    [[6.0, 22.0], [6.0, 22.0], [6.0, 22.0]]
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from llvmlite import ir
from numba import carray, types
from numba.extending import intrinsic
from torch import Tensor

from structspec.locks import lock
from structspec.machine_code.kernel import c_function, kernel
from structspec.machine_code.pointers import pointer

__all__ = ["most_threads", "multiply"]

#: Weights of one chunk: those of a second group of rows still find them in the second-level cache.
_CHUNK = 16_384
#: Fewer multiplications than this are not worth waking another thread for.
_WORTH_A_THREAD = 1 << 18
# Reordering of sums is what lets the compiler use vectors; NaN and infinity keep their meaning.
_loops: Any = kernel(fastmath={"reassoc", "contract", "nsz"}, no_cpython_wrapper=True)


@intrinsic
def _floats(typingctx, address):  # type: ignore[no-untyped-def]
    return pointer(types.float32)


@intrinsic
def _take(typingctx, address, count):  # type: ignore[no-untyped-def]
    """Add to the counter at an address, for all threads at once; returns what it was."""
    signature = types.int64(types.int64, types.int64)

    def codegen(context, builder, sig, args):  # type: ignore[no-untyped-def]
        pointer = builder.inttoptr(args[0], ir.IntType(64).as_pointer())
        return builder.atomic_rmw("add", pointer, args[1], "monotonic")

    return signature, codegen


@_loops
def _one_row(x, w, out, first, last):  # type: ignore[no-untyped-def]
    """`out[0, first:last]`: four rows of the matrix at a time, to keep more loads in flight."""
    x0 = x[0]
    end = last - 1
    for i in range(first, last, 4):
        w0, w1, w2, w3 = w[i], w[min(i + 1, end)], w[min(i + 2, end)], w[min(i + 3, end)]
        s0 = s1 = s2 = s3 = np.float32(0)
        for j in range(w.shape[1]):
            v = x0[j]
            s0 += v * w0[j]
            s1 += v * w1[j]
            s2 += v * w2[j]
            s3 += v * w3[j]
        # past the end the last row was taken once more: its sum is written again
        out[0, min(i + 3, end)] = s3
        out[0, min(i + 2, end)] = s2
        out[0, min(i + 1, end)] = s1
        out[0, i] = s0


@_loops
def _eight_rows(x, w, out, first, last, at):  # type: ignore[no-untyped-def]
    """`out[at : at + 8, first:last]`; rows beyond the end are the last row once more."""
    end = x.shape[0] - 1
    a1, a2, a3, a4 = min(at + 1, end), min(at + 2, end), min(at + 3, end), min(at + 4, end)
    a5, a6, a7 = min(at + 5, end), min(at + 6, end), min(at + 7, end)
    x0, x1, x2, x3, x4, x5, x6, x7 = x[at], x[a1], x[a2], x[a3], x[a4], x[a5], x[a6], x[a7]
    for i in range(first, last):
        row = w[i]
        s0 = s1 = s2 = s3 = s4 = s5 = s6 = s7 = np.float32(0)
        for j in range(w.shape[1]):
            v = row[j]
            s0 += v * x0[j]
            s1 += v * x1[j]
            s2 += v * x2[j]
            s3 += v * x3[j]
            s4 += v * x4[j]
            s5 += v * x5[j]
            s6 += v * x6[j]
            s7 += v * x7[j]
        out[at, i] = s0
        out[a1, i] = s1
        out[a2, i] = s2
        out[a3, i] = s3
        out[a4, i] = s4
        out[a5, i] = s5
        out[a6, i] = s6
        out[a7, i] = s7


def _share(job) -> None:  # type: ignore[no-untyped-def]
    """One thread's part: chunks of the matrix until none is left.

    `job` int64 [8]: the next row of the matrix, rows per chunk, addresses of x, w and out, and the
    sizes m, n, k of x [m, k], w [n, k] and out [m, n].
    """
    job = carray(job, (8,))
    m, n, k = job[5], job[6], job[7]
    x = carray(_floats(job[2]), (m, k))  # type: ignore[call-arg]
    w = carray(_floats(job[3]), (n, k))
    out = carray(_floats(job[4]), (m, n))
    while True:
        first = _take(job.ctypes.data, job[1])
        if first >= n:
            return
        last = min(first + job[1], n)
        if m == 1:
            _one_row(x, w, out, first, last)
        else:
            for at in range(0, m, 8):
                _eight_rows(x, w, out, first, last, at)


_Job = ctypes.c_int64 * 8
_lock = lock()


@cache
def _kernel() -> tuple[Any, Callable[[Any], None]]:
    """The compiled `_share`: its owner, which must live as long, and a function of a job."""
    with _lock:
        compiled = c_function(_share, types.void(types.CPointer(types.int64)))
    return compiled, ctypes.CFUNCTYPE(None, ctypes.c_void_p)(compiled.address)


@cache
def _parallel() -> Any:
    """`GOMP_parallel` of the OpenMP library that torch has loaded; None if there is none."""
    for path in sorted((Path(torch.__file__).parent / "lib").glob("*omp*")):
        if path.name.startswith(("libgomp", "libomp", "libiomp")):
            try:
                run = ctypes.CDLL(str(path)).GOMP_parallel
            except (OSError, AttributeError):
                continue
            run.restype = None
            run.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint]
            return run
    return None


def most_threads() -> int:
    """How many threads `multiply` can use: those of torch, or 1."""
    return torch.get_num_threads() if _parallel() is not None else 1


def multiply(rows: Tensor, matrix: Tensor, threads: int) -> Tensor:
    """`rows @ matrix.T`.

    Args:
        rows: float32 [m, k] on the CPU, contiguous, m ≥ 1.
        matrix: float32 [n, k] on the CPU, contiguous.
        threads: at most `most_threads()`.

    Returns:
        float32 [m, n].
    """
    (m, k), n = rows.shape, matrix.shape[0]
    out = torch.empty((m, n), dtype=torch.float32)
    chunk = max(4, _CHUNK // max(k, 1) // 4 * 4)
    job = _Job(0, chunk, rows.data_ptr(), matrix.data_ptr(), out.data_ptr(), m, n, k)
    compiled, run = _kernel()
    if threads > 1 and m * n * k > _WORTH_A_THREAD:
        _parallel()(compiled.address, job, min(threads, 1 + m * n * k // _WORTH_A_THREAD), 0)
    else:
        run(job)
    return out
