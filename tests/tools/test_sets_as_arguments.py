"""Arguments that are sets: no item twice, in every format, beside tools that may repeat."""

from __future__ import annotations

import json
from typing import Any

import pytest

import structspec
from structspec.errors import UnsupportedFeature
from structspec.masks.distinct import DistinctConstraint
from structspec.tools import FORMATS, Tool, ToolSet
from structspec.tools.grammar import reply_grammar
from structspec.tools.render import render_calls

ROW = {
    "type": "object",
    "properties": {"of": {"type": "string"}, "done": {"type": ["boolean", "null"]}},
    "required": ["of"],
    "additionalProperties": False,
}


@structspec.tool
def label(things: set[str], rows: list[str]) -> None:
    """Label things."""


TABLE = {
    "name": "table",
    "parameters": {
        "type": "object",
        "properties": {"rows": {"type": "array", "items": ROW, "uniqueItems": True}},
        "required": ["rows"],
    },
}
LIST = {
    "name": "list",
    "parameters": {
        "type": "object",
        "properties": {"rows": {"type": "array", "items": ROW}},
        "required": ["rows"],
    },
}
TOOLS = ToolSet([label, TABLE, LIST])
SAME = [{"of": "a", "done": True}, {"of": "a", "done": True}]
OTHER = [{"of": "a", "done": True}, {"of": "a", "done": None}, {"of": "a"}, {"of": "b"}]


@pytest.mark.parametrize("choice", ["auto", "required"])
@pytest.mark.parametrize("name", FORMATS)
def test_a_set_holds_nothing_twice(name: str, choice: str) -> None:
    form = FORMATS[name]
    grammar = reply_grammar(form, TOOLS, choice=choice)

    def accepts(*calls: tuple[str, dict[str, Any]]) -> bool:
        return grammar.accepts(render_calls(form, [(*call, "") for call in calls]))

    assert accepts(("label", {"things": ["a", "b"], "rows": ["a", "a"]}))
    assert not accepts(("label", {"things": ["a", "b", "a"], "rows": []}))
    assert accepts(("table", {"rows": OTHER}))
    assert not accepts(("table", {"rows": SAME}))
    assert accepts(("list", {"rows": SAME}))
    if form.parallel:
        assert accepts(("list", {"rows": SAME}), ("table", {"rows": OTHER}))
        assert not accepts(("list", {"rows": SAME}), ("table", {"rows": SAME}))
        assert not accepts(("table", {"rows": SAME}), ("list", {"rows": SAME}))


def test_text_around_calls_may_look_like_a_repetition() -> None:
    form = FORMATS["hermes"]
    grammar = reply_grammar(form, TOOLS)
    call = render_calls(form, [("table", {"rows": OTHER}, "")])
    assert grammar.accepts('["a", "a"] and [{"of": "a"}, {"of": "a"}]')
    assert grammar.accepts(f'["a", "a"] {call}')


def test_masks_of_a_reply_leave_repetitions_out() -> None:
    grammar = reply_grammar(FORMATS["hermes"], TOOLS, choice="required")
    tokens = [bytes((byte,)) for byte in range(256)]
    constraint = grammar.bind(structspec.Vocabulary([*tokens, None], eos_ids=[256]))
    assert isinstance(constraint, DistinctConstraint)
    text = render_calls(FORMATS["hermes"], [("table", {"rows": SAME}, "")])
    before = text[: text.rindex("true")].encode()
    state = constraint.advance_bytes(constraint.start, before)
    assert state is not None
    written = {constraint.vocab.tokens[token] for token in constraint.allowed(state).tolist()}
    assert written == {b"n", b"f"}  # null or false: true has been


@pytest.mark.model
def test_a_call_with_a_set_is_written_and_read(default_model: Any) -> None:
    messages = [{"role": "user", "content": "Label the box as red, red and heavy."}]
    for seed in range(3):
        calls = structspec.call_tools(
            default_model, messages, [label], "label", max_tokens=50, seed=seed
        )
        things = calls[0].arguments["things"]
        assert len(things) == len(set(things))


def test_what_cannot_be_held_names_the_tool_and_the_place() -> None:
    schema = {"type": "array", "items": {"type": "string"}, "uniqueItems": True, "minItems": 2}
    parameters = {"type": "object", "properties": {"of": schema}}
    tool = {"name": "pairs", "parameters": parameters}
    with pytest.raises(UnsupportedFeature, match="the tool 'pairs'") as caught:
        reply_grammar(FORMATS["llama3"], ToolSet([TABLE, tool]))
    assert (caught.value.keyword, caught.value.pointer) == ("uniqueItems", "/properties/of")
    loose = ToolSet([Tool.from_openai({"type": "function", "function": {**tool, "strict": False}})])
    grammar = reply_grammar(FORMATS["llama3"], loose)
    call = {"name": "pairs", "parameters": {"of": ["a", "a"]}}
    assert grammar.accepts(json.dumps(call))
