"""`value_of`: the value of a finished text.

Owns the checks that a grammar does not express: keywords that were dropped on request, a text that
repeats an undeclared key and so has fewer members than it seems, and a type's own validators.

Siblings: `api` and `tools.calling`, which ask for it.

Example::

    >>> import structspec
    >>> value_of(structspec.compile({"type": "integer"}), "12")
    12
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from typing import Any

from structspec.errors import ValueRejected
from structspec.grammar import Grammar

__all__ = ["value_of"]


def value_of(
    grammar: Grammar, text: str, result: Callable[[Any], object] = lambda data: data
) -> Any:
    """The value of a text of the grammar: an instance of its type, JSON data, or the text itself.

    result: what an error carries, made of the JSON data.

    Raises ValueRejected where a further check refuses the value.
    """
    spec = grammar.spec
    if spec is None:
        return text
    repeated: list[str] = []
    data = json.loads(text, object_pairs_hook=functools.partial(_distinct, repeated))
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
                result=result(data),
            )
    try:
        return spec.parse(data)
    except ValueError as error:  # pydantic's ValidationError is one
        raise ValueRejected(
            f"the type {spec.name} refused the finished value: {error}",
            text=text,
            result=result(data),
        ) from error


def _distinct(repeated: list[str], pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value: dict[str, Any] = {}
    for key, item in pairs:
        if key in value:
            repeated.append(key)
        value[key] = item
    return value
