"""`Head`: a model's output projection, for whole rows or only for the tokens that matter.

Where the grammar allows a handful of tokens, a draft needs a handful of logits. The projection is
the largest matrix of a small model, so computing only its legal rows saves a good part of a draft
step.

Invariants
- rows computed alone equal the same columns of the whole, up to rounding: that the model's logits
  are a plain product with its output matrix (no soft cap, no scale) is checked by running it once,
  and `Head.of` is None where they are not.

Cost: hidden size × tokens; the check is two short forwards, once per model. Where Triton runs,
`kernels.gather_head` reads the legal rows in place instead of copying them together first.

Sibling: `model.ModelDraft` uses it for sampled places without truncation.

Example::

    head = Head.of(network)
    head.logits(hidden), head.logits(hidden, legal_ids)
"""

from __future__ import annotations

import math
import weakref
from typing import Any

import numpy as np
import torch
from torch import Tensor

from structspec.kernels.backend import loop_backend
from structspec.kernels.gather_head import gather_head
from structspec.packed import Mask

__all__ = ["Head"]

_heads: weakref.WeakKeyDictionary[Any, Head | None] = weakref.WeakKeyDictionary()


class Head:
    """See the module. Keeps no reference to the model, only to its output layer."""

    def __init__(self, layer: torch.nn.Linear) -> None:
        self._layer = layer

    @classmethod
    def of(cls, network: Any) -> Head | None:
        """The head of a transformers model, None if its logits are anything but a product."""
        if network not in _heads:
            _heads[network] = cls._checked(network)
        return _heads[network]

    @classmethod
    def _checked(cls, network: Any) -> Head | None:
        layer = network.get_output_embeddings()
        body = network.base_model
        if not isinstance(layer, torch.nn.Linear) or body is network:
            return None
        device = network.get_input_embeddings().weight.device
        # several tokens: a padding token may have no embedding, and logits of nothing but zeros
        ids = torch.arange(4, device=device)[None] % layer.out_features
        with torch.inference_mode():
            states = body(input_ids=ids, use_cache=False).last_hidden_state
            expected = network(input_ids=ids, use_cache=False).logits
            found = layer(states)
        slack = 1e-3 * float(expected.abs().max())
        if found.shape != expected.shape or not math.isfinite(slack):
            return None  # NaN is for whoever samples to report
        return cls(layer) if torch.allclose(found, expected, rtol=0.0, atol=slack) else None

    @torch.inference_mode()
    def logits(self, states: Tensor, ids: Tensor | None = None, mask: Mask | None = None) -> Tensor:
        """Logits [N, V] of states [N, D], or [N, len(ids)] for some ids; float32 or float64.

        `mask`: the same ids as a packed row, for kernels that read it.
        """
        if ids is None:
            out = self._layer(states)
        elif mask is not None and loop_backend(states) == "triton":
            words = torch.from_numpy(np.array(mask).view(np.int32))[None].to(states.device)
            shared = torch.zeros(len(states), dtype=torch.int32, device=states.device)
            layer = self._layer
            found = gather_head(
                states.contiguous(), layer.weight, words, mask_rows=shared, bias=layer.bias
            )
            out = found[:, ids]
        else:
            bias = None if self._layer.bias is None else self._layer.bias[ids]
            out = torch.nn.functional.linear(states, self._layer.weight[ids], bias)
        return out if out.dtype == torch.float64 else out.float()
