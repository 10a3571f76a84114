"""Inside transformers' `generate`: the logits processor, and our loop as custom_generate."""

from __future__ import annotations

import copy
import json
import re
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from transformers import LogitsProcessorList

import structspec
from structspec.decoding import GrammarLogitsProcessor, Sampling, decode, speculate
from structspec.errors import (
    PromptError,
    TokenBudgetError,
    UnsupportedFeature,
    VocabularyError,
)
from structspec.models import Model
from structspec.vocab import Vocabulary

Bind = Callable[[str, Vocabulary], Any]
PATTERN = r'\{"name": "[a-z ]{1,8}", "and": (true|false)\}'
PROMPTS = [b"and the hand", b"x", b"the band"]


@pytest.fixture(scope="module")
def constraint(byte_model: Model, bind: Bind) -> Any:
    return bind(PATTERN, byte_model.vocab)


@pytest.fixture(scope="module")
def batch(byte_model: Model) -> dict[str, torch.Tensor]:
    """Three prompts, padded on the left."""
    rows = [byte_model.vocab.encode(prompt) for prompt in PROMPTS]
    width = max(map(len, rows))
    pad = byte_model.tokenizer.pad_token_id
    return {
        "input_ids": torch.tensor([[pad] * (width - len(r)) + r for r in rows]),
        "attention_mask": torch.tensor([[0] * (width - len(r)) + [1] * len(r) for r in rows]),
    }


def text_of(model: Model, row: torch.Tensor, prompt: int) -> str:
    tokens = row[prompt:].tolist()
    ends = {*model.vocab.eos_ids, model.tokenizer.pad_token_id}
    while tokens and tokens[-1] in ends:
        tokens.pop()
    return model.vocab.decode(tokens).decode()


def plain(model: Model, constraint: Any, ids: Any, max_tokens: int = 44) -> list[int]:
    greedy = Sampling(temperature=0.0)
    return list(decode(model, ids, constraint, sampling=greedy, max_tokens=max_tokens).tokens)


def generated(model: Model, **options: Any) -> Any:
    settings: dict[str, Any] = {
        "max_new_tokens": 44,
        "do_sample": False,
        "pad_token_id": model.tokenizer.pad_token_id,
        "eos_token_id": model.vocab.eos_ids[0],
    }
    return model.model.generate(**{**settings, **options})


def test_greedy_generate_writes_what_plain_masked_decoding_writes(
    byte_model: Model, constraint: Any, batch: dict[str, torch.Tensor]
) -> None:
    rows = generated(
        byte_model,
        **batch,
        logits_processor=[GrammarLogitsProcessor(constraint, max_new_tokens=44)],
    )
    width = batch["input_ids"].shape[1]
    for row, prompt in zip(rows, PROMPTS, strict=True):
        expected = plain(byte_model, constraint, byte_model.vocab.encode(prompt))
        assert text_of(byte_model, row, width) == byte_model.vocab.decode(expected).decode()


@pytest.mark.parametrize("do_sample", [False, True])
def test_assisted_generation_masks_target_and_assistant(
    byte_model: Model, constraint: Any, do_sample: bool
) -> None:
    assistant = copy.deepcopy(byte_model.model)
    with torch.no_grad():
        noise = torch.Generator().manual_seed(0)
        for weight in assistant.parameters():
            weight += 0.05 * torch.randn(weight.shape, generator=noise, dtype=weight.dtype)
    ids = torch.tensor([byte_model.vocab.encode(b"and the hand")])
    processor = GrammarLogitsProcessor(constraint, max_new_tokens=44)
    torch.manual_seed(1)
    for _ in range(3):
        rows = generated(
            byte_model,
            input_ids=ids,
            assistant_model=assistant,
            logits_processor=[processor],
            do_sample=do_sample,
        )
        text = text_of(byte_model, rows[0], ids.shape[1])
        assert re.fullmatch(PATTERN, text)
        if not do_sample:
            expected = plain(byte_model, constraint, ids[0].tolist())
            assert text == byte_model.vocab.decode(expected).decode()


def test_look_up_drafts_that_leave_the_language_do_no_harm(
    byte_model: Model, constraint: Any
) -> None:
    ids = torch.tensor([byte_model.vocab.encode(b'the "name": "the hand", x')])
    rows = generated(
        byte_model,
        input_ids=ids,
        prompt_lookup_num_tokens=5,
        logits_processor=[GrammarLogitsProcessor(constraint, max_new_tokens=36)],
        max_new_tokens=36,
    )
    text = text_of(byte_model, rows[0], ids.shape[1])
    expected = plain(byte_model, constraint, ids[0].tolist(), max_tokens=36)
    assert text == byte_model.vocab.decode(expected).decode()


@pytest.mark.parametrize("options", [{"num_beams": 3}, {"num_beams": 4, "num_return_sequences": 2}])
def test_beams_stay_in_the_language(
    byte_model: Model, constraint: Any, batch: dict[str, torch.Tensor], options: dict[str, int]
) -> None:
    processor = GrammarLogitsProcessor(constraint, max_new_tokens=44)
    rows = generated(byte_model, **batch, logits_processor=[processor], **options)
    assert len(rows) == 3 * options.get("num_return_sequences", 1)
    for row in rows:
        assert re.fullmatch(PATTERN, text_of(byte_model, row, batch["input_ids"].shape[1]))


def test_each_prompt_may_have_its_own_grammar(
    byte_model: Model, constraint: Any, bind: Bind, batch: dict[str, torch.Tensor]
) -> None:
    patterns = [PATTERN, "[a-c]{2,9}", r"\[[0-9], [0-9]\]"]
    processor = GrammarLogitsProcessor([bind(p, byte_model.vocab) for p in patterns])
    torch.manual_seed(0)
    rows = generated(
        byte_model, **batch, logits_processor=[processor], do_sample=True, num_return_sequences=2
    )
    for i, row in enumerate(rows):
        text = text_of(byte_model, row, batch["input_ids"].shape[1])
        assert re.fullmatch(patterns[i // 2], text)


def test_scores_are_a_pure_function_of_the_ids(byte_model: Model, constraint: Any) -> None:
    """Every prefix in any order, rolled back, repeated, in any company: the mask of its state."""
    vocab = byte_model.vocab
    prompt, text = vocab.encode(b"the"), vocab.encode(b'{"name": "a", "and": true}')
    processor = GrammarLogitsProcessor(constraint)
    scores = torch.randn(1, byte_model.logit_width, dtype=torch.float64)
    processor(torch.tensor([prompt]), scores)

    def expected(count: int) -> np.ndarray:
        state = constraint.start
        for token in text[:count]:
            state = constraint.advance(state, token)
        return np.flatnonzero(
            np.unpackbits(constraint.mask(state).view(np.uint8), bitorder="little")
        )

    order = np.random.default_rng(0).permutation(2 * (len(text) + 1)) % (len(text) + 1)
    for count in order.tolist():
        row = processor(torch.tensor([[*prompt, *text[:count]]]), scores)[0]
        allowed = torch.isfinite(row).nonzero()[:, 0].numpy()
        assert allowed.tolist() == expected(count).tolist()
        assert torch.equal(row[allowed], scores[0][allowed])
    for dead in ([999_999 % vocab.size], [*text[:4], text[0]], [*text, vocab.eos_ids[0], text[0]]):
        row = processor(torch.tensor([[*prompt, *dead]]), scores)[0]
        assert torch.isfinite(row).nonzero()[:, 0].tolist() == sorted(vocab.eos_ids)
    ids = torch.tensor([[*prompt, *text[:3]], [*prompt, *text[1:4]], [*prompt, *text[:3]]])
    rows = processor(ids, scores.expand(3, -1))
    assert torch.equal(rows[0], rows[2]) and not torch.equal(rows[0], rows[1])


def test_a_processor_serves_several_calls(byte_model: Model, constraint: Any) -> None:
    processor = GrammarLogitsProcessor(constraint)
    for prompt in (b"and the hand", b"x", b"and the hand"):
        ids = torch.tensor([byte_model.vocab.encode(prompt)])
        rows = generated(byte_model, input_ids=ids, logits_processor=[processor])
        assert re.fullmatch(PATTERN, text_of(byte_model, rows[0], ids.shape[1]))


def test_a_given_prompt_length_is_believed(byte_model: Model, constraint: Any) -> None:
    vocab = byte_model.vocab
    scores = torch.zeros(1, byte_model.logit_width)
    processor = GrammarLogitsProcessor(constraint, prompt_length=2)
    start = vocab.encode(b'{"name')
    row = processor(torch.tensor([[97, 98, *start]]), scores)[0]
    fresh = GrammarLogitsProcessor(constraint, prompt_length=0)(torch.tensor([start]), scores)[0]
    assert torch.equal(row, fresh)
    with pytest.raises(PromptError, match="prompt_length=2"):
        processor(torch.tensor([[97]]), scores)


def test_what_cannot_work_is_refused(byte_model: Model, constraint: Any, bind: Bind) -> None:
    with pytest.raises(TokenBudgetError):
        GrammarLogitsProcessor(constraint, max_new_tokens=3)
    with pytest.raises(PromptError, match="empty"):
        GrammarLogitsProcessor([])
    with pytest.raises(PromptError, match="3 rows"):
        GrammarLogitsProcessor([constraint] * 2)(torch.zeros(3, 1).long(), torch.zeros(3, 300))
    with pytest.raises(VocabularyError, match="12 columns"):
        GrammarLogitsProcessor(constraint)(torch.zeros(1, 1).long(), torch.zeros(1, 12))


def test_a_row_that_another_processor_emptied_stays_samplable(
    byte_model: Model, constraint: Any
) -> None:
    scores = torch.full((1, byte_model.logit_width), -torch.inf)
    row = GrammarLogitsProcessor(constraint)(torch.tensor([[97]]), scores)[0]
    assert torch.isfinite(row).any()


# -- custom_generate -----------------------------------------------------------------------------

TYPE = {"type": "array", "items": {"enum": ["the", "and", 12]}, "minItems": 1, "maxItems": 3}


@pytest.mark.parametrize("draft", [None, "auto"])
def test_custom_generate_equals_generate(
    byte_model: Model, batch: dict[str, torch.Tensor], draft: Any
) -> None:
    prompts = [byte_model.vocab.encode(prompt) for prompt in PROMPTS]
    common = {"custom_generate": speculate, "output_type": TYPE, "draft": draft}
    width = batch["input_ids"].shape[1]
    for sampled in (False, True):
        rows = generated(byte_model, **batch, **common, do_sample=sampled, seed=6)
        ours = structspec.generate(
            byte_model,
            prompts,
            TYPE,
            draft=draft,
            temperature=1.0 if sampled else 0.0,
            max_tokens=44,
            seed=6,
        )
        assert torch.equal(rows[:, :width], batch["input_ids"])
        for row, result in zip(rows, ours, strict=True):
            assert text_of(byte_model, row, width) == result.text


def test_custom_generate_keeps_the_settings_of_the_config(byte_model: Model) -> None:
    ids = torch.tensor([byte_model.vocab.encode(b"and")])
    common = {"custom_generate": speculate, "output_type": TYPE, "do_sample": True, "seed": 2}
    settings = {"temperature": 1.7, "top_k": 9, "top_p": 0.9, "min_p": 0.01}
    rows = generated(
        byte_model,
        input_ids=ids,
        repetition_penalty=1.3,
        num_return_sequences=3,
        **settings,
        **common,
    )
    ours = structspec.generate(
        byte_model,
        ids[0],
        TYPE,
        sampling=Sampling(**settings, repetition_penalty=1.3),
        max_tokens=44,
        seed=2,
        n=3,
    )
    texts = [text_of(byte_model, row, ids.shape[1]) for row in rows]
    assert texts == [result.text for result in ours]
    del common["seed"]
    torch.manual_seed(5)
    one = generated(byte_model, input_ids=ids, **common)
    torch.manual_seed(5)
    assert torch.equal(one, generated(byte_model, input_ids=ids, **common))


def test_custom_generate_returns_what_generate_returns(byte_model: Model, constraint: Any) -> None:
    ids = torch.tensor([byte_model.vocab.encode(b"and")])
    found = generated(
        byte_model,
        input_ids=ids,
        custom_generate=speculate,
        output_type=constraint,
        return_dict_in_generate=True,
    )
    assert found.sequences[0, -1] in byte_model.vocab.eos_ids
    assert re.fullmatch(PATTERN, text_of(byte_model, found.sequences[0], ids.shape[1]))


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"no_repeat_ngram_size": 2}, "NoRepeatNGram"),
        ({"num_beams": 2}, "num_beams"),
        ({"max_time": 5.0}, "MaxTime"),
        ({"bad_words_ids": [[3]]}, "NoBadWords"),
    ],
)
def test_settings_that_cannot_be_honoured_are_refused_by_name(
    byte_model: Model, constraint: Any, options: dict[str, Any], name: str
) -> None:
    ids = torch.tensor([[97, 98]])
    with pytest.raises(UnsupportedFeature, match=name):
        generated(
            byte_model, input_ids=ids, custom_generate=speculate, output_type=constraint, **options
        )
    other = [GrammarLogitsProcessor(constraint)]
    with pytest.raises(UnsupportedFeature, match="GrammarLogitsProcessor"):
        generated(
            byte_model,
            input_ids=ids,
            custom_generate=speculate,
            output_type=constraint,
            logits_processor=LogitsProcessorList(other),
        )


def test_the_package_imports_no_torch() -> None:
    code = (
        "import sys, structspec, structspec.decoding, structspec.drafting; "
        "print(sorted({'torch', 'transformers'} & set(sys.modules)))"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


# -- the default model -----------------------------------------------------------------------------

PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 20}, "age": {"type": "integer"}},
    "required": ["name", "age"],
    "additionalProperties": False,
}


@pytest.mark.model
def test_the_default_model_inside_generate(default_model: Any) -> None:
    grammar = structspec.compile(PERSON, spelling="canonical", whitespace="conventional")
    constraint = grammar.bind(default_model.vocab)
    messages = [{"role": "user", "content": "Ada Lovelace is 36. Answer with JSON."}]
    inputs = default_model.tokenizer.apply_chat_template(
        messages, add_generation_prompt=True, return_tensors="pt", return_dict=True
    )
    prompt = inputs["input_ids"].shape[1]
    network = default_model.model
    options = {"max_new_tokens": 40, "do_sample": False}

    def text(rows: torch.Tensor) -> str:
        return default_model.tokenizer.decode(rows[0, prompt:], skip_special_tokens=True)

    processor = GrammarLogitsProcessor(constraint, max_new_tokens=40)
    plain_text = text(network.generate(**inputs, logits_processor=[processor], **options))
    assert set(json.loads(plain_text)) == {"name", "age"}
    assisted = network.generate(
        **inputs, logits_processor=[processor], assistant_model=network, **options
    )
    assert text(assisted) == plain_text
    ours = network.generate(
        **inputs, custom_generate=speculate, output_type=PERSON, draft="auto", **options
    )
    assert text(ours) == plain_text
