"""The trie of sibling blocks holds what the depth-first trie holds, and its summaries are true."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from structspec.vocab.blocks import Blocks
from structspec.vocab.characters import LEAD_RANGES, MID, Characters, character_bits, range_bits
from structspec.vocab.plain import PlainTokens
from structspec.vocab.trie import Trie

TOKENS = st.lists(st.binary(min_size=1, max_size=5), max_size=40)
TEXTS = st.lists(st.text("abé中🙂\u2003 z", min_size=1, max_size=5), max_size=40)


def below(blocks: Blocks, node: int, prefix: bytes = b"") -> dict[bytes, list[int]]:
    """Bytes below a node -> ids."""
    found: dict[bytes, list[int]] = {}
    own = blocks.ids[blocks.low[node] : blocks.low[node] + blocks.own[node]].tolist()
    if own:
        found[prefix] = own
    for child in range(blocks.first[node], blocks.last[node]):
        found |= below(blocks, child, prefix + bytes([blocks.byte[child]]))
    return found


@given(TOKENS)
@settings(max_examples=60, deadline=None)
def test_blocks_hold_every_token_of_the_trie(tokens: list[bytes]) -> None:
    blocks = Blocks.build(Trie.build(tokens))
    expected: dict[bytes, list[int]] = {}
    for index, token in enumerate(tokens):
        expected.setdefault(token, []).append(index)
    assert below(blocks, 0) == expected
    for node in range(blocks.size):
        ids = sorted(i for group in below(blocks, node).values() for i in group)
        assert sorted(blocks.ids[blocks.low[node] : blocks.high[node]].tolist()) == ids
        children = blocks.byte[blocks.first[node] : blocks.last[node]].tolist()
        assert children == sorted(set(children))


@given(TEXTS)
@settings(max_examples=60, deadline=None)
def test_summaries_name_the_characters_below_and_their_most(texts: list[str]) -> None:
    bits = character_bits("".join(texts))
    blocks = Blocks.build(Trie.build([t.encode() for t in texts]), bits)

    def visit(node: int, prefix: bytes) -> None:
        try:
            prefix.decode()
            inside = False
        except UnicodeDecodeError:
            inside = True
        content = int.from_bytes(blocks.content[4 * node : 4 * node + 4].tobytes(), "little")
        assert bool(content >> MID & 1) == inside
        if not inside:
            rests = [rest.decode() for rest in below(blocks, node)]
            assert blocks.height[node] == max(map(len, rests), default=0)
            expected = {int(bits[ord(c)]) for rest in rests for c in rest}
            assert {b for b in range(128) if content >> b & 1} == expected
        for child in range(blocks.first[node], blocks.last[node]):
            visit(child, prefix + bytes([blocks.byte[child]]))

    visit(0, b"")


def test_every_group_has_a_bit_that_no_text_has() -> None:
    bits = [bit for of_range in range_bits() for bit in of_range]
    assert len(set(bits)) == len(bits) and all(MID < bit < 0x20 for bit in bits)
    assert [lead for low, high in LEAD_RANGES for lead in range(low, high + 1)] == list(
        range(0xC2, 0xF5)
    )


@given(st.sets(st.characters(exclude_categories=["Cs"])))
@settings(max_examples=60, deadline=None)
def test_characters_lie_with_their_group(characters: set[str]) -> None:
    bits = character_bits(characters)
    found = Characters(characters, bits)
    seen = set()
    for bit in range(32):
        for k in range(found.start[bit], found.start[bit + 1]):
            character = bytes(found.data[4 * k : 4 * k + 4]).rstrip(b"\0").decode()
            assert bits[ord(character)] == bit
            seen.add(character)
    assert seen == {c for c in characters if c > "\x7f"}
    for a in characters:
        for b in characters:
            if min(a, b) > "\x7f" and bits[ord(a)] == bits[ord(b)]:
                assert a.isalpha() == b.isalpha() or a.encode()[0] in (0xEE, 0xF1, 0xF2, 0xF3, 0xF4)


@given(st.lists(st.text('ab"é\\\n中', min_size=1, max_size=4), max_size=20), st.data())
@settings(max_examples=60, deadline=None)
def test_a_tail_is_what_follows_the_plain_beginning(texts: list[str], data: st.DataObject) -> None:
    tokens: list[bytes | None] = [
        t.encode()[: data.draw(st.integers(1, len(t.encode())))] for t in texts
    ]
    tokens.append(("é" * 70).encode())
    plain = PlainTokens.build(tokens, len(tokens))
    tails = {i: tail for tail, ids in below(plain.tails, 0).items() for i in ids}
    others = {i for ids in below(plain.others, 0).values() for i in ids}
    assert set(tails) == others == set(np.flatnonzero(plain.lengths == 0).tolist())
    for index, tail in tails.items():
        token = tokens[index]
        assert token is not None and tail and token.endswith(tail)
        beginning = token[: len(token) - len(tail)].decode()  # whole characters
        assert not set(beginning) & set('"\\\n')
        if index != len(tokens) - 1:
            assert (
                not tail.decode("utf-8", "replace")[0].isprintable()
                or tail[0] in b'"\\'
                or (tail.decode("utf-8", "replace")[0] == "\ufffd")
            )


@given(st.lists(st.text(' \n\tab"', min_size=1, max_size=5), max_size=40))
@settings(max_examples=60, deadline=None)
def test_without_summaries_heights_are_bytes_and_white_space_is_marked(texts: list[str]) -> None:
    blocks = Blocks.build(Trie.build([t.encode() for t in texts]))
    for node in range(blocks.size):
        inside = [data for data in below(blocks, node) if data]
        assert blocks.height[node] == max(map(len, inside), default=0)
        blank = not any(data.strip(b" \t\n\r") for data in inside)
        assert blocks.content[4 * node] == blank


def test_pieces_are_tails_of_one_character_or_its_beginning() -> None:
    texts = ["é", "a", "中", "🙂", 'a"']
    tokens: list[bytes | None] = [t.encode() for t in texts]
    wanted = [b"\xc3", b"ab\xe4\xb8", b"\xf0\x9f\x99", "é".encode() * 70]
    others = [b"\xa9", b"\xc3\xc3", b"\xe0\x80", b"\xed\xa0", b"\xf5", b'\xc3"', b'"\xc3', b"\xc0"]
    plain = PlainTokens.build([*tokens, *wanted, *others, None], size=40)
    bits = np.unpackbits(plain.pieces.view(np.uint8), bitorder="little")
    found = np.flatnonzero(bits).tolist()
    assert found == list(range(len(tokens), len(tokens) + len(wanted)))
