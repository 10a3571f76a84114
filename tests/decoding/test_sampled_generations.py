"""Sampled texts are complete and valid within every budget.

Twenty schemas, temperature 1, `max_tokens` from 24 to 96; 200 generations in `make test-full`, a
sample of them in `make test`. Validity is judged by `jsonschema`.
"""

import itertools
import json

import jsonschema
import pytest

import structspec

STRING = {"type": "string"}
SCHEMAS = [
    {"type": "string"},
    {"type": "string", "minLength": 3, "maxLength": 12},
    {"type": "integer", "minimum": -20, "maximum": 400},
    {"type": "number", "minimum": 0, "exclusiveMaximum": 1},
    {"type": "array", "items": STRING},
    {"type": "array", "items": {"type": "integer"}, "minItems": 2, "maxItems": 5},
    {"type": "array", "prefixItems": [STRING, {"type": "boolean"}], "items": False, "minItems": 2},
    {"enum": ["north", "south", 3, None, {"x": [1]}]},
    {"type": ["string", "null"]},
    {"anyOf": [{"type": "integer"}, {"type": "array", "items": {"type": "null"}}]},
    {"type": "object"},
    {"type": "object", "additionalProperties": {"type": "integer"}},
    {"type": "object", "properties": {"a": STRING, "b": STRING}, "required": ["b"]},
    {
        "type": "object",
        "properties": {"id": {"type": "integer"}, "tags": {"type": "array", "items": STRING}},
        "required": ["id", "tags"],
        "additionalProperties": False,
    },
    {
        "$ref": "#/$defs/node",
        "$defs": {
            "node": {
                "type": "object",
                "properties": {
                    "v": {"type": "integer"},
                    "l": {"$ref": "#/$defs/node"},
                    "r": {"$ref": "#/$defs/node"},
                },
                "required": ["v"],
                "additionalProperties": False,
            }
        },
    },
    {"type": "array", "items": {"$ref": "#"}},
    {"type": "object", "additionalProperties": {"$ref": "#"}},
    {
        "anyOf": [
            {
                "type": "object",
                "properties": {"kind": {"const": "circle"}, "r": {"type": "number"}},
                "required": ["kind", "r"],
            },
            {
                "type": "object",
                "properties": {"kind": {"const": "square"}, "side": {"type": "number"}},
                "required": ["kind", "side"],
            },
        ]
    },
    {},
    {
        "type": "array",
        "items": {
            "type": "object",
            "properties": {"name": {"enum": ["open", "close"]}, "arguments": {"type": "object"}},
            "required": ["name", "arguments"],
            "additionalProperties": False,
        },
        "minItems": 1,
    },
]
BUDGETS = (24, 32, 48, 64, 96)
PROMPTS = ("Write some JSON.", "Invent an example as JSON, as long and detailed as you can.")

# every schema with every budget and both prompts: 200 cases
CASES = list(itertools.product(range(len(SCHEMAS)), BUDGETS, range(len(PROMPTS))))


def generate_and_check(model, schema, budget, prompt, seed):
    result = structspec.generate(
        model, prompt, schema, max_tokens=budget, temperature=1.0, seed=seed
    )
    assert len(result.tokens) <= budget, result
    value = json.loads(result.text)  # complete
    validator = jsonschema.Draft202012Validator(schema)
    assert not list(validator.iter_errors(value)), result
    return result


def test_there_are_two_hundred_cases():
    assert len(SCHEMAS) == 20 and len(CASES) == 200


@pytest.mark.model
@pytest.mark.parametrize("index", range(0, 20, 2))
def test_a_sampled_text_is_complete_and_valid(default_model, index):
    budget, prompt = BUDGETS[index % 2], PROMPTS[index // 2 % 2]
    generate_and_check(default_model, SCHEMAS[index], budget, prompt, seed=index)


@pytest.mark.model
@pytest.mark.full
def test_two_hundred_sampled_texts_are_complete_and_valid(default_model, capsys):
    reasons: dict[str, int] = {}
    for seed, (schema, budget, prompt) in enumerate(CASES):
        result = generate_and_check(default_model, SCHEMAS[schema], budget, PROMPTS[prompt], seed)
        reasons[result.finish_reason] = reasons.get(result.finish_reason, 0) + 1
    with capsys.disabled():
        print(f"\n{len(CASES)} of {len(CASES)} complete and valid: {reasons}")
