"""`partial_value`: what of an unfinished JSON text is certain already.

Owns the reading of a prefix: finished members and items are in, an unfinished string, number or
word is not, and neither is a key without a value. So a value that was once reported never changes
later; it only gains members. The parser is pydantic's, which reads prefixes; the one thing it
cannot know is that a number at the very end may go on.

Cost: one parse of the text so far, a few microseconds per kilobyte.

Sibling: `streaming` asks for it after each round.

Example::

    >>> partial_value('{"name": "Ada", "born": 18')
    {'name': 'Ada'}
    >>> partial_value('[1, 2, 3')
    [1, 2]
"""

from __future__ import annotations

from typing import Any

from pydantic_core import from_json

__all__ = ["partial_value"]

_NUMBER = "+-.0123456789eE"


def partial_value(text: str) -> Any:
    """The finished part of the JSON value that `text` begins; None where nothing is certain yet."""
    try:
        return from_json(text.rstrip(_NUMBER), allow_partial=True, cache_strings="none")
    except ValueError:
        return None
