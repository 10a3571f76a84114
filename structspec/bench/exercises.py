"""Exercises: tool-calling tasks to train draft heads on, and others to measure them on.

    python -m structspec.bench.exercises --out run/tasks.jsonl --evaluation run/evaluation.jsonl

Functions are put together from domains, verbs and parameters (`exercise_words`), the user's request
from sampled arguments, so that what an answer should hold stands in the prompt. Three kinds: calls
of one of one to three made functions, calls of tools that real servers list (`mcp_tools.json` in
the data folder, if it is there), and requests for an instance of a schema. Behind them come the
tool-calling tasks of the data folder that are not for evaluation. The same seed makes the same
exercises.

Evaluation tasks are the first ones that the benchmarks read (`tasks.read_tasks`). No exercise has a
function of theirs, nor one much like it: the same name, or much the same parameters, see
`answers.Functions`.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from structspec.bench.exercise_words import DOMAINS, OPENINGS, PARAMETERS, Parameter
from structspec.bench.tasks import data_folder, tasks_apart
from structspec.drafting.answers import Functions

__all__ = ["exercises", "requests_of_one_function"]


def exercises(count: int, seed: int = 0, apart_from: Functions | None = None) -> Iterator[Any]:
    """Tasks as `train-draft` reads them: "id", "messages", and "tools" or "schema"."""
    servers = _server_tools()
    taken = apart_from or Functions()
    for number in range(count):
        draw = random.Random(f"{seed}/{number}")
        while True:
            kind = draw.random()
            if kind < 0.15:
                row = _instance(draw)
            elif kind < 0.3 and servers:
                row = _server_call(draw, servers)
            else:
                row = _made_call(draw)
            if not any(taken.has(tool["function"]) for tool in row.get("tools", ())):
                break
        yield {"id": f"exercise-{seed}-{number}", **row}


def _function(draw: random.Random) -> tuple[dict[str, Any], list[tuple[str, Parameter]], str]:
    """A function document, its parameters, and what calling it does in words."""
    domain = draw.choice(list(DOMAINS))
    words = DOMAINS[domain]
    verb, noun = draw.choice(words["verbs"]), draw.choice(words["nouns"])
    pool = [*words["parameters"], *DOMAINS["general"]["parameters"]]
    names = draw.sample(pool, draw.choice(_HOW_MANY))
    chosen = [(name, PARAMETERS[name]) for name in dict.fromkeys(names)]
    style = draw.random()
    if style < 0.55:
        name = f"{verb}_{noun}".replace(" ", "_")
    elif style < 0.8:
        name = f"{domain}.{verb}_{noun}".replace(" ", "_")
    else:
        name = verb + "".join(word.capitalize() for word in noun.split())
    required = [n for n, _ in chosen if draw.random() < 0.7] or [chosen[0][0]]
    properties = {n: p.schema(draw) for n, p in chosen}
    document = {
        "name": name,
        "description": draw.choice(
            [
                f"{verb.capitalize()} the {noun} for the given {chosen[0][0].replace('_', ' ')}.",
                f"{verb.capitalize()} {noun} in the {domain} system.",
                f"Use this to {verb} a {noun}.",
            ]
        ),
        "parameters": {"type": "object", "properties": properties, "required": required},
    }
    return document, chosen, f"{verb} the {noun}"


_HOW_MANY = (1, 2, 2, 3, 3, 4, 5)


def _request(draw: random.Random, what: str, chosen: list[tuple[str, Parameter]]) -> str:
    phrases = [p.phrase.format(p.value(draw)) for _, p in chosen if draw.random() < 0.9]
    return f"{draw.choice(OPENINGS)} {what} {', '.join(phrases)}".strip()


def _made_call(draw: random.Random) -> dict[str, Any]:
    made = [_function(draw) for _ in range(draw.choice((1, 1, 1, 2, 2, 3)))]
    documents = {document["name"]: document for document, _, _ in made}
    calls = draw.choice((1, 1, 1, 2))
    asked = [draw.choice(made) for _ in range(calls)]
    text = " Then ".join(_request(draw, what, chosen) for _, chosen, what in asked)
    ending = draw.choice((".", "?", "", " please."))
    return {
        "messages": [{"role": "user", "content": text + ending}],
        "tools": [{"type": "function", "function": d} for d in documents.values()],
    }


def requests_of_one_function(
    count: int, seed: str
) -> tuple[dict[str, Any], list[list[dict[str, Any]]]]:
    """The schema of one function's calls, and conversations that ask for it with other values."""
    draw = random.Random(seed)
    document, chosen, what = _function(draw)
    listed = json.dumps(document, ensure_ascii=False)
    system = {"role": "system", "content": f"Answer with the arguments of this function: {listed}"}
    asked = dict.fromkeys(_request(draw, what, chosen) for _ in range(20 * count))
    schema = {**document["parameters"], "additionalProperties": False}
    return schema, [[system, {"role": "user", "content": f"{t}."}] for t in list(asked)[:count]]


def _server_tools() -> list[dict[str, Any]]:
    path = data_folder() / "mcp_tools.json"
    if not path.is_file():
        return []
    servers = json.loads(path.read_text(encoding="utf-8"))
    found = []
    for tools in servers.values():
        for tool in tools:
            schema = {k: v for k, v in tool["inputSchema"].items() if k != "$schema"}
            if schema.get("properties") and len(json.dumps(schema)) < 1500:
                text = str(tool.get("description") or tool["name"]).split("\n")[0][:200]
                found.append({"name": tool["name"], "description": text, "parameters": schema})
    return found


def _server_call(draw: random.Random, servers: list[dict[str, Any]]) -> dict[str, Any]:
    tools = draw.sample(servers, draw.choice((1, 1, 2)))
    asked = draw.choice(tools)
    parts = []
    for name, schema in asked["parameters"]["properties"].items():
        options = schema.get("enum")
        if options:
            value = draw.choice(options)
        elif schema.get("type") in ("integer", "number"):
            value = draw.randint(1, 90)
        elif schema.get("type") == "string":
            value = draw.choice(list(PARAMETERS.values())).value(draw)
        else:
            continue
        if draw.random() < 0.8:
            parts.append(f"{name.replace('_', ' ')} {value}")
    text = asked["description"].rstrip(".")
    with_ = f" with {' and '.join(parts)}" if parts else ""
    return {
        "messages": [{"role": "user", "content": f"{draw.choice(OPENINGS)} this: {text}{with_}."}],
        "tools": [{"type": "function", "function": tool} for tool in tools],
    }


def _instance(draw: random.Random) -> dict[str, Any]:
    document, _, _ = _function(draw)
    schema: dict[str, Any] = {**document["parameters"], "additionalProperties": False}
    if draw.random() < 0.4:
        schema = {"type": "array", "items": schema, "minItems": 1, "maxItems": 3}
    listed = json.dumps(schema, ensure_ascii=False)
    ask = draw.choice(
        (
            "Give me an instance of this JSON schema: ",
            "Write JSON that fits this schema: ",
            "Invent plausible data for the following schema. ",
        )
    )
    return {"messages": [{"role": "user", "content": ask + listed}], "schema": schema}


def main(arguments: list[str] | None = None) -> int:
    """Write the exercises and the evaluation tasks."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    add = parser.add_argument
    add("--count", type=int, default=600, help="made exercises")
    add("--seed", type=int, default=0)
    add("--evaluate", type=int, default=100, help="tasks kept for evaluation")
    add("--out", type=Path, required=True, help="a file of JSON lines")
    add("--evaluation", type=Path, default=None, help="where to write the evaluation tasks")
    options = parser.parse_args(arguments)
    first, others = tasks_apart(options.evaluate)
    taken = Functions(tool["function"] for task in first for tool in task.tools)
    made = list(exercises(options.count, options.seed, taken))
    _write(options.out, _mixed([*made, *others]))
    if options.evaluation is not None:
        rows = [{"id": t.id, "messages": t.messages[1:], "tools": t.tools} for t in first]
        _write(options.evaluation, rows)
    print(f"{len(made)} made exercises, {len(others)} tasks, {len(first)} evaluation tasks")
    return 0


def _mixed(rows: list[Any]) -> list[Any]:
    """In an order that does not depend on where they come from: a run may stop anywhere."""
    return sorted(rows, key=lambda row: hashlib.blake2b(row["id"].encode()).digest())


def _write(path: Path, rows: list[Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8") as file:
        for row in rows:
            file.write(json.dumps(row, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    sys.exit(main())
