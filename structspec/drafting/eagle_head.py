"""`EagleHead`: one transformer layer on the target's own states, as in EAGLE-3 or EAGLE.

EAGLE-3, with e the embedding of the next token and g what the target (or the head itself) knew::

    g = fc · [states of three layers of the target]        at places that the target has read
    a = layer([norm(e), norm(g)]) + …                       one attention and one MLP, residual on g
    logits = head · norm(a) over a reduced vocabulary; behind the target's last place g is a itself

A head of ours also mixes in the token that would go on copying the text so far (`copying`), with
one learnt weight per kind of match::

    q = (1 - σ(w)) · softmax(logits) + σ(w) · [the copied token]

EAGLE: x = fc · [e, g] through an ordinary layer without its first norm, g the target's last state.

Invariants
- rotary positions, embeddings and, unless the file has one, the output matrix are the target's;
- a file whose tensors do not fit its own layout or the target's sizes is refused by name.

Cost: EAGLE-3 on SmolLM2-135M has 5.1 million parameters beside the target's own embedding.

Siblings: `head_layer` has the layer and `head_files` the folder; `eagle.EagleDraft` drafts with a
head, `training` makes one; `medusa_heads` is simpler, and its tokens do not read each other.

Papers: EAGLE (arXiv 2401.15077), EAGLE-3 (arXiv 2503.01840).

Example::

    head = EagleHead.for_target(model.model, draft_ids, taps=(8, 18, 28))
    head.save("head"); EagleHead.load("head", model.model)
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from structspec.drafting.copying import STARTING
from structspec.drafting.head_files import fill, portrait, read_head, refuse_other, write_head
from structspec.drafting.head_layer import HeadCache, Layer, Norm
from structspec.errors import DraftError
from structspec.linear import linear, product
from structspec.models import Model

__all__ = ["EagleHead"]


class EagleHead(nn.Module):
    """One EAGLE-3 (or, with `first=True`, EAGLE) head for a target; see the module.

    `taps`: the target's layers whose outputs it reads. `draft_ids` [Vd]: the target's ids that it
    can draft, ascending.
    """

    draft_ids: Tensor

    def __init__(
        self,
        network: Any,
        draft_ids: Sequence[int] | Tensor,
        taps: Sequence[int],
        first: bool = False,
    ) -> None:
        super().__init__()
        config = network.base_model.config
        depth = config.num_hidden_layers
        if not taps or any(not 0 <= tap <= depth for tap in taps):
            raise DraftError(f"taps {tuple(taps)} must be layers of the target, 0 to {depth}")
        size = config.hidden_size
        self.taps, self.first, self.size = tuple(taps), first, size
        self.fc = nn.Linear((len(taps) + first) * size, size, bias=False)
        self.midlayer = Layer(config, wide=not first)
        self.norm = Norm(size, getattr(config, "rms_norm_eps", 1e-6))
        self.register_buffer("draft_ids", torch.as_tensor(draft_ids, dtype=torch.long))
        self.lm_head: nn.Linear | None = None
        #: log-odds of copying for each kind of match (`copying`), None: a law without copies
        self.copy: nn.Parameter | None = None
        # the target's own parts, which are not this module's to save or train
        self._borrowed = {
            "embedding": network.get_input_embeddings(),
            "rotary": network.base_model.rotary_emb,
            "output": network.get_output_embeddings(),
            "norm": network.base_model.norm,
        }
        self._rows: Tensor | None = None

    @classmethod
    def for_target(cls, network: Any, draft_ids: Sequence[int], taps: Sequence[int]) -> EagleHead:
        """A new EAGLE-3 head that begins as the target's last layer on its last tap."""
        head = cls(network, draft_ids, taps)
        last, size = network.base_model.layers[-1], head.size
        layer = head.midlayer
        with torch.no_grad():
            head.fc.weight.zero_()
            head.fc.weight[:, -size:] = torch.eye(size)
            for name in ("q_proj", "k_proj", "v_proj"):
                weight = getattr(layer.self_attn, name).weight
                weight[:, :size] *= 0.1  # the embedding's half begins small
                weight[:, size:] = getattr(last.self_attn, name).weight.float()
            layer.self_attn.o_proj.weight.copy_(last.self_attn.o_proj.weight)
            for name in ("gate_proj", "up_proj", "down_proj"):
                getattr(layer.mlp, name).weight.copy_(getattr(last.mlp, name).weight)
            layer.hidden_norm.weight.copy_(last.input_layernorm.weight)
            layer.post_attention_layernorm.weight.copy_(last.post_attention_layernorm.weight)
            head.norm.weight.copy_(network.base_model.norm.weight)
        return head

    def copies(self) -> None:
        """Let the law count what copying the text would write; a head that does stays as it is."""
        if self.copy is None:
            self.copy = nn.Parameter(torch.tensor(STARTING).to(self.fc.weight))

    def grow(self, ids: Sequence[int]) -> None:
        """Add ids to the draft's vocabulary; their logits are rows of the target's matrix too."""
        if self.lm_head is not None:
            raise DraftError("this head has an output matrix of its own; its vocabulary is fixed")
        every = sorted({*self.draft_ids.tolist(), *ids})
        self.draft_ids = torch.tensor(every, dtype=torch.long, device=self.draft_ids.device)
        self._rows = None

    # -- running ---------------------------------------------------------------------------------

    def reduce(self, states: Tensor) -> Tensor:
        """The target's tapped states [T, taps · size] as features g [T, size]."""
        return states if self.first else product(self.fc, states)

    def embed(self, tokens: Tensor) -> Tensor:
        """The target's embeddings [T, size]."""
        out: Tensor = self._borrowed["embedding"](tokens)
        return out.to(self.fc.weight.dtype)

    def rotary(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """The target's rotary factors [T, width]."""
        cos, sin = self._borrowed["rotary"](self.fc.weight[:1], positions[None])
        return cos[0], sin[0]

    def inputs(self, features: Tensor, embedded: Tensor) -> tuple[Tensor, Tensor]:
        """What attention reads, and what it is added to."""
        if self.first:
            x = product(self.fc, torch.cat([embedded, features], dim=-1))
            return x, x
        layer = self.midlayer
        pair = [layer.input_layernorm(embedded), layer.hidden_norm(features)]
        return torch.cat(pair, dim=-1), features

    def finish(self, residual: Tensor, mixed: Tensor) -> Tensor:
        """The rest of the layer behind attention: a [T, size]."""
        x = residual + mixed
        return x + self.midlayer.mlp(self.midlayer.post_attention_layernorm(x))

    def forward(self, features: Tensor, tokens: Tensor, cache: HeadCache) -> Tensor:
        """States a [T, size] behind features g [T, size] and the tokens that follow them [T]."""
        return self.side_by_side(features, tokens, [(cache, len(tokens))])

    def side_by_side(
        self, features: Tensor, tokens: Tensor, parts: Sequence[tuple[HeadCache, int]]
    ) -> Tensor:
        """As `forward` for several texts at once: (cache, how many places), one after the other."""
        device, attention = features.device, self.midlayer.self_attn
        ranges = [range(cache.length, cache.length + count) for cache, count in parts]
        places = torch.tensor([place for own in ranges for place in own], device=device)
        read, residual = self.inputs(features, self.embed(tokens))
        q, k, v = attention.project(read, self.rotary(places))
        mixed, first = [], 0
        for cache, count in parts:
            own = slice(first, first + count)
            keys, values = cache.append(k[:, own], v[:, own])
            visible = torch.arange(keys.shape[1], device=device) <= places[own, None]
            mixed.append(attention.mix(q[:, own], keys, values, visible))
            first += count
        return self.finish(residual, product(attention.o_proj, torch.cat(mixed)))

    def logits(self, states: Tensor, places: Tensor | None = None) -> Tensor:
        """Logits of states a [T, size] over the draft's vocabulary, or some places of it."""
        normed = self._borrowed["norm"](states) if self.first else self.norm(states)
        rows = self._output_rows()
        few = places is not None and not self.wants_all(places)
        if few:
            rows = rows[places]
        out = linear(normed, rows.to(normed.dtype))
        if places is not None and not few:
            out = out[:, places]
        return out if out.dtype == torch.float64 else out.float()

    def wants_all(self, places: Tensor) -> bool:
        """Whether gathering the rows of so many places costs more than computing them all."""
        return 4 * len(places) >= len(self.draft_ids)

    def with_copies(
        self, logits: Tensor, tokens: Tensor, kinds: Tensor, ids: Tensor | None = None
    ) -> Tensor:
        """Logits [T, n] of ascending ids (None: all) after mixing each row's copy [T] in.

        logits: illegal tokens' are -inf. tokens, kinds [T]: the candidates and the kinds of match
        behind them, tokens -1: none. The mixture gives e^w times the weight of all tokens to the
        candidate, so its share is at least σ(w).
        """
        if self.copy is None:
            return logits
        ids = self.draft_ids if ids is None else ids
        column = torch.searchsorted(ids, tokens.clamp(min=0)).clamp(max=len(ids) - 1)[:, None]
        there = (tokens >= 0) & (ids[column[:, 0]] == tokens)
        weight = self.copy[kinds.clamp(min=0)].to(logits.dtype)
        added = logits.detach().logsumexp(-1) + weight
        own = logits.gather(1, column)[:, 0]
        mixed = torch.where(there, torch.logaddexp(own, added), own)
        return logits.scatter(1, column, mixed[:, None])

    def project(self, normed: Tensor) -> Tensor:
        """The target's own logits over the draft's vocabulary of its normed last states."""
        rows = self._target_rows()
        return nn.functional.linear(normed, rows.to(normed.dtype)).float()

    def _output_rows(self) -> Tensor:
        if self.lm_head is not None:
            return self.lm_head.weight
        return self._target_rows()

    def _target_rows(self) -> Tensor:
        if self._rows is None or self._rows.device != self.draft_ids.device:
            self._rows = self._borrowed["output"].weight.detach()[self.draft_ids]
        return self._rows

    # -- files -----------------------------------------------------------------------------------

    def save(self, folder: str | Path, target: Model | None = None) -> None:
        """Write `config.json` and `model.safetensors`, EAGLE-3's names, in float16.

        With `target` the head can be loaded for that model only.
        """
        tensors = {n: t.detach().half().contiguous() for n, t in self.named_parameters()}
        ids = self.draft_ids.cpu()
        tensors["d2t"] = ids - torch.arange(len(ids))
        config: dict[str, Any] = {
            "layout": "eagle3",
            "taps": list(self.taps),
            "draft_vocab_size": len(ids),
        }
        if target is not None:
            config["target"] = {"name": target.name, **portrait(target.model)}
        write_head(folder, tensors, config)

    @classmethod
    def load(cls, folder: str | Path, network: Any, taps: Sequence[int] | None = None) -> EagleHead:
        """Read a head for a target: one of ours, or a published EAGLE-3 or EAGLE layout.

        `taps` where the file does not say them: EAGLE-3's own choice is (2, half, all but 3).
        Raises `DraftError` for a file that was made for another target.
        """
        tensors, config = read_head(folder)
        if "target" in config:
            refuse_other(config["target"], network, f"{folder}")
        depth = network.base_model.config.num_hidden_layers
        vocab = network.get_output_embeddings().weight.shape[0]
        # EAGLE's only layer stands in a list of one
        tensors = {name.replace("layers.0.", "midlayer."): t for name, t in tensors.items()}
        first = "midlayer.hidden_norm.weight" not in tensors
        if taps is None:
            taps = config.get("taps") or ((depth,) if first else (2, depth // 2, depth - 3))
        if "d2t" in tensors:
            offsets = tensors.pop("d2t").long()
            ids = offsets + torch.arange(len(offsets))
        else:
            ids = torch.arange(vocab)
        head = cls(network, ids, taps, first)
        for unused in ("t2d", "embed_tokens.weight", "fc.bias", "norm.weight" if first else ""):
            tensors.pop(unused, None)
        if "lm_head.weight" in tensors:
            head.lm_head = nn.Linear(head.size, len(ids), bias=False)
        if "copy" in tensors:
            head.copies()
        if first:
            del head.norm
        fill(head, tensors, f"{folder}")
        return head.to(network.get_input_embeddings().weight.device)
