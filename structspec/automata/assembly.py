"""From determinised rules to one `Network`: numbering, byte classes, call ranks."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from structspec import ir
from structspec.automata.dfa import Dfa
from structspec.automata.nfa import ALL_BYTES, ByteMask
from structspec.automata.tables import (
    COUNT,
    MEMBER,
    PLAIN,
    REST,
    IntArray,
    MembersTable,
    Network,
)
from structspec.errors import UnsupportedFeature

_OPERATION_KINDS = {"count": COUNT, "member": MEMBER, "rest": REST}


@dataclass
class BuiltRule:
    """One determinised rule; `state_kind` and `data` as in `Network`."""

    dfa: Dfa
    entry: int
    kind: int
    data: int = -1
    state_kind: list[int] | None = None


@dataclass
class BuiltMembers:
    """One members list: where its values, its keys and its separator begin in its rule."""

    node: ir.Members
    value_states: list[int]
    key_state: int
    separator_state: int


def assemble(
    rules: list[BuiltRule],
    loops: list[tuple[int, int]],
    members: list[BuiltMembers],
    start_nullable: bool,
    specials: tuple[str, ...],
) -> Network:
    """Number all states through and flatten the rules into arrays; rule 0 is the start."""
    offsets = np.cumsum([0] + [len(rule.dfa.final) for rule in rules]).tolist()
    masks = {mask for rule in rules for edges in rule.dfa.edges for mask, _, _ in edges}
    class_of, class_bytes, classes = _byte_classes(masks, len(specials))

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
                ops.append((_OPERATION_KINDS[op.kind], op.argument, offset + op.targets[0], second))
            op_start.append(len(ops))
    edge_array = np.array(edges, np.int32).reshape(-1, 3)
    call_array = np.array(calls, np.int32).reshape(-1, 3)
    op_array = np.array(ops, np.int32).reshape(-1, 4)
    entries = [o + r.entry for r, o in zip(rules, offsets, strict=False)]
    loop_array = np.array(loops, np.int32).reshape(-1, 2)
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
        loop_min=loop_array[:, 0].copy(),
        loop_max=loop_array[:, 1].copy(),
        members=_members_table(members, rule_of_members),
        start_nullable=start_nullable,
        specials=specials,
    )


def _members_table(built: list[BuiltMembers], offset_of: dict[int, int]) -> MembersTable:
    start, required, repeatable, values = [0], [], [], []
    for index, one in enumerate(built):
        for member, value in zip(one.node.members, one.value_states, strict=True):
            required.append(member.required)
            repeatable.append(member.repeatable)
            values.append(offset_of[index] + value)
        required.append(False)
        repeatable.append(False)
        values.append(-1)
        start.append(len(values))
    lists = list(enumerate(built))
    minimum = np.array([m.node.minimum for _, m in lists], np.int32)
    maximum = np.array(
        [-1 if m.node.maximum is None else m.node.maximum for _, m in lists], np.int32
    )
    once = [sum(not k.repeatable for k in m.node.members) for _, m in lists]
    return MembersTable(
        start=np.array(start, np.int32),
        required=np.array(required, np.uint8),
        repeatable=np.array(repeatable, np.uint8),
        value_state=np.array(values, np.int32),
        key_state=np.array([offset_of[i] + m.key_state for i, m in lists], np.int32),
        separator_state=np.array([offset_of[i] + m.separator_state for i, m in lists], np.int32),
        any_order=np.array([m.node.order == "any" for _, m in lists], np.uint8),
        minimum=minimum,
        maximum=maximum,
        levels=np.where(maximum >= 0, maximum, minimum),
        first_repeatable=np.array(once, np.int32),
    )


def _byte_classes(
    masks: set[ByteMask], n_specials: int
) -> tuple[NDArray[np.uint8], tuple[bytes, ...], dict[ByteMask, list[int]]]:
    """The coarsest partition of the byte values that respects every mask.

    Every special token is a class of its own, behind those of the bytes and without bytes.
    """
    parts = [ALL_BYTES]
    for mask in sorted({mask & ALL_BYTES for mask in masks}):
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
    parts += [1 << 256 + i for i in range(n_specials)]
    class_bytes += [b""] * n_specials
    classes = {m: [i for i, part in enumerate(parts) if part & m] for m in masks}
    return class_of, tuple(class_bytes), classes


def _ranks(rules: list[BuiltRule], entries: list[int], n_states: int) -> IntArray:
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
