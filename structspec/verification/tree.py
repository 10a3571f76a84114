"""Verification of token trees, batched, in torch: deterministic ones, and without replacement.

- `tree_target_verify`: for a tree that is a function of the text (a grammar fork drafted whole,
  top-k of a draft model, several look-ups) sample from the target at each node and walk while the
  child exists. Nothing lossless keeps more of a given tree; where all legal tokens of a state are
  drafted, one of them is kept for certain.
- `without_replacement_verify`: recursive rejection for children drawn without replacement.

Trees are flat: node n of request b has token `tokens[b, n]` and parent `parents[b, n]` < n, or -1
for the root; children of one node stand in the order in which they were made. Row 0 of `target`
stands behind the committed text, row n + 1 behind node n.

Invariants
- Rows behind end tokens and beyond a tree's size are never read; an end token's node is a leaf.
- Two children of one node never hold the same token.
- The verdict's `row` is the last kept node, -1 for none; `tree_path` lists the nodes above it.

Cost: per depth one row per request; without replacement one row pair per tried child.

Siblings: `oracle_trees` for definitions and papers; `layered` for i.i.d. drafts.

Example::

    >>> import torch
    >>> target = torch.tensor([[[0.5, 0.3, 0.2], [0.1, 0.9, 0.0], [1.0, 0.0, 0.0]]])
    >>> tokens, parents = torch.tensor([[0, 1]]), torch.tensor([[-1, 0]])     # the chain 0, 1
    >>> u = torch.tensor([[0.4, 0.5, 0.7]])
    >>> verdict = tree_target_verify(target, tokens, parents, torch.tensor([2]), u)
    >>> verdict.accepted.tolist(), verdict.row.tolist(), verdict.token.tolist()
    ([2], [1], [0])
    >>> tree_path(parents, verdict.row)
    [[0, 1]]
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from structspec.errors import DraftError
from structspec.verification.rows import DraftBatch, Verdict, sample_rows

__all__ = [
    "TreeBatch",
    "tree_path",
    "tree_target_verify",
    "without_replacement_verify",
]


class TreeBatch(DraftBatch):
    """Trees with the rows behind their nodes, as one batch row per request.

    Arguments as `tree_target_verify`. Raises `DraftError` for shapes, ids or parents that do not
    fit, `ModelError` for target rows that are not finite or empty.
    """

    def __init__(
        self,
        target: Tensor,
        draft: Tensor | None,
        tokens: Tensor,
        parents: Tensor,
        sizes: Tensor,
        eos_ids: Sequence[int] = (),
    ) -> None:
        if parents.shape != tokens.shape:
            raise DraftError(
                f"parents must have shape {tuple(tokens.shape)}, got {tuple(parents.shape)}"
            )
        self.parents = parents.to(target.device).long()
        self.eos_ids = tuple(eos_ids)
        # The draft's rows stand behind nodes too, so they are not rows of the tokens themselves.
        super().__init__(target, None, tokens, sizes, None, ())
        self.proposals = draft
        size, nodes = self.tokens.shape
        if draft is not None and tuple(draft.shape) != (size, nodes + 1, self.vocab):
            raise DraftError(
                f"draft must have shape {(size, nodes + 1, self.vocab)}, got {tuple(draft.shape)}"
            )
        number = torch.arange(nodes, device=self.device)
        wrong = self.valid & ((self.parents < -1) | (self.parents >= number))
        same = (
            self.valid[:, :, None]
            & self.valid[:, None]
            & (self.parents[:, :, None] == self.parents[:, None])
            & (self.tokens[:, :, None] == self.tokens[:, None])
            & (number[:, None] < number)
        )
        for place, why in (
            (wrong, "its parent must stand before it"),
            (same.any(dim=1), "its parent has the same token already"),
        ):
            if bool(place.any()):
                request, node = (int(i) for i in place.nonzero()[0])
                raise DraftError(
                    f"node {node} of request {request} has parent "
                    f"{int(self.parents[request, node])}: {why}"
                )

    def _rows_read(self) -> Tensor:
        is_end = torch.zeros_like(self.valid)
        for eos in self.eos_ids:
            is_end |= self.tokens == eos
        self.is_end = is_end & self.valid
        behind = self.valid & ~self.is_end
        return (
            torch.cat([torch.ones_like(behind[:, :1]), behind], dim=1)
            if behind.shape[1]
            else torch.ones(len(behind), 1, dtype=torch.bool, device=self.device)
        )

    @property
    def uniforms_shape(self) -> tuple[int, ...]:
        """[B, N + 1]: one per node and, last, the draw of the next token."""
        size, nodes = self.tokens.shape
        return (size, nodes + 1)


def tree_target_verify(
    target: Tensor,
    tokens: Tensor,
    parents: Tensor,
    sizes: Tensor,
    uniforms: Tensor | None,
    *,
    eos_ids: Sequence[int] = (),
) -> Verdict:
    """Follow the target through deterministic trees.

    Args:
        target: probabilities p' [B, N + 1, V] behind the text and behind each node.
        tokens: the nodes' tokens, integers [B, N].
        parents: int [B, N], see the module.
        sizes: int [B], the number of nodes of each tree, 0..N.
        uniforms: [B, N + 1] in [0, 1); the draw at depth i reads column i
            (`randomness.Randomness.for_verification` with length N). The loop follows its drafts
            by `draws` instead.
        eos_ids: end tokens; if one is kept the verdict's token is -1.
    """
    batch = TreeBatch(target, None, tokens, parents, sizes, eos_ids)
    noise = batch.check_uniforms(uniforms)
    size, nodes = batch.tokens.shape
    at = torch.arange(size, device=batch.device)
    node = torch.full_like(at, -1)
    accepted, token = torch.zeros_like(at), torch.full_like(at, -1)
    for depth in range(nodes + 1):
        if not at.numel():
            break
        x = sample_rows(batch.target_rows(at, node[at] + 1), noise[at, depth])
        child = batch.valid[at] & (batch.parents[at] == node[at, None])
        child &= batch.tokens[at] == x[:, None]
        found = child.any(dim=1)
        token[at[~found]] = x[~found]
        at, child = at[found], child[found]
        node[at] = child.byte().argmax(dim=1) if at.numel() else node[at]
        accepted[at] += 1
        at = at[~batch.is_end[at, node[at]]]
    return Verdict(accepted, token, node)


def without_replacement_verify(
    target: Tensor,
    draft: Tensor,
    tokens: Tensor,
    parents: Tensor,
    sizes: Tensor,
    uniforms: Tensor | None,
    *,
    eos_ids: Sequence[int] = (),
) -> Verdict:
    """Recursive rejection for children drawn without replacement.

    Arguments as `tree_target_verify`, and `draft` [B, N + 1, V]: the law that the children of the
    text and of each node were drawn from, in order and without replacement. The test of node n
    reads uniforms[b, n], the next token the last column.
    """
    batch = TreeBatch(target, draft, tokens, parents, sizes, eos_ids)
    noise = batch.check_uniforms(uniforms)
    size, nodes = batch.tokens.shape
    at = torch.arange(size, device=batch.device)
    node = torch.full_like(at, -1)
    accepted = torch.zeros_like(at)
    # The walk only goes to higher numbers, so one pass over the nodes meets every child in turn.
    p = batch.target_rows(at, torch.zeros_like(at))
    q = _normal(draft[:, 0].to(batch.wide))
    for n in range(nodes):
        part = (batch.valid[:, n] & (batch.parents[:, n] == node)).nonzero()[:, 0]
        if not part.numel():
            continue
        x = batch.tokens[part, n]
        big, small = p[part, x], q[part, x]
        # A product, so that a child whose q was rounded to 0 passes if the target wants it.
        passed = (noise[part, n] * small < big) & (big > 0)
        yes, no = part[passed], part[~passed]
        node[yes] = n
        accepted[yes] += 1
        going = yes[~batch.is_end[yes, n]]
        there = torch.full_like(going, n + 1)
        p[going] = batch.target_rows(going, there)
        q[going] = _normal(draft[going, there].to(batch.wide))
        mass = (p[no] - q[no]).clamp_(min=0.0)
        some = mass.sum(dim=1) > 0
        p[no] = torch.where(some[:, None], _normal(mass), p[no])
        q[no, batch.tokens[no, n]] = 0.0
        q[no] = _normal(q[no])
    token = torch.full_like(at, -1)
    over = (node >= 0) & batch.is_end[at, node.clamp(min=0)] if nodes else node >= 0
    draw = (~over).nonzero()[:, 0]
    token[draw] = sample_rows(p[draw], noise[draw, -1])
    return Verdict(accepted, token, node)


def tree_path(parents: Tensor, nodes: Tensor) -> list[list[int]]:
    """The nodes from the root to `nodes` [B] for each request, in order; empty for -1."""
    paths = []
    for row, node in zip(parents.tolist(), nodes.tolist(), strict=True):
        path = []
        while node >= 0:
            path.append(node)
            node = row[node]
        paths.append(path[::-1])
    return paths


def _normal(mass: Tensor) -> Tensor:
    """Rows divided by their sums; rows without mass stay."""
    total = mass.sum(dim=1, keepdim=True)
    return mass / torch.where(total > 0, total, 1.0)
