"""Random texts: of the language, within the limit, repeatable, and not all alike."""

from __future__ import annotations

import pytest

import structspec
from structspec import ir
from structspec.errors import Unsatisfiable
from structspec.sampling import sample, samples


def test_texts_are_of_the_language_and_within_the_limit() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}
    for order in ("declared", "any"):
        grammar = structspec.compile(schema, key_order=order)  # type: ignore[arg-type]
        for size in (8, 20, 90):
            for text in sample(grammar, 40, seed=size, max_bytes=size):
                assert grammar.accepts(text) and len(text) <= size


def test_a_seed_repeats_the_texts_and_others_differ() -> None:
    grammar = structspec.compile("[ab]{0,9}", syntax="regex")
    assert sample(grammar, 9, seed=3) == sample(grammar, 9, seed=3)
    assert sample(grammar, 9, seed=3) != sample(grammar, 9, seed=4)


def test_every_text_of_a_small_language_comes_up() -> None:
    grammar = structspec.compile('root ::= "a" ("b" | "c" root?)', syntax="gbnf")
    found = set(sample(grammar, 2000, seed=1, max_bytes=6))
    assert found == {b"ac" * n + end for n in range(3) for end in (b"ab", b"ac")}


def test_recursion_always_ends_within_the_limit() -> None:
    grammar = structspec.compile('root ::= "(" root root ")" | "x"', syntax="gbnf")
    texts = sample(grammar, 60, seed=1, max_bytes=40)
    assert max(map(len, texts)) > 10 and all(map(grammar.accepts, texts))


def test_special_tokens_are_avoided_or_refused() -> None:
    grammar = structspec.compile('root ::= "a" | "a" <t> "b" | "c"', syntax="gbnf")
    assert set(sample(grammar, 50, seed=1)) == {b"a", b"c"}
    only = structspec.compile('root ::= "a" <t>', syntax="gbnf")
    assert only.accepts_parts(["a", ir.Special("<t>")])
    with pytest.raises(Unsatisfiable, match="special token"):
        sample(only)


def test_no_text_or_none_that_fits_is_said() -> None:
    with pytest.raises(Unsatisfiable, match="empty"):
        sample(structspec.compile(False))
    with pytest.raises(Unsatisfiable, match="7 bytes"):
        next(samples(structspec.compile("a{7}", syntax="regex"), max_bytes=6))
