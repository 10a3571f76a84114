"""Hardware and versions, as they stand beside every figure."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

__all__ = ["describe_machine", "on_machine"]

_PACKAGES = ("structspec", "torch", "transformers", "tokenizers", "numba", "numpy")


def describe_machine() -> dict[str, Any]:
    """Processor, cores, memory, operating system, Python and package versions."""
    versions = {}
    for package in _PACKAGES:
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            versions[package] = "not installed"
    return {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "memory_gib": _memory_gib(),
        "system": platform.system(),
        "python": platform.python_version(),
        "packages": versions,
    }


def on_machine(machine: Mapping[str, Any]) -> str:
    """What stands before a table: cores, processor and Python of a described machine."""
    return f"{machine['cores']}-core {machine['processor']}, Python {machine['python']}"


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def _memory_gib() -> float | None:
    try:
        pages, size = os.sysconf("SC_PHYS_PAGES"), os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError, AttributeError):
        return None
    return round(pages * size / 2**30, 1)
