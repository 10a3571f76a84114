"""masked_softmax_stats and row_edges against float64, and against the decoding room's own laws."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from structspec.forward.warp import Sampling, draft_law, target_law
from structspec.kernels.checks.cases import pack, row_cases
from structspec.kernels.logit_rows import LogitRows, Status
from structspec.kernels.masked_softmax_stats import masked_softmax_stats
from structspec.kernels.masked_softmax_stats.reference import reference_stats
from structspec.kernels.row_edges import row_edges, with_edges

NONE = 2**31 - 1
DTYPES = [torch.float32, torch.bfloat16, torch.float16]


def judge(rows: LogitRows, backend: str) -> None:
    stats, expected = masked_softmax_stats(rows, backend=backend), reference_stats(rows)
    assert stats.status.tolist() == expected.status.tolist()
    fine = expected.status == 0
    laws = stats.probabilities(rows)[fine].double()
    np.testing.assert_allclose(laws, expected.probabilities(rows)[fine], atol=2e-6)
    np.testing.assert_allclose(stats.maximum[fine], expected.maximum[fine], rtol=1e-6)
    np.testing.assert_allclose(stats.sum_exp[fine], expected.sum_exp[fine], rtol=1e-5)
    np.testing.assert_allclose(laws.sum(-1), 1.0, atol=1e-5)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("vocab", [5, 300])
def test_statistics_of_every_kind_of_row(
    backend: str, vocab: int, dtype: torch.dtype, small_splits: None
) -> None:
    rows = row_cases(vocab, dtype)
    judge(rows, backend)
    status = masked_softmax_stats(rows, backend=backend).status.tolist()
    assert status[3] == status[5] == Status.EMPTY and status[7] == Status.NOT_FINITE


@pytest.mark.parametrize("vocab", [49_003, 152_064])
def test_statistics_at_the_size_of_real_vocabularies(backend: str, vocab: int) -> None:
    generator = torch.Generator().manual_seed(1)
    x = (torch.randn(2, vocab, generator=generator) * 4).to(torch.bfloat16)
    legal = torch.rand(2, vocab, generator=generator) < 0.5
    legal[1] = False
    legal[1, vocab - 1] = True
    judge(LogitRows(x, pack(legal), temperature=0.8), backend)


def test_ids_beyond_the_mask_are_illegal_and_rows_without_mask_are_free(backend: str) -> None:
    x = torch.zeros(1, 70)
    short = LogitRows(x, torch.tensor([[-1]], dtype=torch.int32))
    assert masked_softmax_stats(short, backend=backend).sum_exp.tolist() == pytest.approx([32.0])
    assert masked_softmax_stats(LogitRows(x), backend=backend).sum_exp.tolist() == pytest.approx(
        [70.0]
    )


EDGES: list[dict[str, Any]] = [
    {"top_k": 3},
    {"min_p": 0.2},
    {"top_k": 20, "top_p": 0.6, "min_p": 0.05},
    {"top_p": 0.0},
]


@pytest.mark.parametrize("settings", EDGES, ids=str)
def test_edges_leave_what_the_samplers_leave(backend: str, settings: dict[str, Any]) -> None:
    generator = torch.Generator().manual_seed(2)
    x = (torch.randn(2, 90, generator=generator) * 2).to(torch.bfloat16)  # with ties
    legal = torch.rand(2, 90, generator=generator) < 0.4
    legal[0] = True
    rows = LogitRows(x, pack(legal), temperature=0.7)
    sampling = Sampling(temperature=0.7, **settings)
    for draft, law in ((False, target_law), (True, draft_law)):
        cut = with_edges(rows, draft=draft, backend=backend, **settings)
        stats = masked_softmax_stats(cut, backend=backend)
        expected = law(x, rows.masks, None, sampling) if not draft else law(x, rows.masks, sampling)  # type: ignore[operator]
        np.testing.assert_allclose(stats.probabilities(cut).double(), expected, atol=2e-6)


def test_greedy_is_the_lowest_id_of_the_largest_legal_logits(backend: str) -> None:
    x = torch.tensor([[9.0, 3.0, 5.0, 5.0]])
    rows = LogitRows(x, torch.tensor([[0b1110]], dtype=torch.int32))
    cut = with_edges(rows, greedy=True, backend=backend)
    assert masked_softmax_stats(cut, backend=backend).probabilities(cut).tolist() == [
        [0.0, 0.0, 1.0, 0.0]
    ]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_greedy_edges_over_several_programs_are_the_references(
    backend: str, dtype: torch.dtype
) -> None:
    x = torch.full((7, 20_000), -1.0)
    x[0, [9_000, 17_000]] = 5.0  # equal in two splits: the lower id
    x[1, -1] = 5.0
    x[3] = -torch.inf
    x[4, 300] = torch.inf
    x[6, [40, 41, 62]] = 5.0
    legal = torch.ones(7, 20_000, dtype=torch.bool)
    legal[2] = False
    legal[5] = torch.arange(20_000) == 12_345
    legal[6, 40] = False
    rows = LogitRows(x.to(dtype), pack(legal))
    edge, edge_id = row_edges(rows, greedy=True, backend=backend)
    expected, expected_id = row_edges(rows, greedy=True, backend="reference")
    assert edge.double().tolist() == expected.tolist()
    assert edge_id.tolist() == expected_id.tolist() == [
        9_000, 19_999, NONE, NONE, NONE, 12_345, 41,
    ]  # fmt: skip
    assert edge.dtype == (torch.float64 if backend == "reference" else torch.float32)
    assert edge_id.dtype == torch.int32


@pytest.mark.full
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_edges_at_49k(backend: str, dtype: torch.dtype) -> None:
    x = (torch.randn(2, 49_003, generator=torch.Generator().manual_seed(3)) * 2).to(dtype)
    rows = LogitRows(x, temperature=0.9)
    for settings in ({"top_k": 50}, {"top_p": 0.9}):
        edge, edge_id = row_edges(rows, backend=backend, **settings)  # type: ignore[arg-type]
        expected, expected_id = row_edges(rows, backend="reference", **settings)  # type: ignore[arg-type]
        ids = torch.arange(x.shape[1])
        kept = (x.double() > edge[:, None]) | ((x == edge[:, None]) & (ids <= edge_id[:, None]))
        wanted = (x.double() > expected[:, None]) | (
            (x == expected[:, None]) & (ids <= expected_id[:, None])
        )
        # A cut by mass may move by a token where rounding decides.
        assert int((kept != wanted).sum()) <= 2
