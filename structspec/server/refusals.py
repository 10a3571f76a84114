"""Errors as clients get them: a status, OpenAI's form, which kind it was, and where.

What is wrong with a request is 400 and the client's; what goes wrong while an answer is written is
500 and the server's, but for what only the engine can tell: a budget or a window that is too small.

Sibling: `app`, which answers with them.

Example::

    >>> status, body = explain(RequestError("no such thing", "tools"))
    >>> status, body["error"]["param"]
    (400, 'tools')
"""

from __future__ import annotations

from typing import Any

from pydantic import ValidationError
from starlette.exceptions import HTTPException

from structspec import errors
from structspec.server.engine import EngineFull
from structspec.server.plan import RequestError
from structspec.server.replies import error_body

__all__ = ["Fault", "explain", "in_writing"]

# Errors of requests: what their `code` is. All others are the server's.
_CODES: dict[type[Exception], str] = {
    errors.UnsupportedFeature: "unsupported_schema",
    errors.BudgetExceeded: "schema_too_large",
    errors.Unsatisfiable: "unsatisfiable_schema",
    errors.TokenBudgetError: "max_tokens_too_small",
    errors.SchemaError: "invalid_schema",
    errors.ToolError: "invalid_tool",
    errors.PromptError: "invalid_prompt",
    errors.MissingExtra: "missing_extra",
    RequestError: "invalid_request",
}
#: The client's errors that show only when a request reaches the engine.
_LATE = (errors.TokenBudgetError, errors.PromptError, EngineFull, RequestError)
_HTTP = {
    401: "invalid_api_key",
    404: "not_found",
    405: "method_not_allowed",
    413: "request_too_large",
}


class Fault(Exception):
    """An answer that could not be written; `__cause__` says why."""


def in_writing(error: Exception) -> Exception:
    """An error that came up while an answer was written, as the client is to get it."""
    if isinstance(error, _LATE):
        return error
    fault = Fault(str(error))
    fault.__cause__ = error
    return fault


def explain(error: Exception) -> tuple[int, dict[str, Any]]:
    """Status and body of an error."""
    if isinstance(error, ValidationError):
        return 400, _field_errors(error)
    if isinstance(error, HTTPException):
        code, text = _HTTP.get(error.status_code), str(error.detail)
        if error.status_code == 404 and text == "Not Found":
            text = "there is nothing at this address; those of this server begin with /v1"
        return error.status_code, error_body(text, "invalid_request_error", code)
    if isinstance(error, EngineFull):
        return 503, error_body(str(error), "server_error", "overloaded")
    for kind, code in _CODES.items():
        if isinstance(error, kind):
            param = getattr(error, "param", None) or getattr(error, "pointer", None)
            code = getattr(error, "code", code)
            return 400, error_body(str(error), "invalid_request_error", code, param)
    cause = error.__cause__ if isinstance(error, Fault) and error.__cause__ else error
    return 500, error_body(str(error), "server_error", type(cause).__name__)


def _field_errors(error: ValidationError) -> dict[str, Any]:
    found = []
    for one in error.errors(include_url=False, include_context=False):
        place = ".".join(str(step) for step in one["loc"])
        if one["type"] == "json_invalid":
            found.append(("", f"the body is no JSON: {one['msg'].removeprefix('Invalid JSON: ')}"))
            continue
        if one["type"] == "extra_forbidden":
            found.append((place, f"the field {place!r} is not known to this server"))
            continue
        given = one.get("input")
        shown = f", not {given!r}" if isinstance(given, str | int | float) else ""
        text = one["msg"].removeprefix("Value error, ") + shown[:100]
        found.append((place, f"{place}: {text}" if place else text))
    message = "; ".join(text for _, text in found)
    return error_body(message, "invalid_request_error", "invalid_field", found[0][0] or None)
