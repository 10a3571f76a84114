"""Layered verification of several i.i.d. drafts per request, batched, in torch.

::

    W(root) = 1; f_0 = 0
    depth i: at each node u, heaviest first, the m drafts there are let through in rounds
        (`levels`), which gives the children's weights W, the residual masses R_i(u, ·) <= W(u) p,
        and g, the probability that no draft was selected; f_{i+1} = Π (1 - a) over the drafts
    Φ_i = Π_{t>=i} f_t / g_t;  one uniform U;  exit at the largest i with U >= Φ_i
    keep the node u and write x with probability ∝ R_i(u, x)

The finished law is exactly p for any number of rounds. For one draft it is block verification,
for length 1 and one round K-SEQ. No rule is known to keep more tokens per step at this cost; the
linear program of `optimum` bounds them all.

Invariants
- Parameters of depth i read nothing deeper, and of the drafts there only how many they are.
- Arithmetic is float64 (float32 where the device has none), sums before ratios; a probability g
  below 1e-13 counts as unreachable.
- A residual without mass is an internal error, never a silent fallback.

Cost: per depth at most K nodes in turn, each one pass for one draft, about 20 per round for
several; on a CPU compiled (`scans`, `levels_on_cpu`). The exit's depth is computed twice, which
saves holding all residuals.

Siblings: `block` for one draft; `oracle_drafts` for the definitions.

Papers: layer verification (Cha, Cho, Yun 2026), block verification (arXiv 2403.10444), SpecTr
(arXiv 2310.15141).

Example::

    >>> import torch
    >>> target = torch.tensor([[[0.5, 0.5], [0.1, 0.9]]]).expand(1, 2, 2, 2)
    >>> draft = torch.tensor([[[0.9, 0.1]]]).expand(1, 2, 1, 2)
    >>> tokens, lengths = torch.tensor([[[0], [1]]]), torch.tensor([[1, 1]])
    >>> u = torch.tensor([[[0.5, 0.5], [0.0, 0.0]]])
    >>> verdict = layered_verify(target, draft, tokens, lengths, u)
    >>> verdict.accepted.tolist(), verdict.row.tolist(), verdict.token.tolist()
    ([1], [1], [1])
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from structspec.verification.drafts import DraftsBatch
from structspec.verification.levels import rounds_at
from structspec.verification.oracle_drafts import ORDER_UNIT, ROUNDS
from structspec.verification.oracle_levels import UNREACHABLE
from structspec.verification.rows import Verdict, sample_rows
from structspec.verification.scans import fits, overlap

__all__ = ["Layers", "layered_verify", "layers"]


def layered_verify(
    target: Tensor,
    draft: Tensor | None,
    tokens: Tensor,
    lengths: Tensor,
    uniforms: Tensor | None,
    *,
    onehot: Tensor | None = None,
    eos_ids: Sequence[int] = (),
    rounds: int = ROUNDS,
) -> Verdict:
    """Verify K drafts per request together.

    Args:
        target: probabilities p' [B, K, L + 1, V], float32 or float64; row i judges token i. Rows
            are normalised here. At a prefix that drafts share, the rows of the first one count.
        draft: probabilities q' [B, K, L, V] that the tokens were sampled from, or None if every
            place is deterministic.
        tokens: the drafts, integers [B, K, L]; padding may hold anything.
        lengths: int [B, K], 0..L each; 0 for an absent draft.
        uniforms: [B, K, L + 1] in [0, 1) (`randomness.Randomness.for_drafts`), of which three are
            read: [b, 0, 0] for the depth, [b, 1, L] for the node, [b, 0, L] for the token.
        onehot: bool [B, K, L], deterministic places; the same for all drafts through a node.
        eos_ids: end tokens; drafts are cut behind their first one, and if that is kept the
            verdict's token is -1.
        rounds: more rounds approach the optimum; 1 is K-SEQ at each node.

    The verdict's `row` is a draft that starts with the kept prefix. Raises as
    `block.block_verify`.
    """
    batch = DraftsBatch(target, draft, tokens, lengths, onehot, eos_ids)
    noise = batch.check_uniforms(uniforms)
    found = layers(batch, rounds)
    deep_enough = noise[:, 0, :1] >= found.phi
    places = batch.places
    depth = torch.where(deep_enough, places, 0).max(dim=1).values
    requests = torch.arange(len(depth), device=batch.device)
    masses = found.masses[requests, depth]
    several = ((masses > 0).sum(dim=1) != 1).nonzero()[:, 0]
    node = masses.argmax(dim=1)
    if several.numel():
        pick = noise[several, min(1, batch.per_request - 1), -1]
        node[several] = sample_rows(masses[several], pick)
    level = _Level(batch, requests, depth, found.weights[requests, depth], rounds, node).run()
    assert level.residual is not None
    row, token = batch.keep(requests, node, depth, level.residual, noise[:, 0, -1])
    return Verdict(depth, token, row)


@dataclass(frozen=True)
class Layers:
    """All depths of a batch: `weights` W and residual `masses` Σ_x R [B, L + 1, K] at the nodes'
    owners, `f`, `g` and `phi` [B, L + 1]; the exit is at least i deep with probability 1 - phi_i.
    """

    weights: Tensor
    masses: Tensor
    f: Tensor
    g: Tensor
    phi: Tensor


def layers(batch: DraftsBatch, rounds: int = ROUNDS) -> Layers:
    """Walk down all depths of a batch."""
    size, drafts, wide_length = batch.uniforms_shape
    requests = torch.arange(size, device=batch.device)
    w = torch.zeros(size, drafts, dtype=batch.wide, device=batch.device)
    w.scatter_(1, batch.owner[:, :1, 0], 1.0)
    f = torch.zeros(size, dtype=batch.wide, device=batch.device)
    weights: list[Tensor] = []
    masses: list[Tensor] = []
    fs: list[Tensor] = []
    gs: list[Tensor] = []
    for depth in range(wide_length):
        depths = torch.full_like(requests, depth)
        level = _Level(batch, requests, depths, w, rounds).run()
        for kept, value in ((weights, w), (masses, level.masses), (fs, f), (gs, level.g)):
            kept.append(value)
        w, f = level.below, level.alive
    f_all, g_all = torch.stack(fs, dim=1), torch.stack(gs, dim=1)
    parts = torch.where(g_all > 0, f_all / torch.where(g_all > 0, g_all, 1.0), 0.0).clamp(max=1.0)
    parts[:, 0] = 0.0
    phi = parts.flip(1).cumprod(dim=1).flip(1)
    return Layers(torch.stack(weights, dim=1), torch.stack(masses, dim=1), f_all, g_all, phi)


class _Level:
    """One depth of each request, node after node.

    `w` [n, K] are the nodes' weights at their owners. After `run`: `below` [n, K] the children's
    weights, `alive` [n] = Π (1 - a), `g` [n], `masses` [n, K] the residual masses, and `residual`
    [n, V] the residual rows of the nodes `wanted` [n], if asked for.
    """

    def __init__(
        self,
        batch: DraftsBatch,
        requests: Tensor,
        depths: Tensor,
        w: Tensor,
        rounds: int,
        wanted: Tensor | None = None,
    ) -> None:
        self.batch, self.requests, self.depths = batch, requests, depths
        self.w, self.rounds, self.wanted = w, rounds, wanted
        self.g = torch.ones(len(w), dtype=w.dtype, device=w.device)
        self.alive = self.g.clone()
        self.below = torch.zeros_like(w)
        self.masses = w.clone()  # a node without drafts keeps all of its weight
        self.residual: Tensor | None = None
        if wanted is not None:
            weight = w.gather(1, wanted[:, None])
            self.residual = batch.target_rows(batch.row(requests, wanted), depths) * weight

    def run(self) -> _Level:
        """Visit the nodes, heaviest first."""
        counts = self.batch.count[self.requests, :, self.depths]
        active = (self.w > 0) & (counts > 0)
        units = torch.where(active, (self.w / ORDER_UNIT + 0.5).floor(), -1.0)
        order = torch.sort(units, dim=1, descending=True, stable=True).indices
        number = active.sum(dim=1)
        for slot in range(int(number.max())):
            at = (number > slot).nonzero()[:, 0]
            nodes = order[at, slot]
            self._visit(at, nodes, counts[at, nodes])
        return self

    def _visit(self, at: Tensor, nodes: Tensor, m: Tensor) -> None:
        """Let the drafts of node `nodes[j]` of request `at[j]` through."""
        rows = self.batch.row(self.requests[at], nodes)
        hot = self.batch.hot[rows, self.depths[at]]
        # All copies of a deterministic token are one draft.
        lone = hot | (m == 1)
        if bool(lone.all()):
            self._lone(at, nodes, rows, hot)
            return
        for part, visit in ((lone, self._lone), (~lone, self._several)):
            i = part.nonzero()[:, 0]
            if i.numel():
                visit(at[i], nodes[i], rows[i], hot[i] if visit == self._lone else m[i])

    def _lone(self, at: Tensor, nodes: Tensor, rows: Tensor, hot: Tensor) -> None:
        """One draft at each node, its owner, is selected with min(1, c/(gQ)), and that is all."""
        places, g, weight = self.depths[at], self.g[at], self.w[at, nodes]
        ratio = weight * self.batch.ratios[rows, places]
        safe = torch.where(g > 0, g, 1.0)
        accept = torch.where(g > 0, (ratio / safe).clamp(max=1.0), 0.0)
        taken = g * accept  # of a deterministic token; other rows are scanned
        if not bool(hot.all()):
            dense = (~hot).nonzero()[:, 0]
            taken[dense] = self._covered(at[dense], nodes[dense], rows[dense])
        after = g * torch.where(g > 0, 1.0 - taken / safe, 0.0)
        self.g[at] = torch.where(after < UNREACHABLE, 0.0, after)
        self.masses[at, nodes] = (weight - taken).clamp(min=0.0)
        if self.residual is not None and self.wanted is not None:
            asked = (hot & (self.wanted[at] == nodes)).nonzero()[:, 0]
            row, token = at[asked], self.batch.tokens[rows, places][asked]
            left = self.residual[row, token] - taken[asked]
            self.residual[row, token] = left.clamp(min=0.0)
        child = self.batch.owner[self.requests[at], nodes, places + 1]
        self.below[at, child] += self.alive[at] * accept
        self.alive[at] *= 1.0 - accept

    def _covered(self, at: Tensor, nodes: Tensor, rows: Tensor) -> Tensor:
        """Σ min(c, gq) at nodes with one draft; what is left where the residual is wanted."""
        batch, depths, g = self.batch, self.depths[at], self.g[at]
        if not fits(batch.target, batch.draft):
            c, q = self._masses(at, nodes, rows)
            covered = torch.minimum(c, q.mul_(g[:, None]))
            self._keep_rows(at, nodes, c - covered)
            return covered.sum(dim=-1)
        if self.residual is not None and self.wanted is not None:
            i = (self.wanted[at] == nodes).nonzero()[:, 0]
            c, q = self._masses(at[i], nodes[i], rows[i])
            self._keep_rows(at[i], nodes[i], c.sub_(q.mul_(g[i, None])).clamp_(min=0.0))
        return overlap(batch.pairs(rows, depths), self.w[at, nodes], g)

    def _several(self, at: Tensor, nodes: Tensor, rows: Tensor, m: Tensor) -> None:
        batch, requests, depths = self.batch, self.requests[at], self.depths[at]
        c, q = self._masses(at, nodes, rows)
        tokens = batch.next_tokens(requests, depths)
        result = rounds_at(c, q, self.g[at], m, self.rounds, tokens)
        self.g[at] = result.g
        self.masses[at, nodes] = result.residual.sum(dim=-1)
        self._keep_rows(at, nodes, result.residual)
        # Round after round, draft after draft; [n, R, K].
        tests = result.accept * batch.through(requests, nodes, depths)[:, None]
        failed = (1.0 - tests).flatten(1).cumprod(dim=1)
        before = torch.cat([torch.ones_like(failed[:, :1]), failed[:, :-1]], dim=1)
        selected = (self.alive[at, None] * before).view_as(tests) * tests
        children = batch.owner[requests, :, depths + 1]
        owners = children[:, :, None] == torch.arange(tests.shape[2], device=self.w.device)
        # A sum over K terms in a fixed order, where scatter_add would not promise one.
        self.below[at] += (selected.sum(dim=1)[:, :, None] * owners).sum(dim=1)
        self.alive[at] *= failed[:, -1]

    def _masses(self, at: Tensor, nodes: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
        """c = W·p and q of the nodes, [n, V] each."""
        c = self.batch.target_rows(rows, self.depths[at]).mul_(self.w[at, nodes, None])
        return c, self.batch.draft_rows(rows, self.depths[at])

    def _keep_rows(self, at: Tensor, nodes: Tensor, left: Tensor) -> None:
        """Remember the residual rows of wanted nodes."""
        if self.residual is not None and self.wanted is not None:
            asked = (self.wanted[at] == nodes).nonzero()[:, 0]
            self.residual[at[asked]] = left[asked]
