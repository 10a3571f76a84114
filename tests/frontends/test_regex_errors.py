"""Mistakes in a pattern that is compiled by itself: typed, with line, column and a caret."""

from __future__ import annotations

import pytest

import structspec
from structspec.errors import SchemaError, UnsupportedFeature


@pytest.mark.parametrize("dialect", ["ecma", "python"])
@pytest.mark.parametrize(
    ("pattern", "line", "column", "said"),
    [
        (r"ab\q", 1, 3, "not an escape"),
        ("a{3,2}", 1, 1, "out of order"),
        ("x(a", 1, 2, "never closed"),
        ("a\n*)", 2, 2, ""),
        ("[b-a]", 1, 2, "out of order"),
        (r"(a)\2", 1, 4, ""),
    ],
)
def test_a_mistake_in_a_pattern_is_shown_with_a_caret(
    dialect: str, pattern: str, line: int, column: int, said: str
) -> None:
    with pytest.raises(SchemaError) as caught:
        structspec.compile(pattern, syntax="regex", dialect=dialect)
    error = caught.value
    assert said in str(error) and "in the pattern" not in str(error)
    assert (error.line, error.column) == (line, column), str(error)
    assert str(error).splitlines()[-1].strip() == "^"


@pytest.mark.parametrize("dialect", ["ecma", "python"])
@pytest.mark.parametrize(
    ("pattern", "column", "keyword"),
    [
        ("a{1000000000}", 2, "repetition"),
        ("a{" + "9" * 5000 + "}", 2, "repetition"),
        ("((a{10000}){10000}){10000}", 1, "repetition"),
        ("(" * 3000 + "a?" + ")*" * 3000, 101, "group"),
        (r"x(a)\1", 5, "backreference"),
    ],
)
def test_what_a_pattern_cannot_have_is_refused_by_name_and_place(
    dialect: str, pattern: str, column: int, keyword: str
) -> None:
    with pytest.raises(UnsupportedFeature) as caught:
        structspec.compile(pattern, syntax="regex", dialect=dialect)
    assert (caught.value.keyword, caught.value.line, caught.value.column) == (keyword, 1, column)
    assert str(caught.value).splitlines()[-1].strip() == "^"
