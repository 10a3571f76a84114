"""The equal kernels of other packages, where they are present; each may fail by its own account.

These packages change their interfaces; whatever a call raises is reported as its reason and
nothing else depends on it.
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

__all__ = ["chain_verify", "softmax"]


def chain_verify(p: Tensor, q: Tensor, tokens: Tensor) -> dict[str, Callable[[], Any]]:
    """Token-wise verification of probabilities p [B, L + 1, V] and q [B, L, V], float32."""

    def flashinfer() -> Any:
        from flashinfer.sampling import chain_speculative_sampling

        return chain_speculative_sampling(q, tokens, p)

    batch, length = tokens.shape
    counts = [length] * batch
    running = torch.full((batch,), length, dtype=torch.int32, device=p.device).cumsum(0)
    flat_p, flat_q = p[:, :length].reshape(-1, p.shape[2]).contiguous(), q.flatten(0, 1)
    bonus = torch.zeros(batch, 1, dtype=torch.int32, device=p.device)
    logits = flat_p.log()

    def vllm() -> Any:
        from vllm.v1.sample.rejection_sampler import rejection_sample

        settings = SimpleNamespace(
            all_greedy=False, all_random=True, generators={}, top_k=None, top_p=None,
            temperature=torch.ones(batch, device=p.device), max_num_logprobs=None,
        )  # fmt: skip
        return rejection_sample(
            tokens.flatten(), counts, length, running.to(torch.int32), flat_q, logits, bonus,
            settings,
        )  # fmt: skip

    return {"flashinfer chain_speculative_sampling": flashinfer, "vLLM rejection_sample": vllm}


def softmax(logits: Tensor) -> dict[str, Callable[[], Any]]:
    """An unmasked softmax of rows."""

    def flashinfer() -> Any:
        from flashinfer.sampling import softmax as run

        return run(logits, temperature=0.8)

    return {"flashinfer softmax (no mask)": flashinfer}
