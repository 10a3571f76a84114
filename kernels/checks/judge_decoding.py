"""Judging the decoding loop on a device: verification by kernels, drafts in a captured graph.

Needs transformers and numba; without them the check is left out.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from structspec.kernels.backend import ENVIRONMENT

__all__ = ["judge_decoding"]


def judge_decoding(backend: str, device: torch.device) -> list[str]:
    """Texts and drafts of a tiny random model on `device` against the torch kernels on the host."""
    from structspec.decoding.loop import decode_many
    from structspec.decoding.progress import Job
    from structspec.drafting import ModelDraft
    from structspec.forward.warp import Sampling

    here, there, constraint = _models(device)
    complaints: list[str] = []
    runs = [("block", 1)] if device.type == "cpu" else [("block", 1), ("token", 1), ("layered", 3)]
    settings = (Sampling(temperature=0.8), Sampling(temperature=0.0), Sampling(top_p=0.9))
    for verifier, count in runs:
        found = []
        for model, name in ((here, "torch"), (there, backend)):
            # requests of different lengths and settings, with drafts from the model itself
            jobs = [
                Job([1, 2, 3, 4][i:], constraint, sampling, max_tokens=12, seed=3, request=i)
                for i, sampling in enumerate(settings[: 1 if device.type == "cpu" else 3])
            ]
            draft = ModelDraft(model=model, length=3, on_device=False)
            with _named(name):
                outputs = decode_many(
                    model, jobs, draft=draft, verifier=verifier, draft_count=count
                )
            for output in outputs:
                if isinstance(output, Exception):
                    return [*complaints, f"{verifier}, {name}: {type(output).__name__}: {output}"]
            found.append([output.tokens for output in outputs])  # type: ignore[union-attr]
        if found[0] != found[1]:
            complaints.append(f"{verifier}: texts {found[1]}, the host writes {found[0]}")
    return complaints + _drafts(here, there, constraint, backend)


def _drafts(here: Any, there: Any, constraint: Any, backend: str) -> list[str]:
    """Drafts drawn on the device, eager the first time and from the graph the second."""
    from structspec.drafting import ModelDraft, Request
    from structspec.forward.warp import Sampling
    from structspec.verification.randomness import Randomness

    found, captured = [], 0
    for model, name in ((here, "torch"), (there, backend)):
        source = ModelDraft(model=model, length=3, spans=False, adaptive=False, on_device=True)
        request = Request(constraint, [1, 2, 3], Sampling(), Randomness(5), 0, model)
        drafter: Any = source.begin(request)
        drafts = []
        with _named(name):
            for step in range(1 if there.device.type == "cpu" else 3):
                several = drafter.propose_several(constraint.start, [1, 2, 3], 30, step, 2)
                drafts += [draft.tokens for draft in several]
        found.append(drafts)
        captured = drafter.captured
    complaints: list[str] = []
    if found[0] != found[1]:
        complaints.append(f"drafts {found[1]}, the host draws {found[0]}")
    if there.device.type == "cuda" and captured != 3:
        complaints.append(f"{captured} of 3 rounds of drafts came from a CUDA graph")
    return complaints


def _models(device: torch.device) -> tuple[Any, Any, Any]:
    """A tiny random Llama on the host and on the device, and a constraint for it."""
    import transformers

    import structspec
    from structspec.models import Model

    tokens: list[bytes | None] = [bytes([b]) for b in range(256)]
    tokens += [b"ab", b"ba", b'{"', b'": ', None]
    vocab = structspec.Vocabulary(tokens, eos_ids=[len(tokens) - 1])
    constraint = structspec.compile('\\{"a": [ab]{2,4}\\}', syntax="regex").bind(vocab)
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=len(tokens), hidden_size=32, intermediate_size=64, num_hidden_layers=2,
        num_attention_heads=2, num_key_value_heads=1, max_position_embeddings=64,
        eos_token_id=len(tokens) - 1, initializer_range=0.4,
    )  # fmt: skip
    network = transformers.LlamaForCausalLM(config).float().eval()
    here = Model(network, None, name="tiny", vocab=vocab)
    there = Model(copy.deepcopy(network).to(device), None, name="tiny", vocab=vocab)
    return here, there, constraint


@contextmanager
def _named(name: str) -> Iterator[None]:
    """The kernels of the loop, by the environment."""
    before = os.environ.get(ENVIRONMENT)
    os.environ[ENVIRONMENT] = name
    try:
        yield
    finally:
        if before is None:
            del os.environ[ENVIRONMENT]
        else:
            os.environ[ENVIRONMENT] = before
