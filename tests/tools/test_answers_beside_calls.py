"""Replies whose text is held to a type: told from calls in every format, whole and in prefixes."""

from __future__ import annotations

import json
import random

import jsonschema
import pytest
from pydantic import BaseModel, field_validator

import structspec
from structspec.errors import SchemaError, ToolError, ValueRejected
from structspec.tools import FORMATS, ToolSet, read_prefix, read_reply
from structspec.tools.grammar import Marking, reply_grammar
from structspec.tools.layout import EndMark, Mark

ANSWER = {
    "type": "object",
    "properties": {
        # strings may hold whatever marks a call
        "say": {"enum": ["yes", "<tool_call>", "<think>", "[f(x)]", '{"name": "get_time"}', "é"]},
        "n": {"type": "integer", "minimum": 0, "maximum": 9},
    },
    "required": ["say"],
    "additionalProperties": False,
}


def special_marking(form) -> Marking:
    """All of a format's markers as special tokens."""
    blocks = [form.before, form.call, form.between, form.after, *(form.answer or ())]
    blocks += [form.reasoning.begin, form.reasoning.end] if form.reasoning else []
    marks = {p.text for b in blocks for p in b if isinstance(p, Mark)}
    ends = {p.text for b in blocks for p in b if isinstance(p, EndMark)}
    return Marking(frozenset(marks | ends))


def answer_grammar(**options):
    return structspec.compile(ANSWER, spelling="canonical", whitespace="conventional", **options)


@pytest.mark.parametrize("special", [False, True], ids=["text", "tokens"])
@pytest.mark.parametrize("name", FORMATS)
def test_a_reply_is_a_call_or_the_answer(name, special, tools, draw):
    form = FORMATS[name]
    marking = special_marking(form) if special else Marking()
    settings = {"marking": marking, "answer": answer_grammar()}
    if form.leads == "{" or (form.answer is not None and not special):
        with pytest.raises(ToolError, match=r"cannot be told|could hold it"):
            reply_grammar(form, tools, **settings)
        return
    thinking = "none" if form.reasoning is None else "optional"
    grammar = reply_grammar(form, tools, thinking=thinking, **settings)
    rng, seen = random.Random(7), set()
    for _ in range(40):
        parts = draw(grammar, rng)
        reply = read_reply(form, parts, tools, marking=marking, answers=True)
        seen.add(bool(reply.calls))
        if not reply.calls:
            jsonschema.validate(json.loads(reply.text), ANSWER)
        else:
            assert not reply.text
        # a prefix never says what the whole does not
        cut = rng.randrange(len(parts)) if parts else 0
        head = list(parts[:cut])
        if parts and isinstance(parts[cut], bytes):
            head.append(parts[cut][: rng.randrange(len(parts[cut]) + 1)])
        sofar = read_prefix(form, head, tools, marking=marking, answers=True)
        assert reply.text.startswith(sofar.text)
        assert [c.name for c in sofar.calls] == [c.name for c in reply.calls][: len(sofar.calls)]
    assert seen == {True, False}


def test_without_tools_or_with_none_of_them_the_reply_is_the_answer(tools, draw):
    for offered, choice in ((ToolSet(), "auto"), (tools, "none")):
        grammar = reply_grammar(FORMATS["hermes"], offered, choice=choice, answer=answer_grammar())
        for seed in range(5):
            (text,) = draw(grammar, random.Random(seed))
            jsonschema.validate(json.loads(text), ANSWER)
            reply = read_reply(FORMATS["hermes"], [text], offered, answers=True)
            assert reply.text == text.decode()


def test_without_tools_an_answer_may_begin_as_calls_do():
    form = FORMATS["llama3"]
    grammar = reply_grammar(form, ToolSet(), answer=answer_grammar())
    text = '{"say": "yes"}'
    assert grammar.accepts(text)
    assert read_reply(form, [text], ToolSet(), answers=True).text == text


def test_an_answer_that_begins_like_reasoning_is_refused(tools):
    form = FORMATS["hermes"]
    marker = form.reasoning.begin[0].text
    answer = structspec.compile(f"{marker}?x*|y", syntax="regex")
    with pytest.raises(ToolError, match="cannot be told"):
        reply_grammar(form, ToolSet(), answer=answer)


class Even(BaseModel):
    n: int

    @field_validator("n")
    @classmethod
    def _even(cls, n: int) -> int:
        if n % 2:
            raise ValueError("odd")
        return n


@pytest.fixture(scope="module")
def model(byte_tokenizer, make_llama):
    llama = make_llama(len(byte_tokenizer), window=2048, seed=1)
    return structspec.models.Model.wrap(llama, byte_tokenizer, name="bytes")


def test_the_value_of_an_answer_is_of_its_type(model, tools):
    settings = {"answer": Even, "max_tokens": 40}
    kinds = set()
    for seed in range(12):
        try:
            reply = structspec.call_tools(model, "Six?", tools, "none", seed=seed, **settings)
        except ValueRejected as error:
            kinds.add("refused")
            assert error.result.value == json.loads(error.text)
            assert error.result.tokens
        else:
            kinds.add("made")
            assert isinstance(reply.value, Even)
            assert json.loads(reply.text) == {"n": reply.value.n}
    assert kinds == {"made", "refused"}
    calls = structspec.call_tools(
        model, "Six?", tools, "required", seed=1, answer=Even, max_tokens=99
    )
    assert calls
    assert calls.value is None


def test_streamed_and_whole_answers_agree(model, tools):
    settings = {"answer": ANSWER, "max_tokens": 60, "seed": 5}
    whole = structspec.call_tools(model, "Well?", tools, "none", **settings)
    told = ""
    for event in structspec.stream_tools(model, "Well?", tools, "none", **settings):
        told += getattr(event, "text", "")
    assert told == whole.text
    assert whole.value == json.loads(whole.text)


def test_an_answer_that_is_no_schema_is_refused_with_its_own_place(model, tools):
    bad = {"properties": {"a": {"minLength": -1}}}
    with pytest.raises(SchemaError) as caught:
        structspec.call_tools(model, "Well?", tools, answer=bad)
    assert caught.value.pointer == "/properties/a/minLength" or "/properties/a" in str(caught.value)
