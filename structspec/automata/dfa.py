"""Determinisation of one rule: subset construction over bytes, calls and operations.

A `Dfa` state has at most one target per byte, any number of call edges (one target per called
rule) and operation edges. Calls and operations stay nondeterministic; the lazy pushdown
automaton follows all of them at once.

Cost: the subset construction touches each (state, distinct byte set) once. Sibling: `nfa`.
Source: M. O. Rabin and D. Scott, "Finite automata and their decision problems", 1959.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from structspec.automata.nfa import ByteMask, Nfa, Operation


@dataclass
class Dfa:
    """States are 0, 1, …; each list is indexed by state.

    `edges[s]`: (bytes, target, primary) with disjoint byte sets; primary edges are those that
    some spelling outside `ir.Variant` takes.
    """

    edges: list[list[tuple[ByteMask, int, bool]]] = field(default_factory=list)
    calls: list[list[tuple[int, int]]] = field(default_factory=list)
    operations: list[list[Operation]] = field(default_factory=list)
    final: list[bool] = field(default_factory=list)


class Determiniser:
    """Determinises regions of one `Nfa` into one `Dfa`, sharing equal subsets.

    `check(n_states)` is called now and then and may raise (budgets). `keep` names NFA states that
    must stay apart from states that only look the same.
    """

    def __init__(
        self,
        nfa: Nfa,
        final: int,
        check: Callable[[int], None],
        keep: frozenset[int] = frozenset(),
    ) -> None:
        self.dfa = Dfa()
        self._keep = keep
        self._nfa = nfa
        self._final = final
        self._check = check
        self._ids: dict[frozenset[int], int] = {}
        self._pending: list[frozenset[int]] = []
        self._closures: dict[frozenset[int], frozenset[int]] = {}
        self._of_single: dict[int, int] = {}

    def region(self, start: int) -> int:
        """Determinise what is reachable from NFA state `start`; returns its DFA state.

        Targets of operations are determinised too (they are states of the same rule).
        """
        state = self._state(frozenset((start,)))
        while self._pending:
            self._expand(self._pending.pop())
        return state

    def _closure(self, subset: frozenset[int]) -> frozenset[int]:
        found = self._closures.get(subset)
        if found is None:
            seen = set(subset)
            stack = list(subset)
            epsilon = self._nfa.epsilon
            while stack:
                for target in epsilon[stack.pop()]:
                    if target not in seen:
                        seen.add(target)
                        stack.append(target)
            found = self._closures[subset] = self._essential(seen)
        return found

    def _essential(self, states: set[int]) -> frozenset[int]:
        # States that only have epsilon edges say nothing once the closure is known; leaving
        # them out makes more subsets equal.
        nfa = self._nfa
        return frozenset(
            s
            for s in states
            if nfa.edges[s]
            or nfa.calls[s]
            or nfa.operations[s]
            or s == self._final
            or s in self._keep
        )

    def _state(self, subset: frozenset[int]) -> int:
        closed = self._closure(subset)
        found = self._ids.get(closed)
        if found is None:
            dfa = self.dfa
            found = self._ids[closed] = len(dfa.final)
            dfa.edges.append([])
            dfa.calls.append([])
            dfa.operations.append([])
            dfa.final.append(self._final in closed)
            self._pending.append(closed)
            if found % 1024 == 1023:
                self._check(found + 1)
        return found

    def _single(self, target: int) -> int:
        """The state of one NFA state; most targets are such, so a cheaper look-up pays."""
        found = self._of_single.get(target)
        if found is None:
            found = self._of_single[target] = self._state(frozenset((target,)))
        return found

    def _expand(self, closed: frozenset[int]) -> None:
        nfa, dfa = self._nfa, self.dfa
        state = self._ids[closed]
        byte_edges: list[tuple[ByteMask, int, bool]] = []
        calls: dict[int, set[int]] = {}
        for source in sorted(closed):
            byte_edges.extend(nfa.edges[source])
            for rule, target in nfa.calls[source]:
                calls.setdefault(rule, set()).add(target)
            for op in nfa.operations[source]:
                targets = tuple(self._single(t) for t in op.targets)
                dfa.operations[state].append(Operation(op.kind, op.argument, targets))
        for rule, targets_ in calls.items():
            dfa.calls[state].append((rule, self._state(frozenset(targets_))))
        if len(byte_edges) == 1:
            mask, target, variant = byte_edges[0]
            dfa.edges[state] = [(mask, self._single(target), not variant)]
            return
        merged: dict[tuple[int, bool], ByteMask] = {}
        for mask, targets__, primary in _partition(byte_edges):
            key = (self._state(targets__), primary)
            merged[key] = merged.get(key, 0) | mask
        dfa.edges[state] = [(mask, target, primary) for (target, primary), mask in merged.items()]


def _partition(
    edges: list[tuple[ByteMask, int, bool]],
) -> list[tuple[ByteMask, frozenset[int], bool]]:
    """Disjoint byte sets with the targets that each reaches, and whether one is primary."""
    by_key: dict[tuple[int, bool], ByteMask] = {}
    for mask, target, variant in edges:
        key = (target, not variant)
        by_key[key] = by_key.get(key, 0) | mask
    # Mutable target sets: thousands of literals may begin with the same byte.
    parts: list[tuple[ByteMask, set[int], bool]] = []
    seen: ByteMask = 0
    for (target, primary), mask in by_key.items():
        common = mask & seen
        if common:
            split: list[tuple[ByteMask, set[int], bool]] = []
            for part, targets, part_primary in parts:
                inside = part & mask
                if inside:
                    if part != inside:
                        split.append((part & ~mask, set(targets), part_primary))
                    targets.add(target)
                    split.append((inside, targets, part_primary or primary))
                else:
                    split.append((part, targets, part_primary))
            parts = split
        fresh = mask & ~seen
        if fresh:
            parts.append((fresh, {target}, primary))
            seen |= fresh
    return [(mask, frozenset(targets), primary) for mask, targets, primary in parts]
