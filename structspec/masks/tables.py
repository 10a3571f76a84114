"""Memory of the mask kernels: what a vocabulary is, and what is known about configurations.

Two headers beside the automaton's (see `automata.memory` for the form): one of read-only arrays
per vocabulary, shared by all its constraints, and one per cache whose arrays grow with the
configurations. Mask rows lie in a pool of chunks, each content once; `ROW_OF[configuration]` names
them.

Invariants: arrays by configuration are at least as long as the automaton's (`fit` sees to it before
every kernel; kernels check it); a row that was handed out is never written again, since a full
pool is replaced, not reused.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from enum import IntEnum
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from structspec.automata.arena import Lease, zeros
from structspec.automata.costs import TokenTrie, first_nodes
from structspec.automata.memory import Count, Memory, i32, wide
from structspec.machine_code.kernel import kernel
from structspec.vocab.characters import BLANKS

if TYPE_CHECKING:
    from structspec.vocab import Vocabulary
    from structspec.vocab.blocks import Blocks


class Words(IntEnum):
    """Slots of a vocabulary's header. WALK, OTHERS and TAILS begin a `Blocks` each."""

    WALK = 0
    OTHERS = 3
    TAILS = 6
    UPTO = 9
    TOKEN_START = 10
    TOKEN_BYTES = 11
    EOS = 12
    BEGUN = 13
    CHARACTERS = 14  # those beyond ASCII, by group (`vocab.characters`)
    CHARACTER_START = 15
    PIECES = 16  # a row: the tokens whose tails are a character or its beginning
    BLANKS = 17  # tokens that begin with two bytes of white space or more, by how many these are
    BLANKS_START = 18  # where those with at least n bytes begin, and the end


#: Offsets of a `Blocks`' arrays from its first slot.
BYTE, NODES, IDS = range(3)


class Known(IntEnum):
    """Slots of a cache's header."""

    # by configuration
    ROW_OF = 0  # number of the row + 1; 0: not computed
    WORST = 1  # the largest cost that a token of the row leads to (or a bound above it)
    TARGET = 2  # where most ordinary characters lead (`classify`); 0: not known
    CONTENT = 3  # four words: the characters that lead to TARGET, as in `Blocks.content`
    DEPTH = 4  # how many times TARGET may be followed with these characters
    DEEPEST = 5  # 1 if no more than DEPTH
    DEAREST = 6  # the largest cost on the way
    PLACE = 17  # how a walk goes on (`places`)
    DEPENDS = 18  # kind of a hollow configuration's state
    FAR = 19  # 1 if most steps from a hollow configuration leave its rule's simple states
    ENDLESS = 20  # where the chain of a hollow configuration stays; its cost depends on frames
    # by state of the network
    HOLLOW = 21  # its hollow configuration; 0: not made
    ENTERED = 27  # the configuration of a rule that begins there and is all of the text; 0: none
    BLANKS = 33  # how much white space leads on to states that differ in nothing else, plus two
    CALLS = 28  # 1 if it is left through its configuration, 2 if its rules are walked by themselves
    EDGES_OF = 34  # a state with the same edges but those of white space, plus two (`twins`)
    # others
    SCRATCH = 22  # a row
    EXTRA = 23  # another: what several pairs allow (`walk`)
    RANGES = 24  # pairs of positions in `Blocks.ids`: allowed from, up to
    SIDE = 26  # a row: the tokens of `PlainTokens.others` whose tails a place allows
    PRICES = 25  # triples of hollow configuration, frame set and cost
    ALIVE = 29  # entries of a configuration and the bits of the classes that its pairs know
    SEEN_PLACES = 30  # entries of a walk, nodes, configuration and frame set (`walk`)
    WORDS = 32  # the vocabulary's header
    EDGES = 35  # states, plus one, by a hash of these edges
    TWINS = 36  # triples of configuration, key and how much white space may follow (`twins`)
    MARKS = 31  # bits by position in `Blocks.ids`: allowed already, where places share a subtree
    POOL = 7  # addresses of chunks of CHUNK rows
    POOL_HASH = 8  # pairs: number of a row + 1, and its hash
    STACK = 9
    PROBES = 10
    SPECIALS = 11  # pairs of token and class
    CURSORS = 12
    SEEN = 13
    COUNT = 14
    CLASS_BYTE = 15
    MEMO = 16  # triples of state, frame set and the configuration they close to (`leave`)


class Tally(IntEnum):
    """Positions in COUNT."""

    ROWS = 0
    DONE = 1  # rows of the running `fill_states` that are finished
    WORDS = 2
    BULK = 3  # 1 if rows may be made of the plain tokens
    ROOM = 4  # rows that there is room for
    # of the row SIDE: the hollow configuration (0: none), the frames, its largest cost
    SIDE_CONFIG = 5
    SIDE_FRAMES = 6
    SIDE_WORST = 7
    WALKS = 8  # walks so far, modulo 2 ** 31
    BLANK_ROOM = 9  # how much white space may follow the row that was made last and change nothing


_BY_CONFIGURATION = (
    (Known.ROW_OF, 1),
    (Known.WORST, 1),
    (Known.TARGET, 1),
    (Known.CONTENT, 4),
    (Known.DEPTH, 1),
    (Known.DEEPEST, 1),
    (Known.DEAREST, 1),
    (Known.PLACE, 1),
    (Known.DEPENDS, 1),
    (Known.FAR, 1),
    (Known.ENDLESS, 1),
)
_DTYPES: dict[int, Any] = {1: np.int32, 4: np.uint32}  # by width
#: Rows of a chunk are 2 ** CHUNK_BITS: the different ones of most draft trees fit.
CHUNK_BITS = 5
_CHUNK = 1 << CHUNK_BITS
_POOL_HASH = wide(Known.POOL_HASH)
#: Result of kernels: CURSORS or STACK is too short for a configuration.
WIDE = -3
#: Results: the pool is full; arrays by configuration are too short; the state is from before
#: `compact`; the token leads nowhere.
FULL, SHORT, STALE, REJECTED = -4, -5, -7, -8
#: Entries of ALIVE, minus one, and the numbers of each.
ALIVE_MASK, ALIVE_WIDTH = 255, 9
#: Entries of SEEN_PLACES, minus one: 64 KiB, since looking must not cost what it saves.
SEEN_MASK = (1 << 12) - 1
#: Entries of MEMO, minus one. (Frame sets begin at 1, so that zeros match nothing.)
MEMO_MASK = 4095
#: Entries of EDGES and of TWINS, minus one.
EDGES_MASK, TWINS_MASK = 1023, 255
#: How many ranges a walk collects before it writes them.
MOST_RANGES = 2048
#: Numbers of an entry of STACK, and entries per level of a walk: a node's rest, and a few pairs.
STACK_WIDTH, STACK_LEVEL = 6, 6


class VocabularyTables(Memory):
    """The arrays of a vocabulary; `of` makes them once for each.

    eos: uint32[ceil(V / 32)]; enabled: bool[256], the bytes that occur in some token; covered:
    whether every such byte is a token of its own; trie: what costs need of the trie.
    """

    def __init__(self, vocab: Vocabulary) -> None:
        super().__init__(max(Words) + 1)
        plain = vocab.plain
        for slot, blocks in (
            (Words.WALK, plain.walk),
            (Words.OTHERS, plain.others),
            (Words.TAILS, plain.tails),
        ):
            self._put_blocks(slot, blocks)
        self.put(Words.UPTO, plain.upto)
        self.put(Words.BEGUN, plain.begun)
        self.put(Words.PIECES, plain.pieces)
        self.put(Words.CHARACTERS, plain.characters.data)
        self.put(Words.CHARACTER_START, plain.characters.start)
        lengths = np.fromiter((len(t or b"") for t in vocab.tokens), np.int64, len(vocab.tokens))
        start = np.zeros(len(vocab.tokens) + 1, np.int32)
        start[1:] = np.cumsum(lengths)
        data = b"".join(t or b"" for t in vocab.tokens)
        self.put(Words.TOKEN_START, start)
        self.put(Words.TOKEN_BYTES, np.frombuffer(data + b"\0", np.uint8))
        self._put_blanks(vocab, start, data)
        eos = np.zeros(-(-vocab.size // 32), np.uint32)
        for token in vocab.eos_ids:
            eos[token >> 5] |= np.uint32(1 << (token & 31))
        self.put(Words.EOS, eos)
        self.eos = eos
        self.enabled: NDArray[np.bool_] = np.zeros(256, np.bool_)
        self.enabled[list(vocab.written_bytes)] = True
        self.covered = vocab.written_bytes <= vocab.single_bytes
        terminal = (np.diff(vocab.trie.token_offset) > 0).astype(np.uint8)
        # Copies: kernels are compiled for writable arrays only.
        byte, skip = vocab.trie.byte.copy(), vocab.trie.skip.copy()
        self.trie = TokenTrie(byte, skip, terminal, first_nodes(byte, skip))
        self.max_depth = max(b.max_depth for b in (plain.walk, plain.others, plain.tails))

    def _put_blocks(self, slot: int, blocks: Blocks) -> None:
        for offset, array in ((BYTE, blocks.byte), (NODES, blocks.nodes), (IDS, blocks.ids)):
            self.put(slot + offset, array)

    def _put_blanks(self, vocab: Vocabulary, start: NDArray[np.int32], data: bytes) -> None:
        """The tokens that begin with much white space. start, data: of all tokens' bytes."""
        letters = bytes(BLANKS)
        usable = np.concatenate([vocab.plain.walk.ids, vocab.plain.others.ids])
        blank = np.zeros(256, np.bool_)
        blank[list(letters)] = True
        blank = blank[np.frombuffer(data, np.uint8)]
        for n in (0, 1):
            usable = usable[start[usable + 1] - start[usable] > n]
            usable = usable[blank[start[usable] + n]]
        texts = [vocab.tokens[i] or b"" for i in usable.tolist()]
        lengths = np.array([len(text) - len(text.lstrip(letters)) for text in texts], np.int32)
        order = np.argsort(lengths, kind="stable")
        most = int(lengths.max()) if lengths.size else 0
        starts = np.searchsorted(lengths[order], np.arange(most + 2))
        self.put(Words.BLANKS, usable[order].astype(np.int32))
        self.put(Words.BLANKS_START, starts.astype(np.int32))

    @staticmethod
    def of(vocab: Vocabulary) -> VocabularyTables:
        """The tables of a vocabulary, made on first use and kept with it."""
        found: VocabularyTables | None = vocab.__dict__.get("_mask_tables")
        if found is None:
            found = vocab.__dict__.setdefault("_mask_tables", VocabularyTables(vocab))
        return found


class Knowledge(Memory):
    """What one cache knows: see `Known`. Not thread safe; the cache's lock guards it."""

    def __init__(
        self,
        words: int,
        depth: int,
        states: int,
        classes: int,
        pool_bytes: int,
        *,
        bulk: bool,
        probes: NDArray[np.int32],
        specials: Iterable[tuple[int, int]],
        tables: VocabularyTables,
        class_byte: NDArray[np.int32],
    ) -> None:
        super().__init__(len(Known))
        self._words = words
        self._most_rows = max(2, pool_bytes // (4 * words))
        self._capacity = 0
        self._chunks: list[NDArray[np.uint32]] = []
        self._chunk_leases: list[Lease | None] = []
        self.put_zeros(
            {
                Known.STACK: STACK_WIDTH * STACK_LEVEL * (depth + 2),
                Known.CURSORS: 128,
                Known.SEEN: 3 * classes,
                Known.MEMO: 3 * (MEMO_MASK + 1),
                Known.PRICES: 3 * (MEMO_MASK + 1),
                Known.RANGES: 2 * MOST_RANGES,
                Known.HOLLOW: states,
                Known.ENTERED: states,
                Known.SEEN_PLACES: 4 * (SEEN_MASK + 1),
                Known.CALLS: states,
                Known.BLANKS: states,
                Known.EDGES_OF: states,
                Known.EDGES: EDGES_MASK + 1,
                Known.TWINS: 3 * (TWINS_MASK + 1),
                Known.ALIVE: ALIVE_WIDTH * (ALIVE_MASK + 1),
            }
        )
        for slot in (Known.SCRATCH, Known.EXTRA, Known.SIDE, Known.MARKS):
            self.put(slot, np.empty(words, np.uint32))
        self.put(Known.PROBES, probes)
        self.put(Known.WORDS, tables.header)
        self.put(Known.SPECIALS, np.array(list(specials), np.int32).ravel())
        self.put(Known.CLASS_BYTE, class_byte)
        count = np.zeros(len(Tally), np.int32)
        count[Tally.WORDS] = words
        count[Tally.BULK] = int(bulk)
        self.put(Known.COUNT, count)
        self._make_pool()

    @property
    def count(self) -> NDArray[np.int32]:
        """The counters."""
        return self.get(Known.COUNT)

    def fit(self, configurations: int) -> None:
        """Give the arrays by configuration at least this length."""
        if configurations <= self._capacity:
            return
        if self._capacity:
            for slot, width in _BY_CONFIGURATION:
                self.enlarge(slot, width * configurations)
        else:
            self.reserve_all(
                [
                    (slot, width * configurations, Count.CONFIGS, width, _DTYPES[width])
                    for slot, width in _BY_CONFIGURATION
                ]
            )
        self._capacity = configurations

    def more_rows(self) -> bool:
        """Make room in the pool. True if all rows had to go (numbers of rows are void then)."""
        if self.count[Tally.ROOM] < self._most_rows:
            self._add_chunk()
            return False
        self.drop_rows()
        return True

    def drop_rows(self) -> None:
        """Forget all rows; numbers of rows are void then."""
        self._make_pool()
        self.get(Known.ROW_OF)[: self._used(Known.ROW_OF)] = 0

    @property
    def n_rows(self) -> int:
        """Rows in the pool."""
        return int(self.count[Tally.ROWS])

    @property
    def done(self) -> int:
        """Finished rows of the running `fill_states`."""
        return int(self.count[Tally.DONE])

    @done.setter
    def done(self, value: int) -> None:
        self.count[Tally.DONE] = value

    def free_row(self) -> NDArray[np.uint32] | None:
        """The pool's free place, None if it is full."""
        number = self.n_rows
        return self._place(number) if number < self.count[Tally.ROOM] else None

    def row(self, number: int) -> NDArray[np.uint32]:
        """A read-only view of a row."""
        view = self._place(number)
        view.flags.writeable = False
        return view

    def _place(self, number: int) -> NDArray[np.uint32]:
        at = (number & (_CHUNK - 1)) * self._words
        return self._chunks[number >> CHUNK_BITS][at : at + self._words]

    @property
    def n_bytes(self) -> int:
        """Bytes in use, rows included."""
        return super().n_bytes + 4 * self._words * self.n_rows

    def _make_pool(self) -> None:
        """An empty pool with room for one chunk."""
        self._say_what_was_used()
        self._chunks.clear()
        self._chunk_leases.clear()
        self.count[Tally.ROWS] = self.count[Tally.ROOM] = 0
        self.put(Known.POOL_HASH, np.zeros(32 * _CHUNK, np.int32))
        self._add_chunk()

    def _say_what_was_used(self) -> None:
        """Before chunks go: pages that were never touched are not to be counted."""
        rows = self.n_rows + 1  # a row is computed before it is known to be there already
        for number, lease in enumerate(self._chunk_leases):
            if lease is not None:
                used = min(max(rows - number * _CHUNK, 0), _CHUNK)
                lease.used = [(0, used * self._words)]

    def __del__(self) -> None:
        if sys is None or sys.is_finalizing():  # nobody uses memory again, and names are gone
            return
        if Known.COUNT in self:  # else it was never finished
            self._say_what_was_used()
        super().__del__()

    def _add_chunk(self) -> None:
        chunk, lease = zeros(_CHUNK * self._words, clean=False)
        self._chunk_leases.append(lease)
        self._chunks.append(chunk.view(np.uint32))
        addresses = [c.__array_interface__["data"][0] for c in self._chunks]
        self.put(Known.POOL, np.array(addresses, np.int64))
        room = min(len(self._chunks) * _CHUNK, self._most_rows)
        self.count[Tally.ROOM] = room
        table = self.get(Known.POOL_HASH)
        if 4 * room > table.size:  # pairs, at most half of them full
            self.put(Known.POOL_HASH, np.zeros(4 * table.size, np.int32))
            place_hashes(self.header, table)


@kernel
def place_hashes(known, pairs):  # type: ignore[no-untyped-def]
    """Put the pairs of an old POOL_HASH into a new one."""
    table = i32(known, _POOL_HASH)
    mask = len(table) // 2 - 1
    for k in range(0, len(pairs), 2):
        if pairs[k]:
            i = pairs[k + 1] & mask
            while table[2 * i]:
                i = (i + 1) & mask
            table[2 * i], table[2 * i + 1] = pairs[k], pairs[k + 1]
