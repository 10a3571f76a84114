"""`call_tools` on tool-calling tasks: with and without the constraint, with and without drafts.

    make bench-call-tools
    python -m structspec.bench.call_tools --tasks 3 --json call_tools.json

Every task is answered by the same model in the same prompt: greedily and at temperature 1; under
the constraint (`tool_choice="required"`) and freely (any text); with drafts and, greedily under the
constraint, without. Reported for each way: the share of replies that read as calls of the format,
the share whose arguments satisfy their schemas, and the share that the task accepts; and in how
many tasks the greedy replies with and without drafts are identical (in batched arithmetic a tie of
two logits may break differently).

The result file, and the table of the page, are renewed after every task, so an interrupted run
keeps what it has measured.
"""

from __future__ import annotations

import argparse
import json
import lzma
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import jsonschema

from structspec.bench.answers import matches
from structspec.bench.machine import describe_machine
from structspec.bench.tasks import data_folder
from structspec.errors import StructspecError, UnsupportedFeature
from structspec.frontends.tags import AnyText
from structspec.grammar import compile as compile_grammar
from structspec.tools import ToolCalls, ToolSet, read_reply
from structspec.tools.calling import Request, parts_of, prepare

_MOST_CALLS = 4
BEGIN, END = "<!-- begin: bench.call_tools -->", "<!-- end -->"


@dataclass(frozen=True)
class CallTask:
    """A conversation, its tools in OpenAI's form, and the calls that are accepted."""

    id: str
    messages: list[dict[str, Any]]
    tools: list[dict[str, Any]]
    accepted: list[dict[str, Any]]


@dataclass(frozen=True)
class Answer:
    """One reply: how it was made and what it is worth. `error` says why it is no call."""

    id: str
    way: str
    parsed: bool
    valid: bool
    accepted: bool
    tokens: int
    forwards: int
    seconds: float
    text: str
    error: str = ""


@dataclass(frozen=True)
class Way:
    """How replies are made."""

    name: str
    constrained: bool
    draft: str | None
    temperature: float


WAYS = (
    Way("greedy", True, "auto", 0.0),
    Way("greedy, no drafts", True, None, 0.0),
    Way("greedy, free", False, "auto", 0.0),
    Way("sampled", True, "auto", 1.0),
    Way("sampled, free", False, "auto", 1.0),
)


def read_call_tasks(count: int, *, stride: int = 23) -> Iterator[CallTask]:
    """The first `count` tasks, taken every `stride` lines.

    Raises FileNotFoundError with what to do.
    """
    path = data_folder() / "tool-calls" / "open.jsonl.xz"
    if not path.is_file():
        raise FileNotFoundError(
            f"no tool-calling tasks at '{path}'; set STRUCTSPEC_DATA to the folder that holds "
            "tool-calls/open.jsonl.xz"
        )
    with lzma.open(path, "rt", encoding="utf-8") as file:
        lines = file.readlines()
    # Every stride-th line, then the ones behind them, …: kinds of tasks follow one another.
    order = [i for first in range(stride) for i in range(first, len(lines), stride)]
    for i in order[:count]:
        task = json.loads(lines[i])
        yield CallTask(task["id"], task["messages"], task["tools"], task["accepted_answers"])


def answer(model: Any, task: CallTask, way: Way, *, max_tokens: int = 128, seed: int = 0) -> Answer:
    """Answer one task in one way."""
    tools = ToolSet.from_openai(task.tools)
    request = prepare(
        model,
        task.messages,
        tools,
        "required",
        parallel=_MOST_CALLS,
        draft=way.draft,
        max_tokens=max_tokens,
        temperature=way.temperature,
        seed=seed,
    )
    if not way.constrained:
        request = replace(request, grammar=_free_text())
    output = request.decode()
    calls, error = _calls(request, output)
    valid = bool(calls) and all(_valid(task, call.name, call.arguments) for call in calls)
    return Answer(
        task.id,
        way.name,
        bool(calls),
        valid,
        valid and matches(calls, task.accepted),
        len(output.tokens),
        output.stats.forwards,
        round(output.stats.total_time, 3),
        output.text.decode("utf-8", "replace"),
        error,
    )


def _calls(request: Request, output: Any) -> tuple[ToolCalls, str]:
    parts = parts_of(request.model.vocab, output.tokens)
    try:
        reply = read_reply(
            request.form, parts, request.tools, marking=request.marking, validate=False
        )
    except StructspecError as error:
        return ToolCalls(), str(error)
    return request.calls(reply, output), "" if reply.calls else "no call in the reply"


def _valid(task: CallTask, name: str, arguments: Any) -> bool:
    """Judged by `jsonschema` on the schema as the task gives it."""
    for tool in task.tools:
        if tool["function"]["name"] == name:
            schema = tool["function"].get("parameters", {})
            return bool(jsonschema.Draft202012Validator(schema).is_valid(arguments))
    return False


_kept: list[Any] = []


def _free_text() -> Any:
    """The grammar of any text, made once."""
    if not _kept:
        _kept.append(compile_grammar(AnyText(), syntax="structural_tag"))
    return _kept[0]


def summarise(answers: Sequence[Answer]) -> dict[str, Any]:
    """Counts and shares by way; how many greedy replies agree with and without drafts."""
    summary: dict[str, Any] = {}
    for way in dict.fromkeys(a.way for a in answers):
        rows = [a for a in answers if a.way == way]
        summary[way] = {
            "tasks": len(rows),
            "parsed": sum(a.parsed for a in rows),
            "valid": sum(a.valid for a in rows),
            "accepted": sum(a.accepted for a in rows),
            "tokens_per_forward": round(
                sum(a.tokens for a in rows) / max(1, sum(a.forwards for a in rows)), 3
            ),
            "seconds": round(sum(a.seconds for a in rows), 1),
        }
    texts = {(a.id, a.way): a.text for a in answers}
    pairs = [
        (texts[i, "greedy"], texts[i, "greedy, no drafts"])
        for i, way in texts
        if way == "greedy" and (i, "greedy, no drafts") in texts
    ]
    summary["greedy_identical"] = f"{sum(a == b for a, b in pairs)} of {len(pairs)}"
    return summary


def table(report: Mapping[str, Any]) -> str:
    """The figures as Markdown."""
    machine, summary = report["machine"], report["summary"]
    lines = [
        f"{report['model']}, {machine['cores']}-core {machine['processor']}; "
        f"`{report['command']}`.",
        "",
        "| replies | tasks | read as calls | fit their schemas | match an accepted answer | "
        "tokens per forward | seconds |",
        "|" + "---|" * 7,
    ]
    for way in (way.name for way in WAYS if way.name in summary):
        row = summary[way]
        shares = [
            f"{row[k]} ({row[k] / row['tasks']:.0%})" for k in ("parsed", "valid", "accepted")
        ]
        cells = [way, row["tasks"], *shares, f"{row['tokens_per_forward']:.2f}", row["seconds"]]
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    same = f"Greedy replies with and without drafts are identical in {summary['greedy_identical']}."
    return "\n".join([*lines, "", same])


def write_page(path: Path, text: str) -> None:
    """Replace what stands between the markers of a page."""
    before, rest = path.read_text(encoding="utf-8").split(BEGIN, 1)
    path.write_text(f"{before}{BEGIN}\n{text}\n{END}{rest.split(END, 1)[1]}", encoding="utf-8")


def run(
    model: Any, tasks: Iterator[CallTask], ways: Sequence[Way], max_tokens: int
) -> Iterator[list[Answer]]:
    """Answer every task in every way; tasks whose schemas are refused are named and passed over."""
    for task in tasks:
        try:
            yield [answer(model, task, way, max_tokens=max_tokens) for way in ways]
        except UnsupportedFeature as error:
            print(f"{task.id}: refused, {error}", file=sys.stderr)


def main(arguments: list[str] | None = None) -> int:
    """Run it; exit code 1 if a constrained reply is no valid call."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--tasks", type=int, default=100)
    parser.add_argument("--model", default="default")
    parser.add_argument("--max-tokens", type=int, default=128)
    names = [way.name for way in WAYS]
    parser.add_argument("--ways", default=";".join(names), help=f"of {'; '.join(names)}")
    parser.add_argument("--threads", type=int, default=1, help="torch threads")
    parser.add_argument("--json", type=Path, default=None)
    parser.add_argument("--page", type=Path, default=None, help="a page whose table is renewed")
    options = parser.parse_args(arguments)
    chosen = [name.strip() for name in options.ways.split(";")]
    if options.page and not options.json:
        parser.error("--page shows what --json writes; give both")
    if unknown := [name for name in chosen if name not in names]:
        parser.error(f"unknown ways {unknown}; choose of {names}, separated by ';'")
    ways = [way for way in WAYS if way.name in chosen]
    import torch

    from structspec.models import load

    torch.set_num_threads(options.threads)
    model = load(options.model, dtype="float32")
    answers: list[Answer] = []
    started = time.perf_counter()
    for rows in run(model, read_call_tasks(options.tasks), ways, options.max_tokens):
        answers += rows
        if options.json:
            report = {
                "command": "python -m structspec.bench.call_tools "
                f"--tasks {options.tasks} --max-tokens {options.max_tokens} "
                f"--ways '{'; '.join(chosen)}'",
                "machine": {**describe_machine(), "torch_threads": torch.get_num_threads()},
                "model": model.name,
                "seconds": round(time.perf_counter() - started, 1),
                "summary": summarise(answers),
                "answers": [asdict(a) for a in answers],
            }
            options.json.parent.mkdir(parents=True, exist_ok=True)
            text = json.dumps(report, indent=1, ensure_ascii=False) + "\n"
            options.json.write_text(text, encoding="utf-8")
            if options.page:
                write_page(options.page, table(report))
    print(json.dumps(summarise(answers), indent=2))
    constrained = {way.name for way in WAYS if way.constrained}
    broken = [a for a in answers if a.way in constrained and not a.valid]
    for a in broken:
        print(f"{a.id} ({a.way}): {a.error or 'arguments break the schema'}", file=sys.stderr)
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
