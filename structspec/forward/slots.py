"""`SlotCache`: keys and values of many sequences, each at its own length, in fixed slots.

Owns the tensors. Row r of a layer holds position i of its sequence in slot i, so a row's length is
one integer: forgetting tokens is a subtraction, nothing is moved, and rows that keep different
numbers of tokens need no padding in front of them. What a rejected draft left behind lies at
positions that no query sees before it has been overwritten, because a query at position p attends
to slots 0..p only.

Invariants
- slots at or beyond a row's length are never read: the queries' masks end at their own positions;
- memory is zeroed before a row is used, since 0 · NaN of an unread slot would still be NaN;
- drafts that branch occupy the slots behind the row in node order; `keep` moves the chosen branch
  into place, and its keys carry their rotary positions with them.

Only layers of plain full attention fit here. `fits` says whether a model's are; sliding windows
and recurrent states keep transformers' own cache (`target.Target`).

Cost: a slot holds 2 · heads · width numbers per layer; writing is in place, where transformers'
dynamic cache copies every key and value in each forward.

Sibling: transformers' `StaticCache` has one length for all rows.

Example::

    cache = SlotCache(model.model.config)
    cache.begin(rows=[0, 1], starts=[7, 4], count=3)     # then run the model with cache=cache
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from transformers import DynamicCache
from transformers.cache_utils import Cache, CacheLayerMixin, DynamicLayer

from structspec.forward.reading import cache_argument, rope_edge
from structspec.signatures import argument_names

__all__ = ["SlotCache", "StoredLayer", "fits"]

_FIRST_SLOTS = 256


def fits(model: Any) -> bool:
    """Whether every layer of a transformers model keeps plain keys and values.

    And attends to what a caller's mask and positions say, whichever other rows there are.
    """
    config = model.config
    parameters = argument_names(model.forward)
    if not {"attention_mask", "position_ids", cache_argument(parameters)} <= parameters:
        return False
    if getattr(config, "alibi", False):
        return False  # the distance of two tokens would be read off a mask that we do not give
    if "local" in (getattr(config, "attention_layers", None) or ()):
        return False  # GPT-Neo: a window of its own making, by slots and not by positions
    if rope_edge(config.get_text_config(decoder=True)) is not None:
        return False  # the longest row would choose the frequencies of all
    try:
        layers = DynamicCache(config=config).layers
    except (AttributeError, KeyError, TypeError, ValueError):
        return False  # layers that this cache does not know
    return bool(layers) and all(type(layer) is DynamicLayer for layer in layers)


class StoredLayer(CacheLayerMixin):
    """One layer's keys and values, [rows, heads, slots, width], made at the first forward.

    plan: says how many `rows` and `slots` there are, and what a forward writes and reads.
    """

    is_croppable = False
    supports_early_init = False

    def __init__(self, plan: Any) -> None:
        super().__init__()
        self._plan = plan
        self.keys: Tensor = torch.empty(0)
        self.values: Tensor = torch.empty(0)

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Make room, of the types of what is to be stored."""
        self.keys, self.values = self._empty(key_states), self._empty(value_states)
        self.is_initialized = True

    def _empty(self, like: Tensor) -> Tensor:
        shape = (self._plan.rows, like.shape[1], self._plan.slots, like.shape[3])
        return torch.zeros(shape, dtype=like.dtype, device=like.device)

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        """Store a forward's keys and values, and return those that it reads."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        return self._write(self.keys, key_states), self._write(self.values, value_states)

    def _write(self, store: Tensor, new: Tensor) -> Tensor:
        """Write the new places into keys or values, and return what the forward reads."""
        raise NotImplementedError


class _Layer(StoredLayer):
    """The layer of rows that begin, end and grow on their own."""

    is_croppable = True

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        if self.is_initialized:
            self.make_room()
        return super().update(key_states, value_states)

    def make_room(self) -> None:
        """Grow to as many rows and slots as are planned."""
        plan, held = self._plan, self.keys.shape
        if held[0] < plan.rows or held[2] < plan.slots:
            self.keys, self.values = self._grown(self.keys), self._grown(self.values)

    def _write(self, store: Tensor, new: Tensor) -> Tensor:
        plan = self._plan
        if plan.one is not None:
            row, start = plan.one
            store[row : row + 1, :, start : start + new.shape[2]] = new
            return store[row : row + 1, :, : plan.visible]
        store[plan.row_index[:, None], :, plan.slot_index] = new.transpose(1, 2)
        if plan.span is not None:
            return store[plan.span, :, : plan.visible]
        return store[plan.row_index, :, : plan.visible]

    def _grown(self, old: Tensor) -> Tensor:
        new = self._empty(old)
        new[: old.shape[0], :, : old.shape[2]] = old
        return new

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self._plan.past + query_length, 0

    def get_seq_length(self) -> int:
        return self._plan.past

    def get_max_length(self) -> int:
        return -1


class _Plan:
    """Where the next forward writes and what it reads; shared by all layers."""

    def __init__(self) -> None:
        self.rows = 1
        self.slots = _FIRST_SLOTS
        self.past = 0
        self.visible = 0
        self.one: tuple[int, int] | None = None
        self.span: slice | None = None
        self.row_index: Tensor = torch.empty(0, dtype=torch.long)
        self.slot_index: Tensor = torch.empty(0, dtype=torch.long)

    def reserve(self, rows: int, slots: int = 0) -> None:
        """Plan for at least so many rows and slots."""
        self.rows = max(self.rows, rows)
        if slots > self.slots:
            self.slots = max(slots + _FIRST_SLOTS, self.slots * 3 // 2)


class SlotCache(Cache):
    """See the module. Give it to a model as its cache, after `begin`."""

    def __init__(self, config: Any) -> None:
        self._plan = _Plan()
        count = len(DynamicCache(config=config).layers)
        self._layers = [_Layer(self._plan) for _ in range(count)]
        super().__init__(layers=list(self._layers))

    def begin(
        self, rows: Sequence[int], starts: Sequence[int], count: int, device: Any = None
    ) -> None:
        """Prepare a forward of `count` columns on some rows.

        Column j of row `rows[i]` goes to slot `starts[i] + j`. The tensors grow as needed.
        """
        plan = self._plan
        plan.visible = max(starts) + count
        plan.reserve(max(rows) + 1, plan.visible)
        plan.past = plan.visible - count
        if len(rows) == 1:
            plan.one, plan.span = (rows[0], starts[0]), None
            return
        plan.one = None
        plan.row_index = torch.tensor(list(rows), device=device)
        columns = torch.arange(count, device=device)
        plan.slot_index = torch.tensor(list(starts), device=device)[:, None] + columns
        consecutive = list(rows) == list(range(rows[0], rows[0] + len(rows)))
        plan.span = slice(rows[0], rows[0] + len(rows)) if consecutive else None

    def _stores(self) -> list[Tensor]:
        layers = [layer for layer in self._layers if layer.is_initialized]
        return [store for layer in layers for store in (layer.keys, layer.values)]

    @torch.inference_mode()
    def copy_slots(self, source: int, target: int, first: int, last: int) -> None:
        """Copy slots first..last-1 of one row to the same slots of another."""
        self._plan.reserve(target + 1)
        for layer in self._layers:
            if layer.is_initialized:
                layer.make_room()
        for store in self._stores():
            store[target, :, first:last] = store[source, :, first:last]

    @torch.inference_mode()
    def copy_out(self, row: int, count: int) -> list[Tensor]:
        """Copies of a row's first `count` slots: keys and values of each layer in turn."""
        return [store[row, :, :count].clone() for store in self._stores()]

    @torch.inference_mode()
    def copy_in(self, row: int, stores: Sequence[Tensor], count: int) -> None:
        """Write the first `count` slots of what `copy_out` returned to a row."""
        self._plan.reserve(row + 1, count)
        for layer, keys, values in zip(self._layers, stores[::2], stores[1::2], strict=True):
            if not layer.is_initialized:
                layer.lazy_initialization(keys[None], values[None])
            layer.make_room()
            layer.keys[row, :, :count] = keys[:, :count]
            layer.values[row, :, :count] = values[:, :count]

    @torch.inference_mode()
    def keep(self, row: int, start: int, nodes: Sequence[int]) -> None:
        """Move the slots of some nodes behind slot `start` together: node i goes to place i."""
        if list(nodes) == list(range(len(nodes))):
            return
        for store in self._stores():
            chosen = store[row, :, [start + node for node in nodes]]
            store[row, :, start : start + len(nodes)] = chosen

    @torch.inference_mode()
    def clear(self, row: int) -> None:
        """Zero a row, so that no number of its last sequence is left."""
        for store in self._stores():
            if row < store.shape[0]:
                store[row].zero_()
