"""Verification: which part of a draft to keep, without changing the target's law.

The oracle (float64, numpy) defines it: `oracle` for one draft, `oracle_levels` and
`oracle_drafts` for several, `oracle_trees` for trees, `oracle_baselines` for published rules,
`optimum` for the most that any rule can keep. The same in torch over batches of ragged drafts:
`token`, `block`, `greedy`; `layered`, `baselines`, `traversal`; `tree`. `registry` finds them by
name, `rows`, `drafts` and `levels` are what they share, `randomness` names every uniform.
Importing this package imports no torch; the names below do when touched.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from structspec.extras import names_at

if TYPE_CHECKING:
    from structspec.verification.drafts import DraftsVerifier
    from structspec.verification.randomness import Purpose, Randomness
    from structspec.verification.registry import (
        drafts_verifier,
        drafts_verifiers,
        verifier,
        verifiers,
    )
    from structspec.verification.rows import Verdict, Verifier, sample_rows
    from structspec.verification.tree import tree_path, tree_target_verify

__all__ = [
    "DraftsVerifier",
    "Purpose",
    "Randomness",
    "Verdict",
    "Verifier",
    "drafts_verifier",
    "drafts_verifiers",
    "sample_rows",
    "tree_path",
    "tree_target_verify",
    "verifier",
    "verifiers",
]

_HOMES = {
    "DraftsVerifier": "drafts",
    "Purpose": "randomness",
    "Randomness": "randomness",
    "Verdict": "rows",
    "Verifier": "rows",
    "drafts_verifier": "registry",
    "drafts_verifiers": "registry",
    "sample_rows": "rows",
    "tree_path": "tree",
    "tree_target_verify": "tree",
    "verifier": "registry",
    "verifiers": "registry",
}

__getattr__ = names_at(__name__, _HOMES)
