"""Timing on a device: captured graphs, rotated inputs, percentiles, and the copy bandwidth.

A call is captured once per copy of its inputs, then the graphs are replayed in turn between two
events. So neither Python nor launches are measured, and with copies larger together than the L2
cache, nothing is found there from the time before. On a CPU (dry runs) calls are simply timed.

    >>> import torch
    >>> timer = Timer(torch.device("cpu"), repeats=3)
    >>> timing = timer.time([lambda: None])
    >>> timing.p10 <= timing.median <= timing.p90
    True
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

__all__ = ["Timer", "Timing"]


@dataclass(frozen=True)
class Timing:
    """Microseconds."""

    median: float
    p10: float
    p90: float

    @classmethod
    def of(cls, samples: Sequence[float]) -> Timing:
        """From samples in microseconds."""
        ordered = sorted(samples)

        def at(share: float) -> float:
            return ordered[min(int(share * len(ordered)), len(ordered) - 1)]

        return cls(at(0.5), at(0.1), at(0.9))


class Timer:
    """Times calls on one device."""

    def __init__(self, device: torch.device, repeats: int = 60) -> None:
        self.device = device
        self.repeats = repeats
        self.cuda = device.type == "cuda"

    @property
    def cache_bytes(self) -> int:
        """Size of the L2 cache (50 MiB if the device does not tell)."""
        if not self.cuda:
            return 1
        properties = torch.cuda.get_device_properties(self.device)
        return int(getattr(properties, "L2_cache_size", 0)) or 50 << 20

    def copies(self, n_bytes: int) -> int:
        """How many copies of inputs of this size pass the cache several times (at most 8)."""
        if not self.cuda:
            return 1
        return max(2, min(8, -(-4 * self.cache_bytes // max(n_bytes, 1))))

    def time(self, calls: Sequence[Callable[[], Any]], *, graph: bool = True) -> Timing:
        """Time `calls`, the same call on different copies, in turn.

        graph: False for calls that cannot be captured; their launches are then measured as well.
        """
        if not self.cuda:
            samples = []
            for i in range(self.repeats):
                start = time.perf_counter()
                calls[i % len(calls)]()
                samples.append((time.perf_counter() - start) * 1e6)
            return Timing.of(samples)
        replays = [self._captured(call) for call in calls] if graph else list(calls)
        for replay in replays:
            replay()
        torch.cuda.synchronize()
        events = []
        for i in range(self.repeats):
            before, after = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            before.record()
            replays[i % len(replays)]()
            after.record()
            events.append((before, after))
        torch.cuda.synchronize()
        return Timing.of([before.elapsed_time(after) * 1e3 for before, after in events])

    def _captured(self, call: Callable[[], Any]) -> Callable[[], Any]:
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(2):  # compiles, and makes the allocator's blocks
                call()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            call()
        return graph.replay

    def copy_bandwidth(self, n_bytes: int = 1 << 30) -> float:
        """Bytes per microsecond that a device copy reads and writes together."""
        source = torch.empty(n_bytes, dtype=torch.uint8, device=self.device)
        target = torch.empty_like(source)
        return 2.0 * n_bytes / self.time([lambda: target.copy_(source)], graph=False).median
