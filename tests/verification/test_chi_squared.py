"""Whole texts of many steps, sampled by the torch verifiers, against plain masked sampling.

A small automaton masks target and draft; texts are written by drafting, verifying and committing
until their end, with the randomness of the loop. Enumeration covers single steps exactly; this
covers what only several steps show: noise that repeats, drafts that follow a residual, end tokens.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from structspec.verification import oracle
from structspec.verification.randomness import Purpose, Randomness
from structspec.verification.registry import drafts_verifiers, verifiers
from structspec.verification.tree import (
    tree_target_verify,
    without_replacement_verify,
)

Text = tuple[int, ...]
LONGEST = 5  # tokens; every text of the test's language is shorter or equal
DRAFTED = 3


class Automaton:
    """The model as tables over the states of a bounded text: a state is a text so far."""

    def __init__(self, m: Any) -> None:
        self.m, self.vocab, self.end = m, m.vocab, m.vocab - 1
        self.texts: list[Text] = [()]
        self.numbers: dict[Text, int] = {(): 0}
        self.next: list[list[int]] = []
        self.target: list[NDArray[np.float64]] = []
        self.draft: list[NDArray[np.float64]] = []
        for text in self.texts:  # grows while it is walked
            p, q = m.target(text), m.draft(text)
            if len(text) == LONGEST - 1:  # the budget leaves nothing but the end
                p = q = np.eye(self.vocab)[self.end]
            self.target.append(p)
            self.draft.append(q)
            row = []
            for x in range(self.vocab):
                longer = (*text, x)
                known = x == self.end or not (p[x] > 0.0 or q[x] > 0.0)
                if not known and longer not in self.numbers:
                    self.numbers[longer] = len(self.texts)
                    self.texts.append(longer)
                row.append(0 if known else self.numbers[longer])
            self.next.append(row)

    def law(self) -> dict[Text, float]:
        return oracle.plain_law(
            lambda text: self.target[self.numbers[text]], LONGEST + 1, (self.end,)
        )


def sampled_texts(
    model: Automaton, name: str, drafts: int, size: int, seed: int
) -> dict[Text, int]:
    """`size` texts, written step by step by the torch verifier `name`."""
    noise = Randomness(seed)
    texts = Texts(model, size)
    target = torch.from_numpy(np.stack(model.target))
    draft = torch.from_numpy(np.stack(model.draft))
    cumulative = draft.cumsum(dim=1)
    live = torch.arange(size)
    step = 0
    while live.numel():
        here = live.tolist()
        now = texts.state[live][:, None].expand(-1, drafts)
        states, tokens = [now], []
        for i in range(DRAFTED):
            u = np.stack(
                [
                    noise.uniforms_batch(here, step, Purpose.DRAFT, k, count=i + 1)[:, i]
                    for k in range(drafts)
                ],
                axis=1,
            )
            aim = torch.from_numpy(u)[..., None] * cumulative[now][..., -1:]
            x = (cumulative[now] <= aim).sum(dim=-1)
            tokens.append(x)
            now = torch.where(x == model.end, now, texts.step_of[now, x])
            states.append(now)
        at, ids = torch.stack(states, dim=2), torch.stack(tokens, dim=2)
        lengths = torch.full((len(here), drafts), DRAFTED)
        uniforms = torch.from_numpy(noise.for_drafts(here, [step] * len(here), drafts, DRAFTED))
        arguments = (target[at], draft[at[:, :, :-1]], ids, lengths, uniforms)
        if name in verifiers:
            verdict = verifiers[name](*(a[:, 0] for a in arguments), eos_ids=(model.end,))
            row = torch.zeros_like(verdict.accepted)
        else:
            verdict = drafts_verifiers[name](*arguments, eos_ids=(model.end,))
            assert verdict.row is not None
            row = verdict.row
        kept = ids[torch.arange(len(here)), row]
        live = texts.commit(live, kept, verdict.accepted, verdict.token)
        step += 1
    return texts.counts()


class Texts:
    """Texts under way: what is written, how much, and the state behind it."""

    def __init__(self, model: Automaton, size: int) -> None:
        self.end = model.end
        self.step_of = torch.tensor(model.next)
        self.state = torch.zeros(size, dtype=torch.long)
        self.written = torch.full((size, LONGEST + 1), -1)
        self.length = torch.zeros(size, dtype=torch.long)

    def commit(
        self, live: torch.Tensor, kept: torch.Tensor, accepted: torch.Tensor, token: torch.Tensor
    ) -> torch.Tensor:
        """Write the kept tokens and the one behind them; the texts that go on."""
        most = kept.shape[1]
        for i in range(most + 1):
            # Kept tokens, then the verdict's own; -1 where the kept ones end the text.
            x = torch.where(accepted > i, kept[:, min(i, most - 1)], token)
            new = (accepted >= i) & (x >= 0)
            who, x = live[new], x[new]
            self.written[who, self.length[who]] = x
            self.length[who] += 1
            self.state[who] = self.step_of[self.state[who], x]
        return live[self.written[live, self.length[live] - 1] != self.end]

    def counts(self) -> dict[Text, int]:
        """How often each text was written."""
        found: dict[Text, int] = {}
        rows, numbers = np.unique(self.written.numpy(), axis=0, return_counts=True)
        for row, number in zip(rows, numbers, strict=True):
            found[tuple(int(x) for x in row if x >= 0)] = int(number)
        return found


def two_children(
    rows: torch.Tensor, uniforms: NDArray[np.float64] | None
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Two tokens of each row and whether the second is missing: the likeliest two, or, given
    uniforms [n, 2], two that are drawn without replacement."""
    if uniforms is None:
        best = rows.topk(2, dim=1)
        return best.indices[:, 0], best.indices[:, 1], best.values[:, 1] <= 0
    found, left = [], rows.clone()
    for i in range(2):
        cumulative = left.cumsum(dim=1)
        aim = torch.from_numpy(uniforms[:, i, None]) * cumulative[:, -1:]
        missing = cumulative[:, -1] <= 0
        x = torch.where(missing, 0, (cumulative <= aim).sum(dim=1).clamp(max=rows.shape[1] - 1))
        found.append(x)
        left = left.scatter(1, x[:, None], 0.0)
    return found[0], found[1], missing


def sampled_tree_texts(
    model: Automaton, *, drawn: bool, size: int, seed: int, depth: int = 2
) -> dict[Text, int]:
    """`size` texts, written step by step along trees of two children per node.

    `drawn`: children drawn without replacement, and the rule for those; else the draft's likeliest
    ones, a deterministic tree, followed by draws that are named as the loop names them.
    """
    noise, texts = Randomness(seed), Texts(model, size)
    target, draft = (torch.from_numpy(np.stack(rows)) for rows in (model.target, model.draft))
    live, step = torch.arange(size), 0
    while live.numel():
        here, root = live.tolist(), texts.state[live]
        nodes = 2 ** (depth + 1) - 2
        u = noise.uniforms_batch(here, step, Purpose.DRAFT, 0, count=nodes) if drawn else None
        tokens, parents, behind, absent = [], [], [], []
        frontier = [(-1, root, torch.zeros(len(here), dtype=torch.bool))]
        for _ in range(depth):
            below = []
            for parent, at, gone in frontier:
                first = len(tokens)
                pair = two_children(draft[at], None if u is None else u[:, first : first + 2])
                for x, missing in ((pair[0], torch.zeros_like(gone)), (pair[1], pair[2])):
                    after = torch.where(x == model.end, at, texts.step_of[at, x])
                    below.append((len(tokens), after, gone | missing | (x == model.end)))
                    tokens.append(x)
                    parents.append(parent)
                    behind.append(after)
                    absent.append(gone | missing)
            frontier = below
        # Those that are there come first, in their order; parents are renumbered.
        lacking = torch.stack(absent, dim=1)
        order = lacking.long().argsort(dim=1, stable=True)
        place = order.argsort(dim=1)
        above = torch.tensor(parents).expand(len(here), -1)
        renumbered = torch.where(above < 0, -1, place.gather(1, above.clamp(min=0)))
        ids = torch.stack(tokens, dim=1).gather(1, order)
        links = renumbered.gather(1, order)
        at_nodes = torch.stack(behind, dim=1).gather(1, order)
        rows = torch.cat([root[:, None], at_nodes], dim=1)
        if drawn:
            u = noise.for_verification(here, [step] * len(here), nodes)
        else:  # draws are named by their positions in the text
            written = np.array([len(model.texts[int(state)]) for state in root])
            u = np.zeros((len(here), nodes + 1))
            for level in range(depth + 1):
                draws = noise.uniforms_batch(here, written + level, Purpose.PLAIN)
                u[:, level] = draws[:, 0]
        uniforms = torch.from_numpy(u)
        sizes = (~lacking).sum(dim=1)
        ends = (model.end,)
        if drawn:
            verdict = without_replacement_verify(
                target[rows], draft[rows], ids, links, sizes, uniforms, eos_ids=ends
            )
        else:
            verdict = tree_target_verify(target[rows], ids, links, sizes, uniforms, eos_ids=ends)
        assert verdict.row is not None
        kept = torch.zeros(len(here), depth, dtype=torch.long)
        node = verdict.row
        for level in reversed(range(depth)):  # from the last kept node up to the root
            here_kept = (verdict.accepted > level).nonzero()[:, 0]
            kept[here_kept, level] = ids[here_kept, node[here_kept]]
            node = node.clone()
            node[here_kept] = links[here_kept, node[here_kept]]
        assert bool((node < 0).all())  # as many nodes as were kept
        live = texts.commit(live, kept, verdict.accepted, verdict.token)
        step += 1
    return texts.counts()


def chi_squared_tail(value: float, freedom: int) -> float:
    """Upper tail by Wilson and Hilferty's cube root; good to a few percent where it matters."""
    z = ((value / freedom) ** (1 / 3) - (1 - 2 / (9 * freedom))) / math.sqrt(2 / (9 * freedom))
    return 0.5 * math.erfc(z / math.sqrt(2))


def tail_of(model: Automaton, counts: dict[Text, int], size: int) -> float:
    law = model.law()
    assert set(counts) <= set(law)  # nothing outside the language
    # Texts expected less than ten times count as one.
    rare = [text for text, mass in law.items() if mass * size < 10]
    cells = [([text], mass) for text, mass in law.items() if mass * size >= 10]
    if rare:
        cells.append((rare, sum(law[text] for text in rare)))
    value = sum(
        (sum(counts.get(text, 0) for text in texts) - mass * size) ** 2 / (mass * size)
        for texts, mass in cells
    )
    return chi_squared_tail(value, len(cells) - 1)


def test_the_tail_of_chi_squared_is_that_of_published_tables() -> None:
    for value, freedom, tail in ((18.307, 10, 0.05), (29.588, 10, 0.001), (124.342, 100, 0.05)):
        assert chi_squared_tail(value, freedom) == pytest.approx(tail, rel=0.1)


@pytest.mark.parametrize(("name", "drafts"), [("block", 1), ("layered", 3)])
def test_a_few_thousand_texts_pass(
    tiny: Callable[[str, int, int], Any], name: str, drafts: int
) -> None:
    model = Automaton(tiny("automaton", 4, 1))
    counts = sampled_texts(model, name, drafts, 4000, seed=1)
    assert tail_of(model, counts, 4000) > 1e-4


@pytest.mark.parametrize("drawn", [False, True])
def test_a_few_thousand_texts_along_trees_pass(
    tiny: Callable[[str, int, int], Any], drawn: bool
) -> None:
    model = Automaton(tiny("automaton", 4, 1))
    counts = sampled_tree_texts(model, drawn=drawn, size=3000, seed=1)
    assert tail_of(model, counts, 3000) > 1e-4


@pytest.mark.full
@pytest.mark.parametrize("drawn", [False, True])
def test_a_million_texts_along_trees_have_the_law_of_plain_masked_sampling(
    tiny: Callable[[str, int, int], Any], drawn: bool
) -> None:
    model = Automaton(tiny("automaton", 4, 1))
    size, parts = 1_050_000, 21
    counts: dict[Text, int] = {}
    for part in range(parts):
        found = sampled_tree_texts(model, drawn=drawn, size=size // parts, seed=part)
        for text, n in found.items():
            counts[text] = counts.get(text, 0) + n
    assert sum(counts.values()) == size
    assert tail_of(model, counts, size) > 1e-3 / 2


@pytest.mark.full
@pytest.mark.parametrize(
    ("name", "drafts"),
    [
        ("block", 1),
        ("token", 1),
        ("layered", 2),
        ("layered", 3),
        ("kseq", 3),
        ("recursive", 2),
        ("traversal", 2),
        ("multipath", 2),
    ],
)
def test_a_million_texts_have_the_law_of_plain_masked_sampling(
    tiny: Callable[[str, int, int], Any], name: str, drafts: int
) -> None:
    """Eight cases; Bonferroni: one of them alone must be as unlikely as 1e-3 / 8."""
    model = Automaton(tiny("automaton", 4, 1))
    size, parts = 1_050_000, 21
    counts: dict[Text, int] = {}
    for part in range(parts):
        for text, n in sampled_texts(model, name, drafts, size // parts, seed=part).items():
            counts[text] = counts.get(text, 0) + n
    assert sum(counts.values()) == size
    assert tail_of(model, counts, size) > 1e-3 / 8


@pytest.mark.full
def test_noise_keyed_by_position_fails_the_same_test(
    tiny: Callable[[str, int, int], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The test has the power to see a repeated draft: the step's number is dropped from names."""
    true = Randomness.uniforms_batch

    def by_position(
        self: Randomness, requests: Any, steps: Any, purpose: Purpose, rows: Any = 0, count: int = 1
    ) -> NDArray[np.float64]:
        return true(self, requests, 0, purpose, rows, count)

    monkeypatch.setattr(Randomness, "uniforms_batch", by_position)
    model = Automaton(tiny("automaton", 4, 1))
    counts = sampled_texts(model, "block", 1, 200_000, seed=1)
    assert tail_of(model, counts, 200_000) < 1e-6
