"""The mask benchmark counts what it says, and replaces workers that die."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from structspec.bench import masks_run
from structspec.bench.masks import percentiles, summarise
from structspec.bench.masks_jobs import hard_jobs, write_vocabulary
from structspec.bench.masks_report import tables
from structspec.bench.masks_run import EngineRun, run_engines
from structspec.bench.masks_worker import read_vocabulary
from structspec.vocab import Vocabulary

VOCAB = Vocabulary([*(bytes((b,)) for b in range(256)), None, b"ab"], [256])


def test_percentiles_are_nearest_ranks() -> None:
    found = percentiles(range(1, 1001))
    assert found is not None
    assert [found[k] for k in ("p50", "p90", "p99", "p99.9", "max")] == [500, 900, 990, 999, 1000]
    assert percentiles([]) is None


def test_a_vocabulary_survives_its_file(tmp_path: Path) -> None:
    write_vocabulary(VOCAB, tmp_path / "v.npz")
    read = read_vocabulary(tmp_path / "v.npz")
    assert read.tokens == list(VOCAB.tokens) and read.eos_ids == [256]


def answer(job: str, verdict: str, times: list[list[int]]) -> dict[str, Any]:
    return {"id": job, "first": [2_000_000], "texts": [{"verdict": verdict, "times": times}]}


def test_only_texts_that_all_common_engines_walk_are_compared() -> None:
    jobs = [{"id": name, "schema": "{}", "texts": [{"ids": [1], "valid": True}]} for name in "ab"]
    runs = [EngineRun("structspec", "1"), EngineRun("llguidance", "2"), EngineRun("other", "3")]
    for run in runs:
        run.answers["a"] = answer("a", "accepted", [[1000, 3000], [9000, 3000], [2000, 1000]])
        run.answers["b"] = answer("b", "accepted", [[50_000]])
    runs[1].answers["b"] = answer("b", "rejected", [[50_000]])
    figures, times = summarise(runs, jobs)
    assert figures["common_texts"] == 1
    assert times["structspec"] == times["other"] == [2.0, 3.0]  # medians of the repeats, in µs
    assert figures["engines"]["llguidance"]["verdicts"] == {"false reject": 1, "right": 1}
    figures |= {"tokens": 1, "hard": {}}
    report = {"machine": {"cores": 2, "processor": "x", "python": "3"}, "command": "c"}
    text = tables({**report, "vocabularies": {"v": figures}})
    assert "| *structspec / llguidance* | 1.00 |" in text


def run_with(
    worker: str, engines: list[str], jobs: int, folder: Path, *, repeats: int, time_limit: float
) -> list[EngineRun]:
    """Engines whose process is a script, over so many jobs without contents."""
    script, launcher, file = folder / "worker.py", folder / "python", folder / "jobs.jsonl"
    script.write_text(worker)
    launcher.write_text(f'#!/bin/sh\nshift 2\nexec {sys.executable} {script} "$@"\n')
    launcher.chmod(0o755)
    file.write_text("".join(json.dumps({"id": str(i)}) + "\n" for i in range(jobs)))
    return run_engines(
        engines, str(launcher), folder / "v.npz", file,
        repeats=repeats, clock="cpu", time_limit=time_limit, engine_limit=60.0,
    )  # fmt: skip


def test_workers_answer_time_out_and_are_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = (
        "import json, os, sys, time\n"
        "skip = int(sys.argv[-1].split('=')[1])\n"
        "print(json.dumps({'ready': '1', 'seconds': 0.0, 'memory': 1}), flush=True)\n"
        "for n, line in enumerate(open([a for a in sys.argv if a.endswith('.jsonl')][0])):\n"
        "    if n < skip: continue\n"
        "    if not sys.stdin.readline(): break\n"
        "    if n == 1: time.sleep(60)\n"
        "    if n == 2: sys.exit(3)\n"
        "    answer = {'id': json.loads(line)['id'], 'first': [1], 'texts': [], 'grown': 5}\n"
        "    print(json.dumps(answer), flush=True)\n"
    )
    monkeypatch.setattr(masks_run, "_START_LIMIT", 30.0)
    (run,) = run_with(worker, ["llguidance"], 4, tmp_path, repeats=1, time_limit=2.0)
    assert [sorted(set(a) - {"id", "first", "texts"}) for a in run.answers.values()] == [
        ["grown"], ["timeout"], ["crash"], ["grown"],
    ]  # fmt: skip


def test_a_limit_is_of_cpu_time_for_each_repeat(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Repeats that take their time one by one are in time together; one that runs on is not."""
    worker = (
        "import json, sys, time\n"
        "def work(seconds):\n"
        "    began = time.process_time()\n"
        "    while time.process_time() - began < seconds: pass\n"
        "def say(**message): print(json.dumps(message), flush=True)\n"
        "skip = int(sys.argv[-1].split('=')[1])\n"
        "say(ready='1', seconds=0.0, memory=1)\n"
        "if skip == 0:\n"
        "    for repeat in range(3):\n"
        "        work(0.6)\n"
        "        say(id='0', repeat=repeat)\n"
        "    say(id='0', first=[1], texts=[], grown=5)\n"
        "work(60)\n"
    )
    monkeypatch.setattr(masks_run, "_START_LIMIT", 30.0)
    (run,) = run_with(worker, ["llguidance"], 2, tmp_path, repeats=3, time_limit=1.2)
    assert "grown" in run.answers["0"] and run.answers["1"]["timeout"] == "no answer in 1.2 s"


def test_engines_take_turns(tmp_path: Path) -> None:
    """Two workers note when they are at work: never both, and job by job."""
    log = tmp_path / "log"
    worker = (
        "import json, sys\n"
        "def say(**message): print(json.dumps(message), flush=True)\n"
        "say(ready='1', seconds=0.0, memory=1)\n"
        "for n in range(3):\n"
        "    sys.stdin.readline()\n"
        f"    with open({str(log)!r}, 'a') as log: log.write(sys.argv[1][0] + str(n) + ' ')\n"
        "    say(id=str(n), first=[1], texts=[], grown=5)\n"
    )
    engines = ["xgrammar", "llguidance"]
    first, second = run_with(worker, engines, 3, tmp_path, repeats=1, time_limit=30.0)
    assert log.read_text() == "x0 l0 x1 l1 x2 l2 "
    assert [run.engine for run in (first, second)] == ["xgrammar", "llguidance"]
    assert list(first.answers) == list(second.answers) == ["0", "1", "2"]


def test_the_hard_schemas_hold_their_texts() -> None:
    import structspec

    for job in hard_jobs(VOCAB):
        if job["id"] in ("enum of 5,000", "2,000 properties"):
            continue  # seconds each; the benchmark runs them
        text = VOCAB.decode(job["texts"][0]["ids"])
        assert structspec.compile(job["schema"]).accepts(text), job["id"]
