"""The default model end to end: speculation changes the speed, not one token."""

from __future__ import annotations

import json
from typing import Any

import pytest

import structspec
from structspec.decoding.loop import decode
from structspec.forward.warp import Sampling
from structspec.prompt import encode_prompt

pytestmark = pytest.mark.model

CASES = {
    "person": (
        "Extract the person as JSON: Ada Lovelace, born in London in 1815, mathematician.",
        {
            "type": "object",
            "properties": {
                "name": {"type": "string", "maxLength": 30},
                "born": {"type": "integer", "minimum": 1000, "maximum": 2100},
                "city": {"type": "string", "maxLength": 30},
            },
            "required": ["name", "born", "city"],
            "additionalProperties": False,
        },
    ),
    "call": (
        "What is the weather in San Francisco, in fahrenheit, for 5 days? "
        "Call get_weather_forecast(city, unit, days). Answer with JSON.",
        {
            "type": "object",
            "properties": {
                "name": {"const": "get_weather_forecast"},
                "arguments": {
                    "type": "object",
                    "properties": {
                        "city": {"type": "string", "maxLength": 30},
                        "unit": {"enum": ["celsius", "fahrenheit"]},
                        "days": {"type": "integer", "minimum": 1, "maximum": 10},
                    },
                    "required": ["city", "unit", "days"],
                    "additionalProperties": False,
                },
            },
            "required": ["name", "arguments"],
            "additionalProperties": False,
        },
    ),
    "list": (
        "List the colours of the French flag as a JSON array.",
        {
            "type": "array",
            "items": {"enum": ["red", "white", "blue", "green", "black"]},
            "minItems": 2,
            "maxItems": 5,
        },
    ),
}


def constraint_of(model: Any, schema: Any) -> Any:
    grammar = structspec.compile(schema, spelling="canonical", whitespace="conventional")
    return grammar.bind(model.vocab)


@pytest.mark.parametrize("case", CASES)
def test_greedy_speculation_equals_plain_greedy(default_model: Any, case: str) -> None:
    text, schema = CASES[case]
    constraint = constraint_of(default_model, schema)
    ids = encode_prompt(default_model, [{"role": "user", "content": text}]).ids
    greedy = Sampling(temperature=0.0)
    plain = decode(default_model, ids, constraint, sampling=greedy, max_tokens=60)
    json.loads(plain.text)
    for draft in ("forced", "lookup", "auto"):
        fast = decode(default_model, ids, constraint, sampling=greedy, draft=draft, max_tokens=60)
        assert fast.tokens == plain.tokens, draft
        assert fast.stats.forwards <= plain.stats.forwards


def test_untrained_drafts_halve_the_forwards_of_a_tool_call(default_model: Any) -> None:
    text, schema = CASES["call"]
    constraint = constraint_of(default_model, schema)
    ids = encode_prompt(default_model, [{"role": "user", "content": text}]).ids
    greedy = Sampling(temperature=0.0)
    plain = decode(default_model, ids, constraint, sampling=greedy, max_tokens=60)
    fast = decode(default_model, ids, constraint, sampling=greedy, draft="auto", max_tokens=60)
    assert fast.stats.forwards * 2 <= plain.stats.forwards


def test_sampled_texts_are_valid_and_within_a_tight_budget(default_model: Any) -> None:
    text, schema = CASES["person"]
    constraint = constraint_of(default_model, schema)
    ids = encode_prompt(default_model, [{"role": "user", "content": text}]).ids
    budget = constraint.distance(constraint.start) + 2
    for seed in range(2):
        output = decode(default_model, ids, constraint, draft="auto", seed=seed, max_tokens=budget)
        assert len(output.tokens) <= budget
        assert set(json.loads(output.text)) == {"name", "born", "city"}


def test_the_default_model_knows_its_window_and_end(default_model: Any) -> None:
    assert default_model.window == 8192
    assert default_model.eos_ids == (2,)
    missing = set(range(256)) - set(default_model.vocab.single_bytes)
    assert len(missing) == 21
