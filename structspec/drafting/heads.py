"""Draft heads as modules: one transformer layer on the target's own states, and their files.

Owns `EagleHead` (the layouts of EAGLE-3 and EAGLE), `MedusaHeads`, and reading and writing them.

EAGLE-3, with e the embedding of the next token and g what the target (or the head itself) knew::

    g = fc · [states of three layers of the target]        at places that the target has read
    a = layer([norm(e), norm(g)]) + …                       one attention and one MLP, residual on g
    logits = head · norm(a) over a reduced vocabulary; behind the target's last place g is a itself

A head of ours also mixes in the token that would go on copying the text so far (`copying`), with
one learnt weight per kind of match::

    q = (1 - σ(w)) · softmax(logits) + σ(w) · [the copied token]

EAGLE: x = fc · [e, g] through an ordinary layer without its first norm, g the target's last state.
Medusa: head k is a few residual blocks x + silu(W x) and a projection, for the token k + 2 ahead.

Invariants
- rotary positions, embeddings and, unless the file has one, the output matrix are the target's;
- a file whose tensors do not fit its own layout or the target's sizes is refused by name.

Cost: EAGLE-3 on SmolLM2-135M has 5.1 million parameters beside the target's own embedding.

Siblings: `eagle` and `medusa` draft with them, `training` makes an EAGLE-3 head.

Papers: EAGLE (arXiv 2401.15077), EAGLE-3 (arXiv 2503.01840), Medusa (arXiv 2401.10774).

Example::

    head = EagleHead.for_target(model.model, draft_ids, taps=(8, 18, 28))
    head.save("head"); EagleHead.load("head", model.model)
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from structspec.drafting.copying import STARTING
from structspec.errors import DraftError, MissingExtra
from structspec.linear import linear, product
from structspec.models import Model

__all__ = ["SHIPPED", "EagleHead", "HeadCache", "MedusaHeads"]

#: The head that comes with the package, for the default model.
SHIPPED = Path(__file__).parent / "weights" / "smollm2-135m-instruct"

_WEIGHTS = (
    "model.safetensors",
    "pytorch_model.bin",
    "medusa_lm_head.safetensors",
    "medusa_lm_head.pt",
)


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


class _Norm(nn.Module):
    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
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


class _Layer(nn.Module):
    def __init__(self, config: Any, wide: bool) -> None:
        super().__init__()
        size, heads = config.hidden_size, config.num_attention_heads
        groups = getattr(config, "num_key_value_heads", None) or heads
        head_dim = getattr(config, "head_dim", None) or size // heads
        eps = getattr(config, "rms_norm_eps", 1e-6)
        self.self_attn = _Attention(2 * size if wide else size, size, heads, groups, head_dim)
        self.mlp = _MLP(size, config.intermediate_size)
        if wide:
            self.hidden_norm = _Norm(size, eps)
            self.input_layernorm = _Norm(size, eps)
        self.post_attention_layernorm = _Norm(size, eps)


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
        self.midlayer = _Layer(config, wide=not first)
        self.norm = _Norm(size, getattr(config, "rms_norm_eps", 1e-6))
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
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        tensors = {n: t.detach().half().contiguous() for n, t in self.named_parameters()}
        ids = self.draft_ids.cpu()
        tensors["d2t"] = ids - torch.arange(len(ids))
        _safetensors().save_file(tensors, folder / "model.safetensors")
        config: dict[str, Any] = {
            "layout": "eagle3",
            "taps": list(self.taps),
            "draft_vocab_size": len(ids),
        }
        if target is not None:
            config["target"] = {"name": target.name, **_portrait(target.model)}
        (folder / "config.json").write_text(json.dumps(config, indent=1) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, folder: str | Path, network: Any, taps: Sequence[int] | None = None) -> EagleHead:
        """Read a head for a target: one of ours, or a published EAGLE-3 or EAGLE layout.

        `taps` where the file does not say them: EAGLE-3's own choice is (2, half, all but 3).
        Raises `DraftError` for a file that was made for another target.
        """
        tensors, config = _read(folder)
        if "target" in config:
            _refuse_other(config["target"], network, f"{folder}")
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
        _fill(head, tensors, f"{folder}")
        return head.to(network.get_input_embeddings().weight.device)


class MedusaHeads(nn.Module):
    """Medusa's heads: residual blocks and a projection each, for the tokens 2, 3, … ahead."""

    def __init__(self, size: int, vocab: int, heads: int, blocks: int) -> None:
        super().__init__()
        self.heads = nn.ModuleList(
            nn.ModuleList(
                [*(_Block(size) for _ in range(blocks)), nn.Linear(size, vocab, bias=False)]
            )
            for _ in range(heads)
        )

    def logits(self, state: Tensor, head: int) -> Tensor:
        """Logits [1, V] of one head behind the target's last state [1, size]."""
        layers = list(self.heads[head].children())
        for block in layers[:-1]:
            state = block(state)
        out: Tensor = layers[-1](state)
        return out if out.dtype == torch.float64 else out.float()

    @classmethod
    def load(cls, folder: str | Path, network: Any) -> MedusaHeads:
        """Read published Medusa weights (`k.block.linear.weight`, `k.blocks.weight`)."""
        tensors, _ = _read(folder)
        tensors = {name.removeprefix("medusa_head."): t for name, t in tensors.items()}
        numbers = {tuple(map(int, name.split(".")[:2])) for name in tensors if name[:1].isdigit()}
        if not numbers:
            raise DraftError(f"{folder} holds no Medusa heads (tensors such as 0.0.linear.weight)")
        output = network.get_output_embeddings().weight
        heads, blocks = 1 + max(k for k, _ in numbers), max(b for _, b in numbers)
        made = cls(output.shape[1], output.shape[0], heads, blocks)
        _fill(made, {f"heads.{name}": t for name, t in tensors.items()}, f"{folder}")
        return made.to(network.get_input_embeddings().weight.device, network.dtype)


class _Block(nn.Module):
    def __init__(self, size: int) -> None:
        super().__init__()
        self.linear = nn.Linear(size, size)

    def forward(self, x: Tensor) -> Tensor:
        return x + nn.functional.silu(self.linear(x))


def _portrait(network: Any) -> dict[str, Any]:
    """What tells a target from others: its sizes, and a few of its weights."""
    config, layers = network.base_model.config, network.base_model.layers
    weights = [network.get_input_embeddings().weight]
    for layer in (layers[0], layers[-1]):
        weights += [weight for weight in layer.parameters() if weight.dim() == 2][:3]
    values = [w.detach().flatten()[:: max(1, w.numel() // 8)][:8].float().tolist() for w in weights]
    return {
        "hidden_size": config.hidden_size,
        "layers": len(layers),
        "vocab_size": int(network.get_output_embeddings().weight.shape[0]),
        "fingerprint": [round(value, 6) for part in values for value in part],
    }


def _refuse_other(expected: Mapping[str, Any], network: Any, place: str) -> None:
    """Raise unless the target is the one that a head was made for, in any precision."""
    found = _portrait(network)
    for name in ("hidden_size", "layers", "vocab_size"):
        if found[name] != expected[name]:
            raise DraftError(
                f"the head in {place} was trained for {expected['name']}, whose {name} is "
                f"{expected[name]}; this target's is {found[name]}; train one with "
                "`structspec train-draft` or use another draft"
            )
    pairs = zip(found["fingerprint"], expected["fingerprint"], strict=True)
    if any(abs(a - b) > 0.02 * abs(b) + 1e-3 for a, b in pairs):
        raise DraftError(
            f"the head in {place} was trained for {expected['name']}; this target has its sizes "
            "but other weights; train one with `structspec train-draft` or use another draft"
        )


def _half_turn(x: Tensor) -> Tensor:
    left, right = x.chunk(2, dim=-1)
    return torch.cat([-right, left], dim=-1)


def _fill(module: nn.Module, tensors: Mapping[str, Tensor], place: str) -> None:
    """Load tensors into a module; anything missing, unknown or of another shape is refused."""
    own = dict(module.named_parameters())
    missing, unknown = sorted(set(own) - set(tensors)), sorted(set(tensors) - set(own))
    if missing or unknown:
        what = f"lacks {missing[:3]}" if missing else f"has the unknown tensors {unknown[:3]}"
        raise DraftError(f"the head in {place} {what}; its layout is not one that is known here")
    with torch.no_grad():
        for name, parameter in own.items():
            if parameter.shape != tensors[name].shape:
                raise DraftError(
                    f"the head in {place} was made for another target: {name} is "
                    f"{tuple(tensors[name].shape)}, this target needs {tuple(parameter.shape)}"
                )
            parameter.copy_(tensors[name])


def _read(folder: str | Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    folder = Path(folder)
    for name in _WEIGHTS:
        path = folder / name
        if path.is_file():
            break
    else:
        raise DraftError(f"no draft head in '{folder}': none of {', '.join(_WEIGHTS)} is there")
    try:
        if path.suffix == ".safetensors":
            tensors = _safetensors().load_file(path)
        else:
            tensors = torch.load(path, map_location="cpu", weights_only=True)
        config_path = folder / "config.json"
        config = json.loads(config_path.read_text("utf-8")) if config_path.is_file() else {}
    except Exception as error:  # a cut file, another format, a pickle that is not only weights
        raise DraftError(f"cannot read the draft head '{path}': {error}") from error
    return dict(tensors), dict(config)


def _safetensors() -> Any:
    try:
        import safetensors.torch
    except ImportError as error:
        raise MissingExtra("safetensors", "models") from error
    return safetensors.torch
