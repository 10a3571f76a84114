"""How much text, at least, is missing from each state to the end of its rule.

Two uses. With unit bytes the costs say which states can be finished at all, given the bytes that
a vocabulary can write; the pushdown automaton never enters the others (law: always closable).
With a token trie they are *certified token counts*: along the cheapest byte path of a state some
token leads to a state whose cost is smaller by one, so a decoder that follows them finishes.

Costs by kind of state (`network`), with r the register of the running frame:
- plain: `base[q]`, to the end of the rule;
- loop body: `base[q] + max(0, min − r − 1) · copy`;
- bounded: `base[q]` if `r + characters[q]` is within the bound on the length, along a way of the
  fewest characters (a cheaper one might be too long); otherwise there is no way;
- member value: `base[q] + rest(r)`, where `rest` is the cost of the members that are still owed
  (required ones, and as many more as the minimum asks for);
- member key: the minimum over the members k that may come next of `key_cost(q, k) + value(k) +
  rest(after k)`; the reachable members of each key state are listed (`reach_*`).

Cost of computing: a few sweeps over all edges (fixed point over recursive rules), plus one
breadth-first search per member over the key states that lead to it.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass
from itertools import accumulate, pairwise

import numpy as np
from numpy.typing import NDArray

from structspec.automata.length_costs import fewest_characters
from structspec.automata.member_costs import (
    UNREACHABLE,
    child_along,
    key_tokens,
    only_member,
    owed_after,
    owed_members,
    reachable_members,
    sort_optional,
)
from structspec.automata.memory import ZERO, wide
from structspec.automata.tables import (
    BOUNDED,
    COUNT,
    LOOP_BODY,
    MEMBER_KEY,
    MEMBER_VALUE,
    REST,
    Network,
)
from structspec.automata.views import view_i32, view_u8
from structspec.errors import BudgetExceeded
from structspec.machine_code.kernel import kernel

IntArray = NDArray[np.int32]

# Registers of members lists in declared order, over the whole grammar.
_MOST_CELLS = 4_000_000


@dataclass(frozen=True)
class TokenTrie:
    """The parts of a token trie that costs need: nodes in depth-first order, node 0 the root.

    byte: uint8[N]; skip: int32[N], first node after the subtree; terminal: uint8[N], 1 if a
    token ends at the node; root: int32[256 + 65536], see `first_nodes`.
    """

    byte: NDArray[np.uint8]
    skip: IntArray
    terminal: NDArray[np.uint8]
    root: IntArray


def first_nodes(byte: NDArray[np.uint8], skip: IntArray) -> IntArray:
    """The nodes of the first two levels of a trie by their bytes (−1: none), int32[256 + 65536].

    `[b]` is the child of the root, `[256 + 256 · b + c]` its child: these nodes have so many
    children that a walk would mostly pass over others.
    """
    found = np.full(256 + 65536, -1, np.int32)
    skips: list[int] = skip.tolist()
    child = 1
    while child < len(skips):
        first, end = int(byte[child]), skips[child]
        found[first] = child
        second = child + 1
        while second < end:
            found[256 + 256 * first + int(byte[second])] = second
            second = skips[second]
        child = end
    return found


@dataclass(frozen=True)
class Costs:
    """The cost arrays of one network under one set of bytes (and tokens).

    base[S], characters[S] (fewest to the end of a bounded rule), rule[R]; loop_copy[loops];
    reach_start[S + 1], reach_member, reach_cost (sorted by member per state). Per member slot:
    member_value, member_key (separator and key), member_next_required, member_order (the optional
    members of a list, cheapest first, then −1). Per register of a list in declared order, from
    `member_table[m]` on: member_rest, and member_total (value of the member with that index, and
    what is owed after it).
    `unit` is "byte" or "token".
    """

    base: IntArray
    characters: IntArray
    rule: IntArray
    loop_copy: IntArray
    reach_start: IntArray
    reach_member: IntArray
    reach_cost: IntArray
    member_value: IntArray
    member_key: IntArray
    member_next_required: IntArray
    member_order: IntArray
    member_table: IntArray
    member_rest: IntArray
    member_total: IntArray
    unit: str


def solve_costs(
    network: Network,
    enabled: NDArray[np.bool_],
    trie: TokenTrie | None,
    specials: Container[str] | None = None,
) -> Costs:
    """Costs with the bytes of `enabled` (bool[256]); in tokens if a trie is given, else in bytes.

    specials: the names of the special tokens that can be written; None for all. Each costs one.
    With a trie every enabled byte must be a token of its own.
    """
    class_enabled = np.zeros(network.n_classes, np.bool_)
    sample = np.full(network.n_classes, -1, np.int32)  # a writable byte of the class
    writable = np.flatnonzero(enabled)[::-1]
    classes = network.class_of[writable]
    sample[classes] = writable  # the last one stays: the first byte
    class_enabled[classes] = True
    for index, name in enumerate(network.specials):
        class_enabled[network.special_class(index)] = specials is None or name in specials
    n = network
    m = n.members
    slots = wide(m.start[-1])
    reach = reachable_members(
        n.n_states, n.edge_start, n.edge_class, n.edge_target, n.op_start, n.op_kind,
        n.op_argument, n.kind, n.data, m.start, class_enabled,
    )  # fmt: skip
    reach_start, reach_member, reach_bytes, ways = reach
    characters = fewest_characters(
        n.edge_start, n.edge_class, n.edge_target, n.call_start, n.call_rule, n.call_target,
        n.op_start, n.op_kind, n.op_first, n.op_second, n.final, n.kind, n.rule_entry,
        class_enabled,
    )  # fmt: skip
    via = np.full(n.n_states, -1, np.int32)
    cells = np.where(m.any_order == 1, 0, (m.levels.astype(np.int64) + 1) * np.diff(m.start))
    if wide(cells.sum()) > _MOST_CELLS:
        raise BudgetExceeded("states", _MOST_CELLS, wide(cells.sum()))
    table = np.zeros(m.n_lists + 1, np.int32)
    table[1:] = np.cumsum(cells)
    # PERF: one block for all that begins as unreachable, since each array has its price.
    sizes = (n.n_states, n.n_rules, len(n.loop_min), slots, slots, table[-1], table[-1])
    ends = [int(end) for end in accumulate(sizes)]
    unknown = np.full(ends[-1], UNREACHABLE, np.int32)
    base, rule, copy, value, key, rest, total = (
        unknown[first:end] for first, end in pairwise((0, *ends))
    )
    next_required, member_order = np.zeros(slots, np.int32), np.full(slots, -1, np.int32)
    shape = (value, key, next_required, member_order, table, rest, total)
    # The types that the run-time memory has: one version of each kernel is compiled.
    required, repeatable = m.required.astype(np.int32), m.repeatable.astype(np.int32)
    no_bytes = np.zeros(0, np.uint8)
    no_nodes = np.zeros(0, np.int32)
    order = np.arange(n.n_states - 1, -1, -1, dtype=np.int32)
    common = (
        n.edge_start, n.edge_class, n.edge_target, n.call_start, n.call_rule, n.call_target,
        n.op_start, n.op_kind, n.op_first, n.op_second, n.final, n.kind, n.data, characters,
        n.rule_entry, n.rule_kind, n.rule_data, n.loop_min, n.loop_max, m.start, required,
        repeatable, m.value_state, m.key_state, m.separator_state, m.any_order, m.minimum,
        m.maximum, m.levels, m.first_repeatable, class_enabled, sample, reach_start, reach_member,
    )  # fmt: skip
    _sweep(
        *common,
        reach_bytes,
        base,
        via,
        rule,
        copy,
        *shape,
        no_bytes,
        no_nodes,
        no_bytes,
        no_nodes,
        order,
        False,
    )
    cost = reach_bytes
    if trie is not None:
        cost = key_tokens(
            n.edge_class, sample, ways, trie.byte, trie.skip, trie.terminal, trie.root
        )
        # A way to the end passes states with ever fewer bytes: in that order few sweeps do.
        order = np.argsort(base, kind="stable").astype(np.int32)
        unknown[:] = UNREACHABLE
        _sweep(
            *common,
            cost,
            base,
            via,
            rule,
            copy,
            *shape,
            trie.byte,
            trie.skip,
            trie.terminal,
            trie.root,
            order,
            True,
        )
    return Costs(
        base, characters, rule, copy, reach_start, reach_member, cost, *shape,
        unit="byte" if trie is None else "token",
    )  # fmt: skip


@kernel
def _sweep(  # type: ignore[no-untyped-def]
    edge_start, edge_class, edge_target, call_start, call_rule, call_target, op_start, op_kind,
    op_first, op_second, final, kind, data, characters, rule_entry, rule_kind, rule_data, loop_min,
    loop_max, members_start, required, repeatable, value_state, key_state, separator_state,
    any_order, minimum, maximum, levels, first_repeatable, class_enabled, sample, reach_start,
    reach_member, reach_cost, base, via, rule, copy, member_value, member_key, next_required,
    member_order, member_table, member_rest, member_total, trie_byte, trie_skip, trie_terminal,
    root, order, tokens,
):  # fmt: skip
    """Relax until nothing changes. `via[q]` is the edge (or −2 − call) of the cheapest path.

    In token mode `via` is fixed (from byte mode) and only the tokens along that path count. States
    are looked at in `order`, and backwards every other time.
    """
    required, repeatable = view_i32(required), view_i32(repeatable)
    member_value, member_key = view_i32(member_value), view_i32(member_key)
    member_order, root = view_i32(member_order), view_i32(root)
    trie_byte, trie_skip = view_u8(trie_byte), view_i32(trie_skip)
    n_states = len(kind)
    infinite = UNREACHABLE
    longest = 1
    for m in range(len(key_state)):
        longest = max(longest, members_start[m + 1] - members_start[m])
    nothing = np.zeros(2 + longest // 32, np.uint32)  # the row of a list that has no member yet
    for m in range(len(key_state)):
        last = members_start[m + 1] - 1
        pending = last
        for k in range(last, members_start[m] - 1, -1):
            if required[k]:
                pending = k
            next_required[k] = pending - members_start[m]
    changed = True
    forward = False
    while changed:
        changed = False
        # Costs come from behind; whichever way a long chain is numbered, one of two sweeps gets it.
        forward = not forward
        for i in range(n_states):
            q = wide(order[i if forward else n_states - 1 - i])
            if kind[q] == MEMBER_KEY:
                continue
            best = base[q]
            if kind[q] == 0:
                if final[q]:
                    best = 0
            elif kind[q] == BOUNDED:
                for o in range(op_start[q], op_start[q + 1]):
                    if op_first[o] >= 0:
                        best = 0
                    elif op_second[o] >= 0 and characters[op_second[o]] + 1 == characters[q]:
                        best = min(best, base[op_second[o]])
            else:
                for o in range(op_start[q], op_start[q + 1]):
                    if (kind[q] == LOOP_BODY and op_kind[o] == COUNT) or (
                        kind[q] == MEMBER_VALUE and op_kind[o] == REST
                    ):
                        best = 0
            if best > 0:
                if not tokens:
                    for e in range(edge_start[q], edge_start[q + 1]):
                        after = edge_target[e]
                        if class_enabled[edge_class[e]] and characters[after] == characters[q]:
                            new = 1 + base[edge_target[e]]
                            if new < best:
                                best = new
                                via[q] = e
                    for c in range(call_start[q], call_start[q + 1]):
                        if characters[call_target[c]] != characters[q]:
                            continue
                        callee = call_rule[c]
                        inside = rule[callee]
                        if rule_kind[callee] == 0:  # of this sweep already
                            inside = base[rule_entry[callee]]
                        new = inside + base[call_target[c]]
                        if new < best:
                            best = new
                            via[q] = -2 - c
                elif via[q] <= -2:
                    c = -2 - via[q]
                    callee = call_rule[c]
                    inside = rule[callee]
                    if rule_kind[callee] == 0:
                        inside = base[rule_entry[callee]]
                    best = min(best, inside + base[call_target[c]])
                elif via[q] >= 0 and sample[edge_class[via[q]]] < 0:  # a special token
                    best = min(best, 1 + base[edge_target[via[q]]])
                elif via[q] >= 0:
                    node = ZERO
                    here = q
                    while via[here] >= 0 and sample[edge_class[via[here]]] >= 0:
                        e = via[here]
                        node = child_along(
                            trie_byte, trie_skip, root, node, wide(sample[edge_class[e]])
                        )
                        if node < 0:
                            break
                        here = edge_target[e]
                        if trie_terminal[node]:
                            best = min(best, 1 + base[here])
                        if base[here] == 0:
                            break
            if best < base[q]:
                base[q] = best
                changed = True
        for m in range(len(key_state)):
            begin, last = wide(members_start[m]), wide(members_start[m + 1]) - 1
            for k in range(begin, last):
                value = base[value_state[k]]
                if value < member_value[k]:
                    member_value[k] = value
                    changed = True
                member_key[k] = infinite
            q = separator_state[m]
            for i in range(reach_start[q], reach_start[q + 1]):
                member_key[begin + reach_member[i]] = reach_cost[i]
            if any_order[m]:
                sort_optional(
                    begin, last, required, repeatable, member_key, member_value, member_order
                )
                continue
            n = last - begin
            for level in range(levels[m], -1, -1):
                row = member_table[m] + level * (n + 1)
                full = level == maximum[m]
                after_row = member_table[m] + min(level + 1, levels[m]) * (n + 1)
                owed = infinite  # cheapest way on with a member of index ≥ k
                for k in range(n, -1, -1):
                    if k < n:
                        after = first_repeatable[m] if repeatable[begin + k] else k + 1
                        total = infinite
                        if not full:
                            total = min(
                                infinite, member_value[begin + k] + member_rest[after_row + after]
                            )
                        if total < member_total[row + k]:
                            member_total[row + k] = total
                            changed = True
                        way = min(infinite, member_key[begin + k] + member_total[row + k])
                        owed = way if required[begin + k] else min(owed, way)
                    complete = next_required[begin + k] == n and level >= minimum[m]
                    rest = 0 if complete else owed
                    if rest < member_rest[row + k]:
                        member_rest[row + k] = rest
                        changed = True
        for r in range(len(rule_entry)):
            entry = rule_entry[r]
            new = infinite
            if rule_kind[r] == 0:
                new = base[entry]
            elif rule_kind[r] == BOUNDED:
                if characters[entry] <= loop_max[rule_data[r]]:
                    new = base[entry]
            elif rule_kind[r] == LOOP_BODY:
                loop = rule_data[r]
                one = base[entry]
                if one < copy[loop]:
                    copy[loop] = one
                    changed = True
                if one < infinite:
                    new = min(infinite, one * max(1, loop_min[loop]))
            else:
                m = rule_data[r]
                begin, last = wide(members_start[m]), wide(members_start[m + 1]) - 1
                if any_order[m]:
                    rest, last_extra, room = owed_members(
                        begin, last, required, repeatable, member_key, member_value,
                        member_order, wide(minimum[m]), wide(maximum[m]), nothing, ZERO,
                    )  # fmt: skip
                    if rest < infinite:
                        for i in range(reach_start[entry], reach_start[entry + 1]):
                            k = begin + wide(reach_member[i])
                            after = owed_after(
                                k, rest, last_extra, room, required, member_key, member_value
                            )
                            new = min(new, reach_cost[i] + member_value[k] + after)
                    else:
                        alone = only_member(
                            begin, last, required, wide(minimum[m]), wide(maximum[m])
                        )
                        for i in range(reach_start[entry], reach_start[entry + 1]):
                            k = begin + wide(reach_member[i])
                            if alone in (-1, k):
                                new = min(new, reach_cost[i] + member_value[k])
                else:
                    for i in range(reach_start[entry], reach_start[entry + 1]):
                        k = reach_member[i]
                        if k <= next_required[begin]:
                            new = min(new, reach_cost[i] + member_total[member_table[m] + k])
            if new < rule[r]:
                rule[r] = new
                changed = True
