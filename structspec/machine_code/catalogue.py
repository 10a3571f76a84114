"""Which kernels there are, with which types they are called, and how long they take to compile.

`catalogue.json` is written by `python -m structspec.bench.catalogue` from a run that uses every
kernel (`warmup`); a test holds it to the kernels. It only says what can be compiled ahead: a
kernel or a signature that is missing here is compiled when it is first called.

Types are written `int64`, `int32[:]`, `int32[:,:]` (contiguous), with `!` behind them if read-only.
Times are seconds of one core, worth comparing only with each other.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from importlib import import_module
from importlib.resources import files
from pathlib import Path
from typing import Any

from numba import types
from numba.core.dispatcher import Dispatcher
from numba.core.registry import cpu_target

from structspec.machine_code import linking
from structspec.machine_code.kernel import DiskCache, c_function

__all__ = ["FILE", "Entry", "callees", "missing", "read", "text_of", "types_of", "write"]

FILE = Path(__file__).with_name("catalogue.json")


@dataclass(frozen=True)
class Entry:
    """A kernel: `module:name`, the signatures to compile (none if it is linked), and seconds."""

    kernel: str
    signatures: tuple[str, ...]
    seconds: float

    def load(self) -> None:
        """Import its module, if there is one."""
        with contextlib.suppress(ImportError):
            import_module(self.kernel.partition(":")[0])

    @property
    def linked(self) -> Any:
        """The `linking.Linked` of a kernel that is called by symbol, else None."""
        self.load()
        return linking.defined.get(self.kernel)

    @property
    def dispatcher(self) -> Any:
        """The compiled function of any other kernel; raises LookupError if there is none."""
        module, _, name = self.kernel.partition(":")
        try:
            found = getattr(import_module(module), name)
        except (ImportError, AttributeError) as error:
            raise LookupError(f"there is no kernel {self.kernel}") from error
        if not isinstance(found, Dispatcher):
            raise LookupError(f"{self.kernel} is not compiled")
        return found

    def on_disk(self) -> bool:
        """Whether all machine code is there; True for a kernel that does not exist any more."""
        codegen = cpu_target.target_context.codegen()
        linked = self.linked
        if linked is not None:
            return DiskCache(linked.function).holds(linked.signature, codegen)
        try:
            cache = self.dispatcher._cache
        except LookupError:
            return True
        return all(cache.holds(types_of(s), codegen) for s in self.signatures)

    def compile(self) -> None:
        """Make the machine code, or read it from the disk."""
        linked = self.linked
        if linked is not None:
            c_function(linked.function, linked.signature)
            return
        dispatcher = self.dispatcher
        for signature in self.signatures:
            dispatcher.compile(types_of(signature))


def read(path: Path | None = None) -> list[Entry]:
    """All entries; of the file that comes along unless another is named."""
    # A package in an archive has no file of its own.
    file = files("structspec.machine_code") / FILE.name if path is None else path
    rows = json.loads(file.read_text(encoding="utf-8"))
    return [Entry(row["kernel"], tuple(row["signatures"]), row["seconds"]) for row in rows]


def write(entries: Iterable[Entry], path: Path = FILE) -> None:
    """Replace the file, an entry a line."""
    rows = [
        json.dumps({"kernel": e.kernel, "signatures": e.signatures, "seconds": e.seconds})
        for e in sorted(entries, key=lambda entry: entry.kernel)
    ]
    path.write_text("[\n" + ",\n".join(rows) + "\n]\n", encoding="utf-8")


def missing(entries: Iterable[Entry]) -> list[Entry]:
    """The entries whose machine code is not on disk."""
    return [entry for entry in entries if not entry.on_disk()]


def callees(entries: Iterable[Entry]) -> dict[str, set[str]]:
    """The kernels that each kernel copies into itself: they are compiled before it."""
    entries = list(entries)
    functions = {}
    for entry in entries:
        linked = entry.linked
        try:
            functions[entry.kernel] = linked.function if linked else entry.dispatcher.py_func
        except LookupError:
            continue
    names = {id(function): kernel for kernel, function in functions.items()}
    found: dict[str, set[str]] = {entry.kernel: set() for entry in entries}
    for kernel, function in functions.items():
        for name in function.__code__.co_names:
            called = function.__globals__.get(name)
            if isinstance(called, Dispatcher) and id(called.py_func) in names:
                found[kernel].add(names[id(called.py_func)])
    return found


def types_of(text: str) -> tuple[Any, ...]:
    """The argument types of a signature such as "int32[:], int64"."""
    return tuple(_type(part) for part in text.split(", ")) if text else ()


def _type(text: str) -> Any:
    writable = not text.endswith("!")
    scalar, bracket, dimensions = text.rstrip("!").partition("[")
    element = types.boolean if scalar == "bool" else getattr(types, scalar)
    if not bracket:
        return element
    return types.Array(element, dimensions.count(":"), "C", readonly=not writable)


def text_of(signature: Iterable[Any]) -> str | None:
    """How argument types are written; None if they hold one that the file has no word for."""
    parts = []
    for kind in signature:
        if isinstance(kind, types.Array) and kind.layout == "C" and kind.aligned:
            axes = ",".join(":" * kind.ndim)
            parts.append(f"{kind.dtype}[{axes}]{'' if kind.mutable else '!'}")
        elif isinstance(kind, types.Literal):  # of a callee: compiled with its callers
            return None
        elif isinstance(kind, types.Integer | types.Boolean | types.Float):
            parts.append(str(kind))
        else:
            return None
    return ", ".join(parts)
