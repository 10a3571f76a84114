"""`GrammarLogitsProcessor`: the grammar's mask inside transformers' own `generate`.

A pure function of `input_ids`: the state of each row is found from its own ids, by transitions that
are remembered, so nothing has to be rolled back. Repeated and cropped prefixes, reordered beams,
rows that have ended and drafts that leave the language are all the same to it, and one object
serves target and assistant at once: give it to `generate(..., assistant_model=...)` and both are
masked.

Invariants
- behind a prefix of the language exactly the legal tokens keep their scores, the others are -inf;
- behind an end token or a prefix outside the language (a draft that will be refused) only end
  tokens are allowed: the row stays finite, and nothing that was refused comes back;
- with `max_new_tokens` the text is complete within that many tokens, whatever is sampled.

Where the prompt ends: `prompt_length` says it, for rows that all have the same length, left padding
included. Without it the first call tells: its whole rows are prompts, and later rows belong to the
prompt they start with. Rows that start with none of them are new prompts. So a processor may serve
many calls of `generate`, except one whose prompt continues an earlier prompt (a chat's next turn):
pass `prompt_length` there, or make a new processor.

Cost: one dictionary look-up per id of the row and call, and one mask per row.

Sibling: `custom_generate.speculate`, structspec's own loop inside `generate`.

Example::

    processor = GrammarLogitsProcessor(grammar.bind(vocab), max_new_tokens=100)
    model.generate(**inputs, logits_processor=[processor], max_new_tokens=100)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import LogitsProcessor

from structspec.errors import PromptError, TokenBudgetError, TokenRejected, VocabularyError
from structspec.kernels.unpack_masks import unpack_masks
from structspec.packed import pack

__all__ = ["GrammarLogitsProcessor"]

_DEAD = None
_REMEMBERED = 1_000_000


class GrammarLogitsProcessor(LogitsProcessor):
    """See the module.

    constraint: a grammar bound to the model's vocabulary; a sequence holds one for each prompt of
        the batch, whose rows stand side by side (as `num_beams` and `num_return_sequences` expand
        them).
    prompt_length: ids in front of the text; None detects it.
    max_new_tokens: as given to `generate`; None leaves length to the model and the grammar.

    Raises `TokenBudgetError` if a text cannot be completed within `max_new_tokens`, and from calls
    `VocabularyError` if the scores have fewer columns than the vocabulary has ids, `PromptError` if
    the rows cannot be shared out among the constraints.
    """

    def __init__(
        self,
        constraint: Any,
        *,
        prompt_length: int | None = None,
        max_new_tokens: int | None = None,
    ) -> None:
        listed = isinstance(constraint, Sequence)
        self.constraints: tuple[Any, ...] = tuple(constraint) if listed else (constraint,)
        if not self.constraints:
            raise PromptError("an empty list of constraints masks nothing; pass at least one")
        for one in self.constraints:
            if not hasattr(one, "advance"):
                raise TypeError(
                    f"a constraint is needed, not {type(one).__name__}; make one with "
                    "structspec.compile(schema).bind(vocab)"
                )
        if prompt_length is not None and prompt_length < 0:
            raise ValueError(f"prompt_length={prompt_length} is negative")
        self.prompt_length = prompt_length
        self.max_new_tokens = max_new_tokens
        if max_new_tokens is not None:
            for one in self.constraints:
                needed = int(one.distance(one.start))
                if needed > max_new_tokens:
                    raise TokenBudgetError(max_new_tokens, needed, one.distance_is_exact(one.start))
        self._prompts: dict[int, set[bytes]] = {}  # by length
        self._steps: list[dict[tuple[int, int], int | None]] = [{} for _ in self.constraints]

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        """Scores [N, V] with -inf where a token is illegal behind its row of `input_ids` [N, T]."""
        rows = input_ids.detach().to("cpu", torch.int64).numpy()
        count, width = scores.shape
        per = count // len(self.constraints)
        if per * len(self.constraints) != count:
            raise PromptError(
                f"{count} rows cannot be shared out among {len(self.constraints)} constraints"
            )
        starts = self._starts(rows)
        masks = [self._mask(i // per, rows[i, starts[i] :].tolist(), width) for i in range(count)]
        legal = unpack_masks(np.stack(masks), width, scores.device)
        masked = scores.masked_fill(~legal, -torch.inf)
        lost = torch.isneginf(masked.amax(dim=-1))
        if bool(lost.any()):
            # another processor forbade all that is legal; equal scores keep the row samplable
            masked[lost] = torch.where(legal[lost], 0.0, -torch.inf).to(masked.dtype)
        return masked

    def _starts(self, rows: Any) -> list[int]:
        """Where the text begins in each row."""
        length = rows.shape[1]
        if self.prompt_length is not None:
            if self.prompt_length > length:
                raise PromptError(
                    f"prompt_length={self.prompt_length}, but the rows have {length} ids"
                )
            return [self.prompt_length] * len(rows)
        starts = []
        for row in rows:
            for known in sorted(self._prompts, reverse=True):
                if known <= length and row[:known].tobytes() in self._prompts[known]:
                    starts.append(known)
                    break
            else:
                self._prompts.setdefault(length, set()).add(row.tobytes())
                starts.append(length)
        return starts

    def _mask(self, which: int, tokens: list[int], width: int) -> Any:
        constraint = self.constraints[which]
        vocab = constraint.vocab
        if vocab.size > width:
            raise VocabularyError(
                f"the constraint's vocabulary has {vocab.size} ids, the scores {width} columns; "
                "bind the grammar to this model's vocabulary (an assistant with a vocabulary of "
                "its own cannot share the processor)"
            )
        state = self._state(which, tokens)
        if state is not _DEAD:
            left = None if self.max_new_tokens is None else self.max_new_tokens - len(tokens)
            mask = constraint.mask(state, left)
            if mask.any():
                return mask
        return pack(vocab.eos_ids, vocab.size)

    def _state(self, which: int, tokens: list[int]) -> int | None:
        """The state behind some tokens, None outside the language."""
        constraint, steps = self.constraints[which], self._steps[which]
        if len(steps) > _REMEMBERED:
            steps.clear()
        state = int(constraint.start)
        for token in tokens:
            try:
                following = steps[state, token]
            except KeyError:
                try:
                    following = int(constraint.advance(state, token))
                except TokenRejected:
                    following = _DEAD
                steps[state, token] = following
            if following is _DEAD:
                return _DEAD
            state = following
        return state
