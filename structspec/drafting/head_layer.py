"""The one layer of an EAGLE head, and the cache of keys and values that it attends to.

Parts are named as in the published files, so that their tensors fit by name. A layer is *wide* in
EAGLE-3: attention reads the embedding and the feature side by side, each behind its own norm.

Invariants
- a cache is the keys and values of one text, cut by slicing; a branch of it appends for itself;
- attention of one query gives what the general way gives, up to rounding.

Cost: one attention and one MLP of the target's sizes; a place costs two rows of the cache.

Sibling: `eagle_head`, which runs the layer for several texts at once.

Example::

    layer = Layer(model.model.config, wide=True)
    q, keys, values = layer.self_attn.project(read, rotary)
    layer.self_attn.attend(q, *cache.append(keys, values), visible)
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from structspec.linear import product

__all__ = ["HeadCache", "Layer", "Norm"]


class HeadCache:
    """Keys and values of one sequence, [heads, T, width]; cut by slicing."""

    def __init__(self) -> None:
        self.keys: Tensor | None = None
        self.values: Tensor | None = None

    @property
    def length(self) -> int:
        """Cached positions."""
        return 0 if self.keys is None else int(self.keys.shape[1])

    def append(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Add places and return all of them."""
        if self.keys is None or self.values is None:
            self.keys, self.values = keys, values
        else:
            self.keys = torch.cat([self.keys, keys], dim=1)
            self.values = torch.cat([self.values, values], dim=1)
        return self.keys, self.values

    def branch(self) -> HeadCache:
        """A cache that starts as this one; appending to it leaves this one alone."""
        twin = HeadCache()
        twin.keys, twin.values = self.keys, self.values
        return twin


class Norm(nn.Module):
    """The root-mean-square norm of Llama, computed in at least 32 bits."""

    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        """[..., size] to the same shape and dtype."""
        wide = x.float() if x.dtype != torch.float64 else x
        scaled = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + self.eps)
        return self.weight * scaled.to(x.dtype)


class _Attention(nn.Module):
    def __init__(self, width: int, size: int, heads: int, groups: int, head_dim: int) -> None:
        super().__init__()
        self.heads, self.groups, self.head_dim = heads, groups, head_dim
        self.q_proj = nn.Linear(width, heads * head_dim, bias=False)
        self.k_proj = nn.Linear(width, groups * head_dim, bias=False)
        self.v_proj = nn.Linear(width, groups * head_dim, bias=False)
        self.o_proj = nn.Linear(heads * head_dim, size, bias=False)

    def project(self, x: Tensor, rotary: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor, Tensor]:
        """Queries [heads, T, width], keys and values [groups, T, width]."""

        def split(y: Tensor, count: int) -> Tensor:
            return y.view(len(x), count, self.head_dim).transpose(0, 1)

        made = [product(layer, x) for layer in (self.q_proj, self.k_proj, self.v_proj)]
        q, k = split(made[0], self.heads), split(made[1], self.groups)
        cos, sin = rotary
        turned_q = q * cos + _half_turn(q) * sin
        return turned_q, k * cos + _half_turn(k) * sin, split(made[2], self.groups)

    def attend(self, q: Tensor, keys: Tensor, values: Tensor, visible: Tensor) -> Tensor:
        """Attention of q over the visible places, bool [T, S]; returns [T, size]."""
        return product(self.o_proj, self.mix(q, keys, values, visible))

    def mix(self, q: Tensor, keys: Tensor, values: Tensor, visible: Tensor) -> Tensor:
        """The values that q sees, before the last projection: [T, heads · width]."""
        repeat = self.heads // self.groups
        if q.shape[1] == 1 and not torch.is_grad_enabled():
            # the heads of a group are rows of one product: no copies of their keys
            one = q.reshape(self.groups, repeat, self.head_dim) * self.head_dim**-0.5
            scores = (one @ keys.transpose(1, 2)).masked_fill(~visible, -torch.inf)
            return (scores.softmax(-1) @ values).reshape(1, -1)
        keys, values = keys.repeat_interleave(repeat, 0), values.repeat_interleave(repeat, 0)
        mixed = nn.functional.scaled_dot_product_attention(q, keys, values, attn_mask=visible)
        return mixed.transpose(0, 1).reshape(q.shape[1], -1)


class _MLP(nn.Module):
    def __init__(self, size: int, inner: int) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(size, inner, bias=False)
        self.up_proj = nn.Linear(size, inner, bias=False)
        self.down_proj = nn.Linear(inner, size, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        gate, up = product(self.gate_proj, x), product(self.up_proj, x)
        return product(self.down_proj, nn.functional.silu(gate) * up)


class Layer(nn.Module):
    """Attention and MLP of a target's sizes; the head adds them up, for the residual differs.

    config: of the target's transformers model. wide: the layout of EAGLE-3.
    """

    def __init__(self, config: Any, wide: bool) -> None:
        super().__init__()
        size, heads = config.hidden_size, config.num_attention_heads
        groups = getattr(config, "num_key_value_heads", None) or heads
        head_dim = getattr(config, "head_dim", None) or size // heads
        eps = getattr(config, "rms_norm_eps", 1e-6)
        self.self_attn = _Attention(2 * size if wide else size, size, heads, groups, head_dim)
        self.mlp = _MLP(size, config.intermediate_size)
        if wide:
            self.hidden_norm = Norm(size, eps)
            self.input_layernorm = Norm(size, eps)
        self.post_attention_layernorm = Norm(size, eps)


def _half_turn(x: Tensor) -> Tensor:
    left, right = x.chunk(2, dim=-1)
    return torch.cat([-right, left], dim=-1)
