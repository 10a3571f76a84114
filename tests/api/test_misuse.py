"""What people do wrong: every mistake is named, with the value and the remedy, where it is made."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import structspec
from structspec.errors import (
    ModelError,
    PromptError,
    SchemaError,
    StaleState,
    ToolCallError,
    ToolError,
    VocabularyError,
)

BYTES = structspec.Vocabulary([*(bytes((b,)) for b in range(256)), None], [256])


@pytest.fixture(scope="module")
def numbers() -> Any:
    return structspec.compile({"type": "integer"}).bind(BYTES)


@pytest.fixture(scope="module")
def sets() -> Any:
    """A constraint whose states hold a history: its own `advance`, `mask` and `fill`."""
    schema = {"type": "array", "items": {"type": "string"}, "uniqueItems": True}
    return structspec.compile(schema).bind(BYTES)


@pytest.mark.parametrize(
    ("source", "remedy"),
    [
        ("schema.json", "No file is read"),
        ('root ::= "a"', "need syntax="),
        (Path("schema.json"), ".read_text()"),
        (b'{"type": "integer"}', '.decode("utf-8")'),
    ],
)
def test_what_is_no_schema_says_how_to_pass_one(source: Any, remedy: str) -> None:
    with pytest.raises(SchemaError) as caught:
        structspec.compile(source)
    assert remedy in str(caught.value)


def test_a_wrong_type_is_told_once_with_the_known_ones() -> None:
    with pytest.raises(SchemaError) as caught:
        structspec.compile({"type": "intger"})
    assert str(caught.value).count("intger") == 1 and "integer" in str(caught.value)
    with pytest.raises(SchemaError, match=r"'strng' cannot stand in it$"):
        structspec.compile({"type": ["string", "strng"]})


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"syntax": "gbnf", "start": 5}, "start=5 is not the name of a rule"),
        ({"assert_formats": "yes"}, "assert_formats='yes' is not True or False"),
        ({"limits": 5}, "limits must be structspec.Limits"),
        ({"syntax": "regexp"}, "'regexp' is not one of"),
    ],
)
def test_options_of_the_wrong_kind_are_named(options: dict[str, Any], said: str) -> None:
    with pytest.raises(SchemaError) as caught:
        structspec.compile('root ::= "a"', **options)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("make", "kind", "said"),
    [
        (lambda: structspec.Limits(time=-1), ValueError, "time=-1"),
        (lambda: structspec.Limits(time=float("nan")), ValueError, "time=nan"),
        (lambda: structspec.Limits(states="x"), TypeError, "states=...) takes a number, not 'x'"),
        (lambda: structspec.Limits(memory=1.5), TypeError, "memory"),
        (lambda: structspec.ConstraintCache(-1), ValueError, "max_bytes is -1"),
        (lambda: structspec.ConstraintCache("1"), TypeError, "max_bytes is '1'"),
        (lambda: structspec.set_threads("two"), TypeError, "threads is 'two'"),
        (lambda: structspec.set_threads(0), ValueError, "threads is 0"),
        (lambda: structspec.Sampling(temperature="hot"), TypeError, "temperature='hot'"),
        (lambda: structspec.Sampling(temperature=-1), ValueError, "temperature=-1"),
        (lambda: structspec.Sampling(repetition_penalty="x"), TypeError, "repetition_penalty='x'"),
        (lambda: structspec.Sampling(top_p=True), TypeError, "top_p=True"),
        (lambda: structspec.Vocabulary(5), VocabularyError, "tokens is of type int"),
        (lambda: structspec.Vocabulary(b"ab"), VocabularyError, "tokens is of type bytes"),
        (lambda: structspec.Grammar.from_bytes("text"), TypeError, "are bytes, not str"),
    ],
)
def test_settings_out_of_range_are_told_where_they_are_given(
    make: Callable[[], Any], kind: type[Exception], said: str
) -> None:
    pytest.importorskip("torch")
    with pytest.raises(kind) as caught:
        make()
    assert said in str(caught.value)


def test_binding_to_what_is_no_vocabulary_says_how_to_make_one() -> None:
    for wrong in (None, "gpt2"):
        with pytest.raises(TypeError, match=r"Vocabulary\.from_tokenizer"):
            structspec.compile({"type": "integer"}).bind(wrong)  # type: ignore[arg-type]


def test_sampling_needs_a_grammar_and_a_count() -> None:
    from structspec.sampling import sample

    with pytest.raises(TypeError, match=r"structspec\.compile"):
        sample({"type": "integer"}, 1)  # type: ignore[arg-type]
    for count in ("3", -1, True):
        with pytest.raises(ValueError, match="number of texts"):
            sample(structspec.compile({"type": "integer"}), count)  # type: ignore[arg-type]


@pytest.mark.parametrize("which", ["numbers", "sets"])
def test_states_and_tokens_are_integers_of_any_kind(
    which: str, request: pytest.FixtureRequest
) -> None:
    """A token out of numpy or torch works; text and floats are told, not compiled for."""
    c = request.getfixturevalue(which)
    token = int(c.allowed(c.start)[-1])
    expected = c.advance(c.start, token)
    for kind in (np.int64, np.int32, np.uint16):
        assert c.advance(c.start, kind(token)) == expected
        assert c.advance(kind(c.start), token) == expected
        assert np.array_equal(c.mask(np.int64(expected)), c.mask(expected))
    for wrong in ("1", 49.0, None):
        with pytest.raises(TypeError, match=r"token is .* pass an int"):
            c.advance(c.start, wrong)
        with pytest.raises(TypeError, match=r"state is .* pass an int"):
            c.advance(wrong, token)
        with pytest.raises(TypeError, match=r"state is .* pass an int"):
            c.mask(wrong)
    with pytest.raises(TypeError, match="left is 'a'"):
        c.mask(c.start, "a")


def test_a_token_of_torch_is_taken(numbers: Any) -> None:
    torch = pytest.importorskip("torch")
    token = torch.zeros(256).index_fill(0, torch.tensor(49), 1.0).argmax()
    assert numbers.advance(numbers.start, token) == numbers.advance(numbers.start, 49)


@pytest.mark.parametrize("which", ["numbers", "sets"])
def test_rows_go_only_where_they_fit(which: str, request: pytest.FixtureRequest) -> None:
    c = request.getfixturevalue(which)
    for wrong in ([[0] * 9], np.zeros((1, 9), np.int64), np.zeros((1, 9), np.float32)):
        with pytest.raises(TypeError, match="array of uint32"):
            c.fill([c.start], wrong)
    for shape in ((1, 8), (0, 9), (9,)):
        with pytest.raises(ValueError, match=r"take \(1, 9\)"):
            c.fill([c.start], np.zeros(shape, np.uint32))
    with pytest.raises(ValueError, match="left holds 2 for 1"):
        c.fill([c.start], np.zeros((1, 9), np.uint32), left=[1, 2])


def test_a_state_of_another_cache_is_told(numbers: Any) -> None:
    with pytest.raises(StaleState, match="of another constraint or cache"):
        numbers.mask(99_999)


def test_a_keyword_with_letters_swapped_is_asked_about() -> None:
    report = structspec.compile({"type": "string", "minLenght": 3}).report
    assert "did you mean 'minLength'?" in str(report)


# -- tools -------------------------------------------------------------------------------------


def _yields(x: int) -> Iterator[int]:
    yield x


async def _yields_later(x: int) -> AsyncIterator[int]:
    yield x


def test_a_generator_function_is_no_tool() -> None:
    for function in (_yields, _yields_later):
        with pytest.raises(ToolError, match="generator function") as caught:
            structspec.tool(function)
        assert caught.value.name == function.__name__


def test_what_is_no_function_is_no_tool() -> None:
    with pytest.raises(ToolError, match="a function, not from a str"):
        structspec.tool("search")  # type: ignore[call-overload]
    with pytest.raises(ToolError, match="this int is no tool"):
        structspec.ToolSet([5])


class _Opaque:
    pass


def test_a_parameter_without_a_schema_is_told_in_one_line() -> None:
    def look(at: _Opaque) -> str:
        return ""

    with pytest.raises(ToolError, match="annotate them with types that JSON can hold") as caught:
        structspec.tool(look)
    assert "\n" not in str(caught.value)


def test_an_async_tool_inside_a_loop_asks_for_arun_and_leaves_no_coroutine() -> None:
    @structspec.tool
    async def fetch(x: int) -> int:
        """One more."""
        return x + 1

    async def remote(name: str, arguments: dict[str, Any]) -> int:
        return arguments["x"] + 1

    entry = {"name": "far", "inputSchema": {"type": "object"}}
    tools = [fetch]
    tools += structspec.ToolSet.from_mcp([entry], call=remote)
    tools += structspec.ToolSet.from_mcp([entry], call=lambda n, a: remote(n, a))

    async def inside(tool: Any) -> None:
        with pytest.raises(ToolError, match=r"await \w+\.arun"):
            tool.run({"x": 1})
        assert await tool.arun({"x": 1}) == 2

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for tool in tools:
            assert tool.run({"x": 1}) == 2
            asyncio.run(inside(tool))


def test_arguments_that_are_no_object_are_told() -> None:
    @structspec.tool
    def add(x: int) -> int:
        """One more."""
        return x + 1

    for wrong, kind in (('{"x": 1}', "str"), (None, "NoneType"), ([1], "list")):
        with pytest.raises(ToolCallError, match=f"the arguments of 'add' are a {kind}"):
            add.run(wrong)


# -- decorated functions -------------------------------------------------------------------------


def test_a_docstring_that_no_call_could_fill_in_is_refused_at_definition() -> None:
    def typo(text: str) -> int:
        """Count the words of {{ txet }}."""

    def broken(text: str) -> int:
        """Count the words of {{ text."""

    with pytest.raises(PromptError, match="uses txet, which is no parameter of it"):
        structspec.structured()(typo)
    with pytest.raises(PromptError, match="no template"):
        structspec.structured()(broken)


def test_templates_may_set_names_and_use_those_of_jinja() -> None:
    def fine(words: list[str]) -> int:
        """{% set n = 2 %}{% for w in words %}{{ w }}{{ n }}{{ range(n) | length }}{% endfor %}"""

    assert structspec.structured()(fine).spec.prompt({"words": ["a"]}) == "a22"


def test_wrong_options_and_annotations_of_a_decorated_function_are_told() -> None:
    with pytest.raises(TypeError, match="did you mean temperature"):
        structspec.structured(temprature=1)
    with pytest.raises(TypeError, match="no option 'prompt'"):
        structspec.structured(prompt="x")
    with pytest.raises(SchemaError, match="decorates a function"):
        structspec.structured()(5)  # type: ignore[arg-type]

    def unknown(text: str) -> Nowhere:  # type: ignore[name-defined]  # noqa: F821
        """{{ text }}"""

    with pytest.raises(SchemaError, match="Nowhere"):
        structspec.structured()(unknown)


# -- models ------------------------------------------------------------------------------------


def test_settings_of_sampling_are_no_dict() -> None:
    pytest.importorskip("torch")
    with pytest.raises(TypeError, match=r"structspec\.Sampling"):
        structspec.stream("default", "x", int, sampling={"temperature": 1})  # type: ignore[arg-type]


def test_rooms_need_no_import_of_their_own() -> None:
    assert structspec.grammars.load("iso_date").accepts("2024-02-29")
    assert structspec.settings.threads() >= 1


@pytest.mark.parametrize("name", [None, 5, ""])
def test_what_names_no_model_is_told(name: Any) -> None:
    pytest.importorskip("torch")
    with pytest.raises(ModelError, match="is no model; pass a directory"):
        structspec.load(name)


def test_a_directory_that_is_no_model_names_what_it_lacks(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    (tmp_path / "small.gguf").write_bytes(b"GGUF")
    with pytest.raises(ModelError, match=r"no config\.json") as caught:
        structspec.load(tmp_path)
    assert "small.gguf" in str(caught.value)
