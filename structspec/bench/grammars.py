"""Masks of two large grammars beside llguidance and xgrammar: Python and SQL.

    make bench-grammars
    python -m structspec.bench.grammars --texts 40 --python .venv-peers/bin/python

The grammars are two of the ready-made ones: `python_module`, which is lark's own grammar of Python,
and `sql_select`. Every engine gets the notation that it is made for: this package the Lark text,
llguidance the same with its terminals (`grammar_forms`), xgrammar what `Grammar.to_gbnf` writes. So
xgrammar has exactly our language; llguidance has a lexer, which takes longest matches, and lacks
the flag that ignores the case of ASCII letters only.

The texts are functions of Python's standard library that are short and keep their brackets on one
line, and the queries below. Engines take turns in processes of their own, on one thread, over the
same token ids; one that takes longer than `--time-limit` over a grammar is ended, and the tables
say so. Times are CPU time: per mask, the median over the repeats of filling a row and taking a
token, over the texts that all engines walk to the end.

Writes `docs/results/grammars.json` and the tables of `docs/grammars.md`.
"""

from __future__ import annotations

import argparse
import ast
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from structspec import grammars
from structspec.bench.grammar_forms import spelled_out
from structspec.bench.machine import describe_machine, on_machine
from structspec.bench.masks import mask_times, percentiles
from structspec.bench.masks_jobs import VOCABULARIES, load_vocabulary, write_vocabulary
from structspec.bench.masks_run import EngineRun, run_engines
from structspec.bench.pages import write_between_markers, write_report
from structspec.vocab import Vocabulary

__all__ = ["ENGINES", "QUERIES", "grammar_jobs", "main", "python_texts", "tables"]

ENGINES = ("structspec", "llguidance", "xgrammar")
PAGE, MARKER = Path("docs/grammars.md"), "bench.grammars"
_MODULES = (
    "textwrap",
    "heapq",
    "bisect",
    "shlex",
    "string",
    "fnmatch",
    "glob",
    "colorsys",
    "statistics",
    "csv",
    "difflib",
    "functools",
    "collections",
    "argparse",
    "tokenize",
    "calendar",
    "copy",
    "dis",
    "enum",
    "inspect",
    "ast",
    "posixpath",
)
_LONGEST = 1200
QUERIES = (
    "SELECT * FROM users",
    "SELECT name, email FROM users WHERE age >= 18 AND country = 'FR' ORDER BY name LIMIT 20",
    "SELECT DISTINCT city FROM addresses WHERE zip LIKE '75%'",
    "SELECT u.name, count(*) AS orders FROM users AS u LEFT JOIN orders AS o ON o.user_id = u.id "
    "GROUP BY u.name HAVING count(*) > 3 ORDER BY orders DESC",
    "SELECT id, CASE WHEN total > 1000 THEN 'large' WHEN total > 100 THEN 'medium' ELSE 'small' END"
    " AS size FROM orders WHERE created BETWEEN '2024-01-01' AND '2024-12-31'",
    "WITH recent AS (SELECT user_id, max(created) AS last FROM orders GROUP BY user_id) "
    "SELECT users.name, recent.last FROM users JOIN recent ON recent.user_id = users.id",
    "SELECT product, sum(price * quantity) AS revenue FROM items GROUP BY product ORDER BY 2 DESC, "
    "product ASC LIMIT 10 OFFSET 20",
    "SELECT name FROM employees WHERE salary > (SELECT avg(salary) FROM employees)",
    "SELECT a.title FROM albums AS a WHERE EXISTS (SELECT 1 FROM tracks AS t WHERE t.album = a.id)",
    "SELECT name FROM staff WHERE manager IS NULL UNION ALL SELECT name FROM contractors WHERE "
    "rate NOT IN (10, 20, 30)",
    "select lower(name) || ' <' || email || '>' as contact from people where not (active = 0) or "
    "role in ('admin', 'owner')",
    "SELECT CAST(substr(code, 1, 4) AS INTEGER) AS year, count(DISTINCT author) FROM books CROSS "
    "JOIN shelves GROUP BY year",
    "SELECT t.x + -3 * (t.y - 2) / 4 % 5 FROM t WHERE t.note = 'it''s fine' AND t.z <> 1.5",
    "SELECT department, job, min(salary), max(salary) FROM employees INNER JOIN jobs ON "
    "employees.job_id = jobs.id WHERE hired >= '2019-06-01' GROUP BY department, job",
    "SELECT s.label FROM (SELECT label, weight FROM tags WHERE weight > 0.25) AS s ORDER BY "
    "s.weight DESC, s.label LIMIT 5",
)


def python_texts() -> Iterator[str]:
    """Functions of the standard library, up to a length, in the order of the modules."""
    for name in _MODULES:
        spec = find_spec(name)
        if spec is None or spec.origin is None or not spec.origin.endswith(".py"):
            continue
        text = Path(spec.origin).read_text(encoding="utf-8")
        for node in ast.parse(text).body:
            if isinstance(node, ast.FunctionDef):
                found = ast.get_source_segment(text, node)
                if found is not None and len(found) <= _LONGEST:
                    yield found + "\n"


def grammar_jobs(vocab: Vocabulary, texts: int) -> list[dict[str, Any]]:
    """One job per grammar: its notations, and the first `texts` texts that belong to it."""
    jobs = []
    for name, source in (("python_module", python_texts()), ("sql_select", iter(QUERIES))):
        text, grammar = grammars.read(name), grammars.load(name)
        chosen: list[str] = []
        outside = 0
        for candidate in source:
            if len(chosen) == texts:
                break
            if grammar.accepts(candidate):
                chosen.append(candidate)
            else:
                outside += 1
        forms = {"lark": text, "terminals": spelled_out(text), "gbnf": grammar.to_gbnf()}
        jobs.append(
            {
                "id": name,
                "grammar": forms,
                "outside": outside,
                "texts": [{"ids": vocab.encode(t.encode()), "valid": True} for t in chosen],
            }
        )
    return jobs


def summarise(runs: Sequence[EngineRun], jobs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Per grammar and engine: times over the texts that all engines walk that walk any."""
    figures: dict[str, Any] = {}
    for job in jobs:
        answers = {run.engine: run.answers.get(job["id"], {}) for run in runs}
        walked = {
            engine: {i for i, t in enumerate(a.get("texts", ())) if t["verdict"] == "accepted"}
            for engine, a in answers.items()
        }
        # an engine that cannot do the grammar at all does not hide what the others do
        common = set.intersection(*([w for w in walked.values() if w] or [set()]))
        engines: dict[str, Any] = {}
        for run in runs:
            answer = answers[run.engine]
            failure = next((k for k in ("refused", "timeout", "crash") if k in answer), None)
            engines[run.engine] = {
                "version": run.version,
                "failure": None if failure is None else f"{failure}: {answer[failure]}",
                "walked": len(walked[run.engine]),
                "first_mask_ms": statistics.median(answer["first"]) / 1e6
                if answer.get("first")
                else None,
                "mask_us": percentiles(
                    t for i in common & walked[run.engine] for t in mask_times(answer, i)
                ),
                "grown_mib": round(answer.get("grown", 0) / 2**20, 1),
                "not_walked": sorted(
                    {t["verdict"] for t in answer.get("texts", ()) if t["verdict"] != "accepted"}
                ),
            }
        figures[job["id"]] = {
            "texts": len(job["texts"]),
            "outside": job["outside"],
            "common_texts": len(common),
            "tokens": sum(len(job["texts"][i]["ids"]) for i in common),
            "engines": engines,
        }
    return figures


def tables(report: Mapping[str, Any]) -> str:
    """The tables as Markdown."""
    machine = report["machine"]
    parts = [f"{on_machine(machine)}; `{report['command']}`. Times are CPU time."]
    head = "| | mean | p50 | p90 | p99 | max | first mask, ms | texts walked | memory grown, MiB |"
    for vocabulary, found in report["vocabularies"].items():
        for name, figures in found["grammars"].items():
            lines = [
                f"`{name}`, {vocabulary} ({found['tokens']:,} tokens): µs per mask and token over "
                f"{figures['common_texts']} texts ({figures['tokens']:,} tokens)",
                "",
                head,
                "|" + "---|" * 9,
            ]
            for engine, f in figures["engines"].items():
                times = f["mask_us"]
                shown = (
                    [f"{times[p]:,.1f}" for p in ("avg", "p50", "p90", "p99", "max")]
                    if times
                    # why there are none stands where the mean would
                    else [(f["failure"] or "–").replace("|", "\\|"), *["–"] * 4]
                )
                first = "–" if f["first_mask_ms"] is None else f"{f['first_mask_ms']:,.0f}"
                walked = f"{f['walked']} of {figures['texts']}"
                row = [f"{engine} {f['version']}", *shown, first, walked, f"{f['grown_mib']:,.0f}"]
                lines.append("| " + " | ".join(row) + " |")
            parts.append("\n".join(lines))
    return "\n\n".join(parts)


def main(arguments: list[str] | None = None) -> int:
    """Run the benchmark; see the module."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--texts", type=int, default=40, help="at most, per grammar")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--engines", default=",".join(ENGINES))
    parser.add_argument("--vocabularies", default=",".join(VOCABULARIES))
    parser.add_argument("--python", default=sys.executable, help="interpreter with the peers")
    parser.add_argument(
        "--time-limit", type=float, default=120.0, help="CPU seconds per grammar and repeat"
    )
    parser.add_argument("--json", type=Path, default=Path("docs/results/grammars.json"))
    parser.add_argument("--no-docs", action="store_true", help="only print")
    options = parser.parse_args(arguments)
    default = ",".join(VOCABULARIES)
    chosen = "" if options.vocabularies == default else f" --vocabularies {options.vocabularies}"
    report: dict[str, Any] = {
        "command": "python -m structspec.bench.grammars "
        f"--texts {options.texts} --repeats {options.repeats}{chosen}",
        "machine": describe_machine(),
        "vocabularies": {},
    }
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        for name in options.vocabularies.split(","):
            vocab = load_vocabulary(name)
            write_vocabulary(vocab, folder / f"{name}.npz")
            jobs = grammar_jobs(vocab, options.texts)
            file = folder / f"{name}.jsonl"
            file.write_text("".join(json.dumps(job) + "\n" for job in jobs), encoding="utf-8")
            runs = run_engines(
                options.engines.split(","),
                options.python,
                folder / f"{name}.npz",
                file,
                repeats=options.repeats,
                clock="cpu",
                time_limit=options.time_limit,
                engine_limit=10 * len(jobs) * options.time_limit * options.repeats,
            )
            spent = time.perf_counter() - began
            print(f"{name}: done after {spent:.0f} s", file=sys.stderr, flush=True)
            report["vocabularies"][name] = {"tokens": vocab.size, "grammars": summarise(runs, jobs)}
            report["seconds"] = round(time.perf_counter() - began, 1)
            if not options.no_docs:  # what is measured stays if the rest is interrupted
                write_report(options.json, report)
                write_between_markers(PAGE, MARKER, tables(report))
    print(tables(report))
    return 0


if __name__ == "__main__":
    sys.exit(main())
