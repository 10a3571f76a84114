"""A grammar bound to a vocabulary: masks, transitions and certified distances on integer states.

`Constraint` is immutable and shareable; what it learns lives in its `Cache`. There is no matcher to
roll back: any state may be advanced from at any time, so a draft tree holds one integer per node.

Law (always closable): from every state that a mask lets you reach, this vocabulary can finish the
text. If every byte that occurs in some token is also a token of its own (*covered*, the case of
all byte-level and byte-fallback tokenizers), the costs of `automata.costs` decide that. Other
vocabularies are searched token by token, state by state, which is exact but meant for small ones.

Cost: a repeated mask is a dictionary look-up; a new one a walk of the trie (`fill`).

    >>> import structspec
    >>> vocab = structspec.Vocabulary([b"a", b"b", b"ab", None], eos_ids=[3])
    >>> constraint = structspec.compile("a[ab]", syntax="regex").bind(vocab)
    >>> bin(constraint.mask(constraint.start)[0])
    '0b101'
    >>> constraint.accepting(constraint.advance(constraint.start, 2))
    True
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from structspec.automata.automaton import DEAD, Automaton, byte_costs
from structspec.automata.costs import solve_costs
from structspec.automata.member_costs import UNREACHABLE
from structspec.automata.memory import Slot
from structspec.automata.tables import Network
from structspec.errors import BudgetExceeded, StructspecError, TokenRejected, Unsatisfiable
from structspec.limits import Limits
from structspec.masks.cache import END, Cache, Row
from structspec.masks.fill import NONE, SEVERAL, UNLIMITED, advance_token, fill_row, only_byte
from structspec.masks.probes import plain_probes
from structspec.masks.tables import tables_of
from structspec.vocab import Vocabulary

# Below this many tokens a full walk beats the bulk classes.
_BULK_VOCABULARY = 512
# How many states a search for a completion may visit when the vocabulary is not covered.
_SEARCH_LIMIT = 20_000


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
    ) -> None:
        self._network = network
        self.vocab = vocab
        self.limits = limits or Limits()
        self._words = -(-vocab.size // 32)
        tables = self._tables = tables_of(vocab)
        self._covered = assume_all_bytes or tables.covered
        enabled = np.ones(256, np.bool_) if assume_all_bytes else tables.enabled
        trie = tables.trie if self._covered and not assume_all_bytes else None
        self._costs = solve_costs(network, enabled, trie, vocab.special)
        self._specials = np.array(
            [
                (vocab.special[name], network.special_class(index))
                for index, name in enumerate(network.specials)
                if name in vocab.special
            ],
            np.int32,
        ).reshape(-1, 2)
        self._special_ids = frozenset(self._specials[:, 0].tolist())
        if self._costs.rule[0] >= UNREACHABLE and not network.start_nullable:
            raise _unsatisfiable(network, vocab)
        self._bulk = int(vocab.size >= _BULK_VOCABULARY)
        self._enabled = enabled
        self._eos = tables.eos
        self._cache = cache or self.new_cache()
        self._attach(self._cache.automaton)
        if not self._covered and self.distance(self.start) >= UNREACHABLE:
            raise _unsatisfiable(network, vocab)

    # -- caches ----------------------------------------------------------------------------

    @property
    def cache(self) -> Cache:
        """What has been learnt so far."""
        return self._cache

    def new_cache(self) -> Cache:
        """An empty cache for `with_cache`."""
        return Cache(self._network, self._costs, self.limits, self._words)

    def with_cache(self, cache: Cache) -> Constraint:
        """The same constraint on another cache; state numbers belong to their cache."""
        if not cache.belongs_to(self._network, self._costs):
            raise StructspecError(
                "this cache belongs to another constraint; make one with new_cache()"
            )
        twin = object.__new__(Constraint)
        twin.__dict__.update(self.__dict__)
        twin._cache = cache
        twin._attach(cache.automaton)
        return twin

    def _attach(self, automaton: Automaton) -> None:
        """Make the vocabulary known to an automaton's kernels."""
        memory, vocab = automaton.memory, self.vocab
        if Slot.CLASS_BYTE in memory:
            return
        for first, trie in ((Slot.TRIE_BYTE, vocab.trie), (Slot.REST_BYTE, vocab.plain.rest)):
            memory.put(Slot(first), trie.byte)
            memory.put(Slot(first + 1), trie.skip)
            memory.put(Slot(first + 2), trie.depth)
            memory.put(Slot(first + 3), trie.token_offset)
            memory.put(Slot(first + 4), trie.token_ids)
        memory.put(Slot.STACK, np.zeros(vocab.trie.max_depth + 2, np.int32))
        memory.put(Slot.PLAIN_UPTO, vocab.plain.upto)
        memory.put(Slot.TOKEN_START, self._tables.token_start)
        memory.put(Slot.TOKEN_BYTES, self._tables.token_bytes)
        memory.put(Slot.PROBES, plain_probes(self._network.class_of, self._enabled))
        single = np.full(self._network.n_classes, SEVERAL, np.int32)
        for index, members in enumerate(self._network.class_bytes):
            writable = [b for b in members if self._enabled[b]]
            if len(writable) <= 1:
                single[index] = writable[0] if writable else NONE
        single[self._specials[:, 1]] = SEVERAL  # never the only *byte*
        memory.put(Slot.SPECIALS, self._specials.ravel())
        memory.put(Slot.CLASS_BYTE, single)

    def _automaton(self) -> Automaton:
        automaton = self._cache.automaton
        if Slot.CLASS_BYTE not in automaton.memory:  # the cache was compacted
            with self._cache.lock:
                self._attach(automaton)
        return automaton

    # -- states ----------------------------------------------------------------------------

    @property
    def start(self) -> int:
        """The state before the first token."""
        return self._cache.start

    def advance(self, state: int, token: int) -> int:
        """The state after a token.

        Raises `TokenRejected` if the state does not allow it; `state` stays usable. An end token
        in an accepting state leads to a state that is complete and allows nothing more; elsewhere
        it is a special token like others, if the grammar names it.
        """
        if state == END:
            raise TokenRejected(token, state, (), "the text has ended")
        with self._cache.lock:
            return self._advance(state, token)

    def _advance(self, state: int, token: int) -> int:
        automaton, vocab = self._automaton(), self.vocab
        config = self._cache.configuration(state)
        if token in vocab.eos_ids and automaton.accepting(config):
            return END
        incomplete = token in vocab.eos_ids and token not in self._special_ids
        if incomplete:  # before the range: end tokens may lie behind the tokens
            raise TokenRejected(token, state, self._some_allowed(state), "the text is incomplete")
        if not 0 <= token < len(vocab.tokens) and token not in self._special_ids:
            raise TokenRejected(token, state, self._some_allowed(state), "no such token")
        following = DEAD
        if token in self._special_ids or vocab.tokens[token]:
            following = automaton.call(advance_token, config, token)
        if following != DEAD and not self._covered and self._search(following) >= UNREACHABLE:
            following = DEAD
        if following == DEAD:
            shown = None if token in self._special_ids else vocab.tokens[token]
            raise TokenRejected(
                token, state, self._some_allowed(state), repr(shown) if shown else "no text"
            )
        return self._cache.state(following)

    def advance_bytes(self, state: int, data: bytes) -> int | None:
        """The state after some bytes, or None if they do not fit.

        The bytes need not be a sequence of tokens; used to resume inside a text.
        """
        if not data:
            return state
        if state == END:
            return None
        with self._cache.lock:
            following = self._automaton().advance(self._cache.configuration(state), data)
            if following == DEAD or (not self._covered and self._search(following) >= UNREACHABLE):
                return None
            return self._cache.state(following)

    def accepting(self, state: int) -> bool:
        """Whether the text is complete in this state (end tokens are allowed)."""
        if state == END:
            return True
        with self._cache.lock:
            return self._automaton().accepting(self._cache.configuration(state))

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
                return self._automaton().cost(config)
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
        out = bytearray()
        with self._cache.lock:
            automaton = self._automaton()
            config = self._cache.configuration(state)
            while len(out) < 4096:
                byte = automaton.call(only_byte, config, primary)
                if byte == 0:
                    break
                out.append(byte - 1)
                config = automaton.advance(config, bytes((byte - 1,)))
        return bytes(out)

    # -- masks -----------------------------------------------------------------------------

    def mask(self, state: int, left: int | None = None) -> Row:
        """The allowed tokens as a read-only uint32[ceil(V / 32)] row.

        Bit `i % 32` of word `i // 32` is token i; end tokens are set iff the state is accepting.
        `left` is the number of tokens that may still be written, the next one included and the
        end token not: a token stays iff the text can then be completed within the rest.
        """
        if state == END:
            return np.zeros(self._words, np.uint32)
        with self._cache.lock:
            config = self._cache.configuration(state)
            known = self._cache.rows.get(config)
            if known is None:
                row, worst = self._compute(config, UNLIMITED)
                known = self._cache.remember(config, row, worst), worst
            row, worst = known
            if left is None or worst <= left - 1:
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
        """
        for i, state in enumerate(states):
            out[i] = self.mask(state, None if left is None else left[i])

    def allowed(self, state: int, left: int | None = None) -> NDArray[np.int64]:
        """The allowed token ids, ascending."""
        bits = np.unpackbits(self.mask(state, left).view(np.uint8), bitorder="little")
        return np.flatnonzero(bits[: self.vocab.size])

    def _some_allowed(self, state: int) -> list[int]:
        return [int(t) for t in self.allowed(state)[:16]]

    def _compute(self, config: int, limit: int) -> tuple[Row, int]:
        automaton = self._automaton()
        row = np.zeros(self._words, np.uint32)
        with automaton.lock:
            while True:
                worst = int(
                    fill_row(
                        automaton.header,
                        config,
                        UNLIMITED if not self._covered else limit,
                        self._bulk,
                        row,
                    )
                )
                if worst >= 0:
                    break
                automaton.recover(worst)
                row[:] = 0
            if not self._covered:
                worst = self._filter(config, limit, row)
            if automaton.accepting(config):
                row |= self._eos
        return row, worst

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
        automaton = self._automaton()
        if row is None:
            row = np.zeros(self._words, np.uint32)
            while int(code := fill_row(automaton.header, config, UNLIMITED, 0, row)) < 0:
                automaton.recover(int(code))
        bits = np.unpackbits(row.view(np.uint8), bitorder="little")
        return [
            (t, automaton.call(advance_token, config, t)) for t in np.flatnonzero(bits).tolist()
        ]

    def _search(self, config: int) -> int:
        """Exact tokens to the nearest complete text, by breadth-first search over states."""
        known = self._cache.distances.get(config)
        if known is not None:
            return known
        automaton = self._automaton()
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


def _unsatisfiable(network: Network, vocab: Vocabulary) -> Unsatisfiable:
    """Why nothing can be written: the grammar is empty, or bytes are missing."""
    automaton = Automaton(network, byte_costs(network))
    if automaton.start == DEAD:
        return Unsatisfiable("no text satisfies the grammar: its language is empty")
    config, needed, special, steps = automaton.start, bytearray(), [], 0
    while automaton.cost(config) and steps < 1 << 16:
        steps += 1
        for byte in range(256):
            following = automaton.advance(config, bytes((byte,)))
            if following != DEAD and automaton.cost(following) < automaton.cost(config):
                needed.append(byte)
                config = following
                break
        else:
            for name in network.specials:
                following = automaton.advance_special(config, name)
                if following != DEAD and automaton.cost(following) < automaton.cost(config):
                    special.append(name)
                    config = following
                    break
    lacking = tuple(dict.fromkeys(name for name in special if name not in vocab.special))
    if lacking:
        shown = ", ".join(map(repr, lacking))
        return Unsatisfiable(
            f"this vocabulary cannot write any text of the grammar: it has no special token "
            f"{shown}, which even the shortest text needs; use another tokenizer or grammar",
            missing_special=lacking,
        )
    missing = bytes(sorted(set(needed) - vocab.written_bytes))
    if missing:
        shown = ", ".join(f"{b:02X}" + (f" ({chr(b)!r})" if 32 < b < 127 else "") for b in missing)
        return Unsatisfiable(
            f"this vocabulary cannot write any text of the grammar: no token contains the "
            f"byte(s) {shown}, which even the shortest text needs; use another tokenizer or "
            f"change the schema",
            missing=missing,
        )
    return Unsatisfiable(
        "this vocabulary cannot write any text of the grammar: its tokens do not combine to one "
        f"(the shortest text is {bytes(needed)!r})"
    )
