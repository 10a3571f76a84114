"""Rows of logits with everything that makes them laws: what the kernels take and return.

`LogitRows` is [R, V] logits, a packed mask per row, a temperature and an edge (what top-k, top-p,
min-p or greedy leave, see `row_edges`). Its law is

    p(x) ∝ exp(l(x) / T)  for tokens x that the mask allows and the edge keeps, else 0,

and, if the edge keeps no allowed token, the same without the edge (the rule for drafts, which are
cut before they are masked). A token is kept if l > edge, or l = edge and its id <= edge_id.

Sums are carried as Σ exp((l - max) / T), so huge logits and tiny temperatures do not overflow.

    >>> import torch
    >>> masks = torch.tensor([[5, 0], [1, 0]], dtype=torch.int32)
    >>> rows = LogitRows(torch.zeros(2, 40), masks)
    >>> rows.vocab, rows.legal().sum(-1).tolist()
    (40, [2, 1])
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntFlag

import torch
from torch import Tensor

from structspec.errors import DraftError, KernelError, ModelError
from structspec.kernels.unpack_masks import unpack_masks

__all__ = ["LARGEST_SCALE", "LogitRows", "RowStats", "Status", "check_status"]

_FLOATS = (torch.float32, torch.bfloat16, torch.float16)
#: 1 / T is cut here: larger scales would turn 0 · inf into NaN in float32.
LARGEST_SCALE = 1e30


class Status(IntFlag):
    """What was wrong with a row or a request; 0 is fine. Kernels cannot raise, callers can."""

    EMPTY = 1
    """No legal token with a logit above -inf."""
    NOT_FINITE = 2
    """NaN or +inf among the legal logits."""
    ILLEGAL_DRAFT = 4
    """A drafted token has no probability in its own draft row."""
    NO_MASS = 8
    """An internal error: the chosen exit has no residual mass."""
    BAD_TOKEN = 16
    """A drafted id or a length out of range."""


@dataclass(frozen=True)
class LogitRows:
    """R rows of logits over V tokens, on one device.

    logits: [R, V] float32, bfloat16 or float16 (float64 for the reference and torch kernels), last
    dimension contiguous. masks: int32 or uint32 [M, W], bit i % 32 of word i // 32 is token i; ids
    beyond the words are illegal. mask_rows: int32 [R], which mask row belongs to which row of
    logits; None: the same number. temperature: one for all or float32 [R]; 0 needs an edge.
    edge, edge_id: float32 and int32 [R].

    Raises `KernelError` for dtypes, shapes or devices that do not fit.
    """

    logits: Tensor
    masks: Tensor | None = None
    mask_rows: Tensor | None = None
    temperature: float | Tensor = 1.0
    edge: Tensor | None = None
    edge_id: Tensor | None = None

    def __post_init__(self) -> None:
        logits = self.logits
        if logits.dim() != 2 or logits.shape[1] == 0:
            raise KernelError(f"logits must be [R, V] with V >= 1, got {tuple(logits.shape)}")
        if logits.dtype not in (*_FLOATS, torch.float64):
            raise KernelError(
                f"logits must be float32, bfloat16, float16 or float64, got {logits.dtype}"
            )
        if logits.stride(1) != 1:
            raise KernelError(
                f"the rows of logits must be contiguous, got strides {logits.stride()}; "
                "call .contiguous()"
            )
        rows = logits.shape[0]
        if self.masks is not None:
            self._check("masks", self.masks, (torch.int32, torch.uint32), 2)
            object.__setattr__(self, "masks", self.masks.view(torch.int32))
            if self.mask_rows is None and self.masks.shape[0] != rows:
                raise KernelError(
                    f"{self.masks.shape[0]} mask rows for {rows} rows of logits; pass one each, or "
                    "`mask_rows`"
                )
        elif self.mask_rows is not None:
            raise KernelError("`mask_rows` without `masks`")
        if self.mask_rows is not None:
            self._check("mask_rows", self.mask_rows, (torch.int32,), 1, rows)
        if isinstance(self.temperature, Tensor):
            self._check("temperature", self.temperature, (torch.float32,), 1, rows)
        elif not 0.0 <= self.temperature < float("inf"):
            raise KernelError(f"temperature={self.temperature} is out of range: finite, >= 0")
        elif self.temperature == 0.0 and self.edge is None:
            raise KernelError("temperature 0 needs an edge: see row_edges.with_edges")
        if (self.edge is None) != (self.edge_id is None):
            raise KernelError("`edge` and `edge_id` belong together")
        if self.edge is not None and self.edge_id is not None:
            self._check("edge", self.edge, (torch.float32, torch.float64), 1, rows)
            self._check("edge_id", self.edge_id, (torch.int32,), 1, rows)

    def _check(
        self,
        name: str,
        tensor: Tensor,
        dtypes: tuple[torch.dtype, ...],
        dim: int,
        rows: int | None = None,
    ) -> None:
        if tensor.dtype not in dtypes:
            raise KernelError(f"{name} must be {' or '.join(map(str, dtypes))}, got {tensor.dtype}")
        if tensor.device != self.logits.device:
            raise KernelError(f"{name} lie on {tensor.device}, the logits on {self.logits.device}")
        if tensor.dim() != dim or (rows is not None and tensor.shape[0] != rows):
            expected = f"[{rows}]" if rows is not None else f"{dim}-dimensional"
            raise KernelError(f"{name} must be {expected}, got {tuple(tensor.shape)}")
        if tensor.numel() and tensor.stride(-1) != 1:
            raise KernelError(f"{name} must be contiguous, got strides {tensor.stride()}")

    @property
    def vocab(self) -> int:
        """V, the number of columns."""
        return self.logits.shape[1]

    def legal(self) -> Tensor:
        """bool [R, V]: what the masks allow."""
        if self.masks is None:
            return torch.ones(self.logits.shape, dtype=torch.bool, device=self.logits.device)
        allowed = unpack_masks(self.masks, self.vocab)
        return allowed if self.mask_rows is None else allowed[self.mask_rows.long()]

    def scale(self, dtype: torch.dtype) -> Tensor:
        """1 / T per row [R, 1]; 1 where T = 0."""
        if isinstance(self.temperature, Tensor):
            t = self.temperature.to(dtype)[:, None]
        else:
            shape = (self.logits.shape[0], 1)
            t = torch.full(shape, self.temperature, dtype=dtype, device=self.logits.device)
        return torch.where(t > 0, (1.0 / t).clamp(max=LARGEST_SCALE), torch.ones_like(t))

    def check_triton(self) -> None:
        """Raise `KernelError` unless the Triton kernels take these rows."""
        if self.logits.dtype not in _FLOATS:
            raise KernelError(
                f"the Triton kernels take float32, bfloat16 or float16 logits, got "
                f"{self.logits.dtype}; cast them, or use the torch kernels"
            )


@dataclass(frozen=True)
class RowStats:
    """The numbers that turn rows of logits into laws.

    packed: [R, 4]: max, 1 / T, log Σ exp((l - max) / T) and the edge in force (-inf: none).
    edge_id: int32 [R]; status: int32 [R], a `Status`. A row that is EMPTY has max 0 and log Σ 0;
    its law is 0 everywhere.
    """

    packed: Tensor
    edge_id: Tensor
    status: Tensor

    @property
    def maximum(self) -> Tensor:
        """The largest legal logit [R]."""
        return self.packed[:, 0]

    @property
    def sum_exp(self) -> Tensor:
        """Σ exp((l - max) / T) over the tokens of the law [R]."""
        return self.packed[:, 2].exp()

    def probabilities(self, rows: LogitRows) -> Tensor:
        """The laws [R, V], float32 or float64 as `packed`."""
        top, scale, log_sum, edge = (self.packed[:, j, None] for j in range(4))
        x = rows.logits.to(self.packed.dtype).masked_fill(~rows.legal(), -torch.inf)
        ids = torch.arange(rows.vocab, device=x.device)
        kept = (x > edge) | ((x == edge) & (ids <= self.edge_id[:, None]))
        return torch.where(kept, ((x - top) * scale - log_sum).exp(), 0.0)


def check_status(status: Tensor, what: str = "row") -> None:
    """Raise the typed error of the first row or request that is not fine (waits for the device)."""
    bad = status.nonzero()
    if not bad.numel():
        return
    at = int(bad[0, 0])
    code = Status(int(status[at]))
    if code & Status.BAD_TOKEN:
        raise DraftError(
            f"{what} {at}: a drafted id outside the vocabulary or a length outside 0..L; "
            "placeholders must not reach a verifier"
        )
    if code & Status.NOT_FINITE:
        raise ModelError(
            f"{what} {at}: NaN or +inf among the allowed logits; check the model's weights and "
            "dtype (float16 overflows)"
        )
    if code & Status.EMPTY:
        raise ModelError(
            f"{what} {at}: the mask allows no token with a finite logit: a dead end in the "
            "grammar, or a model that returned -inf"
        )
    if code & Status.ILLEGAL_DRAFT:
        raise DraftError(
            f"{what} {at}: a drafted token has probability 0 in its own draft row; verify a draft "
            "against the rows it was sampled from, or mark the place one-hot (draft row -1)"
        )
    raise ModelError(f"{what} {at}: internal error: the chosen exit has no residual mass")
