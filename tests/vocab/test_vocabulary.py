"""`Vocabulary`, its trie and its plain tokens, on small and random vocabularies."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from structspec.errors import VocabularyError
from structspec.vocab import PlainTokens, Trie, Vocabulary
from structspec.vocab.plain import LONGEST

CORPUS = Path(__file__).parent.parent / "corpus" / "tokenizer.jsonl"

pieces = st.one_of(
    st.none(),
    st.binary(max_size=5),
    st.text(alphabet='ab"\\é漢😀\x1f \x7f', max_size=4).map(str.encode),
)
vocabularies = st.lists(pieces, min_size=1, max_size=60)


def plain_length(token: bytes | None) -> int:
    """The definition, word for word."""
    try:
        text = (token or b"").decode("utf-8")
    except UnicodeDecodeError:
        return 0
    good = all(char >= " " and char not in '"\\' for char in text)
    return len(text) if good and len(text) <= LONGEST else 0


def contents(trie: Trie) -> dict[bytes, list[int]]:
    """All byte strings of the trie with their ids, read through the invariants."""
    found: dict[bytes, list[int]] = {}
    path: list[int] = []
    for node in range(trie.size):
        depth = int(trie.depth[node])
        del path[max(depth - 1, 0) :]
        if node:
            path.append(int(trie.byte[node]))
        assert len(path) == depth
        inside = trie.depth[node + 1 : trie.skip[node]]
        assert (inside > depth).all()
        assert trie.skip[node] == trie.size or trie.depth[trie.skip[node]] <= depth
        ids = trie.ids_at(node).tolist()
        if ids:
            found[bytes(path)] = ids
    return found


@settings(max_examples=300, deadline=None)
@given(vocabularies)
def test_the_trie_holds_every_usable_token_with_all_its_ids(tokens: list[bytes | None]) -> None:
    trie = Trie.build(tokens)
    expected: dict[bytes, list[int]] = {}
    for index, token in enumerate(tokens):
        if token:
            expected.setdefault(token, []).append(index)
    assert contents(trie) == expected
    assert list(contents(trie)) == sorted(expected)
    assert trie.max_depth == max(map(len, expected), default=0)
    assert trie.skip[0] == trie.size
    assert trie.depth[0] == 0
    for token, ids in expected.items():
        assert trie.ids_at(trie.find(token)).tolist() == ids


@settings(max_examples=300, deadline=None)
@given(vocabularies, st.integers(0, 70))
def test_plain_tokens_follow_the_definition(tokens: list[bytes | None], padding: int) -> None:
    size = len(tokens) + padding
    plain = PlainTokens.build(tokens, size)
    lengths = [plain_length(token) for token in tokens] + [0] * padding
    assert plain.lengths.tolist() == lengths
    assert plain.upto.shape == (max(lengths) + 1, -(-size // 32))
    assert plain.upto.dtype == np.uint32
    for length, row in enumerate(plain.upto):
        bits = [int(row[i // 32]) >> (i % 32) & 1 for i in range(size)]
        assert bits == [int(0 < n <= length) for n in lengths]
    others = [token if not n else None for token, n in zip(tokens, lengths, strict=False)]
    assert contents(plain.rest) == contents(Trie.build(others))


@settings(max_examples=500, deadline=None)
@given(st.binary(min_size=1, max_size=4))
def test_plain_means_well_formed_utf8(token: bytes) -> None:
    assert PlainTokens.build([token], 1).lengths[0] == plain_length(token)


def test_a_plain_token_over_the_limit_is_walked_instead() -> None:
    plain = PlainTokens.build([b"a" * LONGEST, b"a" * (LONGEST + 1)], 2)
    assert plain.lengths.tolist() == [LONGEST, 0]
    assert plain.longest == LONGEST
    assert plain.rest.token_ids.tolist() == [1]


def test_a_vocabulary_without_plain_tokens_has_one_empty_row() -> None:
    plain = PlainTokens.build([None, b'"'], 2)
    assert plain.upto.tolist() == [[0]]


@settings(max_examples=200, deadline=None)
@given(vocabularies, st.binary(max_size=8), st.data())
def test_encode_reproduces_the_bytes_or_says_that_it_cannot(
    tokens: list[bytes | None], noise: bytes, data: st.DataObject
) -> None:
    vocab = Vocabulary(tokens)
    usable = [token for token in tokens if token]
    if usable:
        text = b"".join(data.draw(st.lists(st.sampled_from(usable), max_size=5)))
        assert vocab.decode(vocab.encode(text)) == text
    try:
        assert vocab.decode(vocab.encode(noise)) == noise
    except VocabularyError:
        reachable = {0}
        for at in range(len(noise)):
            if at in reachable:
                reachable |= {at + len(t) for t in usable if noise.startswith(t, at)}
        assert len(noise) not in reachable


def test_encode_takes_the_longest_match_and_the_fewest_tokens_where_that_is_stuck() -> None:
    vocab = Vocabulary([b"a", b"ab", b"abc", b"cd", b"b"])
    assert vocab.encode(b"abab") == [1, 1]
    assert vocab.encode(b"abcd") == [1, 3]
    with pytest.raises(VocabularyError, match=r"b'x'"):
        vocab.encode(b"abx")


def test_a_tokenizers_own_encoding_is_used_only_if_it_reproduces_the_bytes() -> None:
    vocab = Vocabulary([b"a", b"aa", b"A"], encode=lambda data: [0] * len(data))
    assert vocab.encode(b"aa") == [0, 0]
    assert vocab.encode(b"A") == [2]
    wild = Vocabulary([b"a"], encode=lambda data: [7, -1])
    assert wild.encode(b"aa") == [0, 0]


def test_control_and_end_tokens_write_nothing_whatever_their_text_says() -> None:
    vocab = Vocabulary([b"<s>", b"a", b"</s>", b"<pad>"], eos_ids=[2, 2], special={0: "<s>"})
    assert vocab.tokens == (None, b"a", None, b"<pad>")
    assert vocab.eos_ids == (2,)
    assert dict(vocab.special) == {"<s>": 0}
    assert vocab.special_ids == {0, 2}
    assert vocab.decode([0, 1, 2]) == b"a"
    with pytest.raises(VocabularyError):
        vocab.encode(b"<s>")


def test_special_may_name_ids_or_number_names_and_equal_names_keep_all_ids() -> None:
    by_name = Vocabulary([b"a", b"p", b"p"], special={"x": 1})
    assert by_name.special_ids == {1}
    twice = Vocabulary([b"a", b"p", b"p"], special={1: "<pad>", 2: "<pad>"})
    assert twice.special_ids == {1, 2}
    assert twice.tokens == (b"a", None, None)


def test_ids_beyond_the_tokens_exist_and_never_match() -> None:
    vocab = Vocabulary([b"a"], eos_ids=[40], logit_width=64)
    assert vocab.size == 64
    assert vocab.token_bytes(63) is None
    assert vocab.plain.upto.shape[1] == 2
    assert vocab.trie.token_ids.tolist() == [0]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"tokens": ["a"]}, ["token 0", "'a'", "bytes"]),
        ({"tokens": []}, ["at least one"]),
        ({"tokens": [b"a"], "eos_ids": [1]}, ["end token", "1", "0 to 0"]),
        ({"tokens": [b"a"], "eos_ids": [-1]}, ["-1"]),
        ({"tokens": [b"a"], "eos_ids": ["0"]}, ["str", "integer"]),
        ({"tokens": [b"a"], "special": {"<s>": 5}}, ["<s>", "5"]),
        ({"tokens": [b"a", b"b"], "logit_width": 1}, ["logit_width=1", "2 tokens"]),
    ],
)
def test_wrong_arguments_are_named_with_their_limit(arguments: dict, words: list[str]) -> None:
    with pytest.raises(VocabularyError) as caught:
        Vocabulary(**arguments)
    assert [word for word in words if word not in str(caught.value)] == []


def test_decode_names_an_id_out_of_range_and_the_limit() -> None:
    with pytest.raises(VocabularyError, match=r"id 3 is out of range.*0 to 2"):
        Vocabulary([b"a"], logit_width=3).decode([0, 3])


def test_a_vocabulary_cannot_be_changed_and_equals_its_pickle() -> None:
    vocab = Vocabulary([b"a", None, b"e"], eos_ids=[2], special={1: "x", 2: "y"}, logit_width=5)
    with pytest.raises(AttributeError):
        vocab.size = 3  # type: ignore[misc]
    with pytest.raises(TypeError):
        vocab.special["z"] = 1  # type: ignore[index]
    with pytest.raises(ValueError, match="read-only"):
        vocab.trie.byte[0] = 1
    again = pickle.loads(pickle.dumps(vocab))
    assert again == vocab
    assert hash(again) == hash(vocab)
    assert (again.size, again.eos_ids, again.special_ids) == (5, (2,), vocab.special_ids)


def test_the_fingerprint_tells_vocabularies_apart() -> None:
    different = [
        Vocabulary([b"a", b"b"]),
        Vocabulary([b"ab", b""]),
        Vocabulary([b"ab", None]),
        Vocabulary([b"a", b"b"], logit_width=3),
        Vocabulary([b"a", b"b", b""]),
        Vocabulary([b"a", b"b", b""], eos_ids=[2]),
        Vocabulary([b"a", b"b", b""], special={2: "x"}),
        Vocabulary([b"a", b"b", b""], special={2: "y"}),
    ]
    assert len({vocab.fingerprint for vocab in different}) == len(different)
    assert Vocabulary([b"a", b"b"]).fingerprint == different[0].fingerprint


def test_single_and_written_bytes_come_from_usable_tokens_only() -> None:
    vocab = Vocabulary([b"a", b"bc", b"z", None, b""], eos_ids=[2])
    assert vocab.single_bytes == {97}
    assert vocab.written_bytes == {97, 98, 99}


def test_the_corpus_vocabularies_load_with_what_they_say() -> None:
    for line in CORPUS.read_text("utf-8").splitlines():
        case = json.loads(line)
        special = {int(i): name for i, name in case.get("special", {}).items()}
        vocab = Vocabulary(
            [bytes.fromhex(t) for t in case["tokens"]], case.get("eos_ids", ()), special
        )
        assert set(special) <= vocab.special_ids, case["id"]
        usable = [
            i
            for i, t in enumerate(case["tokens"])
            if t and i not in set(special) | set(vocab.eos_ids)
        ]
        assert sorted(vocab.trie.token_ids.tolist()) == usable, case["id"]


def test_the_room_imports_without_tokenizer_and_model_packages() -> None:
    names = ["torch", "transformers", "tokenizers", "tiktoken", "sentencepiece", "gguf"]
    code = f"import sys, structspec.vocab; print([n for n in {names} if n in sys.modules])"
    root = Path(__file__).parent.parent.parent
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=root
    )
    assert done.stdout.strip() == "[]"
