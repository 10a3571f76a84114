"""Reading the files that commands are given, with one helpful message when that fails."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from structspec.errors import PromptError, SchemaError, StructspecError

if TYPE_CHECKING:
    from structspec.grammar import Grammar

__all__ = ["SourceFile", "read_source", "read_text"]

_SYNTAXES = {".lark": "lark", ".gbnf": "gbnf", ".regex": "regex"}


@dataclass(frozen=True)
class SourceFile:
    """A file with a schema or a grammar: its text, and what its name says of it.

    options: those of `structspec.compile` that come from the file and from beside it.
    """

    path: Path
    text: str
    options: Mapping[str, Any]

    def compile(self, **options: Any) -> Grammar:
        """Compile it with further options.

        Raises the errors of `structspec.compile`; of what is no JSON, or no schema, a `SchemaError`
        that names the file, since it may hold a grammar under another name.
        """
        from structspec.grammar import compile as compile_grammar

        try:
            return compile_grammar(self.text, **self.options, **options)
        except StructspecError:
            if self.options["syntax"] == "json_schema":
                _check_json(self.path, self.text)
            raise


def read_source(path: Path, start: str | None = None, dialect: str | None = None) -> SourceFile:
    """Read a schema or a grammar, known by the ending of its name; '-' is a schema.

    start: of a grammar, dialect: of a regular expression, as `structspec.compile` takes them. The
    line end behind a lone regular expression is none of it, and Lark grammars may import from the
    files beside them. Raises `SchemaError` that names the file if it cannot be read.
    """
    text = read_text(path, "schema")
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
    return SourceFile(path, text.rstrip("\r\n") if syntax == "regex" else text, options)


def _check_json(path: Path, text: str) -> None:
    """Raise `SchemaError` with the file's name if it holds no JSON, or JSON that is no schema."""
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
        return  # the front end has said what is wrong
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
