"""`AnswerSampler`: many answers at once, and what the target knew at each place of them.

Training a head needs many sampled answers and the target's states at every place. This samples
several answers to each prompt, many prompts side by side, and keeps the tapped states of the very
forwards that sampled, so that nothing is computed twice. Answers to one prompt share its keys and
values; a slot that finishes takes up the next answer at once, so the batch stays full.

Invariants
- an answer is a sample of the target's masked law at temperature 1: each token is drawn from the
  softmax over the legal tokens, with noise keyed by (seed, task, number of the answer);
- the states are those that `TargetRows.features` would hold, up to rounding; the last one is
  behind the final norm, so that the output matrix makes the target's logits of it;
- a model whose layers are not laid out as Llama's is refused (`ModelError`), decided by running
  both ways once.

Cost: a prompt is read once; a step of 32 answers to 350-token prompts takes about twice a step of
one (CPU), since one answer alone is bound by reading the weights.

Siblings: `states` keeps what this makes; `decoding.collect` samples by the decoding loop, with any
model, one answer at a time.

Example::

    for group in AnswerSampler(model, taps=(8, 18, 28)).run(tasks, per_task=4):
        store.add(group)
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from structspec.drafting.answers import Task
from structspec.drafting.states import Group
from structspec.errors import ModelError, StructspecError
from structspec.forward.reading import cache_argument
from structspec.kept_grammars import compiled
from structspec.models import Model
from structspec.packed import single_token, unpack
from structspec.prompt import encode_prompt
from structspec.signatures import argument_names

__all__ = ["AnswerSampler"]


#: Rows of logits that are computed at once: as many as `linear` multiplies by its own loops.
_ROWS = 24
#: Tokens whose shares are added up first: a row is searched block by block, then inside one.
_BLOCK = 256


@dataclass
class _Prompt:
    """A prompt that was read, and its answers so far."""

    task: Task
    ids: tuple[int, ...]
    constraint: Any
    layers: list[tuple[Tensor, Tensor]]  # keys and values [groups, n, width] of each layer
    states: np.ndarray  # [n, taps + 1, size]
    first: Tensor  # [size], behind the final norm: what the first token is drawn from
    waiting: list[int] = field(default_factory=list)
    done: dict[int, _Row] = field(default_factory=dict)
    running: int = 0


@dataclass
class _Row:
    """An answer in a slot."""

    prompt: _Prompt
    number: int
    noise: np.random.Generator
    state: int
    tokens: list[int] = field(default_factory=list)
    states: list[np.ndarray] = field(default_factory=list)
    noise_here: float = 0.0
    ended: bool = False


class AnswerSampler:
    """See the module.

    taps: numbers of layers, 0 for the embedding. slots: answers side by side. max_tokens: where an
    answer is cut. longest_prompt: tasks with longer ones are passed over.
    """

    def __init__(
        self,
        model: Model,
        taps: Sequence[int],
        *,
        slots: int = 32,
        max_tokens: int = 128,
        longest_prompt: int = 1024,
        seed: int = 0,
    ) -> None:
        self.model = model
        self.taps = tuple(taps)
        self.slots = slots
        self.max_tokens = max_tokens
        self.longest_prompt = longest_prompt
        self.seed = seed
        self._network = _Layers(model, self.taps, slots, max_tokens)

    @torch.inference_mode()
    def run(self, tasks: Iterable[Task], per_task: int) -> Iterator[Group]:
        """Groups of `per_task` answers, in the order in which they are finished.

        Tasks whose schemas are refused or whose prompts are too long are passed over.
        """
        source = self._prompts(tasks, per_task)
        rows: list[_Row | None] = [None] * self.slots
        current: _Prompt | None = None
        while True:
            for slot in range(self.slots):
                if rows[slot] is not None:
                    continue
                while current is None or not current.waiting:
                    current = next(source, None)
                    if current is None:
                        break
                if current is None:
                    break
                rows[slot] = self._begin(current, current.waiting.pop(0))
            active = [(slot, row) for slot, row in enumerate(rows) if row is not None]
            if not active:
                return
            # the first token of a new row is drawn from the prompt's own last state
            normed, states = self._network.step(active)
            for i, (_, row) in enumerate(active):
                row.states.append(states[i])
            self._draw([row for _, row in active], normed)
            for slot, row in active:
                if row.ended or len(row.tokens) > self.max_tokens:
                    rows[slot] = None
                    prompt = row.prompt
                    prompt.done[row.number] = row
                    prompt.running -= 1
                    if not prompt.running and not prompt.waiting:
                        yield self._group(prompt)

    def _prompts(self, tasks: Iterable[Task], per_task: int) -> Iterator[_Prompt]:
        for task in tasks:
            try:
                constraint = compiled(task.schema, {}).bind(self.model.vocab)
                ids = tuple(encode_prompt(self.model, list(task.messages)).ids)
                start = constraint.start
            except StructspecError:
                continue
            if len(ids) > self.longest_prompt or constraint.accepting(start):
                continue
            layers, states, first = self._network.read(ids)
            prompt = _Prompt(task, ids, constraint, layers, states, first)
            prompt.waiting = list(range(per_task))
            yield prompt

    def _begin(self, prompt: _Prompt, number: int) -> _Row:
        name = f"{self.seed}/{prompt.task.id}#{number}"
        digest = hashlib.blake2b(name.encode(), digest_size=8).digest()
        noise = np.random.default_rng(int.from_bytes(digest, "big"))
        row = _Row(prompt, number, noise, prompt.constraint.start)
        prompt.running += 1
        self._draw([row], prompt.first[None])
        return row

    def _draw(self, rows: Sequence[_Row], normed: Tensor) -> None:
        """Sample each row's next token from its masked law and go on to the state behind it."""
        drawn: list[int | None] = []
        masks = []
        for row in rows:
            mask = row.prompt.constraint.mask(row.state)
            drawn.append(single_token(mask))
            row.noise_here = row.noise.random()
            if drawn[-1] is None:
                masks.append(mask)
        # where the grammar leaves no choice no logit is needed
        open_rows = [i for i, token in enumerate(drawn) if token is None]
        for first in range(0, len(open_rows), _ROWS):
            chosen = open_rows[first : first + _ROWS]
            bits = unpack(np.stack(masks[first : first + _ROWS]))
            logits = self._network.logits(normed[chosen]).cpu()
            noise = [rows[i].noise_here for i in chosen]
            for i, sample in zip(chosen, _sampled(logits, bits, noise), strict=True):
                drawn[i] = sample
        for row, token in zip(rows, drawn, strict=True):
            assert token is not None
            if token in row.prompt.constraint.vocab.eos_ids:
                row.ended = True
            else:
                row.tokens.append(token)
                row.state = row.prompt.constraint.advance(row.state, token)

    def _group(self, prompt: _Prompt) -> Group:
        rows = [prompt.done[number] for number in sorted(prompt.done)]
        outputs, states = [], [prompt.states]
        for row in rows:
            outputs.append(tuple(row.tokens[: len(row.states)]))
            states += [s[None] for s in row.states]
        return Group(
            prompt.task.id,
            prompt.task.schema,
            prompt.ids,
            tuple(outputs),
            tuple(row.ended for row in rows),
            np.concatenate(states),
        )


class _Layers:
    """The target's layers, run for one new token of each of several rows."""

    def __init__(self, model: Model, taps: tuple[int, ...], slots: int, longest: int) -> None:
        network = model.model
        body, config = network.base_model, model.text_config
        self._model, self._body, self._output = model, body, network.get_output_embeddings()
        self._taps = taps
        self._heads = config.num_attention_heads
        self._groups = getattr(config, "num_key_value_heads", None) or self._heads
        width = getattr(config, "head_dim", None) or config.hidden_size // self._heads
        self._width = width
        place = {"dtype": model.dtype, "device": model.device}
        shape = (slots, self._groups, longest + 2, width)
        try:
            self._kept = [(torch.zeros(shape, **place), torch.zeros(shape, **place))] * 0
            for layer in body.layers:
                for name in ("q_proj", "k_proj", "v_proj", "o_proj"):
                    getattr(layer.self_attn, name)
                self._kept.append((torch.zeros(shape, **place), torch.zeros(shape, **place)))
            self._check()
        except (AttributeError, TypeError, RuntimeError, ValueError) as error:
            raise ModelError(
                f"the layers of {model.name} are not laid out as Llama's ({error}); "
                "collect answers one at a time"
            ) from error

    def logits(self, normed: Tensor) -> Tensor:
        """The target's logits [N, V] of states behind the final norm."""
        out: Tensor = self._output(normed)
        return out.float()

    def read(self, ids: Sequence[int]) -> tuple[list[tuple[Tensor, Tensor]], np.ndarray, Tensor]:
        """Read a prompt: its keys and values, its states, and the last normed one."""
        from transformers import DynamicCache

        cache: Any = DynamicCache(config=self._model.model.config)
        tokens = torch.tensor([list(ids)], device=self._model.device)
        argument = cache_argument(argument_names(self._body.forward)) or "past_key_values"
        output = self._body(
            input_ids=tokens, use_cache=True, output_hidden_states=True, **{argument: cache}
        )
        kept = [(layer.keys[0], layer.values[0]) for layer in cache.layers]
        states = [output.hidden_states[tap][0] for tap in self._taps]
        states.append(output.last_hidden_state[0])
        packed = torch.stack(states, dim=1).half().cpu().numpy()
        return kept, packed, output.last_hidden_state[0, -1]

    def step(self, rows: Sequence[tuple[int, _Row]]) -> tuple[Tensor, np.ndarray]:
        """Read the last token of each (slot, row); normed states [N, size], kept states.

        The place of that token in the row is `len(row.states)`.
        """
        device = self._model.device
        slots = torch.tensor([slot for slot, _ in rows], device=device)
        tokens = torch.tensor([row.tokens[-1] for _, row in rows], device=device)
        read = torch.tensor([len(row.states) for _, row in rows], device=device)
        start = torch.tensor([len(row.prompt.ids) for _, row in rows], device=device)
        visible = torch.arange(int(read.max()) + 1, device=device) <= read[:, None]
        shared: dict[int, tuple[_Prompt, list[int]]] = {}
        for i, (_, row) in enumerate(rows):
            shared.setdefault(id(row.prompt), (row.prompt, []))[1].append(i)
        sets = [(p, torch.tensor(members, device=device)) for p, members in shared.values()]

        x = self._body.embed_tokens(tokens)
        cos, sin = self._body.rotary_emb(x[None], (start + read)[None])
        turn = cos[0][:, None], sin[0][:, None]
        whole = len(rows) == len(self._kept[0][0])
        kept = {0: x}
        for number, layer in enumerate(self._body.layers):
            attention = layer.self_attn
            h = layer.input_layernorm(x)
            q = _turned(attention.q_proj(h).view(len(rows), self._heads, -1), turn)
            k = _turned(attention.k_proj(h).view(len(rows), self._groups, -1), turn)
            v = attention.v_proj(h).view(len(rows), self._groups, -1)
            keys, values = self._kept[number]
            keys[slots, :, read], values[slots, :, read] = k, v
            own_k, own_v = keys[:, :, : visible.shape[1]], values[:, :, : visible.shape[1]]
            if not whole:
                own_k, own_v = own_k[slots], own_v[slots]
            mixed = self._attend(q, own_k, own_v, visible, sets, number)
            x = x + attention.o_proj(mixed)
            x = x + layer.mlp(layer.post_attention_layernorm(x))
            kept[number + 1] = x
        normed: Tensor = self._body.norm(x)
        kept[len(self._body.layers)] = normed
        states = torch.stack([*(kept[tap] for tap in self._taps), normed], dim=1)
        return normed, states.half().cpu().numpy()

    def _attend(
        self,
        q: Tensor,
        own_k: Tensor,
        own_v: Tensor,
        visible: Tensor,
        sets: Sequence[tuple[_Prompt, Tensor]],
        number: int,
    ) -> Tensor:
        """Attention over each row's prompt and its own tokens, [N, heads · width]."""
        count, groups = len(q), self._groups
        repeat = self._heads // groups
        q = q.reshape(count, groups, repeat, self._width) * self._width**-0.5
        own = q @ own_k.transpose(-1, -2)
        own.masked_fill_(~visible[:, None, None], -torch.inf)
        shares = torch.empty_like(own)
        out = torch.empty_like(q)
        for prompt, members in sets:
            keys, values = prompt.layers[number]
            length, size = keys.shape[1], (groups, len(members) * repeat, -1)
            theirs = q[members].transpose(0, 1).reshape(size) @ keys.transpose(-1, -2)
            both = torch.cat([theirs, own[members].transpose(0, 1).reshape(size)], dim=-1)
            both = both.softmax(-1)
            back = (groups, len(members), repeat, -1)
            out[members] = (both[..., :length] @ values).view(back).transpose(0, 1)
            shares[members] = both[..., length:].reshape(back).transpose(0, 1)
        out = out + shares @ own_v
        return out.reshape(count, -1)

    @torch.inference_mode()
    def _check(self) -> None:
        """Both ways must give the same states; ValueError where they do not."""
        width = self._output.weight.shape[0]
        ids = [(7 * i + 3) % width for i in range(8)]
        _, expected, last = self.read(ids)
        layers, states, first = self.read(ids[:6])
        prompt = _Prompt(Task("", (), None), tuple(ids[:6]), None, layers, states, first)
        row = _Row(prompt, 0, np.random.default_rng(0), 0)
        found = first[None]
        for token in ids[6:]:
            row.tokens.append(token)
            found, state = self.step([(0, row)])
            row.states.append(state[0])
        slack = 1e-2 * float(np.abs(expected[-1].astype(np.float32)).max())
        if not np.allclose(row.states[-1], expected[-1], atol=slack) or not torch.allclose(
            found[0], last, atol=slack
        ):
            raise ValueError("its states differ from those of a Llama")


def _sampled(logits: Tensor, bits: np.ndarray, noise: Sequence[float]) -> list[int]:
    """A sample of each row's softmax over its legal tokens, by inversion of one uniform each.

    logits [N, V] are written over; bits [N, ≥ V or fewer] say which tokens are legal.
    """
    count, width = logits.shape
    legal = torch.zeros(logits.shape, dtype=torch.bool)
    known = min(width, bits.shape[1])
    legal[:, :known] = torch.from_numpy(bits[:, :known]).bool()
    logits.masked_fill_(~legal, -torch.inf)
    weights = logits.sub_(logits.amax(-1, keepdim=True)).exp_()
    padded = torch.nn.functional.pad(weights, (0, -width % _BLOCK)).view(count, -1, _BLOCK)
    sums = padded.sum(-1, dtype=torch.float64).cumsum(-1)
    target = torch.tensor(noise, dtype=torch.float64)[:, None] * sums[:, -1:]
    block = torch.searchsorted(sums, target, right=True).clamp_(max=sums.shape[1] - 1)
    before = (sums - padded.sum(-1, dtype=torch.float64)).gather(1, block)
    inside = padded[torch.arange(count), block[:, 0]].double().cumsum(-1)
    place = torch.searchsorted(inside, target - before, right=True).clamp_(max=_BLOCK - 1)
    drawn = (block * _BLOCK + place)[:, 0].tolist()
    return [
        # rounding at the very end of a block
        token if token < width and legal[i, token] else int(weights[i].argmax())
        for i, token in enumerate(drawn)
    ]


def _turned(x: Tensor, turn: tuple[Tensor, Tensor]) -> Tensor:
    left, right = x.chunk(2, dim=-1)
    return x * turn[0] + torch.cat([-right, left], dim=-1) * turn[1]
