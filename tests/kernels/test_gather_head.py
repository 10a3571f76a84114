"""gather_head against the plain product."""

from __future__ import annotations

import pytest
import torch

from structspec.errors import KernelError
from structspec.kernels.checks.cases import pack
from structspec.kernels.gather_head import gather_head


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_allowed_rows_are_projected_and_others_left_out(backend: str, dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(0)
    hidden = torch.randn(3, 300, generator=generator).to(dtype)
    weight = torch.randn(90, 300, generator=generator).to(dtype)
    bias = torch.randn(90, generator=generator).to(dtype)
    legal = torch.zeros(4, 90, dtype=torch.bool)
    legal[0, [3, 40, 89]] = True
    legal[2] = True
    rows = torch.tensor([2, 0, 1], dtype=torch.int32)
    out = gather_head(hidden, weight, pack(legal), mask_rows=rows, bias=bias, backend=backend)
    exact = hidden.double() @ weight.double().T + bias.double()
    expected = exact.masked_fill(~legal[rows.long()], -torch.inf)
    torch.testing.assert_close(out.double(), expected, atol=1e-4, rtol=1e-4)


def test_entries_of_a_given_tensor_that_the_mask_forbids_stay(backend: str) -> None:
    out = torch.full((1, 3), 7.0)
    gather_head(torch.ones(1, 2), torch.ones(3, 2), torch.tensor([[2]], dtype=torch.int32), out=out,
                backend=backend)  # fmt: skip
    assert out.tolist() == [[7.0, 2.0, 7.0]]


def test_shapes_and_types_are_checked(backend: str) -> None:
    masks = torch.ones(1, 1, dtype=torch.int32)
    for hidden, weight, mask in (
        (torch.ones(1, 2), torch.ones(3, 4), masks),
        (torch.ones(1, 2, dtype=torch.int32), torch.ones(3, 2), masks),
        (torch.ones(2, 2), torch.ones(3, 2), masks),
        (torch.ones(1, 2), torch.ones(3, 2), masks.float()),
    ):
        with pytest.raises(KernelError):
            gather_head(hidden, weight, mask, backend=backend)
