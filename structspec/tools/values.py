"""JSON values of replies: reading them exactly, writing them back, judging arguments.

Stricter than `json` where JSON is (no NaN, no halves of surrogate pairs), more generous where
Python is not (whole numbers of any length, numbers beyond the range of floats).

Example::

    >>> json_value('[1, "a"]'), json_text({"a": None})
    ([1, 'a'], '{"a": null}')
"""

from __future__ import annotations

import json
import re
from decimal import Decimal
from functools import lru_cache
from typing import Any

from structspec.errors import ToolCallError
from structspec.tools.toolset import ToolSet

__all__ = ["check_arguments", "json_text", "json_value"]

_STRING_OR_INFINITY = re.compile(r'"(?:[^"\\]|\\.)*"|Infinity')


def json_value(text: str) -> Any:
    """The value of a JSON text. Raises ValueError if it is none."""
    value = json.loads(text, parse_constant=_no_constant, parse_int=_whole)
    _check_texts(value)
    return value


def _no_constant(text: str) -> Any:
    raise ValueError(f"{text} is no JSON")


def _whole(text: str) -> int:
    try:
        return int(text)
    except ValueError:  # longer than what Python converts by default
        return int(Decimal(text))


def _check_texts(value: Any) -> None:
    stack = [value]
    while stack:
        top = stack.pop()
        if isinstance(top, str):
            top.encode()  # half of a surrogate pair is no text
        elif isinstance(top, list):
            stack.extend(top)
        elif isinstance(top, dict):
            stack.extend(top)
            stack.extend(top.values())


def json_text(value: Any) -> str:
    """The JSON text of a value."""
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False)
    except ValueError:  # a number beyond the range of floats is still a number in JSON
        return _STRING_OR_INFINITY.sub(_number, json.dumps(value, ensure_ascii=False))


def _number(found: re.Match[str]) -> str:
    return "1e999" if found[0] == "Infinity" else found[0]


def check_arguments(name: str, arguments: Any, raw: str, tools: ToolSet) -> None:
    """Judge arguments by their tool's schema. Raises ToolCallError if they break it."""
    tool = tools[name]
    validator = _validator(json.dumps(tool.schema(), sort_keys=True, default=repr))
    error = next(iter(sorted(validator.iter_errors(arguments), key=str)), None)
    if error is not None:
        raise ToolCallError(
            f"the arguments of '{name}' break the schema: {error.message} at '{error.json_path}'",
            text=raw,
        )


@lru_cache(maxsize=256)
def _validator(text: str) -> Any:
    import jsonschema

    schema = json.loads(text)
    return jsonschema.validators.validator_for(schema, jsonschema.Draft202012Validator)(schema)
