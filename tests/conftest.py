"""Fixtures that every room shares: one thread, one default model, the third-party data."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]

try:
    import torch
except ImportError:  # the core's tests run without it
    torch = None  # type: ignore[assignment]
else:
    # Two threads on a busy machine can be many times slower than one.
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def data_directory() -> Path:
    """Third-party test data; set STRUCTSPEC_DATA if it lies elsewhere."""
    default = ROOT.parent / "shared" / "data"
    path = Path(os.environ.get("STRUCTSPEC_DATA", default))
    if not path.is_dir():
        pytest.skip(f"third-party data is missing: no directory {path}; set STRUCTSPEC_DATA")
    return path


@pytest.fixture(scope="session")
def default_model() -> Any:
    """The default model in float32, loaded once."""
    if torch is None:
        pytest.skip("the default model needs torch: pip install 'structspec[models]'")
    from structspec import models
    from structspec.errors import MissingExtra, ModelError

    try:
        return models.load("default", device="cpu", dtype="float32")
    except (MissingExtra, ModelError) as error:
        pytest.skip(f"the default model cannot be loaded: {error}")


def _tiny_llama(vocab_size: int, window: int = 64, seed: int = 0, dtype: Any = None) -> Any:
    """A random Llama whose logits are far from uniform."""
    transformers = pytest.importorskip("transformers")
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
    """A tiny random Llama of so many ids: exact enough for enumeration."""
    return _tiny_llama


@pytest.fixture(scope="session")
def byte_tokenizer() -> Any:
    """A byte-level tokenizer of 256 bytes, some merges and three control tokens."""
    transformers = pytest.importorskip("transformers")
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
