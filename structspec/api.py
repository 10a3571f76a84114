"""The few names that most people use: `generate` and the `structured` decorator.

Both are thin: they compile the type, encode the prompt, call `decoding.loop.decode` and parse the
text. Texts are written in canonical spelling and conventional whitespace unless asked otherwise,
since every further spelling splits the model's mass and hides forced text.

Example::

    @structspec.structured(model="default")
    def person(text: str) -> Person:
        '''Extract the person from this text: {{ text }}'''

    person("Ada Lovelace, 36")           # a Person
    person.spec.grammar.report           # what was compiled
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import json
import threading
import typing
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MethodType
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from structspec.errors import MissingExtra, PromptError, SchemaError, ValueRejected
from structspec.grammar import Grammar
from structspec.grammar import compile as compile_grammar

if TYPE_CHECKING:
    from structspec.decoding.output import Stats
    from structspec.decoding.warp import Sampling
    from structspec.drafting import DraftSource
    from structspec.models import Model

__all__ = ["Result", "StructuredFunction", "StructuredSpec", "generate", "structured"]

Messages = Sequence[Mapping[str, Any]]
T = TypeVar("T")

#: How `generate` spells, where the caller does not say.
_SPELLING = {"spelling": "canonical", "whitespace": "conventional"}
_COMPILE_OPTIONS = frozenset(inspect.signature(compile_grammar).parameters) - {"source"}
_KEPT_GRAMMARS = 256


@dataclass(frozen=True)
class Result(Generic[T]):
    """One generated value.

    value: the parsed value (an instance of the type, or plain JSON data for a schema).
    text: exactly what was written. tokens: the ids. stats: counts and times, see `Stats`.
    finish_reason: "stop", "stop_string" or "length" (the text is complete in every case).
    seed: reproduces the result together with the same arguments.
    """

    value: T
    text: str
    tokens: tuple[int, ...]
    stats: Stats
    finish_reason: str
    seed: int
    grammar: Grammar = field(repr=False, compare=False)


def generate(
    model: Any,
    prompt: str | Messages | Sequence[int],
    output_type: Any,
    *,
    draft: DraftSource | str | None = "auto",
    verifier: str = "block",
    max_tokens: int | None = None,
    sampling: Sampling | None = None,
    temperature: float | None = None,
    top_k: int | None = None,
    top_p: float | None = None,
    min_p: float | None = None,
    seed: int | None = None,
    stop: str | bytes | Sequence[str | bytes] = (),
    chat: bool | None = None,
    continue_final_message: bool = False,
    tools: Sequence[Mapping[str, Any]] | None = None,
    template_arguments: Mapping[str, Any] | None = None,
    on_token: Callable[[int, bytes], object] | None = None,
    **options: Any,
) -> Result[Any]:
    """Let a model write one value of a type.

    model: a `structspec.Model`, a name or path for `structspec.load`, or a (model, tokenizer)
        pair of transformers.
    prompt: text, chat messages, or token ids. Text becomes a user message if the model has a
        chat template (`chat=False` continues it as raw text instead).
    output_type: a pydantic model, dataclass, TypedDict, Enum, Literal, union, list, …, a JSON
        Schema (dict or text), or a compiled `Grammar`.
    draft: "auto" (forced spans and prompt look-up), "forced", "lookup", None (plain decoding),
        or a draft source. The law of the output does not depend on it.
    verifier: "block" or "token"; temperature 0 is verified greedily.
    max_tokens: the text is complete within this many tokens, or refused before the first one.
        None: 1,024, or what the context window leaves.
    sampling: all sampling settings; temperature, top_k, top_p, min_p override single ones.
        Without any of them: temperature 1.
    seed: an int from 0 on for reproducible output; None takes that of `sampling` if given, else
        draws a fresh one (`Result.seed` tells it).
    stop: strings that end the text at the first token behind them where it is complete; nothing
        is cut off.
    continue_final_message: write behind the last message instead of opening a new turn. The
        answer is still a whole value: a message that already holds its beginning is not part
        of it.
    tools, template_arguments: passed to the chat template.
    on_token: called with (id, bytes) for every token as soon as it is certain.
    options: any option of `structspec.compile`; spelling and whitespace default to "canonical"
        and "conventional" here.

    Raises the errors of `compile` and of `decoding.loop.decode`, and `ValueRejected` if a
    validator of the type refuses the finished value.
    """
    _require_torch()
    from structspec.decoding.healing import heal
    from structspec.decoding.loop import decode
    from structspec.decoding.prompt import encode_prompt
    from structspec.decoding.warp import Sampling

    grammar = _grammar(output_type, options)
    target = _model(model)
    settings = sampling or Sampling()
    given: dict[str, Any] = {
        "temperature": temperature,
        "top_k": top_k,
        "top_p": top_p,
        "min_p": min_p,
    }
    settings = replace(settings, **{k: v for k, v in given.items() if v is not None})
    if seed is not None and (isinstance(seed, bool) or not isinstance(seed, int) or seed < 0):
        raise ValueError(f"seed must be an int from 0 on, or None for a fresh one, not {seed!r}")
    if seed is None and sampling is None:
        seed = -1  # fresh
    encoded = encode_prompt(
        target,
        _as_messages(target, prompt, chat),
        tools=tools,
        continue_final_message=continue_final_message,
        **(template_arguments or {}),
    )
    ids: Sequence[int] = encoded.ids
    constraint: Any = grammar.bind(target.vocab)
    if encoded.open:
        ids, constraint = heal(encoded.ids, constraint)
    output = decode(
        target,
        ids,
        constraint,
        sampling=settings,
        draft=draft,
        verifier=verifier,
        max_tokens=max_tokens,
        stop=stop,
        seed=seed,
        on_token=on_token,
    )
    text = output.text.decode("utf-8")
    result = Result(
        None, text, output.tokens, output.stats, output.finish_reason, output.seed, grammar
    )
    return replace(result, value=_value(grammar, text, result))


def _value(grammar: Grammar, text: str, result: Result[Any]) -> Any:
    """Parse the finished text; it fits the grammar, so only further checks can refuse it."""
    spec = grammar.spec
    if spec is None:
        return text
    repeated: list[str] = []
    data = json.loads(text, object_pairs_hook=functools.partial(_distinct, repeated))
    # Two things that a grammar does not express: keywords dropped on request, and that a text
    # which repeats an undeclared key has fewer members than it seems.
    if grammar.report.with_status("widened") or repeated:
        import jsonschema

        error = jsonschema.exceptions.best_match(
            jsonschema.validators.validator_for(spec.schema)(spec.schema).iter_errors(data)
        )
        if error is not None:
            raise ValueRejected(
                "the finished value breaks a keyword "
                + (f"(the key {repeated[0]!r} is repeated)" if repeated else "compiled loosely")
                + f": {error.message} at '{error.json_path}'",
                text=text,
                result=replace(result, value=data),
            )
    try:
        return spec.parse(data)
    except ValueError as error:  # pydantic's ValidationError is one
        raise ValueRejected(
            f"the type {spec.name} refused the finished value: {error}",
            text=text,
            result=replace(result, value=data),
        ) from error


def _distinct(repeated: list[str], pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value: dict[str, Any] = {}
    for key, item in pairs:
        if key in value:
            repeated.append(key)
        value[key] = item
    return value


def _as_messages(model: Model, prompt: Any, chat: bool | None) -> Any:
    if isinstance(prompt, str) and not prompt.strip():
        raise PromptError("the prompt is empty; say what to write")
    if isinstance(prompt, str):
        try:
            prompt.encode()
        except UnicodeEncodeError as error:
            raise PromptError(
                f"the prompt holds half of a surrogate pair at position {error.start}"
            ) from error
    if not isinstance(prompt, str):
        if chat is not None:
            raise PromptError("chat= says how to read a text prompt; this prompt is not a text")
        return prompt
    if chat is None:
        chat = bool(getattr(model.tokenizer, "chat_template", None))
    return [{"role": "user", "content": prompt}] if chat else prompt


def _require_torch() -> None:
    for package in ("torch", "transformers"):
        try:
            __import__(package)
        except ImportError as error:
            raise MissingExtra(package, "models") from error


@functools.lru_cache(maxsize=4)
def _loaded(name: str) -> Model:
    from structspec.models import load

    return load(name)


def _model(model: Any) -> Model:
    from structspec.models import Model

    if isinstance(model, str):
        return _loaded(model)
    if isinstance(model, tuple) and len(model) == 2:
        return Model.wrap(*model)
    if isinstance(model, Model):
        return model
    return Model.wrap(model, getattr(model, "tokenizer", None))


_grammars: OrderedDict[Any, Grammar] = OrderedDict()
_grammars_lock = threading.Lock()


def _grammar(output_type: Any, options: Mapping[str, Any]) -> Grammar:
    """Compile once per (type, options); the most recent ones are kept."""
    unknown = sorted(set(options) - _COMPILE_OPTIONS)
    if unknown:
        raise TypeError(f"unknown argument(s): {', '.join(unknown)}")
    if isinstance(output_type, Grammar):
        if options:
            raise SchemaError(
                f"a compiled grammar takes no compile options, got {', '.join(sorted(options))}"
            )
        return output_type
    options = {**_SPELLING, **options}
    try:
        key: Any = (_key(output_type), tuple(sorted((k, _key(v)) for k, v in options.items())))
        hash(key)
    except TypeError:
        return compile_grammar(output_type, **options)
    with _grammars_lock:
        found = _grammars.get(key)
        if found is not None:
            _grammars.move_to_end(key)
            return found
    grammar = compile_grammar(output_type, **options)
    with _grammars_lock:
        _grammars[key] = grammar
        while len(_grammars) > _KEPT_GRAMMARS:
            _grammars.popitem(last=False)
    return grammar


def _key(value: Any) -> Any:
    # Schemas are unhashable; their text says the same. 1 and 1.0 and true differ as text.
    if isinstance(value, dict | list):
        return ("json", json.dumps(value))
    return (type(value), value)


# -- the decorator -------------------------------------------------------------------------


@dataclass(frozen=True)
class StructuredSpec:
    """What a decorated function was read as, once, at definition."""

    name: str
    template: str
    output_type: Any
    options: Mapping[str, Any]

    @property
    def grammar(self) -> Grammar:
        """The compiled return type."""
        compile_options = {k: v for k, v in self.options.items() if k in _COMPILE_OPTIONS}
        return _grammar(self.output_type, compile_options)

    def prompt(self, arguments: Mapping[str, Any]) -> str:
        """The prompt for one call: the template (Jinja) with the function's arguments."""
        from jinja2 import StrictUndefined, TemplateError
        from jinja2.sandbox import SandboxedEnvironment

        environment = SandboxedEnvironment(undefined=StrictUndefined, autoescape=False)
        try:
            return environment.from_string(self.template).render(dict(arguments))
        except TemplateError as error:
            raise PromptError(f"the docstring of {self.name}() as a template: {error}") from error


class StructuredFunction(Generic[T]):
    """A decorated function: calling it returns the value, `result(...)` the whole `Result`."""

    def __init__(self, function: Callable[..., Any], model: Any, spec: StructuredSpec) -> None:
        functools.update_wrapper(self, function)
        self.spec = spec
        self._signature = inspect.signature(function)
        self._model = model

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        """Bind to an instance, so that methods can be decorated."""
        return self if instance is None else MethodType(self, instance)

    def __call__(self, *args: Any, **kwargs: Any) -> T:
        """Generate and return the value."""
        return self.result(*args, **kwargs).value

    def result(self, *args: Any, **kwargs: Any) -> Result[T]:
        """Generate and return the value with its text, tokens and statistics."""
        bound = self._signature.bind(*args, **kwargs)
        bound.apply_defaults()
        prompt = self.spec.prompt(bound.arguments)
        return generate(self._model, prompt, self.spec.output_type, **self.spec.options)


def structured(model: Any = "default", **options: Any) -> Callable[[Callable[..., T]], Any]:
    """Turn a function into one that a model answers.

    The docstring is the prompt, a Jinja template over the function's arguments
    (`{{ argument }}`); the return annotation is the type of the answer; the body is never run.
    `model` and `options` are those of `generate`. An `async def` is answered in a worker thread.

    The decorated function has `spec` (what was read: template, type, grammar) and `result(...)`.
    Raises `SchemaError` at definition if the docstring or the return annotation is missing.
    """
    if callable(model) and inspect.isfunction(model):
        raise SchemaError(
            f"write @structspec.structured() with parentheses above {model.__name__}()"
        )

    def decorate(function: Callable[..., T]) -> Any:
        name = function.__name__
        template = inspect.getdoc(function)
        if not template:
            raise SchemaError(f"{name}() has no docstring; the docstring is the prompt template")
        hints = typing.get_type_hints(function, include_extras=True)
        if "return" not in hints:
            raise SchemaError(f"{name}() has no return annotation; it is the type of the answer")
        spec = StructuredSpec(name, template, hints["return"], dict(options))
        wrapper: StructuredFunction[T] = StructuredFunction(function, model, spec)
        if not inspect.iscoroutinefunction(function):
            return wrapper

        @functools.wraps(function)
        async def answer(*args: Any, **kwargs: Any) -> T:
            return await asyncio.to_thread(wrapper, *args, **kwargs)

        async def result(*args: Any, **kwargs: Any) -> Result[T]:
            return await asyncio.to_thread(wrapper.result, *args, **kwargs)

        answer.spec = spec  # type: ignore[attr-defined]
        answer.result = result  # type: ignore[attr-defined]
        return answer

    return decorate
