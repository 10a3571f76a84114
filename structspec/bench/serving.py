"""What a server gains by drafting, and by answering several clients at once.

Two servers of the default model, one that drafts and one that does not, each a process of its own,
answer the same tool-calling tasks as values of their schemas, in groups: once by one client, a task
after the other, and once by as many clients as the group has tasks, all at the same time. The four
ways take turns, group by group, so that a busy moment of the machine counts for all. Answers are
greedy; the servers keep neither beginnings of prompts nor earlier answers, since every task is
answered several times.

    make bench-serving
    python -m structspec.bench.serving --groups 4 --clients 8

Writes `docs/results/serving.json` and a table of `docs/server.md`.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import socket
import statistics
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from structspec.bench.bootstrap import interval
from structspec.bench.machine import describe_machine, on_machine
from structspec.bench.pages import markdown_table, write_between_markers, write_report
from structspec.bench.tasks import ToolTask, read_tasks

__all__ = ["ask", "main", "run_group", "served", "table"]

COMMAND = "python -m structspec.bench.serving"
#: Drafts of the servers: what is compared.
DRAFTS = ("none", "auto")
_SERVER = """
import sys, torch, uvicorn, structspec
from structspec.server import Settings, create_app
torch.set_num_threads(int(sys.argv[3]))
model = structspec.load("default", prefix_cache=0, history=False)
app = create_app(model, Settings(draft=sys.argv[2]))
uvicorn.run(app, port=int(sys.argv[1]), log_level="warning")
"""


@contextlib.contextmanager
def served(draft: str, threads: int) -> Iterator[str]:
    """The address of a server in a process of its own, until the block ends."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-c", _SERVER, str(port), draft, str(threads)]
    process = subprocess.Popen(command)
    address = f"http://127.0.0.1:{port}"
    try:
        until = time.monotonic() + 300
        while True:
            try:
                with urllib.request.urlopen(f"{address}/health"):
                    break
            except OSError as error:
                if process.poll() is not None or time.monotonic() > until:
                    raise RuntimeError("the server did not start") from error
                time.sleep(0.1)
        yield address
    finally:
        process.terminate()
        process.wait(60)


def ask(address: str, task: ToolTask, max_tokens: int) -> dict[str, Any]:
    """One streamed answer: its text, seconds to its first piece and to its end, tokens."""
    schema = {"name": "calls", "schema": task.schema}
    body = {
        "messages": task.messages,
        "response_format": {"type": "json_schema", "json_schema": schema},
        "temperature": 0,
        "max_tokens": max_tokens,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    request = urllib.request.Request(
        f"{address}/v1/chat/completions",
        json.dumps(body).encode(),
        {"Content-Type": "application/json"},
    )
    began = time.perf_counter()
    first, text = None, ""
    usage: dict[str, int] = {}
    with urllib.request.urlopen(request, timeout=600) as answer:
        for line in answer:
            if not line.startswith(b"data: {"):
                continue
            first = first or time.perf_counter() - began
            piece = json.loads(line[6:])
            usage = piece.get("usage") or usage
            for choice in piece["choices"]:
                text += choice["delta"].get("content", "")
    return {
        "task": task.id,
        "text": text,
        "first": first,
        "seconds": time.perf_counter() - began,
        "tokens": usage["completion_tokens"],
    }


def run_group(
    addresses: Mapping[str, str], tasks: Sequence[ToolTask], max_tokens: int, turn: int
) -> dict[str, Any]:
    """One group of tasks answered in all ways; who is first changes with the turn."""
    ways = [(draft, clients) for draft in addresses for clients in (1, len(tasks))]
    found: dict[str, Any] = {}
    for draft, clients in ways[turn % len(ways) :] + ways[: turn % len(ways)]:
        began = time.perf_counter()
        with ThreadPoolExecutor(clients) as pool:
            answers = list(
                pool.map(lambda task: ask(addresses[draft], task, max_tokens), tasks)  # noqa: B023
            )
        name = f"{draft}, {'one' if clients == 1 else 'all'}"
        found[name] = {"seconds": time.perf_counter() - began, "answers": answers}
    texts = [[a["text"] for a in way["answers"]] for way in found.values()]
    found["equal"] = sum(len(set(each)) == 1 for each in zip(*texts, strict=True))
    return found


def table(report: Mapping[str, Any]) -> str:
    """Way by way: tokens per second, time to the first piece, time of an answer, and ratios."""
    groups, clients = report["groups"], report["clients"]
    names = [f"{draft}, {who}" for who in ("one", "all") for draft in DRAFTS]
    slowest = names[0]
    rows = []
    for name in names:
        answers = [answer for group in groups for answer in group[name]["answers"]]
        seconds = sum(group[name]["seconds"] for group in groups)

        def gain(picked: Sequence[Mapping[str, Any]], name: str = name) -> float:
            slow = sum(group[slowest]["seconds"] for group in picked)
            return slow / sum(group[name]["seconds"] for group in picked)

        low, high = interval(groups, gain)
        draft, who = name.split(", ")
        rows.append(
            [
                f"{'forced spans and look-up' if draft == 'auto' else 'no draft'}, "
                f"{'one client' if who == 'one' else f'{clients} clients'}",
                f"{sum(answer['tokens'] for answer in answers) / seconds:.1f}",
                f"{statistics.median(answer['first'] for answer in answers):.2f} s",
                f"{statistics.median(answer['seconds'] for answer in answers):.2f} s",
                f"{gain(groups):.2f} [{low:.2f}, {high:.2f}]",
            ]
        )
    total = sum(len(group[slowest]["answers"]) for group in groups)
    equal = sum(group["equal"] for group in groups)
    return (
        f"SmolLM2-135M-Instruct, {on_machine(report['machine'])}, "
        f"{report['threads']} thread(s) of torch for each server; `{report['command']}`. "
        f"{total} tasks; the four texts of a task are the same in {equal} of {total}.\n\n"
        + markdown_table(
            ["", "tokens per second", "first piece", "whole answer", "throughput, ×"], rows
        )
    )


def main(arguments: list[str] | None = None) -> int:
    """Run the benchmark; see the module."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--groups", type=int, default=4)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--max-tokens", type=int, default=96)
    parser.add_argument("--threads", type=int, default=1, help="of torch, for each server")
    parser.add_argument("--no-docs", action="store_true", help="only print")
    options = parser.parse_args(arguments)
    tasks = list(read_tasks(options.groups * options.clients))
    groups = []
    with served("none", options.threads) as none, served("auto", options.threads) as auto:
        addresses = {"none": none, "auto": auto}
        for address in addresses.values():  # schemas are compiled, and the network has run
            for task in tasks:
                with contextlib.suppress(urllib.error.HTTPError):  # a budget of one is too small
                    ask(address, task, 1)
            ask(address, tasks[0], options.max_tokens)
        for turn in range(options.groups):
            own = tasks[turn * options.clients : (turn + 1) * options.clients]
            groups.append(run_group(addresses, own, options.max_tokens, turn))
            print(f"group {turn + 1} of {options.groups}", file=sys.stderr)
    report = {
        "command": f"{COMMAND} --groups {options.groups} --clients {options.clients} "
        f"--max-tokens {options.max_tokens} --threads {options.threads}",
        "machine": describe_machine(),
        "threads": options.threads,
        "clients": options.clients,
        "groups": groups,
    }
    text = table(report)
    print(text)
    if not options.no_docs:
        write_report(Path("docs/results/serving.json"), report)
        write_between_markers(Path("docs/server.md"), COMMAND, text)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
