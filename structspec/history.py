"""`History`: which tokens earlier answers wrote at each state of their grammar.

The same function is asked again and again for values of one type, and much of what it writes
repeats: which optional members there are, the usual choice of an enum, a unit, null, a closing
bracket. Nothing of that stands in a prompt. Since a state of the automaton is an integer, the
tokens behind it can be counted, with and without the tokens before: an n-gram model whose contexts
know where in the value they stand.

It only helps to draft (`drafting.habits`): what it says is verified like any guess, and a wrong one
costs a part of a forward.

Invariants
- behind each context the last `_RECENT` tokens are kept, so that new habits replace old ones;
- at most `entries` contexts are kept, of all grammars together; those that were not learnt from
  lately go first. States of grammars that are gone are never asked for;
- no prompt and no text is kept: tokens, by state and by the two tokens before.

Cost: three look-ups per token that is learnt, as many per guess; at most 30 MB. Threads may share
it: if two write to one context at once, one of the two tokens is lost.

Sources: Z. He et al., "REST: Retrieval-based speculative decoding", 2023; G. Oliaro et al.,
"SuffixDecoding", 2024; the n-gram caches of llama.cpp. They look at tokens alone.

    >>> history = History()
    >>> for _ in range(3):
    ...     history.learn(grammar=1, state=7, before=(5,), token=9)
    >>> history.guess(grammar=1, state=7, before=(5,))
    (9, 0.75)
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Sequence
from typing import Any

__all__ = ["BEFORE", "History"]

# Tokens that are kept behind a context.
_RECENT = 8
#: Tokens before a place that belong to its longest context.
BEFORE = 2
# Contexts that are kept.
_ENTRIES = 1 << 16

_Context = tuple[int, ...]


class History:
    """See the module. A `Model` has one (`Model.history`), unless it was told not to."""

    def __init__(self, entries: int = _ENTRIES) -> None:
        self._half = max(1, entries // 2)
        # Two generations: when the younger one is full the older one goes.
        self._young: dict[_Context, tuple[int, ...]] = {}
        self._old: dict[_Context, tuple[int, ...]] = {}
        self._numbers: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
        self._count = itertools.count()

    def __reduce__(self) -> tuple[Any, ...]:
        """Copied and pickled without what it keeps: states of this process."""
        return type(self), (2 * self._half,)

    def __len__(self) -> int:
        """How many contexts are kept."""
        return len(self._young) + len(self._old)

    def clear(self) -> None:
        """Forget everything."""
        self._young, self._old = {}, {}

    def number(self, owner: Any) -> int:
        """A number for whoever owns states, so that they are not taken for another's."""
        found = self._numbers.get(owner)
        if found is None:
            found = self._numbers.setdefault(owner, next(self._count))
        return found

    def learn(self, grammar: int, state: int, before: Sequence[int], token: int) -> None:
        """Learn that `token` followed `state` behind the tokens `before`.

        grammar: of the state's owner, from `number`.
        """
        for context in _contexts(grammar, state, before):
            known = self._young.get(context) or self._old.get(context, ())
            self._young[context] = (*known[1 - _RECENT :], token)
        if len(self._young) > self._half:
            self._old, self._young = self._young, {}

    def guess(self, grammar: int, state: int, before: Sequence[int]) -> tuple[int, float]:
        """The likeliest next token and its share of what was seen; (−1, 0.0) if nothing was.

        One more than was seen is counted as something else. Of several contexts the surest one
        decides, the longest of those that are equally sure.
        """
        best, most = -1, 0.0
        for context in _contexts(grammar, state, before):
            known = self._young.get(context) or self._old.get(context)
            if known is None:
                continue
            token = max(reversed(known), key=known.count)  # the latest of the most frequent
            share = known.count(token) / (len(known) + 1)
            if share > most:
                best, most = token, share
        return best, most


def _contexts(grammar: int, state: int, before: Sequence[int]) -> list[_Context]:
    """The contexts of a place, the longest first."""
    tail = tuple(before[-BEFORE:])
    return [(grammar, state, *tail[k:]) for k in range(len(tail) + 1)]
