"""The float64 oracle of the published rules for several i.i.d. drafts, kept for comparison.

Each rule is written once, as a procedure that asks for its coin flips. `law_of` runs it over all
outcomes of the flips, which gives the exact law; `decision_of` feeds it uniforms.

- `kseq`: SpecTr's K-SEQ at each node, from the root down (Sun et al. 2023, arXiv 2310.15141).
- `recursive`: recursive rejection with replacement, as in SpecInfer (Miao et al. 2023, arXiv
  2305.09781): each draft is tried against what the earlier ones left of the target.
- `traversal`: traversal verification (Weng et al. 2025, arXiv 2505.12398), leaves before their
  parents. For one draft it is block verification. The paper's trees are drawn without
  replacement; here equal drafts share the first one's subtree, and each later copy is tried as a
  leaf, which is exact for i.i.d. drafts.
- `multipath`: greedy multi-path block verification (Thomas, Pal 2026, arXiv 2602.16961): choose
  one path greedily by p/q, then verify it as a block against the law of a path so chosen. Here
  that law is conditioned on the number of drafts that pass through each node, so that lengths may
  differ; `marginal=True` is the published law, for drafts of equal length.
- `spectr_gbv_law`: the acceptance and residual of SpecTr-GBV (Lin et al. 2026, arXiv 2604.25925)
  without that paper's change of the target in later steps. The law of one step is *not* the
  target's, and some of its probabilities leave [0, 1] and are clipped. Comparison only: there is no
  torch implementation of it.

All but the last are exact.

Cost: as `oracle_drafts`; a rule is run once per outcome of its flips.

Siblings: `oracle_drafts` for layered verification, `baselines` for the torch implementations.

Example::

    >>> import numpy as np
    >>> from structspec.verification.oracle_drafts import expected_accepted_of_drafts
    >>> p, q = np.array([0.5, 0.5]), np.array([0.9, 0.1])
    >>> target, draft = (lambda text: p), (lambda text: q)
    >>> for rule in (kseq, recursive, traversal, multipath):
    ...     kept = expected_accepted_of_drafts(law_of(rule), target, draft, [1, 1])
    ...     print(rule.__name__, round(kept, 4))
    kseq 0.6584
    recursive 0.64
    traversal 0.64
    multipath 0.69
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any, TypeAlias

import numpy as np

from structspec.verification import oracle
from structspec.verification.oracle import Draft, Floats, Target, Text, cut, row_behind
from structspec.verification.oracle_drafts import (
    DraftsDecision,
    DraftsLaw,
    Masses,
    all_draft_sets,
    emit,
)
from structspec.verification.oracle_levels import NodeRounds, node_rounds

__all__ = [
    "Flip",
    "Procedure",
    "decision_of",
    "greedy_path",
    "kseq",
    "law_of",
    "multipath",
    "recursive",
    "spectr_gbv_law",
    "spectr_gbv_objective",
    "traversal",
]

Flip: TypeAlias = Callable[[int, int, float], bool]
"""flip(k, i, chance): the test of token i of draft k, passed with this probability."""
Procedure: TypeAlias = Callable[[Target, Draft, Sequence[Text], Flip, dict[Any, Any]], Any]
"""(target, draft, drafts, flip, memo) → (kept prefix, masses of the next token).

`memo` caches what depends on target and draft only."""


class _Run:
    """One run of a procedure: the first flips follow a script, later ones pass if they can."""

    def __init__(self, script: tuple[bool, ...]) -> None:
        self.script = script
        self.outcomes: list[bool] = []
        self.chance = 1.0
        self.branches: list[tuple[bool, ...]] = []

    def flip(self, k: int, i: int, chance: float) -> bool:
        """The outcome here; remembers the other one if it was open."""
        chance = min(max(chance, 0.0), 1.0)
        if len(self.outcomes) < len(self.script):
            passed = self.script[len(self.outcomes)]
        else:
            passed = chance > 0.0
            if 0.0 < chance < 1.0:
                self.branches.append((*self.outcomes, False))
        self.chance *= chance if passed else 1.0 - chance
        self.outcomes.append(passed)
        return passed


def law_of(rule: Procedure, memo: dict[Any, Any] | None = None) -> DraftsLaw:
    """The exact law of a procedure. `memo` belongs to one (target, draft)."""

    def law(target: Target, draft: Draft, drafts: Sequence[Text]) -> Masses:
        masses: Masses = {}
        scripts: list[tuple[bool, ...]] = [()]
        while scripts:
            run = _Run(scripts.pop())
            kept, row = rule(target, draft, drafts, run.flip, {} if memo is None else memo)
            scripts += run.branches
            if run.chance > 0.0:
                masses[kept] = masses.get(kept, 0.0) + row * (run.chance / row.sum())
        return masses

    return law


def decision_of(
    rule: Procedure,
    target: Target,
    draft: Draft,
    drafts: Sequence[Text],
    uniforms: Sequence[Sequence[float]] | Floats,
    ends: Collection[int] = (),
) -> DraftsDecision:
    """One decision: test i of draft k reads `uniforms[k][i]`, the next token `uniforms[0][L]`."""
    kept, row = rule(
        lambda text: row_behind(target, text, ends),
        draft,
        [cut(d, ends) for d in drafts],
        lambda k, i, chance: bool(uniforms[k][i] < chance),
        {},
    )
    return emit(kept, row, uniforms[0][-1], ends)


def kseq(
    target: Target, draft: Draft, drafts: Sequence[Text], flip: Flip, memo: dict[Any, Any]
) -> tuple[Text, Floats]:
    """Walk down: at each node K-SEQ with the drafts that pass through it."""
    node: Text = ()
    while True:
        here = _continuing(drafts, node)
        if not here:
            return node, target(node)
        key = (node, len(here))
        if key not in memo:
            memo[key] = node_rounds(target(node), _row(draft, node), 1.0, len(here), rounds=1)
        result: NodeRounds = memo[key]
        if _row(draft, node).max() == 1.0:
            here = here[:1]
        for k in here:
            x = drafts[k][len(node)]
            if flip(k, len(node), float(result.accept[0, x])):
                node = (*node, x)
                break
        else:
            return node, result.residual


def recursive(
    target: Target, draft: Draft, drafts: Sequence[Text], flip: Flip, memo: dict[Any, Any]
) -> tuple[Text, Floats]:
    """Walk down: at each node draft after draft with min(1, p/q), p := (p - q)₊ in between."""
    node: Text = ()
    while True:
        here = _continuing(drafts, node)
        p = target(node)
        for k in here:
            q, x = _row(draft, node), drafts[k][len(node)]
            if flip(k, len(node), oracle.times_ratio(1.0, p[x], q[x])):
                node = (*node, x)
                break
            p = _normal(oracle.residual(p, q), p)
        else:
            return node, p


def traversal(
    target: Target, draft: Draft, drafts: Sequence[Text], flip: Flip, memo: dict[Any, Any]
) -> tuple[Text, Floats]:
    """Leaves first. A node of weight w whose subtree is spent is kept with probability w.

    A draft x at a node (law p, weight w) has weight min(1, w p(x)/q(x)); when it is refused, the
    node's law becomes (w p - q)₊ normalised, and with r its mass the weight becomes r/(r + 1 - w).
    """

    def visit(node: Text, w: float, test: tuple[int, int] | None) -> tuple[Text, Floats] | None:
        p = target(node)
        seen: set[int] = set()
        for k in _continuing(drafts, node):
            q, x = _row(draft, node), drafts[k][len(node)]
            child = (*node, x)
            weight = min(1.0, oracle.times_ratio(w, p[x], q[x]))
            if x not in seen:
                found = visit(child, weight, (k, len(node)))
            else:  # the subtree is spent: a leaf
                found = (child, target(child)) if flip(k, len(node), weight) else None
            if found is not None:
                return found
            seen.add(x)
            mass = oracle.residual(p, q, w)
            r = float(mass.sum())
            room = r + 1.0 - w
            p, w = _normal(mass, p), (r / room if room > 0.0 else 1.0)
        if test is None or flip(*test, w):
            return node, p
        return None

    found = visit((), 1.0, None)
    assert found is not None
    return found


def multipath(
    target: Target,
    draft: Draft,
    drafts: Sequence[Text],
    flip: Flip,
    memo: dict[Any, Any],
    marginal: bool = False,
) -> tuple[Text, Floats]:
    """Verify the greedy path as a block, against the law of greedy paths.

    Tests read the chosen draft's places, from the back: the largest passing index counts.
    """
    k, path, q = greedy_path(target, draft, drafts, marginal)
    p = np.stack([target(path[:i]) for i in range(len(path) + 1)])
    h, w = oracle.block_pass_probabilities(p, q, path), oracle.path_weights(p, q, path)
    for i in range(len(path), 0, -1):
        if flip(k, i - 1, float(h[i - 1])):
            return path[:i], p[i] if i == len(path) else oracle.residual(p[i], q[i], w[i])
    return (), oracle.residual(p[0], q[0]) if path else p[0]


def greedy_path(
    target: Target, draft: Draft, drafts: Sequence[Text], marginal: bool = False
) -> tuple[int, Text, Floats]:
    """(a draft, the chosen path along it, rows of the chosen path's law).

    At each node the drafted token with the largest p/q is taken (ties: lowest id). With F(x) the
    q-mass of tokens that rank no higher than x and m drafts, it is x with probability
    F(x)^m - (F(x) - q(x))^m. The published law follows whole paths instead: with C(u) the mass of
    paths of u's length that rank no higher than u, a prefix u is chosen with probability
    C(u)^K - (C(u) - q(u))^K.
    """
    node: Text = ()
    rows: list[Floats] = []
    below, own, count = 1.0, 1.0, sum(1 for d in drafts if d)
    while True:
        here = _continuing(drafts, node)
        if not here:
            through = [k for k, d in enumerate(drafts) if d[: len(node)] == node]
            return through[0], node, np.array(rows)
        p, q = target(node), _row(draft, node)
        ratio = np.where(q > 0.0, p / np.where(q > 0.0, q, 1.0), -1.0)
        worst_first = np.lexsort((-np.arange(len(q)), ratio))
        cumulative = np.empty_like(q)
        cumulative[worst_first] = np.cumsum(q[worst_first])
        if marginal:
            top = below - own + own * cumulative
            rows.append(q * _powers(top, top - own * q, count) / _powers(below, below - own, count))
        else:
            rows.append(q * _powers(cumulative, cumulative - q, len(here)))
        x = min((drafts[k][len(node)] for k in here), key=lambda x: (-ratio[x], x))
        below, own = below - own + own * float(cumulative[x]), own * float(q[x])
        node = (*node, x)


def spectr_gbv_law(target: Target, draft: Draft, drafts: Sequence[Text]) -> Masses:
    """One step by SpecTr-GBV's formulas (drafts of one length, its letters p and q swapped).

    With path masses P(x^i), Q(x^i) and ρ = min(1, Q/P): a prefix x^i, i < L, is accepted with

        h = [Σ_x P(x^i x)(1-ρ)^K - P(x^i)(1-ρ(x^i))^K]
            / [1 - (1-Q(x^i))^K - Σ_x P(x^i x)(1-(1-ρ)^K)]

    and a whole draft with P (1-(1-ρ)^K) / (1-(1-Q)^K); each prefix once, whichever drafts hold it;
    the longest accepted one is kept, and the next token follows P(x^i x)(1-ρ)^K.
    """
    count = len(drafts)
    masses: Masses = {}
    length = max(map(len, drafts))
    prefixes = {d[:i] for d in drafts for i in range(1, len(d) + 1)}
    alive = 1.0
    for text in sorted(prefixes, key=lambda u: (-len(u), u)):
        big, small = _path_mass(target, text), _path_mass(draft, text)
        covered = 1.0 - (1.0 - _part(small, big)) ** count
        some = 1.0 - (1.0 - small) ** count
        if len(text) == length:
            h, row = big * covered / some, target(text)
        else:
            mass = big * target(text)
            parts = np.array(
                [_part(small * q, m) for q, m in zip(_row(draft, text), mass, strict=True)]
            )
            row = mass * (1.0 - parts) ** count
            room = some - float((mass - row).sum())
            top = float(row.sum()) - big * (1.0 - covered)
            h = top / room if room > 0.0 else 1.0
        h = min(max(h, 0.0), 1.0) if row.sum() > 0.0 else 0.0
        masses[text] = alive * h * row / (row.sum() or 1.0)
        alive *= 1.0 - h
    root = target(()).copy()
    parts = np.array([_part(q, m) for q, m in zip(_row(draft, ()), root, strict=True)])
    left = _normal(root * (1.0 - parts) ** count, root)
    masses[()] = alive * left
    return masses


def spectr_gbv_objective(target: Target, draft: Draft, count: int, length: int) -> float:
    """The E[kept] that the paper states: Σ_t Σ_{x^t} P(x^t) [1 - (1 - min(1, Q/P))^K]."""
    total = 0.0
    for drafts, _ in all_draft_sets(lambda u: np.ones_like(target(u)), [length]):
        for i in range(1, length + 1):
            big, small = _path_mass(target, drafts[0][:i]), _path_mass(draft, drafts[0][:i])
            share = len(target(())) ** (length - i)  # how many drafts start like this
            total += big * (1.0 - (1.0 - _part(small, big)) ** count) / share
    return total


def _continuing(drafts: Sequence[Text], node: Text) -> list[int]:
    """The drafts that pass through `node` and have a token behind it."""
    depth = len(node)
    return [k for k, d in enumerate(drafts) if len(d) > depth and d[:depth] == node]


def _row(draft: Draft, node: Text) -> Floats:
    row = draft(node)
    assert row is not None
    return row


def _normal(mass: Floats, fallback: Floats) -> Floats:
    """`mass` normalised; without mass the place is unreachable and `fallback` stands for it."""
    total = float(mass.sum())
    return mass / total if total > 0.0 else fallback


def _powers(high: Any, low: Any, count: int) -> Any:
    """(high^count - low^count) / (high - low), without the difference."""
    return sum(high**j * np.maximum(low, 0.0) ** (count - 1 - j) for j in range(count))


def _part(small: float, big: float) -> float:
    return min(1.0, small / big) if big > 0.0 else (1.0 if small > 0.0 else 0.0)


def _path_mass(law: Callable[[Text], Floats | None], text: Text) -> float:
    mass = 1.0
    for i, x in enumerate(text):
        row = law(text[:i])
        assert row is not None
        mass *= float(row[x])
    return mass
