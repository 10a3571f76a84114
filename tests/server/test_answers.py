"""Answers over HTTP, asked for with OpenAI's own client: what the library gives."""

from __future__ import annotations

import copy
import json
import math
from concurrent.futures import ThreadPoolExecutor
from typing import Literal

import jsonschema
import openai
import pytest
from pydantic import BaseModel, Field

import structspec
from structspec.models import Model
from structspec.server.plan import Planner
from structspec.server.wire import ChatRequest

MESSAGES = [{"role": "user", "content": "two large coffees"}]
SCHEMA = {
    "type": "object",
    "properties": {
        "item": {"type": "string", "pattern": "^[a-z]{1,8}$"},
        "size": {"enum": ["small", "large"]},
        "amount": {"type": "integer", "minimum": 1, "maximum": 99},
    },
    "required": ["item", "size", "amount"],
    "additionalProperties": False,
}
FORMAT = {"type": "json_schema", "json_schema": {"name": "order", "schema": SCHEMA}}
WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string", "pattern": "^[A-Z][a-z]{2,9}$"}},
            "required": ["city"],
        },
    },
}


TAG = {"type": "structural_tag", "format": {"type": "const_string", "value": "hi"}}


class Order(BaseModel):
    """A pydantic type, as OpenAI's `parse` takes it."""

    item: str = Field(pattern="^[a-z]{1,8}$")
    size: Literal["small", "large"]


def chat(client, **settings):
    return client.chat.completions.create(
        **{"model": "bytes", "messages": MESSAGES, "seed": 3, **settings}
    )


def joined(chunks):
    """Text, reasons and usage of a stream, by choice."""
    texts, reasons, usage = {}, {}, None
    for chunk in chunks:
        usage = chunk.usage or usage
        for choice in chunk.choices:
            texts[choice.index] = texts.get(choice.index, "") + (choice.delta.content or "")
            reasons[choice.index] = choice.finish_reason or reasons.get(choice.index)
    return texts, reasons, usage


@pytest.mark.parametrize("temperature", [0, 1])
def test_a_schema_is_answered_as_by_generate(client, server_model, temperature):
    answer = chat(client, response_format=FORMAT, temperature=temperature)
    expected = structspec.generate(server_model, MESSAGES, SCHEMA, temperature=temperature, seed=3)
    assert answer.choices[0].message.content == expected.text
    jsonschema.validate(json.loads(answer.choices[0].message.content), SCHEMA)
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage.completion_tokens == expected.stats.tokens
    assert answer.usage.prompt_tokens == expected.stats.prompt_tokens
    details = answer.usage.completion_tokens_details
    assert details.accepted_prediction_tokens == expected.stats.accepted
    assert answer.model == "bytes"


def test_a_stream_tells_the_same_answer_in_pieces(client):
    whole = chat(client, response_format=FORMAT, n=2)
    options = {"stream": True, "stream_options": {"include_usage": True}}
    chunks = list(chat(client, response_format=FORMAT, n=2, **options))
    texts, reasons, usage = joined(chunks)
    assert texts == {c.index: c.message.content for c in whole.choices}
    assert reasons == {0: "stop", 1: "stop"}
    assert usage.completion_tokens == whole.usage.completion_tokens
    assert usage.prompt_tokens == whole.usage.prompt_tokens  # once, for both answers
    assert len(chunks) > 6
    assert chunks[0].choices[0].delta.role == "assistant"


def test_answers_of_one_request_differ_by_seeds_that_repeat(client):
    first, again = (chat(client, response_format=FORMAT, n=3) for _ in range(2))
    texts = [choice.message.content for choice in first.choices]
    assert texts == [choice.message.content for choice in again.choices]
    assert len(set(texts)) > 1


def test_many_clients_at_once_get_what_each_gets_alone(client):
    settings = [{"response_format": FORMAT, "seed": seed} for seed in range(12)]
    alone = [chat(client, **one).choices[0].message.content for one in settings]
    with ThreadPoolExecutor(12) as pool:
        together = list(pool.map(lambda one: chat(client, **one), settings))
    assert [answer.choices[0].message.content for answer in together] == alone


def test_a_pydantic_type_is_parsed_by_the_client(client):
    answer = client.chat.completions.parse(
        model="bytes", messages=MESSAGES, response_format=Order, seed=1
    )
    assert isinstance(answer.choices[0].message.parsed, Order)


def test_any_json_object(client):
    form = {"type": "json_object"}
    text = chat(client, response_format=form, max_tokens=40).choices[0].message.content
    assert isinstance(json.loads(text), dict)


@pytest.mark.parametrize(
    ("asked", "good"),
    [
        ({"structured_outputs": {"regex": "[ab]{3}"}}, lambda t: set(t) <= set("ab")),
        ({"structured_outputs": {"choice": ["yes", "no"]}}, lambda t: t in ("yes", "no")),
        ({"structured_outputs": {"json": {"const": 7}}}, lambda t: t == "7"),
        ({"structured_outputs": {"json": {"enum": [None]}}}, lambda t: t == "null"),
        ({"structured_outputs": {"grammar": 'root ::= "x" [0-9]{2}'}}, lambda t: t[0] == "x"),
        (
            {"structured_outputs": {"grammar": 'start: "<" /[a-c]/ ">"', "syntax": "lark"}},
            lambda t: t in ("<a>", "<b>", "<c>"),
        ),
        (
            {"structured_outputs": {"structural_tag": TAG}},
            lambda t: t == "hi",
        ),
        ({"guided_choice": ["left", "right"]}, lambda t: t in ("left", "right")),
        ({"guided_regex": "q+", "max_tokens": 5}, lambda t: set(t) == {"q"}),
    ],
)
def test_grammars_of_other_kinds(client, asked, good):
    text = chat(client, extra_body=asked).choices[0].message.content
    assert text
    assert good(text)


def test_a_call_of_a_tool_whole_and_streamed(client):
    asked = {"tools": [WEATHER], "tool_choice": "required", "parallel_tool_calls": False}
    whole = chat(client, **asked).choices[0]
    assert whole.finish_reason == "tool_calls"
    (call,) = whole.message.tool_calls
    assert call.function.name == "get_weather"
    jsonschema.validate(json.loads(call.function.arguments), WEATHER["function"]["parameters"])
    told, ids, reasons = "", set(), []
    for chunk in chat(client, stream=True, **asked):
        (choice,) = chunk.choices
        for piece in choice.delta.tool_calls or ():
            told += piece.function.arguments or ""
            ids |= {piece.id} - {None}
        reasons.append(choice.finish_reason)
    assert (told, ids) == (call.function.arguments, {call.id})
    assert reasons[-1] == "tool_calls"
    assert set(reasons[:-1]) == {None}


def test_the_calls_are_those_of_call_tools(client, server_model):
    asked = {"tools": [WEATHER], "tool_choice": "required", "parallel_tool_calls": False}
    calls = structspec.call_tools(
        server_model, MESSAGES, [WEATHER], "required", parallel=False, seed=3
    )
    (call,) = chat(client, **asked).choices[0].message.tool_calls
    assert json.loads(call.function.arguments) == calls[0].arguments
    assert call.id == calls[0].id


def test_a_reply_is_a_call_or_a_value_of_the_schema(client, server_model):
    (mark,) = server_model.tokenizer.encode("<")  # begins calls
    kinds = set()
    for bias in (-20, 20):
        asked = {"tools": [WEATHER], "response_format": FORMAT, "logit_bias": {str(mark): bias}}
        (choice,) = chat(client, **asked).choices
        kinds.add(choice.finish_reason)
        if choice.message.tool_calls:
            assert choice.message.content is None
        else:
            jsonschema.validate(json.loads(choice.message.content), SCHEMA)
        texts, reasons, _ = joined(chat(client, stream=True, **asked))
        assert texts[0] == (choice.message.content or "")
        assert reasons[0] == choice.finish_reason
    assert kinds == {"stop", "tool_calls"}


def test_reasoning_stands_before_a_value(server_model, serve):
    """A template that opens the reasoning itself, as DeepSeek-R1's does."""
    tokenizer = copy.deepcopy(server_model.tokenizer)
    tokenizer.chat_template = (
        "<tool_call>{% for m in messages %}<s>{{ m.role }}: {{ m.content }}{% endfor %}"
        "<s>assistant: <think>\n"
    )
    model = Model.wrap(server_model.model, tokenizer, name="reasons")
    with serve(model) as address:
        client = openai.OpenAI(base_url=f"{address}/v1", api_key="none", max_retries=0)
        settings = {"model": "reasons", "messages": MESSAGES, "seed": 3, "response_format": FORMAT}
        settings["max_tokens"] = 120
        answer = client.chat.completions.create(**settings)
        message = answer.choices[0].message
        jsonschema.validate(json.loads(message.content), SCHEMA)
        assert message.reasoning_content
        told = ""
        for chunk in client.chat.completions.create(stream=True, **settings):
            told += getattr(chunk.choices[0].delta, "reasoning_content", "")
        assert told == message.reasoning_content
        silent = client.chat.completions.create(reasoning_effort="none", **settings)
        assert getattr(silent.choices[0].message, "reasoning_content", None) is None


#: What clients of other servers send where they ask for nothing.
OFF = {
    "top_k": -1,
    "min_tokens": 0,
    "ignore_eos": False,
    "skip_special_tokens": True,
    "stop_token_ids": [],
    "include_stop_str_in_output": False,
    "length_penalty": 1.0,
    "use_beam_search": False,
    "best_of": 1,
    "echo": False,
    "functions": [],
    "session_id": "x",
    "stop": [],
}


def test_a_value_that_a_budget_shaped_is_complete(client):
    """Clients take "length" for a text that was cut off."""
    schema = {"type": "array", "items": {"enum": [1, 2]}, "minItems": 1}
    form = {"type": "json_schema", "json_schema": {"name": "a", "schema": schema}}
    (choice,) = chat(client, response_format=form, max_tokens=9, temperature=0).choices
    json.loads(choice.message.content)
    assert choice.finish_reason == "stop"


def test_a_schema_beside_the_type(client):
    form = {"type": "json_object", "schema": SCHEMA}
    text = chat(client, extra_body={"response_format": form}).choices[0].message.content
    jsonschema.validate(json.loads(text), SCHEMA)


def test_fields_without_bearing_on_the_answer_are_taken(client):
    plain = chat(client, response_format=FORMAT).choices[0].message.content
    more = {
        "user": "me",
        "store": False,
        "metadata": {"a": "b"},
        "modalities": ["text"],
        "service_tier": "auto",
        "prediction": {"type": "content", "content": "x"},
        "extra_body": {"guided_json": None, **OFF},
    }
    assert chat(client, response_format=FORMAT, **more).choices[0].message.content == plain


def test_a_turn_with_results_of_tools_is_read(client):
    call = {"id": "abc", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    messages = [
        {
            "role": "developer",
            "content": [{"type": "text", "text": "Be "}, {"type": "text", "text": "brief."}],
        },
        *MESSAGES,
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "abc", "content": "done"},
    ]
    assert chat(client, messages=messages, max_tokens=5).usage.completion_tokens <= 5


def test_calls_of_earlier_turns_are_read_before_a_value_too(server_model):
    """A template without a place for tools gets them as text of the format."""
    call = {"id": "abc", "type": "function", "function": {"name": "look_up", "arguments": "{}"}}
    messages = [
        *MESSAGES,
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "abc", "content": "seven"},
    ]
    asked = ChatRequest.model_validate({"messages": messages, "response_format": FORMAT})
    (job,) = Planner(server_model).chat(asked).jobs
    prompt = server_model.tokenizer.decode(job.prompt_ids)
    assert "look_up" in prompt
    assert "seven" in prompt


def test_free_text_ends_before_a_stop_string_whole_and_streamed(client):
    free = chat(client, max_tokens=60).choices[0].message.content
    assert len(free) > 10
    stop = free[5:7]
    asked = {"max_tokens": 60, "stop": [stop, "never written \x00"]}
    cut = chat(client, **asked).choices[0]
    assert cut.message.content == free[: free.index(stop)]
    assert cut.finish_reason == "stop"
    texts, reasons, _ = joined(chat(client, stream=True, **asked))
    assert (texts, reasons) == ({0: cut.message.content}, {0: "stop"})


def test_a_stop_string_never_cuts_a_value(client):
    asked = {"response_format": FORMAT, "stop": '"size"'}
    jsonschema.validate(json.loads(chat(client, **asked).choices[0].message.content), SCHEMA)


def test_a_text_that_the_budget_ends_says_so(client):
    choice = chat(client, max_tokens=3, temperature=0).choices[0]
    assert choice.finish_reason == "length"


def test_log_probabilities_are_those_of_the_masked_law(client, server_model):
    answer = chat(client, response_format=FORMAT, logprobs=True)
    expected = structspec.generate(server_model, MESSAGES, SCHEMA, seed=3, logprobs=True)
    told = [one.logprob for one in answer.choices[0].logprobs.content]
    assert told == pytest.approx(expected.logprobs)
    assert all(value <= 0 and math.isfinite(value) for value in told)
    text = bytes(b for one in answer.choices[0].logprobs.content for b in one.bytes)
    assert text.decode() == answer.choices[0].message.content


@pytest.mark.parametrize("more", [{"response_format": FORMAT}, {"max_tokens": 40}])
def test_likely_tokens_are_told_whole_and_streamed(client, more):
    whole = chat(client, logprobs=True, top_logprobs=2, n=2, **more)
    streamed = {0: [], 1: []}
    for chunk in chat(client, logprobs=True, top_logprobs=2, n=2, stream=True, **more):
        for choice in chunk.choices:
            streamed[choice.index] += choice.logprobs.content if choice.logprobs else []
    for choice in whole.choices:
        content = choice.logprobs.content
        assert [one.token for one in streamed[choice.index]] == [one.token for one in content]
        for one, other in zip(streamed[choice.index], content, strict=True):
            assert [t.token for t in one.top_logprobs] == [t.token for t in other.top_logprobs]
            assert one.logprob == pytest.approx(other.logprob)
        assert {len(one.top_logprobs) for one in content} <= {1, 2}
        for one in content:
            logprobs = [other.logprob for other in one.top_logprobs]
            assert logprobs == sorted(logprobs, reverse=True)
            assert max(logprobs) >= one.logprob
    assert any(len(one.top_logprobs) == 2 for one in whole.choices[0].logprobs.content)


def test_completions_tell_where_their_tokens_begin(client):
    asked = {"model": "bytes", "prompt": "the land ", "max_tokens": 30, "seed": 4, "logprobs": 2}
    choice = client.completions.create(**asked).choices[0]
    told = choice.logprobs
    # the first of 30 tokens is the blank of the prompt, which is not told
    assert len(told.tokens) == len(told.token_logprobs) == len(told.top_logprobs) == 29
    for token, offset in zip(told.tokens, told.text_offset, strict=True):
        if not token.startswith("bytes:"):
            assert choice.text.startswith(token, offset)
    streamed = {name: [] for name in ("tokens", "token_logprobs", "top_logprobs", "text_offset")}
    for chunk in client.completions.create(**asked, stream=True):
        for name, values in streamed.items():
            if chunk.choices[0].logprobs is not None:
                values += getattr(chunk.choices[0].logprobs, name) or []
    assert streamed["tokens"] == told.tokens and streamed["text_offset"] == told.text_offset
    assert streamed["token_logprobs"] == pytest.approx(told.token_logprobs)
    assert [set(top) for top in streamed["top_logprobs"]] == [set(t) for t in told.top_logprobs]
    bare = client.completions.create(**{**asked, "logprobs": 0}).choices[0].logprobs
    assert bare.token_logprobs == pytest.approx(told.token_logprobs) and bare.top_logprobs is None


def test_texts_go_on_each_as_alone(client, server_model):
    prompts = ["the land ", "an "]
    both = client.completions.create(
        model="bytes", prompt=prompts, max_tokens=12, temperature=0, seed=1
    )
    for prompt, choice in zip(prompts, both.choices, strict=True):
        alone = client.completions.create(
            model="bytes", prompt=prompt, max_tokens=12, temperature=0, seed=1
        )
        assert choice.text == alone.choices[0].text
    streamed = {0: "", 1: ""}
    for chunk in client.completions.create(
        model="bytes", prompt=prompts, max_tokens=12, temperature=0, seed=1, stream=True
    ):
        for choice in chunk.choices:
            streamed[choice.index] += choice.text
    assert streamed == {choice.index: choice.text for choice in both.choices}
    ids = server_model.tokenizer.encode("the land ")
    by_ids = client.completions.create(model="bytes", prompt=ids, max_tokens=4, temperature=0)
    assert by_ids.usage.prompt_tokens == len(ids)


def test_a_continued_text_under_a_grammar(client):
    answer = client.completions.create(
        model="bytes", prompt="a", max_tokens=9, extra_body={"guided_regex": "[xyz]{4}"}
    )
    assert len(answer.choices[0].text) == 4
    assert set(answer.choices[0].text) <= set("xyz")


def test_the_model_is_listed(client):
    (model,) = client.models.list().data
    assert model.id == client.models.retrieve("bytes").id == "bytes"
