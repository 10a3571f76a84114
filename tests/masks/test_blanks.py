"""White space of the vocabulary is gone through once, wherever it changes nothing."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from walked import check, vocabulary

import structspec
from structspec.masks.blanks import blank_room
from structspec.masks.constraint import Constraint

PIECES = [
    *(" ", "  ", "   ", "\n", "\n\n", "\t", "\r\n", "\n  ", " \n", "\n    ", " " * 9, " " * 40),
    *("\n" * 12, '"', "{", "}", "[", "]", ",", ":", '":', '",', "a", "b", "ab", "word", "12", "-"),
    *("true", "null", ";", "(", ")", "=", "x = ", " a", " b", " word", " 1", "\n}", '\n"', "é"),
]
LARGE, SMALL = vocabulary(3, 1400, PIECES), vocabulary(4, 420, PIECES)

#: Gaps: all of JSON's white space or some, bounded or not, one kind after the other, a start that
#: counts for something, and white space that something else takes too.
GAPS = [
    "[ \\t\\n\\r]*", "[ \\t\\n\\r]{0,3}", "[ \\t\\n\\r]{1,40}", "[ \\t\\n\\r]{2,5}", " ?", " *",
    "\\n*", "[ \\n]*", "[ \\t\\n\\r]* *", "( |\\n[ \\t\\n\\r]*)?", "([ \\t\\n\\r]+|;)*",
    "[ \\t\\n\\r]*(;[ \\t\\n\\r]*)?", "( [ \\t\\n\\r]{0,2}|\\n{0,4})", "[\\s\\S]{0,4}", "[\\s\\S]*",
    "([ \\t\\n\\r]{4})*", "[ \\t\\n\\r;]{0,6}",
]  # fmt: skip


@given(st.lists(st.sampled_from(GAPS), min_size=2, max_size=4), st.integers(0, 2**20))
@settings(max_examples=25, deadline=None)
def test_patterns_with_gaps_allow_what_the_automaton_takes(gaps: list[str], seed: int) -> None:
    words = ("(a|ab)", "[a-z]+", "(12|-)")
    pattern = "".join(gap + word for gap, word in zip(gaps, words, strict=False)) + gaps[-1]
    grammar = structspec.compile(pattern, syntax="regex")
    for vocab in (LARGE, SMALL):
        check(grammar.bind(vocab), seed, 7)


@given(
    st.lists(st.sampled_from(GAPS), min_size=3, max_size=3),
    st.booleans(),
    st.integers(0, 2**20),
)
@settings(max_examples=20, deadline=None)
def test_rules_with_gaps_allow_what_the_automaton_takes(
    gaps: list[str], ignored: bool, seed: int
) -> None:
    """Gaps in rules that call one another, also as text that may stand anywhere."""
    ignore = "%ignore /[ \\t\\n\\r]+/" if ignored else ""
    grammar = structspec.compile(
        f"""
        start: item (SEP item)*
        item: "(" GAP start GAP ")" | WORD (GAP "=" item)? | call
        call: WORD "[" (item OTHER)* "]"
        SEP: /{gaps[0]},/
        GAP: /{gaps[1]}/
        OTHER: /{gaps[2]};/
        WORD: /[a-z]+/
        {ignore}
        """,
        syntax="lark",
    )
    check(grammar.bind(LARGE), seed, 9)


@pytest.mark.parametrize("order", ["declared", "any"])
@pytest.mark.parametrize("vocab", [LARGE, SMALL], ids=["large", "small"])
def test_documents_allow_what_the_automaton_takes(vocab: structspec.Vocabulary, order: str) -> None:
    schema = {
        "type": "object",
        "properties": {
            "a": {"type": "array", "items": {"type": ["integer", "string", "null"]}},
            "b": {"type": "object", "additionalProperties": {"type": "boolean"}},
            "ab": {"anyOf": [{"$ref": "#"}, {"const": "word"}, {"type": "number"}]},
        },
        "maxProperties": 2,
    }
    constraint = structspec.compile(schema, key_order=order).bind(vocab)
    for seed in range(12):
        check(constraint, seed, 12)


def room(constraint: Constraint, text: bytes) -> int:
    """`blank_room` behind a text."""
    state = constraint.advance_bytes(constraint.start, text)
    assert state is not None
    cache = constraint.cache
    constraint.mask(state)
    return int(blank_room(cache.header, cache.known, cache.configuration(state))[0])


def test_how_much_white_space_changes_nothing() -> None:
    """Otherwise the tests above would see nothing but the ordinary walk."""
    document = structspec.compile({"type": "object"}).bind(LARGE)
    for text in (b"{", b'{"a":', b'{"a": [', b'{"a": true', b'{"a": {"b": 2}'):
        assert room(document, text) == 32, text
    assert room(document, b'{"a": 1   ') == 29
    assert room(document, b'{"a') == 0  # in a string
    assert room(document, b'{"a": 1') == 0  # after a blank the number cannot go on
    endless = structspec.compile("a[ \t\n\r]*b", syntax="regex").bind(LARGE)
    assert room(endless, b"a") > 1000
    for pattern in ("a[ \t\n]*b", "a( *|\n)b", "a[ \t\n\r]*( b|c)", "a([ \t\n\r]{2})*b"):
        assert room(structspec.compile(pattern, syntax="regex").bind(LARGE), b"a") == 0, pattern


@pytest.mark.parametrize("gap", ["[ \\t\\n\\r]*", "[ \\t\\n\\r]{0,1500}", "[ \\t\\n\\r]{0,900}"])
def test_tokens_of_more_white_space_than_anybody_counts(gap: str) -> None:
    tokens = [*LARGE.tokens[:-1], b" " * 900, b"\n" * 1400, b" " * 2000 + b"b", None]
    vocab = structspec.Vocabulary(tokens, [len(tokens) - 1])
    check(structspec.compile(f"a{gap}b", syntax="regex").bind(vocab), 1, 4)


def test_a_budget_of_tokens_counts_white_space_as_ever() -> None:
    grammar = structspec.compile({"type": "array", "items": {"type": "integer"}, "minItems": 2})
    constraint = grammar.bind(LARGE)
    state = constraint.advance_bytes(constraint.start, b"[1")
    assert state is not None
    for left in range(1, 6):
        allowed = set(constraint.allowed(state, left).tolist())
        for token in constraint.allowed(state).tolist():
            after = constraint.distance(constraint.advance(state, token))
            assert (token in allowed) == (after <= left - 1), (left, LARGE.tokens[token])


def test_json_dumps_with_indentation_is_allowed_token_by_token() -> None:
    value = {"a": [1, -12, "word", None], "b": {"x": True}}
    constraint = structspec.compile({"type": "object"}).bind(LARGE)
    tokens = {t: i for i, t in enumerate(LARGE.tokens) if t}
    text, state, at = json.dumps(value, indent=4).encode(), constraint.start, 0
    while at < len(text):
        piece = next(text[at : at + n] for n in range(45, 0, -1) if text[at : at + n] in tokens)
        assert tokens[piece] in constraint.allowed(state)
        state, at = constraint.advance(state, tokens[piece]), at + len(piece)
    assert constraint.accepting(state)
