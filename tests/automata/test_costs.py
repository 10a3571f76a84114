"""Costs are the true shortest completions, and no state that cannot finish is ever entered."""

from __future__ import annotations

import random

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
