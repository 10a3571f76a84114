"""Decoding: the loop that joins drafts, forwards and verification.

`loop` decodes requests, `healing` repairs the seam of what goes in, `output` is what comes out,
`collect` samples answers for training; prompts are encoded by `structspec.prompt`, caches and laws
are in `structspec.forward`. Importing this package imports no torch; the names below do when
touched.
"""

from __future__ import annotations

from structspec.extras import names_at

__all__ = [
    "GrammarLogitsProcessor",
    "Job",
    "Loop",
    "Output",
    "PrefixedConstraint",
    "Sampling",
    "Stats",
    "Stream",
    "StreamEvent",
    "Target",
    "calibrate",
    "decode",
    "decode_many",
    "heal",
    "speculate",
]

_HOMES = {
    "GrammarLogitsProcessor": "processor",
    "Stream": "streaming",
    "StreamEvent": "streaming",
    "speculate": "custom_generate",
    "Output": "output",
    "PrefixedConstraint": "healing",
    "Sampling": "structspec.forward.sampling",
    "Stats": "output",
    "Target": "structspec.forward.target",
    "calibrate": "calibration",
    "Job": "progress",
    "Loop": "loop",
    "decode": "loop",
    "decode_many": "loop",
    "heal": "healing",
}

__getattr__ = names_at(__name__, _HOMES)
