"""What verifiers keep, beside the most that any lossless rule can keep."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

from structspec.verification import oracle, oracle_baselines, oracle_drafts
from structspec.verification.optimum import optimal_accepted_of_drafts

pytest.importorskip("scipy", reason="the optimum needs scipy: pip install 'structspec[test]'")

Tiny = Callable[[str, int, int], Any]
SEEDS = range(12)
SHAPES = [(3, [2, 2]), (2, [3, 3]), (3, [1, 1, 1]), (2, [2, 2, 2]), (4, [1, 1])]
RULES = {
    "kseq": oracle_baselines.kseq,
    "recursive": oracle_baselines.recursive,
    "traversal": oracle_baselines.traversal,
    "multipath": oracle_baselines.multipath,
}


def kept(law: oracle_drafts.DraftsLaw, m: Any, lengths: list[int]) -> float:
    return oracle_drafts.expected_accepted_of_drafts(law, m.target, m.draft, lengths, (), m.ends)


def layered() -> oracle_drafts.DraftsLaw:
    return partial(oracle_drafts.layered_law, memo={})


@pytest.mark.parametrize("kind", ["random", "zeros", "equal", "mixed", "eos", "stops", "automaton"])
def test_block_verification_is_the_programs_optimum_for_one_draft(tiny: Tiny, kind: str) -> None:
    for vocab, length in ((3, 3), (2, 4), (4, 2)):
        m = tiny(kind, vocab, 3)
        best = optimal_accepted_of_drafts(m.target, m.draft, [length], (), m.ends)
        block = oracle.expected_accepted(oracle.block_law, m.target, m.draft, length, (), m.ends)
        closed = oracle.optimal_accepted(m.target, m.draft, length, (), m.ends)
        assert best == pytest.approx(closed, abs=1e-9)
        assert block == pytest.approx(best, abs=1e-9)


@pytest.mark.parametrize("shape", SHAPES)
def test_layered_keeps_on_average_95_percent_of_the_optimum(
    tiny: Tiny, shape: tuple[int, list[int]], record_property: Any
) -> None:
    """The committed seeds; the worst single case is printed with -rP and must stay above .9."""
    vocab, lengths = shape
    ratios = []
    for seed in SEEDS:
        m = tiny("random", vocab, seed)
        best = optimal_accepted_of_drafts(m.target, m.draft, lengths)
        ratios.append(kept(layered(), m, lengths) / best)
    print(f"{shape}: mean {np.mean(ratios):.4f}, worst {min(ratios):.4f} of the optimum")
    assert np.mean(ratios) >= 0.95
    assert min(ratios) >= 0.9
    assert max(ratios) <= 1.0 + 1e-9


@pytest.mark.parametrize("name", [*RULES, "layered"])
@pytest.mark.parametrize("kind", ["random", "zeros", "duplicates", "eos", "masks", "automaton"])
def test_no_rule_exceeds_the_optimum(tiny: Tiny, name: str, kind: str) -> None:
    for vocab, lengths in ((3, [2, 1]), (2, [2, 2, 2])):
        m = tiny(kind, vocab, 6)
        law = layered() if name == "layered" else oracle_baselines.law_of(RULES[name])
        best = optimal_accepted_of_drafts(m.target, m.draft, lengths, (), m.ends)
        assert kept(law, m, lengths) <= best + 1e-9


def test_more_drafts_never_lower_the_optimum_and_raise_it_somewhere(tiny: Tiny) -> None:
    gains = []
    for seed in range(6):
        m = tiny("random", 2, seed)
        best = [optimal_accepted_of_drafts(m.target, m.draft, [2] * k) for k in (1, 2, 3)]
        gains += np.diff(best).tolist()
    assert min(gains) >= -1e-9
    assert max(gains) > 0.05


def test_layered_keeps_more_than_every_baseline_on_average(tiny: Tiny) -> None:
    totals = dict.fromkeys([*RULES, "layered", "one draft"], 0.0)
    for seed in SEEDS:
        m = tiny("random", 3, seed)
        for name, rule in RULES.items():
            totals[name] += kept(oracle_baselines.law_of(rule), m, [2, 2])
        totals["layered"] += kept(layered(), m, [2, 2])
        totals["one draft"] += kept(layered(), m, [2])
    assert max(totals, key=lambda name: totals[name]) == "layered"


def test_a_good_draft_makes_multipath_worse_than_one_draft() -> None:
    """p = q: one draft is kept whole, the greedy path of two is not drawn from q any more."""
    row = np.array([0.5, 0.3, 0.2])
    target = draft = lambda text: row
    two = oracle_drafts.expected_accepted_of_drafts(
        oracle_baselines.law_of(oracle_baselines.multipath), target, draft, [2, 2]
    )
    assert oracle.expected_accepted(oracle.block_law, target, draft, 2) == pytest.approx(2.0)
    assert two < 1.9
    best = oracle_drafts.expected_accepted_of_drafts(layered(), target, draft, [2, 2])
    assert best == pytest.approx(2.0)


def test_without_scipy_the_optimum_names_the_extra(
    monkeypatch: pytest.MonkeyPatch, tiny: Tiny
) -> None:
    import sys

    from structspec.errors import MissingExtra

    monkeypatch.setitem(sys.modules, "scipy.optimize", None)
    m = tiny("random", 2, 0)
    with pytest.raises(MissingExtra, match=r"structspec\[test\]"):
        optimal_accepted_of_drafts(m.target, m.draft, [1])
