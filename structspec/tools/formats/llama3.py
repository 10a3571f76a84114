"""Llama 3.1, 3.2 and 3.3 with JSON calls: the reply is one object with `parameters`.

Source: the chat template of Llama-3.2-3B-Instruct (as in llama.cpp's models/templates), which
refuses more than one call. There is no marker: a reply that begins with `{` is a call, every other
one is text. So a text reply cannot begin with `{`. Built-in tools (`<|python_tag|>`) are not
written.

Example of a reply::

    {"name": "get_weather", "parameters": {"city": "Paris"}}
"""

from __future__ import annotations

from structspec.tools.layout import CallFormat, CallObject

__all__ = ["LLAMA3"]

LLAMA3 = CallFormat(
    name="llama3",
    title="Llama 3.1, 3.2, 3.3 (JSON)",
    source="chat template of Llama-3.2-3B-Instruct",
    call=(CallObject(arguments_key="parameters"),),
    parallel=False,
    leads="{",
    known_by=('"parameters": dictionary of argument name', "with its proper arguments"),
)
