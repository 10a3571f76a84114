"""`DraftLength`: how many free tokens the next draft holds; `DraftCosts`: what they cost.

Owns the adaptation of a model's draft. Without costs the length follows what earlier rounds got
through: up where everything was kept, down where a free token was refused. With costs it is the
length that makes most tokens per second: if each free token is kept with probability α, a draft of
L makes Σ_{i ≤ L} αⁱ tokens and takes `forward + L · (token + step)`. α is a running mean over
earlier rounds. Where no length pays, nothing is drafted but forced text, and one round in
`PROBE` drafts a token to see whether that has changed.

Invariants
- a length is a function of the settings, of earlier rounds and of the number of this one: never of
  the tokens that are being drafted, which would bias the text;
- nothing here reads a clock: costs are numbers that the caller gives, so equal arguments and seeds
  give equal texts on a busy machine too.

Cost: a few multiplications per round.

Siblings: `decoding.calibration` measures costs; `model.ModelDrafter` asks for lengths.

Example::

    lengths = DraftLength(4, 8, costs=DraftCosts(forward=20.0, token=0.4, step=3.0))
    lengths.next(step=0); lengths.learn(tried=4, right=2, refused=True)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from structspec.errors import DraftError

__all__ = ["PROBE", "DraftCosts", "DraftLength", "guesses_after"]

PROBE = 16
"""One round in so many drafts although it does not seem to pay."""

# Before the first round α counts as this, seen so many times; older rounds fade by `_FADING` each.
_FIRST_GUESS, _WEIGHT = 0.7, 4.0
_FADING = 0.9


@dataclass(frozen=True)
class DraftCosts:
    """What a round takes, in any one unit of time.

    `forward`: the target's forward of one token; `token`: each further token of it, its
    verification included; `step`: one free token of the draft.
    """

    forward: float
    token: float
    step: float

    def __post_init__(self) -> None:
        for name in ("forward", "token", "step"):
            value = getattr(self, name)
            if not (value >= 0 and value < float("inf")) or (name == "forward" and not value):
                raise DraftError(
                    f"{name}={value!r} is no cost; give seconds, or any unit, from 0 on "
                    "(forward above 0)"
                )

    def rate(self, length: int, share: float) -> float:
        """Expected tokens per unit of time of drafts of `length`, each kept with `share`."""
        tokens, power = 1.0, 1.0
        for _ in range(length):
            power *= share
            tokens += power
        return tokens / (self.forward + length * (self.token + self.step))

    def best(self, share: float, most: int) -> int:
        """The length from 0 to `most` of the best rate, the shortest of equals."""
        return max(range(most + 1), key=lambda length: (self.rate(length, share), -length))


def guesses_after(guesses: int, most: int, places: Sequence[int], accepted: int) -> int:
    """How many guesses, which cost nothing to make, a draft may hold after one of `guesses`.

    places: where that draft's guesses stood, of which the first `accepted` tokens were kept. All
    right: twice as many, at most `most`. One refused, and no token before it: half the way down to
    those that were right, at least 1.
    """
    if not places:
        return guesses
    right = sum(place < accepted for place in places)
    if right == len(places):
        return min(most, 2 * guesses)
    return max(1, (guesses + right + 1) // 2) if accepted in places else guesses


class DraftLength:
    """See the module. first: free tokens of the first draft, without costs; most: of any."""

    def __init__(
        self, first: int, most: int, *, adaptive: bool = True, costs: DraftCosts | None = None
    ) -> None:
        self._most = most
        self._adaptive = adaptive
        self._costs = costs if adaptive else None
        self._length = first
        self._right, self._tried = _FIRST_GUESS * _WEIGHT, _WEIGHT
        self._choose()

    @property
    def share(self) -> float:
        """How many of the free tokens that were reached were kept, recent ones counting most."""
        return self._right / self._tried

    def next(self, step: int) -> int:
        """Free tokens of round `step`."""
        return self._length or int(step % PROBE == PROBE - 1)

    def learn(self, tried: int, right: int, refused: bool) -> None:
        """A draft of `tried` free tokens had `right` kept; was the next of them refused?

        Where it was not, a token between them was: that says nothing about free ones.
        """
        if not self._adaptive or not tried:
            return
        if self._costs is not None:
            self._right = _FADING * self._right + right
            self._tried = _FADING * self._tried + right + refused
            self._choose()
        elif right == tried:
            self._length = min(self._most, self._length + 2)
        elif refused:
            self._length = max(1, (self._length + right + 1) // 2)

    def _choose(self) -> None:
        if self._costs is not None:
            self._length = self._costs.best(self.share, self._most)
