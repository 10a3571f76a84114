"""`LeanLayers`: a Llama-like network's layers, run without the modules around them.

A forward of a few tokens through a small model on a CPU spends much of its time between the matrix
products: module calls, copies of keys for grouped heads, normalisation in many small steps.
This runs the same layers with the same weights and little else, and it skips what nobody reads: in
the last layer only the columns whose logits are wanted are finished. Rows of unequal lengths are
padded for attention alone.

Invariants
- the numbers are those of transformers' own forward up to rounding: only known classes of layers
  are run, and each network is compared with its own forward once, before its first use;
- the network's logits are its output matrix times the states that `run` returns;
- the network is not changed; its linear layers are called as modules, so whatever was put in
  their place (`FewRowsLinear`, an adapter) runs;
- a network with hooks, with forwards or parts that its class does not have, or in training runs as
  transformers does.

Cost: no memory; the comparison is a few forwards of nine tokens, once. `python -m
structspec.bench.forwards` measures it beside transformers' own forward.

Sibling: `rows.TargetRows` runs it where it can, and the network itself elsewhere.

Example::

    lean = LeanLayers.of(network)
    cache.begin([row], [start], count)
    states, tapped = lean.run(ids, positions, cache, visible=None, columns=None, taps=())
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention, silu

from structspec.hooks import alterations
from structspec.linear import product

__all__ = ["LeanLayers", "is_known", "near"]

# Families of transformers whose layers are these: norm, attention, norm, gated product.
_KNOWN = ("Llama", "Mistral", "Qwen2")
_PARTS = {
    "input_layernorm": "RMSNorm",
    "self_attn": "Attention",
    "post_attention_layernorm": "RMSNorm",
    "mlp": "MLP",
}
# Up to so many columns attention is two plain products; beyond, the fused one does not build
# the whole table of scores.
_FEW = 64
# Relative differences that are rounding.
_SLACK = 1e-4

_checked: weakref.WeakKeyDictionary[Any, bool] = weakref.WeakKeyDictionary()


class LeanLayers:
    """See the module. Made by `of`; holds a reference to the network."""

    def __init__(self, network: Any) -> None:
        body = network.base_model
        config = body.config
        self._body = body
        self._layers = list(body.layers)
        self._heads = config.num_attention_heads
        attention = self._layers[0].self_attn
        self._width = attention.head_dim
        self._groups = getattr(config, "num_key_value_heads", None) or self._heads
        self._scale = attention.scaling

    @classmethod
    def of(cls, network: Any) -> LeanLayers | None:
        """The lean form of a transformers model, None if there is none."""
        if not cls._fits(network):
            return None
        if network not in _checked:
            _checked[network] = False  # the comparison asks for it too
            _checked[network] = cls(network)._agrees(network)
        return cls(network) if _checked[network] else None

    @staticmethod
    def _fits(network: Any) -> bool:
        body = getattr(network, "base_model", network)
        layers = getattr(body, "layers", None)
        if body is network or not isinstance(layers, torch.nn.ModuleList) or not len(layers):
            return False
        if not all(map(is_known, layers)):
            return False
        weight = network.get_input_embeddings().weight
        if network.training or weight.device.type != "cpu" or weight.dtype != torch.float32:
            return False
        if getattr(body.config, "hidden_act", "silu") != "silu":
            return False
        return not any(alterations(module) for module in body.modules())

    @torch.inference_mode()
    def run(
        self,
        ids: Tensor,
        positions: Tensor,
        cache: Any,
        visible: Tensor | None,
        columns: Sequence[int] | None,
        taps: Sequence[int] = (),
    ) -> tuple[Tensor, list[Tensor]]:
        """States behind the final norm [B, C, size], and the tapped layers' outputs [B, n, size].

        ids, positions [B, n]. cache: as transformers' layers use it, ready for these columns.
        visible: bool [B, n, slots], None for one chain per row behind what the cache holds of it.
        columns: the C columns whose states are wanted, None for all.
        """
        x = self._body.embed_tokens(ids)
        count, size = ids.shape
        cos, sin = self._body.rotary_emb(x, positions)
        turn = cos[:, None], sin[:, None]
        depth = len(self._layers)
        kept: dict[int, Tensor] = {0: x}
        # the last layer's output is read behind the final norm only, and where it is wanted
        narrow = columns is not None and len(columns) < size and depth not in taps
        mask: Tensor | None = None
        for number, layer in enumerate(self._layers):
            attention = layer.self_attn
            last = narrow and number == depth - 1
            h = _normed(layer.input_layernorm, x)
            shape = (count, size, self._groups, self._width)
            mapped = [attention.k_proj, attention.v_proj]
            if not last:
                mapped.append(attention.q_proj)
            made = [product(part, h) for part in mapped]
            k = _turned(made[0].view(shape).transpose(1, 2), turn)
            keys, values = cache.update(k, made[1].view(shape).transpose(1, 2), number)
            if last:
                assert columns is not None
                at = torch.tensor(list(columns))
                x, h = x[:, at], h[:, at]
                turn = turn[0][:, :, at], turn[1][:, :, at]
                made.append(product(attention.q_proj, h))
            q = made[2].view(count, h.shape[1], self._heads, self._width)
            q = _turned(q.transpose(1, 2), turn)
            if mask is None and (size > 1 or visible is not None):
                mask = _mask(visible, size, keys.shape[2])
            seen = mask[:, at] if last and mask is not None else mask
            kept[number + 1] = x = _after_attention(layer, x, self._attend(q, keys, values, seen))
        normed = _normed(self._body.norm, x)
        kept[depth] = normed
        tapped = [kept[tap] for tap in taps]
        if columns is not None and not narrow:
            normed = normed[:, list(columns)]
        return normed, tapped

    @torch.inference_mode()
    def run_ragged(
        self,
        ids: Tensor,
        positions: Tensor,
        cache: Any,
        visible: Tensor,
        sizes: Sequence[int],
        keep: Sequence[int],
        taps: Sequence[int] = (),
    ) -> tuple[Tensor, list[Tensor]]:
        """As `run` for rows of which the first `sizes` columns are there and the rest is padding.

        Only attention is padded: everything else runs over the tokens that are there, one after
        the other. Returns the states behind the last `keep` columns of each row [Σ keep, size],
        and the tapped layers' outputs of all columns [Σ sizes, size].
        """
        count, width = ids.shape
        there = torch.tensor([b * width + i for b in range(count) for i in range(sizes[b])])
        ends = [sum(sizes[: b + 1]) for b in range(count)]
        last = [end - k + i for end, k in zip(ends, keep, strict=True) for i in range(k)]
        wanted = torch.tensor(last)

        def padded(packed: Tensor, places: Tensor, heads: int) -> Tensor:
            """[B, heads, n, width], zeros in the padding."""
            flat = packed.new_zeros((count * width, heads * self._width))
            flat.index_copy_(0, places, packed.reshape(len(places), -1))
            return flat.view(count, width, heads, self._width).transpose(1, 2)

        x = self._body.embed_tokens(ids.reshape(-1)[there])
        cos, sin = self._body.rotary_emb(x, positions)
        turn = cos.reshape(-1, self._width)[there, None], sin.reshape(-1, self._width)[there, None]
        depth = len(self._layers)
        kept: dict[int, Tensor] = {0: x}
        narrow = len(last) < len(there) and depth not in taps
        mask = _mask(visible, width, visible.shape[2])
        for number, layer in enumerate(self._layers):
            attention = layer.self_attn
            h = _normed(layer.input_layernorm, x)
            shape = (len(h), self._groups, self._width)
            k = _turned(product(attention.k_proj, h).view(shape), turn)
            v = product(attention.v_proj, h)
            keys, values = cache.update(
                padded(k, there, self._groups), padded(v, there, self._groups), number
            )
            places = there
            if narrow and number == depth - 1:
                # the last layer's output is read where it is wanted only
                x, h, places = x[wanted], h[wanted], there[wanted]
                turn = turn[0][wanted], turn[1][wanted]
            q = product(attention.q_proj, h).view(len(h), self._heads, self._width)
            q = padded(_turned(q, turn), places, self._heads)
            mixed = self._attend(q, keys, values, mask).reshape(count * width, -1)[places]
            kept[number + 1] = x = _after_attention(layer, x, mixed)
        normed = _normed(self._body.norm, x)
        kept[depth] = normed
        return (normed if narrow else normed[wanted]), [kept[tap] for tap in taps]

    def _attend(self, q: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None) -> Tensor:
        """Attention of q [B, heads, C, width] over keys and values [B, groups, S, width].

        mask: what is added to the scores, [B or 1, C, S]. Returns [B, C, heads · width].
        """
        rows, _, count, _ = q.shape
        if count > _FEW:
            # groups of heads, not copies of their keys
            mixed = scaled_dot_product_attention(
                q,
                keys,
                values,
                attn_mask=None if mask is None else mask[:, None],
                scale=self._scale,
                enable_gqa=self._groups != self._heads,
            )
            return mixed.transpose(1, 2).reshape(rows, count, -1)
        repeat = self._heads // self._groups
        # the heads of a group are further rows of one product
        grouped = q.reshape(rows, self._groups, repeat * count, self._width)
        scores = grouped @ keys.transpose(2, 3)
        if self._scale != 1.0:
            scores.mul_(self._scale)
        if mask is not None:
            shaped = scores.view(rows, self._groups, repeat, count, -1)
            shaped.add_(mask[:, None, None])
        mixed = scores.softmax(-1) @ values
        mixed = mixed.view(rows, self._heads, count, self._width)
        return mixed.transpose(1, 2).reshape(rows, count, -1)

    @torch.inference_mode()
    def _agrees(self, network: Any) -> bool:
        """Whether the states are those of the network's own forward, cached and not."""
        from transformers import DynamicCache

        width = network.get_input_embeddings().weight.shape[0]
        ids = torch.tensor([[(7 * i + 3) % width for i in range(9)]])
        place = torch.arange(9)[None]
        try:
            expected = network.base_model(input_ids=ids, use_cache=False).last_hidden_state
            logits = network(input_ids=ids, use_cache=False).logits
            caches: list[Any] = [DynamicCache(config=network.base_model.config) for _ in range(2)]
            parts = [
                self.run(ids[:, :5], place[:, :5], caches[0], None, None)[0],
                self.run(ids[:, 5:], place[:, 5:], caches[0], None, None)[0],
            ]
            some = self.run(ids, place, caches[1], None, [3, 8])[0]
        except (AttributeError, TypeError, RuntimeError, ValueError):
            return False  # layers of another make
        pairs = [
            (torch.cat(parts, 1), expected),
            (some, expected[:, [3, 8]]),
            (network.get_output_embeddings()(expected), logits),  # no scale, no soft cap
        ]
        return all(near(found, wanted, _SLACK) for found, wanted in pairs)


def is_known(layer: Any) -> bool:
    """Whether a layer and its parts are of the classes that `LeanLayers` runs."""
    family = type(layer).__name__.removesuffix("DecoderLayer")
    return family in _KNOWN and all(
        type(getattr(layer, name, None)).__name__ == family + kind for name, kind in _PARTS.items()
    )


def near(found: Tensor, wanted: Tensor, share: float) -> bool:
    """Whether no number is off by more than a share of the largest; never where some are NaN."""
    slack = share * float(wanted.abs().max())
    if found.shape != wanted.shape or not math.isfinite(slack):
        return False  # NaN is for whoever samples to report
    return torch.allclose(found, wanted, rtol=0.0, atol=slack)


def _after_attention(layer: Any, x: Tensor, mixed: Tensor) -> Tensor:
    """The rest of a layer: what attention mixed is projected and added, then the MLP."""
    x = x + product(layer.self_attn.o_proj, mixed)
    h = _normed(layer.post_attention_layernorm, x)
    gate, up = product(layer.mlp.gate_proj, h), product(layer.mlp.up_proj, h)
    return x + product(layer.mlp.down_proj, silu(gate, inplace=True).mul_(up))


def _normed(norm: Any, x: Tensor) -> Tensor:
    scale = x.square().mean(-1, keepdim=True).add_(norm.variance_epsilon).rsqrt_()
    return (x * scale).mul_(norm.weight)


def _turned(x: Tensor, turn: tuple[Tensor, Tensor]) -> Tensor:
    half = x.shape[-1] // 2
    swapped = torch.cat([-x[..., half:], x[..., :half]], dim=-1)
    return (x * turn[0]).add_(swapped.mul_(turn[1]))


def _mask(visible: Tensor | None, count: int, slots: int) -> Tensor:
    """What is added to the scores, [B or 1, n, slots]: minus infinity where nothing is seen."""
    if visible is None:
        own = torch.arange(slots) - (slots - count)
        visible = (own <= torch.arange(count)[:, None])[None]
    return torch.zeros(visible.shape).masked_fill_(~visible, -torch.inf)
