"""`record`: a dataclass that is frozen for the type checker and quick to make.

Nodes of grammars and the forms of a compile are many small objects that nobody changes.
`dataclass(frozen=True)` asks for a call per field and object to say so at run time as well, which
took an eighth of the front end. Whoever assigns to a field of a record is told by mypy; records
have slots, and equality and hash by their fields.

A record that holds others derives from `Hashed`: its hash is then computed once.

Example::

    >>> from structspec.records import record
    >>> @record
    ... class Span:
    ...     low: int
    ...     high: int = 9
    >>> Span(3), len({Span(3), Span(3, 9)})
    (Span(low=3, high=9), 1)
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from operator import attrgetter
from typing import Any, ClassVar, TypeVar, dataclass_transform

__all__ = ["Hashed", "record"]

T = TypeVar("T")


class Hashed:
    """Keeps the hash of a record, so that asking again costs no walk through what it holds."""

    # No field: equality, copies and pickles go without it (hashes differ between processes).
    __slots__ = ("_hash",)
    _hash: int
    #: The values of the fields that are compared.
    _compared: ClassVar[Any]
    __match_args__: ClassVar[tuple[str, ...]]

    def __hash__(self) -> int:
        try:
            return self._hash
        except AttributeError:
            self._hash = made = hash((type(self), self._compared))
            return made

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), tuple(getattr(self, name) for name in self.__match_args__)


@dataclass_transform(frozen_default=True)
def record(cls: type[T]) -> type[T]:
    """Make a class with annotated fields a record; a hash of its own is kept."""
    if not issubclass(cls, Hashed):
        return dataclass(slots=True, unsafe_hash="__hash__" not in vars(cls))(cls)
    cls.__hash__ = Hashed.__hash__  # type: ignore[method-assign]  # or there would be none
    made: Any = dataclass(slots=True)(cls)
    made._compared = property(attrgetter(*(f.name for f in fields(made) if f.compare)))
    return made
