"""`PrefixCache`: keys and values of earlier texts, so that a prompt's beginning is read once.

Requests repeat most of their prompts: the instructions and tools of an application, the turns of a
conversation so far. What the model computed for a token depends on the tokens in front of it alone,
so a new request copies the longest common beginning from a text that was read before, and the model
reads the rest.

Owns copies, not the rows that they came from. Each `Model` has one (`Model.prefix_cache`); the rows
of `forward.rows` fill it when they are closed and look into it when a prompt begins.

Invariants
- what is kept was computed by the weights as they are: a change of any parameter, in place or by
  another tensor, makes everything kept unusable. Writing through `parameter.data` or switching an
  adapter cannot be seen: call `clear`;
- tensors are never written to once they are kept, so that threads may read them side by side;
- texts whose numbers are not finite are not kept;
- `n_bytes` never passes `max_bytes`; what was used longest ago goes first.

Cost: `bytes per token` of the model's own cache for each token kept (46 KB for the default model);
one copy when a request ends and one when the next begins.

A text that continues copied keys has the same law. Its numbers can differ in the last bits from
those of a prompt that is read in one piece, as they do between batches of other sizes.

Siblings: llama.cpp keeps the last prompt of each slot, vLLM blocks of all prompts, SGLang a tree.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from structspec.integers import is_int
from structspec.locks import lock

__all__ = ["Prefix", "PrefixCache", "common_prefix"]

#: Copying fewer tokens than this is not worth the look.
FEWEST = 16


@dataclass(frozen=True)
class Prefix:
    """A text that was read.

    ids: its tokens. stores: keys and values, layer after layer, each [heads, len(ids), width].
    features: outputs of the layers `taps` at each token, [len(ids), …]; None without taps.
    """

    ids: list[int]
    stores: Sequence[Any]
    taps: tuple[int, ...] = ()
    features: Any = None

    @property
    def n_bytes(self) -> int:
        """Bytes of all tensors."""
        tensors = [*self.stores, *([] if self.features is None else [self.features])]
        return sum(int(tensor.nbytes) for tensor in tensors)

    def first(self, count: int) -> Prefix:
        """The first `count` tokens, copied."""
        features = None if self.features is None else self.features[:count].clone()
        stores = [store[:, :count].clone() for store in self.stores]
        return Prefix(self.ids[:count], stores, self.taps, features)

    def finite(self) -> bool:
        """Whether every number is one; the last layer tells for all below it."""
        return all(bool(store.isfinite().all()) for store in self.stores[-2:])


class PrefixCache:
    """See the module. `max_bytes`: 0 keeps nothing; may be changed at any time."""

    def __init__(self, network: Any, max_bytes: int = 0) -> None:
        if not is_int(max_bytes):
            raise TypeError(
                f"prefix_cache is {max_bytes!r:.40}; pass a number of bytes, 0 for none"
            )
        if max_bytes < 0:
            raise ValueError(f"prefix_cache={max_bytes} must not be negative; 0 keeps nothing")
        self.max_bytes = max_bytes
        self._network = network
        self._lock = lock()
        self._kept: list[Prefix] = []  # the last one was used last
        self._stamp: Any = None

    @property
    def n_bytes(self) -> int:
        """Bytes of what is kept."""
        with self._lock:
            return sum(prefix.n_bytes for prefix in self._kept)

    def __len__(self) -> int:
        """How many texts are kept."""
        return len(self._kept)

    def clear(self) -> None:
        """Forget everything, after a change of the model that cannot be seen."""
        with self._lock:
            self._kept.clear()

    def longest(self, ids: Sequence[int], taps: tuple[int, ...] = ()) -> tuple[Prefix | None, int]:
        """The kept text that shares most of its beginning with `ids`, and how many tokens."""
        if not self._kept:
            return None, 0
        stamp = _stamp(self._network)
        with self._lock:
            if stamp != self._stamp:
                self._kept.clear()
            best, most = None, 0
            for prefix in self._kept:
                same = common_prefix(prefix.ids, ids) if prefix.taps == taps else 0
                if same > most:
                    best, most = prefix, same
            if best is None or most < FEWEST:
                return None, 0
            self._kept.remove(best)
            self._kept.append(best)
            return best, most

    def wants(self, ids: Sequence[int], taps: tuple[int, ...] = ()) -> bool:
        """Whether a text is worth copying: long enough, and not the beginning of a kept one."""
        if not self.max_bytes or len(ids) < FEWEST:
            return False
        if _stamp(self._network) != self._stamp:
            return True
        with self._lock:
            return not self._holds(ids, taps)

    def _holds(self, ids: Sequence[int], taps: tuple[int, ...]) -> bool:
        return any(k.taps == taps and common_prefix(k.ids, ids) == len(ids) for k in self._kept)

    def keep(self, prefix: Prefix) -> None:
        """Keep a text; its tensors must not be written to afterwards."""
        size = prefix.n_bytes
        if not size or len(prefix.ids) < FEWEST or not self.max_bytes or not prefix.finite():
            return
        if size > self.max_bytes:  # the beginning is what others may share
            fitting = len(prefix.ids) * self.max_bytes // size
            if fitting < FEWEST:
                return
            prefix = prefix.first(fitting)
        stamp = _stamp(self._network)
        with self._lock:
            if stamp != self._stamp:
                self._kept.clear()
                self._stamp = stamp
            if self._holds(prefix.ids, prefix.taps):
                return
            self._kept = [kept for kept in self._kept if not _continues(prefix, kept)]
            self._kept.append(prefix)
            total = sum(kept.n_bytes for kept in self._kept)
            while total > self.max_bytes:
                total -= self._kept.pop(0).n_bytes


def common_prefix(left: Sequence[int], right: Sequence[int]) -> int:
    """The length of the common beginning."""
    limit = min(len(left), len(right))
    if list(left[:limit]) == list(right[:limit]):
        return limit
    return next(i for i in range(limit) if left[i] != right[i])


def _continues(long: Prefix, short: Prefix) -> bool:
    return long.taps == short.taps and common_prefix(long.ids, short.ids) == len(short.ids)


def _stamp(network: Any) -> tuple[Any, ...]:
    """What changes when parameters change: their memory, and how often they were written to."""
    parameters = getattr(network, "parameters", None)
    if parameters is None:
        return ()
    found = []
    for parameter in parameters():
        try:
            memory, version = parameter.data_ptr(), parameter._version
        except RuntimeError:  # made in inference mode, or without memory of its own
            memory = version = 0
        found.append((id(parameter), parameter.dtype, memory, version))
    return tuple(found)
