"""Phi-4-mini: a JSON array between `<|tool_call|>` tokens, or behind the word `functools`.

Source: the model card of Phi-4-mini-instruct and llguidance's docs/toolcalls.md (tokens); vLLM's
parser `phi4_mini_json` and its chat template (the word). Which one a model writes depends on its
prompt; the tokens are the default.

Examples of replies::

    <|tool_call|>[{"name": "get_weather", "arguments": {"city": "Paris"}}]<|/tool_call|>
    functools[{"name": "get_weather", "arguments": {"city": "Paris"}}]
"""

from __future__ import annotations

from structspec.tools.layout import ArrayLayout, CallFormat, CallObject, Mark

__all__ = ["PHI4", "PHI4_FUNCTOOLS"]

PHI4 = CallFormat(
    name="phi4",
    title="Phi-4-mini",
    source="model card of Phi-4-mini-instruct; llguidance docs/toolcalls.md",
    before=(Mark("<|tool_call|>"),),
    call=(CallObject(),),
    after=(Mark("<|/tool_call|>"),),
    array=ArrayLayout(),
    known_by=("<|/tool|>", "<|/tool_call|>"),
)

PHI4_FUNCTOOLS = CallFormat(
    name="phi4_functools",
    title="Phi-4-mini under vLLM's template",
    source="vLLM's phi4_mini_json parser and template",
    before=("functools",),
    call=(CallObject(),),
    array=ArrayLayout(),
    known_by=("functools[",),
)
