r"""Our additions to Lark's notation, taken out before lark's own loader reads the text.

Owns `strip`. Each addition becomes a string literal that no grammar contains (it begins with a
noncharacter), so lark's loader parses, imports, mangles and instantiates it like any other, and
`lower` finds it again:

- ``%json {…}``, a JSON Schema where a rule could stand: a value of that schema;
- ``<|name|>``, a special token of the vocabulary by its text, brackets included, or ``<[id]>``;
- ``%special "name"``, a special token whose name has no brackets;
- in terminals, ``A & B``: texts of both; ``~A``: all texts that A does not match. ``~`` takes the
  part behind it with its repetition sign; ``&`` binds looser than sequence, tighter than ``|``.

A ``~`` before a number is Lark's own count.

Invariant: places in the result map back to the text that the user wrote (`Source.pieces`).
Cost: linear.

Example::

    >>> strip('start: <|user|> %json {"type": "null"}\n').schemas
    ['{"type": "null"}']
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Final

from structspec.frontends.rules.source import Source

__all__ = ["AND", "JSON", "MARK", "NOT", "SPECIAL", "Stripped", "strip"]

MARK: Final = "\U0010fffe"
AND, NOT, JSON, SPECIAL = (MARK + kind for kind in "&~js")

_PIECES: Final = re.compile(
    r"""
      (?P<comment>//[^\n]*|\#[^\n]*)
    | (?P<string>"(?:\\"|\\\\|[^"\n])*?"i?)
    | (?P<regexp>/(?!/)(?:\\/|\\\\|[^/])*?/[imslux]*)
    | (?P<json>%json\b)
    | (?P<named>%special[ \t]+(?P<name>"(?:\\"|\\\\|[^"\n])*?"))
    | (?P<token><(?:\[[0-9]+\]|[^<>\s\[](?:[^<>\n]*[^<>\s])?)>)
    | (?P<count>~[ \t]*[+-]?[0-9])
    | (?P<not>~)
    | (?P<and>&)
    """,
    re.VERBOSE,
)


@dataclass
class Stripped:
    """What `strip` returns: text for lark's loader, and what was taken out of it."""

    text: str
    source: Source
    schemas: list[str] = field(default_factory=list)
    specials: list[str] = field(default_factory=list)
    #: Where each schema begins in the user's text; None in imported files.
    schema_places: list[int | None] = field(default_factory=list)


def strip(text: str, into: Stripped | None = None) -> Stripped:
    """Replace our additions; numbers continue those of `into` (another file of one grammar).

    Raises `SchemaError` for a malformed schema's brackets and for reserved characters.
    """
    source = Source(text)
    if MARK in text:
        raise source.error(text.index(MARK), "U+10FFFE is no character; it is reserved here")
    schemas = into.schemas if into else []
    specials = into.specials if into else []
    places = into.schema_places if into else []
    out: list[str] = []
    pieces: list[tuple[int, int, bool]] = [(0, 0, True)]
    length, at = 0, 0

    def put(piece: str, start: int, end: int) -> None:
        nonlocal length, at
        out.extend((text[at:start], piece))
        length += start - at
        pieces.append((length, start, False))
        length += len(piece)
        pieces.append((length, end, True))
        at = end

    position = 0
    while found := _PIECES.search(text, position):
        start, position = found.span()
        kind = found.lastgroup
        if kind == "name":
            kind = "named"
        if kind == "json":
            begin, position = _schema_span(source, position)
            put(f'"{JSON}{len(schemas)}"', start, position)
            schemas.append(text[begin:position])
            places.append(None if into else begin)
        elif kind in ("token", "named"):
            put(f'"{SPECIAL}{len(specials)}"', start, position)
            specials.append(found[0] if kind == "token" else json.loads(found["name"]))
        elif kind in ("not", "and"):
            put(f' "{NOT if kind == "not" else AND}" ', start, position)
    out.append(text[at:])
    return Stripped("".join(out), Source(text, pieces), schemas, specials, places)


def _schema_span(source: Source, position: int) -> tuple[int, int]:
    text = source.text
    begin = position + len(text[position:]) - len(text[position:].lstrip())
    try:
        _, end = json.JSONDecoder().raw_decode(text, begin)
    except json.JSONDecodeError as error:
        raise source.error(error.pos, f"behind %json stands a JSON value: {error.msg}") from error
    except RecursionError as error:
        raise source.error(begin, "this schema is nested too deeply") from error
    return begin, end
