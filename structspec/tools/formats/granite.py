"""Granite 3: `<|tool_call|>` and a JSON array of calls. Granite 4 writes the `hermes` format.

Source: vLLM's parser `granite` and its documentation (the token `<|tool_call|>` in 3.0; 3.1 spells
it as the text `<tool_call>`, which is not written here); the Granite 4.0 prompt guide for the later
format.

Example of a reply::

    <|tool_call|>[{"name": "get_weather", "arguments": {"city": "Paris"}}]
"""

from __future__ import annotations

from structspec.tools.layout import ArrayLayout, CallFormat, CallObject, Mark

__all__ = ["GRANITE"]

GRANITE = CallFormat(
    name="granite",
    title="Granite 3",
    source="vLLM's granite parser",
    before=(Mark("<|tool_call|>"),),
    call=(CallObject(),),
    array=ArrayLayout(),
    known_by=("<|start_of_role|>available_tools", "start with <|tool_call|>"),
)
