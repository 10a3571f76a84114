"""Nondeterministic automata over characters, determinised into a `Table`.

`CharNfa` is the builder that front ends fill: states, edges labelled with sets of characters, and
empty edges. `determinise` is the subset construction over the classes of those sets; only states
that read a character or accept count in a subset, so subsets that differ in wiring are equal.

As soon as every continuation is accepted, what else a subset holds is forgotten: ``a|b|c``, looked
for anywhere in a text, need not remember which of them it has found.

Cost: each (subset, class) once. Siblings: `subsets`, the same over bytes for the network;
`chardfa_product`.
Source: M. O. Rabin and D. Scott, "Finite automata and their decision problems", 1959.
"""

from __future__ import annotations

from structspec.automata.chardfa_alphabet import SCALARS, Meter, Ranges, partition
from structspec.automata.chardfa_minimise import Table
from structspec.errors import BudgetExceeded

__all__ = ["CharNfa", "determinise"]

# A pattern may have this many states more than its deterministic automaton is allowed to have.
_MOST_NFA_STATES = 200_000


class CharNfa:
    """States are 0, 1, …; every state has empty edges and at most one edge with a label."""

    def __init__(self) -> None:
        self.empty: list[list[int]] = []
        self.edges: list[tuple[int, int] | None] = []
        self.labels: dict[Ranges, int] = {}

    def state(self) -> int:
        """A new state without edges."""
        if len(self.empty) >= _MOST_NFA_STATES:
            raise BudgetExceeded("states", _MOST_NFA_STATES, len(self.empty) + 1)
        self.empty.append([])
        self.edges.append(None)
        return len(self.empty) - 1

    def join(self, source: int, target: int) -> None:
        """An empty edge."""
        self.empty[source].append(target)

    def read(self, source: int, ranges: Ranges, target: int) -> None:
        """One character out of `ranges` leads from `source` to `target`."""
        if not ranges:
            return
        if self.edges[source] is not None:
            fork = self.state()
            self.join(source, fork)
            source = fork
        self.edges[source] = (self.labels.setdefault(ranges, len(self.labels)), target)


def determinise(nfa: CharNfa, start: int, end: int, meter: Meter) -> Table:
    """The subset construction from `start`; subsets that hold `end` accept."""
    classes, parts = partition(list(nfa.labels))
    rows: list[dict[int, int]] = []
    accepting: list[int] = []
    closures: dict[int, frozenset[int]] = {}

    def closure(state: int) -> frozenset[int]:
        found = closures.get(state)
        if found is None:
            seen = {state}
            stack = [state]
            while stack:
                for target in nfa.empty[stack.pop()]:
                    if target not in seen:
                        seen.add(target)
                        stack.append(target)
            meter.work(5 * len(seen))
            found = frozenset(s for s in seen if nfa.edges[s] is not None or s == end)
            closures[state] = found
        return found

    numbers: dict[frozenset[int], int] = {}
    order: list[frozenset[int]] = []

    # States that read any character; where one leads to itself and the end, all texts are in.
    anything = nfa.labels.get(SCALARS)
    loops = frozenset(
        state for state, edge in enumerate(nfa.edges) if edge is not None and edge[0] == anything
    )
    whole: list[frozenset[int]] = []

    def settled(subset: frozenset[int]) -> bool:
        if end not in subset:
            return False
        for state in loops & subset:
            edge = nfa.edges[state]
            if edge is not None and {state, end} <= closure(edge[1]):
                if not whole:
                    whole.append(frozenset((state, end)))
                return True
        return False

    def number(subset: frozenset[int]) -> int:
        found = numbers.get(subset)
        if found is None and loops and settled(subset) and subset != whole[0]:
            # What else might match does not matter: one such subset stands for all.
            found = numbers[subset] = number(whole[0])
        if found is None:
            found = numbers[subset] = len(order)
            order.append(subset)
            rows.append({})
            if end in subset:
                accepting.append(found)
            meter.check(found + 1)
        return found

    number(closure(start))
    for source, subset in enumerate(order):
        targets: dict[int, list[frozenset[int]]] = {}
        for state in subset:
            edge = nfa.edges[state]
            if edge is not None:
                one = closure(edge[1])
                meter.work(len(one))
                targets.setdefault(edge[0], []).append(one)
        row = rows[source]
        if len(targets) == 1:
            ((label, sets),) = targets.items()
            target = number(sets[0] if len(sets) == 1 else frozenset().union(*sets))
            for part in parts[label]:
                row[part] = target
            continue
        by_part: dict[int, list[int]] = {}
        for label in targets:
            for part in parts[label]:
                by_part.setdefault(part, []).append(label)
        unions: dict[tuple[int, ...], int] = {}
        for part, labels in by_part.items():
            key = tuple(labels)
            found = unions.get(key)
            if found is None:
                sets = [one for label in labels for one in targets[label]]
                found = unions[key] = number(
                    sets[0] if len(sets) == 1 else frozenset().union(*sets)
                )
            row[part] = found
    return Table.of_rows(classes, [sorted(row.items()) for row in rows], accepting)
