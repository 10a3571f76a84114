"""`Checkpoint`: what a cache held at one length, for caches that cannot forget.

Owns copies of recurrent states, and references to the keys and values beside them. A recurrent
state cannot be shortened; whoever must go back restores an earlier one and reads again what came
since.

Invariants
- a cache that is restored equals the one that was kept, as often as it is restored;
- nothing of a checkpoint is written to: transformers' dynamic layers make new keys and values in
  each forward, recurrent states are overwritten and so are copied.

Cost: one copy of the recurrent states when a checkpoint is made and one when it is used.

Sibling: transformers' `activate_past_recording`, which layers without a recurrent state know.

Example::

    kept = Checkpoint(cache, length=12)
    ...                                # further forwards
    kept.restore(cache)
"""

from __future__ import annotations

from typing import Any

from torch import Tensor
from transformers.cache_utils import DynamicLayer

__all__ = ["Checkpoint"]

# Made anew by every update of a dynamic layer, never written to.
_REPLACED = ("indexer_keys", "indexer_position_ids", "keys", "values")


class Checkpoint:
    """See the module. `length`: how many positions the cache held."""

    def __init__(self, cache: Any, length: int) -> None:
        self.length = length
        self._layers = [_state(layer, vars(layer)) for layer in cache.layers]

    def restore(self, cache: Any) -> None:
        """Make a cache, of the same layers, what it was."""
        for layer, state in zip(cache.layers, self._layers, strict=True):
            vars(layer).clear()
            vars(layer).update(_state(layer, state))


def _state(layer: Any, held: dict[str, Any]) -> dict[str, Any]:
    replaced = _REPLACED if isinstance(layer, DynamicLayer) else ()
    return {k: value if k in replaced else _copied(value) for k, value in held.items()}


def _copied(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.clone()
    if isinstance(value, dict):
        return {key: _copied(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_copied(part) for part in value)
    return value
