r"""A regular expression as a grammar of its own, with errors that show the place.

Owns `lower_pattern`, what `compile(…, syntax="regex")` calls. Patterns inside of schemas and Lark
grammars go through `lower_regex`, whose errors their front ends place in their own documents.

Example::

    >>> from structspec.errors import SchemaError
    >>> try:
    ...     lower_pattern("a{3,2}")
    ... except SchemaError as error:
    ...     print(error)
    line 1, column 1: the quantifier's bounds are out of order: 3 > 2
        a{3,2}
        ^
"""

from __future__ import annotations

from structspec import ir
from structspec.errors import SchemaError, UnsupportedFeature
from structspec.frontends.regex.lower import lower_regex
from structspec.frontends.regex.parse import Dialect
from structspec.frontends.rules.lengths import LONGEST, overlong
from structspec.frontends.rules.source import Source

__all__ = ["lower_pattern"]


def lower_pattern(pattern: str, dialect: Dialect = "ecma") -> ir.GrammarIR:
    """The grammar of the texts that `pattern` matches from start to end.

    Raises `SchemaError` and `UnsupportedFeature` with line, column and a caret, and
    `BudgetExceeded`.
    """
    source = Source(pattern)
    try:
        node = lower_regex(pattern, dialect)
    except SchemaError as error:
        if error.line is None or error.column is None:
            raise  # not about a place of the pattern
        where = f"line {error.line}, column {error.column}: in the pattern {pattern!r:.120}: "
        said = str(error).removeprefix(where)
        raise source.error(_offset(pattern, error.line, error.column), said) from error
    except UnsupportedFeature as error:
        place = 0
        if error.line is not None and error.column is not None:
            place = _offset(pattern, error.line, error.column)
        reason = error.reason.removesuffix(f" (column {place + 1} of the pattern {pattern!r:.120})")
        raise source.refusal(error.keyword, place, reason) from error
    length = overlong({"root": node}, "root")
    if length is not None:
        raise source.refusal(
            "repetition",
            0,
            f"the shortest text would take {length:,} bytes, and {LONGEST:,} are the most; lower "
            "the counts, which multiply where they stand inside of each other",
        )
    return ir.GrammarIR({"root": node}, "root")


def _offset(pattern: str, line: int, column: int) -> int:
    start = 0
    for _ in range(line - 1):
        start = pattern.index("\n", start) + 1
    return start + column - 1
