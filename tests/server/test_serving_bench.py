"""The serving benchmark on a tiny model: what it measures, and its table."""

from __future__ import annotations

import json

from structspec.bench.serving import ask, run_group, table
from structspec.bench.tasks import ToolTask

SCHEMA = {"type": "object", "properties": {"n": {"enum": [1, 22, 333]}}, "required": ["n"]}


def make_tasks(count):
    return [
        ToolTask(f"t{i}", [{"role": "user", "content": f"number {i}"}], SCHEMA)
        for i in range(count)
    ]


def test_an_answer_is_streamed_and_timed(address):
    found = ask(address, make_tasks(1)[0], 80)
    assert json.loads(found["text"])["n"] in (1, 22, 333)
    assert 0 < found["first"] <= found["seconds"]
    assert found["tokens"] > 0


def test_a_group_is_answered_in_every_way_and_the_table_compares_them(address):
    addresses = {"none": address, "auto": address}
    groups = [run_group(addresses, make_tasks(3), 80, turn) for turn in range(2)]
    for group in groups:
        assert group["equal"] == 3
        ways = {name: way for name, way in group.items() if name != "equal"}
        assert set(ways) == {"none, one", "none, all", "auto, one", "auto, all"}
        assert all(len(way["answers"]) == 3 for way in ways.values())
    groups[0]["none, one"]["seconds"] = groups[1]["none, one"]["seconds"] = 3.0
    groups[0]["auto, all"]["seconds"] = groups[1]["auto, all"]["seconds"] = 1.5
    machine = {"cores": 2, "processor": "P", "python": "3", "packages": {}}
    report = {"command": "c", "machine": machine, "threads": 1, "clients": 3, "groups": groups}
    text = table(report)
    assert "the same in 6 of 6" in text
    assert "| no draft, one client |" in text
    assert "2.00 [2.00, 2.00]" in next(
        line for line in text.splitlines() if line.startswith("| forced spans and look-up, 3")
    )
