"""What top-k, top-p, min-p and greedy leave of a row: a threshold on its logits.

A token is kept iff l > edge, or l = edge and id <= edge_id. That covers (in this order)

- temperature 0: the lowest id among the largest logits;
- top-k: ties at the k-th largest logit all stay;
- top-p of what top-k left: tokens stay, largest first and lower ids first among equals, until the
  mass in front of the next one reaches p; at least one;
- min-p: l >= max + T log(min_p).

The masses are those of the allowed tokens of `rows`, so a target passes its masks and a draft,
which is cut before it is masked, leaves them out.

Cost: one program per row that reads it once per bit of the key searched (16 bits for bfloat16, 19
for float16, 32 for float32; from the L2 cache after the first time): not free, use it only where a
setting asks for it. Greedy rows are read once. Exact: no sort, no approximation.

    >>> import torch
    >>> rows = LogitRows(torch.tensor([[3.0, 1.0, 2.0, 2.0]]))
    >>> edge, edge_id = row_edges(rows, top_p=0.7, backend="torch")
    >>> edge.tolist(), edge_id.tolist()
    ([2.0], [2])
"""

from __future__ import annotations

from dataclasses import replace

from torch import Tensor

from structspec.errors import KernelError
from structspec.kernels.backend import choose
from structspec.kernels.logit_rows import LogitRows

__all__ = ["row_edges", "with_edges"]


def row_edges(
    rows: LogitRows,
    *,
    top_k: int | None = None,
    top_p: float | None = None,
    min_p: float | None = None,
    greedy: bool = False,
    backend: str | None = None,
) -> tuple[Tensor, Tensor]:
    """edge float32 [R] (float64 for float64 logits) and edge_id int32 [R]; see the module.

    greedy: as temperature 0; `rows.temperature` must then not be read as 0 but may be anything.
    Rows without a legal token get edge -inf. Raises `KernelError` for settings out of range.
    """
    if top_k is not None and top_k < 1:
        raise KernelError(f"top_k={top_k} is out of range: at least 1, or None")
    for name, value in (("top_p", top_p), ("min_p", min_p)):
        if value is not None and not 0.0 <= value <= 1.0:
            raise KernelError(f"{name}={value} is out of range: in [0, 1], or None")
    k = 1 if greedy else (top_k or 0)
    p = 0.0 if greedy else (1.0 if top_p is None else top_p)
    name = choose(rows.logits.device, backend)
    if name == "triton":
        from structspec.kernels.row_edges.in_triton import triton_edges

        return triton_edges(rows, k, p, min_p or 0.0)
    if name == "torch":
        from structspec.kernels.row_edges.in_torch import torch_edges

        return torch_edges(rows, k, p, min_p or 0.0)
    from structspec.kernels.row_edges.reference import reference_edges

    return reference_edges(rows, k, p, min_p or 0.0)


def with_edges(
    rows: LogitRows,
    *,
    top_k: int | None = None,
    top_p: float | None = None,
    min_p: float | None = None,
    draft: bool = False,
    greedy: bool = False,
    backend: str | None = None,
) -> LogitRows:
    """`rows` cut by top-k, top-p and min-p, or (greedy) to the argmax.

    draft: find the edges on the unmasked rows, the rule for drafts; a greedy draft takes the
    largest *legal* logit all the same.
    """
    source = replace(rows, masks=None, mask_rows=None) if draft and not greedy else rows
    edge, edge_id = row_edges(
        source, top_k=top_k, top_p=top_p, min_p=min_p, greedy=greedy, backend=backend
    )
    device = rows.logits.device
    return replace(rows, edge=edge.to(device), edge_id=edge_id.to(device))
