"""Tiny random models for decoding: exact enough for enumeration, small enough for thousands."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

import structspec  # noqa: E402
from structspec.models import Model  # noqa: E402
from structspec.vocab import Vocabulary  # noqa: E402

TINY_TOKENS = [b"a", b"b", b"ab", b"ba", b"c", None]
TINY_EOS = 5


@pytest.fixture(scope="session")
def tiny_vocab() -> Vocabulary:
    """Six tokens, two spellings for most texts, one end token."""
    return Vocabulary(TINY_TOKENS, eos_ids=[TINY_EOS])


@pytest.fixture(scope="session")
def tiny_model(tiny_vocab: Vocabulary, make_llama: Callable[..., Any]) -> Model:
    """A float64 Llama over `tiny_vocab`."""
    return Model(make_llama(len(TINY_TOKENS)), None, name="tiny", vocab=tiny_vocab)


@pytest.fixture(scope="session")
def small_model(tiny_vocab: Vocabulary, make_llama: Callable[..., Any]) -> Model:
    """A draft for `tiny_model`: same vocabulary, other weights."""
    return Model(make_llama(len(TINY_TOKENS), seed=9), None, name="small", vocab=tiny_vocab)


@pytest.fixture(scope="session")
def sliding_model() -> Model:
    """A float64 Mistral that sees four places back."""
    torch.manual_seed(3)
    config = transformers.MistralConfig(
        vocab_size=6,
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        sliding_window=4,
        max_position_embeddings=64,
        initializer_range=0.6,
    )
    model = transformers.MistralForCausalLM(config).to(torch.float64).eval()
    return Model(model, None, name="sliding")


@pytest.fixture(scope="session")
def byte_model(byte_tokenizer: Any, make_llama: Callable[..., Any]) -> Model:
    """A float64 Llama over `byte_tokenizer`, window 64."""
    return Model.wrap(make_llama(len(byte_tokenizer), seed=1), byte_tokenizer, name="bytes")


@pytest.fixture(scope="session")
def bind() -> Callable[[str, Vocabulary], Any]:
    """A regular expression bound to a vocabulary."""

    def bind_pattern(pattern: str, vocab: Vocabulary) -> Any:
        return structspec.compile(pattern, syntax="regex").bind(vocab)

    return bind_pattern
