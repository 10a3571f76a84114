"""Decoders of every make: the logits of a whole text, however it is read, and the same texts.

A tiny random network of each architecture. Its own forward over a whole text is the reference: rows
of unequal lengths, refused drafts, trees and prompts that begin alike must give those logits, and
speculation must write what plain decoding and transformers' own `generate` write.
"""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

import structspec
from structspec.decoding import GrammarLogitsProcessor, Sampling, decode, decode_many, speculate
from structspec.decoding.progress import Job
from structspec.drafting import EarlyExit, ForkDraft
from structspec.errors import DraftError, ModelError, UnsupportedFeature
from structspec.forward.reading import Reading, reading_of
from structspec.forward.rows import Call, TargetRows
from structspec.models import Model

VOCAB, EOS, PAD = 265, 263, 264


# What most configurations call by the same names; `own` in the file adds to it.
COMMON: dict[str, Any] = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
    "head_dim": 8,
}
ZOO: dict[str, dict[str, Any]] = json.loads(
    (Path(__file__).parent / "architectures.json").read_text(encoding="utf-8")
)
# One of each kind of fault that there is to make: positions told or not, windows, states, no cache.
QUICK = (
    "bamba", "bloom", "deepseek_v3", "falcon-alibi", "gemma3", "gpt2", "gpt_neo", "gpt_oss",
    "llama4", "mamba", "mamba2", "phi3-longrope", "qwen3_next", "recurrent_gemma", "rwkv", "zamba2",
)  # fmt: skip
# transformers' kernels for one token and for several differ by more than rounding.
COARSE = ("nemotron_h", "zamba2")
# Whole texts take longer than logits; the rest of them is behind `make test-full`.
QUICK_TEXTS = ("gemma3", "gpt_neo", "mamba2", "phi3-longrope")


def every(quick: tuple[str, ...]) -> list[Any]:
    """All architectures, those that are not `quick` marked as full."""
    return [pytest.param(n, marks=() if n in quick else pytest.mark.full) for n in sorted(ZOO)]


def build(name: str, dtype: torch.dtype = torch.float64, **own: Any) -> Any:
    """A random network whose logits depend on all of its text."""
    entry = ZOO[name]
    settings = {**(COMMON if entry["common"] else {}), **entry["own"], **own}
    config = getattr(transformers, entry["config"])(vocab_size=VOCAB, **settings)
    config.eos_token_id, config.bos_token_id, config.pad_token_id = EOS, 262, PAD
    config._experts_implementation = "eager"  # the others know no float64
    torch.manual_seed(0)
    network = transformers.AutoModelForCausalLM.from_config(config)
    noise = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for key, weight in network.named_parameters():
            if weight.ndim >= 2 and "A_log" not in key:
                width = 0.7 if "embed" in key or "wte" in key else 1.2 / weight.shape[-1] ** 0.5
                weight.copy_(torch.randn(weight.shape, generator=noise) * width)
            elif weight.ndim == 1 and "norm" not in key:
                weight.add_(0.1 * torch.randn(weight.shape, generator=noise))
    return network.to(dtype).eval()


def whole(network: Any, ids: list[int]) -> torch.Tensor:
    """Logits [n, V] without any cache."""
    with torch.inference_mode():
        return network(input_ids=torch.tensor([ids]), use_cache=False).logits[0].double()


class Text:
    """A row beside the text that it should hold."""

    def __init__(self, rows: TargetRows, noise: random.Random, slack: float) -> None:
        self.rows, self.noise, self.slack = rows, noise, slack
        self.row = rows.open()
        self.ids: list[int] = []

    def more(self, count: int) -> list[int]:
        return [self.noise.randrange(256) for _ in range(count)]

    def check(self, found: torch.Tensor, ids: list[int], network: Any) -> None:
        expected = whole(network, ids)[-len(found) :]
        assert (found.double() - expected).abs().max() <= self.slack * expected.abs().max()


@pytest.mark.parametrize("name", every(QUICK))
def test_rows_give_the_logits_of_their_whole_texts(name: str) -> None:
    """Unequal lengths in one call, drafts kept in part, a tree, and beyond every window."""
    network = build(name)
    rows = TargetRows(Model(network, None, name=name, prefix_cache=1 << 20))
    noise = random.Random(2)
    slack = 5e-3 if name in COARSE else 1e-4
    texts = [Text(rows, noise, slack) for _ in range(3)]
    for sizes, refused in (((9, 2, 17), 0), ((1, 3, 1), 0), ((4, 5, 3), 2), ((5, 9, 1), 0)):
        given = [text.more(size) for text, size in zip(texts, sizes, strict=True)]
        wanted = [1 if not text.ids else len(new) for text, new in zip(texts, given, strict=True)]
        found = rows.forward(
            [Call(t.row, new, k) for t, new, k in zip(texts, given, wanted, strict=True)]
        )
        for text, new, logits in zip(texts, given, found, strict=True):
            text.check(logits, text.ids + new, network)
            rows.keep(text.row, refused, [])
            text.ids += new[: len(new) - refused]
    one, parents = texts[0], [-1, 0, -1, 2]
    head, nodes = one.more(2), one.more(4)
    (found,) = rows.forward([Call(one.row, head + nodes, 5, parents)])
    one.check(found[2:3], one.ids + head + nodes[:2], network)
    one.check(found[4:], one.ids + head + nodes[2:], network)
    kept = rows.keep(one.row, 4, [2, 3])
    again = [nodes[2], nodes[3]][kept:] + one.more(1)
    one.ids += [*head, nodes[2], nodes[3], again[-1]]
    one.check(rows.forward([Call(one.row, again)])[0], one.ids, network)
    for ending in (3, 1):  # prompts that begin like a text that was read
        for text in texts[1:]:
            rows.close(text.row)
            text.ids, text.row = [*text.ids[:-1], *text.more(ending)], rows.open()
            text.check(rows.forward([Call(text.row, text.ids)])[0], text.ids, network)


@pytest.mark.parametrize(
    "name, reading",
    [
        ("gpt2", Reading.PIECES),
        ("mamba2", Reading.PIECES),
        ("mamba", Reading.STEPS),
        ("rwkv", Reading.WHOLE),
        ("recurrent_gemma", Reading.WHOLE),
    ],
)
def test_how_a_network_is_read_is_found_out(name: str, reading: Reading) -> None:
    assert reading_of(Model(build(name), None, name=name)) is reading


def test_a_network_that_looks_ahead_is_refused() -> None:
    config = transformers.XLNetConfig(vocab_size=VOCAB, d_model=32, n_layer=2, n_head=4, d_inner=48)
    model = Model(transformers.XLNetLMHeadModel(config).eval(), None, name="xlnet")
    with pytest.raises(ModelError, match="no causal language model"):
        TargetRows(model).open()


SCHEMA = {
    "type": "object",
    "properties": {
        "a": {"type": "array", "items": {"enum": ["the", "and", 12]}, "maxItems": 3},
        "b": {"type": "boolean"},
    },
    "required": ["a", "b"],
    "additionalProperties": False,
}
PROMPTS = [b"x", b"the band and the other hand of the man in the sand"]
LIMIT = 28


def same_up_to_ties(
    network: Any, prompts: list[list[int]], found: list[Any], wanted: list[Any], slack: float
) -> None:
    for prompt, left, right in zip(prompts, found, wanted, strict=True):
        left, right = list(left), list(right)
        if left == right:
            continue
        at = next(i for i, (a, b) in enumerate(zip(left, right, strict=False)) if a != b)
        logits = whole(network, [*prompt, *left[:at]])[-1]
        assert abs(logits[left[at]] - logits[right[at]]) <= slack * logits.abs().max()


@pytest.mark.parametrize("name", every(QUICK_TEXTS))
def test_speculation_writes_what_plain_decoding_and_generate_write(
    name: str, byte_tokenizer: Any
) -> None:
    network = build(name)
    model = Model.wrap(network, byte_tokenizer, name=name, prefix_cache=1 << 20)
    grammar = structspec.compile(SCHEMA, whitespace="conventional", spelling="canonical")
    constraint = grammar.bind(model.vocab)
    if name == "llama-dynamic":  # its window is the length behind which frequencies change
        prompts = [list(model.vocab.encode(text))[:12] for text in PROMPTS]
    else:
        prompts = [list(model.vocab.encode(text)) for text in PROMPTS]
    greedy = Sampling(temperature=0.0)
    plain = [
        decode(model, ids, constraint, sampling=greedy, max_tokens=LIMIT).tokens for ids in prompts
    ]
    slack = 5e-3 if name in COARSE else 1e-4
    jobs = [Job(ids, constraint, greedy, LIMIT) for ids in prompts]
    for draft in ("auto", ForkDraft(), EarlyExit(layers=1)):
        outputs = decode_many(model, jobs, draft=draft)
        if all(isinstance(output, DraftError) for output in outputs):
            assert isinstance(draft, EarlyExit)  # says that the layers are elsewhere, or tied
            continue
        found = [output.tokens for output in outputs]  # type: ignore[union-attr]
        same_up_to_ties(network, prompts, found, plain, slack)
    sampled = [Job(ids, constraint, Sampling(), LIMIT, (), 5) for ids in prompts]
    together = decode_many(model, sampled, draft="auto")
    for job, output in zip(sampled, together, strict=True):
        (alone,) = decode_many(model, [job], draft="auto")
        assert output.tokens == alone.tokens  # type: ignore[union-attr]
    own = []
    for ids in prompts:
        row = network.generate(
            input_ids=torch.tensor([ids]),
            attention_mask=torch.ones(1, len(ids), dtype=torch.long),
            logits_processor=[GrammarLogitsProcessor(constraint, max_new_tokens=LIMIT)],
            max_new_tokens=LIMIT,
            do_sample=False,
            pad_token_id=PAD,
            eos_token_id=EOS,
        )[0, len(ids) :].tolist()
        own.append(row[: row.index(EOS)] if EOS in row else row)
    same_up_to_ties(network, prompts, own, plain, slack)


@pytest.mark.parametrize("name", ["gemma3", "mamba2", "mixtral"])
@pytest.mark.parametrize("kind", ["eager", "sdpa"])
def test_bfloat16_and_attention_implementations(name: str, kind: str) -> None:
    """Half precision is compared coarsely: reading stays what it is in float64."""
    exact = Model(build(name), None, name=name)
    half = Model(build(name, torch.bfloat16), None, name=name)
    if name != "mamba2":
        half.model.set_attn_implementation(kind)
    assert reading_of(half) is reading_of(exact)
    assert TargetRows(half).shares_cache == TargetRows(exact).shares_cache
    rows = TargetRows(half)
    row, ids = rows.open(), list(range(40, 60))
    rows.forward([Call(row, ids[:12])])
    (found,) = rows.forward([Call(row, ids[12:], 8)])
    expected = whole(half.model, ids)[12:]
    assert (found.double() - expected).norm() <= 0.05 * expected.norm()


# -- what is not a decoder, or reads more than ids -------------------------------------------------


def encoder_decoder() -> Any:
    config = transformers.T5Config(
        vocab_size=VOCAB, d_model=32, d_kv=8, d_ff=48, num_layers=2, num_heads=4,
        decoder_start_token_id=PAD, pad_token_id=PAD, eos_token_id=EOS,
    )  # fmt: skip
    return transformers.T5ForConditionalGeneration(config).eval()


def test_encoder_decoders_are_refused_and_the_remedy_works(
    byte_model: Model, byte_tokenizer: Any, tmp_path: Any
) -> None:
    network = encoder_decoder()
    with pytest.raises(ModelError, match="GrammarLogitsProcessor"):
        Model.wrap(network, byte_tokenizer)
    network.save_pretrained(tmp_path)
    byte_tokenizer.save_pretrained(tmp_path)
    with pytest.raises(ModelError, match=r"encoder-decoder.*GrammarLogitsProcessor"):
        structspec.load(tmp_path)
    constraint = structspec.compile({"enum": ["the", 12]}).bind(byte_model.vocab)
    ids = torch.tensor([[97, 98]])
    with pytest.raises(UnsupportedFeature, match="encoder_outputs"):
        network.generate(input_ids=ids, custom_generate=speculate, output_type=constraint)
    rows = network.generate(
        input_ids=ids,
        logits_processor=[GrammarLogitsProcessor(constraint)],
        max_new_tokens=40,
        do_sample=False,
    )
    text = constraint.vocab.decode([t for t in rows[0].tolist() if t not in (EOS, PAD)])
    assert structspec.compile({"enum": ["the", 12]}).accepts(text)


def test_what_a_model_reads_beside_ids_is_refused(byte_model: Model) -> None:
    network = byte_model.model
    constraint = structspec.compile({"enum": ["the", 12]}).bind(byte_model.vocab)
    ids = torch.tensor([[97, 98]])
    common = {"custom_generate": speculate, "output_type": constraint, "max_new_tokens": 20}
    for name, value in (
        ("inputs_embeds", network.get_input_embeddings()(ids) * 2),
        ("position_ids", torch.tensor([[3, 4]])),
    ):
        with pytest.raises(UnsupportedFeature, match=name):
            network.generate(input_ids=ids, **{name: value}, **common)
    network.generate(input_ids=ids, position_ids=torch.tensor([[0, 1]]), **common)
    network.generate(input_ids=ids, cache_implementation="static", **common)
