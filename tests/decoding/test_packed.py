"""Packed masks as sets of tokens."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from structspec.packed import count, is_set, pack, single_token, unpack


@given(st.integers(1, 200).flatmap(lambda n: st.tuples(st.just(n), st.sets(st.integers(0, n - 1)))))
def test_a_row_is_the_set_that_it_was_packed_from(given_set: tuple[int, set[int]]) -> None:
    size, tokens = given_set
    row = pack(sorted(tokens), size)
    assert row.dtype == np.uint32 and row.shape == ((size + 31) // 32,)
    assert set(np.flatnonzero(unpack(row)).tolist()) == tokens
    assert {token for token in range(size) if is_set(row, token)} == tokens
    assert count(row) == len(tokens)
    assert single_token(row) == (min(tokens) if len(tokens) == 1 else None)


def test_several_rows_are_unpacked_side_by_side() -> None:
    rows = np.stack([pack([0, 39], 40), pack([32], 40)])
    assert [np.flatnonzero(row).tolist() for row in unpack(rows)] == [[0, 39], [32]]


@pytest.mark.parametrize("token", [-1, 64, 1000])
def test_ids_outside_are_in_no_row(token: int) -> None:
    assert not is_set(pack(range(64), 64), token)


def test_bits_are_those_of_words_of_32() -> None:
    mask = np.array([0, 1 << 31, 0], np.uint32)
    assert is_set(mask, 63) and not is_set(mask, 62)
    assert not is_set(mask, 96) and not is_set(mask, -1)
    assert single_token(mask) == 63
    assert single_token(np.array([1, 1], np.uint32)) is None
    assert single_token(np.array([3], np.uint32)) is None
    assert single_token(np.zeros(3, np.uint32)) is None
