"""Any IR as rules of plain parts, for notations that have nothing else.

`plain` leaves `Bytes` (that are whole characters), `Chars`, `Special`, `Sequence`, `Choice`,
`Repeat` and `Rule`; everything else becomes rules:

- an automaton, one right-linear rule per state (and number of characters, if that is bounded);
- members in declared order, two rules per member (before and behind the first one written);
- members in any order, one rule per set of members that are done: 2^n of them, within a budget;
- bounds on the number of members multiply those rules by the numbers that matter.

A key belongs to the first member whose language holds it, so a later key loses the texts of the
earlier ones where they overlap.

Invariants: the language is unchanged; no part of the result is empty of texts (alternatives that
nothing completes are dropped). Cost: linear, except as said; `BudgetExceeded` names the need.

Example::

    >>> from structspec import ir
    >>> star = ir.Automaton((((ir.Bytes(b"a"), 0),),), frozenset((0,)))
    >>> plain(ir.GrammarIR({"r": star}, "r")).rules["r-0"]
    Choice(items=(Sequence(items=()), Sequence(items=(Bytes(value=b'a'), \
Rule(name='r-0', called=False)))))
"""

from __future__ import annotations

from structspec import ir
from structspec.automata.chardfa import CharDfa, CharNfa
from structspec.automata.distinct import OPENED, REPEATED
from structspec.errors import BudgetExceeded, Unsatisfiable, UnsupportedFeature
from structspec.frontends.regex.lower import lower_dfa
from structspec.frontends.rules.productive import productive_rules, reachable_rules

__all__ = ["plain"]

# Alternatives that members in any order, or with bounds on their number, may take.
_MOST_ALTERNATIVES = 20_000
# States that an automaton with a bound on the length may be written out to (a hostname: 27,657).
_MOST_UNROLLED = 50_000


def plain(grammar: ir.GrammarIR) -> ir.GrammarIR:
    """The same language in plain parts.

    Raises `Unsatisfiable` if there is no text at all, `UnsupportedFeature` for bytes that are no
    characters, `BudgetExceeded` for members in too many orders.
    """
    productive = productive_rules(grammar.rules)
    if grammar.start not in productive:
        raise Unsatisfiable("no text satisfies the grammar: there is nothing to write down")
    rules = _Plain(grammar, productive).rules
    alive = productive_rules(rules)
    rules = {name: _pruned(node, alive) for name, node in rules.items() if name in alive}
    used = reachable_rules(rules, grammar.start)
    return ir.GrammarIR({k: v for k, v in rules.items() if k in used}, grammar.start)


def _pruned(node: ir.Node, alive: set[str]) -> ir.Node:
    """The node without what uses a rule that no text completes."""
    match node:
        case ir.Rule(name):
            return node if name in alive else ir.NOTHING
        case ir.Sequence(items):
            return ir.sequence(_pruned(item, alive) for item in items)
        case ir.Choice(items):
            parts = [_pruned(item, alive) for item in items]
            return ir.choice(part for part in parts if part != ir.NOTHING)
        case ir.Repeat(item, minimum, maximum):
            inner = _pruned(item, alive)
            if inner == ir.NOTHING:
                return ir.NOTHING if minimum else ir.EPSILON
            return ir.Repeat(inner, minimum, maximum)
    return node


class _Plain:
    def __init__(self, grammar: ir.GrammarIR, productive: set[str]) -> None:
        self.rules: dict[str, ir.Node] = {}
        self._productive = productive
        self._source = grammar.rules
        self._known: dict[int, ir.Node] = {}
        self._alive: list[ir.Node] = []  # keeps the nodes whose id is a key
        self._name = ""
        for name, node in grammar.rules.items():
            if name in productive:
                self._name = name
                self.rules[name] = self.node(node)

    def node(self, node: ir.Node) -> ir.Node:
        """The plain form; `ir.NOTHING` if no text completes it."""
        found = self._known.get(id(node))
        if found is None:
            found = self._known[id(node)] = self._node(node)
            self._alive.append(node)
        return found

    def _node(self, node: ir.Node) -> ir.Node:
        match node:
            case ir.Bytes(value):
                _decoded(value)
                return node
            case ir.Chars(ranges):
                return node if ranges else ir.NOTHING
            case ir.Sequence(items):
                return ir.sequence(self.node(item) for item in items)
            case ir.Choice(items):
                parts = [self.node(item) for item in items]
                return ir.choice(part for part in parts if part != ir.NOTHING)
            case ir.Repeat(item, minimum, maximum):
                if maximum is not None and maximum < minimum:
                    return ir.NOTHING
                inner = self.node(item)
                if maximum == 0 or (inner == ir.NOTHING and minimum == 0):
                    return ir.EPSILON
                return inner if inner == ir.NOTHING else ir.Repeat(inner, minimum, maximum)
            case ir.Rule(name):
                return node if name in self._productive else ir.NOTHING
            case ir.Variant(item):
                return self.node(item)
            case ir.Automaton():
                return self._automaton(node)
            case ir.Members():
                return self._members(node)
            case ir.Special(name) if name == OPENED:
                raise UnsupportedFeature(
                    "uniqueItems", "", "rules cannot remember the items of an array without end"
                )
            case ir.Special(name) if name == REPEATED:
                return ir.NOTHING  # without memory nothing is known to be repeated
        return node  # a special token

    def _fresh(self) -> str:
        """A prefix for the rules of one construct."""
        number = 0
        while f"{self._name}-{number}" in self.rules or f"{self._name}-{number}" in self._source:
            number += 1
        prefix = f"{self._name}-{number}"
        self.rules[prefix] = ir.EPSILON  # taken, until the construct fills it
        return prefix

    def _automaton(self, node: ir.Automaton) -> ir.Node:
        if node.longest is not None:
            node = _unrolled(node, node.longest)
        prefix = self._fresh()
        names = [prefix if s == 0 else f"{prefix}-{s}" for s in range(len(node.edges))]
        for name, (state, edges) in zip(names, enumerate(node.edges), strict=True):
            options: list[ir.Node] = [ir.EPSILON] if state in node.accepting else []
            for label, target in edges:
                part = self.node(label)
                if part == ir.NOTHING:
                    continue
                last = target in node.accepting and not node.edges[target]
                options.append(part if last else ir.sequence((part, ir.Rule(names[target]))))
            self.rules[name] = ir.choice(options)
        return ir.Rule(prefix)

    # -- members -----------------------------------------------------------------------------

    def _members(self, node: ir.Members) -> ir.Node:
        prefix = self._fresh()
        texts: list[ir.Node] = []
        earlier = CharDfa.nothing()
        dfas = [_language(member.key, self._source) for member in node.members]
        for index, member in enumerate(node.members):
            key = self.node(member.key)
            mine = dfas[index]
            if not mine.intersect(earlier).is_empty:
                key = lower_dfa(mine.difference(earlier))
                if isinstance(key, ir.Automaton):
                    key = self._automaton(key)
            earlier = earlier.union(mine)
            text = ir.sequence((key, self.node(member.value)))
            if text not in (ir.NOTHING, ir.EPSILON):
                name = f"{prefix}-member-{index}"
                self.rules[name] = text
                text = ir.Rule(name)
            texts.append(text)
        if node.order == "any":
            start = self._any_order(node, texts, prefix)
        else:
            start = self._declared_order(node, texts, prefix)
        self.rules[prefix] = start
        return ir.Rule(prefix) if start != ir.NOTHING else ir.NOTHING

    def _declared_order(self, node: ir.Members, texts: list[ir.Node], prefix: str) -> ir.Node:
        separator = self.node(node.separator)
        once = sum(not member.repeatable for member in node.members)
        counts = max(node.minimum, -1 if node.maximum is None else node.maximum)
        _check(2 * (once + 1) * (counts + 1))
        done: dict[tuple[int, int, bool], ir.Node] = {}

        def after(index: int, count: int, first: bool) -> ir.Node:
            """What may be written when the members before `index` are settled."""
            return done[index, min(count, counts), first] if counts >= 0 else done[index, 0, first]

        for index in range(once, -1, -1):
            for count in range(counts, -1, -1) if counts >= 0 else (0,):
                for first in (False, True):
                    options: list[ir.Node] = []
                    before = ir.EPSILON if first else separator
                    full = node.maximum is not None and count >= node.maximum
                    here = f"{prefix}-{index}-{count}{'-first' if first else ''}"
                    if index == once:
                        if count >= node.minimum:
                            options.append(ir.EPSILON)
                        last = counts <= 0 or count == counts
                        following = (
                            ir.Rule(f"{prefix}-{index}-{count if last else count + 1}")
                            if any(member.repeatable for member in node.members)
                            else ir.NOTHING
                        )
                        options += [
                            ir.sequence((before, text, following))
                            for text, member in zip(texts, node.members, strict=True)
                            if member.repeatable and not full
                        ]
                    else:
                        if not full:
                            rest = after(index + 1, count + 1, False)
                            options.append(ir.sequence((before, texts[index], rest)))
                        if not node.members[index].required:
                            options.append(after(index + 1, count, first))
                    options = [option for option in options if option != ir.NOTHING]
                    found = ir.choice(options)
                    if found != ir.NOTHING and found != ir.EPSILON:
                        self.rules[here] = found
                        found = ir.Rule(here)
                    elif index == once:
                        self.rules[here] = found
                    done[index, count, first] = found
        return after(0, 0, True)

    def _any_order(self, node: ir.Members, texts: list[ir.Node], prefix: str) -> ir.Node:
        separator = self.node(node.separator)
        once = [i for i, member in enumerate(node.members) if not member.repeatable]
        many = [i for i, member in enumerate(node.members) if member.repeatable]
        counts = max(node.minimum, -1 if node.maximum is None else node.maximum)
        _check((1 << len(once)) * max(len(node.members), 1) * (counts + 1 if many else 1))
        required = sum(1 << i for i in once if node.members[i].required)
        names: dict[tuple[int, int, bool], str] = {}
        pending: list[tuple[int, int, bool]] = []

        def state(done: int, count: int, first: bool) -> ir.Node:
            key = (done, min(count, counts) if counts >= 0 else 0, first)
            if key not in names:
                names[key] = f"{prefix}-{len(names)}"
                self.rules[names[key]] = ir.NOTHING
                pending.append(key)
            return ir.Rule(names[key])

        start = state(0, 0, True)
        while pending:
            done, count, first = key = pending.pop()
            before = ir.EPSILON if first else separator
            options: list[ir.Node] = []
            if done & required == required and count >= node.minimum:
                options.append(ir.EPSILON)
            if node.maximum is None or count < node.maximum:
                for index in [*(i for i in once if not done >> i & 1), *many]:
                    there = done if node.members[index].repeatable else done | 1 << index
                    if texts[index] != ir.NOTHING:
                        rest = state(there, count + 1, False)
                        options.append(ir.sequence((before, texts[index], rest)))
            self.rules[names[key]] = ir.choice(options)
        return start


def _unrolled(node: ir.Automaton, longest: int) -> ir.Automaton:
    """The same language without the bound: a state for each state and number of edges."""
    rows: list[list[tuple[ir.Node, int]]] = []
    accepting: set[int] = set()
    order = [(0, 0)]
    index = {(0, 0): 0}
    for state, read in order:
        if state in node.accepting:
            accepting.add(len(rows))
        rows.append([])
        for label, target in node.edges[state] if read < longest else ():
            there = (target, read + 1)
            if there not in index:
                index[there] = len(order)
                order.append(there)
                if len(order) > _MOST_UNROLLED:
                    what = "states of a bounded automaton written as rules"
                    raise BudgetExceeded(what, _MOST_UNROLLED, len(order))
            rows[-1].append((label, index[there]))
    return ir.Automaton(tuple(map(tuple, rows)), frozenset(accepting))


def _check(alternatives: int) -> None:
    if alternatives > _MOST_ALTERNATIVES:
        raise BudgetExceeded(
            "alternatives of members written as rules", _MOST_ALTERNATIVES, alternatives
        )


def _decoded(value: bytes) -> str:
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UnsupportedFeature(
            "bytes",
            "",
            f"the bytes {value.hex(' ')} are no characters, and rules are made of those",
        ) from error


# -- keys as automata over characters ----------------------------------------------------------


def _language(key: ir.Node, rules: object) -> CharDfa:
    nfa = CharNfa()
    start, end = nfa.state(), nfa.state()
    _add(nfa, key, start, end, rules)
    return CharDfa.of_nfa(nfa, start, end)


def _add(nfa: CharNfa, node: ir.Node, start: int, end: int, rules: object) -> None:
    """The texts of a node without recursion between two states."""
    match node:
        case ir.Bytes(value):
            text = _decoded(value)
            for index, character in enumerate(text):
                there = end if index == len(text) - 1 else nfa.state()
                nfa.read(start, ((ord(character),) * 2,), there)
                start = there
            if not text:
                nfa.join(start, end)
        case ir.Chars(ranges):
            nfa.read(start, ranges, end)
        case ir.Sequence(items):
            for index, item in enumerate(items):
                there = end if index == len(items) - 1 else nfa.state()
                _add(nfa, item, start, there, rules)
                start = there
            if not items:
                nfa.join(start, end)
        case ir.Choice(items):
            for item in items:
                first, last = nfa.state(), nfa.state()
                nfa.join(start, first)
                _add(nfa, item, first, last, rules)
                nfa.join(last, end)
        case ir.Variant(item):
            _add(nfa, item, start, end, rules)
        case ir.Rule(name):
            _add(nfa, rules[name], start, end, rules)  # type: ignore[index]
        case ir.Automaton(edges, accepting):
            states = [nfa.state() for _ in edges]
            nfa.join(start, states[0])
            for source, row in enumerate(edges):
                for label, target in row:
                    first, last = nfa.state(), nfa.state()
                    nfa.join(states[source], first)
                    _add(nfa, label, first, last, rules)
                    nfa.join(last, states[target])
            for state in accepting:
                nfa.join(states[state], end)
        case ir.Repeat(item, minimum, maximum):
            here = nfa.state()
            nfa.join(start, here)
            for _ in range(minimum):
                there = nfa.state()
                _add(nfa, item, here, there, rules)
                here = there
            if maximum is None:
                loop, back = nfa.state(), nfa.state()
                nfa.join(here, loop)
                _add(nfa, item, loop, back, rules)
                nfa.join(back, loop)
                nfa.join(loop, end)
                return
            for _ in range(maximum - minimum):
                nfa.join(here, end)
                there = nfa.state()
                _add(nfa, item, here, there, rules)
                here = there
            nfa.join(here, end)
        case _:
            raise UnsupportedFeature("key", "", "the key of a member is no plain text")
