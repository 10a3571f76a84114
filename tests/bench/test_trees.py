"""The benchmark of draft trees: what it records, how it measures and what it shows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import structspec
from structspec import settings
from structspec.bench import trees
from structspec.bench.pages import begin
from structspec.bench.trees import Recorder, Round, lead, measure, table, together
from structspec.drafting import Draft, DraftBuilder, Request
from structspec.drafting.together import draft_alone, plan_of
from structspec.vocab import Vocabulary

VOCAB = Vocabulary([*(bytes((b,)) for b in range(256)), b"ab", b"12", None], [258])
CONSTRAINT = structspec.compile("[a-z]{2,}|[0-9]+", syntax="regex").bind(VOCAB)


def test_a_sampled_tree_has_a_row_before_the_drafts_and_one_behind_each_token() -> None:
    """Also where drafts begin alike; only a deterministic tree holds each beginning once."""
    text = tuple(VOCAB.encode(b"x"))
    round_ = Round(CONSTRAINT, text, ((97, 98, 99), (97, 100, 101, 102)))
    paths = round_.paths(3)
    assert len(paths) == 7 and paths[0] == text and paths.count((*text, 97)) == 2
    assert len(round_.paths()) == 1 + 3 + 3


def test_no_row_stands_behind_an_end_token() -> None:
    round_ = Round(CONSTRAINT, (97, 98), ((99, 258), (258,)))
    assert round_.paths(2) == [(97, 98), (97, 98, 99)]


class _Letters:
    """Drafts two letters, the second one of its own for each draft."""

    def begin(self, request: Request) -> _Letters:
        self.constraint = request.constraint
        self.observed: list[int] = []
        self.closed = False
        return self

    def propose_several(
        self, state: int, context: Any, left: int, step: int, count: int
    ) -> list[Draft]:
        drafts = []
        for k in range(count):
            builder = DraftBuilder(self.constraint, state, left)
            builder.extend([97, 98 + k])
            drafts.append(builder.build())
        return drafts

    def propose(self, state: int, context: Any, left: int, step: int) -> Draft:
        return self.propose_several(state, context, left, step, 1)[0]

    def observe(self, draft: Draft, accepted: int) -> None:
        self.observed.append(accepted)

    def close(self) -> None:
        self.closed = True


def test_a_recorder_keeps_what_its_source_proposes_and_changes_nothing() -> None:
    letters = _Letters()
    recorder = Recorder(letters)
    drafter = recorder.begin(Request(CONSTRAINT, prompt=[1, 2, 3]))
    state = lead(CONSTRAINT, [120])
    drafts = draft_alone(plan_of(drafter, state, [1, 2, 3, 120], 9, 0, 2))
    assert [draft.tokens for draft in drafts] == [(97, 98), (97, 99)]
    assert drafter.propose(state, [1, 2, 3, 120], 9, 1).tokens == (97, 98)
    drafter.observe(drafts[0], 1)
    drafter.close()
    assert letters.observed == [1] and letters.closed
    first, second = recorder.rounds
    assert first == Round(CONSTRAINT, (120,), ((97, 98), (97, 99)))
    assert second.drafts == ((97, 98),)


def test_rows_are_made_together_and_alone() -> None:
    found = measure(Round(CONSTRAINT, (), ((97, 98, 99), (49, 50, 51))), 3, repeats=2)
    assert found["rows"] == 7 and found["states"] == 4  # nothing, a, ab or more, digits
    assert min(found["together"], found["alone"]) > 0
    assert found["different"] == 4


def test_threads_are_left_as_they_were() -> None:
    import numpy as np

    before = settings.threads()
    out = np.zeros((2, -(-VOCAB.size // 32)), np.uint32)
    together(CONSTRAINT, [[], [97]], out, before + 1)
    assert settings.threads() == before
    assert out.any(1).all()


def test_the_table_shows_each_draft_by_prompt_and_together() -> None:
    tree = {"kind": "tool call", "draft": "eagle", "rows": 33, "states": 8, "different": 7}
    report: dict[str, Any] = {
        "command": trees.COMMAND,
        "tokens": 49152,
        "machine": {
            "cores": 2,
            "processor": "a processor",
            "python": "3",
            "packages": {"numba": "1"},
        },
        "trees": [
            {**tree, "together": 100.0, "alone": 50.0},
            {**tree, "together": 300.0, "alone": 50.0, "kind": "schema"},
        ],
    }
    text = table(report)
    assert "| eagle | tool call | 1 | 33 | 8 | 7 | 100 | 50.0 | 2.0 | 2.0 | 2.0 | 100 % |" in text
    assert "| eagle | schema | 1 | 33 | 8 | 7 | 300 | 50.0 | 6.0 | 6.0 | 6.0 | 0 % |" in text
    assert "| eagle | all | 2 |" in text and "forks" not in text


def test_the_page_has_a_place_for_the_table() -> None:
    page = (Path(__file__).parents[2] / "docs" / "masks.md").read_text(encoding="utf-8")
    assert begin(trees.COMMAND) in page
