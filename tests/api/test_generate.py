"""`generate` and `structured` with the default model."""

import asyncio
import json
from dataclasses import dataclass
from enum import Enum
from typing import Annotated, Literal

import pytest
from pydantic import BaseModel, Field, field_validator
from typing_extensions import TypedDict

import structspec
from structspec import StructspecError


class Colour(Enum):
    red = "red"
    green = "green"


@dataclass
class Point:
    x: Annotated[int, Field(ge=0, le=9)]
    y: Annotated[int, Field(ge=0, le=9)]


class Pair(TypedDict):
    left: Colour
    right: Literal[1, 2]


class Box(BaseModel):
    colour: Colour
    corners: Annotated[list[Point], Field(min_length=2, max_length=2)]


PROMPT = "Answer with JSON."


@pytest.mark.model
@pytest.mark.parametrize(
    ("output_type", "check"),
    [
        (Box, lambda v: isinstance(v, Box) and isinstance(v.corners[0], Point)),
        (Point, lambda v: isinstance(v, Point) and 0 <= v.x <= 9),
        (Pair, lambda v: v["right"] in (1, 2)),
        (Colour, lambda v: isinstance(v, Colour)),
        (Literal["yes", "no"], lambda v: v in ("yes", "no")),
        (Point | Colour, lambda v: isinstance(v, (Point, Colour))),
        ({"type": "boolean"}, lambda v: v in (True, False)),
        ('{"enum": [3, 4]}', lambda v: v in (3, 4)),
    ],
)
def test_every_kind_of_type_gives_a_value_of_it(default_model, output_type, check):
    result = structspec.generate(
        default_model, PROMPT, output_type, max_tokens=64, temperature=1.0, seed=5
    )
    assert check(result.value), result
    assert result.stats.tokens == len(result.tokens)


@pytest.mark.model
def test_a_regular_expression_gives_its_text(default_model):
    grammar = structspec.compile(r"[A-Z]{3}-\d{2}", syntax="regex")
    result = structspec.generate(default_model, "A code:", grammar, temperature=0)
    assert result.value == result.text and grammar.accepts(result.text)


@pytest.mark.model
def test_the_same_seed_gives_the_same_text_and_reports_it(default_model):
    arguments = {"output_type": {"type": "string", "maxLength": 30}, "max_tokens": 24}
    first = structspec.generate(default_model, PROMPT, **arguments)
    again = structspec.generate(default_model, PROMPT, **arguments, seed=first.seed)
    assert first.tokens == again.tokens


@pytest.mark.model
def test_tokens_are_streamed_in_order(default_model):
    seen = []
    result = structspec.generate(
        default_model, PROMPT, Point, temperature=0, on_token=lambda t, b: seen.append((t, b))
    )
    assert tuple(t for t, _ in seen) == result.tokens
    assert b"".join(b for _, b in seen).decode() == result.text


@pytest.mark.model
def test_a_prefilled_answer_is_continued(default_model):
    messages = [
        {"role": "user", "content": "Where is Lyon? Answer with JSON."},
        {"role": "assistant", "content": "The answer is"},
    ]
    result = structspec.generate(
        default_model, messages, {"type": "string", "maxLength": 30}, max_tokens=40,
        temperature=0, continue_final_message=True,
    )  # fmt: skip
    assert isinstance(json.loads(result.text), str)


class Strict(BaseModel):
    n: Literal[1, 2, 3]

    @field_validator("n")
    @classmethod
    def never(cls, value):
        raise ValueError("no number is good enough")


@pytest.mark.model
def test_a_validator_that_refuses_keeps_the_text(default_model):
    with pytest.raises(structspec.ValueRejected, match="good enough") as caught:
        structspec.generate(default_model, PROMPT, Strict, temperature=0)
    assert json.loads(caught.value.text)["n"] in (1, 2, 3)
    assert isinstance(caught.value, StructspecError)


@pytest.mark.model
def test_a_decorated_function_returns_its_annotation(default_model):
    @structspec.structured(default_model, temperature=0, max_tokens=40)
    def corner(text: str, *, hint: str = "x and y") -> Point:
        """As JSON with {{ hint }}: {{ text }}"""

    assert isinstance(corner("x is 3 and y is 4"), Point)
    assert corner.result("x is 3 and y is 4").stats.forwards >= 1
    assert corner.__name__ == "corner"
    assert corner.spec.output_type is Point
    assert corner.spec.grammar.accepts('{"x": 3, "y": 4}')
    assert "x and y: a" in corner.spec.prompt({"text": "a", "hint": "x and y"})


@pytest.mark.model
def test_a_decorated_coroutine_is_awaited(default_model):
    @structspec.structured(default_model, temperature=0)
    async def colour(thing: str) -> Colour:
        """The colour of {{ thing }} as JSON."""

    assert isinstance(asyncio.run(colour("grass")), Colour)


def test_a_decorator_needs_docstring_annotation_and_parentheses():
    with pytest.raises(structspec.SchemaError, match="docstring"):

        @structspec.structured()
        def silent(x: str) -> int: ...

    with pytest.raises(structspec.SchemaError, match="return annotation"):

        @structspec.structured()
        def untyped(x: str):
            """{{ x }}"""

    with pytest.raises(structspec.SchemaError, match="parentheses"):

        @structspec.structured
        def bare(x: str) -> int:
            """{{ x }}"""


@pytest.mark.model
def test_bad_arguments_are_typed_errors(default_model):
    with pytest.raises(TypeError, match="tempreature"):
        structspec.generate(default_model, PROMPT, int, tempreature=1)
    with pytest.raises(structspec.PromptError):
        structspec.generate(default_model, [], int)
    with pytest.raises(structspec.PromptError, match="chat="):
        structspec.generate(default_model, [{"role": "user", "content": "x"}], int, chat=True)
    with pytest.raises(structspec.Unsatisfiable):
        structspec.generate(default_model, PROMPT, False)
    with pytest.raises(structspec.TokenBudgetError) as caught:
        structspec.generate(default_model, PROMPT, Box, max_tokens=3)
    assert caught.value.max_tokens == 3 and caught.value.needed > 3
    with pytest.raises(structspec.SchemaError):
        structspec.generate(default_model, PROMPT, {"type": "integer", "minimum": "x"})
    with pytest.raises(structspec.SchemaError, match="compile options"):
        structspec.generate(
            default_model, PROMPT, structspec.compile({"type": "integer"}), spelling="any"
        )


@pytest.mark.model
def test_finish_reason_tells_whether_the_budget_shaped_the_text(default_model):
    story = {"type": "object", "properties": {"s": {"type": "string"}}, "required": ["s"]}
    prompt = "Write a long story about the sea as JSON."
    short = structspec.generate(default_model, prompt, story, max_tokens=12, temperature=0)
    assert short.finish_reason == "length" and isinstance(short.value["s"], str)
    free = structspec.generate(default_model, prompt, Colour, max_tokens=40, temperature=0)
    assert free.finish_reason == "stop"


@pytest.mark.model
def test_bad_seeds_and_prompts_are_refused_before_the_model_runs(default_model):
    for seed in (-1, 1.5, "x", True):
        with pytest.raises(ValueError, match="seed"):
            structspec.generate(default_model, PROMPT, int, seed=seed)
    for prompt in ("", "  \n", "\ud800"):
        with pytest.raises(structspec.PromptError):
            structspec.generate(default_model, prompt, int)


@pytest.mark.model
def test_a_decorated_method_gets_its_instance(default_model):
    class Painter:
        @structspec.structured(default_model, temperature=0)
        def colour(self, thing: str) -> Colour:
            """The colour of {{ thing }} as JSON."""

    assert isinstance(Painter().colour("a leaf"), Colour)
