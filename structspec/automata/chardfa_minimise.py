"""From any deterministic table to *the* minimal automaton of its language.

Owns `Table`, what the constructions of `chardfa` make, and `canonical`, which turns one into rows
that depend on the language alone: dead and unreachable states go, equivalent states merge, states
are numbered breadth first, and characters that no state tells apart become one class.

Equivalence is found by partition refinement: blocks are split by the blocks of their successors,
and only predecessors of states that got a new block are looked at again. The largest part keeps
its number, so a state is looked at O(log n) times per successor.

Source: J. E. Hopcroft, "An n log n algorithm for minimizing states in a finite automaton", 1971.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from structspec.automata.chardfa_alphabet import Meter, Ranges, merged

__all__ = ["Rows", "Table", "canonical"]

Rows = tuple[tuple[tuple[int, int], ...], ...]


@dataclass
class Table:
    """A deterministic automaton under construction; state 0 is the start.

    `rows[s]` maps classes to states; a class that is missing leads nowhere.
    """

    classes: list[Ranges]
    rows: list[dict[int, int]] = field(default_factory=list)
    accepting: list[bool] = field(default_factory=list)


def canonical(
    table: Table, meter: Meter, *, minimal: bool = False
) -> tuple[tuple[Ranges, ...], Rows, frozenset[int]]:
    """Classes, rows and accepting states of the minimal automaton.

    `minimal`: no two states are equivalent, so only useless ones are to go.
    """
    live = _live(table)
    if 0 not in live:
        return (), ((),), frozenset()
    if len(live) < len(table.rows):
        rows = [
            {label: target for label, target in row.items() if target in live}
            if state in live
            else {}
            for state, row in enumerate(table.rows)
        ]
    else:
        rows = table.rows
    block = list(range(len(rows))) if minimal else _refine(rows, table.accepting, live, meter)
    return _numbered(table, rows, block)


def _live(table: Table) -> set[int]:
    """The states from which an accepting one is reached, among those reached from the start."""
    reached = {0}
    stack = [0]
    before: dict[int, list[int]] = {}
    while stack:
        state = stack.pop()
        for target in set(table.rows[state].values()):
            before.setdefault(target, []).append(state)
            if target not in reached:
                reached.add(target)
                stack.append(target)
    live = {state for state in reached if table.accepting[state]}
    stack = list(live)
    while stack:
        for source in before.get(stack.pop(), ()):
            if source not in live:
                live.add(source)
                stack.append(source)
    return live


def _refine(
    rows: list[dict[int, int]], accepting: list[bool], live: Iterable[int], meter: Meter
) -> list[int]:
    """The number of each live state's equivalence class (a state of that class)."""
    block = [0] * len(rows)
    members: list[set[int]] = []
    labels: dict[int, tuple[int, ...]] = {}
    first: dict[tuple[bool, tuple[int, ...]], int] = {}
    before: dict[int, list[int]] = {}
    for state in live:
        row = rows[state]
        labels[state] = tuple(sorted(row))
        number = first.setdefault((accepting[state], labels[state]), len(members))
        if number == len(members):
            members.append(set())
        members[number].add(state)
        block[state] = number
        for target in set(row.values()):
            before.setdefault(target, []).append(state)
    dirty = {state for state in labels if len(members[block[state]]) > 1}
    while dirty:
        by_block: dict[int, list[int]] = {}
        for state in dirty:
            by_block.setdefault(block[state], []).append(state)
        dirty = set()
        moves: list[tuple[int, list[int]]] = []
        for number, states in by_block.items():
            if len(members[number]) == 1:
                continue
            parts: dict[tuple[int, ...], list[int]] = {}
            for state in states:
                row = rows[state]
                key = tuple([block[row[label]] for label in labels[state]])
                parts.setdefault(key, []).append(state)
            rest = len(members[number]) - len(states)
            if len(parts) == 1 and not rest:
                continue
            # A state that was looked at has a successor with a new number, and those that were
            # not have none: the rest is a part of its own. The largest part keeps its number.
            groups = sorted(parts.values(), key=len)
            largest = groups.pop()
            if rest >= len(largest):
                groups.append(largest)
            elif rest:
                groups.append(list(members[number].difference(states)))
            moves.extend((number, group) for group in groups)
            meter.check(0)
        for number, group in moves:
            fresh = len(members)
            members[number].difference_update(group)
            members.append(set(group))
            for state in group:
                block[state] = fresh
        for _, group in moves:
            for state in group:
                dirty.update(before.get(state, ()))
    leader = [min(states) for states in members]
    return [leader[number] for number in block]


def _numbered(
    table: Table, rows: list[dict[int, int]], block: list[int]
) -> tuple[tuple[Ranges, ...], Rows, frozenset[int]]:
    """Classes merged where no state tells them apart, states numbered breadth first."""
    start = block[0]
    order = [start]
    index = {start: 0}
    columns: dict[int, list[tuple[int, int]]] = {}
    # The order in which states are met depends on the classes' order, which is that of their
    # first characters; so unmerged classes give the same numbers as merged ones.
    by_first = sorted(range(len(table.classes)), key=lambda label: table.classes[label][0][0])
    rank = {label: place for place, label in enumerate(by_first)}
    for number, state in enumerate(order):
        row = rows[state]
        for label in sorted(row, key=rank.__getitem__):
            target = block[row[label]]
            known = index.get(target)
            if known is None:
                known = index[target] = len(order)
                order.append(target)
            columns.setdefault(label, []).append((number, known))
    same: dict[tuple[tuple[int, int], ...], list[int]] = {}
    for label in by_first:
        if label in columns:
            same.setdefault(tuple(columns[label]), []).append(label)
    found: list[list[tuple[int, int]]] = [[] for _ in order]
    classes: list[Ranges] = []
    for column, labels in same.items():
        for number, target in column:
            found[number].append((len(classes), target))
        if len(labels) == 1:
            classes.append(table.classes[labels[0]])
        else:
            classes.append(merged(pair for label in labels for pair in table.classes[label]))
    accepting = frozenset(number for number, state in enumerate(order) if table.accepting[state])
    return tuple(classes), tuple(map(tuple, found)), accepting
