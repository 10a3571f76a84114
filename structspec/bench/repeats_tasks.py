"""Functions that are called again and again: the same type each time, another text.

Support tickets are sorted (`enum`s, a flag, a short summary), people are looked for in sentences
(strings, a number, null where nothing is said), orders are listed (arrays of objects), and
functions made by `exercises` are called with other arguments each time. Texts are put together
from word lists; the same seed makes the same ones.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from structspec.bench.exercises import requests_of_one_function

__all__ = ["Repeated", "repeated"]


@dataclass(frozen=True)
class Repeated:
    """A function and what it is asked: prompts or conversations, and the schema of its answers."""

    name: str
    schema: dict[str, Any]
    prompts: tuple[Any, ...]


_TICKET = {
    "type": "object",
    "properties": {
        "category": {"enum": ["billing", "bug", "question", "praise", "delivery", "cancellation"]},
        "priority": {"enum": ["low", "medium", "high", "urgent"]},
        "sentiment": {"enum": ["negative", "neutral", "positive"]},
        "summary": {"type": "string", "maxLength": 60},
        "needs_reply": {"type": "boolean"},
        "product": {"type": ["string", "null"], "maxLength": 20},
        "tags": {"type": "array", "items": {"type": "string", "maxLength": 12}, "maxItems": 3},
    },
}
_PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 30},
        "age": {"type": "integer", "minimum": 0, "maximum": 120},
        "city": {"type": ["string", "null"], "maxLength": 20},
        "job": {"type": ["string", "null"], "maxLength": 20},
        "email": {"type": ["string", "null"], "maxLength": 30},
        "languages": {
            "type": "array",
            "items": {"type": "string", "maxLength": 12},
            "maxItems": 4,
        },
    },
}
_ORDER = {
    "type": "array",
    "items": {
        "type": "object",
        "properties": {
            "item": {"type": "string", "maxLength": 20},
            "size": {"enum": ["small", "medium", "large"]},
            "amount": {"type": "integer", "minimum": 1, "maximum": 20},
            "note": {"type": ["string", "null"], "maxLength": 30},
        },
    },
    "minItems": 1,
    "maxItems": 3,
}

_OPENINGS = ("Hello,", "Hi team,", "Good morning,", "To whom it may concern:", "Quick note:", "")
_MATTERS = (
    "my invoice from {month} was charged twice, please refund one of them.",
    "the {product} crashes when I open the settings page.",
    "how do I change the password of the {product}?",
    "I love the new {product}, great job!",
    "the {product} that I ordered in {month} is still not here and nobody answers the phone.",
    "I would like to cancel my {product} at the end of {month}.",
    "exporting from the {product} produces an empty file since {month}.",
    "can you add dark mode to the {product}?",
    "the {product} arrived broken, the screen has a crack.",
    "I was billed in dollars for the {product} although I live in France.",
)
_PRODUCTS = ("web client", "tracker", "subscription", "phone app", "printer", "scanner", "headset")
_MONTHS = ("January", "March", "May", "July", "September", "November")
_PEOPLE = (
    "{name}, {age}, lives in {city} and works as a {job}.",
    "{name} is a {age} year old {job} from {city}.",
    "Our new colleague {name}, {age}, moved here from {city}; she speaks {language}.",
    "The {age}-year-old {job} {name} lives in {city} and speaks {language}.",
    "{name} ({age}) is a {job}; write to {mail}.",
    "A {job} named {name} was seen in {city}.",
)
_NAMES = (
    "Anna Berg",
    "Tom Lee",
    "Maria Rossi",
    "Jan Novak",
    "Lucy Chen",
    "Paul Meyer",
    "Eva Silva",
)
_CITIES = ("Oslo", "Leeds", "Turin", "Prague", "Boston", "Bern", "Lisbon", "Osaka")
_JOBS = ("nurse", "pilot", "teacher", "chemist", "baker", "carpenter", "lawyer", "surgeon")
_LANGUAGES = ("Spanish", "Japanese", "German", "Polish")
_ITEMS = ("coffee", "green tea", "cheese cake", "lemonade", "sandwich", "apple pie", "soup")
_SIZES = ("small", "medium", "large")
_NUMBERS = ("one", "two", "three", "four")
_NOTES = ("", "", ", without sugar", ", to take away", ", with extra milk")


def _ticket(draw: random.Random) -> str:
    matter = draw.choice(_MATTERS).format(
        month=draw.choice(_MONTHS), product=draw.choice(_PRODUCTS)
    )
    return f"Describe this support ticket as JSON.\n\n{draw.choice(_OPENINGS)} {matter}"


def _person(draw: random.Random) -> str:
    name = draw.choice(_NAMES)
    sentence = draw.choice(_PEOPLE).format(
        name=name,
        age=draw.randint(19, 75),
        city=draw.choice(_CITIES),
        job=draw.choice(_JOBS),
        language=draw.choice(_LANGUAGES),
        mail=name.split()[0].lower() + "@example.org",
    )
    return f"Extract the person as JSON; null where nothing is said.\n\n{sentence}"


def _order(draw: random.Random) -> str:
    parts = [
        f"{draw.choice(_NUMBERS)} {draw.choice(_SIZES)} {item}{draw.choice(_NOTES)}"
        for item in draw.sample(_ITEMS, draw.choice((1, 2, 3)))
    ]
    return f"List what is ordered as JSON.\n\n{' and '.join(parts).capitalize()}, please."


def repeated(calls: int, functions: int = 4, seed: int = 0) -> Iterator[Repeated]:
    """The work: three functions and `functions` tools, each called so many times."""
    for name, schema, write in (
        ("tickets", _TICKET, _ticket),
        ("people", _PERSON, _person),
        ("orders", _ORDER, _order),
    ):
        draw = random.Random(f"{seed}/{name}")
        prompts = dict.fromkeys(write(draw) for _ in range(20 * calls))
        yield Repeated(name, _closed(schema), tuple(prompts)[:calls])
    for number in range(functions):
        schema, conversations = requests_of_one_function(calls, f"{seed}/tool-{number}")
        yield Repeated(f"tool {number + 1}", schema, tuple(conversations))


def _closed(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema with all members required and no others."""
    closed = dict(schema)
    if "properties" in schema:
        closed |= {"required": list(schema["properties"]), "additionalProperties": False}
    if "items" in schema:
        closed["items"] = _closed(schema["items"])
    return closed
