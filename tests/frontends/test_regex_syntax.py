"""Syntax: escapes, classes, properties, and what is refused with which error and where."""

from __future__ import annotations

import contextlib
import re
import sys
import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from structspec.errors import BudgetExceeded, SchemaError, UnsupportedFeature
from structspec.frontends.regex import lower_regex, parse
from structspec.frontends.regex.ast import Chars
from structspec.frontends.regex.classes import SCALARS, complement, difference, intersection, where


def chars(pattern: str, dialect: str = "ecma", **options: bool) -> tuple[tuple[int, int], ...]:
    node = parse(pattern, dialect, **options)  # type: ignore[arg-type]
    assert isinstance(node, Chars)
    return node.ranges


def one(pattern: str, dialect: str = "ecma", **options: bool) -> str:
    ((low, high),) = chars(pattern, dialect, **options)
    assert low == high
    return chr(low)


@pytest.mark.parametrize(
    ("pattern", "char"),
    [
        (r"\t", "\t"), (r"\n", "\n"), (r"\v", "\v"), (r"\f", "\f"), (r"\r", "\r"), (r"\0", "\0"),
        (r"\cJ", "\n"), (r"\cj", "\n"), (r"\x41", "A"), (r"\u00e9", "é"), (r"\u{1F600}", "😀"),
        (r"\ud83d\ude00", "😀"), (r"\/", "/"), (r"\{", "{"), (r"\|", "|"), (r"[\b]", "\b"),
        (r"[\-]", "-"), (r"[\]]", "]"), (r"[.]", "."), (r"[$]", "$"),
    ],
)  # fmt: skip
def test_an_ecma_escape_is_one_character(pattern: str, char: str) -> None:
    assert one(pattern) == char


@pytest.mark.parametrize(
    ("pattern", "column"),
    [
        ("(ab|c", 1), ("ab)", 3), ("a**", 3), ("*a", 1), ("a|+", 3), ("[ab", 1), ("[b-a]", 2),
        ("a{2,1}", 1), ("a{", 2), ("}", 1), ("a]", 2), (r"\-", 1), (r"\q", 1), (r"ab\_", 3),
        ("\\", 1), (r"\x4", 1), (r"\u12", 1), (r"\u{110000}", 1), (r"\c1", 1), (r"\01", 1),
        (r"[\d-z]", 2), (r"\p", 1), (r"\p{}", 1), ("(?<1>a)", 1), ("^*", 1), (r"\b+", 1),
        ("(?Px)", 1), (r"\2(a)", 1), (r"\k<n>", 1), ("a{1}{2}", 5), ("ab\nc)", 2),
    ],
)  # fmt: skip
def test_a_malformed_ecma_pattern_is_refused_with_its_column(pattern: str, column: int) -> None:
    with pytest.raises(SchemaError) as caught:
        lower_regex(pattern)
    assert caught.value.column == column
    assert caught.value.line == 1 + (pattern == "ab\nc)")


@pytest.mark.parametrize(
    ("pattern", "keyword", "dialect"),
    [
        ("(?<=a(?=b))b", "lookahead", "ecma"), (r"(?<=a\b)b", "lookahead", "python"),
        (r"(a)\1", "backreference", "ecma"), (r"(?<n>a)\k<n>", "backreference", "ecma"),
        ("(?P<n>a)(?P=n)", "backreference", "python"), ("(?i:a)", "modifiers", "ecma"),
        ("(?-i:a)", "modifiers", "ecma"), ("(?>a)", "atomic group", "python"),
        ("a++", "possessive quantifier", "python"), (r"\p{Script=Klingon}", "", "ecma"),
        (r"\p{Bidi_Mirrored}", "", "ecma"), ("(a)?(?(1)b|c)", "conditional group", "python"),
        ("(" * 150 + ")" * 150, "group", "ecma"),
    ],
)  # fmt: skip
def test_what_cannot_be_compiled_is_refused_by_name(
    pattern: str, keyword: str, dialect: str
) -> None:
    with pytest.raises(UnsupportedFeature) as caught:
        lower_regex(pattern, dialect)  # type: ignore[arg-type]
    assert caught.value.keyword == (keyword or pattern)


def test_shorthand_classes_are_ascii_in_ecma_and_unicode_in_python() -> None:
    assert chars(r"\d") == ((48, 57),)
    assert chars(r"\w") == ((48, 57), (65, 90), (95, 95), (97, 122))
    for letter in "dws":
        expression = re.compile("\\" + letter)
        assert chars("\\" + letter, "python") == where(lambda c, e=expression: bool(e.match(c)))
        assert chars("\\" + letter.upper()) == complement(chars("\\" + letter))
    spaces = "\t\n\v\f\r \u00a0\u1680\u2028\u2029\u202f\u205f\u3000\ufeff" + "".join(
        map(chr, range(0x2000, 0x200B))
    )
    assert chars(r"\s") == where(spaces.__contains__)


def test_the_dot_excludes_the_line_ends_of_its_dialect() -> None:
    assert complement(chars(".")) == ((10, 10), (13, 13), (0x2028, 0x2029))
    assert complement(chars(".", "python")) == ((10, 10),)


@pytest.mark.parametrize(
    ("name", "categories"),
    [
        ("Lu", {"Lu"}), ("L", {"Lu", "Ll", "Lt", "Lm", "Lo"}), ("Mark", {"Mn", "Mc", "Me"}),
        ("gc=Nd", {"Nd"}), ("General_Category=Decimal_Number", {"Nd"}), ("Cn", {"Cn"}),
        ("P", {"Pc", "Pd", "Ps", "Pe", "Pi", "Pf", "Po"}), ("LC", {"Lu", "Ll", "Lt"}),
    ],
)  # fmt: skip
def test_a_category_holds_its_characters_and_no_others(name: str, categories: set[str]) -> None:
    expected = where(lambda char: unicodedata.category(char) in categories)
    assert chars(rf"\p{{{name}}}") == expected
    assert chars(rf"\P{{{name}}}") == complement(expected)
    assert chars(rf"[^\p{{{name}}}]") == complement(expected)


# Old characters whose properties newer versions of Unicode have changed.
CHANGED = {"Lowercase": {0x295, 0x10FC, 0xA7F2, 0xA7F3, 0xA7F4, 0xAB69}}


@pytest.mark.parametrize(
    "name", ["Script=Greek", "sc=Cyrl", "Alphabetic", "White_Space", "Lowercase", "XID_Start"]
)
def test_scripts_and_binary_properties_agree_with_the_regex_package(name: str) -> None:
    regex = pytest.importorskip("regex", reason="the package regex is not installed")
    expression = regex.compile(rf"\p{{{name.replace('sc=', 'Script=')}}}")
    theirs = where(lambda char: bool(expression.match(char)))
    ours = chars(rf"\p{{{name}}}")
    # Only characters that the interpreter knows: the two may follow different versions.
    known = complement(chars(r"\p{Cn}"))
    for low, high in intersection(difference(ours, theirs), known) + intersection(
        difference(theirs, ours), known
    ):
        assert set(range(low, high + 1)) <= CHANGED.get(name, set())


def test_any_is_every_scalar_value_and_surrogates_match_nothing() -> None:
    assert chars(r"\p{Any}") == SCALARS
    assert chars(r"[^]") == SCALARS
    assert chars(r"\ud800") == ()
    assert chars(r"[\ud700-\ue000]") == ((0xD700, 0xD7FF), (0xE000, 0xE000))


def test_web_patterns_may_escape_punctuation_and_leave_braces_alone() -> None:
    for pattern, char in [(r"\-", "-"), (r"\_", "_"), (r"\"", '"'), (r"\ ", " "), ("{", "{")]:
        assert one(pattern, web=True) == char
    assert chars(r"[\w-.]", web=True) == ((45, 46), (48, 57), (65, 90), (95, 95), (97, 122))
    assert lower_regex("a{,2}]", web=True).value == b"a{,2}]"  # type: ignore[union-attr]
    for pattern in (r"\q", r"\8", "a{2,1}", "(", "[b-a]"):
        with pytest.raises(SchemaError):
            lower_regex(pattern, web=True)


@pytest.mark.parametrize(
    "pattern",
    [
        r"\Aab\Z", "(?P<n>a)b", "a(?#note)*b", "[]a]", "[^]a]", "a{,2}", "a{,}", "a{", "}", r"\a",
        r"\u00e9", r"\U0001F600", r"\N{LATIN SMALL LETTER A}", r"\07", r"\-\_", "[a-]", "x{2}?",
        "(?:^a)*", "(^)*a", "(?i)a", "(?i:a)b", "(?x) a # b\n c", "(?s-i:.)", "(?=a)*b", "(?a:\\w)",
        "(?<!ab)c", "(?<=a|b)c", "(?im)^a$",
    ],
)  # fmt: skip
def test_python_syntax_compiles_where_re_compiles(pattern: str) -> None:
    re.compile(pattern)
    lower_regex(pattern, "python")


@pytest.mark.filterwarnings("ignore:Possible nested set:FutureWarning")
@settings(max_examples=500, deadline=None)
@given(st.text(alphabet="ab(|)[]{}*+?^$\\.-,1:=<>P", max_size=8))
def test_python_patterns_are_compiled_or_refused_as_re_does(pattern: str) -> None:
    try:
        re.compile(pattern)
    except (re.error, RecursionError, OverflowError):
        with pytest.raises((SchemaError, UnsupportedFeature)):
            lower_regex(pattern, "python")
        return
    try:
        lower_regex(pattern, "python")
    except UnsupportedFeature:
        return


@settings(max_examples=500, deadline=None)
@given(st.text(max_size=12), st.booleans())
def test_any_text_compiles_or_raises_a_typed_error(pattern: str, web: bool) -> None:
    with contextlib.suppress(SchemaError, UnsupportedFeature, BudgetExceeded):
        lower_regex(pattern, web=web)


def test_the_front_end_needs_no_third_party_package() -> None:
    assert "structspec.frontends.regex" in sys.modules
    names = {"torch", "transformers", "numba"}
    module = sys.modules["structspec.frontends.regex.parse"]
    assert not names & set(vars(module))
