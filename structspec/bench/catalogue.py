"""Which kernels there are to compile, and how long each takes: writes the catalogue of kernels.

    make catalogue
    python -m structspec.bench.catalogue

To be run again when kernels came, went or changed their arguments (a test says so). Everything is
compiled once, in one process and into an empty cache, while every kernel is called; what is noted
is each kernel's own processor time, without the kernels that it copies into itself. It takes a
minute or two.
"""

from __future__ import annotations

import argparse
import os
import pkgutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from importlib import import_module
from types import ModuleType
from typing import Any

from structspec import settings

__all__ = ["kernels_in_use", "main", "modules", "record"]

_CHILD = "from structspec.bench.catalogue import record; record()"
_ROOMS = (
    "structspec.automata",
    "structspec.machine_code",
    "structspec.masks",
    "structspec.vocab",
)


def kernels_in_use() -> dict[str, tuple[str, ...]]:
    """All kernels that this process has compiled or read, with their signatures."""
    from numba.core.dispatcher import Dispatcher

    from structspec.machine_code import linking
    from structspec.machine_code.catalogue import text_of
    from structspec.machine_code.kernel import DiskCache

    found: dict[str, tuple[str, ...]] = {}
    for module in modules():
        for name, value in vars(module).items():
            if not isinstance(value, Dispatcher) or value.py_func.__module__ != module.__name__:
                continue
            if not isinstance(getattr(value, "_cache", None), DiskCache):
                continue
            texts = {text_of(signature) for signature in value.overloads}
            if signatures := sorted(text for text in texts if text is not None):
                found[f"{module.__name__}:{name}"] = tuple(signatures)
    return found | dict.fromkeys(linking.defined, ())


def modules() -> Iterator[ModuleType]:
    """The modules that hold kernels, imported."""
    for room in _ROOMS:
        for module in pkgutil.iter_modules(import_module(room).__path__):
            yield import_module(f"{room}.{module.name}")


def record() -> None:
    """Compile everything here and write the catalogue; for the process that `main` starts."""
    from numba.core import event

    from structspec.machine_code import catalogue, linking, ready
    from structspec.warmup import use_every_kernel

    ready.skip()
    seconds: dict[str, float] = {}
    running: list[float] = []  # seconds of what was compiled inside, per compile that is under way

    def enter() -> float:
        running.append(0.0)
        return time.process_time()

    def leave(name: str, began: float) -> None:
        passed = time.process_time() - began
        seconds[name] = seconds.get(name, 0.0) + passed - running.pop()
        if running:
            running[-1] += passed

    class Listener(event.Listener):
        begun: list[float] = []  # noqa: RUF012

        def on_start(self, event: Any) -> None:
            self.begun.append(enter())

        def on_end(self, event: Any) -> None:
            function = event.data["dispatcher"].py_func
            leave(f"{function.__module__}:{function.__qualname__}", self.begun.pop())

    make = linking.c_function

    def timed(function: Any, signature: Any) -> Any:
        began = enter()
        try:
            return make(function, signature)
        finally:
            leave(f"{function.__module__}:{function.__qualname__}", began)

    linking.c_function = timed
    with event.install_listener("numba:compile", Listener()):
        for step, passed in use_every_kernel():
            print(f"{step}: {passed:.1f} s", flush=True)
    found = kernels_in_use()
    catalogue.write(
        catalogue.Entry(kernel, signatures, round(seconds.get(kernel, 0.0), 2))
        for kernel, signatures in found.items()
    )
    print(f"{len(found)} kernels, {sum(seconds.values()):.1f} s")


def main(arguments: list[str] | None = None) -> int:
    """Write the catalogue; see the module."""
    argparse.ArgumentParser(description=__doc__.splitlines()[0]).parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "NUMBA_CACHE_DIR": folder, settings.PROCESSES_VARIABLE: "1"}
        return subprocess.run([sys.executable, "-c", _CHILD], env=environment).returncode


if __name__ == "__main__":
    sys.exit(main())
