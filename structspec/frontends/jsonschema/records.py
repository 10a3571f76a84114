"""`record`: a dataclass that is frozen for the type checker and quick to make.

The forms of a compile are many small objects that nobody changes. `dataclass(frozen=True)` asks
for a call per field and object to say so at run time as well, which took an eighth of the front
end. Whoever assigns to a field of a record is told by mypy; records have slots, and equality and
hash by their fields.

Example::

    >>> from structspec.frontends.jsonschema.records import record
    >>> @record
    ... class Span:
    ...     low: int
    ...     high: int = 9
    >>> Span(3), len({Span(3), Span(3, 9)})
    (Span(low=3, high=9), 1)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar, dataclass_transform

__all__ = ["record"]

T = TypeVar("T")


@dataclass_transform(frozen_default=True)
def record(cls: type[T]) -> type[T]:
    """Make a class with annotated fields a record; a hash of its own is kept."""
    return dataclass(slots=True, unsafe_hash="__hash__" not in vars(cls))(cls)
