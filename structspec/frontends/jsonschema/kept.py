"""What one compile leaves for the next: results kept for the whole process, within a bound.

Schemas write the same patterns and formats again and again, and their automata are what costs most.
`Kept` is a cache from immutable keys to immutable values, each with a weight; the least recently
used ones go first. Threads may share it.

Example::

    >>> from structspec.frontends.jsonschema.kept import Kept
    >>> squares = Kept[int, int](most=10)
    >>> squares.get(3), squares.put(3, 9, weight=1), squares.get(3)
    (None, 9, 9)
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

from structspec.locks import lock

__all__ = ["Kept"]

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Kept(Generic[K, V]):
    """At most `most` units of weight; a value that weighs more than a quarter is not kept."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._weight = 0
        self._values: OrderedDict[K, tuple[V, int]] = OrderedDict()
        self._lock = lock()

    def get(self, key: K) -> V | None:
        """The value, if it is still there."""
        with self._lock:
            found = self._values.get(key)
            if found is None:
                return None
            self._values.move_to_end(key)
            return found[0]

    def put(self, key: K, value: V, weight: int) -> V:
        """Keep a value; returns it, or the one that another thread has put there before."""
        with self._lock:
            found = self._values.get(key)
            if found is not None:
                return found[0]
            if weight <= self._most // 4:
                self._values[key] = (value, weight)
                self._weight += weight
                while self._weight > self._most:
                    _, (_, gone) = self._values.popitem(last=False)
                    self._weight -= gone
            return value

    def __len__(self) -> int:
        return len(self._values)
