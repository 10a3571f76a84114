"""The language of a pattern: the corpus, Python's `re`, and a matcher over the IR."""

from __future__ import annotations

import itertools
import json
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from structspec import ir
from structspec.errors import SchemaError, UnsupportedFeature
from structspec.frontends.regex import lower_regex, search_regex

CORPUS = Path(__file__).parent.parent / "corpus" / "regex.jsonl"
CASES = [json.loads(line) for line in CORPUS.read_text("utf-8").splitlines() if line]


def ends(node: ir.Node, data: bytes, starts: frozenset[int]) -> frozenset[int]:
    """All places where a match of `node` from one of `starts` may end."""
    match node:
        case ir.Bytes(value):
            return frozenset(i + len(value) for i in starts if data.startswith(value, i))
        case ir.Chars(ranges):
            found = set()
            for i in starts:
                for size in (1, 2, 3, 4):
                    try:
                        char = data[i : i + size].decode("utf-8")
                    except UnicodeDecodeError:
                        continue
                    if len(char) == 1 and any(a <= ord(char) <= b for a, b in ranges):
                        found.add(i + size)
                    break
            return frozenset(found)
        case ir.Sequence(items):
            for item in items:
                starts = ends(item, data, starts)
            return starts
        case ir.Choice(items):
            return frozenset().union(*(ends(item, data, starts) for item in items))
        case ir.Repeat(item, minimum, maximum):
            found, count, seen = frozenset(starts if minimum == 0 else ()), 0, set()
            while starts and (maximum is None or count < maximum):
                starts, count = ends(item, data, starts), count + 1
                if count >= minimum:
                    if starts <= found and (starts, "done") in seen:
                        break
                    seen.add((starts, "done"))
                    found |= starts
            return found
        case ir.Automaton(edges, accepting):
            reached = [set() for _ in edges]
            reached[0] = set(starts)
            pending = [(0, i) for i in starts]
            while pending:
                state, i = pending.pop()
                for label, target in edges[state]:
                    for j in ends(label, data, frozenset([i])) - reached[target]:
                        reached[target].add(j)
                        pending.append((target, j))
            return frozenset().union(*(reached[state] for state in accepting))
    raise AssertionError(node)


def matches(node: ir.Node, text: str) -> bool:
    data = text.encode("utf-8")
    return len(data) in ends(node, data, frozenset([0]))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
def test_a_corpus_pattern_has_exactly_its_language(case: dict) -> None:
    if case.get("must_refuse_pattern"):
        with pytest.raises(SchemaError):
            lower_regex(case["pattern"])
        return
    try:
        node = lower_regex(case["pattern"])
    except UnsupportedFeature:
        assert case.get("may_refuse_pattern"), "only a case that says so may be refused"
        return
    assert [t for t in case["valid"] if not matches(node, t)] == []
    assert [t for t in case["invalid"] if matches(node, t)] == []


# -- against Python's re, on the syntax and meaning that both dialects share ---------------------

atoms = st.sampled_from(
    ["a", "b", "-", " ", "é", "😀", ".", "[ab]", "[^a]", "[a-c-]", r"\.", r"\n"]
)
anchored = st.sampled_from(["^", "$"])


def patterns(leaf: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    counts = st.sampled_from(["*", "+", "?", "{2}", "{1,3}", "{0,2}", "{2,}", "*?", "{1,2}?"])
    return st.recursive(
        leaf,
        lambda inner: st.one_of(
            st.lists(inner, min_size=0, max_size=4).map("".join),
            st.lists(inner, min_size=1, max_size=3).map(lambda p: f"(?:{'|'.join(p)})"),
            st.tuples(inner, counts).map(lambda p: f"(?:{p[0]}){p[1]}"),
            inner.map(lambda p: f"({p})"),
        ),
        max_leaves=8,
    )


texts = st.text(alphabet="ab- cé😀\n.", max_size=6)
SHORT = ["".join(t) for n in range(4) for t in itertools.product("ab-\n", repeat=n)]


@settings(max_examples=300, deadline=None)
@given(patterns(atoms), st.lists(texts, max_size=20))
def test_a_pattern_without_assertions_means_what_re_fullmatch_says(
    pattern: str, samples: list[str]
) -> None:
    node = lower_regex(pattern, "python")
    reference = re.compile(pattern)
    for text in [*samples, *SHORT[:40]]:
        assert matches(node, text) == bool(reference.fullmatch(text)), (pattern, text)


def ecma_reference(pattern: str) -> re.Pattern[str]:
    # ECMA's $ without the m flag is \Z; its dot excludes more, so no carriage return is tested.
    return re.compile(pattern.replace("$", r"\Z"))


@settings(max_examples=400, deadline=None)
@given(patterns(st.one_of(atoms, anchored)))
def test_anchors_anywhere_are_exact_in_whole_matches(pattern: str) -> None:
    node = lower_regex(pattern)
    reference = ecma_reference(pattern)
    for text in SHORT:
        assert matches(node, text) == bool(reference.fullmatch(text)), (pattern, text)


@settings(max_examples=400, deadline=None)
@given(patterns(st.one_of(atoms, anchored)))
def test_anchors_anywhere_are_exact_in_searches(pattern: str) -> None:
    node = search_regex(pattern)
    reference = ecma_reference(pattern)
    for text in SHORT:
        assert matches(node, text) == bool(reference.search(text)), (pattern, text)


@settings(max_examples=400, deadline=None)
@given(patterns(st.sampled_from(["a", "-", "b?", ".", r"\b", r"\B", "^", "$", "[^b]"])))
def test_word_boundaries_anywhere_are_exact(pattern: str) -> None:
    reference = re.compile(pattern.replace("$", r"\Z"), re.ASCII)
    for lowering, match in ((lower_regex, reference.fullmatch), (search_regex, reference.search)):
        node = lowering(pattern)
        for text in SHORT:
            if r"\B" in pattern and not text:
                continue  # re is wrong there: \B does not match in an empty text before 3.14
            assert matches(node, text) == bool(match(text)), (pattern, text)


@settings(max_examples=200, deadline=None)
@given(patterns(atoms), st.booleans())
def test_a_dollar_at_the_end_is_pythons_in_pythons_dialect(pattern: str, search: bool) -> None:
    pattern = f"(?:{pattern})$"
    reference = re.compile(pattern)
    node = (search_regex if search else lower_regex)(pattern, "python")
    for text in SHORT:
        found = reference.search(text) if search else reference.fullmatch(text)
        assert matches(node, text) == bool(found), (pattern, text)


def repeats(node: ir.Node) -> list[ir.Repeat]:
    match node:
        case ir.Sequence(items) | ir.Choice(items):
            return [found for item in items for found in repeats(item)]
        case ir.Repeat(item, _, _):
            return [node, *repeats(item)]
    return []


@settings(max_examples=200, deadline=None)
@given(patterns(atoms))
def test_nothing_that_can_be_empty_is_repeated(pattern: str) -> None:
    for found in repeats(lower_regex(pattern)):
        assert not matches(found.item, ""), pattern


@pytest.mark.parametrize(
    ("pattern", "node"),
    [
        ("abc", ir.Bytes(b"abc")),
        ("^abc$", ir.Bytes(b"abc")),
        ("^(?:abc)$", ir.Bytes(b"abc")),
        ("^abc|abd$", ir.Choice((ir.Bytes(b"abc"), ir.Bytes(b"abd")))),
        ("a^b", ir.NOTHING),
        ("[]", ir.NOTHING),
        ("", ir.EPSILON),
        ("(a*)*", ir.Repeat(ir.Bytes(b"a"), 0, None)),
        ("(?:a?){2,9}", ir.Repeat(ir.Bytes(b"a"), 0, 9)),
        ("x{0}", ir.EPSILON),
        ("[ab]{0,5000}", ir.Repeat(ir.Chars(((97, 98),)), 0, 5000)),
    ],
)
def test_simple_patterns_lower_to_simple_nodes(pattern: str, node: ir.Node) -> None:
    assert lower_regex(pattern) == node


def test_an_anchored_search_is_no_larger_than_its_pattern() -> None:
    anything = ir.Repeat(ir.Chars(((0, 0xD7FF), (0xE000, 0x10FFFF))), 0, None)
    assert search_regex("^ab$") == ir.Bytes(b"ab")
    assert search_regex("^ab") == ir.Sequence((ir.Bytes(b"ab"), anything))
    assert search_regex("ab$") == ir.Sequence((anything, ir.Bytes(b"ab")))
    assert search_regex("ab") == ir.Sequence((anything, ir.Bytes(b"ab"), anything))
