"""Between automata over characters and nodes of spelled JSON text.

`pattern_dfa` makes the set of strings that a JSON Schema `pattern` allows, `regex_dfa` that of any
tree without assertions. `lower` writes a `CharDfa`, under bounds on the length, as the content of
a JSON string (between the quotes) in a given `Spelling`.

Lengths beside an automaton. Few pairs of a state and a number of characters are states. If they
are many, a lower bound is made of states and an upper one is `ir.Automaton.longest`, which a
register counts, so `maxLength` costs no states. Where registers are not allowed (in keys) every
pair is written out, as far as it matters: a state with only one way on (``[a-z]*``, ``.{3,}``,
``(abc)*``, the end of ``^[A-Z][a-z]*$``) is not unrolled. What may follow there is a number of
characters or rounds, so it becomes a counted `ir.Repeat`, whatever the bounds. All other states are
paired with the number of characters read, as long as that number matters; more than 50,000 pairs
raise `BudgetExceeded`. All of this is exact, and every state that is kept can be completed.

Cost: linear in the pairs, once per process for each automaton and bounds. Escapes of a character
are one shared rule in larger automata.

Example::

    >>> from structspec.frontends.jsonschema.spelling import Spelling
    >>> spelling = Spelling("canonical", rules={})
    >>> lower(pattern_dfa("^[a-z]+$"), ((0, 50_001),), spelling)
    Repeat(item=Chars(ranges=((97, 122),)), minimum=1, maximum=50000)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from hashlib import blake2b
from typing import Literal, TypeAlias

import numpy as np

from structspec import ir
from structspec.automata.chardfa import MOST_PAIRS, Budget, CharDfa, CharNfa, LengthSet, prepare
from structspec.automata.chardfa_alphabet import merged
from structspec.automata.chardfa_words import minimal_words
from structspec.errors import BudgetExceeded, UnsupportedFeature
from structspec.frontends.jsonschema.budget import automaton_budget, spend, unmetered
from structspec.frontends.jsonschema.intervals import (
    LENGTHS,
    Intervals,
    contains,
    intersect,
    union,
)
from structspec.frontends.jsonschema.kept import Kept
from structspec.frontends.jsonschema.spelling import Ranges, Spelling
from structspec.frontends.regex import ast, language, parse, resolve

__all__ = ["add_regex", "lower", "pattern_dfa", "regex_dfa", "words_dfa", "words_node"]

#: A pattern may say this many characters, counted repeats written out.
MOST_COPIES = 50_000
# Up to so many pairs of a state and a length are written out where a register could count.
_FEW_PAIRS = 1_000
# Automata with more edges than this share the escapes of each label through rules.
_SHARE_ABOVE = 24
# Automata with more edges than this are kept as arrays.
_FLAT_ABOVE = 64
# A label with more ranges than this is a rule of its own.
_WIDE = 16


def pattern_dfa(pattern: str, budget: Budget | None = None) -> CharDfa:
    """The strings in which an ECMAScript pattern matches somewhere.

    Raises `SchemaError` for a malformed pattern and `UnsupportedFeature` for one that is not
    regular (backreferences) or looks ahead from inside a lookbehind.
    """
    with unmetered():
        prepare()
    tree = parse(pattern, web=True)
    try:
        node = resolve(tree, search=True)
    except UnsupportedFeature:  # lookaround that does not reduce: an automaton with obligations
        return language(tree, search=True).dfa
    return regex_dfa(node, budget)


def regex_dfa(node: ast.Node, budget: Budget | None = None) -> CharDfa:
    """The language of a tree without assertions."""
    size = _size(node)
    if size > MOST_COPIES:
        raise BudgetExceeded("states", MOST_COPIES, size)
    with unmetered():
        prepare()
    nfa = CharNfa()
    start, end = nfa.state(), nfa.state()
    add_regex(nfa, node, start, end)
    return CharDfa.of_nfa(nfa, start, end, budget)


def words_dfa(words: Iterable[str], budget: Budget | None = None) -> CharDfa:
    """Exactly these strings."""
    with unmetered():
        prepare()
    return CharDfa.of_strings(words, budget)


def words_node(words: Iterable[str], label: Callable[[Ranges], ir.Node], most: int) -> ir.Node:
    """The minimal automaton of many strings, with `label` for each set of characters.

    Raises `BudgetExceeded` if it has more than `most` states.
    """
    with unmetered():
        prepare()
    found = minimal_words(sorted(set(words)), automaton_budget(most).meter())
    labels = tuple(label(ranges) for ranges in found.classes)
    edges = ir.FlatEdges(labels, found.cuts, found.labels, found.targets)
    return ir.Automaton(edges, frozenset(np.flatnonzero(found.accepts).tolist()))


def _size(node: ast.Node) -> int:
    """How many characters the tree has with all its counted copies written out."""
    match node:
        case ast.Concat(items) | ast.Alternation(items):
            return 1 + sum(map(_size, items))
        case ast.Repeat(item, minimum, maximum):
            return 1 + _size(item) * max(minimum if maximum is None else maximum, 1)
        case _:
            return 1


def add_regex(nfa: CharNfa, node: ast.Node, start: int, end: int) -> None:
    """Add the language of a tree without assertions between two states."""
    match node:
        case ast.Chars(ranges):
            nfa.read(start, ranges, end)
        case ast.Concat(items):
            here = start
            for index, item in enumerate(items):
                there = end if index == len(items) - 1 else nfa.state()
                add_regex(nfa, item, here, there)
                here = there
            if not items:
                nfa.join(start, end)
        case ast.Alternation(items):
            for item in items:
                first, last = nfa.state(), nfa.state()
                nfa.join(start, first)
                nfa.join(last, end)
                add_regex(nfa, item, first, last)
        case ast.Repeat(item, minimum, maximum):
            _repeat(nfa, item, minimum, maximum, start, end)
        case _:
            raise TypeError(f"{type(node).__name__} is an assertion; resolve it first")


def _repeat(
    nfa: CharNfa, item: ast.Node, minimum: int, maximum: int | None, start: int, end: int
) -> None:
    here = nfa.state()
    nfa.join(start, here)
    for _ in range(minimum):
        there = nfa.state()
        add_regex(nfa, item, here, there)
        here = there
    if maximum is None:
        loop, back = nfa.state(), nfa.state()
        nfa.join(here, loop)
        add_regex(nfa, item, loop, back)
        nfa.join(back, loop)
        nfa.join(loop, end)
        return
    for _ in range(maximum - minimum):
        nfa.join(here, end)
        there = nfa.state()
        add_regex(nfa, item, here, there)
        here = there
    nfa.join(here, end)


# Lowering ----------------------------------------------------------------------------------------


def lower(
    dfa: CharDfa, lengths: Intervals, spelling: Spelling, *, registers: bool = True
) -> ir.Node:
    """The spelled content of the strings of `dfa` with a length in `lengths`; see the module.

    `ir.NOTHING` if there are none. With the spelling "any" and many edges, rules for escapes are
    added to `spelling.rules`. Without `registers` lengths are written out (keys need that).
    """
    shortest, longest = dfa.length_range
    if shortest > longest:
        return ir.NOTHING
    if contains(lengths, shortest, longest + 1):
        lengths = LENGTHS
    key = (dfa, lengths, spelling.any, registers)
    found = _LOWERED.get(key)
    if found is None:
        rules: dict[str, ir.Node] = {}
        policy: Literal["any", "canonical"] = "any" if spelling.any else "canonical"
        size, node = _lowered(dfa, lengths, Spelling(policy, rules), registers)
        found = _LOWERED.put(key, (node, rules), size)
    node, rules = found
    spelling.rules.update(rules)
    return node


def _lowered(
    dfa: CharDfa, lengths: Intervals, spelling: Spelling, registers: bool
) -> tuple[int, ir.Node]:
    """How many edges have been written, and the node."""
    lowering = _Lowering(dfa, lengths, spelling)
    if lengths == LENGTHS or not registers:
        return lowering.size, lowering.node()
    try:
        lowering.most = _FEW_PAIRS
        return lowering.size, lowering.node()
    except BudgetExceeded as error:
        try:
            return _bounded(dfa, lengths, spelling)
        except BudgetExceeded:
            if error.limit != _FEW_PAIRS:
                raise
    lowering.most = MOST_PAIRS
    return lowering.size, lowering.node()


def _bounded(dfa: CharDfa, lengths: Intervals, spelling: Spelling) -> tuple[int, ir.Node]:
    """Lower bounds by states, upper ones by a register."""
    size = 0
    options: list[ir.Node] = []
    for low, high in lengths:
        part = dfa.with_length(int(low), None, automaton_budget(MOST_PAIRS))
        spend(2 * part.n_states)
        shortest, longest = part.length_range
        if shortest > longest or shortest >= high:
            continue
        lowering = _Lowering(part, LENGTHS, spelling)
        fits = high == math.inf or longest < high
        options.append(lowering.node() if fits else lowering.bounded(int(high) - 1))
        size += lowering.size
    return size, ir.choice(options)


_Key: TypeAlias = tuple[CharDfa, Intervals, bool, bool]
# Nodes with the rules that they call, for every compile of the process; weighed in edges.
_LOWERED: Kept[_Key, tuple[ir.Node, dict[str, ir.Node]]] = Kept(300_000)

#: The number of a set of characters.
_Label: TypeAlias = int


@dataclass(frozen=True, slots=True)
class _Tail:
    """What follows in a state with one way on: these labels in turn, so many of them."""

    labels: tuple[_Label, ...]
    numbers: LengthSet


#: A state of the DFA and the number of characters read, as far as it matters.
_Pair = tuple[int, int]
#: Whether a state accepts, its edges, and the tails that may end the text there.
_Shape = tuple[bool, tuple[tuple[_Label, int], ...], tuple[_Tail, Intervals] | None]


class _Lowering:
    def __init__(self, dfa: CharDfa, lengths: Intervals, spelling: Spelling) -> None:
        self.dfa = dfa
        self.lengths = lengths
        self.spelling = spelling
        self._ranges: list[Ranges] = []
        self.edges = self._labelled()
        #: How many edges have been written.
        self.size = len(self.edges)
        self._tailed = _tails(self.edges)
        self._known: dict[int, _Tail] = {}
        finite = [int(cut) for pair in lengths for cut in pair if cut != math.inf]
        #: From here on, all lengths are in or all are out.
        self.cap = max(finite, default=0)
        self.open = bool(lengths) and lengths[-1][1] == math.inf
        self._labels: dict[_Label, ir.Node] = {}
        self._share = False
        #: How many pairs may be written out.
        self.most = MOST_PAIRS

    def _labelled(self) -> list[tuple[tuple[_Label, int], ...]]:
        """The edges of each state: one label per target, in the order of targets."""
        classes = self.dfa.table.classes
        known: dict[tuple[int, ...], _Label] = {}
        rows = []
        for row in self.dfa.table.rows():
            by_target: dict[int, list[int]] = {}
            for part, target in row:
                by_target.setdefault(target, []).append(part)
            ways = sorted(by_target.items()) if len(by_target) > 1 else by_target.items()
            labels = [(known.setdefault(tuple(parts), len(known)), to) for to, parts in ways]
            rows.append(tuple(labels))
        for found in known:
            self._ranges.append(merged(pair for part in found for pair in classes[part]))
        return rows

    def node(self) -> ir.Node:
        tail = self._tail(0)
        if tail is not None:
            return ir.choice(self._many(tail, self.lengths, empty=True))
        shapes, start = self._whole() if self.lengths == LENGTHS else self._shapes()
        if start is None:
            return ir.NOTHING
        self._share = sum(len(edges) for _, edges, _ in shapes) > _SHARE_ABOVE
        return self._automaton(shapes, start)

    def bounded(self, longest: int) -> ir.Node:
        """The strings of at most `longest` characters, which a register counts."""
        n_edges = sum(map(len, self.edges))
        self._share = n_edges > _SHARE_ABOVE
        self.size += n_edges
        labels = [self._label(label) for label in range(len(self._ranges))]
        edges: ir.FlatEdges | tuple[tuple[tuple[ir.Node, int], ...], ...]
        if n_edges > _FLAT_ABOVE:
            flat = np.array([edge for row in self.edges for edge in row], np.int32)
            cuts = np.zeros(len(self.edges) + 1, np.int32)
            np.cumsum([len(row) for row in self.edges], out=cuts[1:])
            edges = ir.FlatEdges(tuple(labels), cuts, flat[:, 0].copy(), flat[:, 1].copy())
        else:
            edges = tuple([tuple([(labels[k], t) for k, t in row]) for row in self.edges])
        return ir.Automaton(edges, self.dfa.accepting, longest)

    def _tail(self, state: int) -> _Tail | None:
        labels = self._tailed[state]
        if not labels:
            return None
        tail = self._known.get(state)
        if tail is None:
            numbers = _numbers(self.edges, self.dfa.accepting, state)
            tail = self._known[state] = _Tail(labels, numbers)
        return tail

    def _whole(self) -> tuple[list[_Shape], int]:
        """The shapes of the states where any length will do, and the number of the first."""
        accepting, nothing = self.dfa.accepting, (False, (), None)
        shapes: list[_Shape] = [nothing] * len(self.edges)
        order = [0]
        met = [True, *[False] * (len(self.edges) - 1)]
        for state in order:
            tail = self._tail(state)
            if tail is not None:
                shapes[state] = (0 in tail.numbers, (), (tail, LENGTHS))
                continue
            shapes[state] = (state in accepting, self.edges[state], None)
            for _, target in self.edges[state]:
                if not met[target]:
                    met[target] = True
                    order.append(target)
        spend(sum(len(edges) for _, edges, _ in shapes))
        if len(order) > self.most:
            raise BudgetExceeded("states", self.most, len(order))
        return shapes, 0

    # Pairs ---------------------------------------------------------------------------------

    def _reach(self) -> tuple[list[_Pair], dict[_Pair, list[tuple[_Label, _Pair]]]]:
        """The pairs that a text may pass, in the order of characters read."""
        least = self.dfa.distances
        order: list[_Pair] = [(0, 0)]
        following: dict[_Pair, list[tuple[_Label, _Pair]]] = {(0, 0): []}
        for pair in order:
            state, read = pair
            if self._tailed[state]:
                continue
            after = min(read + 1, self.cap) if self.open else read + 1
            ways = following[pair]
            for label, target in self.edges[state]:
                if not self.open and after + least[target] >= self.cap:
                    continue
                there = (target, after)
                ways.append((label, there))
                if there not in following:
                    following[there] = []
                    order.append(there)
            spend(len(ways))
            if len(order) > self.most:
                raise BudgetExceeded("states", self.most, len(order))
        return order, following

    def _shapes(self) -> tuple[list[_Shape], int | None]:
        """The pairs that can be completed, equal ones merged, and the number of the first."""
        order, following = self._reach()
        shapes: list[_Shape] = []
        known: dict[_Shape, int] = {}
        number: dict[_Pair, int] = {}
        # Where the number read no longer matters there are circles; these states differ already.
        settled = [pair for pair in order if self.open and pair[1] == self.cap]
        for pair in settled:
            number[pair] = len(shapes)
            shapes.append((False, (), None))
        for pair in settled:
            shapes[number[pair]] = self._shape(pair, following[pair], number)
        for pair in reversed(order):
            if pair in number:
                continue
            shape = self._shape(pair, following[pair], number)
            if shape[0] or shape[1] or shape[2]:
                found = known.setdefault(shape, len(shapes))
                if found == len(shapes):
                    shapes.append(shape)
                number[pair] = found
        return shapes, number.get((0, 0))

    def _shape(
        self, pair: _Pair, edges: list[tuple[_Label, _Pair]], number: dict[_Pair, int]
    ) -> _Shape:
        state, read = pair
        tail = self._tail(state)
        if tail is not None:
            window = tuple(
                (max(low - read, 0), high - read) for low, high in self.lengths if high > read
            )
            if next(self._many(tail, window, empty=True), None) is None:
                return (False, (), None)
            return (0 in tail.numbers and contains(window, 0, 1), (), (tail, window))
        accepts = state in self.dfa.accepting and contains(self.lengths, read, read + 1)
        kept = tuple([(label, number[there]) for label, there in edges if there in number])
        return (accepts, kept, None)

    # Nodes ---------------------------------------------------------------------------------

    def _automaton(self, shapes: list[_Shape], start: int) -> ir.Node:
        order = [start]
        index = {start: 0}
        rows: list[list[tuple[ir.Node, int]]] = []
        accepting: set[int] = set()
        end = len(shapes)  # one state behind all tails
        node_of = self._labels.get
        for number in order:
            accepts, edges, tail = shapes[number] if number < end else (True, (), None)
            if accepts:
                accepting.add(len(rows))
            labels: list[tuple[ir.Node, int]] = [
                (node_of(number) or self._label(number), target) for number, target in edges
            ]
            if tail is not None:
                labels += ((node, end) for node in self._many(*tail, empty=False))
            row: list[tuple[ir.Node, int]] = []
            for label, target in labels:
                found = index.get(target)
                if found is None:
                    found = index[target] = len(order)
                    order.append(target)
                row.append((label, found))
            rows.append(row)
            self.size += len(row)
        straight = self._straight(rows, accepting)
        return straight or ir.Automaton(_compact(rows), frozenset(accepting))

    def _straight(
        self, rows: list[list[tuple[ir.Node, int]]], accepting: set[int]
    ) -> ir.Node | None:
        """A sequence, if there is but one way through; None otherwise."""
        last = len(rows) - 1
        if accepting != {last} or rows[last]:
            return None
        for state, row in enumerate(rows[:-1]):
            if len(row) != 1 or row[0][1] != state + 1:
                return None
        return ir.sequence(row[0][0] for row in rows[:-1])

    def _many(self, tail: _Tail, window: Intervals, *, empty: bool) -> Iterator[ir.Node]:
        """So many characters of a tail as are both in its numbers and in `window`.

        Without `empty`, none of the nodes matches the empty string.
        """
        if not empty:
            window = intersect(window, ((1, math.inf),))
        head, cycle, labels = tail.numbers.head, tail.numbers.cycle, tail.labels
        if len(labels) == 1:
            runs: Intervals = tuple((n, n + 1) for n, held in enumerate(head) if held)
            if cycle == (True,):
                runs = (*runs, (len(head), math.inf))
            item = self._label(labels[0])
            for low, high in intersect(union(runs), window):
                yield _times(item, int(low), None if high == math.inf else int(high) - 1)
            if len(cycle) == 1:
                return
        period = math.lcm(len(labels), len(cycle))
        for first in range(len(head), len(head) + period):
            for low, high in window if first in tail.numbers else ():
                fewest = max(0, -((first - int(low)) // period))
                most = None if high == math.inf else (int(high) - 1 - first) // period
                if most is None or most >= fewest:
                    group = self._stretch(labels, first, period)
                    parts = (self._stretch(labels, 0, first), _times(group, fewest, most))
                    yield ir.sequence(parts)

    def _stretch(self, labels: tuple[_Label, ...], start: int, length: int) -> ir.Node:
        """`length` characters of a tail after `start` have been read."""
        if len(labels) == 1:
            return _times(self._label(labels[0]), length, length)
        return ir.sequence(
            self._label(labels[place % len(labels)]) for place in range(start, start + length)
        )

    def _label(self, label: _Label) -> ir.Node:
        node = self._labels.get(label)
        if node is None:
            ranges = self._ranges[label]
            node = self.spelling.character(ranges)
            if len(ranges) > _WIDE:
                node = self._rule("character", ranges, node)
            elif self._share:
                node = self._with_shared_escapes(ranges, node)
            self._labels[label] = node
        return node

    def _with_shared_escapes(self, ranges: Ranges, node: ir.Node) -> ir.Node:
        parts = node.items if isinstance(node, ir.Choice) else (node,)
        last = parts[-1]
        if isinstance(last, ir.Variant):
            shared: ir.Node = ir.Variant(self._rule("escapes", ranges, last))
        elif isinstance(last, ir.Sequence):  # a backslash and what may follow it
            tail = self._rule("escapes", ranges, ir.sequence(last.items[1:]))
            shared = ir.sequence((last.items[0], tail))
        else:
            return node
        return ir.choice((*parts[:-1], shared))

    def _rule(self, kind: str, ranges: Ranges, node: ir.Node) -> ir.Node:
        # The name says everything, so equal rules of different automata are the same.
        policy = "any" if self.spelling.any else "canonical"
        content = blake2b(repr((policy, ranges)).encode(), digest_size=10).hexdigest()
        name = f"{kind}-{ranges[0][0]:x}-{ranges[-1][1]:x}-{content}"
        self.spelling.rules[name] = node
        return ir.Rule(name)


def _compact(
    rows: list[list[tuple[ir.Node, int]]],
) -> tuple[tuple[tuple[ir.Node, int], ...], ...] | ir.FlatEdges:
    """The rows in the form that is quickest to encode; the nodes are kept for many compiles."""
    if sum(map(len, rows)) > _FLAT_ABOVE:
        return ir.flat_edges(rows)
    return tuple(map(tuple, rows))


def _times(item: ir.Node, fewest: int, most: int | None) -> ir.Node:
    if most == 0:
        return ir.EPSILON
    return item if (fewest, most) == (1, 1) else ir.Repeat(item, fewest, most)


def _tails(edges: list[tuple[tuple[_Label, int], ...]]) -> list[tuple[_Label, ...]]:
    """The labels that follow in turn in each state that starts a tail; none in all others.

    Tails are chains of one label, and circles of any labels that have no way out.
    """
    found: list[tuple[_Label, ...]] = [() for _ in edges]
    known = [False] * len(edges)
    for start in range(len(edges)):
        path: dict[int, None] = {}
        state = start
        while not known[state] and state not in path and len(edges[state]) == 1:
            path[state] = None
            state = edges[state][0][1]
        chain = list(path)
        if state in path:
            at = chain.index(state)
            circle = chain[at:]
            labels = tuple(edges[member][0][0] for member in circle)
            for turn, member in enumerate(circle):
                known[member] = True
                turned = labels[turn:] + labels[:turn]
                found[member] = labels[:1] if len(set(labels)) == 1 else turned
            chain = chain[:at]
        known[state] = True
        for member in reversed(chain):
            label, target = edges[member][0]
            known[member] = True
            if not edges[target] or found[target] == (label,):
                found[member] = (label,)
    return found


def _numbers(
    edges: list[tuple[tuple[_Label, int], ...]], accepting: frozenset[int], state: int
) -> LengthSet:
    seen: dict[int, int] = {}
    found: list[bool] = []
    while state not in seen:
        seen[state] = len(found)
        found.append(state in accepting)
        if not edges[state]:
            return LengthSet.of(found, ())
        state = edges[state][0][1]
    return LengthSet.of(found[: seen[state]], found[seen[state] :])
