"""`ToolSet`: the tools of one request, by name.

Invariants: names are unique; the order is kept, and with it the order in prompts and grammars.

Example::

    >>> from structspec.tools.definition import tool
    >>> @tool
    ... def now() -> str:
    ...     '''The time.'''
    ...     return "12:00"
    >>> tools = ToolSet([now, {"name": "ping", "parameters": {"type": "object"}}])
    >>> tools.names, tools["now"].run({})
    (('now', 'ping'), '12:00')
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

from structspec.errors import ToolError
from structspec.tools.definition import Tool

__all__ = ["ToolSet"]


class ToolSet(Sequence[Tool]):
    """Tools from `Tool`s, functions, OpenAI-form dicts and MCP tools, in any mixture.

    strict: overrides what the single tools say. Raises ToolError for what is no tool, and for two
    tools of one name.
    """

    def __init__(self, tools: Iterable[Any] = (), *, strict: bool | None = None) -> None:
        if isinstance(tools, Mapping):
            raise ToolError("pass a list of tools; for a tools/list result use ToolSet.from_mcp")
        if not isinstance(tools, Iterable) or isinstance(tools, str | bytes):
            raise ToolError(
                f"this {type(tools).__name__} is no set of tools; give a list of functions, tools, "
                "dicts in OpenAI's form or tools of a Model Context Protocol server"
            )
        found: dict[str, Tool] = {}
        for entry in tools:
            made = _tool(entry)
            if strict is not None:
                made = replace(made, strict=strict)
            if made.name in found:
                raise ToolError(f"two tools are named '{made.name}'; rename one", name=made.name)
            found[made.name] = made
        self._tools = found

    @classmethod
    def of(cls, tools: Any) -> ToolSet:
        """`tools` as a set: a set as it is, a single tool or function, or many."""
        if isinstance(tools, ToolSet):
            return tools
        if isinstance(tools, Tool) or callable(tools):
            return cls([tools])
        return cls(tools)

    @classmethod
    def from_openai(
        cls, tools: Iterable[Mapping[str, Any]], *, strict: bool | None = None
    ) -> ToolSet:
        """From the `tools` of an OpenAI request."""
        return cls([Tool.from_openai(entry, strict=strict) for entry in tools])

    @classmethod
    def from_mcp(
        cls,
        result: Any,
        *,
        call: Callable[[str, dict[str, Any]], Any] | None = None,
        strict: bool | None = None,
    ) -> ToolSet:
        """From a `tools/list` result: the object, its JSON, or the list in it.

        call: `call(name, arguments)`, sync or async, runs a tool on the server.
        """
        listed = result
        if isinstance(result, Mapping):
            listed = result.get("tools")
        elif not isinstance(result, Iterable) or hasattr(result, "tools"):
            listed = getattr(result, "tools", None)
        if listed is None or isinstance(listed, str | bytes):
            raise ToolError(
                f'this {type(result).__name__} is no tools/list result: its list "tools" is missing'
            )
        return cls([Tool.from_mcp(entry, call=call, strict=strict) for entry in listed])

    @property
    def names(self) -> tuple[str, ...]:
        """The names in order."""
        return tuple(self._tools)

    @cached_property
    def fingerprint(self) -> str:
        """What the grammar depends on, as text."""
        return json.dumps([[t.name, t.strict, t.parameters] for t in self], default=repr)

    def to_openai(self) -> list[dict[str, Any]]:
        """The `tools` of an OpenAI request."""
        return [tool.to_openai() for tool in self]

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, str):
            try:
                return self._tools[key]
            except KeyError:
                known = ", ".join(self._tools) or "none"
                raise ToolError(f"there is no tool '{key}'; there are: {known}", name=key) from None
        return list(self._tools.values())[key]

    def __contains__(self, key: object) -> bool:
        return key in self._tools if isinstance(key, str) else key in self._tools.values()

    def __iter__(self) -> Iterator[Tool]:
        return iter(self._tools.values())

    def __len__(self) -> int:
        return len(self._tools)

    def __repr__(self) -> str:
        return f"ToolSet({', '.join(self._tools)})"


def _tool(entry: Any) -> Tool:
    if isinstance(entry, Tool):
        return entry
    if isinstance(entry, Mapping):
        if "inputSchema" in entry:
            return Tool.from_mcp(entry)
        return Tool.from_openai(entry)
    if hasattr(entry, "inputSchema"):
        return Tool.from_mcp(entry)
    if callable(entry):
        return Tool.from_function(entry)
    raise ToolError(
        f"this {type(entry).__name__} is no tool; pass functions, Tools, dicts in OpenAI's form, "
        "or tools of an MCP server"
    )
