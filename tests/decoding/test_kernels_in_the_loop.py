"""The decoding loop through the kernels: the tokens, laws and errors of its own float64 path."""

from __future__ import annotations

import copy
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from structspec.decoding import device
from structspec.decoding.loop import decode, decode_many
from structspec.decoding.progress import Job
from structspec.drafting import LookupDraft, ModelDraft
from structspec.errors import KernelError, ModelError
from structspec.forward.warp import Sampling
from structspec.kernels.backend import ENVIRONMENT, loop_backend
from structspec.kernels.block_verify import block_verify
from structspec.kernels.checks.interpreter import patch_once
from structspec.models import Model
from structspec.vocab import Vocabulary

ROOT = Path(__file__).resolve().parents[2]
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
if INTERPRETED:
    patch_once()
Bind = Callable[[str, Vocabulary], Any]
PATTERN = r'\{"name": "[a-z ]{1,12}", "and": (true|false)\}'


@pytest.fixture(scope="module")
def single(byte_model: Model) -> Model:
    """The byte model in float32, which Triton takes."""
    network = copy.deepcopy(byte_model.model).float()
    return Model(network, None, name="single", vocab=byte_model.vocab)


@pytest.fixture(scope="module")
def draft(single: Model) -> ModelDraft:
    """A draft that agrees with the model mostly."""
    network = copy.deepcopy(single.model)
    noise = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for weight in network.parameters():
            weight += 0.05 * torch.randn(weight.shape, generator=noise)
    model = Model(network, None, name="disturbed", vocab=single.vocab)
    return ModelDraft(model=model, length=3)


@pytest.fixture(scope="module")
def constraint(single: Model, bind: Bind) -> Any:
    return bind(PATTERN, single.vocab)


def texts(
    model: Model, constraint: Any, draft: Any, *, count: int = 1, tokens: int = 40, **options: Any
) -> list[Any]:
    """Two requests of different lengths and settings, together."""
    prompt = model.vocab.encode(b"and the hand")
    settings = options.pop("samplings", (Sampling(), Sampling(temperature=0.7)))
    jobs = [
        Job(prompt[i:], constraint, sampling, max_tokens=tokens, seed=5, request=i, logprobs=True)
        for i, sampling in enumerate(settings)
    ]
    outputs = decode_many(model, jobs, draft=draft, draft_count=count, **options)
    for output in outputs:
        if isinstance(output, Exception):
            raise output
        assert re.fullmatch(PATTERN, output.text.decode())
    return outputs


def short_texts(
    model: Model, constraint: Any, draft: ModelDraft, verifier: str, count: int
) -> list[tuple[Any, int]]:
    """Tokens and how many of them were drafted, of two requests of different prompts."""
    prompt = model.vocab.encode(b"and the hand")
    jobs = [
        Job(prompt[i:], constraint, Sampling(temperature=1.0 - i / 4), max_tokens=6, seed=2,
            request=i)
        for i in range(2)
    ]  # fmt: skip
    outputs = decode_many(model, jobs, draft=draft, verifier=verifier, draft_count=count)
    for output in outputs:
        if isinstance(output, Exception):
            raise output
    return [(output.tokens, output.stats.accepted) for output in outputs]  # type: ignore[union-attr]


#: (verifier, drafts): what a run compares.
RUNS = [("block", 1), ("token", 1), ("layered", 2)]
SETTINGS = {
    "plain": (Sampling(), Sampling(temperature=0.7)),
    "greedy beside sampled": (Sampling(temperature=0.0), Sampling()),
    "cut": (Sampling(top_k=5, top_p=0.9), Sampling(min_p=0.05, temperature=1.3)),
    "history": (Sampling(repetition_penalty=1.3, logit_bias={97: 1.0}), Sampling()),
}


@pytest.fixture(scope="module")
def half(single: Model) -> Model:
    """The byte model in bfloat16."""
    network = copy.deepcopy(single.model).to(torch.bfloat16)
    return Model(network, None, name="half", vocab=single.vocab)


@pytest.mark.skipif(INTERPRETED, reason="the ordinary run compares with the loop's own path")
@pytest.mark.parametrize("settings", list(SETTINGS))
def test_half_precision_logits_reach_the_kernels_as_they_are(
    half: Model,
    constraint: Any,
    draft: ModelDraft,
    monkeypatch: pytest.MonkeyPatch,
    settings: str,
) -> None:
    """Widened in registers, they give the tokens of logits that are widened first."""
    own = texts(half, constraint, draft, samplings=SETTINGS[settings])
    seen: set[torch.dtype] = set()

    def verify(rows: Any, *arguments: Any, **options: Any) -> Any:
        seen.add(rows.logits.dtype)
        return block_verify(rows, *arguments, **options)

    monkeypatch.setattr(device, "block_verify", verify)
    monkeypatch.setenv(ENVIRONMENT, "torch")
    found = texts(half, constraint, draft, samplings=SETTINGS[settings])
    # a bias or a penalty is added in float32, and the rows of one call have one dtype
    if settings == "history":
        assert torch.float32 in seen
        seen.discard(torch.float32)  # the others' are alone when the first has ended
    assert seen <= {torch.bfloat16}
    assert seen or settings == "history"
    for left, right in zip(found, own, strict=True):
        assert (left.tokens, left.finish_reason) == (right.tokens, right.finish_reason)
        assert left.logprobs == pytest.approx(right.logprobs, abs=1e-4)


@pytest.mark.skipif(INTERPRETED, reason="the ordinary run compares with the loop's own path")
@pytest.mark.parametrize(
    ("settings", "kernels"), [*((name, "torch") for name in SETTINGS), ("plain", "reference")]
)
@pytest.mark.parametrize("run", RUNS[:2], ids=str)
def test_kernels_write_the_tokens_of_the_loops_own_path(
    single: Model, constraint: Any, draft: ModelDraft, monkeypatch: pytest.MonkeyPatch,
    run: tuple[str, int], settings: str, kernels: str,
) -> None:  # fmt: skip
    own = texts(single, constraint, draft, verifier=run[0], samplings=SETTINGS[settings])
    monkeypatch.setenv(ENVIRONMENT, kernels)
    found = texts(single, constraint, draft, verifier=run[0], samplings=SETTINGS[settings])
    for left, right in zip(found, own, strict=True):
        assert (left.tokens, left.finish_reason) == (right.tokens, right.finish_reason)
        assert left.stats.accepted == right.stats.accepted > 0
        assert left.logprobs == pytest.approx(right.logprobs, abs=1e-4)


@pytest.mark.skipif(INTERPRETED, reason="torch and reference are the ordinary run's")
def test_layered_verification_is_one_law_in_two_kernels(
    single: Model, bind: Bind, draft: ModelDraft, monkeypatch: pytest.MonkeyPatch
) -> None:
    short = bind("[ab]{2,3}c?", single.vocab)
    found = []
    for kernels in ("torch", "reference"):
        monkeypatch.setenv(ENVIRONMENT, kernels)
        found.append(short_texts(single, short, draft, "layered", 3))
    assert found[0] == found[1]
    assert sum(accepted for _, accepted in found[0]) > 0


@pytest.mark.skipif(not INTERPRETED, reason="runs in a process of its own, see below")
@pytest.mark.parametrize("run", [*RUNS[:2], pytest.param(RUNS[2], marks=pytest.mark.full)], ids=str)
def test_triton_writes_what_the_torch_kernels_write(
    single: Model, draft: ModelDraft, bind: Bind, monkeypatch: pytest.MonkeyPatch,
    run: tuple[str, int],
) -> None:  # fmt: skip
    short = bind("[ab]{2,3}c?", single.vocab)
    found = []
    for kernels in ("torch", "triton"):
        monkeypatch.setenv(ENVIRONMENT, kernels)
        found.append(short_texts(single, short, draft, *run))
    assert found[0] == found[1]


@pytest.mark.skipif(not INTERPRETED, reason="runs in a process of its own, see below")
def test_the_sparse_head_reads_the_legal_rows_only(
    single: Model, draft: ModelDraft, bind: Bind, monkeypatch: pytest.MonkeyPatch
) -> None:
    from structspec.drafting import output_head

    monkeypatch.setenv(ENVIRONMENT, "triton")
    shapes = []
    real = output_head.gather_head

    def seen(hidden: Any, weight: Any, masks: Any, **options: Any) -> Any:
        shapes.append((tuple(hidden.shape), tuple(masks.shape)))
        return real(hidden, weight, masks, **options)

    monkeypatch.setattr(output_head, "gather_head", seen)
    short = bind("[ab]{2}", single.vocab)
    output = decode(single, [1, 2], short, draft=draft, max_tokens=4, seed=2)
    assert re.fullmatch("[ab]{2}", output.text.decode()) and shapes
    layer = output_head.Head.of(draft.model.model)
    assert layer is not None
    states, mask = torch.randn(1, 16), short.mask(short.start)
    ids = torch.tensor(short.allowed(short.start))
    torch.testing.assert_close(layer.logits(states, ids, mask), layer.logits(states, ids))


@pytest.mark.skipif(INTERPRETED, reason="this is the interpreted run")
@pytest.mark.parametrize(
    "marker", ["not full", pytest.param("full", marks=pytest.mark.full)], ids=["short", "full"]
)
def test_the_loop_runs_on_interpreted_triton(marker: str) -> None:
    pytest.importorskip("triton", reason="pip install 'structspec[kernels]'")
    environment = dict(os.environ, TRITON_INTERPRET="1", OMP_NUM_THREADS="1")
    environment["PYTHONPATH"] = os.pathsep.join([str(ROOT), *sys.path])
    files = [str(Path(__file__)), str(Path(__file__).with_name("test_device_drafts.py"))]
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-m", marker,
               *files]  # fmt: skip
    result = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout[-8000:] + result.stderr[-4000:]
    assert " passed" in result.stdout and " failed" not in result.stdout


def test_the_kernels_are_chosen_by_device_and_name(
    single: Model, constraint: Any, draft: ModelDraft, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Cuda:
        device, dtype = torch.device("cuda"), torch.float32

    monkeypatch.delenv(ENVIRONMENT, raising=False)
    assert loop_backend(torch.empty(0)) is None
    monkeypatch.setattr("structspec.kernels.backend.triton_installed", lambda: True)
    assert loop_backend(Cuda) == "triton"  # type: ignore[arg-type]
    monkeypatch.setattr("structspec.kernels.backend.triton_installed", lambda: False)
    assert loop_backend(Cuda) == "torch"  # type: ignore[arg-type]
    Cuda.dtype = torch.float64
    assert loop_backend(Cuda) is None  # type: ignore[arg-type]
    monkeypatch.setenv(ENVIRONMENT, "cuda")
    with pytest.raises(KernelError, match="reference, torch, triton"):
        decode(single, [1, 2], constraint, draft=draft, max_tokens=40)


@pytest.mark.skipif(INTERPRETED, reason="no kernel of Triton takes part")
def test_an_error_reaches_the_request_that_caused_it(
    single: Model, constraint: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(ENVIRONMENT, "torch")
    calls = []
    real = device.processed

    def broken(logits: Any, histories: Any, sampling: Sampling) -> Any:
        calls.append(sampling)
        scores = real(logits, histories, sampling)
        if sampling.temperature == 0.5:
            scores = scores.clone()
            scores[0] = torch.nan
        return scores

    monkeypatch.setattr(device, "processed", broken)
    jobs = [
        Job([1, 2], constraint, Sampling(temperature=t, logit_bias={3: 0.1}), max_tokens=40, seed=1)
        for t in (1.0, 0.5)
    ]
    for verifier in ("block", "token"):
        fine, failed = decode_many(single, jobs, draft=LookupDraft(), verifier=verifier)
        assert not isinstance(fine, Exception) and re.fullmatch(PATTERN, fine.text.decode())
        assert isinstance(failed, ModelError) and "NaN" in str(failed)
        assert failed.partial_output is not None  # type: ignore[attr-defined]
    assert calls
