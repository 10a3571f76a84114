"""Constraints kept for servers: compiled once per (schema, options, vocabulary), bounded in bytes.

Thread safety: one lock guards the table and is never held while compiling. Threads that ask for the
same key while it compiles wait for that one compile, and get its error if it fails (errors are not
kept). An evicted constraint stays valid for whoever holds it.

Cost: a hit is a look-up under a lock. Sizes grow as constraints learn, so they are added up anew at
every miss and every `_RECOUNT` hits; the least recently used go first, never the one asked for.
Each time that half of `max_bytes` has gone, the C allocator is asked to give it back.

Example::

    >>> import structspec
    >>> vocab = structspec.Vocabulary([bytes((b,)) for b in range(256)], ())
    >>> cache = structspec.ConstraintCache()
    >>> cache.get({"type": "null"}, vocab) is cache.get('{"type": "null"}', vocab)
    True
"""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any

from structspec.automata.arena import give_back
from structspec.grammar import compile as compile_grammar
from structspec.integers import is_int
from structspec.locks import in_child, lock
from structspec.masks.constraint import Constraint
from structspec.vocab import Vocabulary

__all__ = ["ConstraintCache"]

_RECOUNT = 256


@dataclass
class _Pending:
    """A compile that is under way."""

    done: threading.Event = field(default_factory=threading.Event)
    constraint: Constraint | None = None
    error: BaseException | None = None


class ConstraintCache:
    """Constraints of schemas, types and grammars, compiled once; safe to share between threads.

    max_bytes: bound on the memory of all kept constraints together; the least recently used go
        first. A single one above it is kept until another is asked for. Raises TypeError or
        ValueError for what is no number of bytes.

    `hits`, `misses` and `evicted` count; `len()` says how many are kept.
    """

    def __init__(self, max_bytes: int = 1 << 29) -> None:
        if not is_int(max_bytes):
            raise TypeError(f"max_bytes is {max_bytes!r}; give a number of bytes")
        if max_bytes < 0:
            raise ValueError(f"max_bytes is {max_bytes}; give a number of bytes, 0 or more")
        self.max_bytes = max_bytes
        self._lock = lock()
        in_child(self._forget_pending)
        self._kept: OrderedDict[Hashable, Constraint] = OrderedDict()
        self._pending: dict[Hashable, _Pending] = {}
        self.hits = 0
        self.misses = 0
        self.evicted = 0
        self._gone = 0  # bytes since the allocator was asked

    def get(self, source: Any, vocab: Vocabulary, **options: Any) -> Constraint:
        """The constraint of `structspec.compile(source, **options).bind(vocab)`.

        Raises what those raise. Schemas are the same if their JSON is, in this order of keys.
        """
        key = (_source_key(source), _options_key(options), vocab.fingerprint)
        with self._lock:
            found = self._kept.get(key)
            if found is not None:
                self._kept.move_to_end(key)
                self.hits += 1
                if self.hits % _RECOUNT == 0:
                    self._evict(key)
                return found
            pending = self._pending.get(key)
            mine = pending is None
            if pending is None:
                pending = self._pending[key] = _Pending()
                self.misses += 1
        if not mine:
            pending.done.wait()
            if isinstance(pending.error, Exception):
                raise pending.error
            # The thread that compiled was interrupted: that is no answer for this one.
            return pending.constraint or self.get(source, vocab, **options)
        try:
            pending.constraint = compile_grammar(source, **options).bind(vocab)
        except BaseException as error:
            pending.error = error
            raise
        finally:
            with self._lock:
                self._pending.pop(key, None)
                if pending.constraint is not None:
                    self._kept[key] = pending.constraint
                    self._evict(key)
            pending.done.set()
        self._give_back()
        return pending.constraint

    def clear(self) -> None:
        """Forget all constraints."""
        with self._lock:
            self._kept.clear()

    @property
    def n_bytes(self) -> int:
        """The memory of all kept constraints."""
        with self._lock:
            return sum(constraint.n_bytes for constraint in self._kept.values())

    def __len__(self) -> int:
        return len(self._kept)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickled empty: what it keeps is memory of this process."""
        return ConstraintCache, (self.max_bytes,)

    def _forget_pending(self) -> None:
        """In a forked process: the threads that were compiling are not here."""
        self._pending.clear()

    def _evict(self, asked: Hashable) -> None:
        """Let the least recently used go until the rest fits; hold the lock."""
        sizes = {key: constraint.n_bytes for key, constraint in self._kept.items()}
        total = sum(sizes.values())
        for key, size in sizes.items():
            if total <= self.max_bytes:
                break
            if key != asked:
                del self._kept[key]
                self.evicted += 1
                total -= size
                self._gone += size

    def _give_back(self) -> None:
        """Ask the C allocator for what it keeps, if enough has gone since it was last asked."""
        with self._lock:
            if self._gone <= self.max_bytes // 2:
                return
            self._gone = 0
        give_back()


def _source_key(source: Any) -> Hashable:
    if isinstance(source, str):
        try:
            source = json.loads(source)
        except ValueError:
            return ("text", source)
    if isinstance(source, dict | list | bool | int | float) or source is None:
        return ("json", json.dumps(source))
    return ("type", source)


def _options_key(options: dict[str, Any]) -> Hashable:
    return tuple(
        (name, value if isinstance(value, Hashable) else json.dumps(value, sort_keys=True))
        for name, value in sorted(options.items())
    )
