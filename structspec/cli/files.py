"""Reading the files that commands are given, with one helpful message when that fails."""

from __future__ import annotations

import sys
from pathlib import Path

from structspec.errors import PromptError, SchemaError


def read_text(path: Path, what: str) -> str:
    """The text of a "schema" or "prompt" file, '-' for standard input.

    Raises `SchemaError` or `PromptError`, by `what`, that names the file and the fault.
    """
    kind = SchemaError if what == "schema" else PromptError
    try:
        return sys.stdin.read() if str(path) == "-" else path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise kind(f"cannot read the {what} file '{path}': {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise kind(
            f"the {what} file '{path}' is not UTF-8: byte {error.start} is "
            f"0x{error.object[error.start]:02X}"
        ) from error
