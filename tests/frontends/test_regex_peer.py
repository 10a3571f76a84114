"""Random patterns against the package `regex`: lookbehind of any length, properties, both dialects.

`re`, which the sibling tests compare with, has neither. What the two dialects read differently from
`regex` (digits, words, the dot, the end of the text) is spelled out in the pattern that it gets.
"""

from __future__ import annotations

import itertools
import random

import pytest
import regex

import structspec

TEXTS = ["".join(t) for n in range(5) for t in itertools.product("aB1\n", repeat=n)]
TEXTS += ["é", "éa", "aé", "É", "a1é", "_", "a_", "\u0660", "a\u0660", "ж", "Жa", "\r", "a\u2028"]

#: (ours, theirs)
COMMON = [
    ("a", "a"), ("B", "B"), ("1", "1"), ("[aé]", "[aé]"), ("[^a]", "[^a]"), (r"\n", r"\n"),
    ("[a-zA-Z]", "[a-zA-Z]"), ("[^B1]", "[^B1]"),
]  # fmt: skip
ATOMS = {
    "python": [*COMMON, (r"\d", r"\d"), (r"\w", r"\w"), (".", "."), ("(?i:b)", "(?i:b)"),
               (r"\s", r"\s"), (r"[^\W\d]", r"[^\W\d]")],
    "ecma": [*COMMON, (r"\d", "[0-9]"), (r"\w", "[A-Za-z0-9_]"), (".", "[^\n\r\u2028\u2029]"),
             (r"\p{L}", r"\p{L}"), (r"\p{Lu}", r"\p{Lu}"), (r"[\p{Ll}\d]", r"[\p{Ll}0-9]"),
             (r"\P{L}", r"\P{L}"), (r"[^\p{Nd}]", r"[^\p{Nd}]"),
             (r"\p{Script=Cyrillic}", r"\p{Script=Cyrillic}")],
}  # fmt: skip
ENDS = {
    "python": [("^", "^"), ("$", "$"), (r"\b", r"\b"), (r"\Z", r"\Z"), ("(?m:^)", "(?m:^)")],
    "ecma": [("^", r"\A"), ("$", r"\Z"), (r"\b", r"(?a:\b)"), (r"\B", r"(?a:\B)")],
}


def pattern(rng: random.Random, dialect: str, depth: int, behind: bool = False) -> tuple[str, str]:
    """A random pattern in our dialect, and for `regex`."""
    kind = rng.random()
    if depth == 0 or kind < 0.25:
        return rng.choice(ATOMS[dialect])
    inner = [pattern(rng, dialect, depth - 1, behind) for _ in range(rng.randint(1, 3))]
    ours, theirs = (list(parts) for parts in zip(*inner, strict=True))
    if kind < 0.45:
        return "".join(ours), "".join(theirs)
    if kind < 0.6:
        return f"(?:{'|'.join(ours)})", f"(?:{'|'.join(theirs)})"
    if kind < 0.75:
        sign = rng.choice(["*", "+", "?", "{1,2}", "{2}", "*?"])
        return f"(?:{ours[0]}){sign}", f"(?:{theirs[0]}){sign}"
    if kind < 0.82 and not behind:
        return rng.choice(ENDS[dialect])
    if kind < 0.92 and not behind:
        sign = rng.choice(["(?=", "(?!"])
        return f"{sign}{ours[0]})", f"{sign}{theirs[0]})"
    if behind or dialect == "python":  # Python's lookbehinds have one length
        return "".join(ours), "".join(theirs)
    sign = rng.choice(["(?<=", "(?<!"])
    one, other = pattern(rng, dialect, depth - 1, behind=True)
    return f"{sign}{one})", f"{sign}{other})"


def compare(dialect: str, seed: int, patterns: int) -> tuple[int, int]:
    """Compare whole matches; pairs of pattern and text, and how many of them match."""
    rng = random.Random(seed)
    pairs = inside = 0
    for _ in range(patterns):
        ours, theirs = pattern(rng, dialect, 3)
        compiled = structspec.compile(ours, syntax="regex", dialect=dialect)
        # All ways to match count, as in `regex.fullmatch`, which tries them
        reference = regex.compile(theirs)
        for text in TEXTS:
            expected = reference.fullmatch(text) is not None
            pairs += 1
            inside += expected
            assert compiled.accepts(text) == expected, (dialect, ours, theirs, text)
    return pairs, inside


@pytest.mark.parametrize("dialect", ["python", "ecma"])
def test_random_patterns_match_what_the_package_regex_matches(dialect: str) -> None:
    pairs, inside = compare(dialect, seed=1, patterns=60)
    assert pairs > 15_000 and inside > 300


@pytest.mark.full
@pytest.mark.parametrize("dialect", ["python", "ecma"])
def test_many_random_patterns_match_what_the_package_regex_matches(dialect: str) -> None:
    pairs, inside = compare(dialect, seed=2, patterns=1500)
    assert pairs > 500_000 and inside > 10_000
