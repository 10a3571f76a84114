"""The definition in float64, request by request, and the exact law of one verification.

`layered_law` takes given knots and turns as well, so that a faster implementation's own plan can
be judged: any plan whose residuals are not negative is lossless.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
import torch
from torch import Tensor

from structspec.kernels.block_verify.reference import draft_row, host_uniforms, sound_rows
from structspec.kernels.layered_verify.plan import GRID, TINY, LayeredVerdict, slope, solve
from structspec.kernels.logit_rows import LogitRows, Status
from structspec.kernels.masked_softmax_stats.reference import Floats, host_laws
from structspec.kernels.philox import Noise

__all__ = ["LayeredLaw", "Plan", "Rows", "case_rows", "layered_law", "reference_layered_verify"]

Rows: TypeAlias = Callable[[int, int], Floats]
"""(draft, place) → law of the row there."""
Plan: TypeAlias = Callable[[int, int], tuple[int, float, float]]
"""(draft, depth) of a node's owning path → its turn (-1: never served) and knots."""


@dataclass
class LayeredLaw:
    """The exact law of one verification, given the drafts.

    thresholds: Φ_0..Φ_L. residuals[i]: (owning path, mass [V + 1]) of the nodes at depth i; the
    last column is the mass of ending there. lowest: the most negative residual seen, 0 or rounding.
    """

    thresholds: Floats
    residuals: list[list[tuple[int, Floats]]]
    knots: dict[tuple[int, int], tuple[float, float]] = field(default_factory=dict)
    turns: dict[tuple[int, int], int] = field(default_factory=dict)
    lowest: float = 0.0

    def exits(self) -> Floats:
        """P(exit at depth i), i = 0..L."""
        return np.diff(np.append(self.thresholds, 1.0))


def layered_law(
    p: Rows,
    q: Rows,
    drafts: list[list[int]],
    length: int,
    rounds: int = 2,
    ends: frozenset[int] = frozenset(),
    plan: Plan | None = None,
) -> LayeredLaw:
    """See `LayeredLaw`; drafts are already cut behind their end tokens."""
    law = LayeredLaw(np.ones(length + 1), [])
    weights = dict.fromkeys(range(len(drafts)), 1.0)  # path → W of its node at this depth
    f, ratios = 0.0, []
    for i in range(length + 1):
        first: dict[tuple[int, ...], int] = {}
        owner = {}
        # A node belongs to its first path that goes on, for only those have a draft row there.
        for goes_on in (True, False):
            for k, tokens in enumerate(drafts):
                if len(tokens) > i if goes_on else len(tokens) == i:
                    owner[k] = first.setdefault(tuple(tokens[:i]), k)
        nodes = sorted(set(owner.values()), key=lambda u: (-weights[u], u))
        if plan is not None:
            nodes.sort(key=lambda u: plan(u, i)[0] if i < length else u)
        g = nominal = alive = 1.0
        children: dict[int, float] = {}
        depth: list[tuple[int, Floats]] = []
        for turn, u in enumerate(nodes):
            w = weights[u]
            if i and drafts[u][i - 1] in ends:
                size = len(p(u, i - 1))
                depth.append((u, np.append(np.zeros(size), w)))
                continue
            mass = w * p(u, i)
            through = [k for k, at in owner.items() if at == u and len(drafts[k]) > i]
            serve = w > TINY and nominal > TINY
            z1 = z2 = taken = 0.0
            if through:
                q_row, m = q(u, i), len(through)
                if plan is not None:
                    order, z1, z2 = plan(u, i)
                    serve = order >= 0
                elif serve:
                    table = np.minimum(p(u, i), GRID[:, None] * q_row).sum(axis=1)
                    z1, z2, taken = solve(table, m, nominal / w, rounds)
                for k in through:
                    children[k] = 0.0
                if serve:
                    law.knots[u, i], law.turns[u, i] = (z1, z2), turn
                    t1, t2 = _tents(p(u, i), q_row, z1, z2)
                    b1, b2 = float(q_row @ t1), float(q_row @ (t1 + t2))
                    mass -= g * q_row * slope(1.0, 1.0 - b1, m) * t1
                    mass -= g * q_row * slope(1.0 - b1, 1.0 - b2, m) * t2
                    for chance in (t1, t2 / np.where(t1 < 1.0, 1.0 - t1, 1.0)):
                        for k in through:
                            a = float(chance[drafts[k][i]])
                            children[k] += alive * a
                            alive *= 1.0 - a
                    g *= (1.0 - min(b2, 1.0)) ** m
                    nominal *= (1.0 - taken) ** m
            law.lowest = min(law.lowest, float(mass.min()))
            depth.append((u, np.append(np.maximum(mass, 0.0), 0.0)))
        law.residuals.append(sorted(depth, key=lambda entry: entry[0]))
        ratios.append(f / g if g > 0.0 else 1.0)
        f = alive
        weights = {
            k: sum(w for j, w in children.items() if drafts[j][: i + 1] == drafts[k][: i + 1])
            for k in children
        }
    for i in range(length, -1, -1):
        behind = law.thresholds[i + 1] if i < length else 1.0
        law.thresholds[i] = min(behind * min(ratios[i], 1.0), 1.0)
    return law


def _tents(p: Floats, q: Floats, z1: float, z2: float) -> tuple[Floats, Floats]:
    """t1 and t2 of every token; where q = 0 they do not matter (0 here)."""
    r = np.divide(p, q, out=np.zeros_like(p), where=q > 0.0)
    both = np.minimum(r / z2, 1.0)
    if z1 <= z2:
        return both, np.zeros_like(both)
    first = np.clip((r - z2) / (z1 - z2), 0.0, 1.0)
    return first, np.maximum(both - first, 0.0)


def case_rows(
    laws: Floats | None, rows: Tensor | None, b: int, shape: tuple[int, int],
    tokens: Tensor | None = None, vocab: int = 0,
) -> Rows:  # fmt: skip
    """The rows of request `b` by (draft, place); `tokens` [K, L] for one-hot places."""
    drafts, places = shape

    def row(k: int, i: int) -> Floats:
        at = (b * drafts + k) * places + i if rows is None else int(rows[b, k, i])
        if tokens is None:
            assert laws is not None
            return laws[at]
        return draft_row(laws, at, int(tokens[k, i]), vocab)

    return row


def reference_layered_verify(
    target: LogitRows,
    draft: LogitRows | None,
    tokens: Tensor,
    lengths: Tensor,
    target_rows: Tensor | None,
    draft_rows: Tensor | None,
    uniforms: Tensor | None,
    noise: Noise | None,
    eos_ids: Tensor | None,
    rounds: int,
) -> LayeredVerdict:
    """`layered_verify` on the host."""
    batch, drafts, length = tokens.shape
    u = host_uniforms(uniforms, noise, 1)
    p_laws = host_laws(target)
    q_laws = None if draft is None else host_laws(draft)
    ends = frozenset() if eos_ids is None else frozenset(eos_ids.tolist())
    out = np.zeros((4, batch), np.int32)
    thresholds = np.ones((batch, length + 1))
    knots = np.zeros((batch, drafts, length, 2))
    turns = np.full((batch, drafts, length), -1, np.int32)
    for b in range(batch):
        p = case_rows(p_laws, target_rows, b, (drafts, length + 1))
        q = case_rows(q_laws, draft_rows, b, (drafts, length), tokens[b], target.vocab)
        paths, status = _paths(tokens[b], lengths[b], ends, target.vocab)
        if not status:
            status = _sound(p, q, paths, ends)
        if status:
            out[2, b], out[3, b] = -1, status
            continue
        law = layered_law(p, q, paths, length, rounds, ends)
        thresholds[b] = law.thresholds
        for (k, i), pair in law.knots.items():
            knots[b, k, i], turns[b, k, i] = pair, law.turns[k, i]
        depth = int(np.flatnonzero(u[b, 0] >= law.thresholds)[-1])
        nodes = law.residuals[depth]
        running = np.cumsum(np.concatenate([mass for _, mass in nodes]))
        if not running[-1] > 0.0:
            out[2, b], out[3, b] = -1, Status.NO_MASS
            continue
        cell = int(np.searchsorted(running, u[b, 1] * running[-1], side="right"))
        cell = min(cell, int(np.flatnonzero(np.diff(running, prepend=0.0))[-1]))
        node, column = divmod(cell, target.vocab + 1)
        out[0, b], out[1, b] = depth, nodes[node][0]
        out[2, b] = -1 if column == target.vocab else column
    accepted, path, token, status_out = (torch.from_numpy(row.copy()) for row in out)
    return LayeredVerdict(
        accepted, path, token, status_out, torch.from_numpy(thresholds),
        torch.from_numpy(knots), torch.from_numpy(turns),
    )  # fmt: skip


def _paths(
    tokens: Tensor, lengths: Tensor, ends: frozenset[int], vocab: int
) -> tuple[list[list[int]], int]:
    """The drafts cut behind their end tokens, and a status."""
    paths = []
    for row, n in zip(tokens.tolist(), lengths.tolist(), strict=True):
        path = row[: max(n, 0)]
        if not 0 <= n <= len(row) or any(not 0 <= x < vocab for x in path):
            return [], int(Status.BAD_TOKEN)
        paths.append(path[: next((i + 1 for i, x in enumerate(path) if x in ends), n)])
    return paths, 0


def _sound(p: Rows, q: Rows, paths: list[list[int]], ends: frozenset[int]) -> int:
    status = 0
    for k, path in enumerate(paths):
        open_end = not (path and path[-1] in ends)
        p_rows = np.stack([p(k, i) for i in range(len(path) + open_end)])
        q_rows = np.array([q(k, i) for i in range(len(path))]).reshape(len(path), p_rows.shape[1])
        status = max(status, sound_rows(p_rows, q_rows, path))
    return status
