"""A grammar as a byte-level recursive transition network with register frames.

A `Network` is the compiled, immutable form of a grammar: flat numpy arrays that the numba kernels
of `pushdown` walk. It knows no vocabulary.

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
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from structspec import ir
from structspec.automata.dfa import Determiniser, Dfa
from structspec.automata.nfa import ALL_BYTES, ByteMask, FragmentBuilder, Nfa, Operation
from structspec.errors import UnsupportedFeature
from structspec.limits import Limits, Stopwatch

IntArray = NDArray[np.int32]

#: Kinds of states, by what their cost to the end of the rule depends on (see `costs`).
PLAIN, LOOP_BODY, MEMBER_VALUE, MEMBER_KEY = 0, 1, 2, 3
#: Kinds of operation edges.
COUNT, MEMBER, REST = 0, 1, 2
_OPERATION_KINDS = {"count": COUNT, "member": MEMBER, "rest": REST}

# A rule up to this many byte edges is copied into its callers, a counted repeat up to this many
# is written out: cheaper than pushing and popping a frame.
_INLINE_WEIGHT = 48
_EXPAND_WEIGHT = 96
# Registers and costs are 32-bit. No text holds more copies than this (the memory of a cache ends
# far earlier), so a higher upper limit is none.
_MOST_COPIES = 1 << 27


@dataclass(frozen=True)
class Network:
    """Flat arrays; S states, E byte edges, one row per rule, loop or members list.

    class_of: uint8[256], the byte class of every byte; `class_bytes[c]` its bytes.
    edge_start[S + 1], edge_class[E], edge_target[E], edge_primary[E]: sorted by class per state.
    call_*: call edges per state; call_rule, call_target, call_tail (1: nothing is pushed).
    op_*: operation edges per state; op_first / op_second are the targets (−1: none).
    final[S], kind[S], data[S]: `data` is the loop or members index the state belongs to (−1).
    rule_entry[R], rule_kind[R], rule_data[R].
    loop_min, loop_max (−1: none), loop_rule; members_*: see `MembersTable`.
    """

    n_states: int
    class_of: NDArray[np.uint8]
    class_bytes: tuple[bytes, ...]
    edge_start: IntArray
    edge_class: IntArray
    edge_target: IntArray
    edge_primary: NDArray[np.uint8]
    call_start: IntArray
    call_rule: IntArray
    call_target: IntArray
    call_tail: NDArray[np.uint8]
    op_start: IntArray
    op_kind: IntArray
    op_argument: IntArray
    op_first: IntArray
    op_second: IntArray
    final: NDArray[np.uint8]
    kind: NDArray[np.uint8]
    data: IntArray
    rank: IntArray
    rule_entry: IntArray
    rule_kind: IntArray
    rule_data: IntArray
    loop_min: IntArray
    loop_max: IntArray
    members: MembersTable
    start_nullable: bool

    @property
    def n_classes(self) -> int:
        """How many byte classes there are."""
        return len(self.class_bytes)

    @property
    def n_rules(self) -> int:
        """How many rules there are; rule 0 is the start."""
        return len(self.rule_entry)


@dataclass(frozen=True)
class MembersTable:
    """Members lists: list m owns the member slots `start[m] .. start[m + 1] − 1`, the last of
    which is a sentinel behind its n members.

    required, repeatable, value_state (where the value begins): per slot.
    key_state[m], separator_state[m]: where a key begins, where the separator does.
    any_order[m]: 1 if the register is a set of members, 0 if it is the next member's index.
    minimum[m], maximum[m] (−1: none): how many members may be written; levels[m]: counts that the
    register tells apart, minus one. first_repeatable[m]: index of the first repeatable member.

    Registers: in declared order `count · (n + 1) + next index`; in any order the number of an
    interned row that holds the count and one bit per member. Counts stop at `levels`.
    """

    start: IntArray
    required: NDArray[np.uint8]
    repeatable: NDArray[np.uint8]
    value_state: IntArray
    key_state: IntArray
    separator_state: IntArray
    any_order: NDArray[np.uint8]
    minimum: IntArray
    maximum: IntArray
    levels: IntArray
    first_repeatable: IntArray

    @property
    def n_lists(self) -> int:
        """How many members lists there are."""
        return len(self.key_state)


@dataclass
class _BuiltRule:
    dfa: Dfa
    entry: int
    kind: int
    data: int = -1
    state_kind: list[int] | None = None


@contextmanager
def _deep_recursion() -> Iterator[None]:
    # Nested grammar nodes are walked recursively; Python frames of pure Python code cost no C
    # stack, so a higher limit is safe. Front ends bound the nesting.
    old = sys.getrecursionlimit()
    sys.setrecursionlimit(max(old, 50_000))
    try:
        yield
    finally:
        sys.setrecursionlimit(old)


def build_network(grammar: ir.GrammarIR, limits: Limits | None = None) -> Network:
    """Compile a grammar.

    Raises `UnsupportedFeature` for left recursion and `BudgetExceeded` past a limit.
    """
    with _deep_recursion():
        return _Builder(grammar, Stopwatch(limits or Limits())).build()


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
        self._built: list[_BuiltRule | None] = []
        self._loops: list[tuple[int, int]] = []
        self._members: list[tuple[ir.Members, list[int], int, int]] = []
        self._states = 0

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
        return self._assemble(self.nullable(start))

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
        if isinstance(node, ir.Chars):
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

    def _build_rule(self, node: ir.Node) -> _BuiltRule:
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
        return _BuiltRule(determiniser.dfa, determiniser.region(start), PLAIN)

    @staticmethod
    def _is_counted(node: ir.Repeat) -> bool:
        return node.maximum is not None or node.minimum > 1

    def _loop_rule(self, node: ir.Repeat) -> _BuiltRule:
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
        return _BuiltRule(dfa, entry, LOOP_BODY, len(self._loops) - 1, kinds)

    def _members_rule(self, node: ir.Members) -> _BuiltRule:
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
        self._members.append((node, value_states, entry, separator_state))
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
        return _BuiltRule(dfa, entry, MEMBER_KEY, index, kinds)

    def _check_key(self, key: ir.Node) -> None:
        """Keys are written out flat and decide before anything else does: refuse what cannot be."""
        if self.nullable(key):
            raise UnsupportedFeature("empty key", "", "the key of a member may not be empty")
        stack: list[tuple[ir.Node, frozenset[str]]] = [(key, frozenset())]
        seen: set[tuple[int, frozenset[str]]] = set()
        while stack:
            node, path = stack.pop()
            if isinstance(node, ir.Bytes | ir.Chars) or (id(node), path) in seen:
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

    def _assemble(self, start_nullable: bool) -> Network:
        rules = [rule for rule in self._built if rule is not None]
        offsets = np.cumsum([0] + [len(rule.dfa.final) for rule in rules]).tolist()
        masks = {mask for rule in rules for edges in rule.dfa.edges for mask, _, _ in edges}
        class_of, class_bytes, classes = _byte_classes(masks)

        edges: list[tuple[int, int, int]] = []
        calls: list[tuple[int, int, int]] = []
        ops: list[tuple[int, int, int, int]] = []
        edge_start, call_start, op_start = [0], [0], [0]
        final: list[bool] = []
        kind: list[int] = []
        data: list[int] = []
        for rule, offset in zip(rules, offsets, strict=False):
            dfa = rule.dfa
            final += dfa.final
            kind += rule.state_kind or [PLAIN] * len(dfa.final)
            data += [rule.data] * len(dfa.final)
            for state in range(len(dfa.final)):
                local = [
                    (c, offset + target, int(primary))
                    for mask, target, primary in dfa.edges[state]
                    for c in classes[mask]
                ]
                local.sort()
                edges += local
                edge_start.append(len(edges))
                for callee, target in dfa.calls[state]:
                    tail = (
                        dfa.final[target]
                        and not dfa.edges[target]
                        and not dfa.calls[target]
                        and not dfa.operations[target]
                        and rules[callee].kind == PLAIN
                    )
                    calls.append((callee, offset + target, int(tail)))
                call_start.append(len(calls))
                for op in dfa.operations[state]:
                    second = offset + op.targets[1] if len(op.targets) > 1 else -1
                    ops.append(
                        (_OPERATION_KINDS[op.kind], op.argument, offset + op.targets[0], second)
                    )
                op_start.append(len(ops))
        edge_array = np.array(edges, np.int32).reshape(-1, 3)
        call_array = np.array(calls, np.int32).reshape(-1, 3)
        op_array = np.array(ops, np.int32).reshape(-1, 4)
        entries = [o + r.entry for r, o in zip(rules, offsets, strict=False)]
        loops = np.array(self._loops, np.int32).reshape(-1, 2)
        rule_of_members = {r.data: o for r, o in zip(rules, offsets, strict=False) if r.kind == 3}
        return Network(
            n_states=offsets[-1],
            class_of=class_of,
            class_bytes=class_bytes,
            edge_start=np.array(edge_start, np.int32),
            edge_class=edge_array[:, 0].copy(),
            edge_target=edge_array[:, 1].copy(),
            edge_primary=edge_array[:, 2].astype(np.uint8),
            call_start=np.array(call_start, np.int32),
            call_rule=call_array[:, 0].copy(),
            call_target=call_array[:, 1].copy(),
            call_tail=call_array[:, 2].astype(np.uint8),
            op_start=np.array(op_start, np.int32),
            op_kind=op_array[:, 0].copy(),
            op_argument=op_array[:, 1].copy(),
            op_first=op_array[:, 2].copy(),
            op_second=op_array[:, 3].copy(),
            final=np.array(final, np.uint8),
            kind=np.array(kind, np.uint8),
            data=np.array(data, np.int32),
            rank=_ranks(rules, entries, offsets[-1]),
            rule_entry=np.array(entries, np.int32),
            rule_kind=np.array([r.kind for r in rules], np.int32),
            rule_data=np.array([r.data for r in rules], np.int32),
            loop_min=loops[:, 0].copy(),
            loop_max=loops[:, 1].copy(),
            members=self._members_table(rule_of_members),
            start_nullable=start_nullable,
        )

    def _members_table(self, offset_of: dict[int, int]) -> MembersTable:
        start, required, repeatable, values = [0], [], [], []
        for index, (node, value_states, _, _) in enumerate(self._members):
            for member, value in zip(node.members, value_states, strict=True):
                required.append(member.required)
                repeatable.append(member.repeatable)
                values.append(offset_of[index] + value)
            required.append(False)
            repeatable.append(False)
            values.append(-1)
            start.append(len(values))
        lists = list(enumerate(self._members))
        minimum = np.array([m[0].minimum for _, m in lists], np.int32)
        maximum = np.array(
            [-1 if m[0].maximum is None else m[0].maximum for _, m in lists], np.int32
        )
        once = [sum(not k.repeatable for k in m[0].members) for _, m in lists]
        return MembersTable(
            start=np.array(start, np.int32),
            required=np.array(required, np.uint8),
            repeatable=np.array(repeatable, np.uint8),
            value_state=np.array(values, np.int32),
            key_state=np.array([offset_of[i] + m[2] for i, m in lists], np.int32),
            separator_state=np.array([offset_of[i] + m[3] for i, m in lists], np.int32),
            any_order=np.array([m[0].order == "any" for _, m in lists], np.uint8),
            minimum=minimum,
            maximum=maximum,
            levels=np.where(maximum >= 0, maximum, minimum),
            first_repeatable=np.array(once, np.int32),
        )


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


def _byte_classes(
    masks: set[ByteMask],
) -> tuple[NDArray[np.uint8], tuple[bytes, ...], dict[ByteMask, list[int]]]:
    """The coarsest partition of the byte values that respects every mask."""
    parts = [ALL_BYTES]
    for mask in sorted(masks):
        refined = []
        for part in parts:
            inside = part & mask
            if inside and inside != part:
                refined += [inside, part & ~mask]
            else:
                refined.append(part)
        parts = refined
    class_of = np.zeros(256, np.uint8)
    class_bytes = []
    for index, part in enumerate(parts):
        members = bytes(b for b in range(256) if part >> b & 1)
        class_bytes.append(members)
        class_of[list(members)] = index
    classes = {m: [i for i, part in enumerate(parts) if part & m] for m in masks}
    return class_of, tuple(class_bytes), classes


def _ranks(rules: list[_BuiltRule], entries: list[int], n_states: int) -> IntArray:
    """Order of the rules' entry states along calls that consume nothing."""
    callees = [sorted({c for c, _ in rule.dfa.calls[rule.entry]}) for rule in rules]
    order: list[int] = []
    mark = [0] * len(rules)  # 1: on the current path, 2: done
    for root in range(len(rules)):
        if mark[root]:
            continue
        mark[root] = 1
        stack = [(root, iter(callees[root]))]
        while stack:
            rule, rest = stack[-1]
            for callee in rest:
                if mark[callee] == 1:
                    raise UnsupportedFeature(
                        "left recursion",
                        "",
                        "a rule can reach itself before it consumes a byte; rewrite it so that "
                        "the recursive reference comes after some text",
                    )
                if mark[callee] == 0:
                    mark[callee] = 1
                    stack.append((callee, iter(callees[callee])))
                    break
            else:
                mark[rule] = 2
                order.append(rule)
                stack.pop()
    rank = np.zeros(n_states, np.int32)
    for position, rule in enumerate(reversed(order)):
        rank[entries[rule]] = position + 1
    return rank
