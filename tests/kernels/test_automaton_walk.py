"""Device automata: masks and next states equal the constraint's, bit for bit."""

from __future__ import annotations

import random
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch

import structspec
from structspec.errors import BudgetExceeded, KernelError, StaleState, TokenRejected
from structspec.kernels.automaton_walk import DEAD, END
from structspec.kernels.automaton_walk.determinise import ConstraintWalk
from structspec.kernels.automaton_walk.pool import MaskPool

PIECES = [
    "true",
    "false",
    '"name"',
    '": "',
    '"}',
    '{"',
    "12",
    "-",
    "hello",
    " ",
    "é",
    "日本",
    '\\"',
]
SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 4},
        "n": {"type": "integer", "minimum": -20, "maximum": 300},
        "kind": {"enum": ["true", "x", None]},
    },
    "required": ["name"],
    "additionalProperties": False,
}


@cache
def vocabulary() -> structspec.Vocabulary:
    tokens: list[bytes | None] = [bytes([b]) for b in range(256)]
    tokens += [p.encode() for p in PIECES] + [(a + b).encode() for a in PIECES for b in PIECES]
    tokens += [b"hello", b"", None, None]  # a duplicate, an empty one, a control token, the end
    # The model's logits are wider than the tokenizer.
    return structspec.Vocabulary(tokens, eos_ids=[len(tokens) - 1], logit_width=len(tokens) + 7)


def bound(schema: Any = None, **options: Any) -> structspec.Constraint:
    options = options or {"whitespace": "conventional", "spelling": "canonical"}
    return structspec.compile(schema or SCHEMA, **options).bind(vocabulary())


def visited(constraint: structspec.Constraint, count: int, seed: int) -> list[tuple[int, int, int]]:
    """(state, token, next state) along random texts."""
    rng = random.Random(seed)
    state, out = constraint.start, []
    for _ in range(count):
        token = int(rng.choice(constraint.allowed(state)))
        following = constraint.advance(state, token)
        out.append((state, token, following))
        state = following or constraint.start
    return out


def test_masks_are_the_constraints_bit_for_bit(backend: str) -> None:
    constraint = bound()
    walk = ConstraintWalk.build(constraint)
    count = 4 if backend == "triton" else 40
    states = [state for state, _, _ in visited(constraint, count, 1)] + [END]
    rows = walk.automaton.masks(walk.states(states), backend=backend).numpy().view(np.uint32)
    for row, state in zip(rows, states, strict=True):
        np.testing.assert_array_equal(row, constraint.mask(state))


def test_masks_under_a_token_budget_are_the_constraints(backend: str) -> None:
    constraint = bound()
    walk = ConstraintWalk.build(constraint)
    count = 3 if backend == "triton" else 30
    states = [state for state, _, _ in visited(constraint, count, 2)]
    left = [constraint.distance(s) + 1 + i % 3 for i, s in enumerate(states)]
    rows = walk.automaton.masks(
        walk.states(states), torch.tensor(left, dtype=torch.int32), backend=backend
    )
    for row, state, budget in zip(rows.numpy().view(np.uint32), states, left, strict=True):
        np.testing.assert_array_equal(row, constraint.mask(state, budget))


def test_next_states_are_the_constraints(backend: str) -> None:
    constraint = bound()
    walk = ConstraintWalk.build(constraint)
    steps = visited(constraint, 60, 3)
    rng = random.Random(4)
    states, tokens, expected = [], [], []
    for state, token, following in steps:
        states += [state, state, state]
        tokens += [token, -1, rng.randrange(vocabulary().size)]
        expected += [following, state]
        try:
            expected.append(constraint.advance(state, tokens[-1]))
        except TokenRejected:
            expected.append(-1)
    got = walk.automaton.advance(
        walk.states(states), torch.tensor(tokens, dtype=torch.int32), backend=backend
    ).tolist()
    assert got == [DEAD if e == -1 else walk.device_state(e) for e in expected]


def test_nothing_follows_an_end_or_a_dead_state(backend: str) -> None:
    automaton = ConstraintWalk.build(bound()).automaton
    states = torch.tensor([END, DEAD, END, DEAD], dtype=torch.int32)
    assert not automaton.masks(states, backend=backend).any()
    tokens = torch.tensor([65, 65, -1, automaton.vocab - 8], dtype=torch.int32)
    assert automaton.advance(states, tokens, backend=backend).tolist() == [DEAD, DEAD, END, DEAD]


def test_the_row_table_holds_the_mask_of_every_state(backend: str) -> None:
    constraint = bound("(a|bc)[0-9]?", syntax="regex")
    walk = ConstraintWalk.build(constraint)
    table = walk.automaton.row_table(backend=backend)
    assert table is not None and not table[:2].any()
    for state in range(2, len(table)):
        np.testing.assert_array_equal(
            table[state].numpy().view(np.uint32), constraint.mask(walk.host_state(state))
        )
    assert walk.automaton.row_table(limit=100, backend=backend) is None


@pytest.mark.full
def test_every_state_of_a_larger_automaton(backend: str) -> None:
    constraint = bound()
    walk = ConstraintWalk.build(constraint)
    total = walk.automaton.next.shape[0]
    chosen = range(2, total, 5 if backend == "triton" else 1)
    states = torch.tensor(list(chosen), dtype=torch.int32)
    rows = walk.automaton.masks(states, backend=backend).numpy().view(np.uint32)
    for row, state in zip(rows, states.tolist(), strict=True):
        np.testing.assert_array_equal(row, constraint.mask(walk.host_state(state)))


def test_an_automaton_above_the_budget_is_refused_with_its_size() -> None:
    with pytest.raises(BudgetExceeded, match="device automaton"):
        ConstraintWalk.build(bound(), states=20)


def test_recursion_is_refused_by_the_budget_and_served_by_the_pool() -> None:
    nested = {
        "$defs": {"t": {"type": "array", "items": {"$ref": "#/$defs/t"}}},
        "$ref": "#/$defs/t",
    }
    constraint = bound(nested)
    with pytest.raises(BudgetExceeded):
        ConstraintWalk.build(constraint, states=500)
    pool = MaskPool(constraint, rows=4)
    states = [constraint.start]
    for _ in range(9):
        states.append(constraint.advance(states[-1], ord("[")))
    for first in (0, 3, 6, 1):
        some = states[first : first + 4]
        slots = pool.slots([*some, some[0]])
        for slot, state in zip(slots.tolist(), [*some, some[0]], strict=True):
            np.testing.assert_array_equal(
                pool.rows[slot].numpy().view(np.uint32), constraint.mask(state)
            )
    assert pool.hits > 0 and pool.misses >= 10
    with pytest.raises(KernelError, match="pool holds 4"):
        pool.slots(states[:5])


def test_state_numbers_from_before_compact_are_stale() -> None:
    constraint = bound()
    walk = ConstraintWalk.build(constraint)
    old = constraint.start
    constraint.cache.compact([old])
    with pytest.raises(StaleState):
        walk.device_state(old)


def test_a_vocabulary_without_single_bytes_is_refused() -> None:
    vocab = structspec.Vocabulary([b"ab", b"b", b"abb", None], eos_ids=[3])
    constraint = structspec.compile("(ab)+b?", syntax="regex").bind(vocab)
    with pytest.raises(KernelError, match="lacks single bytes"):
        ConstraintWalk.build(constraint)
    pool = MaskPool(constraint, rows=2)
    slot = int(pool.slots([constraint.start])[0])
    np.testing.assert_array_equal(
        pool.rows[slot].numpy().view(np.uint32), constraint.mask(constraint.start)
    )
