"""K-SEQ, recursive rejection and greedy multi-path block verification, batched, in torch.

Published rules for several i.i.d. drafts, kept to compare `layered` with; all are exact. Their
definitions, with the papers, are in `oracle_baselines`: `kseq`, `recursive`, `multipath`.

Invariants: arguments, `row` and errors as `layered.layered_verify`; test i of draft k reads
uniforms[b, k, i], the next token uniforms[b, 0, L].

Cost: per depth one node per request: about 10 passes over a row for K-SEQ, up to 3 K for
recursive rejection, one sort for the greedy path.

Siblings: `traversal` for the rule that starts at the leaves; `tree` for drafts without
replacement.

Example::

    >>> import torch
    >>> target = torch.tensor([[[0.5, 0.5], [0.1, 0.9]]]).expand(1, 2, 2, 2)
    >>> draft = torch.tensor([[[0.9, 0.1]]]).expand(1, 2, 1, 2)
    >>> tokens, lengths = torch.tensor([[[0], [1]]]), torch.tensor([[1, 1]])
    >>> u = torch.tensor([[[0.7, 0.5], [0.9, 0.0]]])         # draft 0: .7 >= .5/.9, so it fails
    >>> verdict = recursive_verify(target, draft, tokens, lengths, u)
    >>> verdict.accepted.tolist(), verdict.row.tolist(), verdict.token.tolist()
    ([1], [1], [1])
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from structspec.verification.block import block_verify
from structspec.verification.drafts import DraftsBatch
from structspec.verification.levels import rounds_at, single_at
from structspec.verification.rows import Verdict

__all__ = ["kseq_verify", "multipath_verify", "recursive_verify"]


def kseq_verify(
    target: Tensor,
    draft: Tensor | None,
    tokens: Tensor,
    lengths: Tensor,
    uniforms: Tensor | None,
    *,
    onehot: Tensor | None = None,
    eos_ids: Sequence[int] = (),
) -> Verdict:
    """Walk down with SpecTr's K-SEQ at each node; arguments as `layered.layered_verify`."""
    batch = DraftsBatch(target, draft, tokens, lengths, onehot, eos_ids)
    return _walk(batch, batch.check_uniforms(uniforms), _kseq_node)


def recursive_verify(
    target: Tensor,
    draft: Tensor | None,
    tokens: Tensor,
    lengths: Tensor,
    uniforms: Tensor | None,
    *,
    onehot: Tensor | None = None,
    eos_ids: Sequence[int] = (),
) -> Verdict:
    """Walk down with recursive rejection; arguments as `layered.layered_verify`."""
    batch = DraftsBatch(target, draft, tokens, lengths, onehot, eos_ids)
    return _walk(batch, batch.check_uniforms(uniforms), _recursive_node)


def multipath_verify(
    target: Tensor,
    draft: Tensor | None,
    tokens: Tensor,
    lengths: Tensor,
    uniforms: Tensor | None,
    *,
    onehot: Tensor | None = None,
    eos_ids: Sequence[int] = (),
) -> Verdict:
    """Choose the path of the largest p/q and verify it as a block against the law of such paths."""
    batch = DraftsBatch(target, draft, tokens, lengths, onehot, eos_ids)
    noise = batch.check_uniforms(uniforms)
    size, _, wide_length = batch.uniforms_shape
    requests = torch.arange(size, device=batch.device)
    node = batch.owner[:, 0, 0].clone()
    path = torch.zeros(size, wide_length - 1, dtype=torch.long, device=batch.device)
    law = torch.zeros(size, wide_length - 1, batch.vocab, dtype=batch.wide, device=batch.device)
    length = torch.zeros(size, dtype=torch.long, device=batch.device)
    for depth in range(wide_length - 1):
        at = (batch.count[requests, node, depth] > 0).nonzero()[:, 0]
        at = at[length[at] == depth]
        if not at.numel():
            break
        depths = torch.full_like(at, depth)
        rows = batch.row(at, node[at])
        p, q = batch.target_rows(rows, depths), batch.draft_rows(rows, depths)
        through = batch.through(at, node[at], depths)
        drafted = batch.next_tokens(at, depths)
        ratio = torch.where(q > 0, p / q, -1.0)
        # Worst first, and of equal ratios the largest id first: id 0 ranks best.
        order = ratio.flip(1).sort(dim=1, stable=True).indices
        order = batch.vocab - 1 - order
        cumulative = torch.empty_like(q).scatter_(1, order, q.gather(1, order).cumsum(dim=1))
        law[at, depth] = q * _powers(cumulative, cumulative - q, through.sum(dim=1))
        rank = torch.empty_like(order).scatter_(
            1, order, torch.arange(batch.vocab, device=batch.device).expand_as(order)
        )
        best = torch.where(through, rank.gather(1, drafted), -1).argmax(dim=1)
        path[at, depth] = drafted.gather(1, best[:, None])[:, 0]
        length[at] += 1
        node[at] = batch.owner[at, best, depth + 1]
    # Which draft ends the path: the first that has all of it.
    chosen = batch.same[requests, node, :, length] & batch.exists[requests, :, length]
    chosen = chosen.byte().argmax(dim=1)
    depths = batch.places.expand(size, -1)
    rows = batch.row(requests, node)[:, None]
    owners = batch.owners[rows.expand(-1, wide_length), depths.clamp(max=wide_length - 1)]
    tests = noise[requests, chosen]
    tests = torch.cat([tests[:, :-1], noise[:, 0, -1:]], dim=1)
    verdict = block_verify(batch.target[owners, depths], law, path, length, tests, eos_ids=eos_ids)
    return Verdict(verdict.accepted, verdict.token, chosen)


#: (batch, requests, nodes, depth, uniforms of the drafts' tests) → (which draft passes or -1,
#: masses of the next token if none does)
_Node = Callable[[DraftsBatch, Tensor, Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]


def _walk(batch: DraftsBatch, noise: Tensor, decide: _Node) -> Verdict:
    """From the root down while a draft passes at the node."""
    size, _, wide_length = batch.uniforms_shape
    node = batch.owner[:, 0, 0].clone()
    accepted = torch.zeros_like(node)
    token = torch.full_like(node, -1)
    at = torch.arange(size, device=batch.device)
    for depth in range(wide_length):
        depths = torch.full_like(at, depth)
        on = batch.count[at, node[at], depth] > 0
        leaf = at[~on]
        if leaf.numel():
            there = torch.full_like(leaf, depth)
            mass = batch.target_rows(batch.row(leaf, node[leaf]), there)
            _, token[leaf] = batch.keep(leaf, node[leaf], there, mass, noise[leaf, 0, -1])
        at, depths = at[on], depths[on]
        if not at.numel():
            break
        passing, mass = decide(batch, at, node[at], depths, noise[at, :, depth])
        stop = passing < 0
        if bool(stop.any()):
            _, token[at[stop]] = batch.keep(
                at[stop], node[at[stop]], depths[stop], mass[stop], noise[at[stop], 0, -1]
            )
        at, passing = at[~stop], passing[~stop]
        accepted[at] += 1
        node[at] = batch.owner[at, passing, depth + 1]
    return Verdict(accepted, token, node)


def _kseq_node(
    batch: DraftsBatch, at: Tensor, node: Tensor, depths: Tensor, u: Tensor
) -> tuple[Tensor, Tensor]:
    rows = batch.row(at, node)
    through = batch.through(at, node, depths)
    tokens = batch.next_tokens(at, depths)
    hot = batch.hot[rows, depths]
    through &= ~hot[:, None] | (through.long().cumsum(dim=1) == 1)
    p, q = batch.target_rows(rows, depths), batch.draft_rows(rows, depths)
    m = through.sum(dim=1)
    one = torch.ones(len(at), dtype=batch.wide, device=batch.device)
    accept = torch.zeros(u.shape, dtype=batch.wide, device=batch.device)
    mass = torch.empty_like(p)
    for part, several in (((m > 1).nonzero()[:, 0], True), ((m == 1).nonzero()[:, 0], False)):
        if not part.numel():
            continue
        if several:
            result = rounds_at(p[part], q[part], one[part], m[part], 1, tokens[part])
        else:
            ratio = batch.ratios[rows[part], depths[part]]
            result = single_at(p[part], q[part], one[part], ratio)
        accept[part] = result.accept[:, 0]
        mass[part] = result.residual
    passed = through & (u < accept)
    return torch.where(passed.any(dim=1), passed.byte().argmax(dim=1), -1), mass


def _recursive_node(
    batch: DraftsBatch, at: Tensor, node: Tensor, depths: Tensor, u: Tensor
) -> tuple[Tensor, Tensor]:
    rows = batch.row(at, node)
    through = batch.through(at, node, depths)
    tokens = batch.next_tokens(at, depths)
    p, q = batch.target_rows(rows, depths), batch.draft_rows(rows, depths)
    passing = torch.full_like(at, -1)
    for k in range(through.shape[1]):
        part = (through[:, k] & (passing < 0)).nonzero()[:, 0]
        if not part.numel():
            continue
        token = tokens[part, k, None]
        chance = (p[part].gather(1, token) / q[part].gather(1, token))[:, 0]
        passed = u[part, k] < chance
        passing[part[passed]] = k
        part = part[~passed]
        mass = (p[part] - q[part]).clamp_(min=0.0)
        total = mass.sum(dim=1, keepdim=True)
        # Without mass the place is unreachable; any law stands there.
        p[part] = torch.where(total > 0, mass / torch.where(total > 0, total, 1.0), p[part])
    return passing, p


def _powers(high: Tensor, low: Tensor, count: Tensor) -> Tensor:
    """(high^m - low^m) / (high - low) per row, without the difference; m = `count` [n]."""
    low = low.clamp(min=0.0)
    total, power = torch.ones_like(high), high
    for j in range(1, int(count.max())):
        total = torch.where((j < count)[:, None], total * low + power, total)
        power = power * high
    return total
