"""Requests that cannot be meant: each is refused before the first token, with what to write."""

from __future__ import annotations

from typing import Any

import pytest

import structspec
from structspec.decoding import GrammarLogitsProcessor
from structspec.errors import PromptError, ToolError
from structspec.models import Model


@pytest.mark.parametrize(
    ("wrong", "kind", "said"),
    [
        ({"max_tokens": "10"}, TypeError, "max_tokens='10' is not an int"),
        ({"max_tokens": 10.5}, TypeError, "max_tokens=10.5 is not an int"),
        ({"max_new_tokens": 10}, TypeError, "did you mean max_tokens?"),
        ({"key_ordr": "any"}, TypeError, "did you mean key_order?"),
        ({"stop": 5}, TypeError, "the stop string 5 is a int"),
        ({"stop": ["a", None]}, TypeError, "the stop string None is a NoneType"),
        ({"batch_size": "8"}, TypeError, "batch_size='8' is not an int"),
        ({"draft_count": "2"}, TypeError, "draft_count='2' is not an int"),
        ({"on_token": 5}, TypeError, "on_token is a int"),
        ({"template_arguments": "x"}, TypeError, "template_arguments is a str"),
        ({"continue_final_message": True}, PromptError, "needs chat messages"),
    ],
)
def test_wrong_arguments_are_told_by_name(
    byte_model: Model, wrong: dict[str, Any], kind: type[Exception], said: str
) -> None:
    with pytest.raises(kind) as caught:
        structspec.generate(byte_model, "x", bool, **wrong)
    assert said in str(caught.value)


def test_stop_strings_may_be_one_or_several_of_either_kind(byte_model: Model) -> None:
    for stop in ("zz", b"zz", ["zz", b"yy"], {"zz"}, (s for s in ("zz",))):
        assert structspec.generate(byte_model, "x", bool, stop=stop).text in ("true", "false")


@structspec.tool
def _add(x: int) -> int:
    """One more."""
    return x + 1


def test_wrong_requests_for_tools_are_told(byte_model: Model) -> None:
    with pytest.raises(
        ToolError, match="neither auto, required or none nor one of the tools: _add"
    ):
        structspec.call_tools(byte_model, "x", [_add], "reqired")
    with pytest.raises(PromptError, match="list of messages is empty"):
        structspec.call_tools(byte_model, [], [_add])
    with pytest.raises(TypeError, match=r"did you mean max_tokens\?"):
        structspec.call_tools(byte_model, "x", [_add], max_new_tokens=5)


def test_a_processor_takes_a_constraint_not_a_grammar() -> None:
    for wrong in (structspec.compile(bool), {"type": "integer"}, [structspec.compile(bool)]):
        with pytest.raises(TypeError, match=r"\.bind\(vocab\)"):
            GrammarLogitsProcessor(wrong)
