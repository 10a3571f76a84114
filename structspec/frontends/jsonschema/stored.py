"""Automata of formats that take long to build, kept beside the sources.

`stored` makes a builder of such an automaton read what the file holds, and build where it holds
nothing. A first `uri` of a process then takes a millisecond instead of some forty. The automata are
minimal, so that equal languages are equal objects, and a test compares the file with the builders.

    python -m structspec.frontends.jsonschema.store_formats      # writes the file anew

The file is JSON: name -> base64 of a zlib stream of ``[classes, rows, accepting]``, with the
(class, target) pairs of a row one after another.

Sibling: `formats`, whose builders these are.
"""

from __future__ import annotations

import json
import zlib
from base64 import b64decode, b64encode
from collections.abc import Callable
from functools import cache
from pathlib import Path

from structspec.automata.chardfa import CharDfa

__all__ = ["BUILDERS", "FILE", "pack", "stored", "unpack"]

FILE = Path(__file__).with_name("format_automata.json")
#: The builders of what the file holds, by name.
BUILDERS: dict[str, Callable[[], CharDfa]] = {}


def stored(build: Callable[[], CharDfa]) -> Callable[[], CharDfa]:
    """The automaton that `build` makes, out of the file if it is there; made once."""
    name = build.__name__.removeprefix("_")
    BUILDERS[name] = build

    @cache
    def read() -> CharDfa:
        data = _contents().get(name)
        return build() if data is None else unpack(data)

    return read


@cache
def _contents() -> dict[str, str]:
    try:
        found: dict[str, str] = json.loads(FILE.read_text(encoding="ascii"))
    except FileNotFoundError:
        return {}
    return found


def pack(dfa: CharDfa) -> str:
    """An automaton as text."""
    rows = [[number for edge in row for number in edge] for row in dfa.rows]
    text = json.dumps([dfa.classes, rows, sorted(dfa.accepting)], separators=(",", ":"))
    return b64encode(zlib.compress(text.encode(), 9)).decode()


def unpack(data: str) -> CharDfa:
    """The automaton that `pack` wrote."""
    classes, rows, accepting = json.loads(zlib.decompress(b64decode(data)))
    return CharDfa.of_parts(
        tuple(tuple((low, high) for low, high in ranges) for ranges in classes),
        tuple(tuple(zip(row[0::2], row[1::2], strict=True)) for row in rows),
        frozenset(accepting),
    )
