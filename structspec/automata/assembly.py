"""From determinised states to one `Network`: byte classes, tail calls, call ranks, members."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from structspec.automata.encode import MOST_COPIES, Program
from structspec.automata.subsets import merge_classes
from structspec.automata.tables import PLAIN, IntArray, MembersTable, Network
from structspec.errors import UnsupportedFeature
from structspec.records import record


@record
class Determinised:
    """What `subsets` made: classes, edges by state, and the states of the roots.

    marks[S, 3]: kind and data as in `Network`, and whether a rule is done there. `roots`: the
    states where rules begin, then key and separator of each members list, then members' values.
    """

    class_of: IntArray
    n_byte_classes: int
    n_classes: int
    edge_start: IntArray
    edge_class: IntArray
    edge_target: IntArray
    edge_primary: NDArray[np.uint8]
    call_start: IntArray
    call_rule: IntArray
    call_target: IntArray
    op_start: IntArray
    op_kind: IntArray
    op_argument: IntArray
    op_first: IntArray
    op_second: IntArray
    marks: IntArray
    roots: IntArray


def assemble(
    program: Program,
    states: Determinised,
    rules: IntArray,
    loops: IntArray,
    lists: IntArray,
    start_nullable: bool,
) -> Network:
    """The network; rules[R, 3]: their entries are the first roots, then kind and data.

    lists: the entries of the members lists in `program`.
    """
    d = states
    edge_start = d.edge_start
    n_classes, number = merge_classes(
        d.n_byte_classes, d.n_classes, edge_start, d.edge_class, d.edge_target, d.edge_primary
    )
    class_of = number[d.class_of].astype(np.uint8)
    n_bytes = n_classes - len(program.specials)
    by_class = np.argsort(class_of, kind="stable").astype(np.uint8).tobytes()
    ends = np.cumsum(np.bincount(class_of, minlength=n_classes)).tolist()
    class_bytes = tuple(by_class[a:b] for a, b in pairwise((0, *ends)))
    n_edges = int(edge_start[-1])
    final = d.marks[:, 2].astype(np.uint8)
    quiet = _empty(edge_start) & _empty(d.call_start) & _empty(d.op_start)
    tail = (final[d.call_target] != 0) & quiet[d.call_target] & (rules[d.call_rule, 1] == PLAIN)
    entries = d.roots[: len(rules)]
    assert n_bytes <= 256
    return Network(
        n_states=len(final),
        class_of=class_of,
        class_bytes=class_bytes,
        edge_start=edge_start.copy(),
        edge_class=d.edge_class[:n_edges].copy(),
        edge_target=d.edge_target[:n_edges].copy(),
        edge_primary=d.edge_primary[:n_edges].copy(),
        call_start=d.call_start.copy(),
        call_rule=d.call_rule.copy(),
        call_target=d.call_target.copy(),
        call_tail=tail.astype(np.uint8),
        op_start=d.op_start.copy(),
        op_kind=d.op_kind.copy(),
        op_argument=d.op_argument.copy(),
        op_first=d.op_first.copy(),
        op_second=d.op_second.copy(),
        final=final,
        kind=d.marks[:, 0].astype(np.uint8),
        data=d.marks[:, 1].copy(),
        rank=_ranks(entries, d.call_start, d.call_rule, len(final)),
        rule_entry=entries.copy(),
        rule_kind=rules[:, 1].copy(),
        rule_data=rules[:, 2].copy(),
        loop_min=loops[:, 0].copy(),
        loop_max=loops[:, 1].copy(),
        members=_members_table(program, lists, d.roots[len(rules) :]),
        start_nullable=start_nullable,
        specials=program.specials,
    )


def _empty(start: IntArray) -> NDArray[np.bool_]:
    """Which rows of a compressed table hold nothing."""
    return start[1:] == start[:-1]


def _members_table(program: Program, lists: IntArray, roots: IntArray) -> MembersTable:
    """`roots`: key and separator state of each list, then the value states of all members."""
    nodes = [program.lists[program.low[entry]] for entry in lists]
    start, required, repeatable = [0], [], []
    once, minimum, maximum = [], [], []
    for node in nodes:
        required += [member.required for member in node.members]
        repeatable += [member.repeatable for member in node.members]
        once.append(len(node.members) - sum(repeatable[start[-1] :]))
        required.append(False)
        repeatable.append(False)
        start.append(len(required))
        minimum.append(node.minimum)
        most = node.maximum
        maximum.append(-1 if most is None or most > MOST_COPIES else most)
    values = np.full(len(required), -1, np.int32)
    slots = np.ones(len(required), np.bool_)
    slots[np.array(start[1:], np.int64) - 1] = False  # the sentinels
    values[slots] = roots[2 * len(nodes) :]
    most_members = np.array(maximum, np.int32)
    least_members = np.array(minimum, np.int32)
    return MembersTable(
        start=np.array(start, np.int32),
        required=np.array(required, np.uint8),
        repeatable=np.array(repeatable, np.uint8),
        value_state=values,
        key_state=roots[0 : 2 * len(nodes) : 2].copy(),
        separator_state=roots[1 : 2 * len(nodes) : 2].copy(),
        any_order=np.array([node.order == "any" for node in nodes], np.uint8),
        minimum=least_members,
        maximum=most_members,
        levels=np.where(most_members >= 0, most_members, least_members),
        first_repeatable=np.array(once, np.int32),
    )


def _ranks(entries: IntArray, call_start: IntArray, call_rule: IntArray, n_states: int) -> IntArray:
    """Order of the rules' entry states along calls that consume nothing."""
    starts = entries.tolist()
    callees = [call_rule[call_start[e] : call_start[e + 1]].tolist() for e in starts]
    order: list[int] = []
    mark = [0] * len(starts)  # 1: on the current path, 2: done
    for root in range(len(starts)):
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
        rank[starts[rule]] = position + 1
    return rank
