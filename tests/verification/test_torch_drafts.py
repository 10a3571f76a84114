"""The torch verifiers of several drafts and of trees against the oracle: decisions and laws."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from structspec.errors import DraftError, ModelError
from structspec.verification import oracle, oracle_baselines, oracle_drafts, oracle_trees
from structspec.verification.block import block_verify, pass_probabilities
from structspec.verification.drafts import DraftsBatch
from structspec.verification.layered import layered_verify, layers
from structspec.verification.randomness import Purpose, Randomness
from structspec.verification.registry import drafts_verifier, drafts_verifiers
from structspec.verification.rows import DraftBatch, Verdict
from structspec.verification.tree import (
    tree_path,
    tree_target_verify,
    without_replacement_verify,
)

Floats = NDArray[np.float64]
Text = tuple[int, ...]
TOP = 1.0 - 2.0**-53
DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]
RULES: dict[str, Any] = {
    "kseq": oracle_baselines.kseq,
    "multipath": oracle_baselines.multipath,
    "recursive": oracle_baselines.recursive,
    "traversal": oracle_baselines.traversal,
}
NAMES = sorted(drafts_verifiers)
# (requests, drafts, length, vocabulary, share of deterministic places, end tokens)
SHAPES = [
    (30, 3, 4, 3, 0.0, ()),
    (30, 3, 4, 3, 0.3, (0,)),
    (20, 4, 3, 6, 0.2, (1,)),
    (20, 1, 4, 4, 0.2, ()),
    (15, 3, 5, 60, 0.1, (2,)),
    (5, 2, 0, 3, 0.0, ()),
]


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


MEMO: dict[Any, Any] = {}


def reference(name: str, case: Any, b: int) -> oracle_drafts.DraftsDecision:
    model = case.models[b]
    arguments = (model.target, model.draft, case.drafts[b], case.uniforms[b], case.ends)
    if name == "layered":
        return oracle_drafts.layered_verify(*arguments, memo=MEMO)
    return oracle_baselines.decision_of(RULES[name], *arguments)


def law_of(name: str) -> oracle_drafts.DraftsLaw:
    if name == "layered":
        return oracle_drafts.layered_law
    return oracle_baselines.law_of(RULES[name])


def near_an_edge(
    name: str, case: Any, b: int, decision: oracle_drafts.DraftsDecision, slack: float
) -> bool:
    """Whether some uniform that was read lies within `slack` of a threshold."""
    model, ends = case.models[b], case.ends
    drafts = [oracle.cut(d, ends) for d in case.drafts[b]]
    target = partial(oracle.row_behind, model.target, ends=ends)
    rows: list[tuple[float, Floats]] = []
    if name == "layered":
        levels = oracle_drafts.layered_levels(target, model.draft, drafts, memo=MEMO)
        phi = oracle_drafts.layered_pass_probabilities(levels)
        if (np.abs(phi[1:] - case.uniforms[b, 0, 0]) < slack).any():
            return True
        residuals = levels[len(decision.prefix)].residuals
        nodes = oracle_drafts.nodes_at(drafts, len(decision.prefix))
        rows.append((case.uniforms[b, 0, -1], residuals[decision.prefix]))
        if len(nodes) > 1:
            masses = np.array([residuals[u].sum() if u in residuals else 0.0 for u in nodes])
            rows.append((case.uniforms[b, 1, -1], masses))
    else:
        gaps: list[float] = []

        def flip(k: int, i: int, chance: float) -> bool:
            gaps.append(abs(case.uniforms[b, k, i] - chance))
            return bool(case.uniforms[b, k, i] < chance)

        _, row = RULES[name](target, model.draft, drafts, flip, {})
        rows.append((case.uniforms[b, 0, -1], row))
        if min(gaps, default=1.0) < slack:
            return True
    return any((np.abs(np.cumsum(m) / m.sum() - u) < slack).any() for u, m in rows)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("name", NAMES)
def test_decisions_equal_the_oracle_on_ragged_batches_of_drafts(
    drafts_case: Callable[..., Any], name: str, dtype: Any, device: str
) -> None:
    """Float32 rows are widened and normalised, so the oracle sees the same numbers."""
    kept: Counter[int] = Counter()
    skipped = 0
    for seed, shape in enumerate(SHAPES):
        size, count, length, vocab, hot, ends = shape
        case = drafts_case(size, count, length, vocab, seed, hot, ends, dtype)
        verdict = drafts_verifiers[name](**case.arguments(device))
        assert verdict.row is not None
        for b in range(size):
            expected = reference(name, case, b)
            if near_an_edge(name, case, b, expected, 1e-6):
                skipped += 1
                continue
            accepted, row = int(verdict.accepted[b]), int(verdict.row[b])
            got = (case.drafts[b][row][:accepted], int(verdict.token[b]))
            assert got == (expected.prefix, expected.token), (shape, b)
            kept[accepted] += 1
    assert skipped < 4
    assert min(kept[i] for i in range(5)) > 0


@pytest.mark.parametrize("device", DEVICES)
def test_layered_probabilities_and_residuals_equal_the_oracle(
    drafts_case: Callable[..., Any], device: str
) -> None:
    for seed, (size, count, length, vocab, hot, ends) in enumerate(SHAPES):
        case = drafts_case(size, count, length, vocab, seed, hot, ends)
        arguments = case.arguments(device)
        del arguments["uniforms"]
        batch = DraftsBatch(**arguments)
        found = layers(batch)
        for b in range(size):
            target = partial(oracle.row_behind, case.models[b].target, ends=ends)
            drafts = [oracle.cut(d, ends) for d in case.drafts[b]]
            levels = oracle_drafts.layered_levels(target, case.models[b].draft, drafts)
            for i, level in enumerate(levels):
                assert float(found.f[b, i]) == pytest.approx(level.f, abs=1e-10)
                assert float(found.g[b, i]) == pytest.approx(level.g, abs=1e-10)
                for u, weight in level.weights.items():
                    k = int(batch.owner[b, drafts.index(next(d for d in drafts if d[:i] == u)), i])
                    assert float(found.weights[b, i, k]) == pytest.approx(weight, abs=1e-10)
                    mass = level.residuals[u].sum()
                    assert float(found.masses[b, i, k]) == pytest.approx(mass, abs=1e-10)


@pytest.mark.parametrize("name", NAMES)
def test_a_request_of_several_drafts_does_not_depend_on_its_batch(
    drafts_case: Callable[..., Any], name: str
) -> None:
    case = drafts_case(25, 3, 4, 5, 11, 0.2, (1,))
    together = drafts_verifiers[name](**case.arguments())
    for b in range(25):
        alone = drafts_verifiers[name](**case.of_request(b))
        for field in ("accepted", "token", "row"):
            assert int(getattr(alone, field)[0]) == int(getattr(together, field)[b])


@pytest.mark.parametrize("name", NAMES)
def test_padding_drafts_and_lengths_changes_nothing(
    drafts_case: Callable[..., Any], name: str
) -> None:
    """Two more drafts of length 0 and three more places; uniforms keep their names."""
    case = drafts_case(30, 2, 3, 4, 5)
    noise = Randomness(3)
    requests, steps = list(range(30)), [7] * 30
    arguments = case.arguments()
    arguments["uniforms"] = torch.from_numpy(noise.for_drafts(requests, steps, 2, 3))
    narrow = drafts_verifiers[name](**arguments)
    wide: dict[str, Any] = {"eos_ids": ()}
    for key, fill in (("target", torch.nan), ("draft", torch.nan), ("tokens", -1), ("onehot", 0)):
        value = arguments[key]
        shape = (30, 4, value.shape[2] + 3, *value.shape[3:])
        wide[key] = torch.full(shape, fill, dtype=value.dtype)
        wide[key][:, :2, : value.shape[2]] = value
    # A request without any draft reads the root's row from its first draft.
    wide["lengths"] = torch.cat([arguments["lengths"], torch.zeros(30, 2, dtype=torch.long)], 1)
    wide["uniforms"] = torch.from_numpy(noise.for_drafts(requests, steps, 4, 6))
    padded = drafts_verifiers[name](**wide)
    assert torch.equal(padded.accepted, narrow.accepted)
    assert torch.equal(padded.token, narrow.token)
    assert torch.equal(padded.row, narrow.row)


def test_layered_with_one_draft_has_the_exit_law_of_block(
    drafts_case: Callable[..., Any],
) -> None:
    """1 - h_i = f_i / g_i, also in torch; and what is certain in one is certain in the other."""
    case = drafts_case(60, 1, 5, 6, 2, 0.2)
    arguments = case.arguments()
    uniforms = arguments.pop("uniforms")
    found = layers(DraftsBatch(**arguments))
    single = {k: v[:, 0] if isinstance(v, torch.Tensor) else v for k, v in arguments.items()}
    h = pass_probabilities(DraftBatch(**single))
    for b in range(60):
        for i in range(1, int(arguments["lengths"][b, 0]) + 1):
            if found.g[b, i] > 1e-9:
                ratio = float(found.f[b, i] / found.g[b, i])
                assert 1.0 - ratio == pytest.approx(float(h[b, i - 1]), abs=1e-6)
    # Block keeps what has u < h, layered what has U >= Φ: only certain prefixes on either side.
    block = block_verify(uniforms=torch.full_like(uniforms[:, 0], 1.0 - 1e-9), **single)
    layered = layered_verify(uniforms=torch.full_like(uniforms, 1e-9), **arguments)
    assert torch.equal(layered.accepted, block.accepted)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("kind", ["random", "eos"])
def test_frequencies_over_a_lattice_of_uniforms_are_the_law_of_the_oracle(
    tiny: Callable[[str, int, int], Any], name: str, kind: str
) -> None:
    """The torch code's own law of each set of two drafts of two tokens."""
    m = tiny(kind, 2, 8)
    points = torch.quasirandom.SobolEngine(6, scramble=False).draw(2**10, dtype=torch.float64)
    size = len(points)
    uniforms = points.view(size, 2, 3)
    target = partial(oracle.row_behind, m.target, ends=m.ends)
    for drafts, _ in oracle_drafts.all_draft_sets(m.draft, [2, 2], (), m.ends):
        p, q = np.zeros((2, 3, 2)), np.zeros((2, 2, 2))
        tokens = np.zeros((2, 2), dtype=np.int64)
        for k, drafted in enumerate(drafts):
            tokens[k, : len(drafted)] = drafted
            for i in range(len(drafted) + 1):
                p[k, i] = target(drafted[:i])
                if i < len(drafted):
                    q[k, i] = m.draft(drafted[:i])
        verdict: Verdict = drafts_verifiers[name](
            torch.from_numpy(p).expand(size, -1, -1, -1),
            torch.from_numpy(q).expand(size, -1, -1, -1),
            torch.from_numpy(tokens).expand(size, -1, -1),
            torch.tensor([[len(d) for d in drafts]]).expand(size, -1),
            uniforms,
            eos_ids=m.ends,
        )
        assert verdict.row is not None
        answers = (verdict.row.tolist(), verdict.accepted.tolist(), verdict.token.tolist())
        outcomes = Counter((drafts[k][:n], x) for k, n, x in zip(*answers, strict=True))
        exact: Counter[tuple[Text, int]] = Counter()
        for kept, row in law_of(name)(target, m.draft, drafts).items():
            over = bool(kept and kept[-1] in m.ends)
            for x in range(2):
                exact[kept, -1 if over else x] += row[x]
        for outcome in {*outcomes, *exact}:
            assert outcomes[outcome] / size == pytest.approx(exact[outcome], abs=0.03)


@pytest.mark.parametrize("name", NAMES)
def test_deterministic_drafts_need_no_draft_rows(
    drafts_case: Callable[..., Any], name: str
) -> None:
    case = drafts_case(60, 2, 4, 5, 4, hot=1.0)
    arguments = case.arguments()
    dense = dict(arguments, onehot=None)
    hot = np.eye(5)[np.maximum(case.arrays[2], 0)]
    dense["draft"] = torch.from_numpy(hot)
    sparse = dict(arguments, draft=None, onehot=None)
    marked = drafts_verifiers[name](**arguments)
    for other in (dense, sparse):
        verdict = drafts_verifiers[name](**other)
        assert torch.equal(verdict.accepted, marked.accepted)
        assert torch.equal(verdict.token, marked.token)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_forced_and_equal_rows_are_kept_for_certain(name: str, dtype: torch.dtype) -> None:
    """p = q everywhere: with two or more drafts nothing is refused, whatever the uniforms."""
    generator = torch.Generator().manual_seed(1)
    row = (torch.randn(2000, generator=generator, dtype=dtype) * 3).softmax(-1)
    target = row.expand(3, 3, 5, -1)
    tokens = row.double().multinomial(36, replacement=True, generator=generator).view(3, 3, 4)
    # The least favourable uniforms: layered keeps what has U >= Φ, the others what has u < h.
    edge = 1e-12 if name == "layered" else 1.0 - 1e-12
    uniforms = torch.full((3, 3, 5), edge, dtype=torch.float64)
    lengths = torch.tensor([[4, 4, 4], [2, 2, 2], [0, 0, 0]])
    verdict = drafts_verifiers[name](target, target[:, :, :-1], tokens, lengths, uniforms)
    if name != "multipath":  # which judges the chosen path by another law than q
        assert verdict.accepted.tolist() == [4, 2, 0]
    forced = torch.zeros(3, 3, 5, 9, dtype=dtype)
    forced[..., 7] = 1.0
    for draft in (forced[:, :, :-1], None):
        verdict = drafts_verifiers[name](forced, draft, torch.full((3, 3, 4), 7), lengths, uniforms)
        assert verdict.accepted.tolist() == [4, 2, 0]
        assert verdict.token.tolist() == [7, 7, 7]


@pytest.mark.parametrize("name", NAMES)
def test_illegal_drafts_are_never_kept_and_illegal_tokens_never_written(name: str) -> None:
    target = torch.zeros(2, 2, 3, 5000)
    target[..., 10:20] = torch.rand(10, generator=torch.Generator().manual_seed(0)) + 0.1
    draft = torch.full((2, 2, 2, 5000), 1 / 5000)
    tokens = torch.tensor([[[5, 11], [4999, 12]]] * 2)
    for u in (0.0, TOP):
        uniforms = torch.full((2, 2, 3), u, dtype=torch.float64)
        verdict = drafts_verifiers[name](target, draft, tokens, torch.full((2, 2), 2), uniforms)
        assert verdict.accepted.tolist() == [0, 0]
        assert verdict.token.tolist() == [10, 10] if u == 0.0 else [19, 19]


@pytest.mark.parametrize("name", NAMES)
def test_nothing_is_read_or_written_behind_a_kept_end_token_of_a_draft(name: str) -> None:
    target = torch.tensor([[[0.0, 1.0], [torch.nan, torch.nan], [torch.nan, torch.nan]]])
    verdict = drafts_verifiers[name](
        target.expand(1, 2, 3, 2),
        None,
        torch.tensor([[[1, 0], [1, 1]]]),
        torch.tensor([[2, 2]]),
        torch.full((1, 2, 3), TOP, dtype=torch.float64),
        eos_ids=[1],
    )
    assert (verdict.accepted.tolist(), verdict.token.tolist()) == ([1], [-1])


@pytest.mark.parametrize("name", NAMES)
def test_bad_rows_and_drafts_are_typed_errors_that_name_the_draft(name: str) -> None:
    verify = drafts_verifiers[name]
    target, draft = torch.full((2, 2, 2, 2), 0.5), torch.full((2, 2, 1, 2), 0.5)
    tokens, lengths, u = torch.zeros(2, 2, 1).long(), torch.ones(2, 2).long(), torch.rand(2, 2, 2)
    bad = target.clone()
    bad[1, 0, 0] = torch.nan
    with pytest.raises(ModelError, match="row 0 of draft 0 of request 1"):
        verify(bad, draft, tokens, lengths, u)
    hopeless = torch.tensor([1.0, 0.0]).expand(2, 2, 1, 2)
    with pytest.raises(DraftError, match="place 0 of draft 0 of request 0 has probability 0"):
        verify(target, hopeless, tokens + 1, lengths, u)
    with pytest.raises(DraftError, match="drafted id -1 at place 0 of draft 0 of request 0"):
        verify(target, None, tokens - 1, lengths, u)
    with pytest.raises(DraftError, match=r"uniforms must have shape \(2, 2, 2\)"):
        verify(target, draft, tokens, lengths, u[:, 0])
    with pytest.raises(DraftError, match=r"target must have shape \(2, 2, 2, 2\)"):
        verify(target[:, :, :1], draft, tokens, lengths, u)
    with pytest.raises(DraftError, match=r"lengths must have shape \(2, 2\)"):
        verify(target, draft, tokens, lengths[0], u)
    with pytest.raises(DraftError, match="K >= 1"):
        verify(target[:, :0], None, tokens[:, :0], lengths[:, :0], u)
    with pytest.raises(DraftError, match="at most 127 drafts"):
        many = torch.full((1, 128, 1, 2), 0.5)
        verify(many, None, torch.zeros(1, 128, 0), torch.zeros(1, 128), None)


def flat_tree(tree: oracle_trees.Tree) -> tuple[list[int], list[int]]:
    """Tokens and parents in pre-order."""
    tokens: list[int] = []
    parents: list[int] = []

    def add(tree: oracle_trees.Tree, parent: int) -> None:
        for token, below in tree:
            tokens.append(token)
            parents.append(parent)
            add(below, len(tokens) - 1)

    add(tree, -1)
    return tokens, parents


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("kind", ["random", "zeros", "singletons", "eos", "masks", "stops"])
def test_tree_decisions_equal_the_oracle(
    tiny: Callable[[str, int, int], Any], kind: str, dtype: Any
) -> None:
    """All trees of one model in one ragged batch, for both rules, padding unreadable."""
    m = tiny(kind, 3, 3)
    trees = [tree for tree, _ in oracle_trees.all_trees(m.draft, [2, 2], (), m.ends)]
    size, most = len(trees), max(len(flat_tree(t)[0]) for t in trees)
    tokens, parents = np.full((size, most), -1), np.full((size, most), most)
    p, q = np.full((size, most + 1, 3), np.nan, dtype), np.full((size, most + 1, 3), np.nan, dtype)
    sizes = np.zeros(size, dtype=np.int64)
    for b, tree in enumerate(trees):
        flat, above = flat_tree(tree)
        sizes[b] = len(flat)
        tokens[b, : len(flat)], parents[b, : len(flat)] = flat, above
        paths: list[Text] = [()]
        for token, parent in zip(flat, above, strict=True):
            paths.append((*paths[parent + 1], token))
        for n, path in enumerate(paths):
            if not (path and path[-1] in m.ends):
                p[b, n] = m.target(path)
                q[b, n] = np.nan if m.draft(path) is None else m.draft(path)
    uniforms = np.random.default_rng(1).random((size, most + 1))
    on = torch.from_numpy
    layout = (on(tokens), on(parents), on(sizes), on(uniforms))
    walked = tree_target_verify(on(p), *layout, eos_ids=m.ends)
    tried = without_replacement_verify(on(p), on(q), *layout, eos_ids=m.ends)
    for verdict in (walked, tried):
        assert verdict.row is not None
    for b, tree in enumerate(trees):
        for verdict, expected in (
            (walked, oracle_trees.tree_target_verify(m.target, tree, uniforms[b], m.ends)),
            (
                tried,
                oracle_trees.without_replacement_verify(
                    m.target, m.draft, tree, uniforms[b], m.ends
                ),
            ),
        ):
            path = tree_path(on(parents), verdict.row)[b]
            assert tuple(tokens[b, path].tolist()) == expected.prefix
            assert int(verdict.accepted[b]) == len(expected.prefix)
            assert int(verdict.token[b]) == expected.token
    if kind == "random":
        assert len(set(walked.accepted.tolist())) == len(set(tried.accepted.tolist())) == 3


def test_a_fork_drafted_whole_is_kept_for_certain() -> None:
    """Three legal tokens, all drafted: one of them is always kept."""
    target = torch.zeros(64, 4, 1000)
    target[:, 0, [3, 50, 999]] = torch.tensor([0.2, 0.5, 0.3])
    target[:, 1:, 7] = 1.0
    tokens, parents = torch.tensor([[3, 50, 999]] * 64), torch.full((64, 3), -1)
    uniforms = torch.rand(64, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    verdict = tree_target_verify(target, tokens, parents, torch.full((64,), 3), uniforms)
    assert verdict.accepted.tolist() == [1] * 64
    assert verdict.token.tolist() == [7] * 64
    assert set(verdict.row.tolist()) == {0, 1, 2}


def test_trees_that_do_not_fit_are_draft_errors() -> None:
    target, u = torch.full((1, 3, 2), 0.5), torch.rand(1, 3)
    tokens, two = torch.tensor([[0, 1]]), torch.tensor([2])
    with pytest.raises(DraftError, match="node 1 of request 0 has parent 1: its parent must stand"):
        tree_target_verify(target, tokens, torch.tensor([[-1, 1]]), two, u)
    with pytest.raises(DraftError, match="node 1 of request 0 has parent -1: its parent has the"):
        tree_target_verify(target, tokens * 0, torch.tensor([[-1, -1]]), two, u)
    with pytest.raises(DraftError, match="parents must have shape"):
        tree_target_verify(target, tokens, torch.tensor([[-1]]), two, u)
    with pytest.raises(DraftError, match="draft must have shape"):
        without_replacement_verify(target, target[:, :2], tokens, torch.tensor([[-1, 0]]), two, u)
    with pytest.raises(ModelError, match="row 1 of request 0"):
        broken = target.clone()
        broken[0, 1] = torch.inf
        tree_target_verify(broken, tokens, torch.tensor([[-1, 0]]), two, u)


def test_uniforms_for_drafts_are_those_of_single_drafts() -> None:
    noise = Randomness(5)
    whole = noise.for_drafts([4, 9], [0, 3], 3, 5)
    assert whole.shape == (2, 3, 6)
    assert (whole[:, 0] == noise.for_verification([4, 9], [0, 3], 5)).all()
    assert (whole[1, 2, :5] == noise.uniforms(9, 3, Purpose.ACCEPT, row=2, count=5)).all()
    assert (whole[1, 2, 5] == noise.uniforms(9, 3, Purpose.EMIT, row=2)[0]).all()
    assert (noise.for_drafts([4, 9], [0, 3], 2, 3)[:, :, :3] == whole[:, :2, :3]).all()
    assert (noise.for_drafts([4, 9], [0, 3], 2, 3)[:, :, 3] == whole[:, :2, 5]).all()


def test_the_registry_tells_one_draft_from_several() -> None:
    assert NAMES == ["kseq", "layered", "multipath", "recursive", "traversal"]
    assert drafts_verifier("layered") is layered_verify
    with pytest.raises(DraftError, match="'block' verifies one draft; choose one of: kseq"):
        drafts_verifier("block")
    with pytest.raises(DraftError, match="there is no verifier 'laired'"):
        drafts_verifier("laired")


def test_uniforms_are_taken_as_randomness_makes_them() -> None:
    """Arrays of `Randomness.for_drafts` decide as the same numbers in a tensor do."""
    generator = torch.Generator().manual_seed(1)
    target = torch.rand(2, 3, 3, 5, generator=generator, dtype=torch.float64)
    draft = torch.rand(2, 3, 2, 5, generator=generator, dtype=torch.float64)
    target[:] = target[:, :1]  # rows at a shared prefix are the same
    draft[:] = draft[:, :1]
    target, draft = (rows / rows.sum(-1, keepdim=True) for rows in (target, draft))
    tokens = torch.randint(5, (2, 3, 2), generator=generator)
    lengths = torch.full((2, 3), 2)
    noise = Randomness(7).for_drafts([0, 1], [0, 0], 3, 2)
    for name in ("layered", "kseq"):
        verify = drafts_verifier(name)
        given = verify(target, draft, tokens, lengths, noise)
        same = verify(target, draft, tokens, lengths, torch.from_numpy(noise))
        for field in ("accepted", "row", "token"):
            assert torch.equal(getattr(given, field), getattr(same, field))
