"""Masks that take long: Python has its turn in between, limits hold, and nothing done is lost."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import structspec
from structspec import Limits, Vocabulary
from structspec.automata.automaton import Automaton
from structspec.automata.memory import PAUSE, QUOTA, Count, Slot
from structspec.errors import BudgetExceeded
from structspec.masks.constraint import Constraint

BYTES = [bytes((b,)) for b in range(256)]
LONG = [b"a" * n for n in range(2, 60)]
WORDS = [bytes(word) for word in itertools.product(b"ab", repeat=9)]
VOCAB = Vocabulary([*BYTES, *LONG, *WORDS, None], [len(BYTES + LONG + WORDS)])
#: Forty letters, as one token.
FORTY = 256 + 38
#: Every way to cut a text into copies is a frame of its own.
GRAMMAR = 'root ::= ("a"{0,9999} "b"?){0,9999}'


def bound(limits: Limits | None = None) -> Constraint:
    return structspec.compile(GRAMMAR, syntax="gbnf", limits=limits).bind(VOCAB)


def behind(constraint: Constraint, tokens: int) -> int:
    state = constraint.start
    for _ in range(tokens):
        state = constraint.advance(state, FORTY)
    return state


def test_a_kernel_that_never_ends_meets_the_limit() -> None:
    constraint = bound(Limits(time=0.05))
    calls = 0

    def endless() -> int:
        nonlocal calls
        calls += 1
        return PAUSE

    with pytest.raises(BudgetExceeded, match=r"0\.05") as caught:
        constraint.cache.run(endless)
    assert caught.value.adjustable and calls > 1
    assert constraint.mask(constraint.start).any()


def test_pauses_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    expected, paused = bound(), bound()
    pauses = 0
    plain = Automaton.pause_later

    def spy(self: Automaton, before: int) -> None:
        nonlocal pauses
        pauses += 1
        plain(self, before)

    monkeypatch.setattr(Automaton, "pause_later", spy)
    counters = paused.cache.automaton.memory
    state, other = expected.start, paused.start
    out = np.zeros((1, paused.mask(other).size), np.uint32)
    for step in range(4):
        for call in ("mask", "fill", "left", "advance"):
            counters.get(Slot.COUNT)[Count.WORK] = QUOTA + 1
            if call == "mask":
                assert np.array_equal(paused.mask(other), expected.mask(state))
            elif call == "fill":
                paused.fill([other], out)
                assert np.array_equal(out[0], expected.mask(state))
            elif call == "left":
                assert np.array_equal(paused.mask(other, 1), expected.mask(state, 1))
            else:
                token = (FORTY, ord("a"), ord("b"), FORTY)[step]
                state, other = expected.advance(state, token), paused.advance(other, token)
    assert pauses >= 4
    counters.get(Slot.COUNT)[Count.WORK] = QUOTA + 1
    assert paused.advance_bytes(other, b"ababab") is not None


def test_texts_are_judged_through_pauses() -> None:
    grammar = structspec.compile(GRAMMAR, syntax="gbnf")
    grammar.accepts("a")
    assert grammar._automaton is not None
    grammar._automaton.memory.get(Slot.COUNT)[Count.WORK] = QUOTA + 1
    assert grammar.accepts("aab" * 20)
    assert not grammar.accepts("aab" * 20 + "c")


def test_what_takes_too_long_is_refused_and_goes_on_where_it_was() -> None:
    constraint = bound(Limits(time=0.2))
    refused = 0

    def insist(call: Callable[..., Any], *arguments: Any) -> Any:
        nonlocal refused
        for _ in range(50):
            try:
                return call(*arguments)
            except BudgetExceeded as error:
                assert "time" in str(error)
                refused += 1
        raise AssertionError("it makes no progress")

    state = constraint.start
    for _ in range(7):
        state = insist(constraint.advance, state, FORTY)
    row = insist(constraint.mask, state)
    assert refused
    free = bound()
    assert np.array_equal(row, free.mask(behind(free, 7)))


@pytest.mark.parametrize("left", [0, -3])
def test_no_token_left_means_no_token(left: int) -> None:
    constraint = bound()
    state = constraint.advance(constraint.start, FORTY)
    assert constraint.allowed(state, left).tolist() == list(VOCAB.eos_ids)
    digits = structspec.compile(r"[0-9]{3}", syntax="regex").bind(VOCAB)
    assert not digits.mask(digits.start, left).any()
