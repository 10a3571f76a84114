"""Requests that cannot be answered: a status, a code and the place, before anything is written."""

from __future__ import annotations

import http.client
import json
import threading
import time
import urllib.request
from typing import Any

import openai
import pytest

from structspec.server import Settings

MESSAGES = [{"role": "user", "content": "hello"}]


def schema(value: Any, **more: Any) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": "a", "schema": value, **more}}


def refusal(client: Any, **settings: Any) -> tuple[int, dict[str, Any]]:
    settings = {"model": "bytes", "messages": MESSAGES, **settings}
    with pytest.raises(openai.APIStatusError) as caught:
        client.chat.completions.create(**settings)
    body = caught.value.body
    assert set(body) == {"message", "type", "param", "code"}
    return caught.value.status_code, body


UNSUPPORTED = {"type": "object", "properties": {"a": {"$dynamicRef": "#x"}}, "uniqueItems": 3}
DISTINCT = {"type": "array", "items": {"type": "object"}, "uniqueItems": True, "minItems": 2}


@pytest.mark.parametrize(
    ("settings", "code", "part"),
    [
        ({"response_format": schema({"minLength": -1})}, "invalid_schema", "minLength"),
        ({"response_format": schema(7)}, "invalid_schema", "int"),
        ({"response_format": schema(DISTINCT)}, "unsupported_schema", "uniqueItems"),
        ({"response_format": schema(False)}, "unsatisfiable_schema", ""),
        (
            {"response_format": schema({"const": "long" * 9}), "max_tokens": 2},
            "max_tokens_too_small",
            "2",
        ),
        ({"response_format": {"type": "json_schema"}}, "invalid_field", "schema"),
        ({"response_format": {"type": "yaml"}}, "invalid_field", "yaml"),
        ({"messages": []}, "invalid_field", "messages"),
        ({"messages": [{"role": "user"}]}, "invalid_prompt", "content"),
        ({"messages": [{"content": "x"}]}, "invalid_prompt", "role"),
        ({"messages": [{"role": "forbidden", "content": "x"}]}, "invalid_prompt", "no such role"),
        ({"messages": [{"role": "user", "content": 7}]}, "invalid_prompt", "0"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]},
            "invalid_request",
            "image_url",
        ),
        ({"messages": [{"role": "user", "content": "x" * 5000}]}, "invalid_prompt", "2048"),
        ({"temperature": -1}, "invalid_field", "temperature"),
        ({"top_p": 2}, "invalid_value", "top_p"),
        ({"n": 0}, "invalid_field", "n"),
        ({"max_tokens": 0}, "invalid_field", "max_tokens"),
        ({"stop": [""]}, "invalid_field", "stop"),
        ({"seed": -2}, "invalid_field", "seed"),
        ({"top_logprobs": 5}, "invalid_field", "top_logprobs"),
        ({"logprobs": True, "top_logprobs": 21}, "invalid_field", "top_logprobs"),
        ({"temperature": True}, "invalid_field", "temperature"),
        ({"n": "2"}, "invalid_field", "n"),
        ({"extra_body": {"speed": "fast"}}, "invalid_field", "speed"),
        ({"extra_body": {"guided_regex": "("}}, "invalid_schema", "column"),
        ({"extra_body": {"guided_regex": "a", "guided_json": {}}}, "invalid_field", "exactly one"),
        ({"extra_body": {"structured_outputs": {}}}, "invalid_field", "exactly one"),
        ({"extra_body": {"structured_outputs": {"choice": []}}}, "invalid_field", "choice"),
        (
            {"extra_body": {"guided_regex": "a"}, "response_format": schema({})},
            "invalid_field",
            "not both",
        ),
        ({"tool_choice": "required"}, "invalid_field", "tools"),
        ({"tools": [{"type": "function", "function": {}}]}, "invalid_tool", "name"),
        (
            {"tools": [{"type": "function", "function": {"name": "f"}}], "tool_choice": "g"},
            "invalid_tool",
            "g",
        ),
        (
            {"extra_body": {"chat_template_kwargs": {"chat_template": "{{"}}},
            "invalid_request",
            "chat_template",
        ),
        (
            {"extra_body": {"chat_template_kwargs": {"padding": "max_length"}}},
            "invalid_request",
            "padding",
        ),
        ({"extra_body": {"chat_template_kwargs": {"messages": []}}}, "invalid_request", "messages"),
        ({"max_tokens": 10**9}, "invalid_field", "max_tokens"),
        ({"logit_bias": {"5": -1000}}, "invalid_field", "logit_bias"),
        ({"extra_body": {"repetition_penalty": 1e-300}}, "invalid_field", "repetition_penalty"),
        (
            {"messages": [{"role": "user", "content": [{"type": "text", "text": None}]}]},
            "invalid_request",
            "text",
        ),
        (
            {"messages": [{"role": "assistant", "tool_calls": [1]}]},
            "invalid_request",
            "tool_calls",
        ),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_a_bad_request_says_what_is_wrong(client, settings, code, part, stream):
    status, body = refusal(client, stream=stream, **settings)
    assert (status, body["code"]) == (400, code), body
    assert part in body["message"]
    assert body["type"] == "invalid_request_error"


def test_the_place_in_the_schema_is_told(client):
    _, body = refusal(client, response_format=schema({"properties": {"a": {"maximum": "3"}}}))
    assert body["param"] == "/properties/a/maximum" or body["param"] == "/properties/a"


def test_a_schema_that_cannot_be_held_is_loosened_on_request_only(client):
    settings = {"model": "bytes", "messages": MESSAGES, "max_tokens": 30}
    answer = client.chat.completions.create(
        response_format=schema({**DISTINCT, "maxItems": 2}, strict=False), **settings
    )
    assert isinstance(json.loads(answer.choices[0].message.content), list)


def test_another_model_is_not_found(client):
    status, body = refusal(client, model="gpt-4o")
    assert (status, body["code"]) == (404, "not_found")
    assert "'bytes'" in body["message"]
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("gpt-4o")
    with pytest.raises(openai.NotFoundError):
        client.embeddings.create(model="bytes", input="x")


def post(address: str, body: bytes, **headers: str) -> tuple[int, dict[str, Any]]:
    """Status and body of a request as it stands."""
    request = urllib.request.Request(f"{address}/v1/chat/completions", body, headers)
    try:
        with urllib.request.urlopen(request) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


@pytest.mark.parametrize("body", [b"{", b"", b"[1]", b'{"messages": "\\ud800"}', b"[" * 20000])
def test_what_is_no_request_is_refused(address, body):
    status, answer = post(address, body)
    assert (status, answer["error"]["code"]) == (400, "invalid_field")
    assert answer["error"]["message"]


def test_no_content_type_is_needed(address):
    body = json.dumps({"messages": MESSAGES, "max_tokens": 2}).encode()
    assert post(address, body)[0] == 200
    assert post(address, body, **{"Content-Type": "text/plain"})[0] == 200


def test_an_address_that_is_none_says_where_they_are(address):
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(f"{address}/chat/completions", b"{}")
    assert caught.value.code == 404
    assert "/v1" in json.load(caught.value)["error"]["message"]


def test_health_can_be_asked_for_its_head(address):
    with urllib.request.urlopen(
        urllib.request.Request(f"{address}/health", method="HEAD")
    ) as answer:
        assert answer.status == 200


def test_a_body_that_is_too_large_is_refused_before_it_is_read(server_model, serve):
    with serve(server_model, Settings(most_bytes=1000)) as address:
        body = json.dumps({"messages": [{"role": "user", "content": "x" * 2000}]}).encode()
        status, answer = post(address, body)
        assert (status, answer["error"]["code"]) == (413, "request_too_large")

        def chunks() -> Any:
            yield from (body[i : i + 100] for i in range(0, len(body), 100))

        raw = http.client.HTTPConnection(address.removeprefix("http://"))
        # no length is said beforehand
        raw.request("POST", "/v1/chat/completions", chunks(), encode_chunked=True,
                    headers={"Transfer-Encoding": "chunked"})  # fmt: skip
        assert raw.getresponse().status == 413
        assert post(address, json.dumps({"messages": MESSAGES, "max_tokens": 2}).encode())[0] == 200


def test_half_a_surrogate_pair_is_refused(address):
    body = b'{"messages": [{"role": "user", "content": "\\ud800"}]}'
    request = urllib.request.Request(
        f"{address}/v1/chat/completions", body, {"Content-Type": "application/json"}
    )
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(request)
    assert caught.value.code == 400


def test_a_key_is_asked_for(server_model, serve):
    with serve(server_model, Settings(api_key="secret", name="mine")) as address:
        wrong = openai.OpenAI(base_url=f"{address}/v1", api_key="other", max_retries=0)
        with pytest.raises(openai.AuthenticationError):
            wrong.models.list()
        with pytest.raises(openai.AuthenticationError):
            wrong.chat.completions.create(model="mine", messages=MESSAGES)
        for header, status in (
            ("bearer secret", 200),
            ("Bearer  secret", 200),
            ("secret", 401),
            ("Bearer secre", 401),
            ("Bearer sécret", 401),
        ):
            body = json.dumps({"messages": MESSAGES, "max_tokens": 1}).encode()
            assert post(address, body, Authorization=header)[0] == status, header
        # nothing of a request is read for a stranger
        assert post(address, b"{")[0] == 401
        right = openai.OpenAI(base_url=f"{address}/v1", api_key="secret", max_retries=0)
        assert [model.id for model in right.models.list().data] == ["mine"]
        with urllib.request.urlopen(f"{address}/health") as answer:
            assert json.load(answer)["status"] == "ok"


def test_a_key_must_say_something():
    with pytest.raises(ValueError, match="empty"):
        Settings(api_key="")


class Held:
    """Holds a model's forwards until it is let go."""

    def __init__(self, model: Any) -> None:
        self.entered, self.open = threading.Event(), threading.Event()
        self._handle = model.model.register_forward_hook(self._wait)

    def _wait(self, *_: Any) -> None:
        self.entered.set()
        self.open.wait(60)

    def __enter__(self) -> Held:
        return self

    def __exit__(self, *_: object) -> None:
        self.open.set()
        self._handle.remove()


def test_too_many_requests_are_told_to_come_again(server_model, serve):
    settings = {"model": "bytes", "messages": MESSAGES, "max_tokens": 4}
    with serve(server_model, Settings(batch_size=1, waiting=0)) as address:
        client = openai.OpenAI(base_url=f"{address}/v1", api_key="none", max_retries=0)
        with Held(server_model) as held:
            answers: list[Any] = []
            asking = threading.Thread(
                target=lambda: answers.append(client.chat.completions.create(**settings))
            )
            asking.start()
            assert held.entered.wait(60)
            with pytest.raises(openai.APIStatusError) as caught:
                client.chat.completions.create(**settings)
            assert caught.value.status_code == 503
            assert caught.value.body["code"] == "overloaded"
            assert caught.value.response.headers["Retry-After"] == "1"
            held.open.set()
            asking.join(60)
        assert answers
        # what can never fit is no matter of waiting
        with pytest.raises(openai.BadRequestError, match="2 answers"):
            client.chat.completions.create(**settings, n=2)
        assert client.chat.completions.create(**settings).choices


def test_a_client_that_goes_away_frees_its_place(server_model, serve):
    settings = {"model": "bytes", "messages": MESSAGES, "max_tokens": 1500, "temperature": 1.5}
    pattern = {"extra_body": {"guided_regex": "[a-z]{1400}"}}
    with serve(server_model, Settings(batch_size=1)) as address:
        client = openai.OpenAI(base_url=f"{address}/v1", api_key="none", max_retries=0)

        def busy() -> dict[str, Any]:
            with urllib.request.urlopen(f"{address}/health") as answer:
                return json.load(answer)

        def wait_until_free() -> None:
            until = time.monotonic() + 60
            while busy()["running"] and time.monotonic() < until:
                time.sleep(0.01)
            assert not busy()["running"]

        stream = client.chat.completions.create(stream=True, **settings, **pattern)
        next(iter(stream))
        assert busy()["running"] == 1
        stream.close()
        wait_until_free()
        impatient = client.with_options(timeout=1.0)
        with Held(server_model) as held:
            with pytest.raises(openai.APITimeoutError):
                impatient.chat.completions.create(**settings, **pattern)
            held.open.set()
        wait_until_free()
        short = client.chat.completions.create(**{**settings, "max_tokens": 3})
        assert short.usage.completion_tokens <= 3


def test_a_client_that_leaves_while_it_waits_frees_its_place(server_model, serve):
    settings = {"model": "bytes", "messages": MESSAGES, "max_tokens": 4}
    with serve(server_model, Settings(batch_size=1)) as address:
        client = openai.OpenAI(base_url=f"{address}/v1", api_key="none", max_retries=0, timeout=1)

        def waiting() -> int:
            with urllib.request.urlopen(f"{address}/health") as answer:
                return json.load(answer)["waiting"]

        with Held(server_model) as held:
            first = threading.Thread(
                target=lambda: client.with_options(timeout=60).chat.completions.create(**settings)
            )
            first.start()
            assert held.entered.wait(60)
            for stream in (False, True):
                with pytest.raises(openai.APITimeoutError):
                    client.chat.completions.create(stream=stream, **settings)
            # the engine looks between rounds
            held.open.set()
            first.join(60)
            until = time.monotonic() + 30
            while waiting() and time.monotonic() < until:
                time.sleep(0.01)
            assert not waiting()


def test_a_model_that_fails_in_the_middle_of_a_stream_is_told_in_it(server_model, serve):
    settings = {"model": "bytes", "messages": MESSAGES, "max_tokens": 300}
    with serve(server_model) as address:
        client = openai.OpenAI(base_url=f"{address}/v1", api_key="none", max_retries=0)
        forwards = []

        def fail(*_: Any) -> None:
            forwards.append(1)
            if len(forwards) > 5:
                raise RuntimeError("broken")

        handle = server_model.model.register_forward_hook(fail)
        try:
            with pytest.raises(openai.APIError, match="broken"):
                for _ in client.chat.completions.create(
                    stream=True, extra_body={"guided_regex": "[a-z]{200}"}, **settings
                ):
                    pass
            with pytest.raises(openai.InternalServerError, match="broken"):
                client.chat.completions.create(
                    extra_body={"guided_regex": "[a-z]{200}"}, **settings
                )
        finally:
            handle.remove()
        assert client.chat.completions.create(**{**settings, "max_tokens": 3}).choices
        assert counted(address) == {"200": 1, "500": 2}


def counters(address):
    with urllib.request.urlopen(f"{address}/metrics") as page:
        lines = page.read().decode().splitlines()
    return {
        name: float(value)
        for name, value in (line.rsplit(" ", 1) for line in lines if line[0] != "#")
    }


def counted(address):
    """How many chats ended with which status."""
    begin = 'structspec_requests_total{kind="chat",status="'
    return {
        name.removeprefix(begin).rstrip('"}'): value
        for name, value in counters(address).items()
        if name.startswith(begin)
    }


@pytest.mark.parametrize("stream", [False, True])
def test_clients_that_go_away_are_counted(server_model, serve, stream):
    held = Held(server_model)
    with serve(server_model) as address, held:
        client = openai.OpenAI(base_url=f"{address}/v1", api_key="none", max_retries=0)
        asked = {"model": "bytes", "messages": MESSAGES, "stream": stream}
        with pytest.raises(openai.APITimeoutError):
            client.with_options(timeout=1).chat.completions.create(**asked)
        held.open.set()
        until = time.monotonic() + 30
        while not counted(address) and time.monotonic() < until:
            time.sleep(0.01)
        assert counted(address) == {"499": 1}


def test_what_was_answered_is_counted(server_model, serve):
    with serve(server_model) as address:
        client = openai.OpenAI(base_url=f"{address}/v1", api_key="none", max_retries=0)
        answer = client.chat.completions.create(model="bytes", messages=MESSAGES, max_tokens=7)
        refusal(client, temperature=-1)
        lines = counters(address)
    written = answer.usage.completion_tokens
    assert lines["structspec_output_tokens_total"] == written
    assert lines['structspec_requests_total{kind="chat",status="200"}'] == 1
    assert lines['structspec_requests_total{kind="chat",status="400"}'] == 1
    assert lines['structspec_request_seconds_count{kind="chat"}'] == 1


def test_a_web_page_may_ask_if_its_origin_is_allowed(server_model, serve):
    with serve(server_model, Settings(origins=("https://example.org",))) as address:
        for origin, expected in (
            ("https://example.org", "https://example.org"),
            ("https://a.b", None),
        ):
            request = urllib.request.Request(f"{address}/v1/models", headers={"Origin": origin})
            with urllib.request.urlopen(request) as answer:
                assert answer.headers["Access-Control-Allow-Origin"] == expected
