"""Tools for agents: what a model may call, in which format, and the calls that it makes.

`tool` and `toolset` say what there is to call; `layout` and `formats` describe how model families
write calls; `grammar` turns both into a structural tag, `reader` reads replies by the same
description; `prompt` offers the tools; `calling` and `streaming` run a request.

Invariants: a reply that the grammar allows is read; the arguments of a strict tool satisfy its
schema; names are never guessed.

Sibling: `structspec.generate` writes one value; this room writes conversations' turns.

Example::

    @structspec.tool
    def get_weather(city: str) -> str:
        '''The weather in a city.'''

    structspec.call_tools("default", "Is it raining in Paris?", [get_weather], "required")
"""

from __future__ import annotations

from structspec.tools.call import ToolCall, ToolCalls
from structspec.tools.calling import call_tools
from structspec.tools.definition import Tool, tool
from structspec.tools.formats import DEFAULT, FORMATS, find_format
from structspec.tools.grammar import Marking, reply_grammar
from structspec.tools.layout import CallFormat
from structspec.tools.reader import read_prefix, read_reply
from structspec.tools.render import render_calls
from structspec.tools.streaming import (
    ArgumentsDelta,
    CallFinished,
    CallStarted,
    Event,
    Finished,
    ReasoningDelta,
    TextDelta,
    stream_tools,
)
from structspec.tools.toolset import ToolSet

__all__ = [
    "DEFAULT",
    "FORMATS",
    "ArgumentsDelta",
    "CallFinished",
    "CallFormat",
    "CallStarted",
    "Event",
    "Finished",
    "Marking",
    "ReasoningDelta",
    "TextDelta",
    "Tool",
    "ToolCall",
    "ToolCalls",
    "ToolSet",
    "call_tools",
    "find_format",
    "read_prefix",
    "read_reply",
    "render_calls",
    "reply_grammar",
    "stream_tools",
    "tool",
]
