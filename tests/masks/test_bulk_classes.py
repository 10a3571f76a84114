"""Bulk classes set the same bits as a full walk of the trie."""

from __future__ import annotations

import random
import re

import numpy as np
import pytest

import structspec
from structspec import ir
from structspec.automata.network import build_network
from structspec.masks.constraint import Constraint
from structspec.masks.fill import UNLIMITED
from structspec.masks.places import SPLIT
from structspec.masks.tables import Known, Tally
from structspec.vocab import Vocabulary
from structspec.vocab.characters import character_bits

CHARACTERS = 'abcxyz 0189,:{}[]<>éßñ×中文字䷀한글🙂🙃\x7f\x1f\n\t\\"€‰ﬁ'
ANY = ((0x20, 0x21), (0x23, 0x5B), (0x5D, 0x10FFFF))
# Latin, Chinese and Korean letters, some of every range of first bytes but not all of any.
LETTERS = (
    (48, 57), (65, 90), (97, 122), (0xC0, 0xD6), (0xD8, 0xF6), (0x4E00, 0x9FFF), (0xAC00, 0xD7A3),
    (0xFB01, 0xFB02),
)  # fmt: skip


def vocabulary(seed: int, size: int = 700, covered: bool = True) -> Vocabulary:
    rng = random.Random(seed)
    tokens: list[bytes | None] = [bytes((b,)) for b in range(256)] if covered else []
    while len(tokens) < size:
        text = "".join(rng.choice(CHARACTERS) for _ in range(rng.choice((1, 1, 2, 2, 3, 4, 6, 9))))
        data = text.encode()
        if rng.random() < 0.15:
            data = data[rng.randint(0, 2) : len(data) - rng.randint(0, 1)]
        tokens.append(data)
    tokens += [b"a" * 64, b"b" * 65, "é".encode() * 70, None, b"", b"a", b"a"]
    return Vocabulary(tokens, [len(tokens) - 4], logit_width=len(tokens) + 50)


BIG = vocabulary(1)
ASCII = Vocabulary([t for t in BIG.tokens if t is not None and max(t, default=0) < 128], [0])
MISSING = Vocabulary([t for t in BIG.tokens if t is None or 0xE4 not in t], [])
# Characters beyond ASCII only in front of a quote: no plain token holds them.
RARE = Vocabulary([*ASCII.tokens, *((t + '"').encode() for t in ("é", "aé", "中"))], [0])


def char_list(*bounds: int | None) -> ir.Node:
    return ir.Repeat(ir.Chars(ANY), bounds[0] or 0, bounds[1])


QUOTE = ir.Bytes(b'"')
GRAMMARS: dict[str, ir.Node] = {
    "free string": char_list(0, None),
    "at least one": char_list(1, None),
    "at least three": char_list(3, None),
    "at least twelve": char_list(12, None),
    "at least three hundred": char_list(300, None),
    "at most one": char_list(0, 1),
    "at most five": char_list(0, 5),
    "at most seventy": char_list(0, 70),
    "at most a thousand": char_list(0, 1000),
    "three to five": char_list(3, 5),
    "five hundred to a thousand": char_list(500, 1000),
    "exactly four": char_list(4, 4),
    "no line feed only": ir.Repeat(ir.Chars(((0, 9), (11, 0x10FFFF))), 2, 8),
    "latin only": ir.Repeat(ir.Chars(((0x20, 0x21), (0x23, 0x5B), (0x5D, 0x7FF))), 0, 9),
    "no emoji": ir.Repeat(ir.Chars(((0x20, 0x21), (0x23, 0x5B), (0x5D, 0xFFFF))), 0, 9),
    "one character apart": ir.Repeat(
        ir.Chars((*ANY[:2], (0x5D, 0x4E2C), (0x4E2E, 0x10FFFF))), 0, 6
    ),
    "letters": ir.Repeat(ir.Chars(LETTERS), 0, None),
    "at most six letters": ir.Repeat(ir.Chars(LETTERS), 0, 6),
    "letters but one": ir.Repeat(
        ir.Chars((*LETTERS[:3], (0xC0, 0xDE), (0xE0, 0xE8), *LETTERS[5:])), 0, None
    ),
    "all but letters": ir.Repeat(ir.Chars(((0x20, 0x21), (0x23, 0x40), (0x20A0, 0x20CF))), 0, None),
    "ASCII characters": ir.Repeat(ir.Chars((*ANY[:2], (0x5D, 0x7F))), 0, None),
    "words": ir.choice(ir.Bytes(w.encode()) for w in ("中文", "中字", "é", "ab", "abc", "🙂")),
    "word or anything": ir.choice((ir.Bytes("中文".encode()), char_list(2, 4))),
    "pairs": ir.Repeat(ir.sequence((ir.Chars(ANY), ir.Chars(((97, 122),)))), 0, 50),
    "pairs of anything": ir.Repeat(ir.sequence((ir.Chars(ANY), ir.Chars(ANY))), 1, 50),
}


def check(c: Constraint, state: int) -> None:
    tally = c.cache._knowledge.count
    config = c.cache.configuration(state)
    cost = c.distance(state)
    for limit in (UNLIMITED, 0, 1, cost - 1, cost, cost + 1, cost + 3, 40):
        rows, worst = [], []
        for bulk in (0, 1):
            row = np.zeros(-(-c.vocab.size // 32), np.uint32)
            tally[Tally.BULK] = bulk
            worst.append(c._compute_into(config, limit, row))
            rows.append(row)
        assert np.array_equal(*rows), limit
        assert worst[0] <= worst[1], limit  # an upper bound is all that `mask` needs


@pytest.mark.parametrize(
    "vocab", [BIG, ASCII, MISSING, RARE], ids=["bytes", "ascii", "gap", "rare"]
)
@pytest.mark.parametrize("name", GRAMMARS)
def test_bulk_and_walk_agree(name: str, vocab: Vocabulary) -> None:
    node = ir.sequence((QUOTE, GRAMMARS[name], QUOTE))
    c = Constraint(build_network(ir.GrammarIR({"root": node}, "root")), vocab)
    rng = random.Random(len(name))
    for _ in range(3):
        state = c.start
        for _ in range(8):
            check(c, state)
            allowed = [t for t in c.allowed(state).tolist() if t not in vocab.eos_ids]
            if not allowed:
                break
            state = c.advance(state, rng.choice(allowed))


def test_letters_are_allowed_as_a_whole_beside_characters_that_are_not() -> None:
    c = structspec.compile(r"\w{1,30}", syntax="regex", dialect="python").bind(BIG)
    words = {i for i, t in enumerate(BIG.tokens) if t and _is_word(t)}
    assert {i for i in words if b"\xc3\xa9" in (BIG.tokens[i] or b"")}
    allowed = c.allowed(c.start)
    whole = {int(i) for i in allowed if _is_text(BIG.tokens[int(i)])}
    assert whole == words
    config = c.cache.configuration(c.start)
    target, content = (c.cache._knowledge.get(slot) for slot in (Known.TARGET, Known.CONTENT))
    place = int(c.cache._knowledge.get(Known.PLACE)[config])
    config = place - 1 if place > SPLIT else config
    bits = character_bits("é中한ﬁ×€🙂")
    held = int.from_bytes(content[4 * config : 4 * config + 4].tobytes(), "little")
    assert target[config] > 1
    for character in "é中한ﬁ":
        assert held >> int(bits[ord(character)]) & 1, character
    for character in "×€🙂":
        assert not held >> int(bits[ord(character)]) & 1, character


def _is_text(data: bytes | None) -> bool:
    try:
        return bool((data or b"").decode())
    except UnicodeDecodeError:
        return False


def _is_word(data: bytes) -> bool:
    return (
        _is_text(data)
        and len(data.decode()) <= 30
        and re.fullmatch(r"\w+", data.decode()) is not None
    )


def test_a_token_stays_iff_its_characters_fit_the_bounds() -> None:
    node = ir.sequence((QUOTE, char_list(3, 9), QUOTE))
    c = Constraint(build_network(ir.GrammarIR({"root": node}, "root")), BIG)
    state = c.advance_bytes(c.start, b'"')
    assert state is not None
    allowed = set(c.allowed(state).tolist())
    for token, data in enumerate(BIG.tokens):
        try:
            text = (data or b"").decode()
        except UnicodeDecodeError:
            continue
        body, closed = (text[:-1], True) if text.endswith('"') else (text, False)
        plain = (
            body.isascii() is not None
            and not set(body) & set('"\\')
            and min(body, default=" ") >= " "
        )
        fits = plain and bool(text) and len(body) <= 9 and (not closed or len(body) >= 3)
        assert (token in allowed) == fits, (token, text)


def test_large_vocabularies_use_the_bulk_classes_and_small_ones_do_not() -> None:
    grammar = structspec.compile(".*", syntax="regex")
    for vocab, bulk in ((BIG, 1), (Vocabulary([b"a"], []), 0)):
        assert Constraint(grammar.network, vocab).cache._knowledge.count[Tally.BULK] == bulk
