"""`Target`: a model together with the cache of one sequence.

Owns the cache: what is in it, how many positions, and how rejected drafts leave it. The loop
appends token ids and gets the logits of the last few; after verification it crops.

Invariants
- `length` counts exactly the ids given so far, minus what was cropped; the cache holds the first
  of them, the others are read in front of the next ids;
- a crop is an exact undo: the next logits equal those of a cache that never saw the dropped ids
  (up to the rounding of a differently shaped matrix product);
- logits are [rows, logit_width] in the model's dtype, on its device: what reads them widens them;
- all positions are told, none is left to what a cache says of its length.

How ids leave. Full attention is cut. Sliding windows and short convolutions are cut too, when the
cache records what it drops, which is switched on behind the prompt of a text that is drafted, so
that a long prompt does not hold it. A recurrent state cannot be cut: an earlier one is restored
(`checkpoints`), and what stays of the text since is read again together with the next ids. What has
no usable cache (`reading.Reading`) is read whole in every forward.

Texts beyond a `reading.rope_edge` are read with other frequencies than shorter ones: the cache
starts anew when the edge is passed, in either direction, and logits on both sides cost two
forwards.

Cost: one forward per call, one more for a prompt with drafts behind it on a model with sliding
windows or recurrent states; one per token where the network cannot take several.

Sibling: transformers' `_assisted_decoding` keeps its cache inside `generate`.

Example::

    target = Target(model)
    rows = target.forward(prompt_ids + draft, keep=len(draft) + 1)
    target.crop(rejected)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from structspec.errors import ModelError, PromptError
from structspec.forward.checkpoints import Checkpoint
from structspec.forward.reading import Reading, cache_argument, reading_of, rope_edge
from structspec.models import Model
from structspec.signatures import argument_names

__all__ = ["Target"]

# Ids in front of a draft that are worth a forward of their own, so that a checkpoint stands behind
# them and they are not read again with every draft that is refused.
_REREAD = 32
# A first piece shorter than this is read again rather than continued one token at a time: networks
# take a piece of one token for the continuation of another text.
_FIRST = 8


class Target:
    """One sequence on a causal language model: append ids, read logits, undo.

    `forwards` counts calls of the model, `length` the positions held. `window` is the model's
    context window, None if it has no known limit. `reading`: how the network is read; None: as
    `reading_of` finds. Raises `ModelError` if the network takes no cache at all or does not run.
    """

    def __init__(self, model: Model, reading: Reading | None = None) -> None:
        self.model = model
        self.window = model.window
        self.forwards = 0
        self._device = model.device
        parameters = argument_names(model.model.forward)
        argument = cache_argument(parameters)
        if argument is None and "use_cache" not in parameters:
            raise ModelError(
                f"{type(model.model).__name__}.forward takes no key/value cache; "
                "structspec needs a model that supports use_cache"
            )
        self._argument = argument or "past_key_values"
        self._keeps_logits = "logits_to_keep" in parameters
        self._places = "position_ids" in parameters
        self._edge = rope_edge(model.text_config)
        self._reading = reading_of(model) if reading is None else reading
        self._ids: list[int] = []
        self._undoes = False  # whether ids may have to leave a cache that cannot forget
        self._restart()

    def _restart(self) -> None:
        """An empty cache; the ids that are held are read again."""
        self._cached = 0
        self._kept: list[Checkpoint] = []
        self._recording = False
        self._recorded_from = 0  # a cache that records cannot be cut to fewer positions than these
        self._beyond = False  # whether it was read with the frequencies behind the edge
        self._cache = (
            None if self._reading is Reading.WHOLE else _new_cache(self.model.model.config)
        )
        # layers that forget unless told to record; empty for plain full attention
        self._forgetful = self._cache is not None and any(
            hasattr(layer, "activate_past_recording") for layer in self._cache.layers
        )

    @property
    def length(self) -> int:
        """Positions held."""
        return len(self._ids)

    @property
    def croppable(self) -> bool:
        """Whether the cache itself can forget, without reading again. Certain after a forward."""
        if self._cache is None:
            return False
        return bool(getattr(self._cache, "is_croppable", True))

    def forward(self, ids: Sequence[int], keep: int = 1) -> Tensor:
        """Append `ids` and return the logits behind each of the last `keep` of them.

        Shape [keep, logit_width]; row i belongs to the token after `ids[len(ids) - keep + i]`.
        Raises `PromptError` if the window would be passed, `ModelError` if the model fails.
        """
        if not 0 < keep <= len(ids):
            raise ValueError(f"keep={keep} must be between 1 and the {len(ids)} ids given")
        if self.window is not None and self.length + len(ids) > self.window:
            raise PromptError(
                f"{self.length + len(ids)} tokens do not fit into the context window of "
                f"{self.window} tokens of {self.model.name}; shorten the prompt or max_tokens"
            )
        near = len(ids)  # ids of which the last wanted row stands in front of the edge
        if self._edge is not None:
            near = self._edge - self.length
            if near >= len(ids) or near <= len(ids) - keep:
                near = len(ids)
        if near == len(ids):
            return self._append(ids, keep)
        before = near - (len(ids) - keep)
        return torch.cat(
            [self._append(ids[:near], before), self._append(ids[near:], keep - before)]
        )

    def crop(self, count: int) -> None:
        """Forget the last `count` positions."""
        if count < 0 or count > self.length:
            raise ValueError(f"cannot crop {count} of {self.length} cached positions")
        left = self.length - count
        dropped = self._cached - left
        self._undoes = self._undoes or count > 0
        recorded = self._recording and left >= self._recorded_from
        if dropped > 0 and not (self.croppable and (recorded or not self._forgetful)):
            self._go_back(left)
        elif self._cache is not None and dropped > 0:
            self._shrink(dropped)
        elif self._recording and self._cached - self._recorded_from > _REREAD:
            self._shrink(0)
        del self._ids[left:]

    def _shrink(self, dropped: int) -> None:
        """Cut the cache; recorded layers shrink to their window, and forget what lay behind it."""
        assert self._cache is not None
        self._cache.crop(-dropped)
        self._cached -= dropped
        self._recorded_from = self._cached

    def _go_back(self, left: int) -> None:
        """Restore the last state that holds no more than `left` positions."""
        self._kept = [kept for kept in self._kept if kept.length <= left]
        if not self._kept:
            self._restart()
            return
        self._kept[-1].restore(self._cache)
        self._cached = self._kept[-1].length

    def _append(self, ids: Sequence[int], keep: int) -> Tensor:
        """`forward` on one side of the edge."""
        total = self.length + len(ids)
        beyond = self._edge is not None and total > self._edge
        short = self._reading is Reading.STEPS and self._cached < _FIRST
        if short or (self._cached and beyond != self._beyond):
            self._restart()
        self._beyond = beyond
        unread = [*self._ids[self._cached :], *ids]
        if self._cache is None:
            logits = self._call(unread, keep, 0)
        else:
            self._undoes = self._undoes or keep > 1
            head = len(unread) - keep
            if head > 0 and self._stands_alone(head):
                self._read(unread[:head], 1)
                unread = unread[head:]
            self._prepare_undo()
            logits = self._read(unread, keep)
        self._ids.extend(ids)
        return logits

    def _stands_alone(self, head: int) -> bool:
        """Whether the ids in front of the wanted rows are read by themselves."""
        if not self._undoes or not self._forgetful or self._recording:
            return False
        if self._reading is Reading.STEPS and not self._cached and head < _FIRST:
            return False  # it could not be continued
        return not self._cached or head > _REREAD

    def _prepare_undo(self) -> None:
        """See to it that the next ids can be forgotten."""
        if not self._undoes or not self._forgetful or self._recording:
            return
        assert self._cache is not None
        if self.croppable:
            self._cache.activate_past_recording()
            self._recording, self._recorded_from = True, self._cached
            return
        behind = self._cached - (self._kept[-1].length if self._kept else 0)
        if self._cached and (not self._kept or behind > _REREAD):
            # two of them, since a draft's own ids may lie between
            self._kept = [*self._kept[-1:], Checkpoint(self._cache, self._cached)]

    def _read(self, ids: Sequence[int], keep: int) -> Tensor:
        """Behind the cache; returns the last `keep` logits."""
        pieces = [list(ids)]
        if self._reading is Reading.STEPS:
            first = 1 if self._cached else max(len(ids) - keep + 1, min(_FIRST, len(ids)))
            pieces = [list(ids[:first]), *([one] for one in ids[first:])]
        rows = []
        left = len(ids)
        for piece in pieces:
            wanted = max(0, keep - (left - len(piece)))
            rows.append(self._call(piece, max(wanted, 1), self._cached)[-wanted or len(piece) :])
            left -= len(piece)
            self._cached += len(piece)
        return rows[0] if len(rows) == 1 else torch.cat(rows)

    @torch.inference_mode()
    def _call(self, ids: Sequence[int], keep: int, start: int) -> Tensor:
        tokens = torch.tensor([list(ids)], dtype=torch.long, device=self._device)
        options: dict[str, Any] = {"use_cache": self._cache is not None}
        if self._cache is not None:
            options[self._argument] = self._cache
        if self._keeps_logits:
            options["logits_to_keep"] = keep
        if self._places:
            places = torch.arange(start, start + len(ids), device=self._device)
            options["position_ids"] = places[None]
        output = self.model.model(input_ids=tokens, **options)
        self.forwards += 1
        logits: Tensor = output.logits[0, -keep:]
        return logits


def _new_cache(config: Any) -> Any:
    from transformers import DynamicCache

    return DynamicCache(config=config)
