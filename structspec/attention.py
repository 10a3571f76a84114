"""Grouped attention on the CPU without copies of keys and values.

Owns one attention function of transformers' registry, `NAME`. Where several query heads share a
key head, transformers copies keys and values once per query head whenever a mask is given, because
CUDA's fast kernels take either a mask or groups. torch's kernel for the CPU takes both, and the
copies are most of the attention's time when a few tokens are verified behind a long text.

Invariant: the function's result is that of transformers' `sdpa` up to rounding; it goes its own way
only on the CPU, for shared key heads with a mask, and calls transformers' function otherwise.

Example::

    share_key_heads(model.model)         # `structspec.models.load` does it
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

__all__ = ["MASK_FORMS", "NAME", "share_key_heads"]

#: How the function is called in transformers' registry and in a model's configuration.
NAME = "structspec_sdpa"
#: Attention implementations that take a caller's own mask [B, 1, n, S], and how they want it: true
#: where a key is visible, or to be added to the scores.
MASK_FORMS = {"sdpa": "visible", NAME: "visible", "eager": "added"}


def _attend(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    **options: Any,
) -> tuple[Tensor, None]:
    """transformers' interface: query [B, heads, n, d], key and value [B, key heads, S, d]."""
    ours = (
        attention_mask is not None
        and query.device.type == "cpu"
        and query.shape[1] != key.shape[1]
        and all(options.get(name) is None for name in ("softcap", "position_bias"))
        and not options.get("output_attentions", False)
    )
    if not ours:
        from transformers.integrations.sdpa_attention import sdpa_attention_forward

        found: tuple[Tensor, None] = sdpa_attention_forward(
            module, query, key, value, attention_mask, dropout, scaling, **options
        )
        return found
    assert attention_mask is not None
    out = torch.nn.functional.scaled_dot_product_attention(
        query,
        key,
        value,
        attn_mask=_added(attention_mask, query.dtype),
        dropout_p=dropout,
        scale=scaling,
        enable_gqa=True,
    )
    return out.transpose(1, 2).contiguous(), None


def _added(mask: Tensor, dtype: torch.dtype) -> Tensor:
    """A mask as it is added to the scores: made once for all layers, and kept with the mask."""
    if mask.dtype != torch.bool:
        return mask
    known: Tensor | None = getattr(mask, "_structspec_added", None)
    if known is None or known.dtype != dtype:
        known = torch.zeros(mask.shape, dtype=dtype).masked_fill_(~mask, float("-inf"))
        mask._structspec_added = known  # type: ignore[attr-defined]
    return known


def share_key_heads(network: Any) -> bool:
    """Let a transformers model on the CPU attend by `NAME`; says whether it does now.

    Nothing happens to models that attend otherwise than by `sdpa`, have a key head for each query
    head, or are on another device.
    """
    config = network.config
    if config._attn_implementation == NAME:
        return True
    heads = getattr(config, "num_attention_heads", None)
    key_heads = getattr(config, "num_key_value_heads", None)
    parameter = next(network.parameters(), None)
    fits = (
        config._attn_implementation == "sdpa"
        and None not in (heads, key_heads)
        and heads != key_heads
        and parameter is not None
        and parameter.device.type == "cpu"
        and hasattr(network, "set_attn_implementation")
    )
    if not fits:
        return False
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.masking_utils import sdpa_mask

    AttentionInterface.register(NAME, _attend)
    AttentionMaskInterface.register(NAME, sdpa_mask)
    network.set_attn_implementation(NAME)
    return bool(config._attn_implementation == NAME)
