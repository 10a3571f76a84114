"""`Tool`: something that a model may call, with a name, a description and a schema.

Owns how tools are made: from a function (`tool`, pydantic writes the schema of its signature), from
the form of OpenAI's API, and from a tool of a Model Context Protocol server.

Strict and non-strict. A strict tool's grammar allows exactly what its schema allows, with records
closed that do not say whether they are open: an argument that the tool does not declare cannot be
written. A schema that cannot be compiled exactly is refused. A non-strict tool keeps its records
open, and keywords that cannot be compiled are dropped from the grammar and checked afterwards.

Invariants
- what a strict tool's grammar allows satisfies the schema as it was given;
- a name has 1 to 128 letters, digits, `_`, `-`, `.` or `/`.

Example::

    >>> @tool
    ... def add(a: int, b: int = 1) -> int:
    ...     '''Add two numbers.'''
    ...     return a + b
    >>> add(2), add.run({"a": 2, "b": 5}), add.parameters["required"]
    (3, 7, ['a'])
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import re
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, SupportsIndex, overload

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model
from pydantic.fields import FieldInfo

from structspec.by_name import named
from structspec.errors import SchemaError, ToolCallError, ToolError
from structspec.frontends.types import describe
from structspec.tools.docstrings import describe_docstring

__all__ = ["Tool", "closed_schema", "tool"]

_NAME = re.compile(r"[A-Za-z0-9_./-]{1,128}")
# Keywords beside which closing a record could cut what the schema allows elsewhere.
_OPEN_BESIDE = frozenset(
    {
        *("additionalProperties", "unevaluatedProperties", "patternProperties", "propertyNames"),
        *("$ref", "$dynamicRef", "$recursiveRef", "allOf", "anyOf", "oneOf", "not"),
        *("if", "then", "else", "dependentSchemas", "dependencies"),
    }
)


@dataclass(frozen=True)
class Tool:
    """One tool. `parameters` is the JSON Schema of its arguments, an object.

    function: what `run` calls, with keyword arguments; None for tools that live elsewhere.
    strict: see the module.
    """

    name: str
    description: str = ""
    parameters: Mapping[str, Any] = field(default_factory=lambda: {"type": "object"})
    function: Callable[..., Any] | None = field(default=None, compare=False)
    strict: bool = True
    arguments_model: type[BaseModel] | None = field(default=None, compare=False, repr=False)

    def __reduce_ex__(self, protocol: SupportsIndex) -> Any:
        return named(self, self.function) or super().__reduce_ex__(protocol)

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not _NAME.fullmatch(self.name):
            raise ToolError(
                f"the tool name {self.name!r} cannot be used; a name has 1 to 128 letters, digits, "
                "'_', '-', '.' or '/'",
                name=str(self.name),
            )
        if not isinstance(self.parameters, Mapping):
            raise ToolError(
                f"the parameters of tool '{self.name}' are a "
                f"{type(self.parameters).__name__}; pass a JSON Schema of an object",
                name=self.name,
            )
        kind = self.parameters.get("type", "object")
        if kind != "object" and not (isinstance(kind, list) and "object" in kind):
            raise ToolError(
                f"the parameters of tool '{self.name}' have the type {kind!r}; arguments are an "
                "object",
                name=self.name,
            )

    @classmethod
    def from_function(
        cls,
        function: Callable[..., Any],
        *,
        name: str | None = None,
        description: str | None = None,
        strict: bool = True,
    ) -> Tool:
        """A tool from a function's signature and docstring.

        A parameter without an annotation takes any JSON value.

        Raises ToolError for parameters that cannot be passed by name or have no JSON Schema, and
        for generator functions.
        """
        if not callable(function):
            raise ToolError(f"a tool is made from a function, not from a {type(function).__name__}")
        label = str(name or getattr(function, "__name__", ""))
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise ToolError(
                f"'{label}' is a generator function, and a tool returns its result at once; "
                "collect what it yields in a function of its own",
                name=label,
            )
        documented = describe_docstring(inspect.getdoc(function))
        model = _arguments_model(function, label, documented.arguments)
        try:
            schema = describe(model).schema
        except SchemaError as error:
            raise ToolError(f"the arguments of tool '{label}': {error}", name=label) from error
        assert isinstance(schema, dict)
        schema.pop("title", None)
        for member in schema.get("properties", {}).values():
            member.pop("title", None)  # pydantic titles every field after its name
        summary = documented.summary if description is None else description
        return cls(label, summary, schema, function, strict, model)

    @classmethod
    def from_openai(cls, entry: Mapping[str, Any], *, strict: bool | None = None) -> Tool:
        """A tool from `{"type": "function", "function": {...}}`, or from the inner object.

        strict: None takes the entry's own `strict`, and true where it has none.
        """
        if entry.get("type", "function") != "function":
            raise ToolError(
                f"a tool of type {entry['type']!r} is no function; only functions can be called"
            )
        inner = entry.get("function", entry)
        if not isinstance(inner, Mapping) or "name" not in inner:
            raise ToolError('a tool is {"type": "function", "function": {"name": …, …}}')
        own = inner.get("strict")
        chosen = strict if strict is not None else True if own is None else bool(own)
        parameters = inner.get("parameters") or {"type": "object", "properties": {}}
        return cls(inner["name"], inner.get("description") or "", parameters, None, chosen)

    @classmethod
    def from_mcp(
        cls,
        entry: Any,
        *,
        call: Callable[[str, dict[str, Any]], Any] | None = None,
        strict: bool | None = None,
    ) -> Tool:
        """A tool as a Model Context Protocol server lists it (a mapping or an object).

        call: `call(name, arguments)` runs it on the server, if given; it may be async.
        """
        read = entry.get if isinstance(entry, Mapping) else functools.partial(_attribute, entry)
        name, schema = read("name"), read("inputSchema")
        if not isinstance(name, str) or not isinstance(schema, Mapping):
            raise ToolError('a tool of an MCP server has "name" and "inputSchema"', name=name)
        function = None if call is None else _remote(call, name)
        text = read("description") or read("title") or ""
        return cls(name, text, schema, function, True if strict is None else strict)

    @property
    def is_async(self) -> bool:
        """Whether the function has to be awaited."""
        return inspect.iscoroutinefunction(self.function)

    def schema(self) -> dict[str, Any]:
        """The schema that the grammar is made from: closed if the tool is strict."""
        schema = {**self.parameters, "type": "object"}
        return closed_schema(schema) if self.strict else schema

    def to_openai(self) -> dict[str, Any]:
        """The tool in the form of OpenAI's API, which chat templates read."""
        return {
            "type": "function",
            "function": {
                "name": self.name,
                "description": self.description,
                "parameters": dict(self.parameters),
            },
        }

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function as if it were not decorated."""
        return self._function()(*args, **kwargs)

    def bind(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """The function's keyword arguments: validated, of the annotated types, defaults left out.

        Raises ToolCallError if the arguments do not fit.
        """
        if not isinstance(arguments, Mapping):
            raise ToolCallError(
                f"the arguments of '{self.name}' are a {type(arguments).__name__}; pass an object "
                "(a dict by name), such as the arguments of a ToolCall"
            )
        if self.arguments_model is None:
            return dict(arguments)
        try:
            values = self.arguments_model.model_validate(dict(arguments))
        except ValidationError as error:
            first = error.errors()[0]
            place = "".join(f"/{part}" for part in first["loc"])
            raise ToolCallError(
                f"the arguments of '{self.name}' do not fit: {first['msg']} at '{place}'"
            ) from error
        fields = self.arguments_model.model_fields
        return {
            info.alias or key: getattr(values, key)
            for key, info in fields.items()
            if key in values.model_fields_set
        }

    def run(self, arguments: Mapping[str, Any]) -> Any:
        """Call the function with a call's arguments; an async function is run to its end.

        Raises ToolCallError if the arguments do not fit, and ToolError if the tool has no function
        here, or an async one inside a running event loop: await `arun` there.
        """
        function, bound = self._function(), self.bind(arguments)
        if self.is_async:
            self._refuse_inside_loop()
        result = function(**bound)
        if not inspect.isawaitable(result):
            return result
        try:
            self._refuse_inside_loop()
        except ToolError:
            if inspect.iscoroutine(result):
                result.close()  # else Python warns that nobody awaited it
            raise

        async def wait() -> Any:
            return await result

        return asyncio.run(wait())

    async def arun(self, arguments: Mapping[str, Any]) -> Any:
        """As `run`; a function that is not async runs in a worker thread."""
        function, bound = self._function(), self.bind(arguments)
        if self.is_async:
            return await function(**bound)
        result = await asyncio.to_thread(function, **bound)
        return await result if inspect.isawaitable(result) else result

    def _refuse_inside_loop(self) -> None:
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return
        raise ToolError(
            f"tool '{self.name}' is async and an event loop is running here: write "
            f"await {self.name}.arun(arguments) instead of run",
            name=self.name,
        )

    def _function(self) -> Callable[..., Any]:
        if self.function is None:
            raise ToolError(f"tool '{self.name}' has no function to run here", name=self.name)
        return self.function


@overload
def tool(function: Callable[..., Any], /) -> Tool: ...


@overload
def tool(
    *, name: str | None = None, description: str | None = None, strict: bool = True
) -> Callable[[Callable[..., Any]], Tool]: ...


def tool(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    strict: bool = True,
) -> Tool | Callable[[Callable[..., Any]], Tool]:
    """Make a function a tool, with or without arguments: `@tool` or `@tool(name="…")`.

    The schema comes from the annotations (through pydantic), descriptions from the docstring in
    Google, NumPy or reST style. Sync and async functions. The tool is called like the function.
    """

    def decorate(inner: Callable[..., Any]) -> Tool:
        return Tool.from_function(inner, name=name, description=description, strict=strict)

    return decorate if function is None else decorate(function)


def closed_schema(schema: Mapping[str, Any]) -> dict[str, Any]:
    """`schema` with records closed that say nothing of further members, wherever that is safe.

    Safe are the places whose values the schema demands as they are: the root, properties, items,
    and branches of anyOf. What the result allows, the schema allows too.
    """
    closed = dict(schema)
    if isinstance(closed.get("properties"), Mapping):
        closed["properties"] = {n: _closed_part(s) for n, s in closed["properties"].items()}
    if isinstance(closed.get("items"), Mapping):
        closed["items"] = closed_schema(closed["items"])
    for key in ("anyOf", "prefixItems"):
        if isinstance(closed.get(key), list):
            closed[key] = [_closed_part(s) for s in closed[key]]
    if isinstance(closed.get("properties"), Mapping) and not _OPEN_BESIDE & set(closed):
        closed["additionalProperties"] = False
    return closed


def _closed_part(schema: Any) -> Any:
    return closed_schema(schema) if isinstance(schema, Mapping) else schema


def _arguments_model(
    function: Callable[..., Any], label: str, described: Mapping[str, str]
) -> type[BaseModel]:
    """A model with one aliased field per parameter, so that any parameter name is possible."""
    try:
        signature = inspect.signature(function)
        hints = typing.get_type_hints(function, include_extras=True)
    except (TypeError, ValueError, NameError) as error:
        raise ToolError(
            f"the signature of '{label}' cannot be read: {error}; annotations that are text must "
            "name types of the module",
            name=label,
        ) from None
    fields: dict[str, Any] = {}
    for index, parameter in enumerate(signature.parameters.values()):
        kinds = (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
        if parameter.kind not in kinds:
            raise ToolError(
                f"parameter '{parameter.name}' of tool '{label}' cannot be passed by name; a call "
                "names every argument",
                name=label,
            )
        default = ... if parameter.default is parameter.empty else parameter.default
        own = default if isinstance(default, FieldInfo) else None
        info: dict[str, Any] = {"alias": parameter.name}
        if parameter.name in described and not _has_description(hints.get(parameter.name), own):
            info["description"] = described[parameter.name]
        hint = hints.get(parameter.name, Any)
        if own is not None:  # pydantic merges what the annotation says with the default's part
            hint = Annotated[hint, own]
            if own.default_factory is not None:
                fields[f"p{index}"] = (hint, Field(default_factory=own.default_factory, **info))
                continue
            default = own.default
        fields[f"p{index}"] = (hint, Field(default, **info))
    try:
        return create_model(label or "arguments", __config__=ConfigDict(extra="forbid"), **fields)
    except Exception as error:  # pydantic raises many kinds for types that it cannot describe
        first = (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")
        raise ToolError(
            f"the arguments of tool '{label}' cannot be described: {first}; annotate them with "
            "types that JSON can hold",
            name=label,
        ) from error


def _has_description(hint: Any, default: FieldInfo | None) -> bool:
    infos = [m for m in getattr(hint, "__metadata__", ()) if isinstance(m, FieldInfo)]
    if default is not None:
        infos.append(default)
    return any(info.description for info in infos)


def _attribute(entry: Any, key: str) -> Any:
    return getattr(entry, key, None)


def _remote(call: Callable[[str, dict[str, Any]], Any], name: str) -> Callable[..., Any]:
    if inspect.iscoroutinefunction(call):

        async def run_async(**arguments: Any) -> Any:
            return await call(name, arguments)

        return run_async

    def run(**arguments: Any) -> Any:
        return call(name, arguments)

    return run
