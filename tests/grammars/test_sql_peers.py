"""The grammar of SQL against sqlglot, a parser for many dialects, where that is installed."""

from __future__ import annotations

import pytest

from structspec import grammars
from structspec.bench.grammars import QUERIES
from structspec.sampling import sample

pytest.importorskip("lark", reason="the extra 'grammars' is not installed: pip install lark")
sqlglot = pytest.importorskip("sqlglot", reason="sqlglot is not installed: pip install sqlglot")

DIALECTS = ("sqlite", "postgres", "mysql")


def check(count: int, seed: int, size: int) -> None:
    texts = sample(grammars.load("sql_select"), count, seed=seed, max_bytes=size)
    for text in [*(text.decode() for text in texts), *QUERIES]:
        for dialect in DIALECTS:
            (tree,) = sqlglot.parse(text, dialect=dialect)
            assert tree is not None, (dialect, text)


def test_every_statement_is_read_in_three_dialects() -> None:
    check(60, seed=5, size=120)


@pytest.mark.full
def test_thousands_of_statements_are_read_in_three_dialects() -> None:
    check(3000, seed=6, size=160)
