"""Automata accept exactly the language of the grammar, on every way a construct can be built."""

from __future__ import annotations

import random

import pytest
from automata_reference import RandomGrammars, Recogniser, Writer, mutated
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st

from structspec import ir
from structspec.automata import network as network_module
from structspec.automata.automaton import DEAD, Automaton, byte_costs
from structspec.automata.network import build_network

SETTINGS = settings(
    max_examples=200,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
)


def automaton_of(grammar: ir.GrammarIR) -> Automaton:
    network = build_network(grammar)
    return Automaton(network, byte_costs(network))


def accepts(automaton: Automaton, text: bytes) -> bool:
    state = automaton.start
    if state != DEAD:
        state = automaton.advance(state, text)
    return state != DEAD and automaton.accepting(state)


def check(seed: int) -> None:
    rng = random.Random(seed)
    grammar = RandomGrammars(rng).grammar(rng.randint(1, 4), rng.randint(1, 4))
    note(repr(grammar))
    automaton = automaton_of(grammar)
    reference = Recogniser(grammar)
    writer = Writer(grammar, rng)
    for _ in range(12):
        text = writer.text()
        if text is None:
            text = bytes(rng.choice(b"abc") for _ in range(rng.randint(0, 8)))
        for _ in range(3):
            if len(text) <= 60:
                assert accepts(automaton, text) == reference.accepts(text), text
            text = mutated(text, rng)


@SETTINGS
@given(st.integers(0, 2**40))
def test_random_grammars_accept_what_the_definition_accepts(seed: int) -> None:
    check(seed)


@SETTINGS
@given(st.integers(0, 2**40))
def test_random_grammars_with_frames_for_every_rule_and_counters_for_every_repeat(
    seed: int,
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(network_module, "_INLINE_WEIGHT", -1)
        patch.setattr(network_module, "_EXPAND_WEIGHT", -1)
        check(seed)


@SETTINGS
@given(st.integers(0, 2**40))
def test_random_grammars_with_everything_written_out(seed: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(network_module, "_INLINE_WEIGHT", 400)
        patch.setattr(network_module, "_EXPAND_WEIGHT", 400)
        check(seed)
