"""The numbers of a masked softmax: max, log-sum-exp and validity of every row.

For row n with logits l, mask, temperature T and edge (see `logit_rows`)::

    max  = max l(x)  over allowed x
    sum  = Σ exp((l(x) - max) / T)  over allowed and kept x; over allowed x if none is kept

The mask is applied on load: words that allow nothing cost no read of their 32 logits.

Cost: one read of the logits; two launches in Triton (partial sums, then one program per 16 rows).
Siblings: `row_edges` finds what top-k and top-p leave; `block_verify` and `layered_verify` run the
same partial sums inside.

    >>> import torch
    >>> mask = torch.tensor([[0b110]], dtype=torch.int32)
    >>> rows = LogitRows(torch.tensor([[2.0, 1.0, 0.0]]), mask)
    >>> stats = masked_softmax_stats(rows, backend="torch")
    >>> [round(p, 3) for p in stats.probabilities(rows)[0].tolist()]
    [0.0, 0.731, 0.269]
"""

from __future__ import annotations

from structspec.kernels.backend import choose
from structspec.kernels.logit_rows import LogitRows, RowStats

__all__ = ["LogitRows", "RowStats", "masked_softmax_stats"]


def masked_softmax_stats(rows: LogitRows, *, backend: str | None = None) -> RowStats:
    """See the module. float32 results; float64 from the reference and for float64 logits.

    Never waits for the device; pass `RowStats.status` to `logit_rows.check_status` to raise
    `ModelError` for empty rows and NaN. Raises `KernelError` for what a kernel does not take.
    """
    name = choose(rows.logits.device, backend)
    if name == "triton":
        from structspec.kernels.masked_softmax_stats.in_triton import triton_stats

        return triton_stats(rows)
    if name == "torch":
        from structspec.kernels.masked_softmax_stats.in_torch import torch_stats

        return torch_stats(rows)
    from structspec.kernels.masked_softmax_stats.reference import reference_stats

    return reference_stats(rows)
