"""Counter-based uniforms: every random number is a pure function of its name.

Owns the map (seed, request, step, purpose, row, index) → a uniform in [0, 1) of 53 bits, and the
two ways to draw a token from a row with it. There is no generator state: a batch may be split,
padded or reordered, a request paused and recomputed, and each draw stays what it was.

The name of a draw
- `seed`: the user's, 64 bits;
- `request`: a number that stays with the request (not its place in today's batch), 32 bits;
- `step`: how many verifications this request has been through, 32 bits;
- `purpose`: drafting, testing or emitting, 8 bits;
- `row`: which of several drafts, 24 bits;
- `index`: the place inside the draft, or the token id for one noise per token.

INVARIANT: where drafts are sampled the name holds the *step*, never the position alone. A position
is drawn more than once: a step drafts positions n+1..n+L, keeps some, and the next step drafts the
rest anew. Block verification chooses its exit by looking at the *whole* draft, so a discarded token
is correlated with what was kept; drawing its position again with the same noise replays the
discarded token and biases the text. Purposes are apart for the same reason: a residual drawn with
its draft's noise is not independent of the rejection. Tests hold both mistakes as mutants.

Drafts that are certain of themselves are another matter. The target is sampled at each place and
the draft is followed while it agrees, so nothing behind the first disagreement is looked at: there
a draw is named by its *position* (`for_positions`), and the text does not depend on the draft.

Philox 4x32-10 as published, so a Triton kernel or a CUDA program can compute the same numbers;
two 32-bit words make one uniform. numpy's own `Philox` is 4x64, one stream per object, and cannot
fill a batch of names at once.

Cost: about 70 numpy operations on the array of counters, whatever its size (0.1 ms when small).

Paper: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011.

Example::

    >>> noise = Randomness(seed=7)
    >>> u = noise.uniforms(request=0, step=3, purpose=Purpose.ACCEPT, count=4)
    >>> bool((u[:2] == noise.uniforms(0, 3, Purpose.ACCEPT, count=2)).all())
    True
    >>> noise.for_verification(requests=[0, 5], steps=[3, 1], length=4).shape
    (2, 5)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from structspec.errors import ModelError

__all__ = [
    "Purpose",
    "Randomness",
    "gumbel",
    "philox4x32",
    "sample_gumbel",
    "sample_inverse",
]

Floats: TypeAlias = NDArray[np.float64]
Words: TypeAlias = NDArray[np.uint64]

_LOW = np.uint64(0xFFFFFFFF)
_SHIFT = np.uint64(32)
_MULTIPLIERS = np.array([0xD2511F53, 0xCD9E8D57], dtype=np.uint64)
_WEYL = np.array([0x9E3779B9, 0xBB67AE85], dtype=np.uint64)
_ROUNDS = 10


class Purpose(IntEnum):
    """What a draw decides; draws of different purposes are independent."""

    DRAFT = 1
    """Sampling the drafted token at an index."""
    ACCEPT = 2
    """Verification's tests."""
    EMIT = 3
    """The token behind the kept prefix."""
    PLAIN = 4
    """The target's own token at a position, whatever was drafted there for certain."""


@dataclass(frozen=True)
class Randomness:
    """All uniforms of one seed."""

    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.seed < 2**64:
            raise ValueError(f"seed={self.seed} is out of range; pass 0 <= seed < 2**64")

    def uniforms(
        self, request: int, step: int, purpose: Purpose, row: int = 0, count: int = 1
    ) -> Floats:
        """The uniforms of index 0..count-1 of one name, float64 [count] in [0, 1)."""
        return self.uniforms_batch([request], [step], purpose, [row], count)[0]

    def uniforms_batch(
        self,
        requests: ArrayLike,
        steps: ArrayLike,
        purpose: Purpose,
        rows: ArrayLike = 0,
        count: int = 1,
    ) -> Floats:
        """Uniforms [B, count] for B names at once (arguments broadcast).

        Row b equals `uniforms` of its own name: neither the batch nor `count` changes a number.
        """
        blocks = np.arange((count + 1) // 2)
        return self._draw(requests, steps, int(purpose), rows, blocks)[:, :count]

    def for_verification(
        self, requests: Sequence[int], steps: Sequence[int], length: int
    ) -> Floats:
        """What the single-draft verifiers want, [B, length + 1].

        Columns 0..length-1 are the tests of the drafted tokens, the last column draws the next
        token. Column i does not depend on `length`, so padding a batch changes nothing.
        """
        blocks = np.append(np.arange((length + 1) // 2), 0)
        purposes = np.full(blocks.size, int(Purpose.ACCEPT))
        purposes[-1] = int(Purpose.EMIT)
        draws = self._draw(requests, steps, purposes, 0, blocks)
        return np.concatenate([draws[:, :length], draws[:, -2:-1]], axis=1)

    def for_positions(self, request: int, first: int, count: int, levels: int = 1) -> Floats:
        """The target's draws at positions first..first+count-1 of the output, [count, levels].

        A position has the same ones in every step. levels: uniforms of one draw (`draws`).
        """
        positions = np.arange(first, first + count)
        return self.uniforms_batch(request, positions, Purpose.PLAIN, count=levels)

    def for_drafts(
        self, requests: Sequence[int], steps: Sequence[int], drafts: int, length: int
    ) -> Floats:
        """What the verifiers of several drafts want, [B, drafts, length + 1].

        Row k is `for_verification` of draft k: row 0 equals it exactly. Neither `drafts` nor
        `length` changes a number that a shorter call has.
        """
        blocks = np.append(np.arange((length + 1) // 2), 0)
        purposes = np.full(blocks.size, int(Purpose.ACCEPT))
        purposes[-1] = int(Purpose.EMIT)
        shape = (len(requests), drafts)
        request, step = (np.repeat(np.asarray(name), drafts) for name in (requests, steps))
        rows = np.tile(np.arange(drafts), len(requests))
        draws = self._draw(request, step, purposes, rows, blocks)
        return np.concatenate([draws[:, :length], draws[:, -2:-1]], axis=1).reshape(*shape, -1)

    def _draw(
        self,
        requests: ArrayLike,
        steps: ArrayLike,
        purposes: ArrayLike,
        rows: ArrayLike,
        blocks: NDArray[np.int64],
    ) -> Floats:
        """Two uniforms per name and block, [B, 2 · blocks]; purposes may differ by block."""
        request, step, row = np.broadcast_arrays(
            _words("request", requests, 32), _words("step", steps, 32), _words("row", rows, 24)
        )
        counters = np.empty((request.size, blocks.size, 4), dtype=np.uint64)
        counters[..., 0] = blocks
        counters[..., 1] = row.reshape(-1, 1) | np.asarray(purposes, np.uint64) << np.uint64(24)
        counters[..., 2] = step.reshape(-1, 1)
        counters[..., 3] = request.reshape(-1, 1)
        key = np.array([self.seed & 0xFFFFFFFF, self.seed >> 32], dtype=np.uint64)
        words = philox4x32(counters, key).reshape(request.size, -1, 2)
        # 27 and 26 high bits of two words: a multiple of 2**-53 below 1, all equally likely.
        high = (words[..., 0] >> np.uint64(5)).astype(np.float64)
        low = (words[..., 1] >> np.uint64(6)).astype(np.float64)
        return (high * 67108864.0 + low) * 2.0**-53


def philox4x32(counters: Words, key: Words) -> Words:
    """Philox 4x32-10: counters [..., 4] and key [..., 2] of 32-bit words → 4 random words each.

    Words travel as uint64 so that the 32 x 32-bit products need no special care. The two halves
    of a counter go through each operation together: small batches are bound by calls, not by data.
    """
    moved = np.moveaxis(counters, -1, 0)
    even, odd = moved[0::2], moved[1::2]
    column = (2,) + (1,) * (counters.ndim - 1)
    multipliers = _MULTIPLIERS.reshape(column)
    for r in range(_ROUNDS):
        round_key = ((key + np.uint64(r) * _WEYL) & _LOW).reshape(column)
        product = multipliers * even
        even, odd = (product >> _SHIFT)[::-1] ^ odd ^ round_key, (product & _LOW)[::-1]
    return np.stack([even[0], odd[0], even[1], odd[1]], axis=-1)


def gumbel(uniforms: ArrayLike) -> Floats:
    """Standard Gumbel noise -log(-log u), float64; u = 0 is moved to the middle of its cell."""
    u = np.maximum(np.asarray(uniforms, dtype=np.float64), 2.0**-54)
    return -np.log(-np.log(u))


def sample_inverse(mass: ArrayLike, uniform: float) -> int:
    """Draw an index from unnormalised `mass` [V] by inverting its distribution function.

    One uniform per draw, monotone in it; an index without mass is never drawn. Raises
    `ModelError` if there is no mass at all or it is not finite.
    """
    masses = np.asarray(mass, dtype=np.float64)
    cumulative = np.cumsum(masses)
    total = cumulative[-1] if masses.size else 0.0
    if not 0.0 < total < np.inf:
        raise ModelError(f"cannot sample a row whose mass is {total}; it must be positive, finite")
    index = int(np.searchsorted(cumulative, uniform * total, side="right"))
    return min(index, int(np.flatnonzero(masses)[-1]))


def sample_gumbel(mass: ArrayLike, uniforms: ArrayLike) -> int:
    """Draw an index from unnormalised `mass` [V] as argmax(log mass + Gumbel noise).

    One uniform per *token*: slower, but its noise couples two rows (the same noise on similar
    rows mostly picks the same token), and a kernel merges blocks by a plain argmax.
    """
    masses = np.asarray(mass, dtype=np.float64)
    if not (masses > 0.0).any() or not np.isfinite(masses).all():
        raise ModelError("cannot sample a row without positive, finite mass")
    with np.errstate(divide="ignore"):
        return int(np.argmax(np.where(masses > 0.0, np.log(masses), -np.inf) + gumbel(uniforms)))


def _words(name: str, values: ArrayLike, bits: int) -> Words:
    array = np.atleast_1d(np.asarray(values))
    if array.size and (array.min() < 0 or int(array.max()) >= 2**bits):
        raise ValueError(f"{name} must be in [0, 2**{bits}), got {array.min()}..{array.max()}")
    return array.astype(np.uint64)
