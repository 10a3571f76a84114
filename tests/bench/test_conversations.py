"""The benchmark of conversations: every model answers every turn, and the table adds up."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("torch")

from structspec.bench.conversations import converse, table
from structspec.bench.tasks import ToolTask
from structspec.models import Model


def test_later_turns_read_only_what_is_new(default_model: Any) -> None:
    network, tokenizer, vocab = default_model.model, default_model.tokenizer, default_model.vocab
    models = {
        "kept": Model(network, tokenizer, name="a", vocab=vocab, prefix_cache=64 << 20),
        "nothing kept": Model(network, tokenizer, name="b", vocab=vocab),
    }
    task = ToolTask("t", [{"role": "user", "content": "Say a or b."}], {"enum": ["a", "b"]})
    rows = converse(models, task, turns=3, max_tokens=8)
    assert [row["reused"] > 0 for row in rows] == [False, True, True]
    assert all(set(row["seconds"]) == set(models) for row in rows)
    assert all(row["equal"] for row in rows)
    lengths = [row["prompt"] for row in rows]
    assert lengths == sorted(set(lengths))


def test_the_table_has_a_line_for_each_turn() -> None:
    rows = [
        {
            "turn": turn,
            "prompt": 100 * turn,
            "reused": 50 * turn * (turn > 1),
            "tokens": 10,
            "seconds": {"kept": 1.0, "nothing kept": float(turn + task)},
            "equal": task == 0,
        }
        for turn in (1, 2)
        for task in (0, 2)
    ]
    assert table(rows).splitlines()[2:] == [
        "| 1 | 100 | 0 % | 10 | 2.00 (1.00 to 3.00) | 1 of 2 |",
        "| 2 | 200 | 50 % | 10 | 3.00 (2.00 to 4.00) | 1 of 2 |",
    ]
