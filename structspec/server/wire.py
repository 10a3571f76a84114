"""What clients may send: OpenAI's requests, with the fields of other servers for grammars.

Owns the shape of requests. Fields that cannot change the answer are taken and forgotten (`_IDLE`);
fields that would change it and that this server does not know are refused by name. What a request
means is `plan`'s.

Sibling: `replies` has what goes back.

Example::

    >>> ChatRequest.model_validate({"messages": [{"role": "user", "content": "Hi"}]}).max_tokens
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

__all__ = [
    "SAMPLING",
    "ChatRequest",
    "Common",
    "CompletionRequest",
    "ResponseFormat",
    "Strict",
    "StructuredOutputs",
    "without_idle",
]

#: Fields of many clients that have no bearing on what is written.
_IDLE = frozenset(
    {
        "cache_prompt",
        "chat_id",
        "guided_decoding_backend",
        "keep_alive",
        "metadata",
        "prediction",  # guesses speed up; what they say mostly stands in the prompt, too
        "prompt_cache_key",
        "prompt_cache_options",
        "prompt_cache_retention",
        "request_id",
        "safety_identifier",
        "service_tier",
        "session_id",
        "store",
        "user",
        "verbosity",
    }
)
#: Fields that this server does not have, and what they hold where they are off.
_OFF: dict[str, tuple[Any, ...]] = {
    "add_generation_prompt": (True,),
    "best_of": (1,),
    "continue_final_message": (False,),
    "echo": (False,),
    "function_call": ("auto", "none"),
    "functions": ([],),
    "ignore_eos": (False,),
    "include_stop_str_in_output": (False,),
    "length_penalty": (1,),
    "logprobs": (False,),
    "min_tokens": (0,),
    "priority": (0,),
    "seed": (-1,),
    "skip_special_tokens": (True,),
    "spaces_between_special_tokens": (True,),
    "stop_token_ids": ([],),
    "suffix": ("",),
    "top_k": (-1, 0),
    "use_beam_search": (False,),
}
#: Settings of sampling, by the names of `Sampling`.
SAMPLING = (
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "frequency_penalty",
    "presence_penalty",
    "repetition_penalty",
    "logit_bias",
)
#: How a grammar can be given; the names of other servers beside this one's.
_KINDS = ("json", "json_object", "regex", "choice", "grammar", "structural_tag")


class Strict(BaseModel):
    """A part of a request: unknown fields are refused."""

    model_config = ConfigDict(extra="forbid", strict=True)


class StreamOptions(Strict):
    """`include_usage`: whether a last piece tells what was counted."""

    include_usage: bool = False
    include_obfuscation: bool = False
    continuous_usage_stats: Literal[False] = False


class JsonSchema(Strict):
    """A schema with a name. `strict` false allows keywords to be dropped that cannot be held."""

    name: str = "answer"
    description: str | None = None
    schema_: Any = Field(default=None, alias="schema")
    strict: bool | None = None


class ResponseFormat(Strict):
    """OpenAI's: plain text, any JSON object, or a value of a schema."""

    type: Literal["text", "json_object", "json_schema"]
    json_schema: JsonSchema | None = None

    @model_validator(mode="before")
    @classmethod
    def _lift(cls, values: Any) -> Any:
        """A schema beside the type, as other servers take it."""
        if isinstance(values, dict) and values.get("schema") is not None:
            rest = {k: v for k, v in values.items() if k not in ("schema", "type")}
            return {"type": "json_schema", "json_schema": {"schema": values["schema"]}, **rest}
        return values

    @model_validator(mode="after")
    def _has_schema(self) -> ResponseFormat:
        given = self.json_schema is not None and self.json_schema.schema_ is not None
        if given != (self.type == "json_schema"):
            raise ValueError(
                'type "json_schema" and a "json_schema" with a "schema" go together, and no other'
            )
        return self


class StructuredOutputs(Strict):
    """vLLM's `structured_outputs`: exactly one way to say what may be written.

    grammar: text in llama.cpp's notation (GBNF), or in Lark's with `syntax` "lark".
    """

    json_: Any = Field(default=None, alias="json")
    json_object: bool | None = None
    regex: str | None = None
    choice: list[str] | None = Field(default=None, min_length=1)
    grammar: str | None = None
    structural_tag: Any = None
    syntax: Literal["gbnf", "lark"] = "gbnf"

    @model_validator(mode="after")
    def _is_one(self) -> StructuredOutputs:
        given = [name for name, _ in self.given()]
        if len(given) != 1:
            raise ValueError(
                f"give exactly one of {', '.join(_KINDS)}, not {' and '.join(given) or 'none'}"
            )
        return self

    def given(self) -> list[tuple[str, Any]]:
        """What was given, by name."""
        values = {
            "json": self.json_,
            "json_object": self.json_object or None,
            "regex": self.regex,
            "choice": self.choice,
            "grammar": self.grammar,
            "structural_tag": self.structural_tag,
        }
        return [(name, value) for name, value in values.items() if value is not None]


def without_idle(values: Any, more: frozenset[str] = frozenset()) -> Any:
    """The fields of a request that may matter; null is as good as left out."""
    if not isinstance(values, dict):
        return values
    return {
        name: value
        for name, value in values.items()
        if value is not None and name not in _IDLE | more and not _is_off(name, value)
    }


def _is_off(name: str, value: Any) -> bool:
    return any(type(value) is type(off) and value == off for off in _OFF.get(name, ())) or (
        name == "length_penalty" and value == 1.0
    )


Tokens: TypeAlias = Annotated[int, Field(ge=1, le=10_000_000)]
"""A budget. More than any model writes is surely a mistake."""
TokenId: TypeAlias = Annotated[int, Field(strict=False)]
"""The key of an object, so a number in quotes."""
Penalty: TypeAlias = Annotated[float, Field(ge=-100, le=100)]
"""What is added to logits; it must leave something to sample."""


class Common(Strict):
    """What requests for chats and for completions share."""

    model: str | None = None
    stream: bool = False
    stream_options: StreamOptions | None = None
    max_tokens: Tokens | None = None
    temperature: Annotated[float, Field(ge=0, le=100)] | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    frequency_penalty: Penalty | None = None
    presence_penalty: Penalty | None = None
    repetition_penalty: Annotated[float, Field(ge=0.01, le=100)] | None = None
    logit_bias: dict[TokenId, Penalty] | None = None
    n: Annotated[int, Field(ge=1, le=128)] | None = None
    seed: Annotated[int, Field(ge=0)] | None = None
    stop: str | list[str] | None = None
    structured_outputs: StructuredOutputs | None = None

    @model_validator(mode="before")
    @classmethod
    def _translate(cls, values: Any) -> Any:
        """Forget idle fields and nulls; vLLM's older `guided_...` become `structured_outputs`."""
        kept = without_idle(values)
        if not isinstance(kept, dict):
            return kept
        guided = {kind: kept.pop(f"guided_{kind}") for kind in _KINDS if f"guided_{kind}" in kept}
        if guided:
            if "structured_outputs" in kept:
                raise ValueError("give either structured_outputs or guided_..., not both")
            kept["structured_outputs"] = guided
        return kept

    @field_validator("stop")
    @classmethod
    def _says_something(cls, stop: str | list[str] | None) -> str | list[str] | None:
        if stop is not None and not all([stop] if isinstance(stop, str) else stop):
            raise ValueError("a stop string is empty; it would end every text at once")
        return stop

    @property
    def has_grammar(self) -> bool:
        """Whether a grammar of the request's own may have to be compiled."""
        return self.structured_outputs is not None

    @property
    def stops(self) -> tuple[str, ...]:
        """The stop strings."""
        if self.stop is None:
            return ()
        return (self.stop,) if isinstance(self.stop, str) else tuple(self.stop)


#: Tokens beside each written one whose probability can be asked for, as at OpenAI.
_MOST_ALTERNATIVES = 20


class Reasoning(Strict):
    """Whether to reason first, as several servers ask for it."""

    enabled: bool | None = None
    effort: str | None = None
    summary: str | None = None
    generate_summary: str | None = None


class ChatRequest(Common):
    """`POST /v1/chat/completions`."""

    messages: list[dict[str, Any]] = Field(min_length=1)
    max_completion_tokens: Tokens | None = None
    response_format: ResponseFormat | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    logprobs: bool = False
    top_logprobs: Annotated[int, Field(ge=0, le=_MOST_ALTERNATIVES)] = 0
    modalities: list[Literal["text"]] | None = None
    reasoning: bool | Reasoning | None = None
    reasoning_effort: str | None = None
    chat_template_kwargs: dict[str, Any] | None = None

    @model_validator(mode="after")
    def _agrees(self) -> ChatRequest:
        if self.response_format is not None and self.response_format.type == "text":
            self.response_format = None
        if self.response_format is not None and self.structured_outputs is not None:
            raise ValueError("give either response_format or structured_outputs, not both")
        if self.tool_choice not in (None, "none", "auto") and not self.tools:
            raise ValueError(f"tool_choice {self.tool_choice!r} needs tools")
        if self.top_logprobs and not self.logprobs:
            raise ValueError("top_logprobs need logprobs to be true")
        return self

    @property
    def budget(self) -> int | None:
        """Tokens that may be written."""
        return self.max_completion_tokens or self.max_tokens

    @property
    def alternatives(self) -> int | None:
        """Likely tokens to tell beside each written one; None: no log-probabilities at all."""
        return self.top_logprobs if self.logprobs else None

    @property
    def effort(self) -> str | None:
        """How long to reason, in words that the chat template knows."""
        inner = self.reasoning.effort if isinstance(self.reasoning, Reasoning) else None
        return self.reasoning_effort or inner

    @property
    def reasons(self) -> bool | None:
        """Whether to reason first; None: as the model likes."""
        if self.effort == "none":
            return False
        asked = self.reasoning
        return asked.enabled if isinstance(asked, Reasoning) else asked

    @property
    def template_arguments(self) -> dict[str, Any]:
        """What the chat template gets beside the messages."""
        effort = {} if self.effort is None else {"reasoning_effort": self.effort}
        return {**effort, **(self.chat_template_kwargs or {})}

    @property
    def has_grammar(self) -> bool:
        """Whether a grammar of the request's own may have to be compiled."""
        return super().has_grammar or bool(self.tools) or self.response_format is not None

    @property
    def choice(self) -> Any:
        """`tool_choice` as `call_tools` takes it."""
        choice = "auto" if self.tool_choice is None else self.tool_choice
        if isinstance(choice, dict) and choice.get("type") == "allowed_tools":
            inner = choice.get("allowed_tools")
            return inner.get("mode", "auto") if isinstance(inner, dict) else choice
        return choice

    @property
    def allowed_tools(self) -> list[dict[str, Any]]:
        """The tools that may be called."""
        tools, choice = self.tools or [], self.tool_choice
        if isinstance(choice, dict) and choice.get("type") == "allowed_tools":
            names = {_name_of(tool) for tool in choice.get("allowed_tools", {}).get("tools", [])}
            return [tool for tool in tools if _name_of(tool) in names]
        return tools


def _name_of(tool: Any) -> Any:
    inner = tool.get("function", tool) if isinstance(tool, dict) else None
    return inner.get("name") if isinstance(inner, dict) else None


class CompletionRequest(Common):
    """`POST /v1/completions`: a raw text, or token ids, to be continued."""

    prompt: str | list[int] | list[str] | list[Annotated[list[int], Field(min_length=1)]] = Field(
        min_length=1
    )
    logprobs: Annotated[int, Field(ge=0, le=_MOST_ALTERNATIVES)] | None = None
    response_format: ResponseFormat | None = None

    @model_validator(mode="after")
    def _agrees(self) -> CompletionRequest:
        if self.response_format is not None and self.response_format.type == "text":
            self.response_format = None
        if self.response_format is not None and self.structured_outputs is not None:
            raise ValueError("give either response_format or structured_outputs, not both")
        return self

    @property
    def budget(self) -> int | None:
        """Tokens that may be written."""
        return self.max_tokens

    @property
    def alternatives(self) -> int | None:
        """Likely tokens to tell beside each written one; None: no log-probabilities at all."""
        return self.logprobs

    @property
    def has_grammar(self) -> bool:
        """Whether a grammar of the request's own may have to be compiled."""
        return super().has_grammar or self.response_format is not None

    @property
    def prompts(self) -> list[str | list[int]]:
        """The prompts, one or several."""
        several = isinstance(self.prompt, list) and not isinstance(self.prompt[0], int)
        return list(self.prompt) if several else [self.prompt]  # type: ignore[list-item,arg-type]
