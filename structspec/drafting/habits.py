"""`Habits`: guesses from what earlier answers of the same grammar wrote (`structspec.history`).

Owns one request's part in it: what is written is learnt, state by state, and drafts go on with what
usually follows.

Invariants
- only requests take part whose texts do not depend on what is drafted (`Request.steady`): what
  others asked before must be no part of a text that a seed stands for;
- greedy and sampled texts are kept apart: sampled ones say more about rare choices;
- tokens of the prompt belong to no context.

Cost: a transition per token that is learnt; look-ups in dictionaries per guess.

Siblings: `lookup.ContextIndex` copies from the prompt, `forced.ForcedSpans` writes what must
follow; `combined` asks all three.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

from structspec.drafting.draft import DraftBuilder, Request
from structspec.errors import StructspecError
from structspec.history import BEFORE, History

__all__ = ["LIKELY", "SURE", "Habits"]

#: A guess this sure goes before all others; one this likely is made where nobody else has one.
SURE, LIKELY = 0.6, 0.3
# Surer ones are nearly always right and do not count as guesses.
_CERTAIN = 0.8


class Habits:
    """See the module. Made by `of`, for one request.

    `limit`: tokens that a draft should hold at most, None for any number. Where products of our own
    run, what usually follows is rarely worth more rows than they multiply at once.
    """

    def __init__(self, history: History, request: Request) -> None:
        self._history = history
        self._constraint = request.constraint
        base = getattr(request.constraint, "base", request.constraint)
        number = history.number(getattr(base, "cache", base))
        self._grammar = number if request.sampling.temperature == 0 else ~number
        self._first = self._learnt = len(request.prompt)
        self._state = request.constraint.start
        self._context = request.prompt
        self.limit = _limit(request.model)

    @classmethod
    def of(cls, request: Request) -> Habits | None:
        """For a steady request to a model that has a history; else None."""
        history = getattr(request.model, "history", None)
        return cls(history, request) if history is not None and request.steady else None

    def update(self, state: int, context: Sequence[int]) -> None:
        """Learn what `context` has beyond the last call; it leads to `state`."""
        self._context = context
        self._learn()
        self._state = state

    def close(self) -> None:
        """Learn what the context of the last call has got since: the end of the text."""
        with contextlib.suppress(StructspecError):  # of states that are gone
            self._learn()

    def _learn(self) -> None:
        context, state = self._context, self._state
        for at in range(self._learnt, len(context)):
            self._history.learn(self._grammar, state, self._before(at), context[at])
            state = self._constraint.advance(state, context[at])
        self._learnt, self._state = max(self._learnt, len(context)), state

    def _before(self, at: int) -> Sequence[int]:
        """The tokens of the text that belong to the context of a place."""
        return self._context[max(self._first, at - BEFORE) : at]

    def extend(
        self, builder: DraftBuilder, most: int, least: float, tokens: int | None = None
    ) -> list[int]:
        """Append what usually follows, while it is at least so likely.

        most: guesses that may be appended; tokens: tokens in all, None for any number. Returns the
        places of the guesses. What is certain is no guess.
        """
        before = [*self._before(len(self._context)), *builder.tokens]
        guessed: list[int] = []
        end = None if tokens is None else len(builder.tokens) + tokens
        while end is None or len(builder.tokens) < end:
            token, likely = self._history.guess(self._grammar, builder.state, before)
            certain = likely >= _CERTAIN
            if likely < least or (not certain and len(guessed) >= most) or not builder.add(token):
                break
            if not certain:
                guessed.append(len(builder.tokens) - 1)
            before.append(token)
        return guessed


def _limit(model: Any) -> int | None:
    find = getattr(getattr(model, "model", None), "get_output_embeddings", None)
    if find is None:
        return None
    from structspec.linear import ROWS_AT_ONCE, FewRowsLinear

    # One row is that of the token before the draft.
    return ROWS_AT_ONCE - 1 if type(find()) is FewRowsLinear else None
