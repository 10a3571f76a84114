"""A network, its costs and its run-time memory as one object: states are integers.

`Automaton` is what masks and `Grammar.accepts` drive. A state is a configuration number; all
methods may be called from several threads (one lock guards the tables, and kernels run with the
interpreter lock held).

    >>> import numpy as np
    >>> from structspec import ir
    >>> from structspec.automata.network import build_network
    >>> digits = ir.Repeat(ir.Chars(((48, 57),)), 2, 3)
    >>> network = build_network(ir.GrammarIR({"root": digits}, "root"))
    >>> automaton = Automaton(network, byte_costs(network))
    >>> s = automaton.advance(automaton.start, b"12")
    >>> automaton.accepting(s), automaton.cost(s), automaton.advance(s, b"34")
    (True, 0, 1)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from structspec.automata.costs import Costs, solve_costs
from structspec.automata.interning import rehash
from structspec.automata.member_costs import UNREACHABLE
from structspec.automata.memory import GROW, OVERFLOW, PAUSE, QUOTA, Count, Memory, Slot
from structspec.automata.pushdown import DEAD, begin, run, step
from structspec.automata.tables import Network
from structspec.errors import BudgetExceeded
from structspec.limits import Limits
from structspec.locks import rlock
from structspec.machine_code.linking import load

__all__ = ["DEAD", "UNREACHABLE", "Automaton", "byte_costs"]

# Room for the ambiguity of one configuration: (state, frame set) pairs and frames in one set.
_SCRATCH = 8192

# Configurations that are reserved, at most: more than most grammars meet.
_RESERVED = 1 << 15

# Slot and the counter of its entries. Kernels look at the length of the last table of a counter
# only, so that one grows last: an interruption, or memory that cannot be had, leaves others longer.
_TABLES: tuple[tuple[Slot, int], ...] = (
    (Slot.FRAME_REGISTER, Count.FRAMES),
    (Slot.FRAME_PARENTS, Count.FRAMES),
    (Slot.FRAME_COST, Count.FRAMES),
    (Slot.FRAME_RETURN, Count.FRAMES),
    (Slot.SET_ITEMS, Count.SET_ITEMS),
    (Slot.SET_START, Count.SETS),
    (Slot.CONFIG_ITEMS, Count.CONFIG_ITEMS),
    (Slot.CONFIG_ACCEPTS, Count.CONFIGS),
    (Slot.CONFIG_COST, Count.CONFIGS),
    (Slot.CONFIG_START, Count.CONFIGS),
)
_RESERVED_TABLES = tuple(pair for pair in _TABLES if pair[1] in (Count.CONFIGS, Count.CONFIG_ITEMS))
_GROWN_TABLES = tuple(slot for slot, _ in _TABLES if slot not in dict(_RESERVED_TABLES))
# slot, its number for `rehash`, counter
_HASHES = (
    (Slot.FRAME_HASH, 0, Count.FRAMES),
    (Slot.SET_HASH, 1, Count.SETS),
    (Slot.CONFIG_HASH, 2, Count.CONFIGS),
    (Slot.BITS_HASH, 3, Count.BITS),
)
_SCRATCHES = (
    Slot.QUEUE_STATE,
    Slot.QUEUE_SET,
    Slot.LIVE_STATE,
    Slot.LIVE_SET,
    Slot.LIVE_DONE,
    Slot.SCRATCH_A,
    Slot.SCRATCH_B,
)


def byte_costs(network: Network) -> Costs:
    """Costs in bytes when every byte can be written: the grammar without a vocabulary."""
    return solve_costs(network, np.ones(256, np.bool_), None)


class Automaton:
    """Runs a `Network`; states whose cost is unreachable under `costs` are never entered."""

    def __init__(self, network: Network, costs: Costs, limits: Limits | None = None) -> None:
        load()
        self.network = network
        self.costs = costs
        self.limits = limits or Limits()
        self.lock = rlock()
        self.memory = Memory()
        self._load(network, costs)
        self._reset()
        self.start = self._start()

    @property
    def header(self) -> NDArray[np.int64]:
        """The argument of every kernel; hold `lock` while a kernel uses it."""
        return self.memory.header

    @property
    def n_configurations(self) -> int:
        """How many configurations have been met."""
        return int(self.memory.get(Slot.COUNT)[Count.CONFIGS]) - 2

    def advance(self, state: int, data: bytes) -> int:
        """The state after some bytes, or `DEAD`."""
        return self._run(state, data)[0]

    def consumed(self, state: int, data: bytes) -> int:
        """How many bytes of `data` fit after `state`."""
        return self._run(state, data)[1]

    def _run(self, state: int, data: bytes) -> tuple[int, int]:
        array = np.frombuffer(data, np.uint8)
        with self.lock:
            while True:
                result, consumed = run(self.memory.header, state, array)
                if result >= 0:
                    return int(result), int(consumed)
                self.recover(int(result))

    def advance_special(self, state: int, name: str) -> int:
        """The state after a special token, or `DEAD`."""
        if name not in self.network.specials:
            return DEAD
        return self.step(state, self.network.special_class(self.network.specials.index(name)))

    def step(self, state: int, byte_class: int) -> int:
        """The state after one byte of a class, or `DEAD`."""
        return self.call(step, state, byte_class)

    def call(self, kernel: Callable[..., Any], *arguments: Any) -> int:
        """`kernel(header, *arguments)`, which returns a number or a negative code.

        Grows the tables and repeats the call as often as needed.
        """
        with self.lock:
            while True:
                result = int(kernel(self.memory.header, *arguments))
                if result >= 0:
                    return result
                self.recover(result)

    def accepting(self, state: int) -> bool:
        """Whether the text is complete in `state`."""
        return bool(self.memory.get(Slot.CONFIG_ACCEPTS)[state])

    def cost(self, state: int) -> int:
        """Bytes or tokens (see `Costs.unit`) from `state` to a complete text; 0 iff accepting."""
        return int(self.memory.get(Slot.CONFIG_COST)[state])

    def recover(self, code: int) -> None:
        """Make room after a kernel returned `GROW`; raise if a limit is passed.

        After `PAUSE` it only begins to count anew: Python has had its turn, and Ctrl-C with it.
        """
        if code == PAUSE:
            self.pause_later(0)
            return
        try:
            self._grow(code)
        except BudgetExceeded:
            raise
        except BaseException:
            self.mend()
            raise

    def pause_later(self, pauses: int) -> None:
        """Let kernels work for `QUOTA`, or after some pauses of one call for so many times as much.

        A walk begins anew after a pause, and finds most but not all that it needs: with the same
        time again and again it might never end.
        """
        self.memory.get(Slot.COUNT)[Count.WORK] = -QUOTA * ((1 << min(pauses, 8)) - 1)

    def mend(self) -> None:
        """Make the tables whole again after growing was interrupted; hold `lock`."""
        memory = self.memory
        memory.restore()
        for slot, which, _ in _HASHES:
            memory.put(slot, np.zeros(memory.get(slot).size, np.int32))
            rehash(memory.header, which)

    def _grow(self, code: int) -> None:
        if code == OVERFLOW:
            raise BudgetExceeded("states", _SCRATCH, None)
        if code != GROW:
            raise AssertionError(f"unknown kernel code {code}")
        memory = self.memory
        count = memory.get(Slot.COUNT)
        words = int(count[Count.BITS_WORDS])
        rows = max(64, 2 * (int(count[Count.BITS]) + 2))
        grown = self._enlarge(Slot.BITS, rows * words)
        for slot, which, entries in _HASHES:
            size = memory.get(slot).size
            if 4 * (int(count[entries]) + 2) > size:
                memory.put(slot, np.zeros(4 * size, np.int32))
                rehash(memory.header, which)
                grown = True
        # What is nearly full, or else (a single object may need much room) everything.
        for share in (2, 0):
            if grown:
                break
            for slot, counter in _TABLES:
                array = memory.get(slot)
                if share * int(count[counter]) >= array.size or not share:
                    if slot == Slot.CONFIG_START:
                        self._enlarge(Slot.NEXT, 2 * array.size * self.network.n_classes)
                    grown |= self._enlarge(slot, 2 * array.size)
        if memory.n_reserved > self.limits.memory:
            raise BudgetExceeded("memory", self.limits.memory, memory.n_reserved, adjustable=True)

    def _enlarge(self, slot: Slot, size: int) -> bool:
        """Whether the array in a slot had to grow."""
        if self.memory.get(slot).size >= size:
            return False
        self.memory.enlarge(slot, size)
        return True

    def _load(self, network: Network, costs: Costs) -> None:
        n, c, m = network, costs, network.members
        arrays: dict[Slot, NDArray[Any]] = {
            Slot.CLASS_OF: n.class_of,
            Slot.EDGE_START: n.edge_start,
            Slot.EDGE_CLASS: n.edge_class,
            Slot.EDGE_TARGET: n.edge_target,
            Slot.EDGE_PRIMARY: n.edge_primary,
            Slot.CALL_START: n.call_start,
            Slot.CALL_ENTRY: n.rule_entry[n.call_rule],
            Slot.CALL_TARGET: n.call_target,
            Slot.CALL_TAIL: n.call_tail,
            Slot.CALL_COST: c.rule[n.call_rule],
            Slot.OP_START: n.op_start,
            Slot.OP_KIND: n.op_kind,
            Slot.OP_ARGUMENT: n.op_argument,
            Slot.OP_FIRST: n.op_first,
            Slot.OP_SECOND: n.op_second,
            Slot.FINAL: n.final,
            Slot.KIND: n.kind,
            Slot.DATA: n.data,
            Slot.RANK: n.rank,
            Slot.BASE: c.base,
            Slot.CHARACTERS: c.characters,
            Slot.LOOP_MIN: n.loop_min,
            Slot.LOOP_MAX: n.loop_max,
            Slot.LOOP_COPY: c.loop_copy,
            Slot.MEMBERS_START: m.start,
            Slot.MEMBERS_ANY: m.any_order,
            Slot.MEMBERS_SEPARATOR: m.separator_state,
            Slot.REACH_START: c.reach_start,
            Slot.REACH_MEMBER: c.reach_member,
            Slot.REACH_COST: c.reach_cost,
            Slot.MEMBER_REQUIRED: m.required,
            Slot.MEMBER_REPEATABLE: m.repeatable,
            Slot.MEMBER_VALUE: c.member_value,
            Slot.MEMBER_KEY: c.member_key,
            Slot.MEMBERS_MINIMUM: m.minimum,
            Slot.MEMBERS_MAXIMUM: m.maximum,
            Slot.MEMBERS_LEVELS: m.levels,
            Slot.MEMBERS_REPEATABLE: m.first_repeatable,
            Slot.MEMBER_ORDER: c.member_order,
            Slot.MEMBER_TABLE: c.member_table,
            Slot.MEMBER_NEXT: c.member_next_required,
            Slot.MEMBER_REST: c.member_rest,
            Slot.MEMBER_TOTAL: c.member_total,
        }
        self.memory.put_all(arrays)

    def _reset(self) -> None:
        memory, n = self.memory, self.network
        initial = 1024
        configs = initial
        while configs < _RESERVED and 64 * configs * (n.n_classes + 32) < self.limits.memory:
            configs *= 2
        # Tables that grow with a text are reserved; one block of zeros has room for the others.
        reserved: list[tuple[int, int, int, int, Any]] = [
            (slot, configs if counter == Count.CONFIGS else 2 * configs, counter, 1, np.int32)
            for slot, counter in _RESERVED_TABLES
        ]
        reserved.append((Slot.NEXT, configs * n.n_classes, Count.CONFIGS, n.n_classes, np.int32))
        memory.reserve_all(reserved)
        room: dict[Slot, int] = dict.fromkeys(_GROWN_TABLES, initial)
        sizes = np.diff(n.members.start)[n.members.any_order.astype(bool)]
        words = 1 + -(-int(sizes.max(initial=1)) // 32)  # the count, then a bit per member
        room |= {slot: 4 * initial for slot, _, _ in _HASHES}
        room[Slot.BITS] = 64 * words
        memory.put_zeros(room)
        memory.put_scratch(dict.fromkeys(_SCRATCHES, _SCRATCH))
        memory.put(Slot.BITS, memory.get(Slot.BITS).view(np.uint32))
        count = np.zeros(len(Count), np.int32)
        count[Count.CLASSES] = n.n_classes
        count[Count.BITS_WORDS] = words
        # frame 0: the bottom; set 0: empty, set 1: {bottom}; configurations 0 and 1: reserved
        count[Count.FRAMES] = 1
        memory.get(Slot.FRAME_RETURN)[0] = -1
        count[Count.SETS] = 2
        count[Count.SET_ITEMS] = 1
        memory.get(Slot.SET_START)[2] = 1
        count[Count.CONFIGS] = 2
        memory.get(Slot.CONFIG_COST)[:2] = UNREACHABLE
        memory.get(Slot.NEXT)[n.n_classes : 2 * n.n_classes] = DEAD
        count[Count.BITS] = 1
        memory.put(Slot.COUNT, count)
        memory.counters = count
        for which in (1, 3):  # the set {bottom} and the empty member set are there already
            rehash(memory.header, which)

    def _start(self) -> int:
        entry, nullable = int(self.network.rule_entry[0]), int(self.network.start_nullable)
        if self.costs.rule[0] >= UNREACHABLE and not nullable:
            return DEAD
        return self.call(begin, entry, nullable)
