"""`call_tools` on tool-calling tasks: with and without the constraint, with and without drafts.

    make bench-call-tools
    python -m structspec.bench.call_tools --tasks 3 --json call_tools.json

Every task is answered by the same model in the same prompt: greedily and at temperature 1; under
the constraint (`tool_choice="required"`), with drafts and without, and freely (any text, no
drafts). Reported for each way: the share of replies that read as calls of the format, the share
whose arguments satisfy their schemas, and the share that the task accepts; and in how many tasks
the greedy replies with and without drafts are identical. Where they are not, the two logits at the
first difference are compared: passes of different widths round differently, so a tie of two logits
may break differently; anything but a tie is a fault.

Several tasks and ways are decoded at a time, so no times are given: `speculation` measures those.
The result file, and the table of the page, are renewed after every round of tasks; `--resume` goes
on with the file of an interrupted run.

Sibling: `call_tools_report`, the figures and the table.
"""

from __future__ import annotations

import argparse
import itertools
import json
import lzma
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import jsonschema

from structspec.bench.answers import matches
from structspec.bench.call_tools_report import MARKER, PAIR, Answer, summarise, table
from structspec.bench.machine import describe_machine
from structspec.bench.pages import write_between_markers, write_report
from structspec.bench.tasks import data_folder
from structspec.errors import StructspecError, UnsupportedFeature
from structspec.frontends.tags import AnyText
from structspec.grammar import compile as compile_grammar
from structspec.tools import ToolCalls, ToolSet, read_reply
from structspec.tools.calling import Request, parts_of, prepare

_MOST_CALLS = 4
_ROUND = 4


@dataclass(frozen=True)
class CallTask:
    """A conversation, its tools in OpenAI's form, and the calls that are accepted."""

    id: str
    messages: list[dict[str, Any]]
    tools: list[dict[str, Any]]
    accepted: list[dict[str, Any]]


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
    Way("greedy, free", False, None, 0.0),
    Way("sampled", True, "auto", 1.0),
    Way("sampled, no drafts", True, None, 1.0),
    Way("sampled, free", False, None, 1.0),
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
    (row,) = answers(model, [task], [way], max_tokens=max_tokens, seed=seed)
    return row


def answers(
    model: Any,
    tasks: Sequence[CallTask],
    ways: Sequence[Way],
    *,
    max_tokens: int = 128,
    seed: int = 0,
) -> list[Answer]:
    """Answer tasks in every way, and measure where the two greedy replies differ.

    Requests with the same drafts are decoded together, so the ways of a task share its prompt.
    """
    requests = {
        (task.id, way.name): _request(model, task, way, max_tokens, seed)
        for task in tasks
        for way in ways
    }
    outputs: dict[tuple[str, str], Any] = {}
    for draft in dict.fromkeys(way.draft for way in ways):
        keys = [(task.id, way.name) for task in tasks for way in ways if way.draft == draft]
        outputs |= zip(keys, _decode(model, [requests[key] for key in keys], draft), strict=True)
    made = []
    for task in tasks:
        for way in ways:
            key = task.id, way.name
            row = _judged(task, way, requests[key], outputs[key])
            plain = outputs.get((task.id, PAIR[1]))
            if way.name == PAIR[0] and plain is not None:
                prompt, drafted = requests[key].ids, outputs[key].tokens
                row = replace(row, gap=logit_gap(model, prompt, drafted, plain.tokens))
            made.append(row)
    return made


def logit_gap(
    model: Any, prompt: Sequence[int], first: Sequence[int], second: Sequence[int]
) -> float | None:
    """Distance of the logits of the two tokens where replies part; None if they are the same.

    A reply that goes on where the other ends is compared with the likeliest end token.
    """
    if list(first) == list(second):
        return None
    import torch

    pairs = zip(first, second, strict=False)
    at = len(list(itertools.takewhile(lambda pair: pair[0] == pair[1], pairs)))
    with torch.inference_mode():
        ids = torch.tensor([[*prompt, *first[:at]]], device=model.device)
        logits = model.model(ids).logits[0, -1].float()
    end = max(float(logits[i]) for i in model.vocab.eos_ids)
    one, other = (float(logits[r[at]]) if at < len(r) else end for r in (first, second))
    return abs(one - other)


def _request(model: Any, task: CallTask, way: Way, max_tokens: int, seed: int) -> Request:
    request = prepare(
        model,
        task.messages,
        ToolSet.from_openai(task.tools),
        "required",
        parallel=_MOST_CALLS,
        draft=way.draft,
        max_tokens=max_tokens,
        temperature=way.temperature,
        seed=seed,
    )
    return request if way.constrained else replace(request, grammar=_free_text())


def _decode(model: Any, requests: Sequence[Request], draft: str | None) -> list[Any]:
    from structspec.decoding.loop import decode_many
    from structspec.decoding.progress import Job

    jobs = [
        Job(
            request.ids,
            request.grammar.bind(model.vocab),
            request.decoding["sampling"],
            max_tokens=request.decoding["max_tokens"],
            seed=request.decoding["seed"],
        )
        for request in requests
    ]
    outputs = decode_many(model, jobs, draft=draft, batch_size=len(jobs))
    for output in outputs:
        if isinstance(output, Exception):
            raise output
    return outputs


def _judged(task: CallTask, way: Way, request: Request, output: Any) -> Answer:
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


def run(
    model: Any, tasks: Iterable[CallTask], ways: Sequence[Way], max_tokens: int
) -> Iterator[list[Answer]]:
    """Answer tasks in every way, a few at a time; what is refused is named and passed over."""
    usable = (task for task in tasks if _compiles(model, task, max_tokens))
    while chunk := list(itertools.islice(usable, _ROUND)):
        yield answers(model, chunk, ways, max_tokens=max_tokens)


def _compiles(model: Any, task: CallTask, max_tokens: int) -> bool:
    try:
        _request(model, task, WAYS[0], max_tokens, 0)
    except UnsupportedFeature as error:
        print(f"{task.id}: refused, {error}", file=sys.stderr)
        return False
    return True


def _known(path: Path, command: str) -> list[Answer]:
    """The answers of an interrupted run; raises ValueError if another command made them."""
    report = json.loads(path.read_text(encoding="utf-8"))
    if report["command"] != command:
        raise ValueError(f"'{path}' was made by `{report['command']}`, not by `{command}`")
    return [Answer(**row) for row in report["answers"]]


def main(arguments: list[str] | None = None) -> int:
    """Run it; exit code 1 if a constrained reply is no valid call, or greedy replies differ."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--tasks", type=int, default=100)
    parser.add_argument("--model", default="default")
    parser.add_argument("--max-tokens", type=int, default=128)
    names = [way.name for way in WAYS]
    parser.add_argument("--ways", default=";".join(names), help=f"of {'; '.join(names)}")
    parser.add_argument("--threads", type=int, default=1, help="torch threads")
    parser.add_argument("--json", type=Path, default=None)
    parser.add_argument("--page", type=Path, default=None, help="a page whose table is renewed")
    parser.add_argument("--resume", action="store_true", help="go on with the file of --json")
    options = parser.parse_args(arguments)
    chosen = [name.strip() for name in options.ways.split(";")]
    if (options.page or options.resume) and not options.json:
        parser.error("--page shows, and --resume goes on with, what --json writes; name it")
    if unknown := [name for name in chosen if name not in names]:
        parser.error(f"unknown ways {unknown}; choose of {names}, separated by ';'")
    ways = [way for way in WAYS if way.name in chosen]
    command = (
        f"python -m structspec.bench.call_tools --tasks {options.tasks} "
        f"--max-tokens {options.max_tokens}"
    )
    if len(ways) < len(WAYS):
        command += f" --ways '{'; '.join(chosen)}'"
    found: list[Answer] = []
    if options.resume and options.json.is_file():
        try:
            found = _known(options.json, command)
        except (ValueError, KeyError, TypeError) as error:
            parser.error(f"cannot go on: {error}")
    import torch

    from structspec.models import load

    torch.set_num_threads(options.threads)
    model = load(options.model, dtype="float32", prefix_cache=0, history=False)
    done = {row.id for row in found}
    tasks = (task for task in read_call_tasks(options.tasks) if task.id not in done)
    for rows in run(model, tasks, ways, options.max_tokens):
        found += rows
        print(f"{len(found) // len(ways)} tasks", file=sys.stderr, flush=True)
        if options.json:
            report = {
                "command": command,
                "machine": {**describe_machine(), "torch_threads": torch.get_num_threads()},
                "model": model.name,
                "summary": summarise(found),
                "answers": [asdict(a) for a in found],
            }
            write_report(options.json, report)
            if options.page:
                write_between_markers(options.page, MARKER, table(report))
    summary = summarise(found)
    print(json.dumps(summary, indent=2))
    constrained = {way.name for way in WAYS if way.constrained}
    broken = [a for a in found if a.way in constrained and not a.valid]
    for a in broken:
        print(f"{a.id} ({a.way}): {a.error or 'arguments break the schema'}", file=sys.stderr)
    return 1 if broken or summary["greedy_pairs"]["different"] else 0


if __name__ == "__main__":
    sys.exit(main())
