"""Constraints of grammars with arrays whose items differ: masks beside a history.

A state inside such an array is a pair of a configuration and a `History` (`automata.distinct`),
numbered by the cache. Its row is the configuration's, which knows nothing of earlier items and is
shared by all texts, without the few tokens that would repeat one or leave no way not to. Only
tokens that can do that are looked at one by one: those that hold a quote or, while the running
item still begins like an earlier one, a backslash or the rest of that item.

Invariants: as for `Constraint`; a state outside such arrays has no history and the number that
`Constraint` would give it. Every byte of a token must be a token of its own (all common
tokenizers), since distances are counted in bytes where an item has to differ yet.

Cost: a row inside such an array takes about a thousand short scans in Python beyond the shared row.
Sibling: `constraint`, for all other grammars.

Example::

    >>> import structspec
    >>> vocab = structspec.Vocabulary([bytes((b,)) for b in range(32, 127)] + [None], eos_ids=[95])
    >>> schema = {"type": "array", "items": {"type": "string"}, "uniqueItems": True}
    >>> constraint = structspec.compile(schema, whitespace="compact").bind(vocab)
    >>> state = constraint.advance_bytes(constraint.start, b'["a","a')
    >>> ord('"') - 32 in constraint.allowed(state)
    False
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from structspec.automata.automaton import DEAD, UNREACHABLE
from structspec.automata.distinct import Distinct
from structspec.automata.histories import History
from structspec.automata.tables import Network
from structspec.errors import UnsupportedFeature
from structspec.limits import Limits
from structspec.masks.cache import END, Cache, Row
from structspec.masks.constraint import Constraint, as_int
from structspec.masks.tables import REJECTED, VocabularyTables, Words
from structspec.vocab import Vocabulary

__all__ = ["DistinctConstraint"]

# Rows with tokens taken out that are kept.
_MOST_ROWS = 256

Ids = NDArray[np.int64]


class DistinctConstraint(Constraint):
    """See the module; the methods are those of `Constraint`."""

    def __init__(
        self,
        network: Network,
        vocab: Vocabulary,
        limits: Limits | None = None,
        *,
        cache: Cache | None = None,
        assume_all_bytes: bool = False,
        saved: bytes | None = None,
    ) -> None:
        if not (assume_all_bytes or VocabularyTables.of(vocab).covered):
            raise UnsupportedFeature(
                "uniqueItems",
                "",
                "items without end are told apart byte by byte, and this vocabulary has tokens "
                "with bytes that are no token of their own; use another tokenizer, or list the "
                "items with 'enum'",
            )
        super().__init__(
            network, vocab, limits, cache=cache, assume_all_bytes=assume_all_bytes, saved=saved
        )
        self._suspects = _Suspects.of(vocab)

    # -- states ----------------------------------------------------------------------------

    def advance(self, state: int, token: int) -> int:
        """The state after a token; see `Constraint.advance`."""
        state, token = as_int("state", state), as_int("token", token)
        with self._cache.lock:
            if self._history(state) is None and token not in self._suspects.opening:
                return super().advance(state, token)
            return self._advance(state, int(token))

    def _step(self, state: int, token: int) -> int:
        cache = self._cache
        data = self.vocab.tokens[token] if 0 <= token < len(self.vocab.tokens) else None
        history = self._history(state)
        if not data or (history is None and token not in self._suspects.opening):
            return REJECTED if history is not None else super()._step(state, token)
        after, written = self._distinct.run(cache.configuration(state), history, data)
        if self._distinct.bound(after, written) >= UNREACHABLE:
            return REJECTED
        return cache.tracked(after, written)

    def advance_bytes(self, state: int, data: bytes) -> int | None:
        """The state after some bytes, or None if they do not fit; see `Constraint`."""
        if not data:
            return state
        if state == END:
            return None
        cache = self._cache
        with cache.lock:
            config, history = cache.configuration(state), self._history(state)
            after, written = self._distinct.run(config, history, data)
            if after == DEAD or self._distinct.bound(after, written) >= UNREACHABLE:
                return None
            return cache.tracked(after, written)

    def distance(self, state: int) -> int:
        """A certified bound on the tokens that complete the text; see `Constraint.distance`."""
        history = self._history(state)
        if history is None:
            return super().distance(state)
        with self._cache.lock:
            return self._distinct.bound(self._cache.configuration(state), history)

    def _history(self, state: int) -> History | None:
        return None if state == END else self._cache.history(state)

    @property
    def _distinct(self) -> Distinct:
        """The runner of the cache's automaton, which `compact` replaces."""
        cache = self._cache
        if cache.distinct is None:
            cache.distinct = Distinct(cache.automaton, np.flatnonzero(self._enabled).tolist())
        return cache.distinct

    # -- masks -----------------------------------------------------------------------------

    def mask(self, state: int, left: int | None = None) -> Row:
        """The allowed tokens; see `Constraint.mask`."""
        cache = self._cache
        if left is None and (known := cache.rows.get(state)) is not None:
            return known
        state = as_int("state", state)
        left = None if left is None else as_int("left", left)
        if state == END:
            return super().mask(state, left)
        with cache.lock:
            config, history = cache.configuration(state), self._history(state)
            row = self._shared(config, left)
            limit = UNREACHABLE - 1 if left is None else left - 1
            wrong = [
                token
                for token in self._doubtful(row, config, history)
                if self._bound_after(config, history, self.vocab.tokens[token] or b"") > limit
            ]
            if wrong:
                row = row.copy()
                for token in wrong:
                    row[token >> 5] &= ~np.uint32(1 << (token & 31))
                row.flags.writeable = False
            if left is None:
                if len(cache.rows) >= _MOST_ROWS:
                    cache.rows.clear()
                cache.rows[state] = row
            return row

    def _shared(self, config: int, left: int | None) -> Row:
        """The row of a configuration, whatever has been written."""
        row = self._cache.row(self._row(self._cache.state(config)))
        if left is None or self._cache.worst(config) <= left - 1:
            return row
        return self._compute(config, left - 1)[0]

    def fill(
        self,
        states: Sequence[int],
        out: NDArray[np.uint32],
        left: Sequence[int | None] | None = None,
    ) -> None:
        """Write the masks of many states into `out`; see `Constraint.fill`."""
        self._check_fill(states, out, left)
        for i, state in enumerate(states):
            out[i] = self.mask(state, None if left is None else left[i])

    def _bound_after(self, config: int, history: History | None, data: bytes) -> int:
        distinct = self._distinct
        return distinct.bound(*distinct.run(config, history, data))

    def _doubtful(self, row: Row, config: int, history: History | None) -> Iterator[int]:
        """The tokens of a row that may repeat an item, or leave no way not to."""
        if history is None:
            yield from _in_row(row, self._suspects.opening_more)
            return
        contested, suspects = history.contested, self._suspects
        looked: Iterable[Ids]
        if not contested and history.top.used is None:
            # an item that differs already; nothing repeats before it, or an inner array, has ended
            looked = suspects.closing_text if history.in_text else suspects.closing
        elif history.in_text and not contested:
            looked = (suspects.quoting,)
        elif history.in_string:
            looked = (suspects.quoting, suspects.escaping, self._beginnings(history))
        else:
            bits = np.unpackbits(row.view(np.uint8), bitorder="little")
            looked = (np.flatnonzero(bits),)
        tokens = self.vocab.tokens
        seen: set[int] = set()
        for ids in looked:
            for token in _in_row(row, ids):
                data = tokens[token] if token < len(tokens) else None
                if token in seen or not data:
                    continue
                seen.add(token)
                if self._distinct.repeats(history, data):
                    yield token

    def _beginnings(self, history: History) -> Ids:
        """Tokens whose text begins what is missing to an earlier item."""
        at = len(history.text)
        found: set[int] = set()
        for rival in history.scalars():
            if rival.startswith(history.text):
                found.update(self._suspects.beginnings(rival[at:]))
        return np.array(sorted(found), np.int64)


class _Suspects:
    """The tokens of a vocabulary that may decide whether an item repeats, by what they hold."""

    def __init__(self, vocab: Vocabulary) -> None:
        self._trie = vocab.trie
        tables = VocabularyTables.of(vocab)
        self._first = tables.trie.root
        lengths = np.diff(tables.get(Words.TOKEN_START))
        data = tables.get(Words.TOKEN_BYTES)[: lengths.sum()]
        owner = np.repeat(np.arange(len(lengths)), lengths)

        def holding(character: str) -> NDArray[np.bool_]:
            held = np.zeros(len(lengths), np.bool_)
            held[owner[data == ord(character)]] = True
            return held

        opening = holding("[")
        self.quoting: Ids = np.flatnonzero(holding('"'))
        self.escaping: Ids = np.flatnonzero(holding("\\"))
        self.opening = frozenset(np.flatnonzero(opening).tolist())
        self.opening_more: Ids = np.flatnonzero(opening & holding(","))
        ending = holding("]") | holding("}") | (opening & holding(","))
        self.closing = (np.flatnonzero(ending),)
        self.closing_text = (np.flatnonzero(ending & holding('"')),)

    def beginnings(self, text: bytes) -> Iterator[int]:
        """The tokens that `text` begins with."""
        trie = self._trie
        node = 0
        for depth, value in enumerate(text):
            if depth == 0:
                child = int(self._first[value])
            elif depth == 1:
                child = int(self._first[256 + 256 * text[0] + value])
            else:
                child, end = node + 1, int(trie.skip[node])
                while child < end and trie.byte[child] != value:
                    child = int(trie.skip[child])
                if child >= end:
                    return
            if child < 0:
                return
            node = child
            yield from trie.ids_at(node).tolist()

    @staticmethod
    def of(vocab: Vocabulary) -> _Suspects:
        """Those of a vocabulary, found on first use and kept with it."""
        found: _Suspects | None = vocab.__dict__.get("_suspects")
        if found is None:
            found = vocab.__dict__.setdefault("_suspects", _Suspects(vocab))
        return found


def _in_row(row: Row, ids: Ids) -> list[int]:
    """The tokens of `ids` that a row allows."""
    allowed = (row[ids >> 5] >> (ids & 31).astype(np.uint32)) & np.uint32(1)
    found: list[int] = ids[allowed.astype(np.bool_)].tolist()
    return found
