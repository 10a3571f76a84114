"""Kernels compile for a device that is not there, and verifications take few launches."""

from __future__ import annotations

import os
from importlib import import_module
from pathlib import Path

import pytest
import torch

import structspec.kernels.launch
from structspec.kernels.checks.ahead_of_time import (
    SHARED_LIMIT,
    compile_launch,
    key_of,
    recorded,
    resources,
)
from structspec.kernels.launch import Launch

pytest.importorskip("triton", reason="pip install 'structspec[kernels]'")
pytestmark = pytest.mark.skipif(
    os.environ.get("TRITON_INTERPRET") == "1", reason="interpreted kernels do not compile"
)


def compiled(launches: list[Launch]) -> None:
    for launch in {key_of(one): one for one in launches}.values():
        kernel = compile_launch(launch)
        assert ".target sm_90" in kernel.asm["ptx"]
        assert kernel.metadata.shared <= SHARED_LIMIT
        took = resources(kernel)
        # a thread of 8 warps may use 255 registers; what spills must stay in the first-level cache
        assert took is None or (0 < took.registers <= 255 and took.local <= 1024)


def written() -> set[str]:
    """Every kernel in the sources, by module and name."""
    root = Path(structspec.kernels.launch.__file__).parent
    found = set()
    for path in root.glob("**/*in_triton.py"):
        module = ".".join(["structspec.kernels", *path.relative_to(root).with_suffix("").parts])
        names = vars(import_module(module))
        found |= {
            f"{fn.fn.__module__}.{fn.__name__}" for name, fn in names.items()
            if name.endswith("_kernel")
        }  # fmt: skip
    return found


@pytest.mark.parametrize("shape", [(1, 1), (2, 3), (4, 8)], ids=str)
def test_launches_do_not_depend_on_drafts_or_lengths(shape: tuple[int, int]) -> None:
    seen = recorded(["block_verify", "layered_verify"], vocab=300, drafts=shape[0], length=shape[1])
    assert len(seen["block_verify"]) == 4
    assert len(seen["layered_verify"]) == 7


def test_every_kernel_compiles_for_sm_90() -> None:
    # Small tiles compile in half the time; the full run takes real sizes.
    launches = [one for some in recorded(vocab=1000).values() for one in some]
    names = {f"{one.kernel.fn.__module__}.{one.kernel.__name__}" for one in launches}
    assert names == written() and len(names) >= 18
    compiled(launches)


@pytest.mark.full
def test_sizes_of_one_compile_as_constants_for_sm_90() -> None:
    # Triton makes constants of integers that are 1: the loops over drafts, places and splits
    seen = recorded(vocab=60, batch=1, drafts=1, length=1)
    compiled([one for launches in seen.values() for one in launches])


@pytest.mark.full
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("masked", [True, False], ids=["masked", "free"])
def test_variants_compile_for_sm_90(dtype: torch.dtype, masked: bool) -> None:
    seen = recorded(
        vocab=152_064, dtype=dtype, masked=masked, noise=True, rounds=1, drafts=4, length=8
    )
    compiled([one for launches in seen.values() for one in launches])
