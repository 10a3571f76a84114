"""The fewest characters from each state of a bounded rule to its end (numba).

A bounded rule is an automaton over characters with a longest length (`ir.Automaton.longest`); its
register counts the characters that have been read. A state may be entered iff the register and this
number together stay within the bound. That is exact: the shortest way on is one that fits, if any.

Invariants: outside of bounded rules the number is 0. A character is counted where it ends, at an
operation edge. Calls inside a character (escapes) lead to rules without members, which are finite
or not by themselves.

Cost: a few sweeps over the edges. Siblings: `costs`, which asks for the cheapest way among those of
fewest characters; `chardfa_lengths` for all lengths of a regular language.
"""

from __future__ import annotations

import numpy as np

from structspec.automata.member_costs import UNREACHABLE
from structspec.automata.tables import BOUNDED, COUNT, LOOP_BODY, PLAIN
from structspec.machine_code.kernel import kernel


@kernel
def fewest_characters(  # type: ignore[no-untyped-def]
    edge_start, edge_class, edge_target, call_start, call_rule, call_target, op_start, op_kind,
    op_first, op_second, final, kind, rule_entry, class_enabled,
):  # fmt: skip
    """int32[S]; `UNREACHABLE` where no way on can be written with the classes of class_enabled."""
    n_states = len(kind)
    fewest = np.zeros(n_states, np.int32)
    bounded = False
    for q in range(n_states):
        if kind[q] == BOUNDED:
            fewest[q] = UNREACHABLE
            bounded = True
    if not bounded:
        return fewest
    finite = np.zeros(n_states, np.uint8)  # states outside that can be finished
    changed = True
    forward = True
    while changed:
        changed = False
        forward = not forward
        for i in range(n_states):
            q = i if forward else n_states - 1 - i
            if kind[q] == BOUNDED:
                best = fewest[q]
                for o in range(op_start[q], op_start[q + 1]):
                    if op_first[o] >= 0:
                        best = min(best, 1)
                    if op_second[o] >= 0:
                        best = min(best, fewest[op_second[o]] + 1)
                for e in range(edge_start[q], edge_start[q + 1]):
                    if class_enabled[edge_class[e]]:
                        best = min(best, fewest[edge_target[e]])
                for c in range(call_start[q], call_start[q + 1]):
                    if finite[rule_entry[call_rule[c]]]:
                        best = min(best, fewest[call_target[c]])
                if best < fewest[q]:
                    fewest[q] = best
                    changed = True
                continue
            if finite[q] or kind[q] not in (PLAIN, LOOP_BODY):
                continue
            done = final[q] != 0
            for o in range(op_start[q], op_start[q + 1]):
                done = done or op_kind[o] == COUNT
            for e in range(edge_start[q], edge_start[q + 1]):
                after = edge_target[e]
                done = done or (class_enabled[edge_class[e]] and finite[after] != 0)
            for c in range(call_start[q], call_start[q + 1]):
                callee = rule_entry[call_rule[c]]
                done = done or (finite[callee] != 0 and finite[call_target[c]] != 0)
            if done:
                finite[q] = 1
                changed = True
    return fewest
