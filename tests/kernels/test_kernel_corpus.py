"""What the corpus of the kernel tests holds: every shape and kind of row that it promises."""

from __future__ import annotations

import pytest
import torch

from structspec.kernels.checks.cases import VerifyCase, row_cases, verify_cases
from structspec.kernels.launch import SPLIT_WORDS

CASES = list(verify_cases())


def legal(case: VerifyCase) -> torch.Tensor:
    return case.target.legal()


def test_drafts_of_every_number_and_length_in_ragged_batches() -> None:
    shapes = {tuple(case.tokens.shape[1:]) for case in CASES}
    assert shapes == {(k, n) for k in (1, 2, 4) for n in (1, 4, 8)}
    for case in CASES:
        assert len(case.tokens) >= 3
        assert len(case.lengths.unique()) > 1, case.name
        assert 0 in case.lengths or case.tokens.shape[2] > 1


def test_vocabularies_that_no_word_and_no_program_divides() -> None:
    sizes = {case.target.vocab for case in CASES}
    assert any(size % 32 for size in sizes) and any(size > 128 and size % 128 for size in sizes)
    for size in (49_003, 152_064):  # the large ones of the tests
        assert size % (32 * SPLIT_WORDS)


def test_single_token_all_allowed_and_mixed_rows() -> None:
    counts = torch.cat([legal(case).sum(-1) / case.target.vocab for case in CASES])
    ones = torch.cat([legal(case).sum(-1) for case in CASES])
    assert (ones == 1).any() and (counts == 1).any() and ((counts < 0.6) & (ones > 1)).any()


def test_dtypes_maps_end_tokens_one_hot_places_and_shared_prefixes() -> None:
    assert {case.target.logits.dtype for case in CASES} == {
        torch.float32, torch.bfloat16, torch.float16,
    }  # fmt: skip
    assert any(case.target_rows is not None for case in CASES)
    assert any(case.target_rows is None for case in CASES)
    ends = [case for case in CASES if case.eos_ids is not None]
    assert any(bool((case.tokens == case.eos_ids).any()) for case in ends)
    hot = [case.draft_rows for case in CASES if case.draft_rows is not None]
    assert any(bool((rows == -1).any() and (rows >= 0).any()) for rows in hot)
    several = [case for case in CASES if case.tokens.shape[1] > 1]
    assert any(
        bool(((case.tokens[:, 0, 0] == case.tokens[:, 1, 0]) & (case.lengths[:, 1] > 0)).any())
        for case in several
    )


def test_infinite_and_huge_logits_reach_the_verifiers() -> None:
    huge = [case for case in CASES if "huge" in case.name]
    assert {case.tokens.shape[1] for case in huge} == {1, 2, 4}
    for case in huge:
        used = case.target.logits.masked_fill(~legal(case), 0.0)
        assert (used == -torch.inf).any() and used.max() >= 6e4


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_rows_alone_hold_every_kind(dtype: torch.dtype) -> None:
    rows = row_cases(300, dtype)
    allowed, x = rows.legal(), rows.logits
    counts = allowed.sum(-1).tolist()
    assert {0, 1, 300} <= set(counts)
    visible = x.masked_fill(~allowed, -torch.inf)
    assert (visible[5] == -torch.inf).all() and counts[5] > 0
    assert visible[4].isinf().any() and visible[4].isfinite().any()
    assert visible[6].abs().nan_to_num(0, 0, 0).max() > 5e4 and visible[7].isnan().any()
