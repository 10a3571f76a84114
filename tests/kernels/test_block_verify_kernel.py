"""block_verify against the float64 oracle (`verification.oracle`)."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

from structspec.errors import DraftError, ModelError
from structspec.kernels.block_verify import block_verify
from structspec.kernels.checks.cases import verify_case, verify_cases
from structspec.kernels.checks.judge_block import judge_block, run_block
from structspec.kernels.logit_rows import LogitRows
from structspec.kernels.philox import Noise
from structspec.verification import oracle
from structspec.verification.block import block_verify as plain_block_verify
from structspec.verification.randomness import Randomness

CPU = torch.device("cpu")
SMALL = list(verify_cases(drafts=(1,)))


def uniforms(batch: int, tests: int, seed: int = 0, mode: str = "random") -> torch.Tensor:
    u = torch.rand(batch, tests + 1, generator=torch.Generator().manual_seed(seed)).double()
    if mode == "all pass":
        u[:, :-1] = 0.0
    if mode == "few pass":
        u[:, :-1] = 0.97
    return u


@pytest.mark.parametrize("case", SMALL, ids=[c.name for c in SMALL])
def test_decisions_are_the_oracles(
    backend: str, case: object, small_splits: None, request: pytest.FixtureRequest
) -> None:
    batch, _, length = case.tokens.shape  # type: ignore[attr-defined]
    modes = ["random", "all pass", "few pass"]
    if backend == "triton":  # a second each: one mode per case here, all of them in the full run
        modes = [modes[SMALL.index(case) % 3]]  # type: ignore[arg-type]
    for seed, mode in enumerate(modes):
        u = uniforms(batch, length, seed, mode)
        assert judge_block(case, u, backend, CPU) == []  # type: ignore[arg-type]


@pytest.mark.full
@pytest.mark.parametrize("case", SMALL, ids=[c.name for c in SMALL])
@pytest.mark.parametrize("mode", ["random", "all pass", "few pass"])
def test_decisions_are_the_oracles_for_many_uniforms(
    backend: str, case: object, mode: str, small_splits: None
) -> None:
    batch, _, length = case.tokens.shape  # type: ignore[attr-defined]
    for seed in range(3):
        u = uniforms(batch, length, seed + 10, mode)
        assert judge_block(case, u, backend, CPU) == []  # type: ignore[arg-type]


@pytest.mark.parametrize("vocab", [49_003, 152_064])
def test_real_vocabularies(backend: str, vocab: int) -> None:
    case = verify_case("large", vocab, 1, 2, batch=1, dtype=torch.bfloat16, seed=8, masked=True)
    assert judge_block(case, uniforms(1, 2, 5), backend, CPU) == []


def test_equals_the_verification_rooms_block_verify() -> None:
    case = verify_case("", 50, 1, 4, seed=9)
    u = uniforms(3, 4, 3)
    target = torch.softmax(
        (case.target.logits.double() / 0.8).masked_fill(~case.target.legal(), -torch.inf), -1
    )
    assert case.draft is not None
    draft = torch.softmax(
        (case.draft.logits.double() / 0.8).masked_fill(~case.draft.legal(), -torch.inf), -1
    )
    plain = plain_block_verify(
        target.view(3, 5, 50), draft.view(3, 4, 50), case.tokens[:, 0], case.lengths[:, 0], u
    )
    ours = run_block(case, u, "torch", CPU)
    assert ours.accepted.tolist() == plain.accepted.tolist()
    assert ours.token.tolist() == plain.token.tolist()


def test_a_place_without_draft_rows_is_one_hot(backend: str) -> None:
    x = torch.tensor([[0.0, 1.0, 2.0], [0.0, 0.0, 0.0]])
    tokens, lengths = torch.tensor([[2]], dtype=torch.int32), torch.tensor([1], dtype=torch.int32)
    p = torch.softmax(x[0], -1)[2].item()
    for u, accepted in ((p - 0.01, 1), (p + 0.01, 0)):
        noise = torch.tensor([[u, 0.999]], dtype=torch.float64)
        verdict = block_verify(LogitRows(x), None, tokens, lengths, uniforms=noise, backend=backend)
        assert verdict.accepted.tolist() == [accepted]
        assert verdict.token.tolist() == [2 if accepted else 1]  # 2 has no residual mass
        assert verdict.thresholds[0, 0].item() == pytest.approx(p, abs=1e-6)


def test_keyed_noise_is_the_hosts(backend: str) -> None:
    case = verify_case("", 40, 1, 3, seed=4)
    names, steps = [7, 0, 2**31 - 1], [5, 1, 3]
    noise = Noise(
        (9 << 40) + 3,
        torch.tensor(names, dtype=torch.int32),
        torch.tensor(steps, dtype=torch.int32),
    )
    keyed = block_verify(
        case.target, case.draft, case.tokens[:, 0].contiguous(), case.lengths[:, 0].contiguous(),
        noise=noise, backend=backend,
    )  # fmt: skip
    u = torch.from_numpy(Randomness((9 << 40) + 3).for_verification(names, steps, 3))
    given = run_block(case, u, backend, CPU)
    assert keyed.accepted.tolist() == given.accepted.tolist()
    assert keyed.token.tolist() == given.token.tolist()


def test_bad_rows_and_drafts_are_reported_per_request(backend: str) -> None:
    x = torch.zeros(10, 8)
    x[2, 3] = torch.nan
    masks = torch.full((10, 1), -1, dtype=torch.int32)
    masks[5] = 0
    q_masks = torch.full((5, 1), -1, dtype=torch.int32)
    q_masks[3] = 0b0111  # token 3 was not drawn from this row
    tokens = torch.full((5, 1), 3, dtype=torch.int32)
    tokens[4] = 8
    verdict = block_verify(
        LogitRows(x, masks), LogitRows(torch.zeros(5, 8), q_masks), tokens,
        torch.ones(5, dtype=torch.int32), uniforms=torch.full((5, 2), 0.5), backend=backend,
    )  # fmt: skip
    assert verdict.status.tolist() == [0, 2, 1, 4, 16]
    assert verdict.token.tolist()[1:] == [-1] * 4 and verdict.token.tolist()[0] >= 0
    with pytest.raises(ModelError, match="request 1: NaN"):
        verdict.check()
    tokens[:4] = 9
    with pytest.raises(DraftError, match="outside the vocabulary"):
        block_verify(
            LogitRows(x, masks), None, tokens, torch.ones(5, dtype=torch.int32),
            uniforms=torch.full((5, 2), 0.5), backend=backend,
        ).check()  # fmt: skip


def test_the_torch_kernel_preserves_the_law_exactly() -> None:
    vocab, length = 3, 2
    rng = np.random.default_rng(0)
    p = rng.dirichlet(np.ones(vocab), size=(1 + vocab + vocab**2))
    q = rng.dirichlet(np.ones(vocab), size=(1 + vocab))

    def place(prefix: tuple[int, ...]) -> int:
        return {0: 0, 1: 1, 2: 1 + vocab}[len(prefix)] + int(
            sum(x * vocab**j for j, x in enumerate(reversed(prefix)))
        )

    law: dict[tuple[int, ...], float] = {}
    drafts = list(itertools.product(range(vocab), repeat=length))
    rows = [[place(d[:i]) for i in range(length + 1)] for d in drafts]
    verdict = block_verify(
        LogitRows(torch.from_numpy(p).log()),
        LogitRows(torch.from_numpy(q).log()),
        torch.tensor(drafts, dtype=torch.int32),
        torch.full((len(drafts),), length, dtype=torch.int32),
        target_rows=torch.tensor(rows, dtype=torch.int32),
        draft_rows=torch.tensor([r[:length] for r in rows], dtype=torch.int32),
        uniforms=torch.zeros(len(drafts), length + 1),
        backend="torch",
    )
    for d, h in zip(drafts, verdict.thresholds.tolist(), strict=True):
        mass = float(np.prod([q[place(d[:i]), x] for i, x in enumerate(d)]))
        chance = [1.0, *h]
        tokens = list(d)
        p_rows = np.stack([p[place(d[:i])] for i in range(length + 1)])
        q_rows = np.stack([q[place(d[:i])] for i in range(length)])
        weights = oracle.path_weights(p_rows, q_rows, tokens)
        for i in range(length + 1):
            leave = mass * chance[i] * float(np.prod([1 - c for c in chance[i + 1 :]]))
            emit = p_rows[i] if i == length else oracle.residual(p_rows[i], q_rows[i], weights[i])
            if leave <= 0.0:
                continue
            for x in range(vocab):
                text = (*d[:i], x)
                law[text] = law.get(text, 0.0) + leave * emit[x] / emit.sum()
    first: dict[int, float] = {}
    for text, mass in law.items():
        first[text[0]] = first.get(text[0], 0.0) + mass
    for x in range(vocab):
        assert first[x] == pytest.approx(p[0, x], abs=1e-12)
