"""`LoopCache`: keys and values of a few drafts at addresses that never change.

Owns one text in K copies: row 0 reads the text, `spread` copies what is new to the other rows, and
then all rows take one drafted token each per turn, at a slot whose number lies on the device. A
turn has the addresses and shapes of the one before, so a loop of turns can be captured in a CUDA
graph. What a draft left behind is overwritten by the next text, and masks end at the slot in use.

Invariants
- while looping, every query sees the slots 0..position of its own row, nothing behind them;
- tensors are allocated once, for `slots` positions; a longer text needs a new cache.

Only plain full attention fits (`slots.fits`), by "sdpa" or "eager" attention.

Cost: K rows of `slots` keys and values; attention in a turn covers `visible` slots.

Sibling: `forward.slots.SlotCache` grows, and its rows differ in length.

Example::

    cache = LoopCache(network, rows=2, slots=512)
    logits = cache.read(prompt_ids)                     # behind the text
    cache.spread(); cache.start(visible=512)
    logits = cache.turn(tokens)                         # [2, V], again and again
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from transformers import DynamicCache
from transformers.cache_utils import Cache

from structspec.forward.reading import cache_argument
from structspec.forward.slots import StoredLayer
from structspec.signatures import argument_names

__all__ = ["LoopCache"]


class _Layer(StoredLayer):
    """One layer's keys and values, [K, heads, slots, width]; its plan is the cache itself."""

    def _write(self, store: Tensor, new: Tensor) -> Tensor:
        owner = self._plan
        if owner.reading is None:
            store.index_copy_(2, owner.position, new)
            return store[:, :, : owner.visible]
        first = owner.reading
        store[:1, :, first : first + new.shape[2]] = new
        return store[:1, :, : first + new.shape[2]]

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self._plan.seen(query_length), 0

    def get_seq_length(self) -> int:
        return self._plan.seen(0)

    def get_max_length(self) -> int:
        return self._plan.slots


class LoopCache:
    """See the module. `ids`: the text that row 0 holds."""

    def __init__(self, network: Any, rows: int, slots: int) -> None:
        self.rows, self.slots = rows, slots
        self.ids: list[int] = []
        self.reading: int | None = None
        self.visible = slots
        self._network = network
        parameters = argument_names(network.forward)
        self._keeps_logits = "logits_to_keep" in parameters
        self._argument = cache_argument(parameters) or "past_key_values"
        device = network.get_input_embeddings().weight.device
        self.position = torch.zeros(1, dtype=torch.long, device=device)
        self._places = torch.arange(slots, device=device)
        self._eager = getattr(network.config, "_attn_implementation", None) == "eager"
        self._layers = [
            _Layer(self) for _ in range(len(DynamicCache(config=network.config).layers))
        ]
        self._cache = Cache(layers=list(self._layers))
        self._spread_to = 0  # slots that all rows share

    def seen(self, query_length: int) -> int:
        """Slots that a call of some columns sees, its own included, as far as the host knows."""
        return self.visible if self.reading is None else self.reading + query_length

    @torch.inference_mode()
    def read(self, ids: Sequence[int]) -> Tensor:
        """Bring row 0 to the text `ids`; the logits [1, V] behind it."""
        same = 0
        most = min(len(self.ids), len(ids) - 1)
        while same < most and self.ids[same] == ids[same]:
            same += 1
        device = self.position.device
        tokens = torch.tensor([list(ids[same:])], device=device)
        self.reading = same
        self._spread_to = min(self._spread_to, same)
        positions = torch.arange(same, len(ids), device=device)
        mask = self._places[: len(ids)] <= positions[:, None]
        logits = self._call(tokens, positions[None], mask[None, None])
        self.reading = None
        self.ids = list(ids)
        return logits

    @torch.inference_mode()
    def spread(self) -> None:
        """Give every row the text of row 0."""
        first, last = self._spread_to, len(self.ids)
        if self.rows > 1 and first < last:
            for layer in self._layers:
                for store in (layer.keys, layer.values):
                    store[1:, :, first:last] = store[:1, :, first:last]
        self._spread_to = last

    def start(self, visible: int) -> None:
        """The next turn takes the slot behind the text; turns see `visible` slots at most.

        A turn beyond slot `visible` would write where nothing reads.
        """
        self.visible = visible
        self.position.fill_(len(self.ids))

    def turn(self, tokens: Tensor) -> Tensor:
        """Feed one token [K] to each row; the logits [K, V] behind them. Never waits."""
        seen = self._places[: self.visible] <= self.position
        positions = self.position.expand(self.rows)[:, None]
        mask = seen[None, None, None].expand(self.rows, 1, 1, self.visible)
        logits = self._call(tokens[:, None], positions, mask)
        self.position += 1
        return logits

    def _call(self, tokens: Tensor, positions: Tensor, mask: Tensor) -> Tensor:
        if self._eager:
            dtype = self._network.dtype
            mask = torch.zeros(mask.shape, dtype=dtype, device=mask.device).masked_fill_(
                ~mask, torch.finfo(dtype).min
            )
        options: dict[str, Any] = {self._argument: self._cache, "use_cache": True}
        if self._keeps_logits:
            options["logits_to_keep"] = 1
        output = self._network(
            input_ids=tokens, position_ids=positions, attention_mask=mask, **options
        )
        logits: Tensor = output.logits[:, -1]
        return logits
