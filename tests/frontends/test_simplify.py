"""Repetitions of repetitions: one where the counts have no gaps, as they are where they have."""

from __future__ import annotations

import itertools
import time

import pytest

import structspec
from structspec import ir
from structspec.frontends.rules.simplify import repeat

X = ir.Bytes(b"x")
_MOST = 40


def _counts(node: ir.Node) -> set[int]:
    """How many copies of X there may be, up to `_MOST`."""
    if node == X:
        return {1}
    if node == ir.EPSILON:
        return {0}
    assert isinstance(node, ir.Repeat)
    inner = _counts(node.item)
    found, reached = set(), {0}
    for copies in range(_MOST + 1):
        if node.maximum is not None and copies > node.maximum:
            break
        if copies >= node.minimum:
            found |= reached
        reached = {a + b for a in reached for b in inner if a + b <= _MOST}
    return found


def test_every_nesting_of_small_counts_has_the_counts_of_its_parts() -> None:
    bounds = [(a, b) for a in range(4) for b in [*range(max(a, 1), 6), None]]
    for (low, high), (minimum, maximum) in itertools.product(bounds, bounds):
        plain = ir.Repeat(ir.Repeat(X, low, high), minimum, maximum)
        made = repeat(ir.Repeat(X, low, high), minimum, maximum)
        assert _counts(made) == _counts(plain), (low, high, minimum, maximum)
        flat = not (isinstance(made, ir.Repeat) and isinstance(made.item, ir.Repeat))
        counts = _counts(plain)
        gaps = counts != set(range(min(counts), max(counts) + 1))
        assert flat != gaps, (low, high, minimum, maximum)


@pytest.mark.parametrize(
    ("syntax", "text"),
    [
        ("gbnf", 'root ::= ("a"{0,9999}){0,9999}'),
        ("lark", 'start: ("a"~0..9999)~0..9999\n'),
        ("regex", "(a{0,9999}){0,9999}"),
        ("regex", "(?:(?:a{3,900}){2,70}){1,5}"),
    ],
)
def test_counts_in_counts_are_followed_once(syntax: str, text: str) -> None:
    """Every way to share out the copies would be followed otherwise: minutes, not milliseconds."""
    grammar = structspec.compile(text, syntax=syntax)  # type: ignore[arg-type]
    began = time.process_time()
    assert grammar.accepts("a" * 3000) and not grammar.accepts("a" * 3000 + "b")
    assert time.process_time() - began < 5
