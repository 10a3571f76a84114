"""Several drafts and trees are lossless: exact enumeration over tiny vocabularies, in float64."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import pytest

from structspec.verification import (
    oracle,
    oracle_baselines,
    oracle_drafts,
    oracle_levels,
    oracle_trees,
)

Tiny = Callable[[str, int, int], Any]
Text = tuple[int, ...]

KINDS = [
    "random",
    "zeros",
    "singletons",
    "equal",
    "onehot",
    "mixed",
    "duplicates",
    "eos",
    "stops",
    "masks",
    "automaton",
]
# (vocabulary, the drafts' lengths): equal, unequal and absent ones
SHAPES = [(2, [3, 3]), (3, [2, 2]), (2, [2, 2, 2]), (3, [2, 1]), (2, [3, 0, 1, 2]), (4, [1, 1, 1])]
RULES: dict[str, Any] = {
    "kseq": oracle_baselines.kseq,
    "recursive": oracle_baselines.recursive,
    "traversal": oracle_baselines.traversal,
    "multipath": oracle_baselines.multipath,
}
LAYERED = {f"layered-{rounds}": rounds for rounds in (1, 2, 3)}
EXACT = [*RULES, *LAYERED]


def law_of(name: str) -> oracle_drafts.DraftsLaw:
    if name in RULES:
        return oracle_baselines.law_of(RULES[name])
    return partial(oracle_drafts.layered_law, rounds=LAYERED[name], memo={})


def error_of(law: oracle_drafts.DraftsLaw, m: Any, lengths: Sequence[int], **more: Any) -> float:
    total = max(lengths) + 1
    exact = oracle_drafts.output_law_of_drafts(
        law, m.target, m.draft, lengths, total, m.ends, **more
    )
    return oracle.distance(exact, oracle.plain_law(m.target, total, m.ends))


@pytest.mark.parametrize("name", EXACT)
@pytest.mark.parametrize("kind", KINDS)
def test_law_of_the_text_with_several_drafts_is_the_target_law(
    tiny: Tiny, name: str, kind: str
) -> None:
    for vocab, lengths in SHAPES:
        assert error_of(law_of(name), tiny(kind, vocab, 1), lengths) <= 1e-12, (vocab, lengths)


@pytest.mark.full
@pytest.mark.parametrize("name", EXACT)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", [(2, [4, 4, 4]), (3, [3, 3]), (4, [2, 2]), (3, [2, 2, 2])])
def test_law_with_several_drafts_is_exact_at_larger_sizes(
    tiny: Tiny, name: str, kind: str, shape: tuple[int, list[int]]
) -> None:
    for seed in (2, 3):
        assert error_of(law_of(name), tiny(kind, shape[0], seed), shape[1]) <= 1e-12


@pytest.mark.full
@pytest.mark.parametrize("name", ["layered-2", "kseq", "recursive"])
def test_law_is_exact_over_65536_sets_of_drafts(tiny: Tiny, name: str) -> None:
    """V^(K·L) = 2^16, the largest size that is enumerated."""
    m = tiny("random", 2, 4)
    assert sum(1 for _ in oracle_drafts.all_draft_sets(m.draft, [4, 4, 4, 4])) == 2**16
    assert error_of(law_of(name), m, [4, 4, 4, 4]) <= 1e-12


@pytest.mark.parametrize("name", EXACT)
@pytest.mark.parametrize("kind", ["random", "eos", "automaton"])
def test_several_steps_of_several_drafts_keep_the_law(tiny: Tiny, name: str, kind: str) -> None:
    m = tiny(kind, 3, 5)
    assert error_of(law_of(name), m, [2, 1], speculate_again=True) <= 1e-12


@pytest.mark.parametrize("kind", KINDS)
def test_layered_with_one_draft_is_block_verification(tiny: Tiny, kind: str) -> None:
    """The conditional exit law 1 - h_i = f_i / g_i, and the same masses at every exit."""
    for vocab, length in ((3, 3), (2, 4)):
        m = tiny(kind, vocab, 7)
        target = partial(oracle.row_behind, m.target, ends=m.ends)
        for tokens, _, q in oracle.all_drafts(m.draft, length, (), m.ends):
            p = np.stack([target(tokens[:i]) for i in range(len(tokens) + 1)])
            block = oracle.block_law(p, q, tokens)
            layered = oracle_drafts.layered_law(target, m.draft, [tokens])
            for i in range(len(tokens) + 1):
                row = layered.get(tokens[:i], np.zeros(vocab))
                assert row == pytest.approx(block.exit[i] * block.emit[i], abs=1e-12)
            h = oracle.block_pass_probabilities(p, q, tokens)
            levels = oracle_drafts.layered_levels(target, m.draft, [tokens])
            for level, passing in zip(levels[1:], h, strict=True):
                if level.g > 1e-9:
                    assert 1.0 - level.f / level.g == pytest.approx(passing, abs=1e-7)


@pytest.mark.parametrize("kind", KINDS)
def test_layered_of_one_token_in_one_round_is_kseq(tiny: Tiny, kind: str) -> None:
    m = tiny(kind, 4, 3)
    kseq = oracle_baselines.law_of(RULES["kseq"])
    for drafts, _ in oracle_drafts.all_draft_sets(m.draft, [1, 1, 1], (), m.ends):
        target = partial(oracle.row_behind, m.target, ends=m.ends)
        one = oracle_drafts.layered_law(target, m.draft, drafts, rounds=1)
        other = kseq(target, m.draft, drafts)
        for kept in {*one, *other}:
            none = np.zeros(4)
            assert one.get(kept, none) == pytest.approx(other.get(kept, none), abs=1e-12)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["traversal", "multipath", "kseq", "recursive"])
def test_baselines_with_one_draft_are_the_rules_that_they_generalise(
    tiny: Tiny, kind: str, name: str
) -> None:
    m = tiny(kind, 3, 2)
    single = oracle.block_law if name in ("traversal", "multipath") else oracle.token_law
    kept = oracle_drafts.expected_accepted_of_drafts(
        law_of(name), m.target, m.draft, [3], (), m.ends
    )
    expected = oracle.expected_accepted(single, m.target, m.draft, 3, (), m.ends)
    assert kept == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("kind", ["random", "zeros", "duplicates", "masks", "eos", "automaton"])
def test_the_published_law_of_greedy_paths_is_exact_for_drafts_of_one_length(
    tiny: Tiny, kind: str
) -> None:
    rule = partial(oracle_baselines.multipath, marginal=True)
    for vocab, lengths in ((2, [3, 3]), (3, [2, 2, 2])):
        assert error_of(oracle_baselines.law_of(rule), tiny(kind, vocab, 1), lengths) <= 1e-12


@pytest.mark.parametrize("kind", KINDS)
def test_both_rules_for_trees_keep_the_target_law(tiny: Tiny, kind: str) -> None:
    """Any drawn tree serves `tree_target`: given the tree it is deterministic."""
    for vocab, widths in ((3, [2, 2]), (2, [2, 1, 2]), (4, [3]), (3, [3, 1])):
        m = tiny(kind, vocab, 1)
        plain = oracle.plain_law(m.target, len(widths) + 1, m.ends)
        for law in (
            oracle_trees.without_replacement_law,
            lambda p, q, tree: oracle_trees.tree_target_law(p, tree),
        ):
            exact = oracle_trees.output_law_of_trees(
                law, m.target, m.draft, widths, len(widths) + 1, m.ends
            )
            assert oracle.distance(exact, plain) <= 1e-12


def test_a_deterministic_tree_is_kept_with_the_targets_mass_on_it(tiny: Tiny) -> None:
    """Σ_{v in T} p(v), which no lossless rule exceeds."""
    m = tiny("random", 3, 1)
    tree: oracle_trees.Tree = ((2, ((0, ()), (1, ((1, ()),)))), (0, ()))
    law = oracle_trees.tree_target_law(m.target, tree)
    nodes = [(2,), (2, 0), (2, 1), (2, 1, 1), (0,)]
    mass = [np.prod([m.target(v[:i])[x] for i, x in enumerate(v)]) for v in nodes]
    kept = sum(len(u) * row.sum() for u, row in law.items())
    assert kept == pytest.approx(sum(mass), abs=1e-15)


def test_decisions_of_layered_follow_its_law(tiny: Tiny) -> None:
    m = tiny("zeros", 2, 4)
    rng = np.random.default_rng(0)
    memo: dict[Any, Any] = {}
    for drafts, _ in oracle_drafts.all_draft_sets(m.draft, [2, 2]):
        exact = oracle_drafts.layered_law(m.target, m.draft, drafts)
        counts = {u: np.zeros(2) for u in exact}
        for u in rng.random((600, 2, 3)):
            decision = oracle_drafts.layered_verify(m.target, m.draft, drafts, u, memo=memo)
            counts[decision.prefix][decision.token] += 1 / 600
        for u, row in exact.items():
            assert counts[u] == pytest.approx(row, abs=0.09)


def test_rates_are_valid_and_nearly_the_largest() -> None:
    """y κ(β(y)) <= 1, which keeps F <= c; and a rate 2 % larger breaks it."""
    rng = np.random.default_rng(0)
    for m in (2, 3, 5):
        count = np.array([float(m)])
        for _ in range(40):
            q, c = rng.dirichlet(np.full(9, 0.5)), rng.dirichlet(np.full(9, 0.5))
            beta = np.minimum(q, oracle_levels.edges(count[:, None]).T * c).sum(axis=1)
            y = float(oracle_levels.largest_rate(beta[None], count)[0])
            for rate, valid in ((y, True), (1.02 * y, False)):
                exact = np.array([np.minimum(q, rate * c).sum()])
                product = rate * float(oracle_levels.kappa(exact, count)[0])
                assert product <= 1.0 + 1e-12 if valid or y == 1.0 else product > 1.0


def test_spectr_gbv_without_its_correction_is_not_the_target_law(tiny: Tiny) -> None:
    """Comparison only: its one-step law is off by percents, for one draft too."""
    for lengths in ([2], [2, 2]):
        errors = []
        for seed in range(6):
            m = tiny("random", 3, seed)
            law = oracle_drafts.output_law_of_drafts(
                oracle_baselines.spectr_gbv_law, m.target, m.draft, lengths, 3
            )
            assert sum(law.values()) == pytest.approx(1.0)
            errors.append(oracle.distance(law, oracle.plain_law(m.target, 3)))
        assert max(errors) > 1e-2


def test_the_objective_of_spectr_gbv_exceeds_exact_steps_for_one_draft(tiny: Tiny) -> None:
    """Σ min(P, Q) over paths: without its correction in later steps nothing reaches it."""
    gaps = []
    for seed in range(6):
        m = tiny("random", 3, seed)
        stated = oracle_baselines.spectr_gbv_objective(m.target, m.draft, 1, 3)
        gaps.append(stated - oracle.optimal_accepted(m.target, m.draft, 3))
    assert min(gaps) >= -1e-12
    assert max(gaps) > 1e-2


def test_a_uniform_target_shows_the_objective_of_spectr_gbv() -> None:
    p, q = np.array([0.5, 0.5]), np.array([0.9, 0.1])
    stated = oracle_baselines.spectr_gbv_objective(lambda t: p, lambda t: q, 2, 1)
    assert stated == pytest.approx(0.5 * 1.0 + 0.5 * (1 - (1 - 0.2) ** 2))
    longer = oracle_baselines.spectr_gbv_objective(lambda t: p, lambda t: q, 1, 2)
    joint = [0.25, 0.25, 0.25, 0.25], [0.81, 0.09, 0.09, 0.01]
    assert longer == pytest.approx(0.6 + np.minimum(*map(np.array, joint)).sum())
