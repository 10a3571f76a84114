"""A grammar bound to a vocabulary: masks, transitions and certified distances on integer states.

`Constraint` is immutable and shareable; what it learns lives in its `Cache`. There is no matcher to
roll back: any state may be advanced from at any time, so a draft tree holds one integer per node.

Law (always closable): from every state that a mask lets you reach, this vocabulary can finish the
text. If every byte that occurs in some token is also a token of its own (*covered*, the case of
all byte-level and byte-fallback tokenizers), the costs of `automata.costs` decide that. Other
vocabularies are searched token by token, state by state, which is exact but meant for small ones.

Cost: a repeated mask is a dictionary look-up; for a new one see `fill`. Threads: everything may be
called from several threads; calls on the same cache wait for one another, and kernels that compute
rows release the interpreter lock, so constraints on different caches run side by side.

    >>> import structspec
    >>> vocab = structspec.Vocabulary([b"a", b"b", b"ab", None], eos_ids=[3])
    >>> constraint = structspec.compile("a[ab]", syntax="regex").bind(vocab)
    >>> bin(constraint.mask(constraint.start)[0])
    '0b101'
    >>> constraint.accepting(constraint.advance(constraint.start, 2))
    True
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from structspec import settings
from structspec.automata.automaton import DEAD
from structspec.automata.costs import solve_costs
from structspec.automata.member_costs import UNREACHABLE
from structspec.automata.tables import Network
from structspec.errors import (
    BudgetExceeded,
    StaleState,
    StructspecError,
    TokenRejected,
)
from structspec.limits import Limits
from structspec.masks.cache import END, Cache, Row
from structspec.masks.fill import UNLIMITED, compute_row, fill_states, plain_mechanism, row_at
from structspec.masks.helpers import FEWEST, keep_rows
from structspec.masks.pool import keep_row
from structspec.masks.probes import other_probes
from structspec.masks.serial import pack_costs, unpack_costs
from structspec.masks.steps import NONE, SEVERAL, advance_at, forced_bytes
from structspec.masks.tables import REJECTED, STALE, Knowledge, VocabularyTables
from structspec.masks.unsatisfiable import unsatisfiable
from structspec.vocab import Vocabulary

# Below this many tokens a full walk beats the bulk classes.
_BULK_VOCABULARY = 512
# How many states a search for a completion may visit when the vocabulary is not covered.
_SEARCH_LIMIT = 20_000
# `forced` stops here, in case that a grammar forces endless text.
_MOST_FORCED = 4096
_UINT32 = np.dtype(np.uint32)


class Constraint:
    """See the module. Made by `Grammar.bind`; raises `Unsatisfiable` if nothing can be written."""

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
        self._network = network
        self.vocab = vocab
        self.limits = limits or Limits()
        self._words = -(-vocab.size // 32)
        self._tables = tables = VocabularyTables.of(vocab)
        self._covered = assume_all_bytes or tables.covered
        enabled = np.ones(256, np.bool_) if assume_all_bytes else tables.enabled
        trie = tables.trie if self._covered and not assume_all_bytes else None
        self._assumed = assume_all_bytes
        named = {name: vocab.special_id(name) for name in network.specials}
        special = {name: token for name, token in named.items() if token is not None}
        if saved is not None:
            self._costs = unpack_costs(saved, network, self._binding())
        else:
            self._costs = solve_costs(network, enabled, trie, special)
        if self._costs.rule[0] >= UNREACHABLE and not network.start_nullable:
            raise unsatisfiable(network, vocab)
        self._enabled = enabled
        self._specials = {
            special[name]: network.special_class(index)
            for index, name in enumerate(network.specials)
            if name in special
        }  # classes by token
        self._cache = cache or self.new_cache()
        if not self._covered and self.distance(self.start) >= UNREACHABLE:
            raise unsatisfiable(network, vocab)

    def to_bytes(self) -> bytes:
        """What binding found out, for `Grammar.bind(vocab, saved=...)`; versioned, no pickle."""
        return pack_costs(self._costs, self._network, self._binding())

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickled without what its cache has learnt; state numbers mean nothing elsewhere."""
        arguments = (self._network, self.vocab, self.limits, self._assumed, self.to_bytes())
        return _unpickled, (type(self), *arguments)

    def __copy__(self) -> Constraint:
        return self  # immutable

    def __deepcopy__(self, memo: object) -> Constraint:
        return self

    def _binding(self) -> str:
        return f"{self.vocab.fingerprint}{' with all bytes' if self._assumed else ''}"

    # -- caches ----------------------------------------------------------------------------

    @property
    def cache(self) -> Cache:
        """What has been learnt so far."""
        return self._cache

    def new_cache(self) -> Cache:
        """An empty cache for `with_cache`."""
        # Not a method: where cache and constraint hold each other, memory waits for the collector.
        know = partial(
            _know,
            self._network,
            self._tables,
            self._enabled,
            tuple(self._specials.items()),
            self.limits.memory // 4,
            self.vocab.size,
        )
        return Cache(self._network, self._costs, self.limits, self._tables, know)

    def with_cache(self, cache: Cache) -> Constraint:
        """The same constraint on another cache; state numbers belong to their cache."""
        if not cache.belongs_to(self._network, self._costs):
            raise StructspecError(
                "this cache belongs to another constraint; make one with new_cache()"
            )
        twin = object.__new__(type(self))
        twin.__dict__.update(self.__dict__)
        twin._cache = cache
        return twin

    # -- states ----------------------------------------------------------------------------

    @property
    def start(self) -> int:
        """The state before the first token."""
        return self._cache.start

    def advance(self, state: int, token: int) -> int:
        """The state after a token.

        Raises `TokenRejected` if the state does not allow it; `state` stays usable. An end token
        in an accepting state leads to a state that is complete and allows nothing more; elsewhere
        it is a special token like others, if the grammar names it. Raises TypeError if state or
        token is no int.
        """
        # Kernels take Python's ints as they are; anything else would be compiled for anew.
        if type(token) is not int or type(state) is not int:
            state, token = as_int("state", state), as_int("token", token)
        cache = self._cache
        with cache.lock:
            if self._covered and token not in self.vocab.eos_ids:
                following = advance_at(*cache.addresses, state, cache.epoch, token)
                if following > 0:
                    return following
            return self._advance(state, int(token))

    def _advance(self, state: int, token: int) -> int:
        if state == END:
            raise TokenRejected(token, state, (), "the text has ended")
        vocab = self.vocab
        named = token in self._specials
        if token in vocab.eos_ids:  # before the range: end tokens may lie behind the tokens
            if self.accepting(state):
                return END
            if not named:
                raise TokenRejected(
                    token, state, self._some_allowed(state), "the text is incomplete"
                )
        if not named and not 0 <= token < len(vocab.tokens):
            raise TokenRejected(token, state, self._some_allowed(state), "no such token")
        following = self._step(state, token)
        if following == STALE:
            raise StaleState(state)
        if following != REJECTED and not self._completable(following):
            following = REJECTED
        if following == REJECTED:
            shown = None if named else vocab.tokens[token]
            raise TokenRejected(
                token, state, self._some_allowed(state), repr(shown) if shown else "no text"
            )
        return following

    def _step(self, state: int, token: int) -> int:
        """The state after a token, or `REJECTED` or `STALE`."""
        cache = self._cache
        return cache.run(advance_at, *cache.addresses, state, cache.epoch, token)

    def _completable(self, state: int) -> bool:
        """Whether this vocabulary can complete the text (covered ones always can)."""
        return self._covered or self._search(self._cache.configuration(state)) < UNREACHABLE

    def advance_bytes(self, state: int, data: bytes) -> int | None:
        """The state after some bytes, or None if they do not fit.

        The bytes need not be a sequence of tokens; used to resume inside a text.
        """
        if not data:
            return state
        if state == END:
            return None
        with self._cache.lock:
            following = self._cache.automaton.advance(self._cache.configuration(state), data)
            if following == DEAD or (not self._covered and self._search(following) >= UNREACHABLE):
                return None
            return self._cache.state(following)

    def accepting(self, state: int) -> bool:
        """Whether the text is complete in this state (end tokens are allowed)."""
        if state == END:
            return True
        with self._cache.lock:
            return self._cache.automaton.accepting(self._cache.configuration(state))

    def distance(self, state: int) -> int:
        """A certified bound on the tokens that complete the text.

        0 iff the state is accepting; otherwise some allowed token leads to a state whose
        distance is smaller by at least one. The end token is not counted.
        """
        if state == END:
            return 0
        with self._cache.lock:
            config = self._cache.configuration(state)
            if self._covered:
                return self._cache.automaton.cost(config)
            return self._search(config)

    def distance_is_exact(self, state: int) -> bool:
        """Whether fewer tokens than `distance` are impossible."""
        return not self._covered or self.distance(state) <= 1

    def forced(self, state: int) -> bytes:
        """The bytes that every continuation starts with (not a forced token: see the docs)."""
        return self._forced(state, primary=0)

    def suggest(self, state: int) -> bytes:
        """The bytes that all continuations share up to spelling: a likely, unforced draft."""
        return self._forced(state, primary=1)

    def _forced(self, state: int, primary: int) -> bytes:
        if state == END:
            return b""
        cache = self._cache
        out = np.empty(_MOST_FORCED, np.uint8)
        with cache.lock:
            config = cache.configuration(state)
            length = cache.run(forced_bytes, cache.header, cache.known, config, primary, out)
        return out[:length].tobytes()

    # -- masks -----------------------------------------------------------------------------

    def mask(self, state: int, left: int | None = None) -> Row:
        """The allowed tokens as a read-only uint32[ceil(V / 32)] row.

        Bit `i % 32` of word `i // 32` is token i; end tokens are set iff the state is accepting.
        `left` is the number of tokens that may still be written, the next one included and the
        end token not: a token stays iff the text can then be completed within the rest.
        """
        if left is None and (known := self._cache.rows.get(state)) is not None:
            return known
        if type(state) is not int:
            state = as_int("state", state)
        if left is not None and type(left) is not int:
            left = as_int("left", left)
        if state == END:
            return np.zeros(self._words, np.uint32)
        with self._cache.lock:
            row = self._cache.rows.get(state)
            if row is None:
                row = self._cache.row(self._row(state))
                self._cache.rows[state] = row
            config = self._cache.configuration(state)
            if left is None or self._cache.worst(config) <= left - 1:
                return row
            return self._compute(config, left - 1)[0]

    def fill(
        self,
        states: Sequence[int],
        out: NDArray[np.uint32],
        left: Sequence[int | None] | None = None,
    ) -> None:
        """Write the masks of many states (rows of a draft tree, or of a batch) into `out`.

        out: uint32[N, ceil(V / 32)] with N ≥ len(states); `left` as in `mask`, one per state.
        Rows that are not kept yet are computed on `settings.threads()` threads. Raises TypeError
        or ValueError for another `out`, or a `left` of another length.
        """
        cache = self._cache
        # PERF: one kept row takes a microsecond; most calls pass an array that fits exactly.
        exact = type(out) is np.ndarray and out.dtype is _UINT32 and left is None
        if not exact or out.shape != (len(states), self._words):
            self._check_fill(states, out, left)
        if left is None and len(states) == 1:
            row = cache.rows.get(states[0])
            if row is not None:
                out[0] = row
                return
        if left is not None or not self._covered or not _is_plain(out):
            for i, state in enumerate(states):
                out[i] = self.mask(state, None if left is None else left[i])
            return
        numbers = np.array(states, np.int64)
        threads = settings.threads() if len(states) >= FEWEST else 1
        with cache.lock:
            if threads > 1:
                keep_rows(cache, states, self._words, threads, self.new_cache)
            cache.done = 0
            code = cache.run(
                fill_states, cache.header, cache.known, cache.words, numbers, cache.epoch, out
            )
            if code == STALE:
                raise StaleState(int(numbers[cache.done]))
            if len(states) == 1 and states[0] != END:
                cache.rows[int(states[0])] = cache.row(self._row(states[0]))

    def _check_fill(
        self,
        states: Sequence[int],
        out: NDArray[np.uint32],
        left: Sequence[int | None] | None,
    ) -> None:
        if not isinstance(out, np.ndarray) or out.dtype not in (np.uint32, np.int32):
            kind = out.dtype if isinstance(out, np.ndarray) else type(out).__name__
            raise TypeError(f"out must be an array of uint32, not {kind}")
        if out.ndim != 2 or out.shape[0] < len(states) or out.shape[1] != self._words:
            raise ValueError(
                f"out has the shape {out.shape}; {len(states)} masks of {self.vocab.size} tokens "
                f"take ({len(states)}, {self._words})"
            )
        if left is not None and len(left) != len(states):
            raise ValueError(f"left holds {len(left)} for {len(states)} states; give one for each")

    def _row(self, state: int) -> int:
        """The number of a state's row in the pool; hold the lock."""
        cache = self._cache
        if self._covered:
            number = cache.run(row_at, *cache.addresses, state, cache.epoch)
            if number == STALE:
                raise StaleState(state)
            return number
        config = cache.configuration(state)
        row, worst = self._compute(config, UNLIMITED)
        cache.free_row()[:] = row
        return cache.run(keep_row, cache.header, cache.known, config, worst)

    @property
    def n_bytes(self) -> int:
        """Memory of the compiled constraint and of what its cache has learnt, reserved bytes."""
        network = sum(a.nbytes for a in vars(self._network).values() if isinstance(a, np.ndarray))
        return network + self._cache.n_bytes

    def mechanism(self, state: int, *, computed: bool = True) -> str:
        """How the row of a state is made, for profiles: "cached", "bulk", "length" or "walk".

        bulk: all plain tokens at once; length: those of some lengths; walk: node by node.
        computed: False to ask about a row that may be kept already ("cached").
        """
        with self._cache.lock:
            config = 0 if state == END else self._cache.configuration(state)
            if state == END or (not computed and self._cache.has_row(config)):
                return "cached"
            code = self._cache.run(
                plain_mechanism, self._cache.header, self._cache.known, self._cache.words, config
            )
        return ("walk", "length", "bulk")[code]

    def allowed(self, state: int, left: int | None = None) -> NDArray[np.int64]:
        """The allowed token ids, ascending."""
        bits = np.unpackbits(self.mask(state, left).view(np.uint8), bitorder="little")
        return np.flatnonzero(bits[: self.vocab.size])

    def _some_allowed(self, state: int) -> list[int]:
        return [int(t) for t in self.allowed(state)[:16]]

    def _compute(self, config: int, limit: int) -> tuple[Row, int]:
        """A new row and the largest cost that its tokens lead to; hold the lock."""
        row = np.zeros(self._words, np.uint32)
        if self._covered:
            return row, self._compute_into(config, limit, row)
        row = self._unfiltered(config)
        worst = self._filter(config, limit, row)
        if self._cache.automaton.accepting(config):
            row |= self._tables.eos
        return row, worst

    def _compute_into(self, config: int, limit: int, row: Row) -> int:
        cache = self._cache
        return cache.run(compute_row, cache.header, cache.known, cache.words, config, limit, row)

    # -- vocabularies without single bytes ---------------------------------------------------

    def _filter(self, config: int, limit: int, row: Row) -> int:
        """Clear the tokens after which the text cannot be completed within `limit` tokens."""
        worst = 0
        for token, following in self._successors(config, row):
            needed = self._search(following)
            if needed >= UNREACHABLE or needed > limit:
                row[token >> 5] &= ~np.uint32(1 << (token & 31))
            else:
                worst = max(worst, needed)
        return worst

    def _successors(self, config: int, row: Row | None = None) -> list[tuple[int, int]]:
        if row is None:
            row = self._unfiltered(config)
        bits = np.unpackbits(row.view(np.uint8), bitorder="little")
        cache, state = self._cache, self._cache.state(config)
        return [
            (t, cache.configuration(self._step(state, t))) for t in np.flatnonzero(bits).tolist()
        ]

    def _unfiltered(self, config: int) -> Row:
        """The tokens whose text may follow, end tokens left out."""
        row = np.zeros(self._words, np.uint32)
        self._compute_into(config, UNLIMITED, row)
        row &= ~self._tables.eos
        return row

    def _search(self, config: int) -> int:
        """Exact tokens to the nearest complete text, by breadth-first search over states."""
        known = self._cache.distances.get(config)
        if known is not None:
            return known
        automaton = self._cache.automaton
        with automaton.lock:
            parent: dict[int, int] = {config: -1}
            level, depth = [config], 0
            best, end = UNREACHABLE, -1
            while level and depth < best:
                following_level: list[int] = []
                for here in level:
                    rest = 0 if automaton.accepting(here) else self._cache.distances.get(here)
                    if rest is not None:
                        if depth + rest < best:
                            best, end = depth + rest, here
                        continue
                    for _, following in self._successors(here):
                        if following not in parent:
                            parent[following] = here
                            following_level.append(following)
                    if len(parent) > _SEARCH_LIMIT:
                        raise BudgetExceeded("states", _SEARCH_LIMIT, len(parent))
                level, depth = following_level, depth + 1
            if end < 0:  # everything reachable was seen, and nothing of it completes
                self._cache.distances.update(dict.fromkeys(parent, UNREACHABLE))
                return UNREACHABLE
            steps = 0 if automaton.accepting(end) else self._cache.distances[end]
            while end != -1:
                self._cache.distances[end] = steps
                end, steps = parent[end], steps + 1
            return self._cache.distances[config]


def _unpickled(
    kind: type[Constraint],
    network: Network,
    vocab: Vocabulary,
    limits: Limits,
    assume_all_bytes: bool,
    saved: bytes,
) -> Constraint:
    return kind(network, vocab, limits, assume_all_bytes=assume_all_bytes, saved=saved)


def _is_plain(out: NDArray[np.uint32]) -> bool:
    """Whether kernels can write to an array as it is."""
    return type(out) is np.ndarray and out.dtype == np.uint32 and out.flags.carray


def as_int(what: str, value: object) -> int:
    """A state, a token or a count as an int: numpy's and torch's integers are taken too."""
    try:
        return operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        kind = type(value).__name__
        raise TypeError(f"{what} is {value!r:.40} of type {kind}; pass an int") from None


def _know(
    network: Network,
    tables: VocabularyTables,
    enabled: NDArray[np.bool_],
    specials: tuple[tuple[int, int], ...],
    memory: int,
    size: int,
) -> Knowledge:
    """Empty memory for the mask kernels of one cache."""
    writable = np.flatnonzero(enabled)
    classes = network.class_of[writable]
    count = np.bincount(classes, minlength=network.n_classes)
    single = np.where(count == 0, NONE, SEVERAL).astype(np.int32)
    alone = count[classes] == 1
    single[classes[alone]] = writable[alone]
    for _, byte_class in specials:
        single[byte_class] = SEVERAL  # never the only *byte*
    return Knowledge(
        -(-size // 32),
        tables.max_depth,
        network.n_states,
        network.n_classes,
        memory,
        bulk=size >= _BULK_VOCABULARY,
        probes=other_probes(network.class_of, enabled),
        specials=specials,
        tables=tables,
        class_byte=single,
    )
