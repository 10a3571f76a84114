"""Each tempting shortcut changes the law, and the law test sees it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from structspec.verification import oracle
from structspec.verification.randomness import sample_inverse

Tiny = Callable[[str, int, int], Any]
Text = tuple[int, ...]
Floats = NDArray[np.float64]
VISIBLE = 1e-3


def error_of(law: oracle.DecisionLaw, model: Any, length: int) -> float:
    """Largest error of the whole text's law with `law` as the verifier."""
    exact = oracle.output_law(law, model.target, model.draft, length, length + 1, model.ends)
    return oracle.distance(exact, oracle.plain_law(model.target, length + 1, model.ends))


def complete(step: dict[Text, float], target: oracle.Target, total: int) -> dict[Text, float]:
    """Continue the texts of one step by plain sampling."""
    law: dict[Text, float] = {}
    for text, mass in step.items():
        for rest, chance in oracle.plain_law(target, total, (), text).items():
            law[rest] = law.get(rest, 0.0) + mass * chance
    return law


def shortened_step(
    law: oracle.DecisionLaw,
    target: oracle.Target,
    draft: oracle.Draft,
    length: int,
    keep: Callable[[Text], int],
    judge: Callable[[Text], Floats] | None = None,
) -> dict[Text, float]:
    """One step that verifies only the first keep(tokens) drafted tokens, against rows `judge`."""
    step: dict[Text, float] = {}
    for tokens, mass, q in oracle.all_drafts(draft, length):
        n = keep(tokens)
        p = np.stack([target(tokens[:i]) for i in range(n + 1)])
        rows = q[:n] if judge is None else np.array([judge(tokens[:i]) for i in range(n)])
        exact = law(p, rows, tokens[:n])
        for i, leave in enumerate(exact.exit):
            for x in np.flatnonzero(exact.emit[i]):
                text = (*tokens[:i], int(x))
                step[text] = step.get(text, 0.0) + mass * leave * float(exact.emit[i, x])
    return step


def legal_prefix(model: Any) -> Callable[[Text], int]:
    def count(tokens: Text) -> int:
        for i, x in enumerate(tokens):
            if not model.mask(tokens[:i])[x]:
                return i
        return len(tokens)

    return count


@pytest.mark.parametrize("law", [oracle.token_law, oracle.block_law])
def test_cutting_an_unmasked_draft_at_its_first_illegal_token_is_biased(
    tiny: Tiny, law: oracle.DecisionLaw
) -> None:
    m = tiny("masks", 3, 2)
    plain = oracle.plain_law(m.target, 3)
    keep = legal_prefix(m)
    free = lambda t: m.raw(t, "draft")  # noqa: E731
    step = shortened_step(law, m.target, free, 2, keep)
    assert oracle.distance(complete(step, m.target, 3), plain) > VISIBLE
    # Two ways out: judge by q renormalised over legal tokens ...
    step = shortened_step(law, m.target, free, 2, keep, judge=m.draft)
    assert oracle.distance(complete(step, m.target, 3), plain) <= 1e-12
    # ... or draft deterministically.
    hot = lambda t: oracle.one_hot(int(np.argmax(free(t))), 3)  # noqa: E731
    step = shortened_step(law, m.target, hot, 2, keep)
    assert oracle.distance(complete(step, m.target, 3), plain) <= 1e-12


@pytest.mark.parametrize("law", [oracle.token_law, oracle.block_law])
def test_dropping_a_drafted_token_because_of_its_value_is_biased(
    tiny: Tiny, law: oracle.DecisionLaw
) -> None:
    m = tiny("random", 3, 0)
    plain = oracle.plain_law(m.target, 3)
    step = shortened_step(law, m.target, m.draft, 2, lambda tokens: len(tokens) - (tokens[-1] == 0))
    assert oracle.distance(complete(step, m.target, 3), plain) > VISIBLE
    # Dropping the tokens *behind* a value is fine: it depends on the draft's own prefix.
    step = shortened_step(law, m.target, m.draft, 2, lambda tokens: 1 if tokens[0] == 0 else 2)
    assert oracle.distance(complete(step, m.target, 3), plain) <= 1e-12


def test_stopping_at_the_first_failed_test_of_a_block_is_biased(tiny: Tiny) -> None:
    def first_fail(p: Floats, q: Floats, tokens: Sequence[int]) -> oracle.ExitLaw:
        right = oracle.block_law(p, q, tokens)
        h = oracle.block_pass_probabilities(p, q, tokens)
        kept = np.concatenate([[1.0], np.cumprod(h)])
        return oracle.ExitLaw(kept * np.append(1.0 - h, 1.0), right.emit)

    errors = [error_of(first_fail, tiny("random", 3, seed), 3) for seed in range(4)]
    assert max(errors) > 10 * VISIBLE
    assert error_of(first_fail, tiny("random", 3, 0), 1) <= 1e-12  # one token: the same rule


def test_a_residual_without_the_path_weight_is_biased(tiny: Tiny) -> None:
    def unweighted(p: Floats, q: Floats, tokens: Sequence[int]) -> oracle.ExitLaw:
        right = oracle.block_law(p, q, tokens)
        emit = right.emit.copy()
        for i in range(len(tokens)):
            mass = oracle.residual(p[i], q[i])
            if mass.sum() > 0.0:
                emit[i] = mass / mass.sum()
        return oracle.ExitLaw(right.exit, emit)

    errors = [error_of(unweighted, tiny("random", 4, seed), 2) for seed in range(12)]
    assert max(errors) > 3 * VISIBLE


def test_token_wise_tests_on_a_block_residual_are_biased(tiny: Tiny) -> None:
    def mixed(p: Floats, q: Floats, tokens: Sequence[int]) -> oracle.ExitLaw:
        return oracle.ExitLaw(
            oracle.token_law(p, q, tokens).exit, oracle.block_law(p, q, tokens).emit
        )

    assert max(error_of(mixed, tiny("random", 2, seed), 3) for seed in range(12)) > 10 * VISIBLE


def cells(rows: list[Floats]) -> list[tuple[float, float]]:
    """(a point, width) of each interval of one uniform on which all rows draw constant tokens."""
    edges = np.unique(np.concatenate([[0.0, 1.0], *[np.cumsum(row)[:-1] for row in rows]]))
    return [(float((a + b) / 2), float(b - a)) for a, b in itertools.pairwise(edges)]


def two_steps(model: Any, keyed_by_step: bool) -> dict[Text, float]:
    """Exact law of two tokens when position 2 may be drafted twice, in steps one and two.

    Keyed by position only, both drafts of position 2 use one noise; the tests and the residuals
    are independent either way.
    """
    law: dict[Text, float] = {}
    q1, vocab = model.draft(()), model.vocab
    drafts = [model.draft((x,)) for x in range(vocab)]

    def add(text: Text, mass: float) -> None:
        law[text] = law.get(text, 0.0) + mass

    def second_step(first: int, mass: float, again: float) -> None:
        x2 = sample_inverse(drafts[first], again)
        p = np.stack([model.target((first,)), model.target((first, x2))])
        exact = oracle.block_law(p, drafts[first][None], [x2])
        add((first, x2), mass * exact.exit[1])
        for y in range(vocab):
            add((first, y), mass * exact.exit[0] * exact.emit[0, y])

    for x1 in range(vocab):
        for noise, width in cells(drafts):
            x2 = sample_inverse(drafts[x1], noise)
            p = np.stack([model.target((x1, x2)[:i]) for i in range(3)])
            exact = oracle.block_law(p, np.stack([q1, drafts[x1]]), [x1, x2])
            mass = q1[x1] * width
            add((x1, x2), mass * exact.exit[2])
            for y in range(vocab):
                add((x1, y), mass * exact.exit[1] * exact.emit[1, y])
                rejected = mass * exact.exit[0] * exact.emit[0, y]
                if not keyed_by_step:
                    second_step(y, rejected, noise)
                else:
                    for fresh, part in cells(drafts):
                        second_step(y, rejected * part, fresh)
    return law


def test_noise_keyed_by_position_only_is_biased(tiny: Tiny) -> None:
    worst = 0.0
    for seed in range(6):
        m = tiny("random", 3, seed)
        plain = oracle.plain_law(m.target, 2)
        assert oracle.distance(two_steps(m, keyed_by_step=True), plain) <= 1e-12
        worst = max(worst, oracle.distance(two_steps(m, keyed_by_step=False), plain))
    assert worst > VISIBLE


def test_a_residual_drawn_with_its_drafts_noise_is_biased(tiny: Tiny) -> None:
    m = tiny("random", 3, 1)
    p, q = m.target(()), m.draft(())
    left = oracle.residual(p, q)
    law = np.zeros(3)
    for noise, width in cells([q, left / left.sum()]):
        x = sample_inverse(q, noise)
        keep = min(1.0, p[x] / q[x])
        law[x] += width * keep
        law[sample_inverse(left, noise)] += width * (1.0 - keep)
    assert np.abs(law - p).max() > VISIBLE


def test_a_forced_string_appended_without_verification_is_biased() -> None:
    """The grammar forces the text `ab`, but a model may write it as `a` `b` or as `ab`."""
    a, b, ab, end = range(4)
    after: dict[Text, Floats] = {
        (): np.array([0.3, 0.0, 0.7, 0.0]),
        (a,): oracle.one_hot(b, 4),
        (a, b): oracle.one_hot(end, 4),
        (ab,): oracle.one_hot(end, 4),
    }
    target = after.__getitem__
    plain = oracle.plain_law(target, 3, ends=(end,))

    def canonical(text: Text) -> Floats | None:
        return oracle.one_hot(ab, 4) if text == () else None

    def appended(p: Floats, q: Floats, tokens: Sequence[int]) -> oracle.ExitLaw:
        emit = np.zeros_like(p)
        emit[-1] = p[-1]
        return oracle.ExitLaw(np.array([0.0] * len(tokens) + [1.0]), emit)

    wrong = oracle.output_law(appended, target, canonical, 1, 3, ends=(end,))
    assert oracle.distance(wrong, plain) == pytest.approx(0.3)
    for law in (oracle.token_law, oracle.block_law):  # proposed one-hot and verified
        right = oracle.output_law(law, target, canonical, 1, 3, ends=(end,))
        assert oracle.distance(right, plain) <= 1e-12

    def forced_token(text: Text) -> Floats | None:
        row = target(text)
        return row if np.count_nonzero(row) == 1 and text[-1:] != (end,) else None

    # A forced *token* is free: appending it unverified is exact.
    free = oracle.output_law(
        appended, target, forced_token, 2, 3, ends=(end,), speculate_again=True
    )
    assert oracle.distance(free, plain) <= 1e-12
