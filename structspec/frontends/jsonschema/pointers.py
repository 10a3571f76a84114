"""JSON pointers that cost nothing until they are shown.

A `Pointer` is a link to the place above and the segments from there on. A document that nests
10,000 deep has as many places, whose pointers written out would take gigabytes; most are never
shown.

Example::

    >>> from structspec.frontends.jsonschema.pointers import ROOT
    >>> str(ROOT.below("properties", "a/b"))
    '/properties/a~1b'
"""

from __future__ import annotations

__all__ = ["ROOT", "Pointer", "escape"]


def escape(segment: str) -> str:
    """One segment of a JSON pointer, with ``~`` and ``/`` escaped."""
    if "~" in segment or "/" in segment:
        return segment.replace("~", "~0").replace("/", "~1")
    return segment


class Pointer:
    """A place: `segments` below `above`. With `above` None it is the text of its one segment."""

    __slots__ = ("above", "segments")

    def __init__(self, above: Pointer | None, segments: tuple[str, ...]) -> None:
        self.above = above
        self.segments = segments

    @classmethod
    def at(cls, text: str) -> Pointer:
        """The place that a finished text names: a pointer, or a URI with one."""
        return cls(None, (text,))

    def below(self, *segments: str) -> Pointer:
        """The place `segments` further down."""
        return Pointer(self, segments)

    def __str__(self) -> str:
        parts: list[str] = []
        here = self
        while here.above is not None:
            parts.extend("/" + escape(segment) for segment in reversed(here.segments))
            here = here.above
        parts.extend(here.segments)
        return "".join(reversed(parts))

    def __repr__(self) -> str:
        return f"Pointer({str(self)!r})"


#: The root of the document.
ROOT = Pointer.at("")
