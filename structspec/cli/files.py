"""Reading the files that commands are given, with one helpful message when that fails."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from structspec.errors import PromptError, SchemaError

_SYNTAXES = {".lark": "lark", ".gbnf": "gbnf", ".regex": "regex"}


def syntax_options(
    path: Path, start: str | None = None, dialect: str | None = None
) -> dict[str, Any]:
    """What `structspec.compile` has to know of a file by its name: the syntax, and for Lark
    grammars the files beside it, which it may import from.
    """
    syntax = _SYNTAXES.get(path.suffix, "json_schema")
    options: dict[str, Any] = {"syntax": syntax}
    if start is not None:
        options["start"] = start
    if dialect is not None:
        options["dialect"] = dialect
    if syntax == "lark":
        options["resources"] = {
            file.name: read_text(file, "schema")
            for file in sorted(path.parent.glob("*.lark"))
            if file != path
        }
    return options


def read_source(path: Path, syntax: str) -> str:
    """The text of a schema or grammar; the line end behind a lone regular expression is none.

    Raises `SchemaError` that names the file if it cannot be read, or is to be JSON and is not.
    """
    text = read_text(path, "schema")
    if syntax == "json_schema":
        _check_json(path, text)
    return text.rstrip("\r\n") if syntax == "regex" else text


def _check_json(path: Path, text: str) -> None:
    """Whether a schema file holds JSON, since a file by another name may hold a grammar."""
    endings = "a grammar is known by the ending of its file: " + ", ".join(_SYNTAXES)
    if not text.strip():
        raise SchemaError(f"the schema file '{path}' is empty")
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        raise SchemaError(
            f"the schema file '{path}' is not JSON: line {error.lineno}, column {error.colno}: "
            f"{error.msg} ({endings})"
        ) from error
    except (RecursionError, ValueError):  # deep, or a number of thousands of digits
        return  # the front end reads and judges it
    if not isinstance(value, dict | bool):
        raise SchemaError(
            f"the schema file '{path}' is JSON, but no schema: that is an object, true or false"
        )


def read_text(path: Path, what: str) -> str:
    """The text of a "schema", "text" or "prompt" file, '-' for standard input.

    Raises `SchemaError`, or `PromptError` for prompts, that names the file and the fault.
    """
    kind = PromptError if what == "prompt" else SchemaError
    try:
        return _standard_input() if str(path) == "-" else path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise kind(f"cannot read the {what} file '{path}': {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise kind(
            f"the {what} file '{path}' is not UTF-8: byte {error.start} is "
            f"0x{error.object[error.start]:02X}"
        ) from error


def _standard_input() -> str:
    # As a file: the terminal's encoding says nothing about what a pipe brings.
    raw = getattr(sys.stdin, "buffer", None)
    text: str = sys.stdin.read() if raw is None else raw.read().decode("utf-8-sig")
    return text.replace("\r\n", "\n").replace("\r", "\n")
