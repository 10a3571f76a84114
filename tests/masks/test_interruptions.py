"""Ctrl-C, or a time limit that raises, at any moment while tables grow: the next call is right.

The exception is raised from a trace function, before one instruction of what makes room.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from types import CodeType, FrameType
from typing import Any

import numpy as np
import pytest

import structspec
from structspec import Vocabulary
from structspec.automata import arena, automaton, memory
from structspec.masks import cache, distinct, tables
from structspec.masks.constraint import Constraint
from structspec.masks.fill import FULL

GROWING = {m.__file__ for m in (arena, automaton, memory, cache, tables, distinct)}
NAMES = {
    "recover", "_grow", "_enlarge", "enlarge", "put", "reserve", "reserve_all", "_recover", "_fit",
    "_make_room", "fit", "more_rows", "drop_rows", "_make_pool", "_add_chunk", "compact", "_begin",
    "tracked", "zeros", "part_used", "__del__",
}  # fmt: skip
VOCAB = Vocabulary([*(bytes((b,)) for b in range(256)), b'"a', b"1,", b"[[", None], [259])
#: A state of its own after each character and at each depth.
SCHEMA = {
    "type": "array",
    "items": {"anyOf": [{"$ref": "#"}, {"type": "string", "maxLength": 9000}]},
}
TEXT = b"[" * 20 + b'"' + b"ab" * 1000


class Tracer:
    """Raises KeyboardInterrupt before the instruction `at` of those that make room."""

    def __init__(self, at: int = -1) -> None:
        self.at, self.count = at, 0

    def wanted(self, code: CodeType) -> bool:
        return code.co_name in NAMES and code.co_filename in GROWING

    def call(self, frame: FrameType, event: str, arg: Any) -> Any:
        if not self.wanted(frame.f_code):
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        return self.step

    def step(self, frame: FrameType, event: str, arg: Any) -> Any:
        if event == "opcode":
            if self.count == self.at:
                self.count += 1
                sys.settrace(None)
                raise KeyboardInterrupt
            self.count += 1
        return self.step


def rows(constraint: Constraint, tracer: Tracer | None) -> Iterator[np.ndarray]:
    """Every eighth mask along the text, with what was interrupted done once more."""
    state, at, given = constraint.start, 0, 0
    sys.settrace(None if tracer is None else tracer.call)
    while at < len(TEXT):
        try:
            if at % 700 == 699:
                state = constraint.cache.compact([state])[state]
            if at % 400 == 399:
                with constraint.cache.lock:
                    constraint.cache._recover(FULL)  # as if the pool of rows were full
            if at == 8 * given:
                row = constraint.mask(state)
                given += 1
                yield row
            state = constraint.advance(state, TEXT[at])
            at += 1
        except KeyboardInterrupt:
            sys.settrace(None)
            if not constraint.cache.is_current(state):  # compacted, and its answer was lost
                state = constraint.start
                for byte in TEXT[:at]:
                    state = constraint.advance(state, byte)
    sys.settrace(None)


@pytest.fixture
def grammar(monkeypatch: pytest.MonkeyPatch) -> structspec.Grammar:
    monkeypatch.setattr(automaton, "_RESERVED", 1024)  # so that these tables grow as well
    return structspec.compile(SCHEMA, whitespace="compact")


def check(grammar: structspec.Grammar, share: Sequence[int], of: int) -> None:
    """Interrupt at the given shares of all instructions that make room."""
    constraint = grammar.bind(VOCAB)
    tracer = Tracer()
    expected = list(rows(constraint.with_cache(constraint.new_cache()), tracer))
    assert tracer.count > 10_000
    for k in share:
        interrupted = Tracer(k * tracer.count // of)
        fresh = constraint.with_cache(constraint.new_cache())
        found = list(rows(fresh, interrupted))
        assert interrupted.count == interrupted.at + 1, "it was not interrupted"
        assert len(found) == len(expected)
        for at, (row, right) in enumerate(zip(found, expected, strict=True)):
            assert np.array_equal(row, right), (interrupted.at, 8 * at)


def test_a_few_interruptions(grammar: structspec.Grammar) -> None:
    check(grammar, range(3, 40, 4), 40)


@pytest.mark.full
def test_interruptions_everywhere(grammar: structspec.Grammar) -> None:
    check(grammar, range(400), 400)
