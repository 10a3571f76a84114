"""The items of arrays as nodes.

Where positions alone decide, items are a sequence. Where counts (`contains`) or uniqueness decide
as well, they are an `ir.Automaton` whose states say how many items there are, how many of them
have counted, and which values have been written. It may guess: an item that would count may be
left uncounted as long as a count has no upper limit, so lower limits need no complement.

Distinct items out of a finite set without further conditions are an `ir.Members`, which needs
no state for each set. Distinct items out of a set without end are remembered beside the automaton
(`structspec.automata.distinct`); here they only get its symbols.

Cost: linear in the positions; with counts, states are the product of their limits, at most
`_MOST_STATES`.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import Any, Protocol

from structspec import ir
from structspec.automata.distinct import OPENED, REPEATED
from structspec.errors import BudgetExceeded
from structspec.frontends.jsonschema.arrays import ArrayShape, Count
from structspec.frontends.jsonschema.budget import spend, write
from structspec.frontends.jsonschema.finite import (
    MOST_VALUES,
    finite_values,
    holds_object,
    identity,
)
from structspec.frontends.jsonschema.goals import FALSE, Goal, conjoin, negate
from structspec.frontends.jsonschema.normal import Normaliser
from structspec.frontends.jsonschema.places import Atlas
from structspec.frontends.jsonschema.refusal import Refusal
from structspec.frontends.reaching import reaching
from structspec.frontends.regex import MOST_COPIES

__all__ = ["Explorer", "Items", "Writer", "check_count"]

_MOST_STATES = 4096
_MOST_EDGES = 32_768
# More counts than this on one item are 2**n kinds of items.
_MOST_COUNTS = 6

_COMMA = ir.Bytes(b",")
# Symbols without text, see `structspec.automata.distinct`.
_OPENED = ir.choice((ir.EPSILON, ir.Special(OPENED)))
_REPEATED = ir.choice((ir.EPSILON, ir.Special(REPEATED)))


class Writer(Protocol):
    """What writes the values inside arrays and objects."""

    atlas: Atlas
    normaliser: Normaliser
    rules: dict[str, ir.Node]
    gap: ir.Node
    wide: ir.Node
    #: Whether some arrays of the grammar may need a history of their items.
    tells_apart: bool

    def value(self, goal: Goal) -> ir.Node:
        """The texts of the values that satisfy `goal`."""

    def refuse(self, refusals: Iterable[Refusal]) -> None:
        """Refuse or widen."""


@dataclass
class Explorer:
    """An automaton under construction, with a budget; states are numbered as they are met."""

    numbers: dict[Hashable, int] = field(default_factory=dict)
    order: list[Any] = field(default_factory=list)
    edges: list[list[tuple[ir.Node, int]]] = field(default_factory=list)
    accepting: set[int] = field(default_factory=set)
    size: int = 0

    def state(self, key: Hashable) -> int:
        """The number of a state."""
        number = self.numbers.setdefault(key, len(self.order))
        if number == len(self.order):
            self.order.append(key)
            self.edges.append([])
        return number

    def edge(self, source: int, label: ir.Node, key: Hashable) -> None:
        """An edge to the state `key`, unless nothing has the label."""
        if label != ir.NOTHING:
            self.join(source, label, key)

    def join(self, source: int, label: ir.Node, key: Hashable) -> None:
        """An edge to the state `key`."""
        self.edges[source].append((label, self.state(key)))
        self.size += 1

    @property
    def over(self) -> bool:
        """Whether the budget is spent."""
        return len(self.order) > _MOST_STATES or self.size > _MOST_EDGES

    def node(self) -> ir.Node:
        """The automaton without states that lead nowhere."""
        useful = reaching([[target for _, target in row] for row in self.edges], self.accepting)
        if 0 not in useful:
            return ir.NOTHING
        kept = {state: index for index, state in enumerate(sorted(useful))}
        rows = tuple(
            tuple((label, kept[target]) for label, target in self.edges[state] if target in kept)
            for state in kept
        )
        return ir.Automaton(rows, frozenset(kept[state] for state in self.accepting))


class Items:
    """Writes what stands between the brackets of an array, the last gap included."""

    def __init__(self, writer: Writer) -> None:
        self.writer = writer
        self.comma = ir.sequence((_COMMA, writer.wide))
        self._labels: dict[tuple[ir.Node, bool], ir.Node] = {}
        self._known: dict[ArrayShape, ir.Node] = {}

    def node(self, shape: ArrayShape) -> ir.Node:
        """The items of the arrays of a shape; `refusals` are the caller's business."""
        node = self._known.get(shape)
        if node is None:
            node = self._known[shape] = self._tracked(shape)
        return node

    def _tracked(self, shape: ArrayShape) -> ir.Node:
        if len(shape.counts) > _MOST_COUNTS:
            self.writer.refuse(count.refusal for count in shape.counts)
            shape = replace(shape, counts=frozenset())
        if shape.unique or shape.repeated:
            made = self._told_apart(shape)
            if made is not None:
                return made
            self.writer.refuse(shape.unique | shape.repeated)
            shape = replace(shape, unique=frozenset(), repeated=frozenset())
        if shape.counts:
            made = self._explored(shape, [])
            if made is not None:
                return made
            self.writer.refuse(count.refusal for count in shape.counts)
        return self._plain(shape)

    # Positions -----------------------------------------------------------------------------

    def _item(self, item: ir.Node, apart: bool = False) -> ir.Node:
        """An item and the gap behind it; `apart`: one that must differ from all others."""
        if apart or not self.writer.tells_apart:
            return ir.sequence((item, self.writer.gap))
        return ir.sequence((item, _REPEATED, self.writer.gap))

    def _plain(self, shape: ArrayShape, apart: bool = False) -> ir.Node:
        writer, comma = self.writer, self.comma
        minimum, maximum = shape.minimum, shape.maximum
        check_count("items", minimum)
        write(2 * len(shape.prefix))
        prefix: list[ir.Node] = []
        for goal in shape.prefix:
            item = writer.value(goal)
            if item == ir.NOTHING:
                maximum = len(prefix)
                break
            prefix.append(self._item(item, apart))
        prefix = prefix[:maximum]
        node: ir.Node = ir.EPSILON
        rest: ir.Node = ir.NOTHING
        if maximum is None or maximum > len(prefix):
            rest = writer.value(shape.rest)
        if rest == ir.NOTHING:
            maximum = len(prefix)
        if maximum is not None and minimum > maximum:
            return ir.NOTHING
        if rest != ir.NOTHING:
            item = self._item(rest, apart)
            least = max(minimum - len(prefix), 0)
            most = None if maximum is None else maximum - len(prefix)
            if prefix:
                node = ir.Repeat(ir.sequence((comma, item)), least, most)
            else:
                more = ir.Repeat(
                    ir.sequence((comma, item)),
                    max(least - 1, 0),
                    None if most is None else most - 1,
                )
                node = item if most == 1 else ir.sequence((item, more))
                if least == 0:
                    node = ir.choice((ir.EPSILON, node))
        for index in range(len(prefix) - 1, -1, -1):
            separator = comma if index else ir.EPSILON
            node = ir.sequence((separator, prefix[index], node))
            if index >= minimum:
                # The rest of the array is optional from here on; a rule keeps nodes shallow.
                name = f"items-{len(writer.rules)}"
                writer.rules[name] = ir.choice((ir.EPSILON, node))
                node = ir.Rule(name)
        return node

    # Uniqueness ----------------------------------------------------------------------------

    def _told_apart(self, shape: ArrayShape) -> ir.Node | None:
        """Arrays that are unique, or repeat something; None if that cannot be told."""
        values = self._universe(shape)
        if values is None:
            if shape.repeated:
                return None
            if self._disjoint(shape):
                return self.node(replace(shape, unique=frozenset()))
            if not self._comparable(shape):
                return None
            content = self._plain(replace(shape, unique=frozenset()), apart=True)
            return content if content == ir.NOTHING else ir.sequence((_OPENED, content))
        writer = self.writer
        simple = not (shape.prefix or shape.counts or shape.repeated)
        if simple and not any(map(holds_object, values)):
            if shape.minimum > len(values):
                return ir.NOTHING
            constants = (writer.value(writer.atlas.constant(value)) for value in values)
            # What is written once is a member without a value.
            members = tuple(ir.Member(node, writer.gap) for node in constants)
            maximum = shape.maximum
            if maximum is not None and maximum >= len(values):
                maximum = None
            return ir.Members(members, self.comma, "any", shape.minimum, maximum)
        return self._explored(shape, values)

    def _universe(self, shape: ArrayShape) -> list[Any] | None:
        """All values that an item can have, each once."""
        goals = [*shape.prefix]
        if shape.maximum is None or shape.maximum > len(goals):
            goals.append(shape.rest)
        found: dict[Hashable, Any] = {}
        for goal in dict.fromkeys(goals):
            values = finite_values(goal, self.writer.normaliser)
            if values is None:
                return None
            found.update((identity(value), value) for value in values)
        return list(found.values()) if len(found) <= MOST_VALUES else None

    def _comparable(self, shape: ArrayShape) -> bool:
        """Whether items can be told apart while they are written: none but one is demanded.

        Were two demanded, the cheapest completion that the automaton knows would repeat one.
        """
        if not self.writer.tells_apart or shape.counts or shape.minimum > 1:
            return False
        forms = map(self.writer.normaliser.form, {*shape.prefix, shape.rest})
        return not any(form.refusals for form in forms)

    def _disjoint(self, shape: ArrayShape) -> bool:
        """Whether no two positions can hold the same value."""
        size = shape.maximum
        if size is None or size > len(shape.prefix) + 1:
            return False
        return all(
            self.writer.value(conjoin(shape.item(i), shape.item(j))) == ir.NOTHING
            for i, j in combinations(range(size), 2)
        )

    # States --------------------------------------------------------------------------------

    def _explored(self, shape: ArrayShape, values: list[Any]) -> ir.Node | None:
        """Items whose states are (index, counted, seen); None if there are too many."""
        counts = sorted(shape.counts, key=_order)
        limit = shape.maximum
        starts = [count.start for count in counts]
        top = max(len(shape.prefix), shape.minimum, limit or 0, *starts, 1)
        moves: dict[Hashable, list[tuple[tuple[int, ...], Any, ir.Node]]] = {}
        explorer = Explorer()
        explorer.state((0, (0,) * len(counts), None if shape.repeated else frozenset()))
        for number, (index, counted, seen) in enumerate(explorer.order):
            if explorer.over:
                return None
            spend(4)
            enough = all(n >= count.least for n, count in zip(counted, counts, strict=True))
            if index >= shape.minimum and enough and (not shape.repeated or seen == "done"):
                explorer.accepting.add(number)
            if limit is not None and index >= limit:
                continue
            # Long arrays ask the same of most of their items.
            active = tuple([index >= start for start in starts])
            place = (shape.item(index), active, index > 0, counted, seen)
            known = moves.get(place)
            if known is None:
                known = moves[place] = [
                    (tally, then, label)
                    for tally, goal in self._tallies(shape, counts, index, counted)
                    for then, item in self._seen(shape, values, seen, goal)
                    if (label := self._label(index, item)) != ir.NOTHING
                ]
            following = min(index + 1, top)
            for tally, then, label in known:
                explorer.join(number, label, (following, tally, then))
        return explorer.node()

    def _label(self, index: int, goal: Goal) -> ir.Node:
        item = self.writer.value(goal)
        if item == ir.NOTHING:
            return item
        key = (item, index > 0)
        label = self._labels.get(key)
        if label is None:
            comma = (self.comma,) if index else ()
            label = self._labels[key] = ir.sequence((*comma, self._item(item)))
        return label

    def _tallies(
        self, shape: ArrayShape, counts: list[Count], index: int, counted: tuple[int, ...]
    ) -> Iterator[tuple[tuple[int, ...], Goal]]:
        """What an item at `index` can make of the counts, and the goal of such an item."""
        partial: list[tuple[tuple[int, ...], Goal]] = [((), shape.item(index))]
        for count, so_far in zip(counts, counted, strict=True):
            longer: list[tuple[tuple[int, ...], Goal]] = []
            for tally, goal in partial:
                active = index >= count.start
                if not active or (count.most is None and so_far >= count.least):
                    longer.append(((*tally, so_far), goal))
                    continue
                without = goal if count.most is None else conjoin(goal, negate(count.goal))
                longer.append(((*tally, so_far), without))
                if count.most is None or so_far < count.most:
                    longer.append(((*tally, so_far + 1), conjoin(goal, count.goal)))
            partial = [(tally, goal) for tally, goal in longer if goal != FALSE]
        yield from partial

    def _seen(
        self, shape: ArrayShape, values: list[Any], seen: Any, goal: Goal
    ) -> Iterator[tuple[Any, Goal]]:
        """What an item makes of the values seen so far, and the goal of such an item."""
        constant = self.writer.atlas.constant
        if shape.repeated:
            # A guess: `seen` is the value that will come again.
            yield seen, goal
            if seen is None:
                for index, value in enumerate(values):
                    yield index, conjoin(goal, constant(value))
            elif seen != "done":
                yield "done", conjoin(goal, constant(values[seen]))
        elif shape.unique:
            for index, value in enumerate(values):
                if index not in seen:
                    yield seen | {index}, conjoin(goal, constant(value))
        else:
            yield seen, goal


def check_count(what: str, minimum: int) -> None:
    """Raise BudgetExceeded if more are demanded than can be counted."""
    if minimum > MOST_COPIES:
        raise BudgetExceeded(what, MOST_COPIES, minimum)


def _order(count: Count) -> tuple[Any, ...]:
    return count.start, count.least, count.most or 0, sorted(map(sorted, count.goal))
