"""Random grammars and texts: the verdict of the automaton is that of lark's Earley parser.

Lark matches a terminal with `re.match`, on the rest of the text and on its shortened forms, so
where an expression prefers a shorter match it misses texts (`/a|ab/` never covers "ab"), and an
ignored terminal is only ever skipped at its longest. The comparison with lark keeps to terminals
without such preferences; the comparison with `Recogniser`, which tries all spans, does not.
"""

from __future__ import annotations

import random

import pytest

pytest.importorskip("lark", reason="the extra 'grammars' is not installed: pip install lark")

from earley_reference import Recogniser
from lark import Lark
from lark.exceptions import LarkError
from random_grammars import grammar, mutated, texts

import structspec
from structspec.sampling import sample


def cases(rng: random.Random, compiled: structspec.Grammar | None, count: int) -> list[str]:
    """Random texts, texts of the language, and mutations of those."""
    found = texts(rng, count // 3)
    if compiled is not None:
        inside = [
            text.decode()
            for text in sample(compiled, count // 3, seed=rng.random(), max_bytes=10 + 8)
            if len(text) <= 10
        ]
        found += inside + [mutated(rng, text) for text in inside]
    return found


def compile_or_none(text: str) -> structspec.Grammar | None:
    """None if the start rule has no text at all, which is an error of its own."""
    try:
        return structspec.compile(text, syntax="lark")
    except structspec.SchemaError as error:
        assert "no text completes the rule 'start'" in str(error)
        return None


def lark_accepts(parser: Lark, text: str) -> bool:
    try:
        parser.parse(text)
    except LarkError:
        return False
    except RuntimeError as error:  # it found a parse, and then another that ends in ignored text
        assert "multiple start symbol items" in str(error)
    return True


def against_lark(seed: int, grammars: int, per_grammar: int) -> tuple[int, int]:
    """The number of pairs compared, and how many of them are in their languages."""
    rng = random.Random(seed)
    pairs = inside = 0
    for _ in range(grammars):
        text = grammar(rng)
        parser = Lark(text, parser="earley", lexer="dynamic_complete", ambiguity="forest")
        compiled = compile_or_none(text)
        for case in cases(rng, compiled, per_grammar):
            expected = lark_accepts(parser, case)
            pairs += 1
            inside += expected
            assert (compiled is not None and compiled.accepts(case)) == expected, (text, case)
    return pairs, inside


def against_recogniser(seed: int, grammars: int, per_grammar: int) -> tuple[int, int]:
    rng = random.Random(seed)
    pairs = inside = 0
    for _ in range(grammars):
        text = grammar(rng, ordered=True)
        reference = Recogniser(text)
        compiled = compile_or_none(text)
        for case in cases(rng, compiled, per_grammar):
            expected = reference.accepts(case)
            pairs += 1
            inside += expected
            assert (compiled is not None and compiled.accepts(case)) == expected, (text, case)
    return pairs, inside


def test_random_grammars_have_the_language_that_lark_gives_them() -> None:
    pairs, inside = against_lark(seed=1, grammars=40, per_grammar=30)
    assert pairs >= 800 and inside >= 200


def test_every_way_to_cut_a_text_into_terminals_counts() -> None:
    pairs, inside = against_recogniser(seed=2, grammars=40, per_grammar=30)
    assert pairs >= 800 and inside >= 200


@pytest.mark.full
def test_fifty_thousand_pairs_have_the_verdict_of_lark() -> None:
    pairs, _ = against_lark(seed=3, grammars=900, per_grammar=75)
    more, _ = against_recogniser(seed=4, grammars=300, per_grammar=75)
    print(f"{pairs} pairs against lark, {more} against all spans")
    assert pairs >= 50_000
