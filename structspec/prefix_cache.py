"""`PrefixCache`: keys and values of earlier texts, so that a prompt's beginning is read once.

Requests repeat most of their prompts: the instructions and tools of an application, the turns of a
conversation so far. What the model computed for a token depends on the tokens in front of it alone,
so a new request copies the longest common beginning from a text that was read before, and the model
reads the rest.

Owns copies, not the rows that they came from. Each `Model` has one (`Model.prefix_cache`); the rows
of `forward.rows` fill it when they are closed and look into it when a prompt begins.

Invariants
- what is kept was computed by the network as it is: a change of any parameter or buffer, in place
  or by another tensor, of hooks and forwards, of PEFT's adapters (which is active, merged, how much
  it counts), or between training and evaluation makes everything kept unusable, and texts that it
  came upon halfway are not kept. Writing through `parameter.data` and other attributes of modules
  cannot be seen: call `clear`;
- tensors are never written to once they are kept, so that threads may read them side by side;
- texts whose numbers are not finite are not kept;
- `n_bytes` never passes `max_bytes`, nor a smaller one that is set later; what was used longest ago
  goes first.

Cost: `bytes per token` of the model's own cache for each token kept (46 KB for the default model);
one copy when a request ends and one when the next begins.

A text that continues copied keys has the same law. Its numbers can differ in the last bits from
those of a prompt that is read in one piece, as they do between batches of other sizes.

Siblings: llama.cpp keeps the last prompt of each slot, vLLM blocks of all prompts, SGLang a tree.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from structspec.hooks import alterations
from structspec.integers import is_int
from structspec.locks import lock

__all__ = ["Prefix", "PrefixCache", "Weights", "common_prefix"]

#: Copying fewer tokens than this is not worth the look.
FEWEST = 16


@dataclass(frozen=True, eq=False)
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


class Weights:
    """What a network computes with at one moment; equal only while nothing of it has changed.

    Tensors are told by their memory, which is watched, not kept: what is freed stays different from
    what an allocator puts in its place.
    """

    def __init__(self, network: Any) -> None:
        self._watched = list(_watched(network))
        self.seen = _stamp(network)

    def holds(self, network: Any) -> bool:
        """Whether a network is as it was then."""
        return self.seen == _stamp(network)


class PrefixCache:
    """See the module. `max_bytes`: 0 keeps nothing; may be changed at any time."""

    def __init__(self, network: Any, max_bytes: int = 0) -> None:
        self._max_bytes = _checked(max_bytes)
        self._network = network
        self._lock = lock()
        self._kept: list[Prefix] = []  # the last one was used last
        self._weights: Weights | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        """Copied and pickled without what it keeps."""
        return type(self), (self._network, self._max_bytes)

    @property
    def max_bytes(self) -> int:
        """The most bytes that are kept. Raises TypeError or ValueError for what is no number."""
        return self._max_bytes

    @max_bytes.setter
    def max_bytes(self, value: int) -> None:
        value = _checked(value)
        with self._lock:
            self._max_bytes = value
            self._shrink()

    def _shrink(self) -> None:
        total = sum(kept.n_bytes for kept in self._kept)
        while total > self._max_bytes:
            total -= self._kept.pop(0).n_bytes

    def weights(self) -> Weights | None:
        """The weights of a text that begins now, for `wants` and `keep`; None if none is kept."""
        if not self._max_bytes:
            return None
        known = self._weights
        return known if known is not None and known.holds(self._network) else Weights(self._network)

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
            if self._weights is None or stamp != self._weights.seen:
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

    def wants(
        self, ids: Sequence[int], taps: tuple[int, ...] = (), weights: Weights | None = None
    ) -> bool:
        """Whether a text is worth copying: long enough, and not the beginning of a kept one.

        weights: those it was read with, from `weights`; None: as they are now.
        """
        if not self.max_bytes or len(ids) < FEWEST:
            return False
        known = self._weights
        if known is None or (weights is not None and weights.seen != known.seen):
            return True  # `keep` looks at the network
        with self._lock:
            return not self._holds(ids, taps)

    def _holds(self, ids: Sequence[int], taps: tuple[int, ...]) -> bool:
        return any(k.taps == taps and common_prefix(k.ids, ids) == len(ids) for k in self._kept)

    def keep(self, prefix: Prefix, weights: Weights | None = None) -> None:
        """Keep a text; its tensors must not be written to afterwards. `weights`: as in `wants`."""
        size = prefix.n_bytes
        if not size or len(prefix.ids) < FEWEST or not self.max_bytes or not prefix.finite():
            return
        if size > self.max_bytes:  # the beginning is what others may share
            fitting = len(prefix.ids) * self.max_bytes // size
            if fitting < FEWEST:
                return
            prefix = prefix.first(fitting)
        now = self.weights()
        if now is None or (weights is not None and weights.seen != now.seen):
            return
        with self._lock:
            if self._weights is None or now.seen != self._weights.seen:
                self._kept.clear()
                self._weights = now
            if self._holds(prefix.ids, prefix.taps):
                return
            self._kept = [kept for kept in self._kept if not _continues(prefix, kept)]
            self._kept.append(prefix)
            self._shrink()


def common_prefix(left: Sequence[int], right: Sequence[int]) -> int:
    """The length of the common beginning."""
    limit = min(len(left), len(right))
    if list(left[:limit]) == list(right[:limit]):
        return limit
    return next(i for i in range(limit) if left[i] != right[i])


def _continues(long: Prefix, short: Prefix) -> bool:
    return long.taps == short.taps and common_prefix(long.ids, short.ids) == len(short.ids)


def _checked(max_bytes: int) -> int:
    if not is_int(max_bytes):
        raise TypeError(f"prefix_cache is {max_bytes!r:.40}; pass a number of bytes, 0 for none")
    if max_bytes < 0:
        raise ValueError(f"prefix_cache={max_bytes} must not be negative; 0 keeps nothing")
    return max_bytes


# What PEFT's layers say of their adapters.
_ADAPTERS = ("_active_adapter", "_disable_adapters", "merged_adapters", "scaling")


def _modules(network: Any) -> Iterator[Any]:
    modules = getattr(network, "modules", None)
    return iter(()) if modules is None else modules()


def _tensors(module: Any) -> Iterator[Any]:
    """The parameters and buffers of one module."""
    for held in (module._parameters, module._buffers):
        for tensor in held.values():
            if tensor is not None:
                yield tensor


def _stamp(network: Any) -> tuple[Any, ...]:
    """What changes with what a network computes: tensors, by their memory and how often they were
    written to; hooks and forwards; adapters; training.
    """
    found: list[Any] = []
    for module in _modules(network):
        for tensor in _tensors(module):
            try:
                memory = tensor.untyped_storage()._cdata, tensor.data_ptr()
            except RuntimeError:  # without memory of its own
                memory = id(tensor), 0
            try:
                version = tensor._version
            except RuntimeError:  # made in inference mode
                version = 0
            found.append((tensor.dtype, memory, version))
        if altered := alterations(module):
            found.append(altered)
        if module.training:
            found.append(True)
        own = module.__dict__
        if "_active_adapter" in own:
            found.append([repr(own.get(name)) for name in _ADAPTERS])
    return tuple(found)


def _watched(network: Any) -> Iterator[Any]:
    """What keeps the identities in `_stamp` from being given away, but not the memory."""
    from torch.multiprocessing.reductions import StorageWeakRef

    for module in _modules(network):
        for tensor in _tensors(module):
            try:
                yield StorageWeakRef(tensor.untyped_storage())
            except RuntimeError:
                yield tensor
