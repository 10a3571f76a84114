"""Tool-calling tasks: a conversation, some tools, and the schema of an answer that calls them.

The tasks are read from a file that is not part of this project (`tool-calls/open.jsonl.xz`, made
from the Berkeley Function Calling Leaderboard v4, Apache-2.0). Its folder is taken from the
environment variable `STRUCTSPEC_DATA`, default `../shared/data` beside the repository.
"""

from __future__ import annotations

import json
import lzma
import os
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from structspec.errors import StructspecError, UnsupportedFeature

#: Calls in one answer, at most. Bounds the text of a model that does not stop by itself.
_MOST_CALLS = 4


def data_folder() -> Path:
    """Where third-party inputs lie: `STRUCTSPEC_DATA`, else `../shared/data`."""
    return Path(os.environ.get("STRUCTSPEC_DATA", "../shared/data"))


@dataclass(frozen=True, eq=False)
class ToolTask:
    """One task: `messages` for the chat template, and the JSON Schema of the answer."""

    id: str
    messages: list[dict[str, str]]
    schema: Any
    kind: str = "tool call"
    tools: list[dict[str, Any]] = field(default_factory=list, repr=False)


def answer_schema(tools: list[dict[str, Any]]) -> dict[str, Any]:
    """The schema of a list of one to four calls of the given tools (OpenAI form)."""
    calls = [
        {
            "type": "object",
            "properties": {
                "name": {"const": tool["function"]["name"]},
                "arguments": tool["function"].get("parameters", {"type": "object"}),
            },
            "required": ["name", "arguments"],
            "additionalProperties": False,
        }
        for tool in tools
    ]
    items = calls[0] if len(calls) == 1 else {"anyOf": calls}
    return {"type": "array", "items": items, "minItems": 1, "maxItems": _MOST_CALLS}


def read_tasks(count: int, *, stride: int = 23) -> Iterator[ToolTask]:
    """The first `count` tasks, taken every `stride` lines, whose schemas compile.

    Tasks whose schemas are refused are passed over. Raises FileNotFoundError with what to do.
    """
    from structspec.grammar import compile

    lines = _lines()
    # Every stride-th line, then the ones behind them, …: kinds of tasks follow one another.
    order = [i for first in range(stride) for i in range(first, len(lines), stride)]
    for i in order:
        if count == 0:
            return
        task = json.loads(lines[i])
        schema = answer_schema(task["tools"])
        try:
            compile(schema)
        except UnsupportedFeature:
            continue
        count -= 1
        yield ToolTask(task["id"], _messages(task), schema, tools=task["tools"])


def tasks_apart(count: int) -> tuple[list[ToolTask], list[dict[str, Any]]]:
    """The first `count` tasks, and the rows of all tasks whose functions are new to them.

    Benchmarks run on the first; what is trained on the others has seen none of the functions
    that a benchmark of up to `count` tasks asks for, nor one much like them.
    """
    from structspec.drafting.answers import Functions

    first = list(read_tasks(count))
    taken = Functions(tool["function"] for task in first for tool in task.tools)
    known = {task.id for task in first}
    rows = [json.loads(line) for line in _lines()]
    others = [
        row
        for row in rows
        if row["id"] not in known and not any(taken.has(t["function"]) for t in row["tools"])
    ]
    return first, others


def _lines() -> list[str]:
    path = data_folder() / "tool-calls" / "open.jsonl.xz"
    if not path.is_file():
        raise FileNotFoundError(
            f"no tool-calling tasks at '{path}'; set STRUCTSPEC_DATA to the folder that holds "
            "tool-calls/open.jsonl.xz"
        )
    with lzma.open(path, "rt", encoding="utf-8") as file:
        return file.readlines()


def read_schema_tasks(
    count: int, *, seed: int = 0, longest: int = 2000, fewest: int = 48
) -> Iterator[ToolTask]:
    """`count` prompts for an instance of a MaskBench schema, where the schema compiles.

    `longest`: characters of a schema, which stands in the prompt. `fewest`: schemas whose shortest
    text may need more than so many characters are passed over. Raises FileNotFoundError.
    """
    from structspec.grammar import compile
    from structspec.suites.lines import load_maskbench

    if count == 0:
        return
    path = data_folder() / "maskbench" / "open.jsonl.xz"
    if not path.is_file():
        raise FileNotFoundError(
            f"no MaskBench schemas at '{path}'; set STRUCTSPEC_DATA to the folder that holds "
            "maskbench/open.jsonl.xz"
        )
    groups = load_maskbench(path).groups
    order = list(range(len(groups)))
    random.Random(seed).shuffle(order)
    for i in order:
        if count == 0:
            return
        group = groups[i]
        text = group.schema if isinstance(group.schema, str) else json.dumps(group.schema)
        valid = [test.text for test in group.tests if test.valid]
        if len(text) > longest or not valid or min(map(len, valid)) > 8 * fewest:
            continue
        schema = json.loads(text)
        try:
            compile(schema)
        except StructspecError:
            continue
        count -= 1
        messages = [
            {"role": "system", "content": "You answer with JSON and nothing else."},
            {"role": "user", "content": f"Write an instance of this JSON Schema:\n{text}"},
        ]
        yield ToolTask(group.id, messages, schema, "schema")


def _messages(task: dict[str, Any]) -> list[dict[str, str]]:
    tools = [tool["function"] for tool in task["tools"]]
    system = (
        "You call functions. Answer with a JSON list of calls, each an object with the keys "
        '"name" and "arguments". The functions:\n'
        + "\n".join(json.dumps(tool, ensure_ascii=False) for tool in tools)
    )
    return [{"role": "system", "content": system}, *task["messages"]]
