"""The catalogue names the kernels that there are, with the types that they are called with."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from numba import types

from structspec.machine_code import catalogue, linking
from structspec.machine_code.catalogue import Entry, callees, text_of, types_of

RENEW = "run `make catalogue` and commit structspec/machine_code/catalogue.json"


def test_every_kernel_of_the_catalogue_exists_and_none_that_is_linked_is_left_out() -> None:
    """A renamed kernel would be compiled late, by one process."""
    entries = catalogue.read()
    linked = {entry.kernel for entry in entries if entry.linked is not None}
    for entry in entries:
        if entry.linked is None:
            assert entry.signatures and entry.dispatcher is not None, RENEW
    assert linked == set(linking.defined), RENEW


_CALLED = """
from numba.core.dispatcher import Dispatcher
from structspec.bench.catalogue import modules
from structspec.machine_code import catalogue
from structspec.warmup import use_every_kernel
for _ in use_every_kernel():
    pass
known = {entry.kernel: entry.signatures for entry in catalogue.read()}
for module in modules():
    for name, value in vars(module).items():
        if isinstance(value, Dispatcher) and value.py_func.__module__ == module.__name__:
            for signature in value.overloads:
                text = catalogue.text_of(signature)
                if text is not None and text not in known.get(f"{module.__name__}:{name}", ()):
                    print(module.__name__, name, text)
"""


def test_every_signature_that_is_called_is_in_the_catalogue() -> None:
    """Kernels whose arguments changed would be compiled late, by one process."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    found = subprocess.run(
        [sys.executable, "-c", _CALLED], env=environment, capture_output=True, text=True, check=True
    )
    assert not found.stdout, RENEW


@pytest.mark.parametrize(
    "signature",
    [
        (types.int64, types.boolean, types.float64),
        (types.int32[::1], types.Array(types.uint8, 2, "C")),
        (types.Array(types.uint8, 1, "C", readonly=True),),
        (),
    ],
)
def test_types_are_read_as_they_are_written(signature: tuple[object, ...]) -> None:
    text = text_of(signature)
    assert text is not None and types_of(text) == signature


def test_types_that_the_file_has_no_word_for_are_left_out() -> None:
    assert text_of((types.literal(3),)) is None
    assert text_of((types.Array(types.int32, 1, "A"),)) is None


def test_callees_are_found_by_name() -> None:
    entries = [
        Entry("structspec.machine_code.linking:address", ("int64[:]",), 0.1),
        Entry("structspec.automata.pushdown:begin", ("int64[:], int64, int64",), 0.1),
        Entry("structspec.automata.pushdown:gone", ("int64",), 0.1),
    ]
    assert callees(entries) == {
        "structspec.machine_code.linking:address": set(),
        "structspec.automata.pushdown:begin": {"structspec.machine_code.linking:address"},
        "structspec.automata.pushdown:gone": set(),
    }


def test_a_catalogue_is_read_as_it_was_written(tmp_path: Path) -> None:
    file = tmp_path / "catalogue.json"
    entries = [Entry("a:b", ("int64", "int32[:], bool"), 0.25), Entry("a:c", (), 3.0)]
    catalogue.write(reversed(entries), file)
    assert catalogue.read(file) == entries
