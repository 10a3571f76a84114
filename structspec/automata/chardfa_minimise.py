"""From any deterministic table to *the* minimal automaton of its language.

Owns `Table`, an automaton as arrays, and `canonical`, which turns one into a table that depends on
the language alone: dead states go, equivalent states merge, states are numbered
breadth first, and characters that no state tells apart become one class.

Equivalence is found by partition refinement of states and edges at once: edges with one label that
lead to one block split the blocks from which they come, and a new block splits the edges that lead
to it. The smaller part gets the new number, so an edge is looked at O(log n) times. States need not
have an edge for every label.

Cost: edges x log n, in compiled code. Siblings: `chardfa_product` and `chardfa_nfa`, which make
tables; `chardfa_words`, which finds minimal automata of lists without refinement.
Source: A. Valmari, "Fast brief practical DFA minimization", 2012; J. E. Hopcroft, "An n log n
algorithm for minimizing states in a finite automaton", 1971.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from structspec.automata.chardfa_alphabet import Ranges, merged
from structspec.automata.memory import inner, wide
from structspec.automata.views import view_rows
from structspec.machine_code.kernel import kernel

__all__ = ["MOST_EDGES", "Rows", "Table", "canonical", "spans", "with_coarsest_classes"]

Rows = tuple[tuple[tuple[int, int], ...], ...]

#: A table may have this many edges: some hundred MiB while it is minimised.
MOST_EDGES = 5_000_000

# Rows of a partition: its elements by set, the place of each element, the set of each element;
# where each set begins and ends and how many of its first elements are marked; sets with marks.
_ELEMENT, _PLACE, _OF, _FIRST, _PAST, _MARKED, _TOUCHED = range(7)


@dataclass(frozen=True, eq=False, slots=True)
class Table:
    """A deterministic automaton; state 0 is the start.

    The edges of state s are `cuts[s]` to `cuts[s + 1]`, each with the number of a class, in rising
    order, and a target (int32[E]); a class that is missing leads nowhere. accepts: uint8[S].
    States that are not reached from the first one do no harm.
    `classes` are in the order of their first characters.
    """

    classes: tuple[Ranges, ...]
    cuts: NDArray[np.int32]
    labels: NDArray[np.int32]
    targets: NDArray[np.int32]
    accepts: NDArray[np.uint8]

    @staticmethod
    def of_rows(
        classes: Iterable[Ranges],
        rows: Sequence[Iterable[tuple[int, int]]],
        accepting: Iterable[int],
    ) -> Table:
        """A table from (class, target) pairs by state."""
        edges = [edge for row in rows for edge in row]
        flat = np.array(edges, np.int32).reshape(-1, 2)
        accepts = np.zeros(len(rows), np.uint8)
        accepts[list(accepting)] = 1
        cuts = np.zeros(len(rows) + 1, np.int32)
        np.cumsum([len(tuple(row)) for row in rows], out=cuts[1:])
        return Table(tuple(classes), cuts, flat[:, 0].copy(), flat[:, 1].copy(), accepts)

    def __len__(self) -> int:
        return len(self.accepts)

    def rows(self) -> Rows:
        """The edges by state."""
        edges = list(zip(self.labels.tolist(), self.targets.tolist(), strict=True))
        return tuple([tuple(edges[a:b]) for a, b in pairwise(self.cuts.tolist())])


_EMPTY = Table.of_rows((), [()], ())


def canonical(table: Table, *, minimal: bool = False) -> Table:
    """The minimal automaton.

    `minimal`: no two states are equivalent, so only useless ones are to go.
    """
    n, m, cuts, labels, targets, accepts, *_ = _reduce(table, minimal)
    if not n:
        return _EMPTY
    cuts, labels, targets, accepts = cuts[: n + 1], labels[:m], targets[:m], accepts[:n]
    return with_coarsest_classes(Table(table.classes, cuts, labels, targets, accepts))


def with_coarsest_classes(table: Table) -> Table:
    """The same automaton, with characters that no state tells apart as one class.

    The arrays are copies: those of `table` may have room behind them.
    """
    n, cuts, labels, targets = len(table), table.cuts, table.labels, table.targets
    source = np.repeat(np.arange(n, dtype=np.int32), np.diff(cuts))
    classes, number, first = _classes_of_columns(table.classes, source, labels, targets)
    kept = first[labels]
    accepts = table.accepts.copy()
    if kept.all():
        return Table(classes, cuts.copy(), number[labels], targets.copy(), accepts)
    kept_cuts = np.zeros(n + 1, np.int32)
    np.cumsum(np.bincount(source[kept], minlength=n), out=kept_cuts[1:])
    return Table(classes, kept_cuts, number[labels[kept]], targets[kept], accepts)


def _classes_of_columns(
    sets: Sequence[Ranges], source: NDArray[Any], label: NDArray[Any], target: NDArray[Any]
) -> tuple[tuple[Ranges, ...], NDArray[np.int32], NDArray[np.bool_]]:
    """Sets of characters with the same edges as one class: the classes, the class of each set, and
    whether a set is the first one of its class. Sets without edges are in none.

    source, label, target: the edges, by source. Classes are in the order of `sets`.
    """
    order = np.argsort(label, kind="stable")
    cuts = np.cumsum(np.bincount(label, minlength=len(sets))).tolist()
    source, target = source[order], target[order]
    found: dict[bytes, list[int]] = {}
    number = np.zeros(len(sets), np.int32)
    first = np.zeros(len(sets), np.bool_)
    for index, (a, b) in enumerate(pairwise((0, *cuts))):
        if a < b:
            column = source[a:b].tobytes() + target[a:b].tobytes()
            members = found.setdefault(column, [])
            first[index] = not members
            members.append(index)
    classes = []
    for index, members in enumerate(found.values()):
        number[members] = index
        one = sets[members[0]]
        if len(members) > 1:
            one = merged(pair for member in members for pair in sets[member])
        classes.append(one)
    return tuple(classes), number, first


def spans(table: Table) -> tuple[NDArray[np.int32], int]:
    """Per state, how many characters the shortest way to acceptance takes, and the most characters
    of a text (-1: any number). Of a table whose states all reach acceptance."""
    *_, least, longest = _reduce(table, True)
    return least, int(longest)


def _reduce(table: Table, minimal: bool) -> Any:
    by_state = np.empty((7, len(table)), np.int32)
    by_edge = np.empty((7, len(table.labels)), np.int32)
    return _reduced(
        table.cuts, table.labels, table.targets, table.accepts, len(table.classes), minimal,
        by_state, by_edge,
    )  # fmt: skip


@kernel
def _reduced(cuts, labels, targets, accepts, n_labels, minimal, by_state, by_edge):  # type: ignore[no-untyped-def]
    """States and edges of the minimal automaton, its arrays with room behind them, per state the
    least number of characters that must follow, and the most characters of a text (-1: no bound).

    by_state, by_edge: int32[7, n] and int32[7, m], room for the partitions.
    """
    n = len(accepts)
    m = len(labels)
    blocks = view_rows(by_state)
    parts = view_rows(by_edge)
    out_cuts = np.zeros(n + 1, np.int32)
    out_labels = np.empty(m, np.int32)
    out_targets = np.empty(m, np.int32)
    out_accepts = np.zeros(n, np.uint8)
    # Which edges arrive at each state.
    source = np.empty(m, np.int32)
    arriving = np.empty(m, np.int32)
    into = np.zeros(n + 2, np.int32)
    for s in range(n):
        for e in range(cuts[s], cuts[s + 1]):
            source[e] = s
            into[targets[e] + 2] += 1
    for s in range(n):
        into[s + 2] += into[s + 1]
    for e in range(m):
        arriving[into[targets[e] + 1]] = e
        into[targets[e] + 1] += 1
    # From the ends backwards: states that reach acceptance, and in how many steps.
    queue = np.empty(n, np.int32)
    least = np.full(n, -1, np.int32)
    tail = 0
    for s in range(n):
        if accepts[s]:
            least[s] = 0
            queue[tail] = s
            tail += 1
    n_live = tail
    head = 0
    while head < n_live:
        s = queue[head]
        head += 1
        for i in range(into[s], into[s + 1]):
            before = source[arriving[i]]
            if least[before] < 0:
                least[before] = least[s] + 1
                queue[n_live] = before
                n_live += 1
    if least[0] < 0:
        return 0, 0, out_cuts, out_labels, out_targets, out_accepts, least, -1
    for place in range(n_live):
        s = queue[place]
        blocks[_ELEMENT, place] = s
        blocks[_PLACE, s] = place
        blocks[_OF, s] = s if minimal else 0
        blocks[_FIRST, s] = place
    if not minimal:
        blocks[_FIRST, 0] = 0
        blocks[_PAST, 0] = n_live
        blocks[_MARKED, 0] = 0
        # The accepting states are the first ones: mark and split.
        blocks[_MARKED, 0] = tail
        blocks[_TOUCHED, 0] = 0
        n_blocks = _split(blocks, wide(1), wide(1))
        # Edges by label.
        begin = np.zeros(n_labels + 1, np.int32)
        for e in range(m):
            if least[targets[e]] >= 0:
                begin[labels[e] + 1] += 1
        n_parts = wide(0)
        set_of = np.zeros(n_labels, np.int32)
        for label in range(n_labels):
            count = begin[label + 1]
            begin[label + 1] += begin[label]
            if count:
                set_of[label] = n_parts
                parts[_FIRST, n_parts] = begin[label]
                parts[_PAST, n_parts] = begin[label + 1]
                parts[_MARKED, n_parts] = 0
                n_parts += 1
        for e in range(m):
            if least[targets[e]] >= 0:
                place = begin[labels[e]]
                begin[labels[e]] += 1
                parts[_ELEMENT, place] = e
                parts[_PLACE, e] = place
                parts[_OF, e] = set_of[labels[e]]
        block = 1
        part = 0
        while part < n_parts:
            touched = wide(0)
            for i in range(parts[_FIRST, part], parts[_PAST, part]):
                touched = _mark(blocks, wide(source[parts[_ELEMENT, i]]), touched)
            n_blocks = _split(blocks, n_blocks, touched)
            part += 1
            while block < n_blocks:
                touched = wide(0)
                for i in range(blocks[_FIRST, block], blocks[_PAST, block]):
                    s = blocks[_ELEMENT, i]
                    for j in range(into[s], into[s + 1]):
                        touched = _mark(parts, wide(arriving[j]), touched)
                n_parts = _split(parts, n_parts, touched)
                block += 1
    # Breadth first.
    number = np.full(n, -1, np.int32)
    queue[0] = blocks[_OF, 0]
    number[queue[0]] = 0
    tail = 1
    head = 0
    n_edges = 0
    while head < tail:
        s = blocks[_ELEMENT, blocks[_FIRST, queue[head]]]
        for e in range(cuts[s], cuts[s + 1]):
            if least[targets[e]] >= 0:
                after = blocks[_OF, targets[e]]
                if number[after] < 0:
                    number[after] = tail
                    queue[tail] = after
                    tail += 1
                out_labels[n_edges] = labels[e]
                out_targets[n_edges] = number[after]
                n_edges += 1
        out_accepts[head] = accepts[s]
        head += 1
        out_cuts[head] = n_edges
    n_states = tail
    # The longest way to each state, in topological order, if there is one.
    longest = 0
    n_sorted = 0
    for s in range(n_states):
        number[s] = 0
        blocks[_MARKED, s] = 0
    for e in range(n_edges):
        blocks[_MARKED, out_targets[e]] += 1
    if blocks[_MARKED, 0] == 0:
        queue[0] = 0
        n_sorted = 1
    head = 0
    while head < n_sorted:
        s = queue[head]
        head += 1
        if out_accepts[s]:
            longest = max(longest, number[s])
        for e in range(out_cuts[s], out_cuts[s + 1]):
            after = out_targets[e]
            number[after] = max(number[after], number[s] + 1)
            blocks[_MARKED, after] -= 1
            if blocks[_MARKED, after] == 0:
                queue[n_sorted] = after
                n_sorted += 1
    if n_sorted < n_states:
        longest = -1
    return (
        n_states, n_edges, out_cuts, out_labels, out_targets, out_accepts, least, longest
    )  # fmt: skip


@inner
def _mark(sets, element, touched):  # type: ignore[no-untyped-def]
    """Move an element that is not marked yet to the marked ones of its set."""
    one = sets[_OF, element]
    place = sets[_PLACE, element]
    to = sets[_FIRST, one] + sets[_MARKED, one]
    other = sets[_ELEMENT, to]
    sets[_ELEMENT, place] = other
    sets[_PLACE, other] = place
    sets[_ELEMENT, to] = element
    sets[_PLACE, element] = to
    if sets[_MARKED, one] == 0:
        sets[_TOUCHED, touched] = one
        touched += 1
    sets[_MARKED, one] += 1
    return touched


@inner
def _split(sets, n_sets, touched):  # type: ignore[no-untyped-def]
    """Part the marked elements of the first `touched` sets from the others; how many sets then."""
    for k in range(touched):
        one = sets[_TOUCHED, k]
        cut = sets[_FIRST, one] + sets[_MARKED, one]
        if cut < sets[_PAST, one]:
            if cut - sets[_FIRST, one] <= sets[_PAST, one] - cut:
                sets[_FIRST, n_sets] = sets[_FIRST, one]
                sets[_PAST, n_sets] = cut
                sets[_FIRST, one] = cut
            else:
                sets[_FIRST, n_sets] = cut
                sets[_PAST, n_sets] = sets[_PAST, one]
                sets[_PAST, one] = cut
            for i in range(sets[_FIRST, n_sets], sets[_PAST, n_sets]):
                sets[_OF, sets[_ELEMENT, i]] = n_sets
            sets[_MARKED, n_sets] = 0
            n_sets += 1
        sets[_MARKED, one] = 0
    return n_sets
