"""The draft loop: masked, sampled and advanced on the device, as the constraint would."""

from __future__ import annotations

import pytest
import torch

import structspec
from structspec.errors import KernelError
from structspec.kernels.automaton_walk.determinise import ConstraintWalk
from structspec.kernels.draft_step import DraftStep
from structspec.kernels.launch import record
from structspec.kernels.logit_rows import Status
from structspec.verification.randomness import Purpose, Randomness, sample_inverse


def walk_of(pattern: str) -> ConstraintWalk:
    texts = [b"a", b"b", b"c", b"ab", b"bc", b"abc", b"cab", None]
    vocab = structspec.Vocabulary(texts, eos_ids=[7])
    return ConstraintWalk.build(structspec.compile(pattern, syntax="regex").bind(vocab))


@pytest.mark.parametrize("table", [True, False], ids=["row table", "walked masks"])
def test_a_loop_draws_what_the_host_would(backend: str, table: bool) -> None:
    walk = walk_of("(abc)*|b+")
    constraint = walk.constraint
    rows, length = 3, 4
    step = DraftStep(
        walk.automaton, rows, length, seed=11, temperature=0.7,
        table_limit=1 << 20 if table else 0, backend=backend,
    )  # fmt: skip
    assert (step.table is not None) == table
    step.requests.copy_(torch.tensor([5, 5, 6]))
    step.rows.copy_(torch.tensor([0, 1, 0]))
    step.steps.fill_(2)
    step.begin(walk.states([constraint.start] * rows))
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(length, rows, 8, generator=generator)
    for place in range(length):
        step(logits[place], place)
    randomness = Randomness(11)
    for n in range(rows):
        state, drawn = constraint.start, []
        u = randomness.uniforms(int(step.requests[n]), 2, Purpose.DRAFT, int(step.rows[n]), length)
        for place in range(length):
            legal = torch.zeros(8, dtype=torch.bool)
            legal[torch.from_numpy(constraint.allowed(state))] = True
            if (state and not legal.any()) or not state:
                drawn.append(-1)
                continue
            assert int(step.path_states[n, place]) == walk.device_state(state)
            law = (logits[place, n].double() / 0.7).masked_fill(~legal, -torch.inf).softmax(-1)
            drawn.append(sample_inverse(law.numpy(), float(u[place])))
            state = constraint.advance(state, drawn[-1])
        assert step.tokens[n].tolist() == drawn
        assert int(step.lengths[n]) == sum(t >= 0 for t in drawn)
        assert int(step.states[n]) == walk.device_state(state)


def test_drafts_without_a_grammar_are_not_masked(backend: str) -> None:
    step = DraftStep(None, 2, 2, vocab=8, device="cpu", seed=3, backend=backend)
    logits = torch.randn(2, 8, generator=torch.Generator().manual_seed(0))
    step(logits, 0), step(logits, 1)
    law = logits.double().softmax(-1).numpy()
    for n in range(2):
        u = Randomness(3).uniforms(0, 0, Purpose.DRAFT, 0, 2)
        assert step.tokens[n].tolist() == [sample_inverse(law[n], float(x)) for x in u]
    with pytest.raises(KernelError, match="vocabulary's size"):
        DraftStep(None, 1, 1, backend=backend)


def test_nan_is_reported_and_ends_only_its_own_row(backend: str) -> None:
    walk = walk_of("[abc]+")
    step = DraftStep(walk.automaton, 2, 1, backend=backend)
    step.begin(walk.states([walk.constraint.start] * 2))
    logits = torch.zeros(2, 8)
    logits[0, 0] = torch.nan
    tokens = step(logits, 0).tolist()
    assert tokens[0] == -1 and tokens[1] >= 0
    assert step.status.tolist() == [Status.NOT_FINITE, 0]


def test_a_step_takes_two_launches_with_a_row_table_and_four_without() -> None:
    triton = pytest.importorskip("triton", reason="pip install 'structspec[kernels]'")
    del triton
    walk = walk_of("[abc]+")
    for limit, launches in ((1 << 20, 2), (0, 4)):
        step = DraftStep(walk.automaton, 2, 1, backend="torch", table_limit=limit)
        step.backend = "triton"
        with record(dry=True) as seen, pytest.MonkeyPatch.context() as patch:
            patch.setattr("structspec.kernels.backend.triton_interpreted", lambda: True)
            step(torch.zeros(2, 8), 0)
        assert len(seen) == launches


def test_shapes_and_places_are_checked(backend: str) -> None:
    step = DraftStep(walk_of("a").automaton, 1, 1, backend=backend)
    with pytest.raises(KernelError, match="logits must be"):
        step(torch.zeros(1, 7), 0)
    with pytest.raises(KernelError, match="place=1"):
        step(torch.zeros(1, 8), 1)
    with pytest.raises(KernelError, match="temperature"):
        DraftStep(walk_of("a").automaton, 1, 1, temperature=0.0, backend=backend)
