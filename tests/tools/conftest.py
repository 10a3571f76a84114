"""Tools to call, and random replies drawn from a grammar's automaton."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from structspec import ir
from structspec.automata.automaton import DEAD
from structspec.tools import ToolSet

Part = str | bytes | ir.Special

WEATHER = {
    "name": "get_weather",
    "description": "The weather in a city.",
    "parameters": {
        "type": "object",
        "properties": {
            "city": {"type": "string", "maxLength": 6},
            "unit": {"enum": ["C", "F", None]},
            "days": {"type": "integer", "minimum": 1, "maximum": 14},
            "wind": {"type": ["boolean", "null"]},
            "parts": {"type": "array", "items": {"type": "number"}, "maxItems": 2},
        },
        "required": ["city"],
    },
}
TIME = {"name": "get_time", "parameters": {"type": "object", "properties": {}}}
NEST = {
    "name": "nest",
    "parameters": {
        "type": "object",
        "properties": {"node": {"$ref": "#/$defs/node"}},
        "required": ["node"],
        "$defs": {
            "node": {
                "type": "object",
                "properties": {"v": {"type": "boolean"}, "next": {"$ref": "#/$defs/node"}},
                "required": ["v"],
            }
        },
    },
}


@pytest.fixture(scope="session")
def tools() -> ToolSet:
    """Three tools: plain, without arguments, recursive."""
    return ToolSet([WEATHER, TIME, NEST])


def draw_reply(grammar: Any, rng: random.Random, length: int = 60) -> list[Part]:
    """A random reply: bytes and special tokens, hurried to its end beyond `length` steps."""
    automaton, network = grammar.automaton, grammar.network
    specials = network.specials
    state, parts, text = automaton.start, [], bytearray()
    step = 0
    while True:
        step += 1
        if automaton.accepting(state) and (step > length or rng.random() < 0.2):
            break
        found = [
            (following, number)
            for number in range(network.n_classes)
            if (following := automaton.step(state, number)) != DEAD
        ]
        if not found:
            break
        if step > length:
            least = min(automaton.cost(following) for following, _ in found)
            found = [item for item in found if automaton.cost(item[0]) == least]
        state, number = rng.choice(found)
        first = network.special_class(0)
        if number < first:
            text.append(rng.choice(list(network.class_bytes[number])))
        else:
            parts.append(bytes(text))
            parts.append(ir.Special(specials[number - first]))
            text.clear()
    parts.append(bytes(text))
    return [part for part in parts if part != b""]


@pytest.fixture(scope="session")
def draw() -> Callable[..., list[Part]]:
    """`draw(grammar, rng)`: a random reply of a grammar."""
    return draw_reply
