"""The compiled form of a grammar: flat, immutable arrays.

A `Network` is what the numba kernels of `pushdown` walk and what `costs` measures; `network` builds
it. It knows no vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

IntArray = NDArray[np.int32]

#: Kinds of states, by what their cost to the end of the rule depends on (see `costs`).
PLAIN, LOOP_BODY, MEMBER_VALUE, MEMBER_KEY, BOUNDED = 0, 1, 2, 3, 4
#: Kinds of operation edges.
COUNT, MEMBER, REST, CHARACTER = 0, 1, 2, 3


@dataclass(frozen=True)
class Network:
    """Flat arrays; S states, E byte edges, one row per rule, loop or members list.

    class_of: uint8[256], the byte class of every byte; `class_bytes[c]` its bytes. Special token i
    of `specials` (names) has the class `special_class(i)`, behind those of bytes, without bytes.
    edge_start[S + 1], edge_class[E], edge_target[E], edge_primary[E]: sorted by class per state.
    call_*: call edges per state; call_rule, call_target, call_tail (1: nothing is pushed).
    op_*: operation edges per state; op_first / op_second are the targets (−1: none).
    final[S], kind[S], data[S]: `data` is the loop or members index the state belongs to (−1).
    rule_entry[R], rule_kind[R], rule_data[R].
    loop_min, loop_max (−1: none): of loops, and of automata with a bound on the length; members_*:
    see `MembersTable`.
    """

    n_states: int
    class_of: NDArray[np.uint8]
    class_bytes: tuple[bytes, ...]
    edge_start: IntArray
    edge_class: IntArray
    edge_target: IntArray
    edge_primary: NDArray[np.uint8]
    call_start: IntArray
    call_rule: IntArray
    call_target: IntArray
    call_tail: NDArray[np.uint8]
    op_start: IntArray
    op_kind: IntArray
    op_argument: IntArray
    op_first: IntArray
    op_second: IntArray
    final: NDArray[np.uint8]
    kind: NDArray[np.uint8]
    data: IntArray
    rank: IntArray
    rule_entry: IntArray
    rule_kind: IntArray
    rule_data: IntArray
    loop_min: IntArray
    loop_max: IntArray
    members: MembersTable
    start_nullable: bool
    specials: tuple[str, ...] = ()

    @property
    def n_classes(self) -> int:
        """How many classes of bytes and special tokens there are."""
        return len(self.class_bytes)

    def special_class(self, index: int) -> int:
        """The class of special token `index`."""
        return len(self.class_bytes) - len(self.specials) + index

    @property
    def n_rules(self) -> int:
        """How many rules there are; rule 0 is the start."""
        return len(self.rule_entry)


@dataclass(frozen=True)
class MembersTable:
    """Members lists: list m owns the member slots `start[m] .. start[m + 1] − 1`, the last of
    which is a sentinel behind its n members.

    required, repeatable, value_state (where the value begins): per slot.
    key_state[m], separator_state[m]: where a key begins, where the separator does.
    any_order[m]: 1 if the register is a set of members, 0 if it is the next member's index.
    minimum[m], maximum[m] (−1: none): how many members may be written; levels[m]: counts that the
    register tells apart, minus one. first_repeatable[m]: index of the first repeatable member.

    Registers: in declared order `count · (n + 1) + next index`; in any order the number of an
    interned row that holds the count and one bit per member. Counts stop at `levels`.
    """

    start: IntArray
    required: NDArray[np.uint8]
    repeatable: NDArray[np.uint8]
    value_state: IntArray
    key_state: IntArray
    separator_state: IntArray
    any_order: NDArray[np.uint8]
    minimum: IntArray
    maximum: IntArray
    levels: IntArray
    first_repeatable: IntArray

    @property
    def n_lists(self) -> int:
        """How many members lists there are."""
        return len(self.key_state)
