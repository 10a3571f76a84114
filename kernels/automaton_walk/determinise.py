"""A constraint's automaton, determinised whole, as a `DeviceAutomaton`.

States keep their numbers: a device state is the configuration number of the constraint's cache, so
`device_state` only checks that the number is current. Exploring fills the cache's own transition
table, up to the budget. Numbers stay valid until the cache is compacted; then build anew.

    >>> import structspec
    >>> vocab = structspec.Vocabulary([b"a", b"b", b"ab", None], eos_ids=[3])
    >>> constraint = structspec.compile("a[ab]", syntax="regex").bind(vocab)
    >>> walk = ConstraintWalk.build(constraint)
    >>> walk.automaton.masks(walk.states([constraint.start])).tolist()
    [[5]]
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from structspec.automata.memory import Count, Memory, Slot, i32
from structspec.automata.pushdown import step
from structspec.errors import BudgetExceeded, KernelError, StaleState
from structspec.kernels.automaton_walk import DeviceAutomaton
from structspec.machine_code.kernel import kernel
from structspec.masks.cache import END, EPOCH_SHIFT
from structspec.masks.constraint import Constraint

__all__ = ["DEFAULT_STATES", "ConstraintWalk"]

#: States that are determinised by default: a table of some megabytes.
DEFAULT_STATES = 20_000

_COUNT, _CONFIGS, _CLASSES = int(Slot.COUNT), int(Count.CONFIGS), int(Count.CLASSES)
_CONFIG_START, _CONFIG_ITEMS = int(Slot.CONFIG_START), int(Slot.CONFIG_ITEMS)


@kernel
def explore(header, first, limit):  # type: ignore[no-untyped-def]
    """Take every byte class from every configuration from `first` on; the number there are.

    Stops above `limit`. Repeating the call after the tables have grown costs little: known
    transitions are look-ups. Hollow configurations (`masks.places`) are no states of a text.
    """
    count = i32(header, _COUNT)
    config = first - 1
    while config + 1 < count[_CONFIGS] and count[_CONFIGS] <= limit:
        config += 1
        begin = i32(header, _CONFIG_START)[config]
        pairs = (i32(header, _CONFIG_START)[config + 1] - begin) >> 1
        if pairs == 1 and i32(header, _CONFIG_ITEMS)[begin + 1] == 0:
            continue
        for byte_class in range(count[_CLASSES]):
            following = step(header, config, byte_class)
            if following < 0:
                return following
    return count[_CONFIGS]


def _hollow(memory: Memory, total: int) -> NDArray[np.bool_]:
    """Which of the first configurations are hollow: one pair, of the frame set 0."""
    start = memory.get(Slot.CONFIG_START)[: total + 1]
    items = memory.get(Slot.CONFIG_ITEMS)
    single = np.diff(start) == 2
    frames = items[np.minimum(start[:-1] + 1, len(items) - 1)]
    return single & (frames == 0)


@dataclass(frozen=True, eq=False)
class ConstraintWalk:
    """A `DeviceAutomaton` and the constraint whose state numbers it uses."""

    automaton: DeviceAutomaton
    constraint: Constraint
    epoch: int

    @classmethod
    def build(
        cls,
        constraint: Constraint,
        *,
        device: torch.device | str = "cpu",
        states: int = DEFAULT_STATES,
    ) -> ConstraintWalk:
        """Determinise all of it.

        Raises `BudgetExceeded` if more than `states` configurations are reachable (use `pool`,
        whose rows the host fills), `KernelError` for a vocabulary that lacks single bytes: its
        masks depend on a search over tokens, not on bytes alone (use `pool` as well).
        """
        if not constraint._covered:
            raise KernelError(
                "this vocabulary lacks single bytes that its tokens contain, so masks cannot be "
                "computed from bytes alone; use kernels.automaton_walk.pool.MaskPool"
            )
        vocab, cache = constraint.vocab, constraint.cache
        with cache.lock:
            automaton = cache.automaton
            total = automaton.call(explore, 2, states + 2)
            if total > states + 2:
                raise BudgetExceeded("states of a device automaton", states, total - 2)
            memory, classes = automaton.memory, automaton.network.n_classes
            table = memory.get(Slot.NEXT)[: total * classes].reshape(total, classes).copy()
            table[:2] = 1
            table[_hollow(memory, total)] = 1
            device_automaton = DeviceAutomaton.from_table(
                table,
                memory.get(Slot.CONFIG_ACCEPTS)[:total].astype(np.int32),
                memory.get(Slot.CONFIG_COST)[:total],
                automaton.network.class_of,
                vocab.tokens,
                vocab.eos_ids,
                vocab=vocab.size,
                device=device,
            )
            return cls(device_automaton, constraint, cache.epoch)

    def device_state(self, state: int) -> int:
        """The device's number of a constraint state; raises `StaleState` after `compact`."""
        if state == END:
            return END
        if self.epoch != self.constraint.cache.epoch or state >> EPOCH_SHIFT != self.epoch:
            raise StaleState(state)
        return state & ((1 << EPOCH_SHIFT) - 1)

    def states(self, states: Sequence[int]) -> Tensor:
        """Constraint states as int32 [N] on the device."""
        numbers = [self.device_state(s) for s in states]
        return torch.tensor(numbers, dtype=torch.int32, device=self.automaton.device)

    def host_state(self, state: int) -> int:
        """The constraint's number of a live device state (dead has none)."""
        if state == 1:
            raise KernelError("device state 1 is dead: a token was taken that no mask allows")
        return state if state == END else self.epoch << EPOCH_SHIFT | state
