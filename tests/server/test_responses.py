"""OpenAI's Responses: the same answers as chats, as items and events."""

from __future__ import annotations

import copy
import json
from typing import Literal

import jsonschema
import openai
import pytest
from pydantic import BaseModel, Field

from structspec.models import Model

SCHEMA = {
    "type": "object",
    "properties": {"size": {"enum": ["small", "large"]}, "n": {"type": "integer", "maximum": 9}},
    "required": ["size", "n"],
    "additionalProperties": False,
}
TEXT = {"format": {"type": "json_schema", "name": "order", "schema": SCHEMA, "strict": True}}
WEATHER = {
    "type": "function",
    "name": "get_weather",
    "strict": True,
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string", "pattern": "^[A-Z][a-z]{2,9}$"}},
        "required": ["city"],
        "additionalProperties": False,
    },
}


class Order(BaseModel):
    size: Literal["small", "large"]
    item: str = Field(pattern="^[a-z]{1,8}$")


def respond(client, **settings):
    settings.setdefault("extra_body", {})["seed"] = 3
    return client.responses.create(**{"model": "bytes", "input": "two coffees", **settings})


def test_a_schema_is_answered_as_in_a_chat(client):
    response = respond(client, text=TEXT)
    answer = client.chat.completions.create(
        model="bytes",
        messages=[{"role": "user", "content": "two coffees"}],
        seed=3,
        response_format={
            "type": "json_schema",
            "json_schema": {"name": "order", "schema": SCHEMA, "strict": True},
        },
    )
    assert response.output_text == answer.choices[0].message.content
    assert (response.status, response.object) == ("completed", "response")
    assert response.usage.output_tokens == answer.usage.completion_tokens
    assert response.usage.input_tokens == answer.usage.prompt_tokens
    (item,) = response.output
    assert (item.type, item.role, item.status) == ("message", "assistant", "completed")


def test_a_pydantic_type_is_parsed_by_the_client(client):
    response = client.responses.parse(model="bytes", input="well?", text_format=Order)
    assert isinstance(response.output_parsed, Order)


@pytest.mark.parametrize(
    "settings",
    [
        {"text": TEXT},
        {"tools": [WEATHER], "tool_choice": "required"},
        {"max_output_tokens": 30},
        {"max_output_tokens": 3, "temperature": 0},
    ],
    ids=["schema", "calls", "text", "cut"],
)
def test_events_tell_the_whole_response(client, settings):
    whole = respond(client, **copy.deepcopy(settings))
    kinds, items, deltas = [], [], {}
    for number, event in enumerate(respond(client, stream=True, **settings)):
        assert event.sequence_number == number
        kinds.append(event.type)
        if event.type.endswith(".delta"):
            deltas[event.item_id] = deltas.get(event.item_id, "") + event.delta
        elif event.type == "response.output_item.done":
            items.append(event.item)
        last = event
    assert kinds[:2] == ["response.created", "response.in_progress"]
    assert kinds[-1] == f"response.{whole.status}"

    def shown(item):
        facts = item.model_dump(exclude={"id"})
        return facts

    assert [shown(i) for i in items] == [shown(i) for i in whole.output]
    assert [shown(i) for i in last.response.output] == [shown(i) for i in whole.output]
    assert last.response.usage == whole.usage
    for item in items:
        told = item.arguments if item.type == "function_call" else item.content[0].text
        assert deltas[item.id] == told


def test_the_clients_own_stream_gathers_it(client):
    with client.responses.stream(model="bytes", input="well?", text_format=Order) as stream:
        texts = [e.delta for e in stream if e.type == "response.output_text.delta"]
        response = stream.get_final_response()
    assert "".join(texts) == response.output_text
    assert isinstance(response.output_parsed, Order)


def test_a_call_and_its_result_in_the_next_turn(client):
    first = respond(client, tools=[WEATHER], tool_choice="required", parallel_tool_calls=False)
    (call,) = first.output
    assert (call.type, call.name) == ("function_call", "get_weather")
    jsonschema.validate(json.loads(call.arguments), WEATHER["parameters"])
    items = [{"role": "user", "content": [{"type": "input_text", "text": "rain?"}]}]
    items += [item.model_dump(exclude_none=True) for item in first.output]
    items += [{"type": "function_call_output", "call_id": call.call_id, "output": "sunny"}]
    second = respond(client, input=items, tools=[WEATHER], instructions="Be brief.", text=TEXT,
                     tool_choice="none")  # fmt: skip
    jsonschema.validate(json.loads(second.output_text), SCHEMA)


def test_a_choice_of_allowed_functions(client):
    other = {**WEATHER, "name": "other"}
    choice = {
        "type": "allowed_tools",
        "mode": "required",
        "tools": [{"type": "function", "name": "other"}],
    }
    for call in respond(client, tools=[WEATHER, other], tool_choice=choice).output:
        assert call.name == "other"


def test_one_named_function(client):
    choice = {"type": "function", "name": "get_weather"}
    (call,) = respond(client, tools=[WEATHER], tool_choice=choice).output
    assert call.name == "get_weather"


def test_a_text_that_the_budget_ends_is_incomplete(client):
    response = respond(client, max_output_tokens=3, temperature=0)
    assert response.status == "incomplete"
    assert response.incomplete_details.reason == "max_output_tokens"


def test_reasoning_is_an_item_of_its_own(server_model, serve):
    tokenizer = copy.deepcopy(server_model.tokenizer)
    tokenizer.chat_template = (
        "<tool_call>{% for m in messages %}<s>{{ m.role }}: {{ m.content }}{% endfor %}"
        "<s>assistant: <think>\n"
    )
    with serve(Model.wrap(server_model.model, tokenizer, name="bytes")) as address:
        client = openai.OpenAI(base_url=f"{address}/v1", api_key="none", max_retries=0)
        response = respond(client, text=TEXT, max_output_tokens=90)
        assert [item.type for item in response.output] == ["reasoning", "message"]
        thought = response.usage.output_tokens_details.reasoning_tokens
        assert 0 < thought < response.usage.output_tokens
        told = ""
        for event in respond(client, text=TEXT, max_output_tokens=90, stream=True):
            if event.type == "response.reasoning_text.delta":
                told += event.delta
        assert told == response.output[0].content[0].text


@pytest.mark.parametrize(
    ("settings", "code", "part"),
    [
        ({"previous_response_id": "resp_1"}, "invalid_field", "keeps no conversations"),
        ({"input": [{"type": "item_reference", "id": "x"}]}, "invalid_request", "item_reference"),
        (
            {"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}]},
            "invalid_request",
            "input_image",
        ),
        ({"tools": [{"type": "web_search"}]}, "invalid_request", "web_search"),
        ({"tool_choice": "required"}, "invalid_request", "tools"),
        ({"background": True}, "invalid_field", "background"),
        ({"text": {"format": {"type": "json_schema", "name": "a"}}}, "invalid_request", "schema"),
        (
            {"text": {"format": {"type": "json_schema", "name": "a", "schema": {"minimum": "x"}}}},
            "invalid_schema",
            "minimum",
        ),
        ({"max_output_tokens": 0}, "invalid_field", "max_output_tokens"),
        ({"input": []}, "invalid_field", "input"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("stream", [False, True])
def test_a_bad_request_says_what_is_wrong(client, settings, code, part, stream):
    with pytest.raises(openai.BadRequestError) as caught:
        respond(client, stream=stream, **copy.deepcopy(settings))
    assert caught.value.body["code"] == code, caught.value.body
    assert part in caught.value.body["message"]
