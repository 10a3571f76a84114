"""Automata over characters: algebra against brute force, canonical forms, lengths, budgets."""

from __future__ import annotations

import itertools
import math
import random
import re
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from structspec.automata.chardfa import Budget, CharDfa, CharNfa, LengthSet
from structspec.automata.chardfa_alphabet import SCALARS, joint, merged, outside, partition
from structspec.errors import BudgetExceeded, SchemaError
from structspec.frontends.jsonschema.text_automata import pattern_dfa

ALPHABET = "abc"
LONGEST = 5
TEXTS = [
    "".join(letters)
    for length in range(LONGEST + 1)
    for letters in itertools.product(ALPHABET, repeat=length)
]

# Patterns that Python's `re` and ECMAScript read alike, over three letters.
_atoms = st.sampled_from(["a", "b", "c", "[ab]", "[^a]", "."])
PATTERNS = st.recursive(
    _atoms,
    lambda inner: st.one_of(
        st.tuples(inner, inner).map("".join),
        st.tuples(inner, inner).map(lambda pair: f"(?:{pair[0]}|{pair[1]})"),
        st.tuples(inner, st.sampled_from("*+?")).map(lambda pair: f"(?:{pair[0]}){pair[1]}"),
        st.tuples(inner, st.integers(0, 2), st.integers(0, 2)).map(
            lambda part: f"(?:{part[0]}){{{part[1]},{part[1] + part[2]}}}"
        ),
    ),
    max_leaves=6,
)


def whole(pattern: str) -> CharDfa:
    return pattern_dfa(f"^(?:{pattern})$")


def language(dfa: CharDfa) -> set[str]:
    return {text for text in TEXTS if dfa.accepts(text)}


@given(PATTERNS)
@settings(max_examples=120, deadline=None)
def test_an_automaton_accepts_what_re_matches(pattern: str) -> None:
    dfa, compiled = whole(pattern), re.compile(pattern)
    assert language(dfa) == {text for text in TEXTS if compiled.fullmatch(text)}
    found = pattern_dfa(pattern)
    assert language(found) == {text for text in TEXTS if compiled.search(text)}


@given(PATTERNS, PATTERNS)
@settings(max_examples=120, deadline=None)
def test_products_are_set_operations(left: str, right: str) -> None:
    a, b = whole(left), whole(right)
    mine, theirs = language(a), language(b)
    assert language(a.intersect(b)) == mine & theirs
    assert language(a.union(b)) == mine | theirs
    assert language(a.difference(b)) == mine - theirs
    assert language(a.complement()) == set(TEXTS) - mine


@given(PATTERNS, PATTERNS)
@settings(max_examples=120, deadline=None)
def test_equal_languages_are_equal_objects(left: str, right: str) -> None:
    a, b = whole(left), whole(right)
    laws: list[tuple[CharDfa, CharDfa]] = [
        (a.complement().complement(), a),
        (a.union(b), b.union(a)),
        (a.intersect(b), a.difference(b.complement())),
        (a.union(b).complement(), a.complement().intersect(b.complement())),
        (a.union(a.complement()), CharDfa.everything()),
        (a.difference(a), CharDfa.nothing()),
        (a.union(b).difference(b).union(b), a.union(b)),
    ]
    for one, other in laws:
        assert one == other
        assert hash(one) == hash(other)
    same = a.difference(b).is_empty and b.difference(a).is_empty
    assert (a == b) == same


@given(PATTERNS)
@settings(max_examples=100, deadline=None)
def test_no_two_states_are_equivalent_and_none_is_dead(pattern: str) -> None:
    dfa = whole(pattern)
    if dfa.is_empty:
        assert len(dfa.rows) == 1
        return
    assert all(distance >= 0 for distance in dfa.distances)
    # Two states of a trimmed automaton differ on some text shorter than their number.
    tails = set()
    for start in range(len(dfa.rows)):
        tail = set()
        stack = [(start, ())]
        while stack:
            state, path = stack.pop()
            if state in dfa.accepting:
                tail.add(path)
            if len(path) < len(dfa.rows) and len(dfa.rows) <= 6:
                stack.extend((target, (*path, label)) for label, target in dfa.rows[state])
        tails.add(frozenset(tail))
    if len(dfa.rows) <= 6:
        assert len(tails) == len(dfa.rows)
    columns = {
        tuple((state, target) for state, row in enumerate(dfa.rows) for c, target in row if c == k)
        for k in range(len(dfa.classes))
    }
    assert len(columns) == len(dfa.classes)


def test_a_long_list_is_what_determinising_and_minimising_make_of_it() -> None:
    """Shared beginnings and ends, letters that nothing tells apart, the empty string among them."""
    rng = random.Random(11)
    strings = {"".join(rng.choices("abcdé😀", k=rng.randint(0, 8))) for _ in range(400)}
    strings |= {a + "tion" + b for a in "pqrs" for b in ("", "s", "al")}
    nfa = CharNfa()
    start, end = nfa.state(), nfa.state()
    for text in sorted(strings):
        here = start
        for character in text:
            there = nfa.state()
            nfa.read(here, ((ord(character), ord(character)),), there)
            here = there
        nfa.join(here, end)
    listed, made = CharDfa.of_strings(strings), CharDfa.of_nfa(nfa, start, end)
    assert listed == made and hash(listed) == hash(made)


@given(st.lists(st.text(max_size=6), max_size=20))
@settings(max_examples=100, deadline=None)
def test_a_finite_list_is_the_union_of_its_strings(strings: list[str]) -> None:
    dfa = CharDfa.of_strings(strings)
    single = CharDfa.nothing()
    for text in strings:
        single = single.union(CharDfa.of_strings([text]))
    assert dfa == single
    assert dfa.is_finite
    assert all(dfa.accepts(text) for text in strings)
    by_length: dict[int, int] = {}
    for text in set(strings):
        by_length[len(text)] = by_length.get(len(text), 0) + 1
    assert {n: dfa.count(n) for n in range(8) if dfa.count(n)} == by_length


@given(PATTERNS, st.integers(0, 5), st.none() | st.integers(0, 6))
@settings(max_examples=120, deadline=None)
def test_with_length_keeps_the_strings_of_those_lengths(
    pattern: str, low: int, high: int | None
) -> None:
    dfa = whole(pattern)
    kept = dfa.with_length(low, high)
    assert language(kept) == {
        text for text in language(dfa) if low <= len(text) and (high is None or len(text) <= high)
    }
    assert kept == dfa.intersect(CharDfa.of_length(low, high))


@given(PATTERNS)
@settings(max_examples=100, deadline=None)
def test_lengths_say_which_lengths_occur(pattern: str) -> None:
    dfa = whole(pattern)
    numbers = dfa.lengths()
    assert [n in numbers for n in range(12)] == [dfa.count(n) > 0 for n in range(12)]
    shortest, longest = dfa.length_range
    if dfa.is_empty:
        assert (shortest, longest) == (math.inf, -math.inf)
        assert dfa.shortest() is None
        return
    text = dfa.shortest()
    assert text is not None
    assert dfa.accepts(text)
    assert len(text) == shortest
    assert numbers.finite == dfa.is_finite == (longest != math.inf)
    if numbers.finite:
        assert longest == max(n for n in range(200) if n in numbers)


@given(st.lists(st.booleans(), max_size=5), st.lists(st.booleans(), min_size=1, max_size=6))
def test_a_set_of_lengths_has_one_form(head: list[bool], cycle: list[bool]) -> None:
    once = LengthSet.of(head, cycle)
    again = LengthSet.of([*head, *cycle], cycle * 2)
    assert once == again
    held = [*head, *cycle * 12]
    assert [n in once for n in range(len(held))] == held


RANGES = st.lists(
    st.tuples(st.integers(0, 40), st.integers(0, 5)).map(lambda p: (p[0], p[0] + p[1])), max_size=4
).map(merged)


@given(st.lists(RANGES, max_size=5))
def test_classes_are_the_coarsest_that_respect_the_sets(sets: list) -> None:
    def members(ranges: tuple) -> set[int]:
        return {code for low, high in ranges for code in range(low, high + 1)}

    classes, parts = partition(sets)
    of_code = {code: n for n, ranges in enumerate(classes) for code in members(ranges)}
    for ranges, numbers in zip(sets, parts, strict=True):
        assert members(ranges) == {code for code, n in of_code.items() if n in numbers}
    held = {
        code: tuple(code in members(ranges) for ranges in sets)
        for code in range(50)
        if any(code in members(ranges) for ranges in sets)
    }
    assert len(classes) == len(set(held.values()))
    rest = {code for low, high in outside(sets) for code in range(low, min(high, 49) + 1)}
    assert rest == set(range(50)) - set(held)


@given(st.lists(RANGES, max_size=4), st.lists(RANGES, max_size=4))
def test_joint_classes_are_pairs(left: list, right: list) -> None:
    first, second = partition(left)[0], partition(right)[0]

    def of(classes: list, code: int) -> int:
        return next(
            (n for n, r in enumerate(classes) if any(low <= code <= high for low, high in r)), -1
        )

    seen = {}
    for a, b, ranges in joint(first, second):
        for low, high in ranges:
            for code in range(low, high + 1):
                assert code not in seen
                seen[code] = (a, b)
    for code in range(60):
        assert seen.get(code, (-1, -1)) == (of(first, code), of(second, code))


def test_surrogates_are_in_no_set_and_everything_else_is_in_one() -> None:
    everything = CharDfa.everything()
    assert not everything.accepts("\ud800")
    assert everything.accepts("\x00\ud7ff\ue000\U0010ffff")
    assert everything.classes == (SCALARS,)
    with pytest.raises(SchemaError, match="surrogate"):
        CharDfa.of_strings(["a\udc00"])


def test_characters_beyond_the_basic_plane_count_once() -> None:
    assert pattern_dfa("^.{2}$").accepts("\U0001f600\U0001f601")
    assert CharDfa.of_length(1, 1).count(1) == 0x110000 - 0x800


def test_edges_are_merged_per_target() -> None:
    dfa = whole("(?:[ad]|b)x|c")
    assert dfa.edges(0) == ((((97, 98), (100, 100)), 1), (((99, 99),), 2))


@pytest.mark.parametrize(
    "make",
    [
        lambda: whole("(?:a|b)*a(?:a|b){20}"),
        lambda: whole("(?:.{300}){300}"),
        lambda: pattern_dfa("foo").with_length(0, 50_000),
        lambda: CharDfa.of_length(0, 10**9),
        lambda: CharDfa.of_strings(f"{n:020}x{n * 7919}" for n in range(6000)),
        lambda: pattern_dfa("a.{9}b").intersect(pattern_dfa("b.{9}a"), Budget(states=1000)),
    ],
)
def test_what_would_grow_too_large_is_refused(make: Callable[[], CharDfa]) -> None:
    with pytest.raises(BudgetExceeded) as caught:
        make()
    assert caught.value.what == "states"
    assert caught.value.needed > caught.value.limit


def test_a_search_for_many_words_does_not_remember_which_it_found() -> None:
    """Otherwise every set of words that may have been found is a state."""
    words = [chr(0x61 + n) + chr(0x6D + n) for n in range(12)]
    found = pattern_dfa("|".join(words), Budget(states=100))
    assert all(found.accepts(f"x{word}y") for word in words)
    assert not found.accepts("".join(word[0] for word in words))


def test_time_is_a_budget_too() -> None:
    with pytest.raises(BudgetExceeded, match="time"):
        pattern_dfa("^(?:a|b){0,9000}$", Budget(seconds=0.0))


def test_large_automata_are_made_in_about_linear_time() -> None:
    assert len(whole("[a-z]{1,9000}").rows) == 9001
    words = [f"key{number * 7919}" for number in range(3000)]
    listed = CharDfa.of_strings(words)
    assert sum(listed.count(length) for length in range(12)) == 3000
    assert listed.complement().complement() == listed
