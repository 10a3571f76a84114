"""Which kernels run, what they refuse, and that the uniforms are the host's."""

from __future__ import annotations

import builtins
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from structspec.errors import KernelError, MissingExtra, StructspecError
from structspec.kernels.backend import ENVIRONMENT, choose
from structspec.kernels.block_verify import block_verify
from structspec.kernels.layered_verify import layered_verify
from structspec.kernels.logit_rows import LogitRows
from structspec.kernels.masked_softmax_stats import masked_softmax_stats
from structspec.kernels.philox import Noise
from structspec.kernels.row_edges import row_edges
from structspec.verification.randomness import Purpose, Randomness

ROOT = Path(__file__).resolve().parents[2]
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
CPU = torch.device("cpu")


def test_torch_off_cuda_and_the_environment_overrides(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(ENVIRONMENT, raising=False)
    assert choose(CPU) == "torch"
    monkeypatch.setenv(ENVIRONMENT, "reference")
    assert choose(CPU) == "reference" and choose(CPU, "torch") == "torch"
    assert masked_softmax_stats(LogitRows(torch.zeros(1, 4))).packed.dtype == torch.float64
    monkeypatch.setenv(ENVIRONMENT, "cuda")
    with pytest.raises(KernelError, match="reference, torch, triton"):
        choose(CPU)


def test_triton_is_preferred_on_cuda_if_it_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(ENVIRONMENT, raising=False)
    for installed, chosen in ((True, "triton"), (False, "torch")):
        monkeypatch.setattr("structspec.kernels.backend.triton_installed", lambda i=installed: i)
        assert choose(torch.device("cuda")) == chosen


def test_missing_triton_names_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *args: Any, **kwargs: Any) -> Any:
        if name.split(".")[0] == "triton":
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(MissingExtra, match=r"structspec\[kernels\]"):
        choose(CPU, "triton")


@pytest.mark.skipif(INTERPRETED, reason="the interpreter runs on CPU tensors")
def test_triton_on_cpu_tensors_is_refused() -> None:
    pytest.importorskip("triton", reason="pip install 'structspec[kernels]'")
    with pytest.raises(KernelError, match="TRITON_INTERPRET=1"):
        masked_softmax_stats(LogitRows(torch.zeros(1, 4)), backend="triton")


def test_everything_but_the_triton_modules_imports_without_triton() -> None:
    code = (
        "import sys; sys.modules['triton'] = None\n"
        "import structspec.kernels.block_verify, structspec.kernels.layered_verify\n"
        "import structspec.kernels.draft_step, structspec.kernels.gather_head\n"
        "import structspec.kernels.automaton_walk.pool, structspec.kernels.row_edges\n"
        "assert 'numba' not in sys.modules\n"
    )
    environment = dict(os.environ, PYTHONPATH=os.pathsep.join([str(ROOT), *sys.path]))
    subprocess.run([sys.executable, "-c", code], env=environment, check=True)


@pytest.mark.parametrize(
    "make",
    [
        lambda: LogitRows(torch.zeros(4)),
        lambda: LogitRows(torch.zeros(2, 4, dtype=torch.int32)),
        lambda: LogitRows(torch.zeros(4, 2).T),
        lambda: LogitRows(torch.zeros(2, 4), torch.zeros(3, 1, dtype=torch.int32)),
        lambda: LogitRows(torch.zeros(2, 4), torch.zeros(2, 1, dtype=torch.int64)),
        lambda: LogitRows(torch.zeros(2, 4), mask_rows=torch.zeros(2, dtype=torch.int32)),
        lambda: LogitRows(torch.zeros(2, 4), temperature=-1.0),
        lambda: LogitRows(torch.zeros(2, 4), temperature=0.0),
        lambda: LogitRows(torch.zeros(2, 4), temperature=torch.ones(3)),
        lambda: LogitRows(torch.zeros(2, 4), edge=torch.zeros(2)),
        lambda: LogitRows(torch.zeros(2, 4), torch.zeros(2, 1, dtype=torch.int32, device="meta")),
        lambda: LogitRows(torch.zeros(2, 0)),
        lambda: row_edges(LogitRows(torch.zeros(2, 4)), top_k=0),
        lambda: row_edges(LogitRows(torch.zeros(2, 4)), top_p=1.5),
        lambda: Noise(-1, torch.zeros(1, dtype=torch.int32), torch.zeros(1, dtype=torch.int32)),
        lambda: Noise(0, torch.zeros(1), torch.zeros(1, dtype=torch.int32)),
    ],
)
def test_what_does_not_fit_is_a_kernel_error(make: Any) -> None:
    with pytest.raises(KernelError) as caught:
        make()
    assert isinstance(caught.value, StructspecError) and isinstance(caught.value, ValueError)


def integers(*shape: int) -> torch.Tensor:
    return torch.zeros(shape, dtype=torch.int32)


@pytest.mark.parametrize(
    "arguments",
    [
        {"tokens": torch.zeros(1, 2, dtype=torch.int64)},
        {"lengths": integers(2)},
        {"uniforms": torch.zeros(1, 2)},
        {"uniforms": None},
        {"noise": Noise(0, integers(1), integers(1))},
        {"target": LogitRows(torch.zeros(4, 5))},
        {"draft": LogitRows(torch.zeros(2, 6))},
        {"target_rows": integers(1, 2)},
        {"draft": None, "draft_rows": integers(1, 2)},
        {"uniforms": torch.zeros(1, 3, device="meta")},
        {"uniforms": torch.zeros(1, 3, dtype=torch.float16)},
        {"tokens": integers(1, 2).to("meta")},
        {"tokens": integers(1, 4)[:, ::2]},
        {"draft_rows": integers(1, 2).to("meta")},
        {"eos_ids": torch.zeros(1, dtype=torch.int64)},
        {"eos_ids": integers(1, 1)},
        {"eos_ids": integers(1).to("meta")},
    ],
    ids=lambda a: ",".join(a),
)
def test_block_verify_names_what_does_not_fit(backend: str, arguments: dict[str, Any]) -> None:
    given: dict[str, Any] = {
        "target": LogitRows(torch.zeros(3, 5)), "draft": LogitRows(torch.zeros(2, 5)),
        "tokens": integers(1, 2), "lengths": integers(1), "uniforms": torch.zeros(1, 3),
        **arguments,
    }  # fmt: skip
    positional = [given.pop(n) for n in ("target", "draft", "tokens", "lengths")]
    with pytest.raises(KernelError):
        block_verify(*positional, **given, backend=backend)


def test_layered_verify_names_what_does_not_fit(backend: str) -> None:
    rows, tokens, lengths = LogitRows(torch.zeros(4, 5)), integers(1, 2, 1), integers(1, 2)
    u = torch.zeros(1, 2)
    with pytest.raises(KernelError, match="rounds=3"):
        layered_verify(rows, None, tokens, lengths, uniforms=u, rounds=3, backend=backend)
    with pytest.raises(KernelError, match=r"1\.\.32 drafts"):
        layered_verify(rows, None, integers(1, 33, 1), integers(1, 33), uniforms=u, backend=backend)


def test_the_walk_and_the_head_name_what_does_not_fit(backend: str) -> None:
    from structspec.kernels.checks.launches import small_automaton
    from structspec.kernels.draft_step import DraftStep
    from structspec.kernels.gather_head import gather_head

    automaton, one = small_automaton(40), integers(1)
    hidden, weight = torch.zeros(1, 4), torch.zeros(8, 4)
    unmasked = DraftStep(None, 1, 1, vocab=8, device="cpu", backend=backend)
    masked = DraftStep(automaton, 1, 1, backend=backend)
    for wrong in (
        lambda: automaton.masks(one.long(), backend=backend),
        lambda: automaton.masks(one[None], backend=backend),
        lambda: automaton.masks(one.to("meta"), backend=backend),
        lambda: automaton.masks(one, integers(2), backend=backend),
        lambda: automaton.masks(one, out=integers(1, 1), backend=backend),
        lambda: automaton.advance(one, integers(2), backend=backend),
        lambda: small_automaton(40).from_table([[1]], [0], [0], [0] * 256, [b"a"], []),
        lambda: gather_head(hidden, weight.double().to(torch.int8), one[None], backend=backend),
        lambda: gather_head(hidden, weight.to("meta"), one[None], backend=backend),
        lambda: gather_head(hidden, weight, integers(2, 1), backend=backend),
        lambda: unmasked(torch.zeros(1, 8, dtype=torch.int32), 0),
        lambda: unmasked(torch.zeros(1, 8), 0, integers(2, 1)),
        lambda: masked(torch.zeros(1, 40), 0, integers(1, 2)),
    ):
        with pytest.raises(KernelError):
            wrong()


def test_float64_logits_are_refused_by_triton_only(backend: str) -> None:
    rows = LogitRows(torch.zeros(1, 4, dtype=torch.float64))
    if backend == "triton":
        with pytest.raises(KernelError, match="float64"):
            masked_softmax_stats(rows, backend=backend)
    else:
        assert masked_softmax_stats(rows, backend=backend).packed.dtype == torch.float64


def test_device_uniforms_equal_the_hosts_bit_for_bit() -> None:
    for seed in (0, 7, 2**64 - 1, 0x123456789ABCDEF0):
        requests, steps = [0, 3, 2**31 - 1], [1, 2**31 - 1, 9]
        noise = Noise(
            seed, torch.tensor(requests, dtype=torch.int32), torch.tensor(steps, dtype=torch.int32)
        )
        for purpose in Purpose:
            ours = noise.uniforms(int(purpose), 5, row=2).numpy()
            host = Randomness(seed).uniforms_batch(requests, steps, purpose, 2, 5)
            np.testing.assert_array_equal(ours, host)
