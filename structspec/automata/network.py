"""A grammar as a byte-level recursive transition network with register frames.

`build_network` drives the build: `encode` (nodes to arrays), `analysis`, `fragments` (what becomes
a rule, what is copied, what is counted), `subsets` (determinised), `assembly` (the `Network`).
It holds the budgets: between the steps of a long construction it looks at the clock.

Invariants
- No rule matches the empty string when called: where it might, the caller has an empty edge
  beside the call. Pops therefore happen only after a byte has been consumed.
- No rule can call itself before it consumes a byte (left recursion is refused here).
- `rank` grows along calls that consume nothing, so one pass in rank order closes a configuration.

Cost: linear in the grammar for deterministic rule bodies; budgets bound the rest.
Sibling: `pushdown` runs it; `costs` measures it. Source of the idea: W. A. Woods, "Transition
network grammars for natural language analysis", 1970.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from structspec import ir
from structspec.automata.analysis import (
    EMPTY_KEY,
    HOLDS_BOUNDED,
    HOLDS_MEMBERS,
    analyse,
    fault_of_keys,
)
from structspec.automata.assembly import Determinised, assemble
from structspec.automata.encode import MOST_COPIES, Program, encode
from structspec.automata.fragments import TOO_LARGE, TOO_MANY_COPIES, TOO_SLOW, fragments
from structspec.automata.subsets import (
    CALLS,
    DONE,
    EDGES,
    EXPANDED,
    GROUP_WIDTH,
    GROUPS,
    GROW,
    ITEMS,
    N_COUNTS,
    OPS,
    OVERFLOW,
    REHASH,
    STATES,
    byte_classes,
    determinise,
)
from structspec.automata.tables import Network
from structspec.errors import BudgetExceeded, UnsupportedFeature
from structspec.limits import Limits, Stopwatch

# A rule up to this many byte edges is copied into its callers, a counted repeat up to this many
# is written out: cheaper than pushing and popping a frame.
_INLINE_WEIGHT = 48
_EXPAND_WEIGHT = 96
# Steps of the subset construction between two looks at the clock: some tens of milliseconds.
_QUOTA = 4_000_000
# Nondeterministic states that may be written out, per deterministic state that is allowed.
_FRAGMENT_FACTOR = 4
# Bytes that the subset construction may take.
_MOST_MEMORY = 1 << 30
# Built once before the first grammar: compiling the kernels does not count as its time.
_TINY = ir.GrammarIR({"root": ir.Bytes(b"a")}, "root")
_warm: list[bool] = []


def build_network(
    grammar: ir.GrammarIR, limits: Limits | None = None, watch: Stopwatch | None = None
) -> Network:
    """Compile a grammar; `watch`: of these limits, if a front end has used time already.

    Raises `UnsupportedFeature` for left recursion and `BudgetExceeded` past a limit.
    """
    limits = limits or Limits()
    watch = watch or Stopwatch(limits)
    if not _warm:
        _warm.append(True)
        endless = Limits(time=float("inf"))
        with watch.stopped():
            _build(_TINY, endless, Stopwatch(endless))
    return _build(grammar, limits, watch)


def _build(grammar: ir.GrammarIR, limits: Limits, watch: Stopwatch) -> Network:
    program = encode(grammar)
    watch.check()
    p = program
    nullable, weight, obstacles = analyse(
        p.kind, p.first, p.last, p.low, p.high, p.longest, p.child, p.accepting
    )
    _check_keys(program, nullable, obstacles)
    most = min(_FRAGMENT_FACTOR * limits.states, 1 << 24)
    code, lengths, *arrays = fragments(
        p.kind, p.first, p.last, p.low, p.high, p.size, p.longest, p.child, p.source, p.target,
        p.text, p.char_mask, p.char_suffix, p.accepting, p.suffix_mask, p.suffix_next, nullable,
        weight, _INLINE_WEIGHT, _EXPAND_WEIGHT, most,
    )  # fmt: skip
    if code == TOO_MANY_COPIES:
        raise UnsupportedFeature(
            "repetition", "", f"more than {MOST_COPIES} copies, the most that can be asked for"
        )
    if code == TOO_SLOW:
        raise BudgetExceeded("time", limits.time, adjustable=True)
    if code == TOO_LARGE:
        raise BudgetExceeded("states", limits.states, limits.states + 1, adjustable=True)
    watch.check()
    n_states, n_edges, n_ops, n_rules, n_loops, n_lists, n_values = lengths
    used = (n_states, n_states, n_states, n_edges, n_ops, n_rules, n_loops, n_lists, n_values)
    head, empty, marks, edges, ops, rules, loops, lists, values = (
        array[:n] for array, n in zip(arrays, used, strict=True)
    )
    roots = np.concatenate((rules[:, 0], lists[:, 1:].ravel(), values)).astype(np.int32)
    determinised = _determinise(
        program, head, empty, marks, edges, ops, roots, watch, int(limits.states)
    )
    watch.check()
    return assemble(program, determinised, rules, loops, lists[:, 0], bool(nullable[0]))


def _check_keys(
    program: Program, nullable: NDArray[np.uint8], obstacles: NDArray[np.uint8]
) -> None:
    """Keys are written out flat and decide before anything else does: refuse what cannot be."""
    p = program
    found = fault_of_keys(p.kind, p.first, p.last, p.child, nullable, obstacles)
    if found == EMPTY_KEY:
        raise UnsupportedFeature("empty key", "", "the key of a member may not be empty")
    if found:
        what = "be recursive"
        if found & HOLDS_MEMBERS:
            what = "itself be a list of members"
        elif found & HOLDS_BOUNDED:
            what = "hold an automaton with a bound on the length"
        raise UnsupportedFeature("key", "", f"the key of a member may not {what}")
    for entry in np.flatnonzero(p.longest >= 0):
        labels = p.child[p.first[entry] : p.last[entry]]
        if np.bitwise_or.reduce(obstacles[labels], initial=0):
            raise UnsupportedFeature(
                "bound on the length", "", "the labels of such an automaton are single characters"
            )


def _determinise(
    program: Program,
    head: NDArray[np.int32],
    empty: NDArray[np.int32],
    marks: NDArray[np.int32],
    edges: NDArray[np.int32],
    ops: NDArray[np.int32],
    roots: NDArray[np.int32],
    watch: Stopwatch,
    most_states: int,
) -> Determinised:
    """Run the subset construction, with larger arrays as often as it asks for them."""
    class_of = np.zeros(256, np.int32)
    n_byte_classes, class_start, classes = byte_classes(program.masks, edges, class_of)
    n_classes = n_byte_classes + len(program.specials)
    n = len(head)
    essential = ((head >= 0) | (marks[:, 2] != 0) | (marks[:, 3] != 0)).astype(np.uint8)
    stamp, out = np.zeros(n, np.int32), np.zeros(2 * n + 2, np.int32)
    of_single = np.full(n, -1, np.int32)
    counts = np.zeros(N_COUNTS + 1, np.int64)
    state_of_root = np.zeros(len(roots), np.int32)
    room = {STATES: n + 256, ITEMS: 4 * n + 1024, EDGES: 8 * n + 64 * n_classes}
    room |= {CALLS: n + 256, OPS: 4 * len(ops) + 256}
    states = {name: np.zeros(room[STATES] + 1, np.int32) for name in ("subset", "e", "c", "o")}
    state_marks = np.zeros((room[STATES], 3), np.int32)
    pool = np.zeros(room[ITEMS], np.int32)
    table = np.zeros(_power(2 * room[STATES]), np.int32)
    by_edge = [np.zeros(room[EDGES], t) for t in (np.int32, np.int32, np.uint8)]
    by_call = [np.zeros(room[CALLS], np.int32) for _ in range(2)]
    by_op = [np.zeros(room[OPS], np.int32) for _ in range(4)]
    one, group_of = np.zeros(1, np.int32), np.zeros(n_classes, np.int32)
    targets = np.zeros(len(edges), np.int32)  # several edges of a subset may lead to one state
    groups, called = np.zeros((256, GROUP_WIDTH), np.int32), np.zeros((256, 2), np.int32)
    fixed: list[Any] = [head, empty, marks, edges, ops, roots, class_start, classes]
    fixed += [n_byte_classes, n_classes, essential, stamp, out, of_single, counts]
    while True:
        work = [states["subset"], pool, table, state_of_root, states["e"], *by_edge]
        work += [states["c"], *by_call, states["o"], *by_op, state_marks]
        work += [one, group_of, groups, called, targets]
        run: Any = determinise
        code = run(*fixed, *work, _QUOTA, most_states)
        if code == DONE:
            break
        watch.check(int(counts[STATES]) if code == OVERFLOW else 0)
        if code != GROW:
            continue
        if counts[GROUPS] > len(groups):
            size = _power(int(counts[GROUPS]))
            groups, called = (np.zeros((size, w), np.int32) for w in (GROUP_WIDTH, 2))
            continue
        full = [what for what in room if counts[what] + 2 * n_classes + 64 > room[what] // 2]
        for what in full or room:
            room[what] *= 2
        states = {name: _longer(array, room[STATES] + 1) for name, array in states.items()}
        state_marks = np.resize(state_marks, (room[STATES], 3))
        pool = _longer(pool, room[ITEMS])
        by_edge = [_longer(array, room[EDGES]) for array in by_edge]
        by_call = [_longer(array, room[CALLS]) for array in by_call]
        by_op = [_longer(array, room[OPS]) for array in by_op]
        if len(table) < 2 * room[STATES]:
            table = np.zeros(_power(2 * room[STATES]), np.int32)
            counts[REHASH] = 1
        needed = 4 * (7 * room[STATES] + room[ITEMS] + len(table) + 4 * room[OPS])
        needed += 9 * room[EDGES] + 8 * room[CALLS]
        if needed > _MOST_MEMORY:
            raise BudgetExceeded("memory of a compile", _MOST_MEMORY, needed)
    done = int(counts[EXPANDED])
    n_edges, n_calls, n_ops = int(counts[EDGES]), int(counts[CALLS]), int(counts[OPS])
    edge_class, edge_target, edge_primary = (array[:n_edges] for array in by_edge)
    call_rule, call_target = (array[:n_calls] for array in by_call)
    op_kind, op_argument, op_first, op_second = (array[:n_ops] for array in by_op)
    starts = (states[name][: done + 1] for name in ("e", "c", "o"))
    edge_start, call_start, op_start = starts
    return Determinised(
        class_of, n_byte_classes, n_classes, edge_start, edge_class, edge_target, edge_primary,
        call_start, call_rule, call_target, op_start, op_kind, op_argument, op_first, op_second,
        state_marks[:done], state_of_root,
    )  # fmt: skip


def _power(least: int) -> int:
    return 1 << max(least - 1, 1).bit_length()


def _longer(array: NDArray[np.int32], size: int) -> NDArray[np.int32]:
    if len(array) >= size:
        return array
    longer = np.zeros(size, array.dtype)
    longer[: len(array)] = array
    return longer
