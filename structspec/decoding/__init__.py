"""Decoding: prompts and the loop that joins drafts, forwards and verification.

`loop` decodes requests, `prompt` and `healing` are what goes in, `output` what comes out; caches
and laws are in `structspec.forward`. Importing this package imports no torch; the names below do
when touched.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

__all__ = [
    "GrammarLogitsProcessor",
    "Job",
    "Loop",
    "Output",
    "PrefixedConstraint",
    "Prompt",
    "Sampling",
    "Stats",
    "Stream",
    "StreamEvent",
    "Target",
    "decode",
    "decode_many",
    "encode_prompt",
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
    "Prompt": "prompt",
    "Sampling": "structspec.forward.warp",
    "Stats": "output",
    "Target": "structspec.forward.target",
    "Job": "progress",
    "Loop": "loop",
    "decode": "loop",
    "decode_many": "loop",
    "encode_prompt": "prompt",
    "heal": "healing",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    module = home if "." in home else f"{__name__}.{home}"
    return getattr(import_module(module), name)
