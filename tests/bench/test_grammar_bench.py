"""The benchmark of grammars: what a worker measures, and what the tables say of it."""

from __future__ import annotations

import time

import pytest

pytest.importorskip("lark", reason="the extra 'grammars' is not installed: pip install lark")

from structspec.bench.grammars import summarise, tables
from structspec.bench.masks_engines import DRIVERS, Driver, TokenList
from structspec.bench.masks_run import EngineRun
from structspec.bench.masks_worker import measure

TOKENS = TokenList([bytes([i]) for i in range(256)] + [None], [256])
JOB = {
    "id": "pairs",
    "outside": 1,
    "grammar": {"lark": 'start: "a" start "b" | "a" "b"\n', "terminals": "", "gbnf": ""},
    "texts": [{"ids": list(text), "valid": True} for text in (b"aabb", b"abab")],
}


def answer(driver: Driver) -> dict:
    return measure(driver, JOB, 2, time.process_time_ns)


def test_a_job_with_a_grammar_is_compiled_from_its_lark_text_and_walked() -> None:
    found = answer(DRIVERS["structspec"](TOKENS))
    assert [text["verdict"] for text in found["texts"]] == ["accepted", "rejected"]
    assert len(found["first"]) == 2 and len(found["texts"][0]["times"][0]) == 3


def test_an_engine_that_is_not_driven_with_grammars_refuses() -> None:
    assert "not driven" in answer(Driver(TOKENS))["refused"]


def test_times_are_compared_over_the_texts_that_every_engine_walks() -> None:
    both = {"first": [2e6], "texts": [{"verdict": "accepted", "times": [[1000, 3000]]}] * 2}
    one = {**both, "texts": [both["texts"][0], {"verdict": "rejected", "times": [[9_000_000]]}]}
    runs = [
        EngineRun("one", "1", answers={"pairs": one}),
        EngineRun("two", "2", answers={"pairs": both}),
        EngineRun("three", "3", answers={"pairs": {"timeout": "no answer"}}),
    ]
    assert summarise(runs, [JOB])["pairs"]["common_texts"] == 1
    figures = summarise(runs[:2], [JOB])["pairs"]
    assert figures["common_texts"] == 1 and figures["tokens"] == 4
    assert figures["engines"]["one"]["mask_us"]["avg"] == 2.0
    assert figures["engines"]["one"]["not_walked"] == ["rejected"]
    machine = {"cores": 2, "processor": "a chip", "python": "3.11"}
    report = {
        "machine": machine,
        "command": "x",
        "vocabularies": {"bytes": {"tokens": 257, "grammars": {"pairs": figures}}},
    }
    text = tables(report)
    assert "| one 1 | 2.0 | 1.0 | 3.0 | 3.0 | 3.0 | 2 | 1 of 2 | 0 |" in text
    failed = summarise(runs[2:], [JOB])["pairs"]["engines"]["three"]
    assert failed["failure"] == "timeout: no answer" and failed["mask_us"] is None
    found = {"tokens": 257, "grammars": {"pairs": summarise(runs, [JOB])["pairs"]}}
    text = tables({**report, "vocabularies": {"bytes": found}})
    assert "| three 3 | timeout: no answer | – | – | – | – | – | 0 of 2 | 0 |" in text
