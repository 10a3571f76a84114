"""Tempting shortcuts with several drafts change the law, and the law test sees each of them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from structspec.verification import oracle, oracle_baselines, oracle_drafts, oracle_levels

Tiny = Callable[[str, int, int], Any]
Text = tuple[int, ...]
Floats = NDArray[np.float64]
VISIBLE = 1e-3
EXACT = 1e-12

LAWS: dict[str, oracle_drafts.DraftsLaw] = {
    "layered": partial(oracle_drafts.layered_law, memo={}),
    "kseq": oracle_baselines.law_of(oracle_baselines.kseq),
    "recursive": oracle_baselines.law_of(oracle_baselines.recursive),
    "traversal": oracle_baselines.law_of(oracle_baselines.traversal),
    "multipath": oracle_baselines.law_of(oracle_baselines.multipath),
}


def errors_of(
    law: oracle_drafts.DraftsLaw, models: Iterable[Any], lengths: Sequence[int]
) -> list[float]:
    total = max(lengths) + 1
    return [
        oracle.distance(
            oracle_drafts.output_law_of_drafts(law, m.target, m.draft, lengths, total, m.ends),
            oracle.plain_law(m.target, total, m.ends),
        )
        for m in models
    ]


@pytest.mark.parametrize("name", [name for name in LAWS if name != "recursive"])
def test_deduplicated_drafts_without_their_number_are_biased(tiny: Tiny, name: str) -> None:
    def distinct(p: Any, q: Any, drafts: Sequence[Text]) -> oracle_drafts.Masses:
        return LAWS[name](p, q, list(dict.fromkeys(drafts)))

    models = [tiny("duplicates", 3, seed) for seed in range(4)]
    assert max(errors_of(distinct, models, [2, 2, 2])) > VISIBLE
    assert max(errors_of(LAWS[name], models, [2, 2, 2])) <= EXACT


def test_deduplicated_drafts_are_biased_under_recursive_rejection() -> None:
    """A copy of a refused token is refused anyway, but the draft behind it must not move up."""

    def distinct(p: Any, q: Any, drafts: Sequence[Text]) -> oracle_drafts.Masses:
        return LAWS["recursive"](p, q, list(dict.fromkeys(drafts)))

    p, q = np.array([0.1, 0.3, 0.3, 0.3]), np.array([0.7, 0.2, 0.05, 0.05])
    law = oracle_drafts.output_law_of_drafts(distinct, lambda t: p, lambda t: q, [1, 1, 1], 1)
    assert oracle.distance(law, {(x,): float(p[x]) for x in range(4)}) > VISIBLE


@pytest.mark.parametrize("name", LAWS)
def test_dropping_drafts_because_of_a_value_is_biased(tiny: Tiny, name: str) -> None:
    def dropped(p: Any, q: Any, drafts: Sequence[Text]) -> oracle_drafts.Masses:
        return LAWS[name](p, q, [d if d[0] != 0 else () for d in drafts])

    models = [tiny("random", 3, seed) for seed in range(4)]
    assert max(errors_of(dropped, models, [1, 1])) > VISIBLE


@pytest.mark.parametrize("name", LAWS)
def test_cutting_unmasked_drafts_at_their_first_illegal_token_is_biased(
    tiny: Tiny, name: str
) -> None:
    """Each draft sampled from q before the mask, cut, and judged by that q."""
    m = tiny("masks", 3, 2)

    def raw(text: Text) -> Floats:
        return m.raw(text, "draft")

    def cut(p: Any, q: Any, drafts: Sequence[Text]) -> oracle_drafts.Masses:
        kept = []
        for d in drafts:
            legal = [bool(m.mask(d[:i])[x]) for i, x in enumerate(d)]
            kept.append(d[: legal.index(False)] if False in legal else d)
        return LAWS[name](p, q, kept)

    step = oracle_drafts.output_law_of_drafts(cut, m.target, raw, [2, 2], 3)
    assert oracle.distance(step, oracle.plain_law(m.target, 3)) > VISIBLE
    whole = oracle_drafts.output_law_of_drafts(LAWS[name], m.target, raw, [2, 2], 3)
    assert oracle.distance(whole, oracle.plain_law(m.target, 3)) <= EXACT


def relaxed_layers(
    change: Callable[[list[oracle_drafts.Level]], list[oracle_drafts.Level]],
    exit_probabilities: Callable[[Sequence[oracle_drafts.Level]], Floats],
) -> oracle_drafts.DraftsLaw:
    """Layered verification with its levels or its exits changed."""

    def law(p: Any, q: Any, drafts: Sequence[Text]) -> oracle_drafts.Masses:
        levels = change(oracle_drafts.layered_levels(p, q, drafts))
        phi = np.append(exit_probabilities(levels), 1.0)
        masses: oracle_drafts.Masses = {}
        for i, level in enumerate(levels):
            total = sum(float(row.sum()) for row in level.residuals.values())
            for u, row in level.residuals.items():
                masses[u] = row * ((phi[i + 1] - phi[i]) / total if total > 0.0 else 0.0)
        return masses

    return law


def test_layered_exits_without_g_are_biased(tiny: Tiny) -> None:
    def by_f(levels: Sequence[oracle_drafts.Level]) -> Floats:
        f = np.array([level.f for level in levels])
        return np.cumprod(f[::-1])[::-1]

    models = [tiny("random", 3, seed) for seed in range(4)]
    assert max(errors_of(relaxed_layers(lambda x: x, by_f), models, [2, 2])) > VISIBLE


def test_layered_residuals_without_the_path_weight_are_biased(tiny: Tiny) -> None:
    """R(u, ·) of each node normalised: nodes count alike instead of by W."""

    def unweighted(levels: list[oracle_drafts.Level]) -> list[oracle_drafts.Level]:
        return [
            oracle_drafts.Level(
                level.weights,
                {
                    u: row / level.weights[u] if level.weights[u] > 0.0 else row
                    for u, row in level.residuals.items()
                },
                level.f,
                level.g,
            )
            for level in levels
        ]

    law = relaxed_layers(unweighted, oracle_drafts.layered_pass_probabilities)
    models = [tiny("random", 3, seed) for seed in range(4)]
    assert max(errors_of(law, models, [2, 2])) > VISIBLE


def test_the_first_failed_depth_of_layered_is_not_the_exit(tiny: Tiny) -> None:
    """Tests from the root down, each with 1 - f_i/g_i, instead of the deepest that passes."""

    def law(p: Any, q: Any, drafts: Sequence[Text]) -> oracle_drafts.Masses:
        levels = oracle_drafts.layered_levels(p, q, drafts)
        masses: oracle_drafts.Masses = {}
        reached = 1.0
        for i, level in enumerate(levels):
            below = levels[i + 1] if i + 1 < len(levels) else None
            go = 1.0 - min(below.f / below.g, 1.0) if below and below.g > 0.0 else 0.0
            total = sum(float(row.sum()) for row in level.residuals.values())
            stop = reached * (1.0 - go) if total > 0.0 else 0.0
            for u, row in level.residuals.items():
                masses[u] = row * (stop / total if total > 0.0 else 0.0)
            reached *= go
        return masses

    models = [tiny("random", 3, seed) for seed in range(4)]
    assert max(errors_of(law, models, [2, 2])) > VISIBLE


@pytest.mark.parametrize("shortcut", ["rate", "number"])
def test_a_rate_or_a_number_of_drafts_that_is_not_the_true_one_is_biased(
    tiny: Tiny, monkeypatch: pytest.MonkeyPatch, shortcut: str
) -> None:
    """A rate above the valid one lets F exceed c; a smaller m leaves mass that was given away."""
    true = oracle_levels.node_rounds

    def wrong(c: Floats, q: Floats, g: float, m: int, rounds: int) -> oracle_levels.NodeRounds:
        if shortcut == "number":
            return true(c, q, g, max(1, m - 1), rounds)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(oracle_levels, "largest_rate", lambda beta, m: np.ones(len(m)))
            return true(c, q, g, m, 1)

    models = [tiny("random", 3, seed) for seed in range(4)]
    assert max(errors_of(oracle_drafts.layered_law, models, [2, 2])) <= EXACT
    monkeypatch.setattr(oracle_drafts, "node_rounds", wrong)
    try:
        worst = max(errors_of(oracle_drafts.layered_law, models, [2, 2]))
    except Exception as error:  # a residual without mass is noticed even before the law is
        assert "no residual mass" in str(error)
    else:
        assert worst > VISIBLE


def test_caps_that_look_at_the_drafted_tokens_are_biased(
    tiny: Tiny, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Serving first the token that was drafted: a parameter that knows more than depth <= i."""
    drafted: list[int] = []

    def peeking(c: Floats, q: Floats, g: float, m: int, rounds: int) -> oracle_levels.NodeRounds:
        favour = c.copy()
        favour[drafted[0]] = min(1.0, c[drafted[0]] * 2.0)
        return oracle_levels.node_rounds(favour, q, g, m, rounds)

    def law(p: Any, q: Any, drafts: Sequence[Text]) -> oracle_drafts.Masses:
        drafted[:] = [drafts[0][0]]
        return oracle_drafts.layered_law(p, q, drafts)

    monkeypatch.setattr(oracle_drafts, "node_rounds", peeking)
    models = [tiny("random", 3, seed) for seed in range(4)]
    assert max(errors_of(law, models, [1, 1])) > VISIBLE


def test_rounds_keep_the_law_whatever_their_caps_are(
    tiny: Tiny, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other side: any cap that looks no deeper is exact, however bad it is."""
    models = [tiny("random", 3, seed) for seed in range(3)]
    rng = np.random.default_rng(0)
    table = rng.random((64, 1, 1))
    for knots in (
        lambda mass, m, rounds: table[:rounds],
        lambda mass, m, rounds: 9 * table[:rounds],
    ):
        monkeypatch.setattr(oracle_levels, "knots", knots)
        assert max(errors_of(oracle_drafts.layered_law, models, [2, 2])) <= EXACT


def test_children_drawn_without_replacement_are_biased_under_the_rules_for_copies() -> None:
    """Distinct children judged as if they were i.i.d."""
    p, q = np.array([0.1, 0.3, 0.3, 0.3]), np.array([0.7, 0.2, 0.05, 0.05])
    for name in ("layered", "kseq", "recursive", "traversal"):
        law = np.zeros(4)
        for pair in itertools.permutations(range(4), 2):
            chance = q[pair[0]] * q[pair[1]] / (1.0 - q[pair[0]])
            drafts = [(x,) for x in pair]
            for kept, row in LAWS[name](lambda t: p, lambda t: q, drafts).items():
                if kept:
                    law[kept[0]] += chance * row.sum()
                else:
                    law += chance * row
        assert np.abs(law - p).max() > VISIBLE, name
