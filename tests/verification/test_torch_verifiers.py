"""The torch verifiers against the oracle: decisions, probabilities, residuals, laws, errors."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from structspec.errors import DraftError, ModelError
from structspec.verification import oracle
from structspec.verification.block import block_verify, pass_probabilities
from structspec.verification.greedy import greedy_verify
from structspec.verification.registry import verifier, verifiers
from structspec.verification.rows import DraftBatch, Verdict, sample_rows
from structspec.verification.token import token_verify

Floats = NDArray[np.float64]
TOP = 1.0 - 2.0**-53
SAMPLERS = {
    "token": (token_verify, oracle.token_verify, oracle.token_law),
    "block": (block_verify, oracle.block_verify, oracle.block_law),
}
DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


@dataclass
class Batch:
    """Random ragged drafts; `q` has one-hot rows wherever `onehot` says so."""

    p: Floats
    q: Floats
    tokens: NDArray[np.int64]
    lengths: NDArray[np.int64]
    onehot: NDArray[np.bool_]
    uniforms: Floats

    def request(self, b: int, ends: tuple[int, ...] = ()) -> tuple[Floats, Floats, list[int]]:
        tokens = self.tokens[b, : self.lengths[b]].tolist()
        for i, x in enumerate(tokens):
            if x in ends:
                tokens = tokens[: i + 1]
                break
        n = len(tokens)
        p, q = self.p[b, : n + 1].astype(np.float64), self.q[b, :n].astype(np.float64)
        return p / p.sum(-1, keepdims=True), q / q.sum(-1, keepdims=True), tokens

    def arguments(self, device: str = "cpu", dense: bool = True) -> dict[str, Any]:
        on = lambda a: torch.from_numpy(a).to(device)  # noqa: E731
        # What stands beyond a draft, and at deterministic places of `draft`, is never read.
        p, q, tokens = self.p.copy(), self.q.copy(), self.tokens.copy()
        for b, n in enumerate(self.lengths):
            p[b, n + 1 :], q[b, n:], tokens[b, n:] = np.nan, np.nan, -1
        q[self.onehot] = np.nan
        return {
            "target": on(p),
            "draft": on(q) if dense else None,
            "tokens": on(tokens),
            "lengths": on(self.lengths),
            "uniforms": on(self.uniforms),
            "onehot": on(self.onehot) if dense else None,
        }


def make(
    seed: int, size: int, length: int, vocab: int, hot: float = 0.3, dtype: Any = np.float64
) -> Batch:
    rng = np.random.default_rng(seed)
    p = rng.dirichlet(np.full(vocab, 0.5), (size, length + 1)) + 1e-9
    near = rng.choice([0.1, 0.6, 0.9], (size, length, 1))  # bad drafts leave block residuals
    q = near * p[:, :-1] + (1 - near) * (rng.dirichlet(np.full(vocab, 0.5), (size, length)) + 1e-9)
    legal = rng.random((size, length + 1, vocab)) < 0.7
    legal[..., 0] = True
    p, q = np.where(legal, p, 0.0), np.where(legal[:, :-1], q, 0.0)
    same = rng.random((size, length)) < 0.15
    q[same] = p[:, :-1][same]
    p, q = (x / x.sum(-1, keepdims=True) for x in (p, q))
    p, q = p.astype(dtype), q.astype(dtype)
    tokens = np.array(
        [[rng.choice(vocab, p=np.float64(r) / np.float64(r).sum()) for r in rows] for rows in q],
        dtype=np.int64,
    ).reshape(size, length)
    onehot = rng.random((size, length)) < hot
    q[onehot] = np.eye(vocab, dtype=dtype)[tokens[onehot]]
    lengths = rng.integers(0, length + 1, size)
    return Batch(p, q, tokens, lengths, onehot, rng.random((size, length + 1)))


def near_an_edge(b: Batch, i: int, law: Any, decision: oracle.Decision, slack: float) -> bool:
    """Whether some uniform of this request lies so near a threshold that rounding decides."""
    p, q, tokens = b.request(i)
    n = len(tokens)
    if law is oracle.block_law:
        edges = oracle.block_pass_probabilities(p, q, tokens)
    else:
        edges = np.array([min(1.0, p[j, x] / q[j, x]) for j, x in enumerate(tokens)])
    emitted = np.cumsum(law(p, q, tokens).emit[decision.accepted])
    return bool(
        (np.abs(b.uniforms[i, :n] - edges) < slack).any()
        or (np.abs(b.uniforms[i, -1] - emitted) < slack).any()
    )


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", SAMPLERS)
def test_decisions_equal_the_oracle_on_ragged_mixed_batches(
    name: str, dtype: Any, device: str
) -> None:
    verify, reference, law = SAMPLERS[name]
    exits: set[int] = set()
    for seed, (length, vocab) in enumerate([(4, 5), (1, 3), (7, 37), (0, 4)]):
        b = make(seed, 150, length, vocab, dtype=dtype)
        verdict = verify(**b.arguments(device))
        for i in range(len(b.lengths)):
            expected = reference(*b.request(i), b.uniforms[i])
            if near_an_edge(b, i, law, expected, 1e-10):
                continue
            got = oracle.Decision(int(verdict.accepted[i]), int(verdict.token[i]))
            assert got == expected, (seed, i)
            exits.add(got.accepted)
    assert exits >= set(range(5))


@pytest.mark.parametrize("name", SAMPLERS)
def test_float32_rows_decide_like_float64_rows_away_from_thresholds(name: str) -> None:
    verify, reference, law = SAMPLERS[name]
    wide = make(3, 300, 5, 50)
    narrow = Batch(
        wide.p.astype(np.float32), wide.q.astype(np.float32), *list(vars(wide).values())[2:]
    )
    verdict = verify(**narrow.arguments())
    compared = 0
    for i in range(300):
        expected = reference(*wide.request(i), wide.uniforms[i])
        if not near_an_edge(wide, i, law, expected, 1e-4):
            compared += 1
            assert (int(verdict.accepted[i]), int(verdict.token[i])) == (
                expected.accepted,
                expected.token,
            )
    assert compared > 250


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_pass_probabilities_and_residuals_equal_the_oracle(dtype: Any, device: str) -> None:
    b = make(9, 80, 4, 11, dtype=dtype)
    arguments = b.arguments(device)
    del arguments["uniforms"]
    batch = DraftBatch(**arguments)
    h = pass_probabilities(batch).cpu().numpy()
    for i, n in enumerate(b.lengths):
        p, q, tokens = b.request(i)
        assert h[i, :n] == pytest.approx(oracle.block_pass_probabilities(p, q, tokens), abs=1e-12)
        assert not h[i, n:].any()
        w = oracle.path_weights(p, q, tokens)
        for place in range(n + 1):
            weight = w[place] if place < n else 1.0
            at = torch.tensor([i], device=device), torch.tensor([place], device=device)
            weights = torch.tensor([weight], dtype=torch.float64, device=device)
            expected = oracle.residual(p[place], q[place], weight) if place < n else p[place]
            mass = batch.residual(*at, weights)[0].cpu().numpy()
            assert mass == pytest.approx(expected, abs=1e-14)
            if place < n:
                total = float(batch.residual_mass(*at, weights))
                assert total == pytest.approx(expected.sum(), abs=1e-13)


@pytest.mark.parametrize("name", SAMPLERS)
def test_a_deterministic_draft_needs_no_draft_rows(name: str) -> None:
    verify = SAMPLERS[name][0]
    b = make(4, 200, 4, 6, hot=1.0)
    dense = Batch(b.p, b.q, b.tokens, b.lengths, np.zeros_like(b.onehot), b.uniforms)
    sparse, full = verify(**b.arguments(dense=False)), verify(**dense.arguments())
    assert torch.equal(sparse.accepted, full.accepted)
    assert torch.equal(sparse.token, full.token)


@pytest.mark.parametrize("name", SAMPLERS)
@pytest.mark.parametrize("kind", ["random", "zeros", "mixed", "eos"])
def test_frequencies_over_a_grid_of_uniforms_are_the_target_law(
    tiny: Callable[[str, int, int], Any], name: str, kind: str
) -> None:
    """The torch code's own law: drafts enumerated, uniforms on a midpoint lattice."""
    verify = SAMPLERS[name][0]
    m = tiny(kind, 2, 8)
    cells = 24
    grid = (torch.arange(cells, dtype=torch.float64) + 0.5) / cells
    points = torch.cartesian_prod(grid, grid, grid)
    law: dict[tuple[int, ...], float] = {}
    for drafted, mass, rows in oracle.all_drafts(m.draft, 2, (), m.ends):
        n = len(drafted)
        p = np.stack([m.cached(drafted[:i], "target") for i in range(n + 1)])
        p, q = np.pad(p, [(0, 2 - n), (0, 0)]), np.pad(rows, [(0, 2 - n), (0, 0)])
        size = len(points)
        verdict: Verdict = verify(
            torch.from_numpy(p).expand(size, 3, 2),
            torch.from_numpy(q).expand(size, 2, 2),
            torch.tensor([*drafted, *[0] * (2 - n)]).expand(size, 2),
            torch.full((size,), n),
            points,
            eos_ids=m.ends,
        )
        outcomes = Counter(zip(verdict.accepted.tolist(), verdict.token.tolist(), strict=True))
        for (kept, token), count in outcomes.items():
            text = (*drafted[:kept], *([token] if token >= 0 else []))
            for whole, chance in oracle.plain_law(m.target, 3, m.ends, text).items():
                law[whole] = law.get(whole, 0.0) + mass * count / size * chance
    assert oracle.distance(law, oracle.plain_law(m.target, 3, m.ends)) < 0.04


def test_greedy_equals_the_oracle_and_the_samplers_on_point_masses() -> None:
    b = make(6, 120, 4, 5, hot=1.0)
    likely = np.random.default_rng(0).random(b.tokens.shape) < 0.7
    b.p[:, :-1][likely] = 0.5 * b.p[:, :-1][likely] + np.eye(5)[b.tokens[likely]]
    verdict = greedy_verify(**b.arguments(dense=False))
    hot = Batch(np.eye(5)[b.p.argmax(-1)], *list(vars(b).values())[1:])
    for i in range(120):
        p, _, tokens = b.request(i)
        expected = oracle.greedy_verify(p, tokens)
        assert (int(verdict.accepted[i]), int(verdict.token[i])) == (
            expected.accepted,
            expected.token,
        )
    for name in ("token", "block"):
        sampled = verifiers[name](**hot.arguments(dense=False))
        assert torch.equal(sampled.accepted, verdict.accepted)
        assert torch.equal(sampled.token, verdict.token)


def test_greedy_breaks_ties_by_the_lowest_id() -> None:
    target = torch.tensor([[[0.1, 0.3, 0.3, 0.3], [0.4, 0.4, 0.1, 0.1]]])
    one = torch.tensor([1])
    verdict = greedy_verify(target, None, torch.tensor([[1]]), one)
    assert (verdict.accepted.tolist(), verdict.token.tolist()) == ([1], [0])
    verdict = greedy_verify(target, None, torch.tensor([[2]]), one)
    assert (verdict.accepted.tolist(), verdict.token.tolist()) == ([0], [1])


@pytest.mark.parametrize("name", SAMPLERS)
def test_end_tokens_cut_drafts_as_in_the_oracle(name: str) -> None:
    verify, reference, law = SAMPLERS[name]
    b = make(12, 250, 4, 4)
    ends = (0, 3)
    verdict = verify(**b.arguments(), eos_ids=ends)
    for i in range(250):
        p, q, tokens = b.request(i, ends)
        cut = Batch(*(x[i : i + 1] for x in vars(b).values()))
        cut.lengths = np.array([len(tokens)])
        # The oracle reads the last uniform of the row, whatever the length.
        expected = reference(p, q, tokens, b.uniforms[i], ends)
        if not near_an_edge(cut, 0, law, expected, 1e-10):
            assert (int(verdict.accepted[i]), int(verdict.token[i])) == (
                expected.accepted,
                expected.token,
            )
    assert (verdict.token == -1).any()


@pytest.mark.parametrize("name", sorted(verifiers))
def test_nothing_is_read_or_written_behind_a_kept_end_token(name: str) -> None:
    target = torch.tensor([[[0.0, 1.0], [torch.nan, torch.nan], [torch.nan, torch.nan]]])
    verdict = verifiers[name](
        target,
        None,
        torch.tensor([[1, 0]]),
        torch.tensor([2]),
        torch.full((1, 3), TOP, dtype=torch.float64),
        eos_ids=[1],
    )
    assert (verdict.accepted.tolist(), verdict.token.tolist()) == ([1], [-1])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", sorted(verifiers))
def test_forced_tokens_are_always_kept(name: str, dtype: torch.dtype) -> None:
    """p' = q' = 1 from a float32 softmax over one legal token, with the largest uniforms."""
    logits = torch.randn(3, 5, 1000, dtype=dtype) * 10
    logits[..., 1:] = -torch.inf
    rows = logits.softmax(-1)
    tokens, lengths = torch.zeros(3, 4, dtype=torch.long), torch.tensor([4, 2, 0])
    uniforms = torch.full((3, 5), TOP, dtype=torch.float64)
    for draft in (rows[:, :-1], None):
        verdict = verifiers[name](rows, draft, tokens, lengths, uniforms)
        assert verdict.accepted.tolist() == [4, 2, 0]
        assert verdict.token.tolist() == [0, 0, 0]


@pytest.mark.parametrize("name", SAMPLERS)
def test_illegal_tokens_are_never_kept_or_drawn(name: str) -> None:
    """The smallest and the largest uniforms, where <= and rounding would let them in."""
    target = torch.zeros(2, 2, 40_001)
    target[:, :, 10:20] = torch.rand(2, 2, 10) + 0.1
    draft = torch.full((2, 1, 40_001), 1 / 40_001)
    for u in (0.0, TOP):
        uniforms = torch.full((2, 2), u, dtype=torch.float64)
        verdict = SAMPLERS[name][0](
            target, draft, torch.tensor([[5], [40_000]]), torch.ones(2, dtype=torch.long), uniforms
        )
        assert verdict.accepted.tolist() == [0, 0]
        assert verdict.token.tolist() == ([10, 10] if u == 0.0 else [19, 19])


def test_a_block_residual_carries_the_path_weight() -> None:
    """w_1 = .5 and τ = 1: y ∝ (.3 - .1, .15 - .1, 0), so .75 draws token 0; without w, token 1."""
    target = torch.tensor([[[0.5, 0.5, 0.0], [0.6, 0.3, 0.1], [1.0, 0.0, 0.0]]])
    draft = torch.tensor([[[1.0, 0.0, 0.0], [0.1, 0.1, 0.8]]])
    uniforms = torch.tensor([[0.1, 0.9, 0.75]])
    verdict = block_verify(target, draft, torch.tensor([[0, 2]]), torch.tensor([2]), uniforms)
    assert (verdict.accepted.tolist(), verdict.token.tolist()) == ([1], [0])


def test_an_exit_of_probability_zero_is_not_taken_by_a_uniform_of_zero() -> None:
    """w_1 = .5, and place 2 is forced: h_1 = 0, so τ is 0 or 2 but never 1."""
    target = torch.tensor([[[0.5, 0.5], [1.0, 0.0], [0.5, 0.5]]])
    draft = torch.tensor([[[1.0, 0.0], [1.0, 0.0]]])
    tokens, two = torch.tensor([[0, 0]]), torch.tensor([2])
    for last, accepted, token in ((0.6, 0, 1), (0.4, 2, 0)):
        verdict = block_verify(target, draft, tokens, two, torch.tensor([[0.0, last, 0.0]]))
        assert (verdict.accepted.tolist(), verdict.token.tolist()) == ([accepted], [token])


@pytest.mark.parametrize("name", SAMPLERS)
def test_equal_rows_keep_the_whole_draft_also_in_float32(name: str) -> None:
    """Rows of 50,000 float32 entries sum to 1 only roughly; dust must not reject a draft."""
    rows = (torch.randn(4, 6, 50_000, generator=torch.Generator().manual_seed(1)) * 3).softmax(-1)
    tokens = rows[:, :-1].flatten(0, 1).multinomial(1).reshape(4, 5)
    uniforms = torch.full((4, 6), 1.0 - 1e-12, dtype=torch.float64)
    scaled = rows[:, :-1] * 1.001  # the same law, badly normalised
    for draft, u in ((rows[:, :-1], uniforms), (scaled, uniforms - 1e-5)):
        verdict = SAMPLERS[name][0](rows, draft, tokens, torch.full((4,), 5), u)
        assert verdict.accepted.tolist() == [5] * 4


@pytest.mark.parametrize("name", SAMPLERS)
def test_a_request_does_not_depend_on_its_batch(name: str) -> None:
    b = make(21, 40, 5, 8)
    together = SAMPLERS[name][0](**b.arguments())
    for i in range(40):
        alone = Batch(*(x[i : i + 1] for x in vars(b).values()))
        verdict = SAMPLERS[name][0](**alone.arguments())
        assert int(verdict.accepted[0]) == int(together.accepted[i])
        assert int(verdict.token[0]) == int(together.token[i])


@pytest.mark.parametrize("name", sorted(verifiers))
def test_a_broken_target_row_is_a_model_error(name: str) -> None:
    tokens, lengths, uniforms = torch.tensor([[1]]), torch.tensor([1]), torch.rand(1, 2)
    for bad in (torch.nan, torch.inf):
        target = torch.tensor([[[0.5, 0.5], [0.5, bad]]])
        with pytest.raises(ModelError, match="row 1 of request 0"):
            verifiers[name](target, None, tokens, lengths, uniforms)
    with pytest.raises(ModelError, match=r"sums to 0\.0"):
        verifiers[name](torch.zeros(1, 2, 2), None, tokens, lengths, uniforms)


@pytest.mark.parametrize("name", SAMPLERS)
def test_drafts_that_do_not_fit_are_draft_errors(name: str) -> None:
    verify = SAMPLERS[name][0]
    target, draft = torch.full((1, 2, 2), 0.5), torch.tensor([[[1.0, 0.0]]])
    one, u = torch.tensor([1]), torch.rand(1, 2)
    with pytest.raises(DraftError, match="in its own draft row"):
        verify(target, draft, torch.tensor([[1]]), one, u)
    for wrong in (-1, 2):
        with pytest.raises(DraftError, match="outside the vocabulary of 2"):
            verify(target, None, torch.tensor([[wrong]]), one, u)
    with pytest.raises(DraftError, match=r"lie in 0\.\.1"):
        verify(target, None, torch.tensor([[0]]), torch.tensor([2]), u)
    with pytest.raises(DraftError, match=r"uniforms must have shape \(1, 2\)"):
        verify(target, None, torch.tensor([[0]]), one, torch.rand(1, 1))
    with pytest.raises(DraftError, match=r"uniforms must lie in \[0, 1\)"):
        verify(target, None, torch.tensor([[0]]), one, torch.ones(1, 2))
    with pytest.raises(DraftError, match=r"target must have shape \(1, 2, 2\)"):
        verify(target[:, :1], None, torch.tensor([[0]]), one, u)
    with pytest.raises(DraftError, match=r"draft must have shape"):
        verify(target, draft[..., :1], torch.tensor([[0]]), one, u)
    with pytest.raises(DraftError, match="tokens must be"):
        verify(target, draft, torch.tensor([0]), one, u)


def test_rows_without_mass_are_never_sampled() -> None:
    with pytest.raises(ModelError, match="row 1 to sample has mass 0"):
        sample_rows(torch.tensor([[1.0, 0.0], [0.0, 0.0]]), torch.tensor([0.5, 0.5]))
    with pytest.raises(ModelError, match="nan"):
        sample_rows(torch.tensor([[torch.nan, 0.0]]), torch.tensor([0.5]))


def test_sampling_steps_over_a_scan_that_rounds_up_at_an_empty_place(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A parallel scan may be off by an ulp; the token drawn must still have mass."""
    scan = torch.tensor([[0.25, 0.25 + 1e-9, 0.75]], dtype=torch.float64)
    monkeypatch.setattr(torch.Tensor, "cumsum", lambda self, dim: scan)
    mass = torch.tensor([[0.25, 0.0, 0.5]])
    u = torch.tensor([(0.25 + 5e-10) / 0.75], dtype=torch.float64)
    assert sample_rows(mass, u).tolist() == [2]


def test_the_registry_lists_its_choices() -> None:
    assert sorted(verifiers) == ["block", "greedy", "token"]
    assert verifier("block") is block_verify
    with pytest.raises(DraftError, match="choose one of: block, greedy, token"):
        verifier("blok")
