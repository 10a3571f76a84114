"""Kernels compile for a device that is not there, and verifications take few launches."""

from __future__ import annotations

import os

import pytest
import torch

from structspec.kernels.launch import Launch, record

pytest.importorskip("triton", reason="pip install 'structspec[kernels]'")
pytestmark = pytest.mark.skipif(
    os.environ.get("TRITON_INTERPRET") == "1", reason="interpreted kernels do not compile"
)


def recorded(names: list[str] | None = None, **options: object) -> dict[str, list[Launch]]:
    from structspec.kernels.checks.launches import calls

    out = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("structspec.kernels.backend.triton_interpreted", lambda: True)
        for name, call in calls(**options).items():  # type: ignore[arg-type]
            if names is None or name in names:
                with record(dry=True) as launches:
                    call()
                out[name] = launches
    return out


def compiled(launches: list[Launch]) -> None:
    from structspec.kernels.checks.ahead_of_time import SHARED_LIMIT, compile_launch, key_of

    for launch in {key_of(one): one for one in launches}.values():
        kernel = compile_launch(launch)
        assert ".target sm_90" in kernel.asm["ptx"]
        assert kernel.metadata.shared <= SHARED_LIMIT


@pytest.mark.parametrize("shape", [(1, 1), (2, 3), (4, 8)], ids=str)
def test_launches_do_not_depend_on_drafts_or_lengths(shape: tuple[int, int]) -> None:
    seen = recorded(["block_verify", "layered_verify"], vocab=300, drafts=shape[0], length=shape[1])
    assert len(seen["block_verify"]) == 4
    assert len(seen["layered_verify"]) == 7


def test_every_kernel_compiles_for_sm_90() -> None:
    # Small tiles compile in half the time; the full run takes real sizes.
    launches = [one for some in recorded(vocab=1000).values() for one in some]
    assert len({one.kernel.__name__ for one in launches}) >= 15
    compiled(launches)


@pytest.mark.full
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("masked", [True, False], ids=["masked", "free"])
def test_variants_compile_for_sm_90(dtype: torch.dtype, masked: bool) -> None:
    seen = recorded(
        vocab=152_064, dtype=dtype, masked=masked, noise=True, rounds=1, drafts=4, length=8
    )
    compiled([one for launches in seen.values() for one in launches])
