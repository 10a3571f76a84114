"""Gemma 3, Llama 3.2 and others: a Python list of calls with keyword arguments.

Source: Google's function calling guide for Gemma (`[func_name1(params_name1=params_value1, …)]`)
and vLLM's parser `pythonic`. There is no marker: a reply that begins with `[` holds calls.

Limits. Arguments are a closed record with names that Python allows as keywords; other schemas are
refused by name. Dots in a tool's name are attribute access; other signs are refused. Values are
Python literals in one spelling (double quotes; True, False, None).

Example of a reply::

    [get_weather(city="Paris", days=3), get_time()]
"""

from __future__ import annotations

from structspec.tools.layout import ArrayLayout, CallFormat, PythonCall

__all__ = ["PYTHONIC"]

PYTHONIC = CallFormat(
    name="pythonic",
    title="Gemma 3 and other pythonic models",
    source="ai.google.dev/gemma/docs/capabilities/function-calling; vLLM's pythonic parser",
    call=(PythonCall(),),
    array=ArrayLayout(),
    leads="[",
    known_by=("func_name1(params_name1=",),
)
