"""Thompson automata of all rules of a grammar: between a `Program` and determinised states.

This module decides what becomes a rule of the network, what is copied into its callers and what is
counted. States have byte edges, edges that call a rule, operations (on the register of the running
frame) and empty edges; the states of all rules share one numbering and never mix.

Rules come in four kinds. *Plain* rules are ordinary automata. *Loop* rules count the copies of
their body in the register of the running frame, so `{1,50000}` costs the states of one copy.
*Members* rules keep in the register which members of an object have been written; their keys are
written out flat, since the automaton decides by the whole key text which member it names. *Bounded*
rules are automata over characters that count in the register how many have been read.

Cost: linear in what is written out. Sibling: `subsets` determinises what is built here.
Source: K. Thompson, "Regular expression search algorithm", 1968.
"""

from __future__ import annotations

import numpy as np

from structspec.automata.encode import (
    AUTOMATON,
    BYTES,
    CHARS,
    CHOICE,
    MEMBERS,
    MOST_COPIES,
    REPEAT,
    RULE,
    SEQUENCE,
    SPECIAL,
)
from structspec.automata.memory import MINUS_ONE, ONE, ZERO, inner, wide
from structspec.automata.tables import (
    BOUNDED,
    CHARACTER,
    COUNT,
    LOOP_BODY,
    MEMBER,
    MEMBER_KEY,
    MEMBER_VALUE,
    PLAIN,
    REST,
)
from structspec.automata.views import view_i32, view_rows
from structspec.machine_code.kernel import kernel

#: Types of edges.
EMPTY, BYTE, CALL, OPERATION = ZERO, ONE, ONE + ONE, ONE + ONE + ONE
# Shared entries unfold: so many are written out at most.
_MOST_STEPS = 30_000_000
#: Results: fine; more states, or more steps, than allowed; more copies than can be counted.
FINE, TOO_LARGE, TOO_SLOW, TOO_MANY_COPIES = 0, 1, 2, 3


@inner
def _grown(array):  # type: ignore[no-untyped-def]
    larger = np.zeros(2 * len(array), np.int32)
    for i in range(len(array)):  # assigning a slice takes seconds to compile
        larger[i] = array[i]
    return larger


@kernel
def fragments(  # type: ignore[no-untyped-def]
    kind, first, last, low, high, size, longest, child, source, target, text, char_mask,
    char_suffix, accepting, suffix_mask, suffix_next, nullable, weight, inline, expand,
    most_states,
):  # fmt: skip
    """The automata of all rules that rule 0 (entry 0) needs.

    inline: a rule up to this weight is copied into its callers; expand: a counted repeat up to this
    weight is written out.

    Returns (code, lengths, head, empty, marks, edges, ops, rules, loops, lists, values); lengths
    are the S, E, O, R, L, M and V that are in use:
    head[S], empty[S]: the first edge, and the first empty edge, of each state (−1: none);
    marks[S, 4]: kind and data of the state as in `Network`, whether its rule is done there, whether
    it must stay apart from states that only look the same;
    edges[E, 4]: type, label, target, next edge. The label of a byte edge is 2 · byte set (−1 − i
    for special token i) + 1 if only another spelling takes it; of a call the rule; else −1;
    ops[O, 4]: kind, argument, targets (−1: none); the label of an operation edge is its number;
    rules[R, 4]: start state, kind, data, entry; loops[L, 2]: bounds; lists[M, 3]: the entry, key
    and separator state; values[V]: the state where each member's value begins, list by list.
    """
    n = len(kind)
    # PERF: an array that a loop assigns anew is counted at every step of that loop, with atomic
    # instructions that took half of the time. So they grow in outer loops only, and what works on
    # them works on views.
    S = 4096
    all_head = np.full(S, -1, np.int32)
    all_empty = np.full(S, -1, np.int32)
    all_marks = np.zeros((S, 4), np.int32)
    all_edges = np.zeros((8192, 4), np.int32)
    ops = np.zeros((256, 4), np.int32)
    rules = np.zeros((n + 1, 4), np.int32)  # the last column: the entry
    loops = np.zeros((64, 2), np.int32)
    lists = np.zeros((64, 3), np.int32)
    values = np.zeros(256, np.int32)
    all_tasks = np.zeros((1024, 4), np.int32)  # entry, start, end, flags (1: variant, 2: flat)
    rule_of = np.full(n, -1, np.int32)
    value_start = np.full(n, -1, np.int32)
    value_list = np.full(n, -1, np.int32)
    suffix_end = np.full(len(suffix_mask), -1, np.int32)
    suffix_state = np.zeros(len(suffix_mask), np.int32)
    n_states, n_edges, n_ops, n_loops, n_lists, n_values = ZERO, ZERO, ZERO, ZERO, ZERO, ZERO
    n_rules, n_steps = ONE, 0
    rule_of[0] = 0
    code = FINE
    r = 0
    while r < n_rules and code == FINE:
        entry = wide(rules[r, 3])
        body = entry
        if kind[entry] == RULE:
            body = wide(child[first[entry]])
        is_members = kind[body] == MEMBERS
        is_loop = kind[entry] == REPEAT
        is_bounded = kind[body] == AUTOMATON and longest[body] >= 0
        # Parts of a rule are written one after another, each with the marks of its states.
        n_parts = 2 if is_members else 1
        mark_kind, mark_data = PLAIN, -1
        n_tasks = ZERO
        part = 0
        key, separator, value_end, final = MINUS_ONE, MINUS_ONE, MINUS_ONE, MINUS_ONE
        while part < n_parts and code == FINE:
            # Room for what begins a part.
            room = wide(8)
            if is_members:
                room += wide(last[body] - first[body])
            elif is_bounded:
                room += 2 * wide(size[body]) + wide(last[body] - first[body])
            while n_states + room > len(all_head):
                all_head, all_empty, all_marks = _more_states(all_head, all_empty, all_marks)
            while n_edges + room > len(all_edges):
                all_edges = _grown_rows(all_edges)
            while room > len(all_tasks):
                all_tasks = _grown_rows(all_tasks)
            while n_ops + room > len(ops):
                ops = _grown_rows(ops)
            while n_values + room > len(values):
                values = _grown(values)
            head, empty, marks = view_i32(all_head), view_i32(all_empty), view_rows(all_marks)
            edges, tasks = view_rows(all_edges), view_rows(all_tasks)
            if part == 0:
                first_new = n_states
                if is_members:
                    n_new = 4
                    mark_kind, mark_data = MEMBER_KEY, n_lists
                elif is_loop:
                    n_new = 3
                    mark_kind, mark_data = LOOP_BODY, n_loops
                elif is_bounded:
                    n_new = 2 * wide(size[body]) + 1
                    mark_kind, mark_data = BOUNDED, n_loops
                else:
                    n_new = 2
                for s in range(first_new, first_new + n_new):
                    marks[s, 0] = mark_kind
                    marks[s, 1] = mark_data
                n_states += n_new
                final = first_new + n_new - 1
                marks[final, 0] = PLAIN
                marks[final, 2] = 1
                rules[r, 0] = first_new
                rules[r, 1] = mark_kind
                rules[r, 2] = mark_data
                if is_members:
                    key, separator, value_end = first_new, first_new + 1, first_new + 2
                    marks[key, 3] = 1
                    marks[separator, 3] = 1
                    marks[value_end, 0] = MEMBER_VALUE
                    if n_lists == len(lists):
                        lists = _grown_rows(lists)
                    lists[n_lists, 0] = body
                    lists[n_lists, 1] = key
                    lists[n_lists, 2] = separator
                    ops[n_ops, 0] = REST
                    ops[n_ops, 1] = n_lists
                    ops[n_ops, 2] = final
                    ops[n_ops, 3] = separator
                    n_edges = _edge(edges, n_edges, head, value_end, OPERATION, n_ops, MINUS_ONE)
                    n_ops += 1
                    n_tasks = ONE
                    tasks[0, 0] = child[first[body]]
                    tasks[0, 1] = separator
                    tasks[0, 2] = key
                    tasks[0, 3] = 2
                    for k in range(first[body] + 1, last[body], 2):
                        accept = n_states
                        n_states += 1
                        marks[accept, 0] = MEMBER_KEY
                        marks[accept, 1] = n_lists
                        tasks[n_tasks, 0] = child[k]
                        tasks[n_tasks, 1] = key
                        tasks[n_tasks, 2] = accept
                        tasks[n_tasks, 3] = 2
                        n_tasks += 1
                        value = child[k + 1]
                        if value_list[value] != n_lists:
                            value_list[value] = n_lists
                            value_start[value] = n_states
                            n_states += 1
                            marks[n_states - 1, 0] = MEMBER_VALUE
                            marks[n_states - 1, 1] = n_lists
                            marks[n_states - 1, 3] = 1
                        values[n_values] = value_start[value]
                        n_values += 1
                        ops[n_ops, 0] = MEMBER
                        ops[n_ops, 1] = (k - first[body] - 1) // 2
                        ops[n_ops, 2] = value_start[value]
                        ops[n_ops, 3] = -1
                        n_edges = _edge(edges, n_edges, head, accept, OPERATION, n_ops, MINUS_ONE)
                        n_ops += 1
                elif is_loop:
                    start, end = first_new, first_new + 1
                    marks[start, 3] = 1
                    item = child[first[entry]]
                    # A nullable item can always be left out; without its empty string the count
                    # is free.
                    least = 0 if nullable[item] else low[entry]
                    if least > MOST_COPIES:
                        code = TOO_MANY_COPIES
                    if n_loops == len(loops):
                        loops = _grown_rows(loops)
                    loops[n_loops, 0] = least
                    loops[n_loops, 1] = high[entry]
                    ops[n_ops, 0] = COUNT
                    ops[n_ops, 1] = n_loops
                    ops[n_ops, 2] = final
                    ops[n_ops, 3] = start
                    n_edges = _edge(edges, n_edges, head, end, OPERATION, n_ops, MINUS_ONE)
                    n_ops += 1
                    n_loops += 1
                    n_tasks = ONE
                    tasks[0, 0] = item
                    tasks[0, 1] = start
                    tasks[0, 2] = end
                    tasks[0, 3] = 0
                elif is_bounded:
                    # A state of the automaton is two here: where a character begins, and where one
                    # has ended and is counted.
                    if n_loops == len(loops):
                        loops = _grown_rows(loops)
                    loops[n_loops, 0] = 0
                    loops[n_loops, 1] = longest[body]
                    begin, stop = wide(first[body]), wide(last[body])
                    ended = first_new + wide(size[body])
                    for s in range(wide(size[body])):
                        ops[n_ops + s, 0] = CHARACTER
                        ops[n_ops + s, 1] = n_loops
                        ops[n_ops + s, 2] = -1
                        ops[n_ops + s, 3] = -1
                        n_edges = _edge(
                            edges, n_edges, head, ended + s, OPERATION, n_ops + s, MINUS_ONE
                        )
                    for k in range(low[body], high[body]):
                        ops[n_ops + wide(accepting[k]), 2] = final
                    for k in range(begin, stop):
                        ops[n_ops + wide(source[k]), 3] = first_new + wide(source[k])
                        here, there = first_new + wide(source[k]), ended + wide(target[k])
                        _task(tasks, n_tasks, child[k], here, there, ZERO)
                        n_tasks += 1
                    n_ops += wide(size[body])
                    n_loops += 1
                else:
                    n_tasks = ONE
                    tasks[0, 0] = body
                    tasks[0, 1] = first_new
                    tasks[0, 2] = final
                    tasks[0, 3] = 0
            else:  # the values of members
                mark_kind = MEMBER_VALUE
                for k in range(first[body] + 2, last[body], 2):
                    value = child[k]
                    if value_list[value] != n_lists:
                        continue
                    value_list[value] = -1  # written once
                    tasks[n_tasks, 0] = value
                    tasks[n_tasks, 1] = value_start[value]
                    tasks[n_tasks, 2] = value_end
                    tasks[n_tasks, 3] = 0
                    n_tasks += 1
                n_lists += 1
            part += 1
            room = wide(8)
            while n_tasks > 0 and code != TOO_LARGE and code != TOO_SLOW:
                while n_states + room > len(all_head):
                    all_head, all_empty, all_marks = _more_states(all_head, all_empty, all_marks)
                while n_edges + 2 * room > len(all_edges):
                    all_edges = _grown_rows(all_edges)
                while n_tasks + room > len(all_tasks):
                    all_tasks = _grown_rows(all_tasks)
                head, empty, marks = view_i32(all_head), view_i32(all_empty), view_rows(all_marks)
                edges, tasks = view_rows(all_edges), view_rows(all_tasks)
                while n_tasks > 0:
                    if n_states > most_states or n_tasks > 4 * most_states:
                        code = TOO_LARGE
                        break
                    n_tasks -= 1
                    node = wide(tasks[n_tasks, 0])
                    start, end = wide(tasks[n_tasks, 1]), wide(tasks[n_tasks, 2])
                    flags = wide(tasks[n_tasks, 3])
                    variant = flags & 1
                    what = kind[node]
                    begin, stop = wide(first[node]), wide(last[node])
                    called = -1
                    copies = 0
                    if what == REPEAT:
                        copies = wide(high[node]) if high[node] >= 0 else wide(low[node] + 1)
                        heavy = max(1, wide(weight[child[begin]])) * copies > expand
                        counted = high[node] >= 0 or low[node] > 1
                        if counted and copies > 1 and heavy and not flags & 2:
                            called = node
                            copies = 0
                    # Room for all that one entry may add.
                    room = max(stop - begin, max(copies, wide(size[node]))) + 8
                    if what == CHARS:
                        room = 4 * room
                    if n_steps == _MOST_STEPS:
                        code = TOO_SLOW
                        break
                    if room > 4 * most_states or n_edges > 16 * most_states:
                        code = TOO_LARGE
                        break
                    if (
                        n_states + room > len(head)
                        or n_edges + 2 * room > len(edges)
                        or n_tasks + room > len(tasks)
                    ):
                        n_tasks += 1
                        break
                    n_steps += 1
                    before = n_states
                    if what == BYTES:
                        if begin == stop:
                            n_edges = _edge(edges, n_edges, empty, start, EMPTY, MINUS_ONE, end)
                        here = start
                        for k in range(begin, stop):
                            there = end
                            if k < stop - 1:
                                there = n_states
                                n_states += 1
                            n_edges = _edge(
                                edges, n_edges, head, here, BYTE, 2 * wide(text[k]) + variant, there
                            )
                            variant = 0
                            here = there
                    elif what == CHARS:
                        for k in range(begin, stop):
                            rest = end
                            s = wide(char_suffix[k])
                            if s:
                                rest = wide(suffix_state[s])
                                fresh = suffix_end[s] != end
                                if fresh:
                                    rest = n_states
                                at = rest
                                while fresh:  # write the chain up to a part that is there already
                                    suffix_end[s] = end
                                    suffix_state[s] = at
                                    n_states = max(n_states, at + 1)
                                    label = 2 * wide(suffix_mask[s])
                                    s = wide(suffix_next[s])
                                    there = end
                                    fresh = False
                                    if s:
                                        there = wide(suffix_state[s])
                                        fresh = suffix_end[s] != end
                                        if fresh:
                                            there = n_states
                                    n_edges = _edge(edges, n_edges, head, at, BYTE, label, there)
                                    at = there
                            label = 2 * wide(char_mask[k]) + variant
                            n_edges = _edge(edges, n_edges, head, start, BYTE, label, rest)
                    elif what == SPECIAL:
                        label = 2 * (-1 - wide(low[node])) + variant
                        n_edges = _edge(edges, n_edges, head, start, BYTE, label, end)
                    elif what == SEQUENCE:
                        if begin == stop:
                            n_edges = _edge(edges, n_edges, empty, start, EMPTY, MINUS_ONE, end)
                        here = start
                        for k in range(begin, stop):
                            there = end
                            if k < stop - 1:
                                there = n_states
                                n_states += 1
                            _task(tasks, n_tasks, child[k], here, there, flags)
                            n_tasks += 1
                            flags &= ~1
                            here = there
                    elif what == CHOICE:
                        for k in range(begin, stop):
                            _task(tasks, n_tasks, child[k], start, end, flags)
                            n_tasks += 1
                    elif what == AUTOMATON and longest[node] >= 0:
                        called = node
                    elif what == AUTOMATON:
                        zero = n_states
                        n_states += size[node]
                        n_edges = _edge(edges, n_edges, empty, start, EMPTY, MINUS_ONE, zero)
                        for k in range(begin, stop):
                            keep = flags if source[k] == 0 else flags & ~1
                            _task(
                                tasks, n_tasks, child[k], zero + source[k], zero + target[k], keep
                            )
                            n_tasks += 1
                        for k in range(low[node], high[node]):
                            n_edges = _edge(
                                edges, n_edges, empty, zero + accepting[k], EMPTY, MINUS_ONE, end
                            )
                    elif what == REPEAT:
                        if called < 0:
                            item = child[begin]
                            here = start
                            for _ in range(low[node] - (1 if high[node] < 0 else 0)):
                                _task(tasks, n_tasks, item, here, n_states, flags)
                                n_tasks += 1
                                here = n_states
                                n_states += 1
                                flags &= ~1
                            if high[node] < 0:
                                # The last copy that must be there is the one that loops: one
                                # copy instead of two, or nested repeats would double the states
                                # each time.
                                loop, done = n_states, n_states + 1
                                n_states += 2
                                n_edges = _edge(edges, n_edges, empty, here, EMPTY, MINUS_ONE, loop)
                                _task(tasks, n_tasks, item, loop, done, flags)
                                n_tasks += 1
                                n_edges = _edge(edges, n_edges, empty, done, EMPTY, MINUS_ONE, loop)
                                n_edges = _edge(edges, n_edges, empty, done, EMPTY, MINUS_ONE, end)
                                if low[node] == 0:
                                    n_edges = _edge(
                                        edges, n_edges, empty, loop, EMPTY, MINUS_ONE, end
                                    )
                            else:
                                n_edges = _edge(edges, n_edges, empty, here, EMPTY, MINUS_ONE, end)
                                for _ in range(high[node] - low[node]):
                                    _task(tasks, n_tasks, item, here, n_states, flags)
                                    n_tasks += 1
                                    here = n_states
                                    n_states += 1
                                    n_edges = _edge(
                                        edges, n_edges, empty, here, EMPTY, MINUS_ONE, end
                                    )
                    elif what == RULE:
                        # Other spellings are rarely taken: a call keeps their states out of
                        # callers.
                        light = weight[node] <= inline and not flags & 1 and not low[node]
                        if flags & 2 or light:
                            _task(tasks, n_tasks, child[begin], start, end, flags)
                            n_tasks += 1
                        else:
                            called = node
                    elif what == MEMBERS:
                        called = node
                    else:  # VARIANT
                        _task(tasks, n_tasks, child[begin], start, end, flags | 1)
                        n_tasks += 1
                    if called >= 0:
                        # Called rules never match the empty string (pops happen only after a
                        # byte), so the empty string is an empty edge beside the call.
                        if nullable[called]:
                            n_edges = _edge(edges, n_edges, empty, start, EMPTY, MINUS_ONE, end)
                        if rule_of[called] < 0:
                            rule_of[called] = n_rules
                            rules[n_rules, 3] = called
                            n_rules += 1
                        n_edges = _edge(
                            edges, n_edges, head, start, CALL, wide(rule_of[called]), end
                        )
                    for s in range(before, n_states):
                        marks[s, 0] = mark_kind
                        marks[s, 1] = mark_data
        r += 1
    if n_states > most_states:
        code = TOO_LARGE
    lengths = (n_states, n_edges, n_ops, n_rules, n_loops, n_lists, n_values)
    # (Who has views must have what they are views of to the end: `all_tasks` too.)
    n_steps += len(all_tasks)
    return (
        code, lengths, all_head, all_empty, all_marks, all_edges, ops, rules, loops, lists, values
    )  # fmt: skip


@inner
def _edge(edges, n_edges, head, state, kind, label, target):  # type: ignore[no-untyped-def]
    """Append an edge to the list of `state`; returns the new number of edges."""
    edges[n_edges, 0] = kind
    edges[n_edges, 1] = label
    edges[n_edges, 2] = target
    edges[n_edges, 3] = head[state]
    head[state] = n_edges
    return n_edges + 1


@inner
def _task(tasks, n, node, start, end, flags):  # type: ignore[no-untyped-def]
    tasks[n, 0] = node
    tasks[n, 1] = start
    tasks[n, 2] = end
    tasks[n, 3] = flags


@inner
def _grown_rows(array):  # type: ignore[no-untyped-def]
    n, width = array.shape
    larger = np.zeros((2 * n, width), np.int32)
    for i in range(n):
        for j in range(width):
            larger[i, j] = array[i, j]
    return larger


@inner
def _more_states(head, empty, marks):  # type: ignore[no-untyped-def]
    n = len(head)
    more_head = np.full(2 * n, -1, np.int32)
    more_empty = np.full(2 * n, -1, np.int32)
    for i in range(n):
        more_head[i] = head[i]
        more_empty[i] = empty[i]
    return more_head, more_empty, _grown_rows(marks)
