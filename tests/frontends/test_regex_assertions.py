"""Lookaround, flags and word boundaries anywhere: equal to Python's `re`, or refused."""

from __future__ import annotations

import itertools
import random
import re
import sys
import warnings

import pytest

from structspec.errors import SchemaError
from structspec.frontends.regex import language, lower_regex, parse

TEXTS = ["".join(t) for n in range(5) for t in itertools.product("ab-\n", repeat=n)]
FLAGS = {"i": re.IGNORECASE, "s": re.DOTALL, "m": re.MULTILINE, "a": re.ASCII, "x": re.VERBOSE}


def atom(rng: random.Random) -> str:
    return rng.choice(["a", "b", "-", ".", "[ab]", "[^a]", r"\w", r"\W", "A", "\n", "é", r"[a-é]"])


def pattern(rng: random.Random, depth: int) -> str:
    """A random pattern with every kind of assertion, also under repetition."""
    kind = rng.random()
    if depth == 0 or kind < 0.25:
        return atom(rng)
    inner = [pattern(rng, depth - 1) for _ in range(rng.randint(1, 3))]
    if kind < 0.45:
        return "".join(inner)
    if kind < 0.55:
        return f"(?:{'|'.join(inner)})"
    if kind < 0.7:
        return f"(?:{inner[0]})" + rng.choice(["*", "+", "?", "{1,2}", "*?"])
    if kind < 0.78:
        return rng.choice(["^", "$", r"\b", r"\B", r"\Z", r"\A", "(?m:^)", "(?m:$)", "(?i:ab)"])
    if kind < 0.92:
        return rng.choice(["(?=", "(?!"]) + inner[0] + ")"
    return rng.choice(["(?<=", "(?<!"]) + atom(rng) + rng.choice(["", atom(rng)]) + ")"


def compare(seed: int, patterns: int) -> int:
    """Compare verdicts; the number of (pattern, text) pairs."""
    rng = random.Random(seed)
    done = pairs = 0
    while done < patterns:
        text, letters = pattern(rng, 3), rng.choice(["", "", "i", "s", "m", "is", "a"])
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                reference = re.compile(text, sum(FLAGS[letter] for letter in letters))
        except re.error:
            continue  # \A under a quantifier, say
        done += 1
        for search in (False, True):
            dfa = language(parse(text, "python", flags=letters), search=search).dfa
            match = reference.search if search else reference.fullmatch
            for sample in TEXTS:
                if r"\B" in text and not sample and sys.version_info < (3, 14):
                    continue  # re is wrong there
                pairs += 1
                assert dfa.accepts(sample) == bool(match(sample)), (text, letters, sample, search)
    return pairs


def test_random_patterns_with_assertions_mean_what_re_says() -> None:
    assert compare(seed=1, patterns=60) > 30_000


@pytest.mark.full
def test_many_random_patterns_with_assertions_mean_what_re_says() -> None:
    assert compare(seed=2, patterns=1500) > 900_000


@pytest.mark.parametrize(
    ("source", "valid", "invalid"),
    [
        (r"/\*(?:(?!\*/).)*\*/", ["/**/", "/* a */"], ["/* */ */", "/*/"]),
        (r"(?=.*\d)(?=.*[a-z])(?!.*\s)\w{4,}", ["a1bc", "1234z"], ["abcd", "1234", "a1 b", "a1"]),
        (r"(?!if\b|else\b)[a-z]+", ["iffy", "i", "elsewhere"], ["if", "else"]),
        (r'"(.*?)(?<!\\)(\\\\)*?"', ['""', r'"a\"b"', r'"\\"'], [r'"\"', '"a"b"c', '"']),
        (r"(?<=^)a\b(?=$)", ["a"], ["ab", ""]),
    ],
)  # fmt: skip
def test_patterns_of_everyday_use_have_their_language(
    source: str, valid: list[str], invalid: list[str]
) -> None:
    dfa = language(parse(source, "python")).dfa
    reference = re.compile(source)
    for text in [*valid, *invalid]:
        assert bool(reference.fullmatch(text)) == dfa.accepts(text), text
    assert all(map(dfa.accepts, valid))
    # '"a"b"c' does match with a lazy dot: only what re refuses has to be refused
    assert not any(dfa.accepts(text) for text in invalid if not reference.fullmatch(text))


@pytest.mark.parametrize(
    ("source", "depends"),
    [
        (r"if(?!\w)", "lookahead"), (r"if\b", "lookahead"), (r"\bif", "lookbehind"),
        (r"(?!if\b)[a-z]+", "lookahead"), (r"(?!if[a-z])[a-z]+", "lookahead"),
        (r"(?!x)[a-z]+", None), (r'"(?!")[^"]+"', None), (r"a(?=b)b", None), (r"^a", "lookbehind"),
        (r"a$", "lookahead"), (r"(?<!\\)a", "lookbehind"), (r"b(?<!\\)a", None),
        (r'"(.*?)(?<!\\)(\\\\)*?"', None), (r"(?=a|b)[ab]", None), (r"a(?=b)|a(?!b)", None),
    ],
)  # fmt: skip
def test_a_part_that_depends_on_its_neighbours_is_told(source: str, depends: str | None) -> None:
    assert language(parse(source, "python"), alone=False).depends == depends


def test_what_re_learnt_with_3_14_is_known_to_every_python() -> None:
    assert parse(r"a\z", "python") == parse(r"a\Z", "python")
    with pytest.raises(SchemaError):
        parse(r"[\z]", "python")
    for pattern, empty in ((r"\B", True), (r"\b", False), (r"\B|a", True), (r"(?=\B)b?", True)):
        assert language(parse(pattern, "python")).dfa.accepts("") is empty
        if sys.version_info >= (3, 14):
            assert bool(re.fullmatch(pattern, "")) is empty
            assert re.fullmatch(r"a\z", "a")


def test_case_is_ignored_as_re_does_for_every_letter_of_some_blocks() -> None:
    rng = random.Random(3)
    letters = [chr(c) for c in range(0x24F)] + list("İıſßẞKΩςσΣDžfi")
    for letter in rng.sample(letters, 60):
        dfa = language(parse(re.escape(letter), "python", flags="i")).dfa
        match = re.compile(re.escape(letter), re.IGNORECASE).fullmatch
        for other in letters:
            assert dfa.accepts(other) == bool(match(other)), (letter, other)


def test_verbose_patterns_may_be_laid_out() -> None:
    source = r"""
        (?P<year> \d{4} ) - # the year, then
        [ ] \  (?# a blank twice)
    """
    node = lower_regex(source, "python", flags="xa")
    assert node == lower_regex(r"\d{4}-  ", "python", flags="a")


@pytest.mark.parametrize(
    "source", ["(?L)a", "a(?i)b", "(?i-i:a)", "(?<=a*)b", "(?<=a|bc)d", "(?au)a", "(?=a"]
)
def test_what_re_calls_an_error_is_one(source: str) -> None:
    with pytest.raises(re.error):
        re.compile(source)
    with pytest.raises(SchemaError):
        lower_regex(source, "python")


@pytest.mark.parametrize(
    "source", ["(?:(?!b)){2}a", "(?:(?=b))+.", "((?!ab))?..", "(?:(?=b)){0}.", "a(?:(?<=a)b?)*"]
)
def test_a_group_that_holds_an_assertion_may_be_repeated(source: str) -> None:
    found = language(parse(source), search=False).dfa
    for size in range(4):
        for text in map("".join, itertools.product("abc", repeat=size)):
            assert found.accepts(text) == bool(re.fullmatch(source, text)), text


@pytest.mark.parametrize("source", ["(?=a)*b", "(?!a){2}b", "(?<=a)+b", "(?<!a)?b", "^*a", r"\b+a"])
def test_an_assertion_itself_may_not(source: str) -> None:
    with pytest.raises(SchemaError, match="cannot be repeated"):
        lower_regex(source)
