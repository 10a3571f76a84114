"""Verification: which part of a draft to keep, without changing the target's law.

`oracle` (float64, numpy) defines it, `token`, `block` and `greedy` compute it in torch over a
batch of ragged drafts, `registry` finds them by name, `rows` is what they share, `randomness`
names every uniform. Importing this package imports no torch; the names below do when touched.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from structspec.verification.randomness import Purpose, Randomness
    from structspec.verification.registry import verifier, verifiers
    from structspec.verification.rows import Verdict, Verifier, sample_rows

__all__ = ["Purpose", "Randomness", "Verdict", "Verifier", "sample_rows", "verifier", "verifiers"]

_HOMES = {
    "Purpose": "randomness",
    "Randomness": "randomness",
    "Verdict": "rows",
    "Verifier": "rows",
    "sample_rows": "rows",
    "verifier": "registry",
    "verifiers": "registry",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    return getattr(import_module(f"{__name__}.{home}"), name)
