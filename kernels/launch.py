"""One door through which every Triton kernel is launched.

It counts launches and can record them instead of running them. Tests compile what was recorded for
a device that is not there; the GPU check counts how many launches a verification takes.

    >>> with record() as launches:
    ...     pass
    >>> launches
    []
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

__all__ = ["SPLIT_WORDS", "Launch", "launch", "next_power", "record", "split_words", "splits"]

#: Words of 32 tokens that one program reads at most: 8192 tokens.
SPLIT_WORDS = 256


@dataclass(frozen=True)
class Launch:
    """One recorded launch: `kernel[grid](*arguments, num_warps=num_warps, **constants)`."""

    kernel: Any
    grid: tuple[int, ...]
    arguments: tuple[Any, ...]
    constants: dict[str, Any]
    num_warps: int


_recording: list[Launch] | None = None
_dry = False


def launch(
    kernel: Any, grid: tuple[int, ...], *arguments: Any, num_warps: int = 4, **constants: Any
) -> None:
    """Launch a kernel; an empty grid launches nothing."""
    if _recording is not None:
        _recording.append(Launch(kernel, grid, arguments, constants, num_warps))
        if _dry:
            return
    if min(grid) > 0:
        kernel[grid](*arguments, num_warps=num_warps, **constants)


@contextmanager
def record(dry: bool = False) -> Iterator[list[Launch]]:
    """Collect the launches made inside; with `dry` they do not run. Not for several threads."""
    global _recording, _dry
    previous, _recording, was_dry, _dry = _recording, [], _dry, dry
    try:
        yield _recording
    finally:
        _recording, _dry = previous, was_dry


def next_power(n: int) -> int:
    """The smallest power of two >= n (1 for n <= 1)."""
    return 1 << max(n - 1, 0).bit_length()


def split_words(vocab: int) -> int:
    """Words of 32 tokens per program for a vocabulary."""
    return min(SPLIT_WORDS, next_power(-(-vocab // 32)))


def splits(vocab: int) -> int:
    """How many programs share a row."""
    return -(-vocab // (32 * split_words(vocab)))
