"""A grammar as a byte-level recursive transition network with register frames.

This module decides what becomes a rule, what is copied into its callers and what is counted;
`nfa` and `dfa` build the automaton of one rule, `assembly` puts the rules into one `Network`.

Rules come in three kinds. *Plain* rules are ordinary automata. *Loop* rules count the copies of
their body in the register of the running frame, so `{1,50000}` costs the states of one copy.
*Members* rules keep in the register which members of an object have been written.

Invariants
- No rule matches the empty string when called: where it might, the caller has an epsilon path
  beside the call. Pops therefore happen only after a byte has been consumed.
- No rule can call itself before it consumes a byte (left recursion is refused here).
- `rank` grows along calls that consume nothing, so one pass in rank order closes a configuration.

Cost: linear in the grammar for deterministic rule bodies; budgets bound the rest.
Sibling: `pushdown` runs it; `costs` measures it. Source of the idea: W. A. Woods, "Transition
network grammars for natural language analysis", 1970.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from structspec import ir
from structspec.automata.assembly import BuiltMembers, BuiltRule, assemble
from structspec.automata.dfa import Determiniser, Dfa
from structspec.automata.nfa import FragmentBuilder, Nfa, Operation
from structspec.automata.tables import LOOP_BODY, MEMBER_KEY, MEMBER_VALUE, PLAIN, Network
from structspec.errors import BudgetExceeded, UnsupportedFeature
from structspec.limits import Limits, Stopwatch

# A rule up to this many byte edges is copied into its callers, a counted repeat up to this many
# is written out: cheaper than pushing and popping a frame.
_INLINE_WEIGHT = 48
_EXPAND_WEIGHT = 96
# Python frames that walking a grammar may nest.
_MOST_FRAMES = 50_000
# Registers and costs are 32-bit. No text holds more copies than this (the memory of a cache ends
# far earlier), so a higher upper limit is none.
_MOST_COPIES = 1 << 27


@contextmanager
def _deep_recursion() -> Iterator[None]:
    # Nested grammar nodes are walked recursively; Python frames of pure Python code cost no C
    # stack, so a higher limit is safe. Front ends bound the nesting.
    old = sys.getrecursionlimit()
    sys.setrecursionlimit(max(old, _MOST_FRAMES))
    try:
        yield
    finally:
        sys.setrecursionlimit(old)


def build_network(grammar: ir.GrammarIR, limits: Limits | None = None) -> Network:
    """Compile a grammar.

    Raises `UnsupportedFeature` for left recursion and `BudgetExceeded` past a limit.
    """
    try:
        with _deep_recursion():
            return _Builder(grammar, Stopwatch(limits or Limits())).build()
    except RecursionError as error:
        raise BudgetExceeded("nesting", _MOST_FRAMES) from error


class _Builder:
    def __init__(self, grammar: ir.GrammarIR, watch: Stopwatch) -> None:
        self._grammar = grammar
        self._watch = watch
        self._rule_nullable: dict[str, bool] = {}
        self._nullable_memo: dict[int, bool] = {}
        self._weights: dict[int, int] = {}
        self._rule_weights: dict[str, int] = {}
        self._keys: dict[tuple[object, ...], int] = {}
        self._pending: list[tuple[int, ir.Node]] = []
        self._alive: list[ir.Node] = []  # keeps the nodes whose id is a key
        self._built: list[BuiltRule | None] = []
        self._loops: list[tuple[int, int]] = []
        self._members: list[BuiltMembers] = []
        self._states = 0
        self._specials: dict[str, int] = {}

    def build(self) -> Network:
        self._find_nullable_rules()
        start = ir.Rule(self._grammar.start)
        self.call(start)
        while self._pending:
            index, node = self._pending.pop()
            self._watch.check(self._states)
            rule = self._build_rule(node)
            self._built[index] = rule
            self._states += len(rule.dfa.final)
        rules = [rule for rule in self._built if rule is not None]
        return assemble(
            rules, self._loops, self._members, self.nullable(start), tuple(self._specials)
        )

    # -- RuleTable -------------------------------------------------------------------------

    def call(self, node: ir.Node) -> int:
        key: tuple[object, ...]
        if isinstance(node, ir.Rule):
            key = ("rule", node.name)
        elif isinstance(node, ir.Repeat):
            key = ("loop", id(node.item), node.minimum, node.maximum)
        else:
            key = ("node", id(node))
        index = self._keys.get(key)
        if index is None:
            index = self._keys[key] = len(self._built)
            self._built.append(None)
            self._alive.append(node)
            self._pending.append((index, node))
        return index

    def body(self, name: str) -> ir.Node:
        return self._grammar.rules[name]

    def special(self, name: str) -> int:
        return self._specials.setdefault(name, len(self._specials))

    def nullable(self, node: ir.Node) -> bool:
        if isinstance(node, ir.Rule):
            return self._rule_nullable[node.name]
        found = self._nullable_memo.get(id(node))
        if found is None:
            found = self._nullable_memo[id(node)] = self._is_nullable(node)
        return found

    def inlined(self, name: str) -> bool:
        return self._rule_weight(name) <= _INLINE_WEIGHT

    def expanded(self, node: ir.Repeat) -> bool:
        copies = node.maximum if node.maximum is not None else node.minimum + 1
        return copies <= 1 or max(self._weight(node.item), 1) * copies <= _EXPAND_WEIGHT

    def check(self, states: int) -> None:
        self._watch.check(self._states + states)

    # -- analysis --------------------------------------------------------------------------

    def _find_nullable_rules(self) -> None:
        rules = self._grammar.rules
        self._rule_nullable = dict.fromkeys(rules, False)
        changed = True
        while changed:
            changed = False
            for name, node in rules.items():
                if not self._rule_nullable[name] and self._is_nullable(node):
                    self._rule_nullable[name] = changed = True

    def _is_nullable(self, node: ir.Node) -> bool:
        if isinstance(node, ir.Bytes):
            return not node.value
        if isinstance(node, ir.Chars | ir.Special):
            return False
        if isinstance(node, ir.Sequence):
            return all(self._is_nullable(item) for item in node.items)
        if isinstance(node, ir.Choice):
            return any(self._is_nullable(item) for item in node.items)
        if isinstance(node, ir.Repeat):
            if node.maximum is not None and node.maximum < node.minimum:
                return False
            return node.minimum == 0 or self._is_nullable(node.item)
        if isinstance(node, ir.Rule):
            return self._rule_nullable[node.name]
        if isinstance(node, ir.Variant):
            return self._is_nullable(node.item)
        if isinstance(node, ir.Automaton):
            return 0 in node.accepting
        return node.minimum == 0 and not any(member.required for member in node.members)

    def _rule_weight(self, name: str) -> int:
        found = self._rule_weights.get(name)
        if found is None:
            self._rule_weights[name] = 1 << 20  # recursion never inlines
            found = self._rule_weights[name] = self._weight(self._grammar.rules[name])
        return found

    def _weight(self, node: ir.Node) -> int:
        """Byte edges of the node when written out, saturating."""
        found = self._weights.get(id(node))
        if found is not None:
            return found
        if isinstance(node, ir.Bytes):
            weight = len(node.value)
        elif isinstance(node, ir.Special):
            weight = 1
        elif isinstance(node, ir.Chars):
            weight = len(node.ranges) + 3 * sum(hi > 0x7F for _, hi in node.ranges)
        elif isinstance(node, ir.Sequence | ir.Choice):
            weight = 0
            for item in node.items:
                weight += self._weight(item)
                if weight > 1 << 20:
                    break
        elif isinstance(node, ir.Variant):
            weight = self._weight(node.item)
        elif isinstance(node, ir.Automaton):
            weight = sum(self._weight(label) for edges in node.edges for label, _ in edges)
        elif isinstance(node, ir.Rule):
            weight = self._rule_weight(node.name)
        elif isinstance(node, ir.Repeat):
            copies = node.maximum if node.maximum is not None else node.minimum + 1
            weight = self._weight(node.item) * max(copies, 1)
        else:
            weight = 1 << 20
        weight = min(weight, 1 << 20)
        if not isinstance(node, ir.Rule):
            self._weights[id(node)] = weight
            self._alive.append(node)
        return weight

    # -- rules -----------------------------------------------------------------------------

    def _build_rule(self, node: ir.Node) -> BuiltRule:
        if isinstance(node, ir.Members):
            return self._members_rule(node)
        if isinstance(node, ir.Repeat) and not self.expanded(node) and self._is_counted(node):
            return self._loop_rule(node)
        if isinstance(node, ir.Rule):
            node = self.body(node.name)
            if isinstance(node, ir.Members):
                return self._members_rule(node)
        nfa = Nfa()
        start, final = nfa.state(), nfa.state()
        FragmentBuilder(nfa, self).add(node, start, final)
        determiniser = Determiniser(nfa, final, self.check)
        return BuiltRule(determiniser.dfa, determiniser.region(start), PLAIN)

    @staticmethod
    def _is_counted(node: ir.Repeat) -> bool:
        return node.maximum is not None or node.minimum > 1

    def _loop_rule(self, node: ir.Repeat) -> BuiltRule:
        nfa = Nfa()
        start, end, final = nfa.state(), nfa.state(), nfa.state()
        FragmentBuilder(nfa, self).add(node.item, start, end)
        nfa.operations[end].append(Operation("count", len(self._loops), (final, start)))
        # A nullable item can always be left out; without its empty string the count is free.
        minimum = 0 if self.nullable(node.item) else node.minimum
        if minimum > _MOST_COPIES:
            raise UnsupportedFeature(
                "repetition", "", f"{minimum} copies are more than {_MOST_COPIES}, the most that "
                "can be asked for"
            )  # fmt: skip
        unlimited = node.maximum is None or node.maximum > _MOST_COPIES
        self._loops.append((minimum, -1 if unlimited else int(node.maximum or 0)))
        # The start must not be shared with a later state: an empty copy would count without
        # consuming, so the start alone has no operation.
        determiniser = Determiniser(nfa, final, self.check, keep=frozenset((start,)))
        entry = determiniser.region(start)
        dfa = determiniser.dfa
        dfa.operations[entry] = []
        kinds = [PLAIN if dfa.final[s] else LOOP_BODY for s in range(len(dfa.final))]
        return BuiltRule(dfa, entry, LOOP_BODY, len(self._loops) - 1, kinds)

    def _members_rule(self, node: ir.Members) -> BuiltRule:
        if node.minimum > _MOST_COPIES:
            raise BudgetExceeded("states", _MOST_COPIES, node.minimum)
        if node.maximum is not None and node.maximum > _MOST_COPIES:
            node = replace(node, maximum=None)
        nfa = Nfa()
        key, separator, value_end, final = (nfa.state() for _ in range(4))
        index = len(self._members)
        keys, values = FragmentBuilder(nfa, self, flat=True), FragmentBuilder(nfa, self)
        keys.add(node.separator, separator, key)
        value_starts: dict[ir.Node, int] = {}  # equal values share their states
        starts_by_id: dict[int, int] = {}  # spares the hash of large nodes
        starts: list[int] = []
        repeated = False
        for k, member in enumerate(node.members):
            if member.repeatable and member.required:
                raise ValueError("a repeatable member cannot be required")
            if repeated and not member.repeatable:
                raise ValueError("repeatable members must come last")
            repeated = member.repeatable
            self._check_key(member.key)
            accept = nfa.state()
            keys.add(member.key, key, accept)
            start = starts_by_id.get(id(member.value))
            if start is None:
                start = value_starts.get(member.value)
                if start is None:
                    start = value_starts[member.value] = nfa.state()
                    values.add(member.value, start, value_end)
                starts_by_id[id(member.value)] = start
            nfa.operations[accept].append(Operation("member", k, (start,)))
            starts.append(start)
            if k % 256 == 255:
                self.check(len(nfa.edges))
        nfa.operations[value_end].append(Operation("rest", index, (final, separator)))
        determiniser = Determiniser(nfa, final, self.check)
        entry = determiniser.region(key)
        separator_state = determiniser.region(separator)
        value_states = [determiniser.region(s) for s in starts]
        dfa = determiniser.dfa
        self._members.append(BuiltMembers(node, value_states, entry, separator_state))
        kinds = [PLAIN] * len(dfa.final)
        for origin, kind in [(entry, MEMBER_KEY), (separator_state, MEMBER_KEY)] + [
            (s, MEMBER_VALUE) for s in dict.fromkeys(value_states)
        ]:
            _mark(dfa, origin, kind, kinds)
        for state, operations in enumerate(dfa.operations):
            members = [op for op in operations if op.kind == "member"]
            if len(members) > 1:  # the first member whose key language holds the text owns it
                first = min(members, key=lambda op: op.argument)
                dfa.operations[state] = [op for op in operations if op.kind != "member"] + [first]
        return BuiltRule(dfa, entry, MEMBER_KEY, index, kinds)

    def _check_key(self, key: ir.Node) -> None:
        """Keys are written out flat and decide before anything else does: refuse what cannot be."""
        if self.nullable(key):
            raise UnsupportedFeature("empty key", "", "the key of a member may not be empty")
        stack: list[tuple[ir.Node, frozenset[str]]] = [(key, frozenset())]
        seen: set[tuple[int, frozenset[str]]] = set()
        while stack:
            node, path = stack.pop()
            if isinstance(node, ir.Bytes | ir.Chars | ir.Special) or (id(node), path) in seen:
                continue
            seen.add((id(node), path))
            if isinstance(node, ir.Sequence | ir.Choice):
                stack += [(item, path) for item in node.items]
            elif isinstance(node, ir.Automaton):
                stack += [(label, path) for edges in node.edges for label, _ in edges]
            elif isinstance(node, ir.Repeat | ir.Variant):
                stack.append((node.item, path))
            elif isinstance(node, ir.Rule) and node.name not in path:
                stack.append((self.body(node.name), path | {node.name}))
            else:
                what = "recursive" if isinstance(node, ir.Rule) else "itself a list of members"
                raise UnsupportedFeature("key", "", f"the key of a member may not be {what}")

    # -- assembly --------------------------------------------------------------------------


def _mark(dfa: Dfa, origin: int, kind: int, kinds: list[int]) -> None:
    """Give `kind` to every state that bytes and calls reach from `origin`."""
    stack, seen = [origin], {origin}
    while stack:
        state = stack.pop()
        kinds[state] = kind
        targets = [t for _, t, _ in dfa.edges[state]] + [t for _, t in dfa.calls[state]]
        for target in targets:
            if target not in seen:
                seen.add(target)
                stack.append(target)
