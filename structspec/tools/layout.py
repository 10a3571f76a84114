"""Call formats as data: in which order a model family writes markers, names and arguments.

Owns the vocabulary of a format's description. Nothing here knows grammars or parsers: `grammar`
turns a `CallFormat` into a structural tag, `reader` reads replies by the same description, and
`render` writes calls into the history, so the three cannot drift apart.

A `Mark` is one special token where the vocabulary has one of that name, and text elsewhere. Many
families mark their calls with added tokens that are *not* special: those are text.

Example::

    >>> from structspec.tools.formats import FORMATS
    >>> FORMATS["hermes"].trigger
    Mark(text='<tool_call>')
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

__all__ = [
    "Arguments",
    "ArrayLayout",
    "CallFormat",
    "CallObject",
    "EndMark",
    "Gap",
    "Mark",
    "Name",
    "Piece",
    "PythonCall",
    "Reasoning",
]


@dataclass(frozen=True)
class Mark:
    """A marker: a special token if the vocabulary has it, else its text."""

    text: str


@dataclass(frozen=True)
class EndMark:
    """A marker that ends the reply; not written where it is one of the vocabulary's end tokens."""

    text: str


@dataclass(frozen=True)
class Gap:
    """Blanks: written as `text`; any blanks are read, and written if whitespace is flexible."""

    text: str = ""


@dataclass(frozen=True)
class Name:
    """The bare name of the tool."""


@dataclass(frozen=True)
class Arguments:
    """The arguments, a JSON object."""


@dataclass(frozen=True)
class CallObject:
    """One JSON object with the name and the arguments, and maybe an id (a pattern) of the call."""

    name_key: str = "name"
    arguments_key: str = "arguments"
    id_key: str | None = None
    id_pattern: str = ""
    id_required: bool = False
    id_first: bool = False

    def in_order(self) -> tuple[str, ...]:
        """The keys in the order in which they are written."""
        keys = (self.name_key, self.arguments_key)
        if self.id_key is None:
            return keys
        return (self.id_key, *keys) if self.id_first else (*keys, self.id_key)


@dataclass(frozen=True)
class PythonCall:
    """A call of Python: `name(argument=literal, …)`."""


Piece: TypeAlias = str | Mark | EndMark | Gap | Name | Arguments | CallObject | PythonCall


@dataclass(frozen=True)
class ArrayLayout:
    """The calls stand in a JSON array; how its brackets and commas are written."""

    opening: str = "["
    between: str = ", "
    closing: str = "]"


@dataclass(frozen=True)
class Reasoning:
    """A block of free text before the answer; `repeated` if there may be several."""

    begin: tuple[Piece, ...]
    end: tuple[Piece, ...]
    repeated: bool = False


@dataclass(frozen=True)
class CallFormat:
    """How one family writes a reply.

    call: the pieces of one call. before, between, after: around all calls, between two of them.
    array: the calls are items of a JSON array between `before` and `after`.
    parallel: whether one reply may hold several calls.
    leads: for calls without a marker, the first character by which a reply with calls is known.
    answer: the markers around a reply without calls (None: bare text).
    reasoning: None if the family has none.
    known_by: parts of chat templates that tell the family, any of them.
    source: where the format is described.
    """

    name: str
    title: str
    source: str
    call: tuple[Piece, ...]
    before: tuple[Piece, ...] = ()
    between: tuple[Piece, ...] = ()
    after: tuple[Piece, ...] = ()
    array: ArrayLayout | None = None
    parallel: bool = True
    leads: str = ""
    answer: tuple[tuple[Piece, ...], tuple[Piece, ...]] | None = None
    reasoning: Reasoning | None = None
    known_by: tuple[str, ...] = ()

    @property
    def trigger(self) -> Mark | str | None:
        """What ends free text and starts the calls; None if the first character decides."""
        first = (*self.before, *self.call)[0]
        if isinstance(first, Mark | str) and not self.leads and self.answer is None:
            return first
        return None

    @property
    def body(self) -> Piece:
        """The piece that holds the arguments."""
        return next(p for p in self.call if isinstance(p, Arguments | CallObject | PythonCall))
