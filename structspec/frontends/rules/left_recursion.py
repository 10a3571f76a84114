"""Left recursion rewritten away, so that every rule reads a byte before it calls itself.

Recognition needs no parse tree, so any rewriting that keeps the language will do. The rules that
reach each other before they read anything form a component; the body of each member B is cut as

    B = N  |  C1 R1  |  C2 R2  | …      C1, C2, … members of the component, N begins otherwise

which is a left-linear system over the members. Its solution is a finite automaton whose states are
the members: from the start, N leads to B; from C, R leads to B; a text of A is a path that ends in
A. `ir.Automaton` writes that down directly, with labels that are ordinary nodes. Parts that may be
empty in front of a member ("hidden" left recursion) are cut into their empty and their non-empty
texts, and labels are non-empty, so empty labels become equal states.

Invariants: the languages of all old rules are unchanged; new names end in "+" and hold the
non-empty texts of the rule they are named after; no rule of the result reaches itself before it
reads a byte.

Cost: a component of k rules whose bodies have n parts becomes k automata of k states and at most n
edges each (labels are shared). Sequences in which everything may be empty cost the square of their
length. Rejected: M. C. Paull's substitution, exponential in the size of a component. Source of the
linear system: D. N. Arden, "Delayed-logic and finite-state machines", 1961.

Example::

    >>> from structspec import ir
    >>> grammar = ir.GrammarIR({"e": ir.choice([
    ...     ir.sequence([ir.Rule("e"), ir.Bytes(b"+n")]), ir.Bytes(b"n")])}, "e")
    >>> rewrite_left_recursion(grammar).rules["e"].edges
    (((Bytes(value=b'n'), 1),), ((Bytes(value=b'+n'), 1),))
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from structspec import ir
from structspec.errors import BudgetExceeded
from structspec.frontends.reaching import reaching

__all__ = [
    "children",
    "components",
    "nullable_rules",
    "references",
    "rewrite_left_recursion",
]

# Nodes that the rewriting may write; ambiguous rules of many optional parts can ask for more.
_MOST_PARTS = 200_000


def rewrite_left_recursion(grammar: ir.GrammarIR) -> ir.GrammarIR:
    """The same language without left recursion (the same object if there was none).

    Raises `BudgetExceeded` if the rewritten rules would be too large.
    """
    nullable = nullable_rules(grammar.rules)
    graph = {
        name: list(dict.fromkeys(_lefts(node, nullable))) for name, node in grammar.rules.items()
    }
    found = [
        component
        for component in components(graph)
        if len(component) > 1 or component[0] in graph[component[0]]
    ]
    if not found:
        return grammar
    return ir.GrammarIR(_Rewriter(dict(grammar.rules), nullable).rewrite(found), grammar.start)


def nullable_rules(rules: Mapping[str, ir.Node]) -> dict[str, bool]:
    """For each rule whether the empty text belongs to it."""
    nullable = dict.fromkeys(rules, False)
    users: dict[str, list[str]] = {name: [] for name in rules}
    for name, node in rules.items():
        for other in set(references(node)):
            users[other].append(name)
    pending = list(rules)
    while pending:
        name = pending.pop()
        if not nullable[name] and _nullable(rules[name], nullable):
            nullable[name] = True
            pending.extend(users[name])
    return nullable


def components(graph: Mapping[str, list[str]]) -> list[list[str]]:
    """The strongly connected components, callees first (R. Tarjan, 1972, without recursion)."""
    order: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []
    done: set[str] = set()
    for root in graph:
        if root in order:
            continue
        order[root] = low[root] = len(order)
        stack.append(root)
        path = [(root, iter(graph[root]))]
        while path:
            name, rest = path[-1]
            for other in rest:
                if other not in order:
                    order[other] = low[other] = len(order)
                    stack.append(other)
                    path.append((other, iter(graph[other])))
                    break
                if other not in done:
                    low[name] = min(low[name], order[other])
            else:
                path.pop()
                if path:
                    low[path[-1][0]] = min(low[path[-1][0]], low[name])
                if low[name] == order[name]:
                    at = stack.index(name)
                    found.append(stack[at:])
                    done.update(stack[at:])
                    del stack[at:]
    return found


def references(node: ir.Node) -> Iterator[str]:
    """The names of all rules that occur in a node."""
    stack, seen = [node], set()
    while stack:
        node = stack.pop()
        if isinstance(node, ir.Rule):
            yield node.name
        elif id(node) not in seen:
            seen.add(id(node))
            stack.extend(children(node))


def children(node: ir.Node) -> Iterator[ir.Node]:
    """The nodes directly inside a node."""
    if isinstance(node, ir.Sequence | ir.Choice):
        yield from node.items
    elif isinstance(node, ir.Repeat | ir.Variant):
        yield node.item
    elif isinstance(node, ir.Automaton):
        if isinstance(node.edges, ir.FlatEdges):
            yield from node.edges.labels
            return
        for edges in node.edges:
            for label, _ in edges:
                yield label
    elif isinstance(node, ir.Members):
        yield node.separator
        for member in node.members:
            yield member.key
            yield member.value


def _nullable(node: ir.Node, rules: Mapping[str, bool]) -> bool:
    if isinstance(node, ir.Rule):
        return rules[node.name]
    if isinstance(node, ir.Bytes):
        return not node.value
    if isinstance(node, ir.Sequence):
        return all(_nullable(item, rules) for item in node.items)
    if isinstance(node, ir.Choice):
        return any(_nullable(item, rules) for item in node.items)
    if isinstance(node, ir.Repeat):
        if node.maximum is not None and node.maximum < node.minimum:
            return False
        return node.minimum == 0 or _nullable(node.item, rules)
    if isinstance(node, ir.Variant):
        return _nullable(node.item, rules)
    if isinstance(node, ir.Automaton):
        return 0 in node.accepting
    if isinstance(node, ir.Members):
        return node.minimum == 0 and not any(member.required for member in node.members)
    return False


def _lefts(node: ir.Node, nullable: Mapping[str, bool]) -> Iterator[str]:
    """The rules that a node may call before it has read anything."""
    if isinstance(node, ir.Rule):
        yield node.name
    elif isinstance(node, ir.Sequence):
        for item in node.items:
            yield from _lefts(item, nullable)
            if not _nullable(item, nullable):
                break
    elif isinstance(node, ir.Choice):
        for item in node.items:
            yield from _lefts(item, nullable)
    elif isinstance(node, ir.Repeat):
        if node.maximum is None or node.maximum >= max(node.minimum, 1):
            yield from _lefts(node.item, nullable)
    elif isinstance(node, ir.Variant):
        yield from _lefts(node.item, nullable)
    elif isinstance(node, ir.Automaton):
        for label, _ in node.edges[0] if node.edges else ():
            yield from _lefts(label, nullable)
    elif isinstance(node, ir.Members):
        for member in node.members:
            yield from _lefts(member.key, nullable)


@dataclass
class _Cut:
    """A node as its empty text, texts that begin otherwise, and texts that begin with a member.

    `after[C]`: what follows a non-empty text of C; may be empty itself.
    """

    empty: bool = False
    others: list[ir.Node] = field(default_factory=list)
    after: dict[str, list[ir.Node]] = field(default_factory=dict)


class _Rewriter:
    def __init__(self, rules: dict[str, ir.Node], nullable: dict[str, bool]) -> None:
        self.rules = rules
        self.nullable = nullable
        self._parts = 0
        self._asked: list[str] = []  # rules whose non-empty texts were asked for

    def rewrite(self, found: list[list[str]]) -> dict[str, ir.Node]:
        for component in found:
            self._solve(component)
        for name in self._asked:  # grows while it is read
            plus = f"{name}+"
            if plus not in self.rules:
                self.rules[plus] = self.nonempty(self.rules[name])
                self.nullable[plus] = False
        return self.rules

    def _solve(self, component: list[str]) -> None:
        members = set(component)
        number = {name: index + 1 for index, name in enumerate(component)}
        cuts = {name: self._cut(self.rules[name], members) for name in component}
        starts: list[tuple[ir.Node, int]] = []
        edges: dict[str, list[tuple[ir.Node, int]]] = {name: [] for name in component}
        same: dict[str, set[str]] = {name: {name} for name in component}
        for name, cut in cuts.items():
            first = ir.choice(cut.others)
            if first != ir.NOTHING:
                starts.append((first, number[name]))
            for callee, rests in cut.after.items():
                if any(_nullable(rest, self.nullable) for rest in rests):
                    same[callee].add(name)  # every text of the callee is one of this rule
                rest = ir.choice(self.nonempty(rest) for rest in rests)
                if rest != ir.NOTHING:
                    edges[callee].append((rest, number[name]))
        for name in component:  # the closure of `same`
            pending = list(same[name])
            while pending:
                for other in same[pending.pop()] - same[name]:
                    same[name].add(other)
                    pending.append(other)
        rows = [starts] + [
            list(
                dict.fromkeys(edge for other in component if other in same[name]
                              for edge in edges[other])
            )
            for name in component
        ]  # fmt: skip
        for name in component:
            accepting = {number[other] for other in component if name in same[other]}
            solved = _trimmed(rows, accepting)
            if self.nullable[name]:
                self.rules[f"{name}+"] = solved
                self.nullable[f"{name}+"] = False
                self.rules[name] = ir.Choice((ir.EPSILON, ir.Rule(f"{name}+")))
            else:
                self.rules[name] = solved

    # -- cutting -----------------------------------------------------------------------------

    def _cut(self, node: ir.Node, members: set[str]) -> _Cut:
        if not members.intersection(_lefts(node, self.nullable)):
            rest = self.nonempty(node)
            others = [] if rest == ir.NOTHING else [rest]
            return _Cut(_nullable(node, self.nullable), others)
        if isinstance(node, ir.Rule):
            return _Cut(self.nullable[node.name], [], {node.name: [ir.EPSILON]})
        if isinstance(node, ir.Variant):
            return self._cut(node.item, members)
        found = _Cut(_nullable(node, self.nullable))
        if isinstance(node, ir.Choice):
            for item in node.items:
                self._add(found, self._cut(item, members), ir.EPSILON)
        elif isinstance(node, ir.Sequence):
            for index, item in enumerate(node.items):
                cut = self._cut(item, members)
                self._add(found, cut, ir.sequence(node.items[index + 1 :]))
                if not cut.empty:
                    break
        elif isinstance(node, ir.Repeat):
            cut = self._cut(node.item, members)
            fewest = 0 if cut.empty else max(node.minimum - 1, 0)
            most = None if node.maximum is None else node.maximum - 1
            self._add(found, cut, _repeat(node.item, fewest, most))
        elif isinstance(node, ir.Automaton):
            for label, target in node.edges[0]:
                self._add(found, self._cut(label, members), _from(node, target))
        else:  # the keys of members never begin with a rule that calls itself
            raise AssertionError(type(node).__name__)
        return found

    def _add(self, found: _Cut, cut: _Cut, rest: ir.Node) -> None:
        """Add the non-empty texts of `cut` with `rest` behind them."""
        self._count(len(cut.others) + len(cut.after))
        if rest == ir.NOTHING:
            return
        for other in cut.others:
            found.others.append(ir.sequence((other, rest)))
        for name, rests in cut.after.items():
            found.after.setdefault(name, []).extend(ir.sequence((one, rest)) for one in rests)

    def _count(self, parts: int) -> None:
        self._parts += parts
        if self._parts > _MOST_PARTS:
            raise BudgetExceeded("parts of left-recursive rules", _MOST_PARTS, self._parts)

    def nonempty(self, node: ir.Node) -> ir.Node:
        """The non-empty texts of a node."""
        if not _nullable(node, self.nullable):
            return node
        self._count(1)
        if isinstance(node, ir.Rule):
            self._asked.append(node.name)
            return ir.Rule(f"{node.name}+")
        if isinstance(node, ir.Choice):
            return ir.choice(part for part in map(self.nonempty, node.items) if part != ir.NOTHING)
        if isinstance(node, ir.Sequence):
            found = []
            for index, item in enumerate(node.items):
                first = self.nonempty(item)
                if first != ir.NOTHING:
                    found.append(ir.sequence((first, *node.items[index + 1 :])))
            self._count(len(found))
            return ir.choice(found)
        if isinstance(node, ir.Repeat):
            item = self.nonempty(node.item)
            if item == ir.NOTHING or node.maximum == 0:
                return ir.NOTHING
            return _repeat(item, 1, node.maximum)
        if isinstance(node, ir.Variant):
            item = self.nonempty(node.item)
            return item if item == ir.NOTHING else ir.Variant(item)
        if isinstance(node, ir.Automaton):
            # A fresh start that does not accept; the old one stays for edges that come back.
            shifted = tuple(
                tuple((label, target + 1) for label, target in edges) for edges in node.edges
            )
            accepting = frozenset(state + 1 for state in node.accepting)
            return ir.Automaton((shifted[0], *shifted), accepting, node.longest)
        if isinstance(node, ir.Members):
            if node.maximum == 0:
                return ir.NOTHING
            return ir.Members(
                node.members, node.separator, node.order, max(node.minimum, 1), node.maximum
            )
        return ir.NOTHING  # empty bytes


def _repeat(item: ir.Node, minimum: int, maximum: int | None) -> ir.Node:
    if maximum == 0:
        return ir.EPSILON
    return item if (minimum, maximum) == (1, 1) else ir.Repeat(item, minimum, maximum)


def _from(node: ir.Automaton, start: int) -> ir.Node:
    """The texts along the paths from another state."""
    if not node.edges[start]:
        return ir.EPSILON if start in node.accepting else ir.NOTHING
    # Characters begin with no rule that calls itself.
    assert node.longest is None, "an automaton with a bound on the length is cut"
    return _trimmed([list(edges) for edges in node.edges], set(node.accepting), start)


def _trimmed(rows: list[list[tuple[ir.Node, int]]], accepting: set[int], start: int = 0) -> ir.Node:
    """The automaton without states that are not reached or reach no accepting one."""
    useful = reaching([[target for _, target in row] for row in rows], accepting)
    if start not in useful:
        return ir.NOTHING
    order = [start]
    index = {start: 0}
    edges: list[tuple[tuple[ir.Node, int], ...]] = []
    for state in order:
        row = []
        for label, target in rows[state]:
            if target in useful:
                if target not in index:
                    index[target] = len(order)
                    order.append(target)
                row.append((label, index[target]))
        edges.append(tuple(row))
    return ir.Automaton(tuple(edges), frozenset(index[s] for s in accepting if s in index))
