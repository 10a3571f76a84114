"""Costs are the true shortest completions, and no state that cannot finish is ever entered."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from automata_reference import RandomGrammars
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st

from structspec import ir
from structspec.automata import network as network_module
from structspec.automata.automaton import DEAD, Automaton, byte_costs
from structspec.automata.costs import solve_costs
from structspec.automata.member_costs import UNREACHABLE
from structspec.automata.network import build_network
from structspec.automata.tables import MEMBER, MEMBER_KEY
from structspec.masks.tables import VocabularyTables
from structspec.vocab import Vocabulary

SETTINGS = settings(
    max_examples=120,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
)
MOST = 400  # states of the graph that are looked at


def shortest(automaton: Automaton, alphabet: list[int]) -> dict[int, int]:
    """Bytes to acceptance of all states whose whole surroundings are within `MOST` states."""
    edges: dict[int, set[int]] = {}
    todo = [automaton.start] if automaton.start != DEAD else []
    while todo and len(edges) < MOST:
        state = todo.pop(0)
        if state in edges:
            continue
        edges[state] = {
            new for b in alphabet if (new := automaton.advance(state, bytes((b,)))) != DEAD
        }
        todo += sorted(edges[state])
    distance = {s: 0 for s in edges if automaton.accepting(s)}
    changed = True
    while changed:
        changed = False
        for state, following in edges.items():
            # states behind the edge of the picture count with the cost they claim
            options = [
                1 + (distance[n] if n in edges else automaton.cost(n))
                for n in following
                if n in distance or n not in edges
            ]
            best = min(options, default=1 << 40)
            if best < distance.get(state, 1 << 40):
                distance[state] = best
                changed = True
    assert set(distance) == set(edges), "a state without a way to the end was entered"
    return distance


def check(seed: int, enabled: np.ndarray | None = None) -> None:
    rng = random.Random(seed)
    grammar = RandomGrammars(rng).grammar(rng.randint(1, 3), rng.randint(1, 3))
    note(repr(grammar))
    network = build_network(grammar)
    if enabled is None:
        costs, alphabet = byte_costs(network), list(range(256))
    else:
        costs = solve_costs(network, enabled, None)
        alphabet = np.flatnonzero(enabled).tolist()
    alphabet = sorted({int(network.class_of[b]): b for b in alphabet}.values())
    automaton = Automaton(network, costs)
    for state, distance in shortest(automaton, alphabet).items():
        assert automaton.cost(state) == distance


@SETTINGS
@given(st.integers(0, 2**40))
def test_costs_are_shortest_completions(seed: int) -> None:
    check(seed)


@SETTINGS
@given(st.integers(0, 2**40))
def test_costs_with_counters_and_frames_are_shortest_completions(seed: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(network_module, "_INLINE_WEIGHT", -1)
        patch.setattr(network_module, "_EXPAND_WEIGHT", -1)
        check(seed)


@SETTINGS
@given(st.integers(0, 2**40))
def test_costs_with_missing_bytes_are_shortest_completions_without_them(seed: int) -> None:
    enabled = np.zeros(256, np.bool_)
    enabled[list(b"ab\xc3\xa9\xdf\xbf")] = True
    check(seed, enabled)


def test_a_member_that_cannot_be_written_is_left_out_unless_it_is_required() -> None:
    enabled = np.zeros(256, np.bool_)
    enabled[list(b"abcd,")] = True
    for order in ("declared", "any"):
        for required in (False, True):
            node = ir.Members(
                (
                    ir.Member(ir.Bytes(b"a"), ir.Bytes(b"z"), required=required),
                    ir.Member(ir.Bytes(b"b"), ir.Bytes(b"d"), required=True),
                    ir.Member(ir.Bytes(b"z"), ir.Bytes(b"d"), required=required),
                ),
                ir.Bytes(b","),
                order,  # type: ignore[arg-type]
            )
            network = build_network(ir.GrammarIR({"root": node}, "root"))
            automaton = Automaton(network, solve_costs(network, enabled, None))
            if required:
                assert automaton.start == DEAD
                continue
            assert automaton.cost(automaton.start) == 2
            assert automaton.advance(automaton.start, b"a") == DEAD
            done = automaton.advance(automaton.start, b"bd")
            assert automaton.accepting(done)
            assert automaton.advance(done, b",") == DEAD


def test_costs_of_counts_grow_with_the_copies_that_are_owed() -> None:
    pair = ir.Choice((ir.Bytes(b"ab"), ir.Bytes(b"abcc")))
    node = ir.sequence((ir.Repeat(pair, 500, 600), ir.Bytes(b"d")))
    network = build_network(ir.GrammarIR({"root": node}, "root"))
    automaton = Automaton(network, byte_costs(network))
    state = automaton.start
    for copies in range(520):
        assert automaton.cost(state) == 2 * max(0, 500 - copies) + 1
        assert automaton.cost(automaton.advance(state, b"a")) == 2 * max(0, 499 - copies) + 2
        state = automaton.advance(state, b"ab")
    assert automaton.cost(state) < UNREACHABLE


def test_a_list_whose_separator_cannot_be_written_holds_one_member() -> None:
    enabled = np.zeros(256, np.bool_)
    enabled[list(b"ab=")] = True
    for order in ("declared", "any"):
        for minimum, maximum in ((0, None), (1, None), (1, 1), (0, 3)):
            for required in (False, True):
                node = ir.Members(
                    (
                        ir.Member(ir.Bytes(b"a"), ir.Bytes(b"="), required=required),
                        ir.Member(ir.Bytes(b"b"), ir.Bytes(b"=")),
                        ir.Member(ir.Bytes(b"bb"), ir.Bytes(b"="), repeatable=True),
                    ),
                    ir.Bytes(b","),
                    order,  # type: ignore[arg-type]
                    minimum,
                    maximum,
                )
                network = build_network(ir.GrammarIR({"root": node}, "root"))
                automaton = Automaton(network, solve_costs(network, enabled, None))
                assert automaton.cost(automaton.start) == (2 if required or minimum else 0)
                done = automaton.advance(automaton.start, b"a=")
                assert automaton.accepting(done)
                assert automaton.advance(done, b",") == DEAD
                other = automaton.advance(automaton.start, b"b")
                assert (other == DEAD) == required
        both = ir.Members(
            tuple(ir.Member(ir.Bytes(k), ir.Bytes(b"="), required=True) for k in (b"a", b"b")),
            ir.Bytes(b","),
            order,  # type: ignore[arg-type]
        )
        network = build_network(ir.GrammarIR({"root": both}, "root"))
        assert Automaton(network, solve_costs(network, enabled, None)).start == DEAD


@pytest.mark.parametrize("order", ["declared", "any"])
def test_what_a_key_state_can_spell_is_the_shortest_way_and_its_tokens(order: Any) -> None:
    escaped = ir.Choice((ir.Bytes(b"e"), ir.Variant(ir.Bytes(b"\\u0065"))))
    names = [b"a", b"ab", b"abcdef", b"bcd", b"xyz"]
    blanks = ir.Repeat(ir.Chars(((32, 32),)), 0, 3)
    members = [ir.Member(ir.Bytes(name), ir.Sequence((ir.Bytes(b":"), blanks))) for name in names]
    members.append(ir.Member(ir.Sequence((ir.Bytes(b"ab"), escaped)), ir.Bytes(b"")))
    members.append(ir.Member(ir.Repeat(ir.Chars(((97, 122),)), 1, 9), ir.EPSILON, repeatable=True))
    separator = ir.Sequence((ir.Bytes(b","), blanks))
    node = ir.Members(tuple(members), separator, order)
    network = build_network(ir.GrammarIR({"root": node}, "root"))
    tokens = [bytes((b,)) for b in range(256) if b not in b"x"] + [b"ab", b"cd", b"abc", b"u00"]
    tables = VocabularyTables.of(Vocabulary([*tokens, None], eos_ids=[len(tokens)]))
    costs = solve_costs(network, tables.enabled, tables.trie)
    n = network

    def step(state: int, byte: int) -> int | None:
        for e in range(n.edge_start[state], n.edge_start[state + 1]):
            if tables.enabled[byte] and n.edge_class[e] == n.class_of[byte]:
                return int(n.edge_target[e])
        return None

    def after(state: int, text: bytes) -> int | None:
        for byte in text:
            here = step(state, byte) if n.kind[state] == MEMBER_KEY else None
            if here is None:
                return None
            state = here
        return state

    keys = [q for q in range(n.n_states) if n.kind[q] == MEMBER_KEY]
    known = {
        (q, int(costs.reach_member[i])): int(costs.reach_cost[i])
        for q in range(n.n_states)
        for i in range(costs.reach_start[q], costs.reach_start[q + 1])
    }
    reached: dict[tuple[int, int], int] = {}  # bytes
    for q in keys:
        for o in range(n.op_start[q], n.op_start[q + 1]):
            if n.op_kind[o] == MEMBER:
                reached[q, int(n.op_argument[o])] = 0
    ends, changed = set(reached), True
    while changed:
        changed = False
        for q in keys:
            for e in range(n.edge_start[q], n.edge_start[q + 1]):
                if not any(tables.enabled[b] for b in n.class_bytes[n.edge_class[e]]):
                    continue
                for member in range(len(members)):
                    way = reached.get((int(n.edge_target[e]), member), 1 << 20) + 1
                    if way < reached.get((q, member), 1 << 20):
                        reached[q, member], changed = way, True
    assert set(known) == set(reached)
    assert (int(n.members.key_state[0]), 4) not in known  # no "xyz" without an "x"
    for (q, member), cost in known.items():
        assert (cost == 0) == ((q, member) in ends) and cost <= reached[q, member]
        ways = {known.get((r, member)) for t in tokens if (r := after(q, t)) is not None}
        assert cost == 0 or cost - 1 in ways
    assert any(cost < reached[pair] for pair, cost in known.items())
