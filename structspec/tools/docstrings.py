"""Descriptions out of docstrings: what a function does, and what its arguments mean.

The package `docstring-parser` (extra `tools`) reads the Google, NumPy, reST and Epydoc styles.
Without it the first paragraph still describes the function; the arguments stay undescribed.

Example::

    >>> describe_docstring("Add numbers.").summary
    'Add numbers.'
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = ["Docstring", "describe_docstring"]


@dataclass(frozen=True)
class Docstring:
    """The description, and one text per described argument."""

    summary: str = ""
    arguments: Mapping[str, str] = field(default_factory=dict)


def describe_docstring(text: str | None) -> Docstring:
    """Read a docstring in whichever style it is written."""
    if not text or not text.strip():
        return Docstring()
    cleaned = inspect.cleandoc(text)
    try:
        from docstring_parser import ParseError, parse
    except ImportError:
        return Docstring(_first_paragraph(cleaned))
    try:
        parsed = parse(cleaned)
    except ParseError:
        return Docstring(_first_paragraph(cleaned))
    parts = (parsed.short_description, parsed.long_description)
    summary = "\n\n".join(part.strip() for part in parts if part and part.strip())
    arguments = {
        item.arg_name.lstrip("*"): " ".join(item.description.split())
        for item in parsed.params
        if item.description
    }
    return Docstring(summary or _first_paragraph(cleaned), arguments)


def _first_paragraph(text: str) -> str:
    return " ".join(text.split("\n\n", 1)[0].split())
