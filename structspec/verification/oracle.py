"""The float64 oracle: single-draft verification, written to be read beside the papers.

Owns the definitions that every faster implementation is tested against, in three layers:

- `token_verify`, `block_verify`, `greedy_verify` take one decision from given uniforms;
- `token_law`, `block_law`, `greedy_law` give the *exact* law of that decision for a given draft:
  the probability of each exit and the residual law at each exit;
- `output_law` enumerates all drafts, all exits and all continuations, hence the exact law of the
  text; `plain_law` is the law of plain sampling, which it must equal.

Letters: `p` target rows, `q` draft rows, both already masked and warped; `L` the draft's length;
`tokens[i]` is drawn from `q[i]` and judged by `p[i]`; `p[L]` is the row behind the whole draft.
A deterministic draft (forced span, look-up, greedy drafter) has one-hot rows `q`.

Conventions
- `p/q` is 0 where p = 0, even if q = 0, and infinite where only q = 0.
- Block: `h = 1` where `r = 1 - w = 0`; the *largest* passing index wins, 0 if none passes.
- A test passes when `u < h` for u in [0, 1). The strict sign keeps its probability at exactly h,
  so that h = 1 always passes and h = 0, an illegal token, never does; `u <= h` would let u = 0 in.
- Nothing follows an end token: a draft is cut behind its first one, and if that one is kept there
  is no next token (`token = -1`). In laws, texts are cut behind their end token.

Cost: `output_law` is O(V**L · L·V) in plain Python and numpy; meant for V <= 4, L <= 4.

Siblings: `oracle_drafts` for several drafts, `oracle_trees` for trees; `token`, `block` and
`greedy` are the batched torch implementations.

Papers: Leviathan, Kalman, Matias 2022 (arXiv 2211.17192) and Chen et al. 2023 (arXiv 2302.01318)
for token-wise verification; Sun et al. 2024 (arXiv 2403.10444) for block verification.

Example::

    >>> import numpy as np
    >>> p = np.array([[0.5, 0.5], [0.1, 0.9]])
    >>> q = np.array([[0.8, 0.2]])
    >>> law = block_law(p, q, [0])                  # drafted token 0: accepted with 0.5 / 0.8
    >>> law.exit.round(3).tolist(), law.emit[0].tolist()
    ([0.375, 0.625], [0.0, 1.0])
    >>> target = lambda prefix: p[min(len(prefix), 1)]
    >>> exact = output_law(block_law, target, lambda prefix: q[0], length=1, total=2)
    >>> bool(distance(exact, plain_law(target, 2)) < 1e-15)
    True
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from structspec.errors import ModelError

__all__ = [
    "Decision",
    "ExitLaw",
    "all_drafts",
    "block_law",
    "block_pass_probabilities",
    "block_verify",
    "continued",
    "cut",
    "distance",
    "draw",
    "expected_accepted",
    "greedy_law",
    "greedy_verify",
    "one_hot",
    "optimal_accepted",
    "output_law",
    "path_weights",
    "plain_law",
    "residual",
    "row_behind",
    "step_law",
    "times_ratio",
    "token_law",
    "token_verify",
]

Floats: TypeAlias = NDArray[np.float64]
Text: TypeAlias = tuple[int, ...]
Target: TypeAlias = Callable[[Text], Floats]
"""The target's law of the next token behind a prefix."""
Draft: TypeAlias = Callable[[Text], "Floats | None"]
"""The draft's law behind a prefix, or None where the draft stops by its own choice."""
Law: TypeAlias = dict[Text, float]
DecisionLaw: TypeAlias = Callable[[Floats, Floats, Sequence[int]], "ExitLaw"]


@dataclass(frozen=True)
class Decision:
    """One verification's outcome: keep `accepted` drafted tokens, then write `token`.

    `token` is -1 if the kept prefix ends with an end token.
    """

    accepted: int
    token: int


@dataclass(frozen=True)
class ExitLaw:
    """The exact law of one verification, given the drafted tokens.

    `exit[i]`, i = 0..L, is the probability of keeping exactly i drafted tokens. `emit[i]` is the
    law of the next token in that case: the normalised residual, or the target row p[L] at i = L.
    A row of zeros stands where the residual has no mass, which is only legal if exit[i] is 0 up
    to rounding.
    """

    exit: Floats
    emit: Floats


def one_hot(token: int, size: int) -> Floats:
    """The law that always draws `token`: the row of a deterministic draft."""
    row = np.zeros(size)
    row[token] = 1.0
    return row


def path_weights(p: Floats, q: Floats, tokens: Sequence[int]) -> Floats:
    """Block verification's w_0..w_L: w_0 = 1, w_i = min(1, w_{i-1} · p_i(x_i) / q_i(x_i))."""
    weights = [1.0]
    for i, x in enumerate(tokens):
        weights.append(min(1.0, times_ratio(weights[-1], p[i, x], q[i, x])))
    return np.array(weights)


def residual(p_row: Floats, q_row: Floats, weight: float = 1.0) -> Floats:
    """The mass (w·p - q)₊ that a draft drawn from q leaves uncovered; not normalised."""
    return np.maximum(weight * p_row - q_row, 0.0)


def block_pass_probabilities(p: Floats, q: Floats, tokens: Sequence[int]) -> Floats:
    """h_1..h_L of block verification (index 0 of the result is h_1).

    h_i = r_i / (r_i + 1 - w_i) with r_i = Σ_x (w_i p_{i+1}(x) - q_{i+1}(x))₊, and h_L = w_L.
    """
    length = len(tokens)
    w = path_weights(p, q, tokens)
    h = np.empty(length)
    for i in range(1, length):
        r = float(residual(p[i], q[i], w[i]).sum())
        room = r + (1.0 - w[i])
        h[i - 1] = 1.0 if room == 0.0 else r / room
    if length:
        h[-1] = w[-1]
    return h


def token_verify(
    p: Floats,
    q: Floats,
    tokens: Sequence[int],
    uniforms: Sequence[float] | Floats,
    ends: Collection[int] = (),
) -> Decision:
    """Token-wise verification: accept x_i with min(1, p/q), stop at the first rejection.

    `p` is [L + 1, V], `q` [L, V]; `uniforms` holds one test per drafted token, and last the one
    that draws the next token.
    """
    tokens = cut(tokens, ends)
    for i, x in enumerate(tokens):
        if not uniforms[i] < times_ratio(1.0, p[i, x], q[i, x]):
            return Decision(i, draw(residual(p[i], q[i]), uniforms[-1]))
    return _all_kept(p, tokens, uniforms[-1], ends)


def block_verify(
    p: Floats,
    q: Floats,
    tokens: Sequence[int],
    uniforms: Sequence[float] | Floats,
    ends: Collection[int] = (),
) -> Decision:
    """Block verification: keep the *largest* τ with u_τ < h_τ; arguments as `token_verify`."""
    tokens = cut(tokens, ends)
    h = block_pass_probabilities(p, q, tokens)
    passing = [i for i in range(1, len(tokens) + 1) if uniforms[i - 1] < h[i - 1]]
    tau = max(passing, default=0)
    if tau == len(tokens):
        return _all_kept(p, tokens, uniforms[-1], ends)
    weight = path_weights(p, q, tokens)[tau]
    return Decision(tau, draw(residual(p[tau], q[tau], weight), uniforms[-1]))


def greedy_verify(p: Floats, tokens: Sequence[int], ends: Collection[int] = ()) -> Decision:
    """Temperature 0: keep tokens while each is the argmax of its row (ties: lowest id)."""
    tokens = cut(tokens, ends)
    for i, x in enumerate(tokens):
        if x != int(np.argmax(p[i])):
            return Decision(i, int(np.argmax(p[i])))
    if tokens and tokens[-1] in ends:
        return Decision(len(tokens), -1)
    return Decision(len(tokens), int(np.argmax(p[len(tokens)])))


def token_law(p: Floats, q: Floats, tokens: Sequence[int]) -> ExitLaw:
    """Exact law of `token_verify` for this draft. `p` is [L + 1, V], `q` [L, V]."""
    length = len(tokens)
    exits, masses, alive = [], [], 1.0
    for i, x in enumerate(tokens):
        accept = min(1.0, times_ratio(1.0, p[i, x], q[i, x]))
        exits.append(alive * (1.0 - accept))
        masses.append(residual(p[i], q[i]))
        alive *= accept
    return _exit_law([*exits, alive], [*masses, p[length]])


def block_law(p: Floats, q: Floats, tokens: Sequence[int]) -> ExitLaw:
    """Exact law of `block_verify` for this draft: exit_i = h_i · Π_{j>i} (1 - h_j)."""
    length = len(tokens)
    h = np.concatenate([[1.0], block_pass_probabilities(p, q, tokens)])
    w = path_weights(p, q, tokens)
    exits = [float(h[i] * np.prod(1.0 - h[i + 1 :])) for i in range(length + 1)]
    masses = [residual(p[i], q[i], w[i]) for i in range(length)]
    return _exit_law(exits, [*masses, p[length]])


def greedy_law(p: Floats, q: Floats, tokens: Sequence[int]) -> ExitLaw:
    """Law of `greedy_verify`, a point mass; `q` plays no part."""
    del q
    kept = greedy_verify(p, tokens).accepted
    exits = [float(i == kept) for i in range(len(tokens) + 1)]
    size = p.shape[1]
    return _exit_law(exits, [one_hot(int(np.argmax(row)), size) for row in p[: len(tokens) + 1]])


def all_drafts(
    draft: Draft, length: int, prefix: Text = (), ends: Collection[int] = ()
) -> Iterator[tuple[Text, float, Floats]]:
    """Every draft behind `prefix` with positive probability: tokens, probability, rows [L, V]."""

    def walk(tokens: Text, mass: float, rows: list[Floats]) -> Iterator[tuple[Text, float, Floats]]:
        stop = len(tokens) == length or bool(tokens and tokens[-1] in ends)
        row = None if stop else draft(prefix + tokens)
        if row is None:
            yield tokens, mass, np.array(rows)
            return
        for x in np.flatnonzero(row):
            yield from walk((*tokens, int(x)), mass * float(row[x]), [*rows, row])

    yield from walk((), 1.0, [])


def step_law(
    law: DecisionLaw,
    target: Target,
    draft: Draft,
    length: int,
    prefix: Text = (),
    ends: Collection[int] = (),
) -> Law:
    """Exact law of what one step appends behind `prefix`: kept tokens and the next one."""
    result: Law = {}
    for tokens, mass, q in all_drafts(draft, length, prefix, ends):
        p = np.stack(
            [row_behind(target, prefix + tokens[:i], ends) for i in range(len(tokens) + 1)]
        )
        exact = law(p, q, tokens)
        for i in np.flatnonzero(exact.exit):
            leave = float(exact.exit[i])
            for x in np.flatnonzero(exact.emit[i]):
                text = cut((*tokens[:i], int(x)), ends)
                result[text] = result.get(text, 0.0) + mass * leave * float(exact.emit[i, x])
    return result


def output_law(
    law: DecisionLaw,
    target: Target,
    draft: Draft,
    length: int,
    total: int,
    ends: Collection[int] = (),
    speculate_again: bool = False,
) -> Law:
    """Exact law of the first `total` tokens of the text.

    After the first step the text goes on by plain sampling from the target, or, with
    `speculate_again`, by further steps with fresh randomness. A step that writes past `total` is
    cut there. Lossless means: equal to `plain_law(target, total, ends)`.
    """
    return continued(
        step_law(law, target, draft, length, (), ends),
        target,
        total,
        ends,
        (lambda prefix: step_law(law, target, draft, length, prefix, ends))
        if speculate_again
        else None,
    )


def plain_law(target: Target, total: int, ends: Collection[int] = (), prefix: Text = ()) -> Law:
    """Law of the first `total` tokens of plain sampling, texts cut behind their end token."""
    return continued({prefix: 1.0}, target, total, ends, None)


def distance(left: Mapping[Text, float], right: Mapping[Text, float]) -> float:
    """Largest difference between two laws' probabilities of one text."""
    return max(abs(left.get(t, 0.0) - right.get(t, 0.0)) for t in {*left, *right})


def expected_accepted(
    law: DecisionLaw,
    target: Target,
    draft: Draft,
    length: int,
    prefix: Text = (),
    ends: Collection[int] = (),
) -> float:
    """E[number of drafted tokens that one step keeps], exact."""
    result = 0.0
    for tokens, mass, q in all_drafts(draft, length, prefix, ends):
        p = np.stack(
            [row_behind(target, prefix + tokens[:i], ends) for i in range(len(tokens) + 1)]
        )
        result += mass * float(law(p, q, tokens).exit @ np.arange(len(tokens) + 1.0))
    return result


def optimal_accepted(
    target: Target,
    draft: Draft,
    length: int,
    prefix: Text = (),
    ends: Collection[int] = (),
) -> float:
    """The most tokens that any lossless step-by-step verifier of one draft keeps on average.

    Let A(x^i) be the probability that the draft starts with x^i and at least these i tokens are
    kept. The draft's law gives A(x^i) <= q(x^i). Given that x^{i-1} is kept, the next token of
    the text is drawn from p whether or not it comes from the draft, so A(x^i) <=
    A(x^{i-1}) p(x_i). E[accepted] = Σ A over all nodes, and each bound is monotone in its
    parent: the linear program's optimum is v(x^i) = min(v(x^{i-1}) p(x_i), q(x^i)) at every node.
    """

    def below(text: Text, v: float, q_mass: float, depth: int) -> float:
        drafted = text[len(prefix) :]
        q_row = draft(text) if depth < length else None
        if q_row is None or (drafted and drafted[-1] in ends):
            return 0.0
        p_row = row_behind(target, text, ends)
        value = 0.0
        for x in range(len(q_row)):
            child = min(v * p_row[x], q_mass * q_row[x])
            if child > 0.0:
                value += child + below((*text, x), child, q_mass * q_row[x], depth + 1)
        return value

    return below(prefix, 1.0, 1.0, 0)


def times_ratio(weight: float, p: float, q: float) -> float:
    """weight · p/q under the module's conventions."""
    if weight == 0.0 or p == 0.0:  # also 0/0: an illegal token is never kept
        return 0.0
    return np.inf if q == 0.0 else float(weight * (p / q))


def cut(tokens: Sequence[int], ends: Collection[int]) -> Text:
    """`tokens` up to and with the first end token."""
    for i, x in enumerate(tokens):
        if x in ends:
            return tuple(tokens[: i + 1])
    return tuple(tokens)


def row_behind(target: Target, text: Text, ends: Collection[int]) -> Floats:
    """The target's row behind `text`, also where the text has ended."""
    # An end token is absorbing: it stands for the whole empty rest of the text.
    if text and text[-1] in ends:
        return one_hot(text[-1], len(target(text[:-1])))
    return target(text)


def draw(mass: Floats, uniform: float) -> int:
    """A token from unnormalised `mass` by inversion; never one without mass."""
    cumulative = np.cumsum(mass)
    if not cumulative[-1] > 0.0:
        raise ModelError("internal error: an exit was chosen whose residual has no mass")
    index = int(np.searchsorted(cumulative, uniform * cumulative[-1], side="right"))
    return min(index, int(np.flatnonzero(mass)[-1]))


def _all_kept(p: Floats, tokens: Text, uniform: float, ends: Collection[int]) -> Decision:
    if tokens and tokens[-1] in ends:
        return Decision(len(tokens), -1)
    return Decision(len(tokens), draw(p[len(tokens)], uniform))


def _exit_law(exits: Sequence[float], masses: Sequence[Floats]) -> ExitLaw:
    emit = np.zeros((len(masses), len(masses[0])))
    for i, mass in enumerate(masses):
        total = float(mass.sum())
        if total > 0.0:
            emit[i] = mass / total
        elif exits[i] > 1e-12:
            raise ModelError(
                f"internal error: exit {i} has probability {exits[i]:.3g} but no residual mass"
            )
    return ExitLaw(np.array(exits), emit)


def continued(
    law: Law,
    target: Target,
    total: int,
    ends: Collection[int],
    step: Callable[[Text], Law] | None,
) -> Law:
    """Extend every open text of `law` to `total` tokens, shortest first.

    `step(text)` is the law of what is appended behind a text; None samples from the target.
    """
    open_texts: list[Law] = [{} for _ in range(total)]
    done: Law = {}

    def file(text: Text, mass: float) -> None:
        text = text[:total]
        closed = len(text) == total or bool(text and text[-1] in ends)
        shelf = done if closed else open_texts[len(text)]
        shelf[text] = shelf.get(text, 0.0) + mass

    for text, mass in law.items():
        file(text, mass)
    for shelf in open_texts:
        for text, mass in shelf.items():
            if step is not None:
                for more, chance in step(text).items():
                    file(text + more, mass * chance)
            else:
                row = target(text)
                for x in np.flatnonzero(row):
                    file((*text, int(x)), mass * float(row[x]))
    return done
