"""Patterns through `structspec.compile`: the automaton agrees with the front end."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import structspec
from structspec.errors import SchemaError, UnsupportedFeature

CORPUS = Path(__file__).parent.parent / "corpus" / "regex.jsonl"
CASES = [json.loads(line) for line in CORPUS.read_text("utf-8").splitlines() if line]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
def test_a_compiled_corpus_pattern_accepts_exactly_its_texts(case: dict) -> None:
    if case.get("must_refuse_pattern"):
        with pytest.raises(SchemaError):
            structspec.compile(case["pattern"], syntax="regex")
        return
    try:
        grammar = structspec.compile(case["pattern"], syntax="regex")
    except UnsupportedFeature:
        assert case.get("may_refuse_pattern"), "only a case that says so may be refused"
        return
    assert [text for text in case["valid"] if not grammar.accepts(text)] == []
    assert [text for text in case["invalid"] if grammar.accepts(text)] == []


parts = st.sampled_from(
    [
        "a",
        "b+",
        "[^a]",
        "(?:ab|a)*",
        "é?",
        ".{0,3}",
        r"\d{2,}",
        "(?:a?b?){1,3}",
        "😀",
        "(?:a{2,3}){2}",
    ]
)


@settings(max_examples=100, deadline=None)
@given(
    st.lists(parts, max_size=4).map("".join),
    st.lists(st.text(alphabet="abé😀1 ", max_size=8), max_size=20),
)
def test_a_compiled_pattern_means_what_re_fullmatch_says(pattern: str, texts: list[str]) -> None:
    grammar = structspec.compile(pattern, syntax="regex", dialect="python")
    for text in texts:
        assert grammar.accepts(text) == bool(re.fullmatch(pattern, text)), (pattern, text)
