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


def tiny_llama(vocab_size: int, window: int = 64, seed: int = 0, dtype: Any = None) -> Any:
    """A random Llama whose logits are far from uniform."""
    torch.manual_seed(seed)
    config = transformers.LlamaConfig(
        vocab_size=vocab_size,
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=window,
        eos_token_id=vocab_size - 1,
        initializer_range=0.6,
    )
    return transformers.LlamaForCausalLM(config).to(dtype or torch.float64).eval()


@pytest.fixture(scope="session")
def make_llama() -> Callable[..., Any]:
    """`tiny_llama`, for tests that need one of another window or seed."""
    return tiny_llama


@pytest.fixture(scope="session")
def tiny_vocab() -> Vocabulary:
    """Six tokens, two spellings for most texts, one end token."""
    return Vocabulary(TINY_TOKENS, eos_ids=[TINY_EOS])


@pytest.fixture(scope="session")
def tiny_model(tiny_vocab: Vocabulary) -> Model:
    """A float64 Llama over `tiny_vocab`."""
    return Model(tiny_llama(len(TINY_TOKENS)), None, name="tiny", vocab=tiny_vocab)


@pytest.fixture(scope="session")
def small_model(tiny_vocab: Vocabulary) -> Model:
    """A draft for `tiny_model`: same vocabulary, other weights."""
    return Model(tiny_llama(len(TINY_TOKENS), seed=9), None, name="small", vocab=tiny_vocab)


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
def byte_tokenizer() -> Any:
    """A byte-level tokenizer of 256 bytes, some merges and three control tokens."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    # "Ġ" is a blank; each merge makes one more token
    merges = [("Ġ", "t"), ("h", "e"), ("Ġt", "he"), ("a", "n"), ("Ġ", '"'), ("an", "d")]
    words = [*alphabet, *(left + right for left, right in merges)]
    core = Tokenizer(models.BPE({word: i for i, word in enumerate(words)}, merges))
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=core, bos_token="<s>", eos_token="</s>", pad_token="<pad>"
    )
    tokenizer.chat_template = (
        "{% for m in messages %}{% if m.role == 'forbidden' %}"
        "{{ raise_exception('no such role') }}{% endif %}"
        "<s>{{ m.role }}: {{ m.content }}"
        "{% if not (loop.last and continue_final_message) %}</s>{% endif %}{% endfor %}"
        "{% if add_generation_prompt %}<s>assistant: <s>{% endif %}"
    )
    return tokenizer


@pytest.fixture(scope="session")
def byte_model(byte_tokenizer: Any) -> Model:
    """A float64 Llama over `byte_tokenizer`, window 64."""
    return Model.wrap(tiny_llama(len(byte_tokenizer), seed=1), byte_tokenizer, name="bytes")


@pytest.fixture(scope="session")
def bind() -> Callable[[str, Vocabulary], Any]:
    """A regular expression bound to a vocabulary."""

    def bind_pattern(pattern: str, vocab: Vocabulary) -> Any:
        return structspec.compile(pattern, syntax="regex").bind(vocab)

    return bind_pattern
