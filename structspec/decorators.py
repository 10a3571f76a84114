"""`structured`: a decorator that turns a function into one that a model answers.

Owns the reading of a function's definition, once: its docstring is the prompt template, its return
annotation the type of the answer, its body is never run.

Cost: at definition, nothing is compiled; the first call compiles the type.

Sibling: `api.generate`, which every call is.

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
import threading
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from types import MethodType
from typing import Any, Generic, SupportsIndex, TypeVar

from structspec import api
from structspec.api import Result
from structspec.by_name import named
from structspec.errors import PromptError, SchemaError
from structspec.grammar import Grammar
from structspec.kept_grammars import COMPILE_OPTIONS, compiled

__all__ = ["StructuredFunction", "StructuredSpec", "structured"]

T = TypeVar("T")
#: Arguments of `generate` that a decorated function has of its own.
_OWN = frozenset({"model", "prompt", "output_type", "options"})


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
        compile_options = {k: v for k, v in self.options.items() if k in COMPILE_OPTIONS}
        return compiled(self.output_type, compile_options)

    def prompt(self, arguments: Mapping[str, Any]) -> str:
        """The prompt for one call: the template (Jinja) with the function's arguments."""
        from jinja2 import TemplateError

        try:
            return _environment().from_string(self.template).render(dict(arguments))
        except TemplateError as error:
            raise PromptError(f"the docstring of {self.name}() as a template: {error}") from error


class StructuredFunction(Generic[T]):
    """A decorated function: calling it returns the value, `result(...)` the whole `Result`."""

    def __init__(self, function: Callable[..., Any], model: Any, spec: StructuredSpec) -> None:
        functools.update_wrapper(self, function)
        self.spec = spec
        self._function = function
        self._signature = inspect.signature(function)
        self._model = model

    def __reduce_ex__(self, protocol: SupportsIndex) -> Any:
        return named(self, self._function) or super().__reduce_ex__(protocol)

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        """Bind to an instance, so that methods can be decorated."""
        return self if instance is None else MethodType(self, instance)

    def __call__(self, *args: Any, **kwargs: Any) -> T:
        """Generate and return the value."""
        return self.result(*args, **kwargs).value

    def result(self, *args: Any, **kwargs: Any) -> Result[T]:
        """Generate and return the value with its text, tokens and statistics."""
        return self._answer(args, kwargs, self.spec.options)

    def _answer(
        self, args: tuple[Any, ...], kwargs: Mapping[str, Any], options: Mapping[str, Any]
    ) -> Result[T]:
        bound = self._signature.bind(*args, **kwargs)
        bound.apply_defaults()
        prompt = self.spec.prompt(bound.arguments)
        return api.generate(self._model, prompt, self.spec.output_type, **options)

    async def _awaited(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Result[T]:
        """Generate in a worker thread; a task that is cancelled stops it at the next token."""
        options, told = self.spec.options, self.spec.options.get("on_token")
        stopped = threading.Event()

        def on_token(token: int, data: bytes) -> None:
            if stopped.is_set():
                raise _Cancelled
            if told is not None:
                told(token, data)

        # `generate` refuses it where it asks for several values, and what cannot be called
        if options.get("n") is None and (told is None or callable(told)):
            options = {**options, "on_token": on_token}
        try:
            return await asyncio.to_thread(self._answer, args, kwargs, options)
        except asyncio.CancelledError:
            stopped.set()  # a thread cannot be cancelled
            raise


class _Cancelled(Exception):
    """Nobody awaits the answer any more; only the worker thread sees this."""


def structured(model: Any = "default", **options: Any) -> Callable[[Callable[..., T]], Any]:
    """Turn a function into one that a model answers.

    The docstring is the prompt, a Jinja template over the function's arguments
    (`{{ argument }}`); the return annotation is the type of the answer; the body is never run.
    `model` and `options` are those of `generate`. An `async def` is answered in a worker thread;
    if the task that awaits it is cancelled or timed out, the model stops at the next token.

    The decorated function has `spec` (what was read: template, type, grammar) and `result(...)`.
    Raises, at definition, `SchemaError` if the docstring or the return annotation is missing,
    `PromptError` if the docstring is no template or uses a name that is no parameter, and
    TypeError for unknown options.
    """
    if callable(model) and inspect.isfunction(model):
        raise SchemaError(
            f"write @structspec.structured() with parentheses above {model.__name__}()"
        )

    known = [*inspect.signature(api.generate).parameters, *COMPILE_OPTIONS]
    for option in options:
        if option not in known or option in _OWN:
            near = get_close_matches(option, known, 1)
            meant = f"; did you mean {near[0]}?" if near and near[0] not in _OWN else ""
            raise TypeError(f"structured() has no option {option!r}{meant}")

    def decorate(function: Callable[..., T]) -> Any:
        name = getattr(function, "__name__", None)
        if not callable(function) or name is None:
            raise SchemaError(f"structured() decorates a function, not {function!r:.60}")
        template = inspect.getdoc(function)
        if not template:
            raise SchemaError(f"{name}() has no docstring; the docstring is the prompt template")
        try:
            hints = typing.get_type_hints(function, include_extras=True)
        except (NameError, TypeError) as error:
            raise SchemaError(
                f"the annotations of {name}() cannot be read: {error}; annotations that are text "
                "must name types of the module"
            ) from None
        if "return" not in hints:
            raise SchemaError(f"{name}() has no return annotation; it is the type of the answer")
        _check_template(name, template, inspect.signature(function).parameters)
        spec = StructuredSpec(name, template, hints["return"], dict(options))
        wrapper: StructuredFunction[T] = StructuredFunction(function, model, spec)
        if not inspect.iscoroutinefunction(function):
            return wrapper

        @functools.wraps(function)
        async def answer(*args: Any, **kwargs: Any) -> T:
            return (await wrapper._awaited(args, kwargs)).value

        async def result(*args: Any, **kwargs: Any) -> Result[T]:
            return await wrapper._awaited(args, kwargs)

        answer.spec = spec  # type: ignore[attr-defined]
        answer.result = result  # type: ignore[attr-defined]
        return answer

    return decorate


def _environment() -> Any:
    """What docstrings are templates of: a name that is missing is an error, not an empty text."""
    from jinja2 import StrictUndefined
    from jinja2.sandbox import SandboxedEnvironment

    return SandboxedEnvironment(undefined=StrictUndefined, autoescape=False)


def _check_template(name: str, template: str, parameters: Mapping[str, Any]) -> None:
    """Refuse, before the first call, a docstring that no call could fill in."""
    from jinja2 import TemplateSyntaxError, meta

    environment = _environment()
    try:
        used = meta.find_undeclared_variables(environment.parse(template))
    except TemplateSyntaxError as error:
        raise PromptError(
            f"the docstring of {name}() is no template: line {error.lineno}: {error.message}"
        ) from error
    unknown = sorted(used - set(parameters) - set(environment.globals))
    if unknown:
        raise PromptError(
            f"the docstring of {name}() uses {', '.join(unknown)}, which is no parameter of it; "
            f"its parameters are: {', '.join(parameters) or 'none'}"
        )
