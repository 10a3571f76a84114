"""What a constraint learns at run time: configurations, transitions and mask rows.

A `Cache` belongs to one constraint's network and costs; state numbers are only meaningful with the
cache that made them. Rows are interned by content. When rows pass the memory budget they are all
dropped and rebuilt on demand; configurations go only at `compact`, which renumbers and makes
older numbers *stale* (they raise `StaleState`, they never mean something else).

Thread safety: `lock` guards the tables; whoever turns a state number into a configuration and uses
it holds the lock for both, since `compact` may come in between. It is the automaton's lock, and
stays when `compact` replaces the automaton. Only `rows` is read without it: a dictionary from
state numbers, which carry their epoch, to rows that are never written again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from structspec.automata.automaton import Automaton
from structspec.automata.costs import Costs
from structspec.automata.distinct import Distinct
from structspec.automata.histories import History
from structspec.automata.interning import intern_config, intern_frame, intern_set
from structspec.automata.memory import PAUSE, Count, Slot
from structspec.automata.tables import Network
from structspec.errors import BudgetExceeded, StaleState
from structspec.limits import Countdown, Limits
from structspec.machine_code.linking import load
from structspec.masks.tables import FULL, SHORT, STALE, WIDE, Knowledge, Known, VocabularyTables

#: Low bits of a state number hold the configuration, the others the epoch.
EPOCH_SHIFT = 32
_LOW = (1 << EPOCH_SHIFT) - 1
#: State numbers from here on are those of a configuration and a history.
TRACKED = 1 << 62
# Bytes that a history takes beyond its text, roughly.
_HISTORY_BYTES = 300
# Bytes of one identity in a set, roughly.
_IDENTITY_BYTES = 64
#: The state after an end token: complete, and nothing may follow.
END = 0

Row = NDArray[np.uint32]


class Cache:
    """The default cache of a constraint, or one made by `Constraint.new_cache`.

    `know` makes the memory of the mask kernels, `words` is the vocabulary's.
    """

    def __init__(
        self,
        network: Network,
        costs: Costs,
        limits: Limits,
        words: VocabularyTables,
        know: Callable[[], Knowledge],
    ) -> None:
        load()
        self._network = network
        self._costs = costs
        self._limits = limits
        self._know = know
        self._words = words
        self.words = words.header
        self._begin(Automaton(network, costs, limits), 0)
        self.lock = self.automaton.lock

    automaton: Automaton
    epoch: int
    rows: dict[int, Row]
    #: Exact token distances of configurations, for vocabularies that lack single bytes.
    distances: dict[int, int]
    header: NDArray[np.int64]
    #: What runs histories on `automaton`, if the grammar needs any.
    distinct: Distinct | None
    #: Caches that compute rows on other threads, and what copies to them (`helpers`).
    helpers: list[tuple[Cache, Copier]]
    known: NDArray[np.int64]
    #: Of `header`, `known` and `words`, which live as long as the cache.
    addresses: tuple[int, int, int]
    _pairs: list[tuple[int, History]]
    _numbers: dict[tuple[int, History], int]
    _history_bytes: int
    _knowledge: Knowledge

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "a cache is memory of this process and cannot be pickled or copied; pickle the "
            "constraint or the grammar, which begin with an empty one"
        )

    def _begin(self, automaton: Automaton, epoch: int) -> None:
        knowledge = self._know()
        knowledge.counters = automaton.memory.counters
        knowledge.fit(automaton.memory.get(Slot.CONFIG_START).size)
        headers = (automaton.memory.header, knowledge.header, self.words)
        # All at once: whoever is interrupted finds the one automaton or the other.
        self.__dict__.update(
            automaton=automaton, epoch=epoch, rows={}, distances={}, distinct=None, helpers=[],
            header=automaton.memory.header, known=knowledge.header, _knowledge=knowledge,
            addresses=tuple(array.__array_interface__["data"][0] for array in headers),
            _pairs=[], _numbers={}, _history_bytes=0,
        )  # fmt: skip

    def belongs_to(self, network: Network, costs: Costs) -> bool:
        """Whether the cache was made for this network and these costs."""
        return self._network is network and self._costs is costs

    @property
    def start(self) -> int:
        """The start state."""
        return self.state(self.automaton.start)

    @property
    def n_bytes(self) -> int:
        """Bytes used for configurations, transitions, rows and histories, helpers included."""
        own = self.automaton.memory.n_bytes + self._knowledge.n_bytes + self._history_bytes
        return own + sum(helper.n_bytes for helper, _ in self.helpers)

    @property
    def n_rows(self) -> int:
        """How many different rows are kept."""
        return self._knowledge.n_rows

    def state(self, configuration: int) -> int:
        """The public number of a configuration."""
        return self.epoch << EPOCH_SHIFT | configuration

    def configuration(self, state: int) -> int:
        """The configuration of a state number; raises `StaleState` if it is from before."""
        if state >= TRACKED:
            return self._pair(state)[0]
        if state >> EPOCH_SHIFT != self.epoch:
            raise StaleState(state)
        configuration = state & _LOW
        if configuration >= int(self.automaton.memory.get(Slot.COUNT)[Count.CONFIGS]):
            raise StaleState(state)
        return configuration

    def is_current(self, state: int) -> bool:
        """Whether a state number without a history is of this epoch and known."""
        known = int(self.automaton.memory.get(Slot.COUNT)[Count.CONFIGS])
        return state >> EPOCH_SHIFT == self.epoch and state & _LOW < known

    def history(self, state: int) -> History | None:
        """The history of a state number, if it has one; raises `StaleState` like the others."""
        return self._pair(state)[1] if state >= TRACKED else None

    def tracked(self, configuration: int, history: History | None) -> int:
        """The public number of a configuration with a history; hold `lock`."""
        if history is None:
            return self.state(configuration)
        pair = (configuration, history)
        index = self._numbers.get(pair)
        if index is None:
            self._history_bytes += _HISTORY_BYTES + len(history.text)
            # states inside a scalar share what those before it hold
            self._history_bytes += _IDENTITY_BYTES * history.weight
            if self._history_bytes > self._limits.memory:
                raise BudgetExceeded(
                    "memory", self._limits.memory, self._history_bytes, adjustable=True
                )
            # In this order: an interruption in between must not lend the number to another pair.
            self._pairs.append(pair)
            index = self._numbers[pair] = len(self._pairs) - 1
        return TRACKED | self.state(index)

    def _pair(self, state: int) -> tuple[int, History]:
        epoch, index = (state ^ TRACKED) >> EPOCH_SHIFT, state & _LOW
        if epoch != self.epoch or index >= len(self._pairs):
            raise StaleState(state)
        return self._pairs[index]

    def run(self, kernel: Callable[..., Any], *arguments: Any) -> int:
        """Call a kernel, make room and repeat as often as needed; hold `lock`.

        Returns what the kernel does; negative only if the state is stale or a token is rejected.
        Raises `BudgetExceeded` if it takes longer than `Limits.time`.
        """
        countdown: Countdown | None = None
        pauses = 0
        while True:
            result = int(kernel(*arguments))
            if result >= 0 or result <= STALE:
                return result
            if result == PAUSE:
                countdown = countdown or Countdown(self._limits.time)
                if countdown.over():
                    raise BudgetExceeded("time", self._limits.time, adjustable=True)
                pauses += 1
                self.automaton.pause_later(pauses)
                continue
            self._recover(result)

    def _recover(self, code: int) -> None:
        try:
            self._make_room(code)
        except BudgetExceeded:
            self._fit()  # to what has grown before the limit was passed
            raise
        except BaseException:  # Ctrl-C, a time limit: the next call must find everything whole
            self._knowledge.restore()
            self.automaton.mend()
            self._knowledge.drop_rows()
            self.rows.clear()
            self._fit()
            raise

    def _make_room(self, code: int) -> None:
        if code == WIDE:
            for slot in (Known.CURSORS, Known.STACK):
                size = self._knowledge.get(slot).size
                self._knowledge.put(slot, np.zeros(2 * size, np.int32))
        elif code == FULL:
            if self._knowledge.more_rows():
                self.rows.clear()
        elif code != SHORT:
            self.automaton.recover(code)
        self._fit()

    def _fit(self) -> None:
        self._knowledge.fit(self.automaton.memory.get(Slot.CONFIG_START).size)

    def row(self, number: int) -> Row:
        """A read-only view of a row of the pool; hold `lock`."""
        return self._knowledge.row(number)

    def free_row(self) -> Row:
        """The place of the next row, made free if need be; hold `lock`."""
        while (place := self._knowledge.free_row()) is None:
            self._recover(FULL)
        return place

    def has_row(self, configuration: int) -> bool:
        """Whether the row of a configuration is kept."""
        return bool(self._knowledge.get(Known.ROW_OF)[configuration])

    def worst(self, configuration: int) -> int:
        """The largest cost that a token of a computed row leads to, or a bound above it."""
        return int(self._knowledge.get(Known.WORST)[configuration])

    @property
    def done(self) -> int:
        """How many rows of the running `fill_states` are finished."""
        return self._knowledge.done

    @done.setter
    def done(self, value: int) -> None:
        self._knowledge.done = value

    def compact(self, keep: Iterable[int]) -> dict[int, int]:
        """Forget everything but the states of `keep`; returns {old number: new number}.

        All other numbers become stale, `Constraint.start` included: read it again.
        """
        keep = set(keep)
        with self.lock:
            # The state after an end token has the same number in every epoch.
            old = {state: self.configuration(state) for state in keep if state != END}
            histories = {state: self.history(state) for state in old}
            ended = {END: END} if END in keep else {}
            fresh = Automaton(self._network, self._costs, self._limits)
            fresh.lock = self.lock
            copied = Copier(self.automaton, fresh)
            renumbered = {state: copied.configuration(c) for state, c in old.items()}
            self._begin(fresh, self.epoch + 1)
            return {
                state: self.tracked(c, histories[state]) for state, c in renumbered.items()
            } | ended


class Copier:
    """Interns configurations of one automaton in another with the same network."""

    def __init__(self, source: Automaton, target: Automaton) -> None:
        self._source = source.memory
        self._target = target
        self._frames: dict[int, int] = {0: 0}
        self._sets: dict[int, int] = {0: 0, 1: 1}
        for slot in (Slot.BITS, Slot.BITS_HASH):  # member sets keep their numbers
            target.memory.put(slot, self._source.get(slot).copy())
        counts, new = self._source.get(Slot.COUNT), target.memory.get(Slot.COUNT)
        new[Count.BITS] = counts[Count.BITS]

    def configuration(self, c: int) -> int:
        """The number in the target."""
        get = self._source.get
        start = get(Slot.CONFIG_START)
        items = get(Slot.CONFIG_ITEMS)[start[c] : start[c + 1]]
        states = items[0::2].astype(np.int32)
        sets = np.array([self._set(int(s)) for s in items[1::2]], np.int32)
        accepts, cost = int(get(Slot.CONFIG_ACCEPTS)[c]), int(get(Slot.CONFIG_COST)[c])
        if c <= 1:
            return c
        return self._target.call(intern_config, states, sets, len(states), accepts, cost)

    def _set(self, wanted: int) -> int:
        # Parents have smaller numbers than their frames, so an explicit stack ends.
        get = self._source.get
        start, pool = get(Slot.SET_START), get(Slot.SET_ITEMS)
        parents = get(Slot.FRAME_PARENTS)
        stack = [wanted]
        while stack:
            s = stack[-1]
            if s in self._sets:
                stack.pop()
                continue
            frames = [int(f) for f in pool[start[s] : start[s + 1]]]
            missing = [int(parents[f]) for f in frames if int(parents[f]) not in self._sets]
            if missing:
                stack.extend(missing)
                continue
            new = np.array(sorted(self._frame(f) for f in frames), np.int32)
            self._sets[s] = self._target.call(intern_set, new, len(new))
            stack.pop()
        return self._sets[wanted]

    def _frame(self, f: int) -> int:
        found = self._frames.get(f)
        if found is None:
            get = self._source.get
            returns, register = int(get(Slot.FRAME_RETURN)[f]), int(get(Slot.FRAME_REGISTER)[f])
            parents = self._sets[int(get(Slot.FRAME_PARENTS)[f])]
            cost = int(get(Slot.FRAME_COST)[f])
            found = self._frames[f] = self._target.call(
                intern_frame, returns, register, parents, cost
            )
        return found
