"""Streams: every token once and in order, partial values that never change, early ends."""

from __future__ import annotations

import json
from typing import Any

import pytest

import structspec
from structspec.decoding.partial import partial_value
from structspec.errors import ModelError, PromptError, TokenBudgetError
from structspec.models import Model

SCHEMA = {
    "type": "object",
    "properties": {
        "a": {"type": "string", "pattern": "^[a-zé€]*$", "maxLength": 8},
        "b": {"type": "array", "items": {"type": "integer", "minimum": 0}, "maxItems": 3},
        "c": {"type": "boolean"},
    },
    "required": ["a", "b", "c"],
    "additionalProperties": False,
}
OPTIONS: dict[str, Any] = {"chat": False, "max_tokens": 50, "temperature": 1.5}


@pytest.mark.parametrize("draft", [None, "auto"])
def test_events_join_to_what_generate_returns(byte_model: Model, draft: Any) -> None:
    for seed in range(4):
        whole = structspec.generate(byte_model, "and", SCHEMA, draft=draft, seed=seed, **OPTIONS)
        stream = structspec.stream(byte_model, "and", SCHEMA, draft=draft, seed=seed, **OPTIONS)
        events = list(stream)
        assert "".join(event.text for event in events) == whole.text == stream.text
        assert tuple(t for event in events for t in event.tokens) == whole.tokens
        assert events[-1].result == whole
        assert all(event.result is None and event.tokens for event in events[:-1])
        assert len(events) <= whole.stats.forwards + 1


def test_partial_values_only_grow(byte_model: Model) -> None:
    def grows(before: Any, after: Any) -> bool:
        if isinstance(before, dict):
            return all(key in after and grows(before[key], after[key]) for key in before)
        if isinstance(before, list):
            return len(before) <= len(after) and all(map(grows, before, after))
        return bool(before == after)

    seen = 0
    for seed in range(4):
        value: Any = {}
        for event in structspec.stream(
            byte_model, "and", SCHEMA, partial=True, seed=seed, **OPTIONS
        ):
            if event.value is not None:
                assert grows(value, event.value), (value, event.value)
                seen += event.value != value
                value = event.value
        assert event.result.value == value == json.loads(event.result.text)
    assert seen > 8


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", None),
        ('"ab', None),
        ("12", None),
        ("[12", []),
        ("[12,", [12]),
        ('{"a": "x", "b', {"a": "x"}),
        ('{"a": [{"b": -1.5e', {"a": [{}]}),
        ('{"a": [{"b": -1.5e3}, tr', {"a": [{"b": -1500.0}]}),
        ('{"a": "\\ud83d', {}),
        ("[null]", [None]),
    ],
)
def test_a_partial_value_holds_what_is_certain(text: str, value: Any) -> None:
    assert partial_value(text) == value


def test_characters_are_never_torn(byte_model: Model) -> None:
    grammar = structspec.compile("[é€😀]{3,6}", syntax="regex")
    events = list(structspec.stream(byte_model, "x", grammar, draft=None, seed=1, **OPTIONS))
    assert all("\ufffd" not in event.text for event in events)
    # a character of two bytes takes two rounds here: the first tells no text
    assert any(event.tokens and not event.text for event in events)
    assert "".join(event.text for event in events) == events[-1].result.text


def test_leaving_a_stream_keeps_what_it_told_and_stops_the_model(byte_model: Model) -> None:
    calls = 0

    def count(*_: Any) -> None:
        nonlocal calls
        calls += 1

    handle = byte_model.model.register_forward_hook(count)
    try:
        with structspec.stream(byte_model, "and", SCHEMA, draft=None, seed=3, **OPTIONS) as stream:
            told = [next(stream) for _ in range(4)]
            before = calls
        assert list(stream) == []
        assert calls == before
    finally:
        handle.remove()
    partial = stream.output
    assert partial.finish_reason == "error"
    assert partial.tokens == tuple(t for event in told for t in event.tokens)
    assert partial.text.decode() == stream.text == "".join(event.text for event in told)


def test_a_failure_comes_after_everything_that_was_written(byte_model: Model) -> None:
    calls = 0

    def poison(module: Any, args: Any, output: Any) -> Any:
        nonlocal calls
        calls += 1
        return output * float("nan") if calls > 6 else output

    stream = structspec.stream(byte_model, "and", SCHEMA, draft=None, seed=3, **OPTIONS)
    handle = byte_model.model.lm_head.register_forward_hook(poison)
    told: list[int] = []
    try:
        with pytest.raises(ModelError, match="nan") as caught:
            for event in stream:
                told += event.tokens
    finally:
        handle.remove()
    assert caught.value.partial_output.tokens == tuple(told)  # type: ignore[attr-defined]
    assert stream.output.tokens == tuple(told) and len(told) >= 6


def test_what_is_known_before_is_raised_before(byte_model: Model) -> None:
    with pytest.raises(TokenBudgetError):
        structspec.stream(byte_model, "and", SCHEMA, chat=False, max_tokens=3)
    with pytest.raises(PromptError):
        structspec.stream(byte_model, "  ", SCHEMA)
