"""`Target`: a model together with the key/value cache of one sequence.

Owns the cache: what is in it, how many positions, and how rejected drafts leave it. The loop
appends token ids and gets the logits of the last few; after verification it crops.

Invariants
- `length` positions are cached and they are exactly the ids given so far, minus what was cropped;
- a crop is an exact undo: the next logits equal those of a cache that never saw the dropped ids
  (up to the rounding of a differently shaped matrix product);
- logits are [rows, logit_width] in the model's dtype, on its device: what reads them widens them.

Only what rolls back can be drafted on. Full attention always can; sliding windows and short
convolutions can when the cache records what it drops, which is switched on after the prompt so
that a long prompt does not hold it; a recurrent state cannot, and `crop` says so.

Cost: one forward per call, one more for a prompt on a model with sliding windows.

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

from structspec.errors import DraftError, ModelError, PromptError
from structspec.models import Model
from structspec.signatures import argument_names

__all__ = ["Target"]


class Target:
    """One sequence on a causal language model: append ids, read logits, undo.

    `forwards` counts calls of the model, `length` the cached positions. `window` is the model's
    context window, None if it has no known limit.
    """

    def __init__(self, model: Model) -> None:
        self.model = model
        self.window = model.window
        self.length = 0
        self.forwards = 0
        self._device = model.device
        parameters = argument_names(model.model.forward)
        # transformers renamed the argument; both spellings live in the supported range
        self._argument = "cache" if "cache" in parameters else "past_key_values"
        if self._argument not in parameters and "kwargs" not in parameters:
            raise ModelError(
                f"{type(model.model).__name__}.forward takes no key/value cache; "
                "structspec needs a model that supports use_cache"
            )
        self._keeps_logits = "logits_to_keep" in parameters
        self._cache = _new_cache(model.model.config)
        # layers that forget unless told to record; empty for plain full attention
        self._forgetful = [
            layer for layer in self._cache.layers if hasattr(layer, "activate_past_recording")
        ]
        self._recording = False

    @property
    def croppable(self) -> bool:
        """Whether rejected tokens can be undone. Certain only after the first forward."""
        return bool(getattr(self._cache, "is_croppable", True))

    def forward(self, ids: Sequence[int], keep: int = 1) -> torch.Tensor:
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
        if self._forgetful and not self._recording:
            # The prompt may fill sliding windows unrecorded (less memory); drafts may not.
            if len(ids) > keep:
                self._call(ids[:-keep], 1)
                ids = ids[-keep:]
            self._cache.activate_past_recording()
            self._recording = True
        return self._call(ids, keep)

    def crop(self, count: int) -> None:
        """Forget the last `count` positions. Raises `DraftError` if the cache cannot."""
        if count < 0 or count > self.length:
            raise ValueError(f"cannot crop {count} of {self.length} cached positions")
        if count and not self.croppable:
            raise DraftError(
                f"the cache of {self.model.name} cannot forget rejected tokens (it keeps a "
                "recurrent state); decode it without a draft"
            )
        if count or self._recording:  # recorded layers shrink to their window here
            self._cache.crop(-count)
        self.length -= count

    @torch.inference_mode()
    def _call(self, ids: Sequence[int], keep: int) -> torch.Tensor:
        tokens = torch.tensor([list(ids)], dtype=torch.long, device=self._device)
        options: dict[str, Any] = {self._argument: self._cache, "use_cache": True}
        if self._keeps_logits:
            options["logits_to_keep"] = keep
        output = self.model.model(input_ids=tokens, **options)
        self.length += len(ids)
        self.forwards += 1
        logits: torch.Tensor = output.logits[0, -keep:]
        return logits


def _new_cache(config: Any) -> Any:
    from transformers import DynamicCache

    return DynamicCache(config=config)
