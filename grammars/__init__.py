"""Ready-made grammars, as data; installed as `structspec.grammars`.

    >>> from structspec import grammars
    >>> grammars.names()
    ['json', 'tool_calls']
    >>> sorted(grammars.read("tool_calls"))
    ['$defs', '$schema', 'items', 'minItems', 'title', 'type']

Each file opens with what it is for (`title`, `description` in schemas).
"""

from __future__ import annotations

import json
from importlib import resources
from typing import Any

__all__ = ["names", "read"]

_SUFFIX = ".schema.json"


def names() -> list[str]:
    """The names of all ready-made grammars, sorted."""
    folder = resources.files(__name__)
    return sorted(
        entry.name.removesuffix(_SUFFIX)
        for entry in folder.iterdir()
        if entry.name.endswith(_SUFFIX)
    )


def read(name: str) -> Any:
    """The JSON Schema of a ready-made grammar; raises `KeyError` that lists the names."""
    if name not in names():
        raise KeyError(f"there is no grammar called {name!r}; there are: {', '.join(names())}")
    text = resources.files(__name__).joinpath(name + _SUFFIX).read_text(encoding="utf-8")
    return json.loads(text)
