"""The verifiers by name.

Owns the table that options such as `verifier="block"` are looked up in. Importing it needs torch;
the package `structspec.verification` alone does not.

Example::

    >>> verifier("block").__name__
    'block_verify'
    >>> verifier("blok")
    Traceback (most recent call last):
    structspec.errors.DraftError: there is no verifier 'blok'; choose one of: block, greedy, token
"""

from __future__ import annotations

from structspec.errors import DraftError
from structspec.verification.block import block_verify
from structspec.verification.greedy import greedy_verify
from structspec.verification.rows import Verifier
from structspec.verification.token import token_verify

__all__ = ["verifier", "verifiers"]

verifiers: dict[str, Verifier] = {
    "block": block_verify,
    "greedy": greedy_verify,
    "token": token_verify,
}
"""Verifiers of a single draft; all are lossless (greedy: at temperature 0)."""


def verifier(name: str) -> Verifier:
    """The verifier called `name`; raises `DraftError` that lists the valid choices."""
    try:
        return verifiers[name]
    except KeyError:
        choices = ", ".join(sorted(verifiers))
        raise DraftError(f"there is no verifier '{name}'; choose one of: {choices}") from None
