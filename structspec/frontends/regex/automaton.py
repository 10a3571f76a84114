r"""Patterns with any assertions as deterministic automata: lookaround, `\b`, anchors, everywhere.

Owns `language`. An assertion that looks back is true or false by what has been read, so every
lookbehind (and `^`, `\b`) is a deterministic automaton that runs beside the pattern. One that looks
ahead is an obligation on what comes: a run of the pattern carries the states of the obligations
that it has taken on, and dies when one fails. A state of the result is what all lookbehinds say
together with a set of such runs, so lookaround may stand anywhere, inside repetitions too
(`(?:(?!\*/).)*`).

A terminal of a grammar is only a part of the text. `depends` says whether some assertion can see
what stands before or behind the part and come to another verdict for it: `if(?!\w)` does,
`"(?!")[^"]+"` does not.

Invariant: exact, or `BudgetExceeded`. Refused: a lookahead inside a lookbehind.
Cost: exponential at worst, in the number of obligations that can be open at once (seldom two).
Sibling: `resolve`, which keeps counters and needs no automaton, for anchors and most `\b`.
Source: A. K. Chandra, D. C. Kozen and L. J. Stockmeyer, "Alternation", 1981.

Example::

    >>> from structspec.frontends.regex.parse import parse
    >>> comment = language(parse(r"/\*(?:(?!\*/).)*\*/", "python")).dfa
    >>> comment.accepts("/* a **/"), comment.accepts("/* */ */")
    (True, False)
    >>> language(parse(r"if(?!\w)", "python"), alone=False).depends
    'lookahead'
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

from structspec.automata.chardfa import Budget, CharDfa, CharNfa
from structspec.automata.chardfa_alphabet import Meter, Ranges, outside, partition
from structspec.errors import BudgetExceeded, UnsupportedFeature
from structspec.frontends.regex.ast import (
    ANYTHING,
    Alternation,
    Chars,
    Concat,
    End,
    Look,
    Node,
    Repeat,
    Start,
    WordBoundary,
    concat,
)
from structspec.frontends.regex.classes import SCALARS

__all__ = ["Language", "language"]

_MOST_NFA_STATES = 100_000
_MOST_STATES = 30_000
# What a run, and an obligation, of one step weighs in the units of `Meter.work`.
_RUN_WORK, _DUE_WORK = 60, 30
# Contexts that are tried to see whether a part depends on its neighbours.
_MOST_CONTEXTS = 200

_ANY = Chars(SCALARS)
#: An obligation: which lookahead, its polarity, the lookbehinds where it began, its state.
_Obligation = tuple[int, bool, tuple[int, ...], int]
#: A run of the pattern: its state and its obligations.
_Run = tuple[int, frozenset[_Obligation]]
_State = tuple[tuple[int, ...], frozenset[_Run]]


@dataclass(frozen=True, slots=True)
class Language:
    """The texts that a pattern matches as a whole.

    depends: the kind of assertion whose verdict may change when other text stands around the
        match, None if the match is the same everywhere.
    """

    dfa: CharDfa
    depends: Literal["lookahead", "lookbehind"] | None


def language(node: Node, *, search: bool = False, alone: bool = True) -> Language:
    """The language of a tree, with its assertions.

    search: the texts that contain a match, instead of those that match as a whole.
    alone: nothing stands around the text, so `depends` is not looked for and None.

    Raises `UnsupportedFeature` for a lookahead inside a lookbehind and `BudgetExceeded`.
    """
    if search:
        node = concat([ANYTHING, node, ANYTHING])
    engine = _Engine(node, _atoms(node))
    dfa = engine.dfa(engine.begin)
    return Language(dfa, None if alone else engine.depends(dfa))


def _atoms(node: Node) -> list[Ranges]:
    """Sets of characters that nothing in the tree tells apart."""
    found: dict[Ranges, None] = {}
    stack = [node]
    while stack:
        node = stack.pop()
        match node:
            case Chars(ranges):
                found.setdefault(ranges)
            case WordBoundary(word, _):
                found.setdefault(word)
            case End(or_newline=True):
                found.setdefault(((10, 10),))
            case Concat(items) | Alternation(items):
                stack.extend(items)
            case Repeat(item, _, _) | Look(item, _, _):
                stack.append(item)
    sets = [ranges for ranges in found if ranges]
    parts, _ = partition(sets)
    rest = outside(parts)
    return [*parts, *([rest] if rest else [])]


@dataclass
class _Table:
    """A complete deterministic automaton over atoms, state 0 first."""

    rows: list[list[int]] = field(default_factory=list)
    accepting: list[bool] = field(default_factory=list)

    @cached_property
    def fate(self) -> list[bool | None]:
        """Per state True if every continuation is accepted, False if none is, else None."""
        can, must_not = (self._reaching(wanted) for wanted in (True, False))
        return [
            False if not can[s] else True if not must_not[s] else None
            for s in range(len(self.rows))
        ]

    def _reaching(self, wanted: bool) -> list[bool]:
        before: list[list[int]] = [[] for _ in self.rows]
        for state, row in enumerate(self.rows):
            for target in set(row):
                before[target].append(state)
        found = [accepts == wanted for accepts in self.accepting]
        pending = [state for state, held in enumerate(found) if held]
        while pending:
            for source in before[pending.pop()]:
                if not found[source]:
                    found[source] = True
                    pending.append(source)
        return found


class _Engine:
    """One tree as a nondeterministic automaton with guards, and the ways to run it."""

    def __init__(self, node: Node, atoms: list[Ranges], meter: Meter | None = None) -> None:
        self.atoms = atoms
        #: The work of all automata of the pattern together.
        self._meter = meter or Budget().meter()
        self.edges: list[list[tuple[frozenset[int], int]]] = []
        #: Empty edges: target and guard, (kind, number, negated) or None.
        self.empty: list[list[tuple[int, tuple[bool, int, bool] | None]]] = []
        self._ranges: dict[Ranges, frozenset[int]] = {}
        self._behind: list[_Table] = []
        self._behind_of: dict[Node, int] = {}
        self._ahead: list[tuple[int, int]] = []  # start and end of each lookahead
        self._ahead_of: dict[Node, int] = {}
        self._tables: dict[tuple[int, tuple[int, ...]], _Table] = {}
        self.start, self.end = self._state(), self._state()
        self._add(node, self.start, self.end)
        self.begin: tuple[int, ...] = (0,) * len(self._behind)

    # -- building ----------------------------------------------------------------------------

    def _state(self) -> int:
        if len(self.edges) >= _MOST_NFA_STATES:
            raise BudgetExceeded("states", _MOST_NFA_STATES, len(self.edges) + 1)
        self.edges.append([])
        self.empty.append([])
        return len(self.edges) - 1

    def _labels(self, ranges: Ranges) -> frozenset[int]:
        found = self._ranges.get(ranges)
        if found is None:
            inside = CharDfa.of_length(1, 1, ranges) if ranges else CharDfa.nothing()
            found = self._ranges[ranges] = frozenset(
                number for number, atom in enumerate(self.atoms) if inside.accepts(chr(atom[0][0]))
            )
        return found

    def _add(self, node: Node, start: int, end: int) -> None:
        match node:
            case Chars(ranges):
                self.edges[start].append((self._labels(ranges), end))
            case Concat(items):
                for index, item in enumerate(items):
                    there = end if index == len(items) - 1 else self._state()
                    self._add(item, start, there)
                    start = there
                if not items:
                    self.empty[start].append((end, None))
            case Alternation(items):
                for item in items:
                    first, last = self._state(), self._state()
                    self.empty[start].append((first, None))
                    self._add(item, first, last)
                    self.empty[last].append((end, None))
            case Repeat(item, minimum, maximum):
                self._add_repeat(item, minimum, maximum, start, end)
            case Start():
                self._add(Look(_ANY, behind=True, negated=True), start, end)
            case End(or_newline):
                if or_newline:
                    newline = Repeat(Chars(((10, 10),)), 0, 1)
                    self._add(Look(concat([newline, End()])), start, end)
                else:
                    self._add(Look(_ANY, negated=True), start, end)
            case WordBoundary(word, negated):
                inside = Chars(word)
                for before in (False, True):
                    look_back = Look(inside, behind=True, negated=before)
                    look_on = Look(inside, negated=before == negated)
                    self._add(concat([look_back, look_on]), start, end)
            case Look(item, behind, negated):
                number = self._lookbehind(item) if behind else self._lookahead(item)
                self.empty[start].append((end, (behind, number, negated)))

    def _add_repeat(
        self, item: Node, minimum: int, maximum: int | None, start: int, end: int
    ) -> None:
        here = self._state()
        self.empty[start].append((here, None))
        for _ in range(minimum):
            there = self._state()
            self._add(item, here, there)
            here = there
        if maximum is None:
            loop, back = self._state(), self._state()
            self.empty[here].append((loop, None))
            self._add(item, loop, back)
            self.empty[back].append((loop, None))
            self.empty[loop].append((end, None))
            return
        for _ in range(maximum - minimum):
            self.empty[here].append((end, None))
            there = self._state()
            self._add(item, here, there)
            here = there
        self.empty[here].append((end, None))

    def _lookbehind(self, item: Node) -> int:
        found = self._behind_of.get(item)
        if found is None:
            if _looks_ahead(item):
                raise UnsupportedFeature(
                    "lookahead", "", "inside a lookbehind it looks past its end"
                )
            engine = _Engine(concat([ANYTHING, item]), self.atoms, self._meter)
            found = self._behind_of[item] = len(self._behind)
            self._behind.append(engine.table(engine.begin, engine.start))
        return found

    def _lookahead(self, item: Node) -> int:
        found = self._ahead_of.get(item)
        if found is None:
            found = self._ahead_of[item] = len(self._ahead)
            first, last = self._state(), self._state()
            self._ahead.append((first, last))
            self._add(concat([item, ANYTHING]), first, last)
        return found

    # -- running -----------------------------------------------------------------------------

    def table(self, left: tuple[int, ...], start: int) -> _Table:
        """The automaton of the texts from `start`, where the lookbehinds are in `left`."""
        table, _ = self._determinise(left, start)
        return table

    def _determinise(self, left: tuple[int, ...], start: int) -> tuple[_Table, list[_State]]:
        end = self.end
        for first, last in self._ahead:
            if first == start:
                end = last
        table = _Table()
        meter = Budget(states=_MOST_STATES).meter()
        states: list[_State] = [(left, self._closure(left, [(start, frozenset())]))]
        index = {states[0]: 0}
        for place, runs in states:
            table.accepting.append(any(state == end and self._content(due) for state, due in runs))
            row: list[int] = []
            table.rows.append(row)
            for atom in range(len(self.atoms)):
                there = self._moved(place, atom)
                found = (there, self._step(runs, atom, there))
                number = index.get(found)
                if number is None:
                    number = index[found] = len(states)
                    states.append(found)
                    meter.check(number + 1)
                row.append(number)
        return table, states

    def _moved(self, place: tuple[int, ...], atom: int) -> tuple[int, ...]:
        return tuple(
            table.rows[state][atom] for table, state in zip(self._behind, place, strict=False)
        )

    def _step(self, runs: frozenset[_Run], atom: int, place: tuple[int, ...]) -> frozenset[_Run]:
        found: list[_Run] = []
        self._meter.work(_RUN_WORK)
        for state, due in runs:
            self._meter.work(_RUN_WORK + _DUE_WORK * len(due))
            targets = [target for labels, target in self.edges[state] if atom in labels]
            if targets:
                after = self._stepped(due, atom)
                if after is not None:
                    found.extend((target, after) for target in targets)
        return self._closure(place, found)

    def _stepped(self, due: frozenset[_Obligation], atom: int) -> frozenset[_Obligation] | None:
        """The obligations after an atom; None if one has failed."""
        found: set[_Obligation] = set()
        for number, negated, left, state in due:
            table = self._table(number, left)
            kept = self._judged(number, negated, left, table.rows[state][atom])
            if kept is None:
                return None
            found |= kept
        return frozenset(found)

    def _judged(
        self, number: int, negated: bool, left: tuple[int, ...], state: int
    ) -> set[_Obligation] | None:
        fate = self._table(number, left).fate[state]
        if fate is None:
            return {(number, negated, left, state)}
        return None if fate == negated else set()

    def _table(self, number: int, left: tuple[int, ...]) -> _Table:
        found = self._tables.get((number, left))
        if found is None:
            found = self._tables[number, left] = self.table(left, self._ahead[number][0])
        return found

    def _closure(self, place: tuple[int, ...], runs: list[_Run]) -> frozenset[_Run]:
        seen = set(runs)
        pending = list(seen)
        while pending:
            state, due = pending.pop()
            self._meter.work(_RUN_WORK)
            for target, guard in self.empty[state]:
                run: _Run = (target, due)
                if guard is not None:
                    behind, number, negated = guard
                    if behind:
                        if self._behind[number].accepting[place[number]] == negated:
                            continue
                    else:
                        taken = self._judged(number, negated, place, 0)
                        if taken is None:
                            continue
                        run = (target, due | taken)
                if run not in seen:
                    seen.add(run)
                    pending.append(run)
        ends = {self.end, *(last for _, last in self._ahead)}
        return frozenset(run for run in seen if self.edges[run[0]] or run[0] in ends)

    def _content(self, due: frozenset[_Obligation]) -> bool:
        """Whether the obligations are met if nothing follows."""
        return all(
            self._table(number, left).accepting[state] != negated
            for number, negated, left, state in due
        )

    # -- results -----------------------------------------------------------------------------

    def dfa(self, left: tuple[int, ...]) -> CharDfa:
        """The texts that match where the lookbehinds are in `left` and nothing follows."""
        table = self.table(left, self.start)
        nfa = CharNfa()
        states = [nfa.state() for _ in table.rows]
        end = nfa.state()
        fate = table.fate
        for state, row in enumerate(table.rows):
            by_target: dict[int, list[int]] = {}
            for atom, target in enumerate(row):
                if fate[target] is not False:
                    by_target.setdefault(target, []).append(atom)
            for target, numbers in by_target.items():
                ranges = sorted(pair for number in numbers for pair in self.atoms[number])
                nfa.read(states[state], tuple(_joined(ranges)), states[target])
            if table.accepting[state]:
                nfa.join(states[state], end)
        return CharDfa.of_nfa(nfa, states[0], end)

    def depends(self, alone: CharDfa) -> Literal["lookahead", "lookbehind"] | None:
        """The kind of assertion that sees past the match; see `Language`."""
        lefts = [self.begin]
        seen = {self.begin}
        for place in lefts:
            for atom in range(len(self.atoms)):
                there = self._moved(place, atom)
                if there not in seen:
                    seen.add(there)
                    lefts.append(there)
                    if len(lefts) > _MOST_CONTEXTS:
                        return "lookbehind"
        for place in lefts:
            if place != self.begin and self.dfa(place) != alone:
                return "lookbehind"
            _, states = self._determinise(place, self.start)
            verdicts = {frozenset(due for at, due in runs if at == self.end) for _, runs in states}
            if any(self._undecided(dues) for dues in verdicts):
                return "lookahead"
        return None

    def _undecided(self, dues: frozenset[frozenset[_Obligation]]) -> bool:
        """Whether what follows decides if one of these sets of obligations is met."""
        if not dues or frozenset() in dues:
            return False
        pending = [dues]
        seen = {dues}
        verdict = any(map(self._content, dues))
        while pending:
            here = pending.pop()
            for atom in range(len(self.atoms)):
                moved = (self._stepped(due, atom) for due in here)
                there = frozenset(due for due in moved if due is not None)
                if any(map(self._content, there)) != verdict or len(seen) > _MOST_CONTEXTS:
                    return True
                if there not in seen:
                    seen.add(there)
                    pending.append(there)
        return False


def _looks_ahead(node: Node) -> bool:
    match node:
        case End() | WordBoundary():
            return True
        case Look(item, behind, _):
            return not behind or _looks_ahead(item)
        case Concat(items) | Alternation(items):
            return any(map(_looks_ahead, items))
        case Repeat(item, _, _):
            return _looks_ahead(item)
    return False


def _joined(ranges: list[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Sorted ranges with neighbours merged."""
    low, high = ranges[0]
    for first, last in ranges[1:]:
        if first <= high + 1:
            high = max(high, last)
        else:
            yield low, high
            low, high = first, last
    yield low, high
