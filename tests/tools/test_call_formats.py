"""Call formats: what the grammar allows is what the reader reads, for each family.

Texts are drawn at random from the grammar, conversations come from the families' own descriptions,
and single changes to a reply are judged alike by grammar and reader where the format is exact.
"""

from __future__ import annotations

import json
import random

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import structspec
from structspec import ToolSet, ir
from structspec.tools import FORMATS, Marking, find_format, read_prefix, read_reply, render_calls
from structspec.tools.grammar import reply_grammar
from structspec.tools.layout import EndMark, Mark

LIBERAL = {"spelling": "any", "whitespace": "flexible", "key_order": "any"}
NAMES = sorted(FORMATS)


def marks_of(form):
    reasoning = form.reasoning
    blocks = [form.before, form.call, form.between, form.after]
    blocks += [reasoning.begin, reasoning.end] if reasoning else []
    blocks += form.answer or ()
    return {p.text for block in blocks for p in block if isinstance(p, Mark | EndMark)}


def special(form):
    """The format's markers as special tokens, those that end a reply as end tokens."""
    ends = {p.text for p in form.call if isinstance(p, EndMark)}
    if form.answer:
        ends |= {p.text for p in form.answer[1] if isinstance(p, EndMark)}
    return Marking(frozenset(marks_of(form) - ends), frozenset(ends))


# -- conversations: replies as the families' own sources write them -------------------------------

CALL = ("get_weather", {"city": "Paris"})
OTHER = ("get_time", {})
REPLIES = [
    # the chat template of Qwen3: a line break between calls, nothing behind the last one
    (
        "hermes",
        '<think>\nParis, then.\n</think>\n\n<tool_call>\n{"name": "get_weather", "arguments": '
        '{"city": "Paris"}}\n</tool_call>\n<tool_call>\n{"name": "get_time", "arguments": {}}\n'
        "</tool_call>",
        [CALL, OTHER],
    ),
    (
        "hermes",
        'Let me see.\n<tool_call>\n{"name": "get_time", "arguments": {}}\n</tool_call>',
        [OTHER],
    ),
    # the chat template of Llama-3.2-3B-Instruct
    ("llama3", '{"name": "get_weather", "parameters": {"city": "Paris"}}', [CALL]),
    # mistral_common, tokenizer version 3: json.dumps of the list, ids of nine signs
    (
        "mistral",
        '[TOOL_CALLS][{"name": "get_weather", "arguments": {"city": "Paris"}, "id": "VvvODy9mT"}]',
        [CALL],
    ),
    # the same, version 11 without ids and version 13
    ("mistral_args", '[TOOL_CALLS]get_weather[ARGS]{"city": "Paris"}', [CALL]),
    (
        "mistral_args",
        '[TOOL_CALLS]get_weather[ARGS]{"city": "Paris"}[TOOL_CALLS]get_time[ARGS]{}',
        [CALL, OTHER],
    ),
    # the chat template of DeepSeek-V3
    (
        "deepseek",
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>get_weather\n```json\n"
        '{"city": "Paris"}\n```<｜tool▁call▁end｜>\n'
        "<｜tool▁call▁begin｜>function<｜tool▁sep｜>get_time"
        "\n```json\n{}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
        [CALL, OTHER],
    ),
    # vLLM's granite parser
    ("granite", '<|tool_call|>[{"name": "get_weather", "arguments": {"city": "Paris"}}]', [CALL]),
    # llguidance's docs/toolcalls.md
    (
        "phi4",
        '<|tool_call|>[{"name": "get_weather", "arguments": {"city": "Paris"}}, '
        '{"name": "get_time", "arguments": {}}]<|/tool_call|>',
        [CALL, OTHER],
    ),
    ("phi4_functools", 'functools[{"name": "get_time", "arguments": {}}]', [OTHER]),
    # the tool_use template of c4ai-command-r7b-12-2024
    (
        "command_r",
        "<|START_THINKING|>I will look it up.<|END_THINKING|><|START_ACTION|>[\n"
        '    {"tool_call_id": "0", "tool_name": "get_weather", "parameters": {"city": "Paris"}},\n'
        '    {"tool_call_id": "1", "tool_name": "get_time", "parameters": {}}\n]<|END_ACTION|>',
        [CALL, OTHER],
    ),
    # the tool_use template of c4ai-command-r-plus
    (
        "command_r_plus",
        'Action:\n```json\n[\n    {\n        "tool_name": "get_weather",\n        "parameters": {\n'
        '            "city": "Paris"\n        }\n    }\n]\n```',
        [CALL],
    ),
    # Google's guide for Gemma
    ("pythonic", '[get_weather(city="Paris"), get_time()]', [CALL, OTHER]),
    # the OpenAI cookbook's article, with this tool
    (
        "harmony",
        "<|channel|>analysis<|message|>Need to use function get_weather.<|end|><|start|>assistant"
        "<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>"
        '{"city":"Paris"}<|call|>',
        [CALL],
    ),
]


@pytest.mark.parametrize(("name", "reply", "calls"), REPLIES)
def test_replies_of_the_families_are_allowed_and_read(tools, name, reply, calls):
    form = find_format(name)
    grammar = reply_grammar(form, tools, thinking="optional", **LIBERAL)
    assert grammar.accepts(reply)
    read = read_reply(form, [reply], tools)
    assert [(c.name, c.arguments) for c in read.calls] == calls


@pytest.mark.parametrize("name", NAMES)
def test_every_format_has_a_conversation(name):
    assert any(name == n for n, _, _ in REPLIES)


@pytest.mark.parametrize("name", NAMES)
def test_rendered_calls_are_what_the_grammar_writes(tools, name):
    form = find_format(name)
    calls = [("get_weather", {"city": "Köln", "days": 3, "wind": None}, ""), ("get_time", {}, "")]
    if not form.parallel:
        calls = calls[:1]
    text = render_calls(form, calls)
    assert reply_grammar(form, tools, choice="required").accepts(text), text
    read = read_reply(form, [text], tools)
    assert [(c.name, c.arguments, "") for c in read.calls] == calls


# -- random replies -------------------------------------------------------------------------------

CHOICES = ["auto", "required", "none", "get_weather"]


@pytest.mark.parametrize("policies", [{}, LIBERAL], ids=["canonical", "any spelling"])
@pytest.mark.parametrize("marked", [False, True], ids=["text", "special tokens"])
@pytest.mark.parametrize("name", NAMES)
def test_any_reply_of_the_grammar_is_read_and_its_arguments_are_valid(
    tools, draw, name, marked, policies
):
    form = find_format(name)
    marking = special(form) if marked else Marking()
    rng = random.Random(f"{name}{marked}{policies}")
    for choice in CHOICES:
        options = {"choice": choice, "thinking": "optional", "marking": marking}
        grammar = reply_grammar(form, tools, **options, **policies)
        for _ in range(2):
            parts = draw(grammar, rng)
            read = read_reply(form, parts, tools, marking=marking, validate=False)
            for call in read.calls:
                schema = tools[call.name].parameters
                jsonschema.validate(call.arguments, schema, jsonschema.Draft202012Validator)
                assert json.loads(call.raw) == call.arguments
            if choice == "none":
                assert not read.calls
            if choice in ("required", "get_weather"):
                assert read.calls
            if choice == "get_weather":
                assert [c.name for c in read.calls] == ["get_weather"]


@pytest.mark.parametrize("name", NAMES)
def test_parallel_calls_can_be_bounded(tools, draw, name):
    form = find_format(name)
    rng = random.Random(name)
    for parallel, most in ((False, 1), (2, 2)):
        grammar = reply_grammar(form, tools, choice="required", parallel=parallel)
        for _ in range(3):
            read = read_reply(form, draw(grammar, rng, 120), tools)
            assert 1 <= len(read.calls) <= (most if form.parallel else 1)
    two = [("get_time", {}, "")] * 2
    if form.parallel:
        assert reply_grammar(form, tools, choice="required").accepts(render_calls(form, two))
        for parallel, allowed in ((False, False), (2, True), (1, False)):
            grammar = reply_grammar(form, tools, choice="required", parallel=parallel)
            assert grammar.accepts(render_calls(form, two)) == allowed


# -- changed replies ------------------------------------------------------------------------------

EXACT = [name for name in NAMES if name != "pythonic"]
SIGNS = ['"', "{", "}", "[", "]", ",", ":", " ", "\n", "1", "x", "-", ".", "e", "\\", "<", "`", "n"]


def verdicts(form, grammar, tools, parts, marking):
    try:
        read_reply(form, parts, tools, marking=marking)
        read = True
    except structspec.ToolCallError:
        read = False
    return grammar.accepts_parts(parts), read


@st.composite
def changes(draw):
    """Where to change a reply (a fraction of its length), how, and with what."""
    return (
        draw(st.floats(0, 1, exclude_max=True)),
        draw(st.sampled_from(["insert", "delete", "replace", "swap", "cut", "double"])),
        draw(st.sampled_from(SIGNS)),
    )


def changed(parts, change):
    """The reply with one change, symbol by symbol; a special token is one symbol."""
    where, how, sign = change
    symbols = []
    for part in parts:
        symbols += [part] if isinstance(part, ir.Special) else list(part)
    at = int(where * len(symbols))
    if how == "insert":
        symbols.insert(at, sign)
    elif how == "cut":
        del symbols[at:]
    elif symbols:
        if how == "delete":
            del symbols[at]
        elif how == "replace":
            symbols[at] = sign
        elif how == "double":
            symbols.insert(at, symbols[at])
        elif at + 1 < len(symbols):
            symbols[at], symbols[at + 1] = symbols[at + 1], symbols[at]
    return symbols


@pytest.mark.parametrize("name", EXACT)
@settings(max_examples=12, deadline=None)
@given(change=changes(), seed=st.integers(0, 9), marked=st.booleans())
def test_grammar_and_reader_agree_on_changed_replies(tools, draw, name, change, seed, marked):
    form = find_format(name)
    marking = special(form) if marked else Marking()
    grammar = _liberal(form, tools, marking)
    parts = draw(grammar, random.Random(seed), 90)
    text = [p.decode() if isinstance(p, bytes) else p for p in parts]
    mutated = changed(text, change)
    allowed, read = verdicts(form, grammar, tools, mutated, marking)
    assert allowed == read, "".join(map(str, mutated))


_grammars: dict = {}


def _liberal(form, tools, marking):
    key = (form.name, marking)
    if key not in _grammars:
        options = {"thinking": "optional", "marking": marking, **LIBERAL}
        _grammars[key] = reply_grammar(form, tools, **options)
    return _grammars[key]


@pytest.mark.full
@pytest.mark.parametrize("name", EXACT)
@settings(max_examples=600, deadline=None)
@given(change=changes(), seed=st.integers(0, 99), marked=st.booleans())
def test_grammar_and_reader_agree_on_many_changed_replies(tools, draw, name, change, seed, marked):
    form = find_format(name)
    marking = special(form) if marked else Marking()
    grammar = _liberal(form, tools, marking)
    parts = draw(grammar, random.Random(seed), 150)
    text = [p.decode() if isinstance(p, bytes) else p for p in parts]
    mutated = changed(text, change)
    allowed, read = verdicts(form, grammar, tools, mutated, marking)
    assert allowed == read, "".join(map(str, mutated))


def _judge_pythonic(tools, draw, change, seed, longest):
    form = find_format("pythonic")
    grammar = _liberal(form, tools, Marking())
    parts = [p.decode() for p in draw(grammar, random.Random(seed), longest)]
    allowed, read = verdicts(form, grammar, tools, changed(parts, change), Marking())
    assert read or not allowed


@settings(max_examples=12, deadline=None)
@given(change=changes(), seed=st.integers(0, 9))
def test_what_the_reader_refuses_of_changed_pythonic_replies_the_grammar_refuses(
    tools, draw, change, seed
):
    _judge_pythonic(tools, draw, change, seed, 90)


@pytest.mark.full
@settings(max_examples=600, deadline=None)
@given(change=changes(), seed=st.integers(0, 99))
def test_what_the_reader_refuses_of_many_changed_pythonic_replies_the_grammar_refuses(
    tools, draw, change, seed
):
    _judge_pythonic(tools, draw, change, seed, 150)


# -- markers --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [n for n in NAMES if marks_of(FORMATS[n])])
def test_markers_and_text_that_looks_like_them_are_kept_apart(tools, draw, name):
    form = find_format(name)
    marking = special(form)
    grammar = reply_grammar(form, tools, choice="required", marking=marking)
    parts = draw(grammar, random.Random(1))
    assert any(isinstance(p, ir.Special) for p in parts)
    assert read_reply(form, parts, tools, marking=marking).calls
    as_text = "".join(p.name if isinstance(p, ir.Special) else p.decode() for p in parts)
    assert not grammar.accepts(as_text)
    if form.answer is None:  # as text it is an answer, and no call
        auto = reply_grammar(form, tools, marking=marking)
        assert auto.accepts(as_text)
        assert read_reply(form, [as_text], tools, marking=marking).calls == []


def test_an_end_token_of_the_vocabulary_is_left_to_decoding(tools):
    form = find_format("harmony")
    reply = [
        ir.Special("<|channel|>"),
        "commentary to=functions.get_time ",
        ir.Special("<|constrain|>"),
        "json",
        ir.Special("<|message|>"),
        "{}",
    ]
    marking = special(form)
    assert reply_grammar(form, tools, marking=marking).accepts_parts(reply)
    assert read_reply(form, reply, tools, marking=marking).calls[0].name == "get_time"
    closed = [*reply, ir.Special("<|call|>")]
    assert read_reply(form, closed, tools, marking=marking).calls[0].name == "get_time"


# -- errors and prefixes --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reply", "message"),
    [
        ('<tool_call>\n{"name": "nope", "arguments": {}}\n</tool_call>', "no tool 'nope'"),
        ('<tool_call>\n{"name": "get_time"}\n</tool_call>', "no 'arguments'"),
        ('<tool_call>\n{"name": "get_time", "arguments": {}, "x": 1}\n</tool_call>', "keys"),
        ('<tool_call>\n{"name": "get_time", "arguments": []}\n</tool_call>', "object"),
        ('<tool_call>\n{"name": "get_time", "arguments": {}}', "ends in the middle"),
        ('<tool_call>\n{"name": "get_time", "arguments": {}}\n</tool_call> ok', "may follow"),
        ('<tool_call>\n{"name": "get_weather", "arguments": {}}\n</tool_call>', "required"),
        ('<tool_call>{"name": "get_time", "arguments": {"a": NaN}}</tool_call>', "JSON"),
        ("text <think>late</think>", "reasoning"),
        (b"\xff", "UTF-8"),
    ],
)
def test_broken_replies_are_typed_errors_that_say_what_is_wrong(tools, reply, message):
    with pytest.raises(structspec.ToolCallError, match=message):
        read_reply(find_format("hermes"), [reply], tools)


@pytest.mark.parametrize("name", NAMES)
def test_a_prefix_of_a_reply_is_read_without_error_and_only_grows(tools, draw, name):
    form = find_format(name)
    grammar = reply_grammar(form, tools, thinking="optional")
    rng = random.Random(name)
    for _ in range(3):
        whole = b"".join(draw(grammar, rng, 120))
        final = read_reply(form, [whole], tools)
        text, raws = "", []
        for end in range(len(whole) + 1):
            read = read_prefix(form, [whole[:end]], tools)
            assert read.text.startswith(text) and final.text.startswith(read.text)
            for before, now in zip(raws, read.calls, strict=False):
                assert now.raw.startswith(before)
            assert len(read.calls) >= len(raws)
            text, raws = read.text, [call.raw for call in read.calls]
        assert [c.raw for c in final.calls][: len(raws)] == raws


def test_numbers_longer_than_python_converts_and_beyond_floats_are_read():
    tools = ToolSet([{"name": "f", "parameters": {"type": "object"}}])
    digits = "9" * 5000
    for number in (digits, "1e999", "-1e999"):
        reply = f'{{"name": "f", "parameters": {{"x": {number}}}}}'
        assert read_reply(find_format("llama3"), [reply], tools).calls[0].raw.endswith("}")


def test_a_number_beyond_floats_leaves_the_texts_beside_it_alone():
    tools = ToolSet([{"name": "f", "parameters": {"type": "object"}}])
    reply = """[f(x={"a": 1e999, "b": "Infinity", "Infinity": -1e999, "c": "\\"Infinity"})]"""
    raw = read_reply(find_format("pythonic"), [reply], tools).calls[0].raw
    assert raw == '{"x": {"a": 1e999, "b": "Infinity", "Infinity": -1e999, "c": "\\"Infinity"}}'


# -- tools that a format cannot write -------------------------------------------------------------


@pytest.mark.parametrize(
    ("tool", "keyword"),
    [
        ({"name": "a-b", "parameters": {"type": "object"}}, "a-b"),
        ({"name": "f", "parameters": {"properties": {"from": {}}}}, "properties"),
        (
            {"name": "f", "parameters": {"patternProperties": {"^a": {"type": "null"}}}},
            "patternProperties",
        ),
    ],
)
def test_the_pythonic_format_refuses_by_name_what_python_cannot_write(tool, keyword):
    with pytest.raises(structspec.UnsupportedFeature) as caught:
        reply_grammar(find_format("pythonic"), ToolSet([tool]))
    assert caught.value.keyword == keyword


def test_an_unsupported_keyword_is_refused_for_strict_and_dropped_for_other_tools():
    schema = {"type": "object", "properties": {"a": {"pattern": "(a)\\1", "type": "string"}}}
    with pytest.raises(structspec.UnsupportedFeature, match="pattern"):
        reply_grammar(find_format("hermes"), ToolSet([{"name": "f", "parameters": schema}]))
    loose = ToolSet([{"name": "f", "parameters": schema, "strict": False}])
    grammar = reply_grammar(find_format("hermes"), loose)
    assert [entry.keyword for entry in grammar.report.widened] == ["pattern"]
    reply = '<tool_call>\n{"name": "f", "arguments": {"a": "b"}}\n</tool_call>'
    assert grammar.accepts(reply)
    with pytest.raises(structspec.ToolCallError, match="break the schema"):
        read_reply(find_format("hermes"), [reply], loose)


def test_strict_tools_take_declared_arguments_only_and_others_take_more():
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    reply = '{"name": "f", "parameters": {"a": 1, "b": 2}}'
    for strict in (True, False):
        tools = ToolSet([{"name": "f", "parameters": schema}], strict=strict)
        grammar = reply_grammar(find_format("llama3"), tools)
        assert grammar.accepts(reply) != strict


@pytest.mark.parametrize("choice", ["nope", {"function": {}}, 7, {"type": "function"}])
def test_choices_that_name_no_tool_are_typed_errors(tools, choice):
    with pytest.raises(structspec.ToolError):
        reply_grammar(find_format("hermes"), tools, choice=choice)


def test_choices_are_read_in_all_their_forms(tools):
    form = find_format("llama3")
    named = {"type": "function", "function": {"name": "get_time"}}
    for choice in ("get_time", named, named["function"], tools["get_time"]):
        grammar = reply_grammar(form, tools, choice=choice)
        assert grammar.accepts('{"name": "get_time", "parameters": {}}')
        assert not grammar.accepts('{"name": "get_weather", "parameters": {"city": "a"}}')
    with pytest.raises(structspec.ToolError, match="at least one"):
        reply_grammar(form, ToolSet(), choice="required")
    with pytest.raises(structspec.ToolError, match="parallel"):
        reply_grammar(form, tools, parallel=0)
    with pytest.raises(structspec.ToolError, match="there are: harmony"):
        find_format("nope")
