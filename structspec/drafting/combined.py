"""`CombinedDraft`: what must follow, what usually follows, and look-up where neither is known.

Owns the order and the length of an untrained draft. First what earlier answers wrote at this
state, where that is sure (see `habits`), then forced spans, then the prompt;
then what earlier answers wrote even if it is less sure. A forced span costs little and is nearly
always kept; what is looked up is a guess. So the length counts *guesses*: a draft ends when its
guesses are used up, and how many it may hold follows what recent drafts got through.

Invariants
- one-hot, like both of its parts;
- the number of guesses depends on earlier steps only, never on the tokens of this draft.

Cost: that of its parts; one mask per token. Verifying eight tokens instead of one costs a
small model on one CPU core 1.2 times as much in bfloat16 and about twice in float32, so a guess
pays if it is right one time in seven or more.

Siblings: `ForcedDraft` and `LookupDraft`, two of its parts.

Example::

    drafter = CombinedDraft().begin(Request(constraint, prompt_ids))
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from structspec.drafting.draft import (
    Draft,
    DraftBuilder,
    Drafter,
    DraftSource,
    Request,
)
from structspec.drafting.forced import ForcedSpans
from structspec.drafting.habits import LIKELY, SURE, Habits
from structspec.drafting.lengths import guesses_after
from structspec.drafting.lookup import ContextIndex, LookupDraft
from structspec.drafting.together import Plan, draft_alone, plan_of

__all__ = ["CombinedDraft", "FirstOf"]


@dataclass(frozen=True)
class CombinedDraft:
    """Forced spans, earlier answers and prompt look-up in one draft.

    `limit`: tokens per draft. `guesses`: tokens of the first draft that are guesses; later ones
    adapt between 1 and `max_guesses`. `lookup`: the look-up's own settings.
    """

    limit: int = 32
    guesses: int = 4
    max_guesses: int = 16
    lookup: LookupDraft = field(default_factory=LookupDraft)

    def begin(self, request: Request) -> _CombinedDrafter:
        """A drafter for one request."""
        return _CombinedDrafter(request, self)


class _CombinedDrafter:
    def __init__(self, request: Request, settings: CombinedDraft) -> None:
        self._constraint = request.constraint
        self._settings = settings
        self._spans = ForcedSpans(request.constraint)
        self._index = ContextIndex(request.constraint, settings.lookup)
        self._habits = Habits.of(request)
        self._limit = settings.limit
        if self._habits is not None and self._habits.limit is not None:
            self._limit = min(self._limit, self._habits.limit)
        self._guesses = settings.guesses
        self._guessed: list[int] = []  # places of the guesses in the last draft

    def propose(self, state: int, context: Sequence[int], left: int, step: int) -> Draft:
        self._index.update(context)
        if self._habits is not None:
            self._habits.update(state, context)
        builder = DraftBuilder(self._constraint, state, left, self._limit)
        self._guessed = []
        while builder.room:
            before = len(builder.tokens)
            if self._habits is not None:
                self._guessed += self._habits.extend(builder, self._left(), SURE)
            self._spans.extend(builder)
            first = len(builder.tokens)
            if self._index.extend(builder, self._left()):
                self._guessed += range(first, len(builder.tokens))
            elif self._habits is not None:
                self._guessed += self._habits.extend(builder, self._left(), LIKELY, 1)
            if len(builder.tokens) == before:
                break
        return builder.build()

    def _left(self) -> int:
        """Guesses that this draft may still hold."""
        return self._guesses - len(self._guessed)

    def close(self) -> None:
        """Learn how the text ended."""
        if self._habits is not None:
            self._habits.close()

    def observe(self, draft: Draft, accepted: int) -> None:
        most = self._settings.max_guesses
        self._guesses = guesses_after(self._guesses, most, self._guessed, accepted)


class FirstOf:
    """Asks one draft first and another where it has little to say: look-up, then a model.

    The first one's draft is taken if it has at least `least` tokens. Which one drafts depends on
    the text so far only, so the output's law is unchanged; the first must be deterministic.

        FirstOf(LookupDraft(), ModelDraft(small))
    """

    def __init__(self, first: DraftSource, second: DraftSource, least: int = 2) -> None:
        self.first = first
        self.second = second
        self.least = least

    def begin(self, request: Request) -> _FirstOfDrafter:
        """A drafter for one request."""
        # who drafts decides about the text where the second one samples
        first = self.first.begin(replace(request, steady=False))
        return _FirstOfDrafter(first, self.second.begin(request), self.least)


class _FirstOfDrafter:
    def __init__(self, first: Drafter, second: Drafter, least: int) -> None:
        self._first = first
        self._second = second
        self._least = least
        self._by_first = False

    def propose(self, state: int, context: Sequence[int], left: int, step: int) -> Draft:
        return draft_alone(self.plan(state, context, left, step, 1))[0]

    def plan(self, state: int, context: Sequence[int], left: int, step: int, count: int) -> Plan:
        draft = self._first.propose(state, context, left, step)
        self._by_first = len(draft) >= self._least and draft.q is None
        if self._by_first:
            return [draft]
        drafts = yield from plan_of(self._second, state, context, left, step, 1)
        return drafts

    def observe(self, draft: Draft, accepted: int) -> None:
        (self._first if self._by_first else self._second).observe(draft, accepted)

    def close(self) -> None:
        for drafter in (self._first, self._second):
            close = getattr(drafter, "close", None)
            if close is not None:
                close()
