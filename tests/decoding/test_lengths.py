"""Draft lengths: what they follow, and that they never follow the clock."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from structspec.decoding import calibrate
from structspec.decoding.loop import decode
from structspec.drafting import EarlyExit, ModelDraft
from structspec.drafting.lengths import PROBE, DraftCosts, DraftLength, guesses_after
from structspec.errors import DraftError
from structspec.models import Model
from structspec.vocab import Vocabulary

Bind = Callable[[str, Vocabulary], Any]


def test_the_best_length_is_that_of_the_highest_rate() -> None:
    costs = DraftCosts(forward=10.0, token=0.2, step=1.0)
    for share in (0.0, 0.3, 0.7, 0.95, 1.0):
        rates = [costs.rate(length, share) for length in range(9)]
        assert costs.best(share, 8) == rates.index(max(rates))
    # two tokens kept of one forward and two steps
    assert costs.rate(2, 0.5) == pytest.approx(1.75 / 12.4)
    assert costs.best(1.0, 8) == 8 and costs.best(0.0, 8) == 0


def test_dear_steps_draft_nothing_and_look_again_now_and_then() -> None:
    lengths = DraftLength(4, 8, costs=DraftCosts(forward=1.0, token=0.0, step=5.0))
    assert [lengths.next(step) for step in range(2 * PROBE)].count(1) == 2
    assert {lengths.next(step) for step in range(PROBE - 1)} == {0}


def test_lengths_follow_what_was_kept() -> None:
    costs = DraftCosts(forward=10.0, token=0.2, step=1.0)
    good, bad = DraftLength(4, 8, costs=costs), DraftLength(4, 8, costs=costs)
    for step in range(20):
        length = good.next(step)
        good.learn(length, length, refused=False)
        bad.learn(max(1, bad.next(step)), 0, refused=True)
    assert good.next(0) == 8 and bad.next(0) == 0
    assert good.share > 0.9 and bad.share < 0.2
    before = good.share
    good.learn(3, 1, refused=False)  # a forced span was refused: nothing against free tokens
    assert good.share >= before


def test_without_costs_lengths_double_back_as_before() -> None:
    lengths = DraftLength(2, 5)
    sizes = []
    for kept in (True, True, True, False, False):
        sizes.append(lengths.next(0))
        lengths.learn(sizes[-1], sizes[-1] if kept else 0, refused=not kept)
    assert sizes == [2, 4, 5, 5, 3]
    fixed = DraftLength(2, 5, adaptive=False, costs=DraftCosts(1.0, 0.0, 9.0))
    fixed.learn(2, 0, refused=True)
    assert fixed.next(0) == 2


@pytest.mark.parametrize("cost", [-1.0, float("nan"), float("inf")])
@pytest.mark.parametrize("name", ["forward", "token", "step"])
def test_costs_that_are_none_are_refused(name: str, cost: float) -> None:
    given = {"forward": 1.0, "token": 0.1, "step": 0.1, name: cost}
    with pytest.raises(DraftError, match=name):
        DraftCosts(**given)
    with pytest.raises(DraftError, match="forward"):
        DraftCosts(0.0, 0.1, 0.1)


def test_calibration_measures_once_and_texts_repeat(byte_model: Model, bind: Bind) -> None:
    source = calibrate(byte_model, EarlyExit(1), batch_size=2)
    costs = source.costs  # type: ignore[attr-defined]
    assert costs.forward > 0 and costs.step > 0 and costs.token >= 0
    assert source.layers == 1  # type: ignore[attr-defined]
    constraint = bind(r"[a-c]{10,30}", byte_model.vocab)
    prompt = byte_model.vocab.encode(b"and the hand")
    texts = [
        decode(byte_model, prompt, constraint, draft=source, seed=2, max_tokens=40).text
        for _ in range(2)
    ]
    assert texts[0] == texts[1]


def test_costs_reach_the_drafter(byte_model: Model, bind: Bind) -> None:
    constraint = bind(r"[a-c]{10,30}", byte_model.vocab)
    prompt = byte_model.vocab.encode(b"and the hand")
    drafted = {}
    for name, step in (("free", 0.0), ("dear", 99.0)):
        draft = ModelDraft(byte_model, costs=DraftCosts(1.0, 0.0, step))
        output = decode(byte_model, prompt, constraint, draft=draft, seed=2, max_tokens=40)
        drafted[name] = output.stats.drafted / output.stats.steps
    assert drafted["free"] > 4 and drafted["dear"] < 1


@pytest.mark.parametrize("draft", ["auto", "forced", "lookup"])
def test_what_costs_nothing_is_not_calibrated(byte_model: Model, draft: str) -> None:
    with pytest.raises(DraftError, match="runs no network"):
        calibrate(byte_model, draft)


@pytest.mark.parametrize(
    ("places", "accepted", "expected"),
    [
        ([], 0, 4),  # nothing was guessed
        ([1, 2, 3, 4], 5, 8),
        ([1, 2, 3, 4], 9, 8),
        ([1, 2, 3, 4], 3, 3),  # two right, the third refused
        ([1, 2, 3, 4], 1, 2),
        ([1, 2, 5, 6], 3, 4),  # a token between them was refused
        ([1, 2, 3, 4], 0, 4),
    ],
)
def test_guesses_follow_what_the_last_ones_got_through(
    places: list[int], accepted: int, expected: int
) -> None:
    assert guesses_after(4, 16, places, accepted) == expected
    assert guesses_after(4, 6, [0], 1) == 6 and guesses_after(1, 16, [0], 0) == 1
