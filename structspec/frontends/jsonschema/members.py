"""The members of objects as nodes.

An object is an `ir.Members`: a member for each name, a repeatable one for each cell of other names.
A demand ("some member satisfies this") is met by a named member, which makes it required there and
gives one list for each such name, or by an open one. In the latter case the list becomes an
`ir.Automaton` whose states say which named members are written and which demands are met.

Cost: linear in the members; an open demand beside n optional names in any order takes 2**n states,
at most as many as `items.Explorer` allows.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace
from typing import Literal, Protocol

from structspec import ir
from structspec.automata.chardfa import CharDfa
from structspec.frontends.jsonschema.budget import spend, write
from structspec.frontends.jsonschema.goals import FALSE, TRUE, Goal, conjoin
from structspec.frontends.jsonschema.items import Explorer, Writer, check_count
from structspec.frontends.jsonschema.objects import Demand, ObjectShape, rest_of
from structspec.frontends.jsonschema.refusal import Refusal
from structspec.frontends.jsonschema.spelling import Spelling
from structspec.frontends.jsonschema.strings import ALL_STRINGS, StringShape
from structspec.records import record

__all__ = ["MemberLists"]

# Open names up to this many are declared one by one.
_MOST_LISTED = 1024
_MOST_CASES = 256
# More demands than this on one object are 2**n kinds of members.
# The keys of an object with more characters than this are written without needless escapes.
_MANY_CHARACTERS = 50_000
_MOST_DEMANDS = 4

_EVERY_STRING = (ALL_STRINGS,)
_COLON = ir.Bytes(b":")

Order = Literal["declared", "any"]

#: A member as the first one, and behind another one.
_Pair = tuple[ir.Node, ir.Node]


class KeyWriter(Writer, Protocol):
    """What writes the values and the keys of objects."""

    def strings(
        self, shapes: tuple[StringShape, ...], *, keys: bool = False, plain: bool = False
    ) -> ir.Node:
        """The spelled strings of a union of shapes, quotes included; `keys`: of a members list.

        plain: without needless escapes.
        """

    def spelled(self, plain: bool = False) -> Spelling:
        """How strings are spelled; `plain`: without needless escapes."""


@record
class _Part:
    """Names that are not declared, and the goal of their values."""

    keys: tuple[StringShape, ...]
    goal: Goal

    def within(self, keys: StringShape, beyond: frozenset[str]) -> _Part:
        """The names that are also in `keys` and not in `beyond`."""
        if beyond:
            keys = keys.intersect(StringShape(excluded=beyond))
        both = (mine.intersect(keys) for mine in self.keys)
        return _Part(tuple(part for part in both if not part.empty), self.goal)


class MemberLists:
    """Writes what stands between the braces of an object, the last gap included."""

    def __init__(self, writer: KeyWriter, order: Order) -> None:
        self.writer = writer
        self.order: Order = order
        self.comma = ir.sequence((ir.Bytes(b","), writer.wide))
        self._known: dict[ObjectShape, ir.Node] = {}
        self._after: dict[int, tuple[ir.Node, ir.Node]] = {}
        #: The fewest states that the lists so far can take.
        self._written = 0

    def node(self, shape: ObjectShape) -> ir.Node:
        """The members of the objects of a shape; `refusals` are the caller's business."""
        node = self._known.get(shape)
        if node is None:
            node = self._known[shape] = self._demanded(shape)
        return node

    def _demanded(self, shape: ObjectShape) -> ir.Node:
        names = self._names(shape.names)
        shape = self._listed(shape, names)
        if len(shape.demands) > _MOST_DEMANDS:
            self.writer.refuse(demand.refusal for demand in shape.demands)
            shape = replace(shape, demands=frozenset())
        if not shape.demands:
            return self._list(shape, names)
        named = tuple((name, goal) for name, goal, _ in shape.members())
        cases = [(replace(shape, properties=named, demands=frozenset()), frozenset[Demand]())]
        for demand in _in_order(shape.demands):
            cases = [case for before in cases for case in self._met(demand, *before)]
            if len(cases) > _MOST_CASES:
                self.writer.refuse(demand.refusal for demand in shape.demands)
                return self._list(replace(shape, demands=frozenset()), names)
        options = []
        for case, left in cases:
            if not left:
                options.append(self._list(case, names))
                continue
            node = self._explored(case, names, _in_order(left))
            if node is None:
                self.writer.refuse(demand.refusal for demand in left)
                node = self._list(case, names)
            options.append(node)
        return ir.choice(options)

    def _listed(self, shape: ObjectShape, names: tuple[StringShape, ...]) -> ObjectShape:
        """The shape with its open names declared, if there are finitely many.

        Declared members occur at most once, so counts of members are exact then.
        """
        if not shape.cells and (not shape.additional or names is _EVERY_STRING):
            return shape
        parts = self._open(shape, names)
        keys = [key for part in parts for key in part.keys]
        if not keys or any(key.values is None or key.refusals for key in keys):
            return shape
        if sum(len(key.values or ()) for key in keys) > _MOST_LISTED:
            return shape
        properties = {name: goal for name, goal, _ in shape.members()}
        for part in parts:
            for key in part.keys:
                for name in key.values or ():
                    properties.setdefault(name, part.goal)
        return replace(shape, properties=tuple(properties.items()), cells=(), additional=FALSE)

    def _names(self, goal: Goal) -> tuple[StringShape, ...]:
        """The strings that satisfy a goal about names."""
        if goal == TRUE:
            return _EVERY_STRING
        form = self.writer.normaliser.form(goal)
        refusals: set[Refusal] = set(form.refusals)
        for part in form.strings:
            refusals |= part.refusals
        self.writer.refuse(refusals)
        return form.strings

    def _named(
        self, shape: ObjectShape, names: tuple[StringShape, ...]
    ) -> list[tuple[str, Goal, bool]]:
        if names is _EVERY_STRING:
            return list(shape.members())
        return [
            (name, goal if _admit(names, name) else FALSE, required)
            for name, goal, required in shape.members()
        ]

    def _open(self, shape: ObjectShape, names: tuple[StringShape, ...]) -> list[_Part]:
        if not shape.cells:
            if not shape.additional:
                return []
            if names is _EVERY_STRING:
                return [_Part(names, shape.additional)]
        parts = [
            _Part(names, goal).within(keys, frozenset())
            for keys, goal in (*shape.cells, (rest_of(shape.cells), shape.additional))
            if goal != FALSE
        ]
        return [part for part in parts if part.keys]

    # Lists ---------------------------------------------------------------------------------

    def _list(self, shape: ObjectShape, names: tuple[StringShape, ...]) -> ir.Node:
        """The members without demands."""
        writer = self.writer
        check_count("members", shape.fewest)
        self._written += 2 * (len(shape.properties) + len(shape.required))
        write(self._written)
        # Keys are written out flat, each with all its spellings.
        plain = sum(map(len, shape.declared)) > _MANY_CHARACTERS
        text = writer.spelled(plain).text
        rest = []
        for part in self._open(shape, names):
            key = writer.strings(part.keys, keys=True, plain=plain)
            value = writer.value(part.goal)
            if ir.NOTHING not in (key, value):
                rest.append(ir.Member(key, self._after_key(value), repeatable=True))
        members = []
        required_here = 0
        for name, goal, required in self._named(shape, names):
            value = writer.value(goal)
            if type(value) is not ir.Choice or value.items:
                members.append(ir.Member(text(name), self._after_key(value), required))
                required_here += required
            elif required:
                return ir.NOTHING
            elif rest:
                # The key must not count as an undeclared one.
                members.append(ir.Member(text(name), ir.NOTHING))
        members += rest
        most = shape.most
        if most is not None and not rest and most >= len(members):
            most = None
        fewest = shape.fewest if shape.fewest > required_here else 0
        if not members:
            return ir.EPSILON if not fewest else ir.NOTHING
        if not rest and fewest > len(members):
            return ir.NOTHING
        return ir.Members(tuple(members), self.comma, self.order, fewest, most)

    def _after_key(self, node: ir.Node) -> ir.Node:
        writer = self.writer
        made = self._after.get(id(node))
        if made is None:
            parts = (writer.gap, _COLON, writer.wide, node, writer.gap)
            # A call runs into nothing around it.
            plain = type(node) is ir.Rule and type(writer.gap) is ir.Rule
            whole = ir.Sequence(parts) if plain else ir.sequence(parts)
            # With the node itself, so that its identifier stays its own.
            made = self._after[id(node)] = node, whole
        return made[1]

    # Demands -------------------------------------------------------------------------------

    def _met(
        self, demand: Demand, shape: ObjectShape, left: frozenset[Demand]
    ) -> Iterator[tuple[ObjectShape, frozenset[Demand]]]:
        """The ways to meet a demand: by each named member, or by an open one (left for later)."""
        wanted = self._wanted(demand)
        for index, (name, goal) in enumerate(shape.properties):
            both = conjoin(goal, demand.goal)
            if both == FALSE or name in demand.beyond or not _admit(wanted, name):
                continue
            properties = list(shape.properties)
            properties[index] = (name, both)
            required = tuple(dict.fromkeys((*shape.required, name)))
            yield replace(shape, properties=tuple(properties), required=required), left
        if shape.additional != FALSE or any(goal != FALSE for _, goal in shape.cells):
            yield shape, left | {demand}

    def _wanted(self, demand: Demand) -> tuple[StringShape, ...]:
        return tuple(part.intersect(demand.keys) for part in self._names(demand.names))

    def _explored(
        self, shape: ObjectShape, names: tuple[StringShape, ...], demands: list[Demand]
    ) -> ir.Node | None:
        """Members whose states are (written, met, count); None if there are too many."""
        writer = self.writer
        named: list[tuple[_Pair, bool]] = []
        for name, goal, required in self._named(shape, names):
            value = writer.value(goal)
            if value != ir.NOTHING:
                named.append((self._member(writer.spelled().text(name), value), required))
            elif required:
                return ir.NOTHING
        declared = frozenset(name for name, _, _ in shape.members())
        opened = self._met_by_open(self._open(shape, names), declared, demands)
        if not all(any(index in meets for _, meets in opened) for index in range(len(demands))):
            return ir.NOTHING
        limit = shape.most
        top = max(shape.fewest, limit or 0) if limit is not None or shape.fewest > 1 else 1
        everything = frozenset(range(len(demands)))
        explorer = Explorer()
        explorer.state((frozenset() if self.order == "any" else 0, frozenset(), 0))
        for number, (written, met, count) in enumerate(explorer.order):
            if explorer.over:
                return None
            spend(4 + len(named))
            missing = any(
                required and (i not in written if self.order == "any" else i >= written)
                for i, (_, required) in enumerate(named)
            )
            if met == everything and not missing and count >= min(shape.fewest, top):
                explorer.accepting.add(number)
            if limit is not None and count >= limit:
                continue
            following = min(count + 1, top)
            later = int(count > 0)
            for index, member in self._next_named(named, written):
                then = written | {index} if self.order == "any" else index + 1
                explorer.edge(number, member[later], (then, met, following))
            if self.order == "declared":
                if missing:
                    continue
                written = len(named)
            for member, meets in opened:
                if not meets or not meets <= met:
                    explorer.edge(number, member[later], (written, met | meets, following))
        node = explorer.node()
        if isinstance(node, ir.Automaton):
            # A rule of its own: comparing such nodes costs their size.
            name = f"members-{len(writer.rules)}"
            writer.rules[name] = node
            node = ir.Rule(name)
        return node

    def _next_named(
        self, named: list[tuple[_Pair, bool]], written: frozenset[int] | int
    ) -> Iterator[tuple[int, _Pair]]:
        if not isinstance(written, int):
            yield from ((i, member) for i, (member, _) in enumerate(named) if i not in written)
            return
        for index in range(written, len(named)):
            member, required = named[index]
            yield index, member
            if required:
                return

    def _met_by_open(
        self, parts: list[_Part], declared: frozenset[str], demands: list[Demand]
    ) -> list[tuple[_Pair, frozenset[int]]]:
        """Kinds of open members, each with the demands that it is made to meet."""
        kinds = [(part.within(ALL_STRINGS, declared), frozenset[int]()) for part in parts]
        for index, demand in enumerate(demands):
            for part, meets in list(kinds):
                keys: list[StringShape] = []
                for wanted in self._wanted(demand):
                    keys.extend(part.within(wanted, demand.beyond).keys)
                goal = conjoin(part.goal, demand.goal)
                if keys and goal != FALSE:
                    kinds.append((_Part(tuple(dict.fromkeys(keys)), goal), meets | {index}))
        members = []
        for part, meets in kinds:
            key, value = self.writer.strings(part.keys), self.writer.value(part.goal)
            if part.keys and ir.NOTHING not in (key, value):
                members.append((self._member(key, value), meets))
        return members

    def _member(self, key: ir.Node, value: ir.Node) -> _Pair:
        member = ir.sequence((key, self._after_key(value)))
        return member, ir.sequence((self.comma, member))


def _admit(names: tuple[StringShape, ...], name: str) -> bool:
    return names == _EVERY_STRING or any(part.admits(name) for part in names)


def _in_order(demands: Collection[Demand]) -> list[Demand]:
    """The same order in every process; what it goes by is only asked for if there are several."""
    return sorted(demands, key=_order) if len(demands) > 1 else list(demands)


def _order(demand: Demand) -> tuple[object, ...]:
    return (
        sorted(map(sorted, demand.goal)),
        sorted(map(sorted, demand.names)),
        sorted(demand.beyond),
        demand.refusal.place,
        # Not by hash: that differs between processes, and so would the grammar.
        demand.keys.lengths,
        demand.keys.values or (),
        sorted(demand.keys.excluded),
        _content(demand.keys.pattern),
    )


def _content(pattern: CharDfa | None) -> tuple[object, ...]:
    """What tells minimal automata apart."""
    if pattern is None:
        return ()
    table = pattern.table
    arrays = (table.cuts, table.labels, table.targets, table.accepts)
    return table.classes, *(array.tolist() for array in arrays)
