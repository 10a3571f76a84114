"""What decoding returns: the tokens, the text, why it ended, and what it cost.

Invariants
- `tokens` holds no end token; `text` is what they write, without healed prompt bytes;
- an `Output` that `decode` returns is complete; one found as `error.partial_output` may not be.

Example::

    >>> stats = Stats(tokens=30, forwards=10, drafted=25, accepted=18)
    >>> stats.tokens_per_forward, stats.acceptance
    (3.0, 0.72)
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, TypeAlias

__all__ = ["Alternatives", "FinishReason", "Output", "Stats"]

Alternatives: TypeAlias = tuple[tuple[int, float], ...]
"""The likeliest tokens at one place with the logarithms of their probabilities, likeliest first."""

FinishReason: TypeAlias = Literal["stop", "stop_string", "length", "error"]
"""Why decoding ended.

"stop": an end token, or nothing else was legal. "stop_string": a stop string was written.
"length": the text is complete, but somewhere the token budget kept the model from its likeliest
token. "error": only in partial outputs.
"""


@dataclass
class Stats:
    """Counts and seconds of one request.

    `reused`: tokens of the prompt that were not read, since an earlier request or another one of
    the batch begins with the same ones (`Model.prefix_cache`). `forwards`: calls of the target;
    `drafted` and `accepted`: drafted tokens, and those kept; `forced`: tokens of the output that
    were the only legal one; `steps`: verifications. Seconds: `model_time` target forwards,
    `draft_time` drafting (with the masks along the draft), `mask_time` other masks, `verify_time`
    laws and verification, `total_time` all of it. In a batch, what is done for several requests at
    once is counted for each in equal shares, while `total_time` is the clock's, so the parts no
    longer add up to it.
    """

    prompt_tokens: int = 0
    reused: int = 0
    tokens: int = 0
    forwards: int = 0
    steps: int = 0
    drafted: int = 0
    accepted: int = 0
    forced: int = 0
    model_time: float = 0.0
    draft_time: float = 0.0
    mask_time: float = 0.0
    verify_time: float = 0.0
    total_time: float = 0.0

    @property
    def tokens_per_forward(self) -> float:
        """Output tokens per call of the target, 0 before the first."""
        return self.tokens / self.forwards if self.forwards else 0.0

    @property
    def acceptance(self) -> float:
        """The fraction of drafted tokens that were kept, 0 without a draft."""
        return self.accepted / self.drafted if self.drafted else 0.0

    @property
    def tokens_per_second(self) -> float:
        """Output tokens per second of `total_time`."""
        return self.tokens / self.total_time if self.total_time else 0.0


@dataclass(frozen=True)
class Output:
    """One finished text. `seed` and `request` reproduce it with the same settings.

    `logprobs`, if asked for: per token, the natural logarithm of its probability under the law
    that was sampled, mask and sampling settings applied (at temperature 0: of the masked law at
    temperature 1). `end_logprob`: that of ending here, None if a stop string ended the text. Their
    sum is the log-probability of the whole output. `top_logprobs`, if asked for: per token, the
    likeliest ones under the same law; fewer where the grammar allows fewer.
    """

    tokens: tuple[int, ...]
    text: bytes
    finish_reason: FinishReason
    seed: int = 0
    request: int = 0
    stats: Stats = field(default_factory=Stats, compare=False)
    logprobs: tuple[float, ...] | None = field(default=None, compare=False)
    end_logprob: float | None = field(default=None, compare=False)
    top_logprobs: tuple[Alternatives, ...] | None = field(default=None, compare=False)
