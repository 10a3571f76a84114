"""Masks of classes of characters of many scripts: groups of characters are allowed as a whole."""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st

import structspec
from structspec.vocab import Vocabulary
from tests.masks.test_places import check

# Letters and others of most ranges of first bytes, and both sides of where ranges end.
RUNS = (
    "éßñÅø", "×÷§«»", "αβΩ", "привет", "שלו", "مرحبا", "नमस्ते", "สวัส", "ᄀᏣ", "ệṍ", "—“”…€", "∑→─",
    "こんカナー", "、。〜", "中文字㐀", "ꀀꔀ한글", "힣퀀", "\ue000\uf8ff", "ﬁﷺＡ！",
    "\ufeff\ufffd\ufe0f", "🙂🚀🏽", "𝐀𝟙𐌰", "𠀀𪛟", "\U000e0020\U000e0041",
    "\U000fffff\U00100000\U0010ffff",
    "\xa0\u2003\u3000\x85\u2028", "\x7f\x80\u07ff\u0800\u0fff\u1000\u1fff\u2000\ud7ff\uffff",
)  # fmt: skip
ASCII = ("a", "abc", "Z", "name", "0", "12", "_", "-", " ", "  ", '"', "\\", "\n", '",', "'", ".")


def vocabulary(seed: int, size: int) -> Vocabulary:
    """All bytes, words of one script or several, some between ASCII, some cut inside characters."""
    rng = random.Random(seed)
    tokens: list[bytes | None] = [bytes((b,)) for b in range(256)]
    while len(tokens) < size:
        run = rng.choice(RUNS)
        word = "".join(rng.choice(run) for _ in range(rng.choice((1, 1, 2, 3, 5))))
        ends = [rng.choice((*ASCII, *rng.choice(RUNS))) if rng.random() < 0.4 else "" for _ in "ab"]
        data = (ends[0] + word + ends[1]).encode()
        tokens.append(data[rng.randint(0, 2) : len(data) - 1] if rng.random() < 0.1 else data)
    tokens = [token for token in tokens if token]
    return Vocabulary([*tokens, None], [len(tokens)])


VOCABULARY = vocabulary(1, 1400)
BOUNDS = sorted(
    {ord(c) for c in "".join(RUNS)} | {0x20, 0x41, 0x5A, 0x61, 0x7A, 0xD7, 0x17F, 0x4E2D, 0xFFFF}
)


@st.composite
def classes(draw: st.DrawFn) -> str:
    """A class of ECMA's expressions whose ranges cut through groups of characters."""
    parts = draw(
        st.lists(
            st.one_of(
                st.sampled_from((r"\w", r"\s", r"\d", r"\S", r"\p{L}", r"\p{Lu}", r"\p{M}")),
                st.sampled_from((r"\P{L}", r"\p{Script=Han}", r"\p{Script=Latin}", "a-z", '"')),
                st.tuples(st.sampled_from(BOUNDS), st.sampled_from(BOUNDS)).map(
                    lambda pair: f"\\u{{{min(pair):x}}}-\\u{{{max(pair):x}}}"
                ),
            ),
            min_size=1,
            max_size=3,
        )
    )
    return f"[{'^' if draw(st.booleans()) else ''}{''.join(parts)}]"


@given(
    parts=st.lists(
        st.tuples(classes(), st.sampled_from(("", "*", "+", "{2}", "{1,9}", "{0,70}"))),
        min_size=1,
        max_size=3,
    ),
    json=st.booleans(),
    seed=st.integers(0, 1 << 20),
)
@settings(max_examples=25, deadline=None)
def test_masks_of_random_classes_match_the_automaton(
    parts: list[tuple[str, str]], json: bool, seed: int
) -> None:
    pattern = "".join(f"{members}{count}" for members, count in parts)
    try:
        if json:
            schema = {"type": "string", "pattern": f"^{pattern}$"}
            grammar = structspec.compile(schema)
        else:
            grammar = structspec.compile(pattern, syntax="regex", dialect="ecma")
        constraint = grammar.bind(VOCABULARY)
    except structspec.StructspecError:  # nothing satisfies it
        return
    check(constraint, seed, 6)
