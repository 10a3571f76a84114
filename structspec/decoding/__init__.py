"""Decoding: prompts, the target with its cache, sampling laws and the loop that joins them.

`loop` decodes one request, `target` owns the key/value cache, `warp` the laws, `prompt` and
`healing` what goes in, `output` what comes out. Importing this package imports no torch; the
names below do when touched.
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
    "Sampling": "warp",
    "Stats": "output",
    "Target": "target",
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
    return getattr(import_module(f"{__name__}.{home}"), name)
