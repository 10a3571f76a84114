"""`Sampling`: the settings that a user samples with. What they mean for logits is `warp`'s.

Importing this module imports no torch.

    >>> Sampling(temperature=0.7, top_p=0.9).reads_history
    False
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from types import MappingProxyType
from typing import Any

import numpy as np

from structspec.integers import is_int

__all__ = ["Sampling"]

_PENALTIES = ("repetition_penalty", "frequency_penalty", "presence_penalty")


@dataclass(frozen=True)
class Sampling:
    """How to sample; None, 1.0 or 0.0 switch a setting off as the defaults do.

    Temperature 0 is greedy. `repetition_penalty` divides positive and multiplies negative logits
    of every token in the prompt or the output; `frequency_penalty` is subtracted once per
    occurrence in the output, `presence_penalty` once if there is any. `logit_bias` is added to
    the logits of its ids (-inf bans one). Raises ValueError for values out of range, TypeError for
    what is no number.
    """

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    repetition_penalty: float = 1.0
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    logit_bias: Mapping[int, float] | None = field(default=None, hash=False)
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("temperature", "top_p", "min_p", *_PENALTIES):
            value = getattr(self, name)
            if value is not None and not _is_number(value):
                raise TypeError(f"{name}={value!r} is not a number")
        _check("temperature", self.temperature, 0 <= self.temperature < math.inf, "finite, >= 0")
        if self.top_k is not None:
            _check(
                "top_k", self.top_k, is_int(self.top_k, 1), "an integer >= 1, or None for no limit"
            )
        if self.top_p is not None:
            _check("top_p", self.top_p, 0 <= self.top_p <= 1, "in [0, 1], or None for no limit")
        if self.min_p is not None:
            _check("min_p", self.min_p, 0 <= self.min_p <= 1, "in [0, 1], or None for no limit")
        penalty = self.repetition_penalty
        _check("repetition_penalty", penalty, 0 < penalty < math.inf, "finite, > 0 (1 is off)")
        for name in _PENALTIES[1:]:
            value = getattr(self, name)
            _check(name, value, math.isfinite(value), "finite (0 is off)")
        _check("seed", self.seed, is_int(self.seed, 0) and self.seed < 2**64, "in 0..2**64-1")
        if self.logit_bias is not None:
            bias = {}
            for token, value in self.logit_bias.items():
                good = is_int(token, 0) and value < math.inf
                _check(f"logit_bias[{token!r}]", value, good, "an id >= 0 and a value below +inf")
                bias[int(token)] = float(value)
            object.__setattr__(self, "logit_bias", MappingProxyType(bias))

    def __reduce__(self) -> tuple[Any, ...]:
        bias = None if self.logit_bias is None else dict(self.logit_bias)
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return _again, ({**values, "logit_bias": bias},)

    @property
    def plain(self) -> bool:
        """Whether laws are a softmax at the temperature, over the legal tokens and nothing else."""
        cut = self.top_k is not None or self.top_p is not None or bool(self.min_p)
        return not (cut or self.reads_history or self.logit_bias)

    @property
    def reads_history(self) -> bool:
        """Whether a row's law depends on its prefix beyond the logits."""
        return (
            self.repetition_penalty != 1.0
            or self.frequency_penalty != 0.0
            or self.presence_penalty != 0.0
        )


def _again(values: dict[str, Any]) -> Sampling:
    return Sampling(**values)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | np.number) and not isinstance(value, bool)


def _check(name: str, value: Any, good: bool, expected: str) -> None:
    if not good:
        raise ValueError(f"{name}={value!r} is out of range; it must be {expected}")
