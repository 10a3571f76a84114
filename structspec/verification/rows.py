"""A batch of drafts beside the target's rows: what every torch verifier reads.

Owns `DraftBatch` (checked inputs, ragged lengths, one-hot positions, normalised probabilities,
residual masses), `Verdict` (the common answer) and `sample_rows` (drawing tokens from masses).

Invariants
- All arithmetic on a row is float64 (float32 where the device has no float64), and every row is
  divided by its own sum: float32 rows sum to 1 only up to 1e-7, and that dust would let a
  verifier reject a draft whose residual has no mass.
- Rows beyond a request's length may hold anything, NaN included: they are never read for a
  decision. Row `lengths[b]` is the bonus row; behind an end token it is not read either.
- One-hot positions never touch `draft`; with `draft=None` no [B, L, V] tensor exists at all.
- A token is only ever drawn where its mass is positive.

Cost: one pass over `target` and `draft` for the sums; a residual costs one row pair.

Sibling: `oracle` holds the same definitions in numpy, one draft at a time; Triton kernels do the
same in a fixed number of launches.

Example::

    >>> import torch
    >>> target = torch.tensor([[[0.5, 0.5], [0.1, 0.9]]])
    >>> batch = DraftBatch(target, None, torch.tensor([[0]]), torch.tensor([1]))
    >>> batch.ratios.tolist()                                   # p/q of a one-hot draft is p
    [[0.5]]
    >>> batch.residual(torch.tensor([0]), torch.tensor([0]), torch.tensor([1.0])).tolist()
    [[0.0, 0.5]]
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import torch
from torch import Tensor

from structspec.errors import DraftError, ModelError
from structspec.verification.scans import Pairs, excess, fits

__all__ = ["DraftBatch", "Verdict", "Verifier", "sample_rows"]


@dataclass(frozen=True)
class Verdict:
    """What to do with a batch of drafts.

    `accepted` int64 [B]: how many drafted tokens to keep. `token` int64 [B]: the token behind
    them, or -1 where the kept prefix ends with an end token. `row` int64 [B]: with several drafts
    one that starts with the kept prefix; with a tree the last kept node, -1 for none; None with a
    single draft.
    """

    accepted: Tensor
    token: Tensor
    row: Tensor | None = None


class Verifier(Protocol):
    """The signature that all single-draft verifiers share; see `block.block_verify`."""

    def __call__(
        self,
        target: Tensor,
        draft: Tensor | None,
        tokens: Tensor,
        lengths: Tensor,
        uniforms: Tensor | None,
        *,
        onehot: Tensor | None = None,
        eos_ids: Sequence[int] = (),
    ) -> Verdict:
        """Decide how much of each draft to keep, and the next token."""
        ...


class DraftBatch:
    """Drafts, their own rows and the target's rows; see the module for the invariants.

    `target` [B, L + 1, V] and `draft` [B, L, V] are probabilities after mask and warp; `tokens`
    [B, L] and `lengths` [B] are integers; `onehot` bool [B, L] marks deterministic positions,
    all of them if `draft` is None. Drafts are cut behind their first end token.

    Raises `DraftError` for shapes, lengths or ids that do not fit and for a token that its own
    draft row gives probability 0, `ModelError` for target rows that are not finite or empty.
    """

    #: How many rows of the batch belong to one request; `drafts.DraftsBatch` has several.
    per_request = 1

    def __init__(
        self,
        target: Tensor,
        draft: Tensor | None,
        tokens: Tensor,
        lengths: Tensor,
        onehot: Tensor | None = None,
        eos_ids: Sequence[int] = (),
    ) -> None:
        _check_shapes(target, draft, tokens, lengths, onehot)
        self.target, self.draft = target, draft
        self.device = target.device
        self.wide = torch.float32 if target.device.type == "mps" else torch.float64
        length = tokens.shape[1]
        self.vocab = target.shape[2]
        tokens, lengths = tokens.to(self.device).long(), lengths.to(self.device).long()
        _check_ids(tokens, lengths, self.vocab, self.name)
        places = torch.arange(length + 1, device=self.device)
        is_end = torch.zeros_like(tokens, dtype=torch.bool)
        for eos in eos_ids:
            is_end |= tokens == eos
        is_end &= places[:length] < lengths[:, None]
        # Cut behind the first end token: argmax finds the first True.
        first = is_end.to(torch.uint8).argmax(dim=1) + 1 if length else lengths
        self.ends = is_end.any(dim=1)
        self.lengths = torch.where(self.ends, first, lengths)
        self.valid = places[:length] < self.lengths[:, None]
        self.tokens = torch.where(self.valid, tokens, 0)
        if draft is None:
            self.onehot = torch.ones_like(self.valid)
        elif onehot is None:
            self.onehot = torch.zeros_like(self.valid)
        else:
            self.onehot = onehot.to(self.device)
        self.places = places
        self.owners = self._owners()
        self.onehot = self.onehot.gather(0, self.owners[:, :-1])
        self.target_sums = self._target_sums(self._rows_read())
        self.ratios = self._ratios()

    def _owners(self) -> Tensor:
        """The batch row whose target and draft rows are read for each place, [B, L + 1]."""
        rows = torch.arange(len(self.tokens), device=self.device)
        return rows[:, None].expand(-1, self.places.numel())

    def _rows_read(self) -> Tensor:
        """Which target rows a decision may read, bool [B, L + 1]."""
        read = self.places < (self.lengths + (~self.ends).long())[:, None]
        return read & (self.owners == torch.arange(len(read), device=self.device)[:, None])

    def name(self, row: int) -> str:
        """A batch row as errors call it."""
        if self.per_request == 1:
            return f"request {row}"
        return f"draft {row % self.per_request} of request {row // self.per_request}"

    def _target_sums(self, read: Tensor) -> Tensor:
        sums = self.target.sum(dim=-1, dtype=self.wide)
        broken = read & ~((sums > 0) & torch.isfinite(sums))
        if bool(broken.any()):
            request, row = (int(i) for i in broken.nonzero()[0])
            raise ModelError(
                f"the target's row {row} of {self.name(request)} sums to "
                f"{float(sums[request, row])}; probabilities must be finite and positive somewhere "
                "(did the model return NaN, or did the mask allow nothing?)"
            )
        return sums

    def _ratios(self) -> Tensor:
        """p(x)/q(x) of the drafted tokens, [B, L]; 0 where p = 0; meaningless beyond a draft."""
        rows, places = self.owners[:, :-1], self.places[:-1]
        p = self.target[rows, places, self.tokens].to(self.wide)
        p_sums = self.target_sums[rows, places]
        if self.draft is None:
            return p / p_sums
        self.draft_sums = self.draft.sum(dim=-1, dtype=self.wide)
        sums = self.draft_sums[rows, places]
        q = self.draft[rows, places, self.tokens].to(self.wide)
        broken = self.valid & ~self.onehot & ~((q > 0) & torch.isfinite(sums))
        if bool(broken.any()):
            row, place = (int(i) for i in broken.nonzero()[0])
            raise DraftError(
                f"token {int(self.tokens[row, place])} at place {place} of {self.name(row)} has "
                f"probability {float(q[row, place])} in its own draft row; verify a draft against "
                "the rows it was sampled from, or mark the place one-hot"
            )
        # Products first: equal rows give exactly 1.
        return torch.where(self.onehot, p / p_sums, (p * sums) / (q * p_sums))

    def residual(self, requests: Tensor, places: Tensor, weights: Tensor) -> Tensor:
        """Masses (w·p - q)₊ [n, V] behind `places` kept tokens of `requests`; not normalised.

        Where the whole draft is kept this is w·p: nothing was drafted there.
        """
        mass = self.target_rows(requests, places) * weights[:, None]
        drafted = places < self.lengths[requests]
        inside = places.clamp(max=max(self.tokens.shape[1] - 1, 0))
        if self.tokens.shape[1] == 0:
            return mass
        hot = drafted & self.onehot[requests, inside]
        # w·p(x) <= 1 = q(x): a one-hot draft covers its own token and nothing else.
        index = self.tokens[requests, inside][:, None]
        mass = mass.scatter(1, index, torch.where(hot[:, None], 0.0, mass.gather(1, index)))
        if self.draft is None:
            return mass
        dense = (drafted & ~hot).nonzero()[:, 0]
        if dense.numel():
            mass[dense] -= self._draft_rows(requests[dense], inside[dense])
            mass.clamp_(min=0.0)
        return mass

    def residual_mass(self, requests: Tensor, places: Tensor, weights: Tensor) -> Tensor:
        """Σ of `residual` over the vocabulary, [n]; `places` must lie inside the drafts.

        One-hot places need no scan: the mass is w·(1 - p(x)).
        """
        hot = self.onehot[requests, places]
        mass = weights * (1.0 - self.ratios[requests, places])
        scan = (~hot).nonzero()[:, 0]
        if scan.numel():
            r, i = requests[scan], places[scan]
            if fits(self.target, self.draft):
                mass[scan] = excess(self.pairs(r, i), weights[scan])
                return mass
            rows = self.target_rows(r, i).mul_(weights[scan, None])
            mass[scan] = rows.sub_(self._draft_rows(r, i)).clamp_(min=0.0).sum(dim=-1)
        return mass

    def finish(self, accepted: Tensor, weights: Tensor, uniforms: Tensor) -> Verdict:
        """Draw the next tokens behind `accepted` tokens kept with path weights `weights`."""
        requests = torch.arange(accepted.numel(), device=self.device)
        over = self.ends & (accepted == self.lengths)
        token = torch.full_like(accepted, -1)
        draw = (~over).nonzero()[:, 0]
        mass = self.residual(requests[draw], accepted[draw], weights[draw].to(self.wide))
        token[draw] = sample_rows(mass, uniforms[draw, -1])
        return Verdict(accepted, token)

    @property
    def uniforms_shape(self) -> tuple[int, ...]:
        """What `check_uniforms` expects."""
        batch, length = self.tokens.shape
        return (batch, length + 1)

    def check_uniforms(self, uniforms: Tensor | None) -> Tensor:
        """`uniforms` on the batch's device, checked to be `uniforms_shape` in [0, 1)."""
        if uniforms is not None:
            uniforms = torch.as_tensor(uniforms)  # `Randomness` makes arrays
        expected = self.uniforms_shape
        if uniforms is None or tuple(uniforms.shape) != expected:
            raise DraftError(
                f"uniforms must have shape {expected}: one test per drafted token and, "
                f"last, the draw of the next token; got "
                f"{None if uniforms is None else tuple(uniforms.shape)}"
            )
        if bool(((uniforms < 0) | (uniforms >= 1)).any()):
            raise DraftError(
                f"uniforms must lie in [0, 1), got {float(uniforms.min())}..{float(uniforms.max())}"
                "; 1.0 appears when float64 uniforms are cast to float32"
            )
        below_one = 1.0 - torch.finfo(self.wide).eps / 2
        return uniforms.to(device=self.device, dtype=self.wide).clamp(max=below_one)

    def pairs(self, requests: Tensor, places: Tensor) -> Pairs:
        """The rows of target and draft behind `places` tokens of `requests`, for `scans`."""
        assert self.draft is not None
        rows = self.owners[requests, places]
        sums = self.target_sums[rows, places], self.draft_sums[rows, places]
        return Pairs(*self._plain_rows, rows, places, *sums)

    @cached_property
    def _plain_rows(self) -> tuple[Tensor, Tensor]:
        """Target and draft without strides, copied once if need be."""
        assert self.draft is not None
        return self.target.contiguous(), self.draft.contiguous()

    def target_rows(self, requests: Tensor, places: Tensor) -> Tensor:
        """p' behind `places` tokens of `requests`, normalised, [n, V]."""
        requests = self.owners[requests, places]
        rows = self.target[requests, places].to(self.wide)  # a copy, whatever the dtype
        return rows.div_(self.target_sums[requests, places, None])

    def _draft_rows(self, requests: Tensor, places: Tensor) -> Tensor:
        assert self.draft is not None
        requests = self.owners[requests, places]
        rows = self.draft[requests, places].to(self.wide)
        return rows.div_(self.draft_sums[requests, places, None])


def sample_rows(mass: Tensor, uniforms: Tensor) -> Tensor:
    """Draw one token from each row of unnormalised `mass` [n, V] by inversion; int64 [n].

    `uniforms` [n] lie in [0, 1). Raises `ModelError` if a row has no mass or is not finite: there
    is no fallback to tokens without mass. Equals `randomness.sample_inverse` row by row.
    """
    wide = torch.float32 if mass.device.type == "mps" else torch.float64
    cumulative = mass.to(wide).cumsum(dim=-1)
    total = cumulative[:, -1:]
    if not bool(((total > 0) & torch.isfinite(total)).all()):
        row = int((~((total > 0) & torch.isfinite(total)))[:, 0].nonzero()[0])
        raise ModelError(
            f"internal error: row {row} to sample has mass {float(total[row])}; "
            "a residual or a masked row must have positive, finite mass"
        )
    aim = uniforms.to(wide)[:, None] * total
    index = torch.searchsorted(cumulative, aim, right=True)
    # A parallel scan may round a sum up at a token without mass, or stop short of u·total: move
    # to the next token that has mass, or else to the last one.
    places = torch.arange(mass.shape[1], device=mass.device)
    has_mass = mass > 0
    later = has_mass & (places >= index)
    after = later.to(torch.uint8).argmax(dim=-1)
    last = mass.shape[1] - 1 - has_mass.flip(-1).to(torch.uint8).argmax(dim=-1)
    return torch.where(later.any(dim=-1), after, last)


def _check_shapes(
    target: Tensor, draft: Tensor | None, tokens: Tensor, lengths: Tensor, onehot: Tensor | None
) -> None:
    if tokens.dim() != 2 or target.dim() != 3:
        raise DraftError(
            f"tokens must be [B, L] and target [B, L + 1, V]; got {tuple(tokens.shape)} and "
            f"{tuple(target.shape)}"
        )
    batch, length = tokens.shape
    expected = {
        "target": (target, (batch, length + 1, target.shape[2])),
        "draft": (draft, (batch, length, target.shape[2])),
        "lengths": (lengths, (batch,)),
        "onehot": (onehot, (batch, length)),
    }
    for name, (tensor, shape) in expected.items():
        if tensor is not None and tuple(tensor.shape) != shape:
            raise DraftError(f"{name} must have shape {shape}, got {tuple(tensor.shape)}")


def _check_ids(tokens: Tensor, lengths: Tensor, vocab: int, name: Callable[[int], str]) -> None:
    length = tokens.shape[1]
    if bool(((lengths < 0) | (lengths > length)).any()):
        raise DraftError(f"draft lengths must lie in 0..{length}, got {lengths.tolist()}")
    used = torch.arange(length, device=tokens.device) < lengths[:, None]
    wrong = used & ((tokens < 0) | (tokens >= vocab))
    if bool(wrong.any()):
        request, place = (int(i) for i in wrong.nonzero()[0])
        raise DraftError(
            f"drafted id {int(tokens[request, place])} at place {place} of {name(request)} is "
            f"outside the vocabulary of {vocab} tokens; placeholders must not reach a verifier"
        )
