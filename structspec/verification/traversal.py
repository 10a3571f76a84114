"""Traversal verification of several i.i.d. drafts, batched, in torch: leaves before parents.

Definition and paper (arXiv 2505.12398) in `oracle_baselines.traversal`. The order of the visits
depends on which tokens are equal, not on probabilities, so it is planned first; then each step of
the plan is one batched operation over all requests.

Invariants: arguments, `row` and errors as `layered.layered_verify`; test i of draft k reads
uniforms[b, k, i]. Copies of a token behind a node are tried as leaves after its subtree is spent.

Cost: 2 K L steps in turn, each up to two passes over a row, and float64 laws [B, L + 1, V]; exact
but slow, kept for comparison.

Sibling: `layered`, which keeps more tokens at less cost.

Example::

    >>> import torch
    >>> target = torch.tensor([[[0.5, 0.5], [0.1, 0.9]]]).expand(1, 2, 2, 2)
    >>> draft = torch.tensor([[[0.9, 0.1]]]).expand(1, 2, 1, 2)
    >>> tokens, lengths = torch.tensor([[[0], [1]]]), torch.tensor([[1, 1]])
    >>> u = torch.tensor([[[0.7, 0.5], [0.9, 0.0]]])
    >>> verdict = traversal_verify(target, draft, tokens, lengths, u)
    >>> verdict.accepted.tolist(), verdict.row.tolist(), verdict.token.tolist()
    ([1], [1], [1])
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from structspec.verification.drafts import DraftsBatch
from structspec.verification.rows import Verdict

__all__ = ["traversal_verify"]

_ENTER, _TEST = 0, 1
_Step = tuple[int, int, int, int]
"""(enter or test, draft, depth of the parent, owner of the parent)."""


def traversal_verify(
    target: Tensor,
    draft: Tensor | None,
    tokens: Tensor,
    lengths: Tensor,
    uniforms: Tensor | None,
    *,
    onehot: Tensor | None = None,
    eos_ids: Sequence[int] = (),
) -> Verdict:
    """Verify K drafts per request from their leaves; arguments as `layered.layered_verify`."""
    batch = DraftsBatch(target, draft, tokens, lengths, onehot, eos_ids)
    noise = batch.check_uniforms(uniforms)
    size, _, wide_length = batch.uniforms_shape
    plans, plan_of = _plans(batch)

    # Laws and weights of the nodes on the current path of each request.
    law = torch.zeros(size, wide_length, batch.vocab, dtype=batch.wide, device=batch.device)
    w = torch.ones(size, wide_length, dtype=batch.wide, device=batch.device)
    root = torch.arange(size, device=batch.device)
    law[:, 0] = batch.target_rows(batch.row(root, batch.owner[:, 0, 0]), torch.zeros_like(root))
    accepted, kept = torch.zeros_like(root), batch.owner[:, 0, 0].clone()
    open_ = torch.ones_like(root, dtype=torch.bool)
    for number in range(plans.shape[1]):
        visit = plans[plan_of, number]
        for kind in (_ENTER, _TEST):
            at = (open_ & (visit[:, 0] == kind)).nonzero()[:, 0]
            _, k, depth, owner = visit[at].unbind(dim=1)
            if not at.numel():
                continue
            rows = batch.row(at, owner)
            token = batch.tokens[batch.row(at, k), depth]
            if kind == _ENTER:
                p = law[at, depth, token]
                q = batch.draft_rows(rows, depth).gather(1, token[:, None])[:, 0]
                w[at, depth + 1] = (w[at, depth] * p / q).clamp(max=1.0)
                child = batch.row(at, k)
                over = batch.ends[child] & (depth + 1 == batch.lengths[child])
                # Behind an end token there is no row to read.
                going = (~over).nonzero()[:, 0]
                law[at[going], depth[going] + 1] = batch.target_rows(child[going], depth[going] + 1)
                continue
            passed = noise[at, k, depth] < w[at, depth + 1]
            accepted[at[passed]] = depth[passed] + 1
            kept[at[passed]] = k[passed]
            open_[at[passed]] = False
            _refuse(
                law, w, at[~passed], depth[~passed], batch.draft_rows(rows[~passed], depth[~passed])
            )
    mass = law[root, accepted]
    row, token = batch.keep(root, kept, accepted, mass, noise[:, 0, -1])
    return Verdict(accepted, token, row)


def _refuse(law: Tensor, w: Tensor, at: Tensor, depth: Tensor, q: Tensor) -> None:
    """A child of the node at `depth` was refused: law := (w p - q)₊, w := r/(r + 1 - w)."""
    weight = w[at, depth]
    mass = (law[at, depth] * weight[:, None] - q).clamp_(min=0.0)
    r = mass.sum(dim=1)
    some = r > 0
    law[at[some], depth[some]] = mass[some] / r[some, None]
    room = r + (1.0 - weight)
    w[at, depth] = torch.where(room > 0, r / torch.where(room > 0, room, 1.0), 1.0)


def _plans(batch: DraftsBatch) -> tuple[Tensor, Tensor]:
    """The different plans, [P, S, 4], -1 behind their ends, and the number of each request's."""
    size, drafts, _ = batch.uniforms_shape
    texts = [
        tuple(tokens[:length])
        for tokens, length in zip(batch.tokens.tolist(), batch.lengths.tolist(), strict=True)
    ]
    numbers: dict[tuple[tuple[int, ...], ...], int] = {}
    groups = (tuple(texts[b * drafts : (b + 1) * drafts]) for b in range(size))
    plan_of = [numbers.setdefault(group, len(numbers)) for group in groups]
    found = [list(_plan(group, ())) for group in numbers]
    longest = max(map(len, found), default=0)
    padded = [plan + [(-1, 0, 0, 0)] * (longest - len(plan)) for plan in found]
    plans = torch.tensor(padded, dtype=torch.long, device=batch.device)
    return plans.reshape(len(found), longest, 4), torch.tensor(plan_of, device=batch.device)


def _plan(drafts: Sequence[tuple[int, ...]], node: tuple[int, ...]) -> Iterator[_Step]:
    """The visits behind `node` in order; a node's test stands behind its subtree."""
    depth = len(node)
    here = [k for k, d in enumerate(drafts) if len(d) > depth and d[:depth] == node]
    seen: set[int] = set()
    for k in here:
        x = drafts[k][depth]
        yield _ENTER, k, depth, here[0]
        if x not in seen:
            yield from _plan(drafts, (*node, x))
        seen.add(x)
        yield _TEST, k, depth, here[0]
