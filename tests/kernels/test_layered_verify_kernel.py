"""layered_verify: exact by enumeration in float64, and every implementation against its plan."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import torch

from structspec.kernels.block_verify import block_verify
from structspec.kernels.checks.cases import VerifyCase, verify_case, verify_cases
from structspec.kernels.checks.judge_block import run_block
from structspec.kernels.checks.judge_layered import judge_layered, run_layered
from structspec.kernels.layered_verify import layered_verify
from structspec.kernels.layered_verify.plan import GRID, above, below, solve
from structspec.kernels.layered_verify.reference import LayeredLaw, layered_law
from structspec.kernels.logit_rows import LogitRows, Status
from structspec.kernels.philox import Noise
from structspec.verification.randomness import Purpose, Randomness

CPU = torch.device("cpu")
SMALL = list(verify_cases())
# Interpreted, a case takes seconds: these reach every branch, the full run takes them all.
SHORT = {"K=4 L=1 V=37"}


def uniforms(batch: int, seed: int = 0) -> torch.Tensor:
    return torch.rand(batch, 2, generator=torch.Generator().manual_seed(seed)).double()


@pytest.mark.parametrize(
    "case",
    [pytest.param(c, id=c.name, marks=() if c.name in SHORT else pytest.mark.full) for c in SMALL],
)
def test_decisions_follow_the_law_of_the_reported_plan(backend: str, case: VerifyCase) -> None:
    for rounds in (2,) if backend == "triton" else (1, 2):
        u = uniforms(len(case.tokens), rounds)
        assert judge_layered(case, u, backend, CPU, rounds) == []


@pytest.mark.full
@pytest.mark.parametrize("rounds", [1, 2])
@pytest.mark.parametrize("case", SMALL, ids=[c.name for c in SMALL])
def test_decisions_follow_the_law_with_several_splits(
    backend: str, case: VerifyCase, rounds: int, small_splits: None
) -> None:
    u = uniforms(len(case.tokens), 5)
    u[:, 0] = u[:, 0] ** 0.1  # deep exits
    assert judge_layered(case, u, backend, CPU, rounds) == []


def test_shared_rows_in_any_order(backend: str) -> None:
    case = verify_case("mapped", 100, 2, 2, mapped=True, dtype=torch.bfloat16, seed=5)
    assert judge_layered(case, uniforms(3, 2), backend, CPU) == []


def test_end_tokens(backend: str) -> None:
    case = verify_case("ends", 6, 2, 2, eos=True, masked=False, seed=4, batch=2)
    assert judge_layered(case, uniforms(2, 6), backend, CPU) == []


def test_several_splits_and_one_round(backend: str, small_splits: None) -> None:
    case = verify_case("splits", 300, 2, 1, batch=1, seed=11)
    assert judge_layered(case, uniforms(1, 6), backend, CPU, 1) == []


@pytest.mark.full
@pytest.mark.parametrize("vocab", [49_003, 152_064])
def test_real_vocabularies(backend: str, vocab: int) -> None:
    case = verify_case("large", vocab, 2, 2, batch=1, dtype=torch.bfloat16, seed=8)
    assert judge_layered(case, uniforms(1, 5), backend, CPU) == []


def test_one_draft_exits_as_block_verification_does(backend: str) -> None:
    case = verify_case("", 37, 1, 2, seed=12)
    layered = run_layered(case, uniforms(3), backend, CPU)
    block = run_block(case, torch.zeros(3, 3), backend, CPU)
    for b in range(3):
        n = int(case.lengths[b, 0])
        phi = layered.thresholds[b].double().numpy()
        h = block.thresholds[b].double().numpy()
        # Φ_i = Π_{t >= i} (1 - h_t)
        for i in range(1, n + 1):
            assert phi[i] == pytest.approx(np.prod(1.0 - h[i - 1 : n]), abs=1e-4)


def test_one_level_of_one_round_is_k_seq() -> None:
    rng = np.random.default_rng(3)
    p, q = rng.dirichlet(np.ones(6), 2)
    drafts = [[1], [4], [1]]
    law = layered_law(lambda k, i: p, lambda k, i: q, drafts, 1, rounds=1)
    z, _ = law.knots[0, 0]
    taken = np.minimum(1.0, p / (z * q))
    reject = np.prod([1.0 - taken[x] for [x] in drafts])
    survive = (1.0 - float(q @ taken)) ** 3
    assert law.thresholds[1] == pytest.approx(reject)
    mass = law.residuals[0][0][1][:-1]
    beta = 1.0 - survive ** (1 / 3)
    np.testing.assert_allclose(mass, p - q * taken * (1.0 - survive) / beta, atol=1e-12)
    # z is the smallest valid one to the bisection's precision
    assert z >= (1.0 - survive) / beta >= 0.999 * z


KINDS = ["random", "zeros", "singletons", "p = q", "one-hot q", "end token", "unequal lengths"]


def laws(kind: str, vocab: int, length: int, seed: int) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    p: dict[tuple[int, ...], np.ndarray] = {}
    q: dict[tuple[int, ...], np.ndarray] = {}
    for n in range(length + 1):
        for prefix in itertools.product(range(vocab), repeat=n):
            rows = rng.dirichlet(np.ones(vocab), 2)
            if kind == "zeros":
                rows[rng.integers(2), rng.integers(vocab)] = 0.0
            if kind == "singletons" and rng.random() < 0.5:
                rows[:] = np.eye(vocab)[rng.integers(vocab)]
            if kind == "p = q":
                rows[1] = rows[0]
            if kind == "one-hot q":
                rows[1] = np.eye(vocab)[rng.integers(vocab)]
            p[prefix], q[prefix] = rows / rows.sum(axis=1, keepdims=True)
    return p, q


def joint_error(kind: str, vocab: int, drafts: int, length: int, decide: Any) -> float:
    """max |law of the text - target| over all drafts; `decide` gives a LayeredLaw per draft set."""
    p, q = laws(kind, vocab, length, 7)
    ends = frozenset({0}) if kind == "end token" else frozenset()
    sizes = [length - (k % length if kind == "unequal lengths" else 0) for k in range(drafts)]
    options = []
    for size in sizes:
        paths = {}
        for full in itertools.product(range(vocab), repeat=size):
            cut = next((i + 1 for i, x in enumerate(full) if x in ends), size)
            path = full[:cut]
            paths[path] = float(np.prod([q[path[:i]][x] for i, x in enumerate(path)]))
        options.append([(path, mass) for path, mass in paths.items() if mass > 0.0])
    sets = list(itertools.product(*options))
    results = decide(p, q, [[list(path) for path, _ in drawn] for drawn in sets], length, ends)
    texts: dict[tuple[int, ...], float] = {}
    for drawn, law in zip(sets, results, strict=True):
        mass = float(np.prod([m for _, m in drawn]))
        exits = law.exits()
        for i in np.flatnonzero(exits > 0.0):
            total = sum(float(residual.sum()) for _, residual in law.residuals[i])
            for owner, residual in law.residuals[i]:
                for x in np.flatnonzero(residual):
                    text = drawn[owner][0][:i] + ((int(x),) if x < vocab else ())
                    chance = mass * float(exits[i]) * float(residual[x]) / total
                    texts[text] = texts.get(text, 0.0) + chance
    # Go on by plain sampling to length + 1 tokens.
    final: dict[tuple[int, ...], float] = {}
    while texts:
        text, mass = texts.popitem()
        if len(text) == length + 1 or (text and text[-1] in ends):
            final[text] = final.get(text, 0.0) + mass
            continue
        for x in range(vocab):
            texts[(*text, x)] = texts.get((*text, x), 0.0) + mass * p[text][x]
    error = 0.0
    for full in itertools.product(range(vocab), repeat=length + 1):
        cut = next((i + 1 for i, x in enumerate(full) if x in ends), length + 1)
        if any(full[cut:]):
            continue  # one representative per text that ended
        wanted = float(np.prod([p[full[:i]][full[i]] for i in range(cut)]))
        error = max(error, abs(final.get(full[:cut], 0.0) - wanted))
    return error


def by_reference(rounds: int) -> Any:
    def decide(p: Any, q: Any, sets: Any, length: int, ends: Any) -> list[LayeredLaw]:
        return [
            layered_law(
                lambda k, i, d=d: p[tuple(d[k][:i])], lambda k, i, d=d: q[tuple(d[k][:i])], d,
                length, rounds, ends,
            )
            for d in sets
        ]  # fmt: skip

    return decide


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("rounds", [1, 2])
def test_the_law_of_the_text_is_the_targets(kind: str, rounds: int) -> None:
    assert joint_error(kind, 3, 2, 2, by_reference(rounds)) < 1e-12


@pytest.mark.full
@pytest.mark.parametrize("shape", [(4, 3, 1), (2, 3, 3), (2, 4, 2), (3, 3, 2)], ids=str)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("rounds", [1, 2])
def test_the_law_of_the_text_is_the_targets_at_more_sizes(
    kind: str, rounds: int, shape: tuple[int, int, int]
) -> None:
    assert joint_error(kind, *shape, by_reference(rounds)) < 1e-12


def test_the_torch_kernels_thresholds_give_the_same_law() -> None:
    def decide(p: Any, q: Any, sets: Any, length: int, ends: Any) -> list[LayeredLaw]:
        prefixes = {prefix: j for j, prefix in enumerate(p)}
        rows = [
            [[prefixes[tuple(path[:i])] for i in range(len(path) + 1)] for path in d] for d in sets
        ]
        drafts = len(sets[0])
        verdict = layered_verify(
            LogitRows(torch.tensor(np.log(np.stack(list(p.values()))))),
            LogitRows(torch.tensor(np.log(np.stack(list(q.values()))))),
            torch.tensor(sets, dtype=torch.int32),
            torch.full((len(sets), drafts), length, dtype=torch.int32),
            target_rows=torch.tensor(rows, dtype=torch.int32),
            draft_rows=torch.tensor(rows, dtype=torch.int32)[:, :, :length].contiguous(),
            uniforms=torch.full((len(sets), 2), 0.5),
            backend="torch",
        )
        assert not verdict.status.any()
        knots, turns = verdict.knots.numpy(), verdict.turns.numpy()
        out = []
        for b, d in enumerate(sets):
            law = layered_law(
                lambda k, i, d=d: p[tuple(d[k][:i])], lambda k, i, d=d: q[tuple(d[k][:i])], d,
                length, 2, ends,
                lambda k, i, b=b: (int(turns[b, k, i]), *map(float, knots[b, k, i])),
            )  # fmt: skip
            np.testing.assert_allclose(verdict.thresholds[b], law.thresholds, atol=1e-12)
            assert law.lowest > -1e-12
            out.append(law)
        return out

    assert joint_error("random", 3, 2, 2, decide) < 1e-12


def test_chords_bound_the_curve_and_knots_cover_the_target() -> None:
    rng = np.random.default_rng(5)
    for _ in range(50):
        size = int(rng.integers(2, 30))
        p, q = rng.dirichlet(np.full(size, 0.5), 2)
        table = np.minimum(p, GRID[:, None] * q).sum(axis=1)
        for z in np.exp(rng.normal(0.0, 3.0, 20)):
            exact = np.minimum(p, z * q).sum()
            assert below(table, z) <= exact <= above(table, z)
        m, scale = int(rng.integers(1, 6)), float(np.exp(rng.normal()))
        for rounds in (1, 2):
            z1, z2, taken = solve(table, m, scale, rounds)
            assert z1 >= z2 > 0.0 and taken <= np.minimum(p, z2 * q).sum() / z2 + 1e-12


def best_level(p: np.ndarray, q: np.ndarray, drafts: int) -> float:
    """The most that any lossless rule keeps at one level: a minimum cut.

    Draft sets flow to the tokens they hold, tokens take p. A cut that keeps the tokens S on the
    far side pays p(S), and every draft set that has a token outside S.
    """
    size = len(p)
    subsets = (np.array(bits, bool) for bits in itertools.product((0, 1), repeat=size))
    return min(float(p[s].sum() + 1.0 - q[s].sum() ** drafts) for s in subsets)


@pytest.mark.parametrize("shape", [(2, 4), pytest.param((3, 5), marks=pytest.mark.full)], ids=str)
def test_two_rounds_keep_almost_all_that_is_possible(shape: tuple[int, int]) -> None:
    drafts, vocab = shape
    rng = np.random.default_rng(0)
    shares: dict[int, list[float]] = {1: [], 2: []}
    for _ in range(20):
        p, q = rng.dirichlet(np.full(vocab, 0.7), 2)
        best = best_level(p, q, drafts)
        for rounds, found in shares.items():
            kept = 0.0
            for drawn in itertools.product(range(vocab), repeat=drafts):
                law = layered_law(lambda k, i: p, lambda k, i: q, [[x] for x in drawn], 1, rounds)  # noqa: B023
                kept += float(np.prod(q[list(drawn)]) * law.exits()[1])
            assert kept <= best + 1e-9
            found.append(kept / best)
    assert np.mean(shares[2]) > 0.97 > np.mean(shares[1])
    assert min(shares[2]) > 0.92


def test_keyed_noise_is_the_hosts(backend: str) -> None:
    case = verify_case("", 40, 2, 1, seed=4, batch=2)
    names, steps = [7, 2**31 - 1], [5, 3]
    noise = Noise(5, torch.tensor(names, dtype=torch.int32), torch.tensor(steps, dtype=torch.int32))
    keyed = layered_verify(
        case.target, case.draft, case.tokens, case.lengths, noise=noise, backend=backend
    )
    host = Randomness(5)
    u = np.stack([
        [host.uniforms(r, s, purpose)[0] for purpose in (Purpose.ACCEPT, Purpose.EMIT)]
        for r, s in zip(names, steps, strict=True)
    ])  # fmt: skip
    given = run_layered(case, torch.from_numpy(u), backend, CPU)
    for name in ("accepted", "path", "token"):
        assert getattr(keyed, name).tolist() == getattr(given, name).tolist()


def test_bad_requests_are_reported_and_others_are_not_touched(backend: str) -> None:
    x = torch.zeros(16, 6)
    x[2, 0] = torch.nan
    masks = torch.full((16, 1), -1, dtype=torch.int32)
    masks[9] = 0  # behind a drafted token of request 2: a dead end
    tokens = torch.zeros(4, 2, 1, dtype=torch.int32)
    tokens[3, 1] = 6
    verdict = layered_verify(
        LogitRows(x, masks), LogitRows(torch.zeros(8, 6)), tokens,
        torch.ones(4, 2, dtype=torch.int32), uniforms=torch.full((4, 2), 0.5), backend=backend,
    )  # fmt: skip
    assert verdict.status.tolist() == [Status.NOT_FINITE, 0, Status.EMPTY, Status.BAD_TOKEN]
    assert [token >= 0 for token in verdict.token.tolist()] == [False, True, False, False]


def test_block_and_layered_agree_that_p_equal_q_keeps_everything(backend: str) -> None:
    case = verify_case("", 20, 1, 2, spread=0.0, seed=2)
    u = torch.full((3, 2), 0.5)
    assert run_layered(case, u, backend, CPU).accepted.tolist() == case.lengths[:, 0].tolist()
    verdict = block_verify(
        case.target, case.draft, case.tokens[:, 0].contiguous(), case.lengths[:, 0].contiguous(),
        uniforms=torch.full((3, 3), 0.9), backend=backend,
    )  # fmt: skip
    assert verdict.accepted.tolist() == case.lengths[:, 0].tolist()
