"""Ready-made grammars, as data; installed as `structspec.grammars`.

    >>> from structspec import grammars
    >>> grammars.load("iso_date").accepts("2024-02-29")
    True
    >>> grammars.read("chess_san").splitlines()[1]
    '// Start rule: start, one move. The rule game is a numbered list of moves with its result.'

A grammar is a JSON Schema (`.schema.json`), a Lark grammar (`.lark`) or a GBNF grammar (`.gbnf`).
Each file opens with what it is for, its start rule and its limits.
"""

from __future__ import annotations

import json
from importlib import resources
from importlib.resources.abc import Traversable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from structspec.grammar import Grammar

__all__ = ["load", "names", "read", "syntax"]

_SYNTAXES = {".schema.json": "json_schema", ".lark": "lark", ".gbnf": "gbnf"}


def names() -> list[str]:
    """The names of all ready-made grammars, sorted."""
    return sorted(_files())


def read(name: str) -> Any:
    """What the file of a grammar holds: a schema as a value, or the text of a grammar.

    Raises `KeyError` that lists the names.
    """
    text = _file(name).read_text(encoding="utf-8")
    return json.loads(text) if syntax(name) == "json_schema" else text


def syntax(name: str) -> str:
    """The syntax of a grammar, as `structspec.compile` takes it; `KeyError` as for `read`."""
    file = _file(name)
    return next(kind for suffix, kind in _SYNTAXES.items() if file.name.endswith(suffix))


def load(name: str, **options: Any) -> Grammar:
    """The compiled grammar; `options` are those of `structspec.compile`, such as `start`.

    Raises `KeyError` that lists the names, and what `compile` raises.
    """
    from structspec.grammar import compile

    kind = syntax(name)
    if kind == "lark":  # they import from each other
        others = {
            file.name: file.read_text(encoding="utf-8")
            for file in _files().values()
            if file.name.endswith(".lark")
        }
        options["resources"] = {**others, **(options.get("resources") or {})}
    return compile(read(name), syntax=kind, **options)  # type: ignore[arg-type]


def _files() -> dict[str, Traversable]:
    found = {}
    for entry in resources.files(__name__).iterdir():
        for suffix in _SYNTAXES:
            if entry.name.endswith(suffix):
                found[entry.name.removesuffix(suffix)] = entry
    return found


def _file(name: str) -> Traversable:
    files = _files()
    if name not in files:
        raise KeyError(
            f"there is no grammar called {name!r}; there are: {', '.join(sorted(files))}"
        )
    return files[name]
