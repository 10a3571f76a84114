"""The verifiers by name.

Owns the tables that options such as `verifier="block"` are looked up in:

- `verifiers`: one draft per request (`rows.Verifier`);
- `drafts_verifiers`: several i.i.d. drafts per request (`drafts.DraftsVerifier`).

A name is in one table only. Trees have their own arguments: `tree.tree_target_verify`. Importing
this module needs torch; the package `structspec.verification` alone does not.

Example::

    >>> verifier("block").__name__, drafts_verifier("layered").__name__
    ('block_verify', 'layered_verify')
    >>> verifier("blok")
    Traceback (most recent call last):
    structspec.errors.DraftError: there is no verifier 'blok'; choose one of: block, greedy, token
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from structspec.errors import DraftError
from structspec.verification.baselines import kseq_verify, multipath_verify, recursive_verify
from structspec.verification.block import block_verify
from structspec.verification.drafts import DraftsVerifier
from structspec.verification.greedy import greedy_verify
from structspec.verification.layered import layered_verify
from structspec.verification.rows import Verifier
from structspec.verification.token import token_verify
from structspec.verification.traversal import traversal_verify

__all__ = ["drafts_verifier", "drafts_verifiers", "verifier", "verifiers"]

T = TypeVar("T")

verifiers: dict[str, Verifier] = {
    "block": block_verify,
    "greedy": greedy_verify,
    "token": token_verify,
}
"""Verifiers of a single draft; all are lossless (greedy: at temperature 0)."""

drafts_verifiers: dict[str, DraftsVerifier] = {
    "kseq": kseq_verify,
    "layered": layered_verify,
    "multipath": multipath_verify,
    "recursive": recursive_verify,
    "traversal": traversal_verify,
}
"""Verifiers of several i.i.d. drafts; all are lossless, `layered` is the one to use."""


def verifier(name: str) -> Verifier:
    """The verifier of one draft called `name`; raises `DraftError` that lists the choices."""
    return _find(verifiers, name, drafts_verifiers, "several drafts")


def drafts_verifier(name: str) -> DraftsVerifier:
    """The verifier of several drafts called `name`; raises `DraftError` that lists the choices."""
    return _find(drafts_verifiers, name, verifiers, "one draft")


def _find(table: Mapping[str, T], name: str, other: Mapping[str, object], what: str) -> T:
    if name in table:
        return table[name]
    choices = ", ".join(sorted(table))
    problem = f"'{name}' verifies {what}" if name in other else f"there is no verifier '{name}'"
    raise DraftError(f"{problem}; choose one of: {choices}")
