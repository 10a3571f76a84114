"""The corpus of reported failures of speculation under a grammar (tests/corpus/speculation.jsonl).

`docs/verification.md` says for each case which test holds it, or why it cannot occur. The first
test here keeps that table complete; the others are the cases that no other room tests.
"""

from __future__ import annotations

import json
import random
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import structspec
from structspec.errors import TokenRejected
from structspec.verification import oracle

ROOT = Path(__file__).resolve().parents[2]
CASES = [
    json.loads(line)["id"]
    for line in (ROOT / "tests/corpus/speculation.jsonl").read_text("utf-8").splitlines()
]
# A line of the table: | `id` | text, with tests as `path::name` |
ROW = re.compile(r"^\| `(sp-[a-z-]+)` \| (.+) \|$", re.MULTILINE)

PIECES = [
    *(bytes([c]) for c in b'abcdefghijklmnopqrstuvwxyz<>/{}":0123456789\n'),
    b"</end>",
    b"</",
    b"end",
    b">{",
    b'{"',
    b'n":',
    b"1}",
    b"ab\n",
    b"endx",
    None,
]
VOCAB = structspec.Vocabulary(PIECES, eos_ids=[len(PIECES) - 1])
END = len(PIECES) - 1
# Free text, a marker, then JSON: one grammar for the whole reply, so the phase is in the state.
REPLY = structspec.compile(r'[a-z\n]*</end>\{"n":[0-9]{1,3}\}', syntax="regex").bind(VOCAB)


def ids(*pieces: bytes) -> list[int]:
    return [PIECES.index(piece) for piece in pieces]


def legal(state: int) -> set[bytes | None]:
    row = REPLY.mask(state)
    return {PIECES[i] for i in range(len(PIECES)) if int(row[i // 32]) >> (i % 32) & 1}


def walk(tokens: list[int], state: int | None = None) -> list[int]:
    """The states along a draft: one per row, the first before any token."""
    states = [REPLY.start if state is None else state]
    for token in tokens:
        states.append(REPLY.advance(states[-1], token))
    return states


def table() -> dict[str, str]:
    rows = ROW.findall((ROOT / "docs/verification.md").read_text("utf-8"))
    assert len(rows) == len(dict(rows)), "a case stands twice in the table"
    return dict(rows)


def test_the_table_of_cases_holds_the_corpus_and_nothing_else() -> None:
    assert len(CASES) == 34
    assert set(table()) == set(CASES)


@pytest.mark.parametrize("case", CASES)
def test_each_case_is_tested_or_says_why_it_cannot_occur(case: str) -> None:
    line = table()[case]
    named = re.findall(r"`(tests/[a-z_/]+\.py)::(test_[a-z0-9_]+)`", line)
    assert named or line.startswith("Cannot occur: "), line
    absent = []
    for path, name in named:
        if not (ROOT / path).is_file():
            absent.append(path)
        else:
            assert f"def {name}(" in (ROOT / path).read_text("utf-8"), f"{path} has no {name}"
    if absent:
        pytest.skip(f"{case}: not in this tree: {', '.join(absent)}")


def test_rows_behind_a_marker_inside_the_draft_carry_the_mask_of_the_json() -> None:
    """sp-reasoning-ends-inside-the-draft: five tokens, the marker second."""
    states = walk(ids(b"a", b"</end>", b"{", b'"', b"n"))
    assert {b"a", b"\n", b"</end>", b"<"} <= legal(states[1])
    assert legal(states[2]) == {b"{", b'{"'}  # row by row, not one decision for the step
    assert legal(states[3]) == {b'"'}
    assert legal(states[4]) == {b"n", b'n":'}


def test_a_marker_of_several_tokens_is_seen_also_across_steps() -> None:
    """sp-reasoning-marker-of-several-tokens: as pieces, and split between two steps."""
    whole = walk(ids(b"b", b"</end>"))[-1]
    parts = ids(b"b", b"</", b"end", b">")
    assert walk(parts)[-1] == whole
    for cut in range(len(parts)):
        committed = walk(parts[:cut])[-1]  # an earlier step stopped here
        assert walk(parts[cut:], committed)[-1] == whole
    assert legal(walk(ids(b"</"))[-1]) == {b"e", b"end"}


def test_a_step_across_the_marker_advances_as_one_text() -> None:
    """sp-boundary-tokens-reach-the-matcher: line feed, marker and JSON accepted together."""
    accepted = ids(b"ab\n", b"</", b"end", b">{", b'"', b'n":', b"4")
    assert legal(walk(accepted)[-1]) >= {b"}", b"0"}
    assert None not in legal(walk(accepted)[-1])


def test_a_rejected_marker_leaves_the_state_of_the_free_text() -> None:
    """sp-reasoning-marker-rejected-again: nothing is undone, the old number still stands."""
    before = walk(ids(b"a"))[-1]
    rows = legal(before)
    walk(ids(b"b", b"</end>", b"{"), before)  # drafted, and all of it rejected
    assert legal(before) == rows
    assert legal(walk(ids(b"c"), before)[-1]) == rows


def test_tokens_behind_the_marker_advance_the_state_once_each() -> None:
    """sp-doubled-opening-brace: behind `</end>{` no second brace is offered."""
    for accepted in (ids(b"</end>", b"{"), ids(b"</", b"end", b">{")):
        assert legal(walk(accepted)[-1]) == {b'"'}


def test_committing_in_any_portions_gives_the_state_of_a_replay() -> None:
    """sp-grammar-restarts-after-recompute, sp-doubled-opening-brace: a state is a function of the
    committed tokens, whatever was drafted and rejected in between."""
    rng = random.Random(3)
    text = ids(b"ab\n", b"c", b"</", b"end", b">", b"{", b'"', b'n":', b"1", b"2", b"}")
    for _ in range(30):
        state, done = REPLY.start, 0
        while done < len(text):
            options = [i for i, piece in enumerate(PIECES) if piece in legal(state)]
            for token in rng.sample(options, min(3, len(options))):
                REPLY.advance(state, token)  # branches that are thrown away
            portion = rng.randint(1, 3)
            state = walk(text[done : done + portion], state)[-1]
            done += portion
        assert state == walk(text)[-1]
        assert REPLY.accepting(state)


def test_the_end_token_is_a_step_like_any_other() -> None:
    """sp-rollback-past-the-end-token: the state before it is live, complete or open as before."""
    before = walk(ids(b"</end>", b'{"', b'n":', b"7", b"}"))[-1]
    open_before = walk(ids(b"</end>", b'{"', b'n":', b"7"))[-1]
    REPLY.advance(before, END)
    assert REPLY.accepting(before)
    assert legal(before) == {None}
    assert not REPLY.accepting(open_before)
    with pytest.raises(TokenRejected):
        REPLY.advance(open_before, END)
    assert legal(open_before) >= {b"}", b"1", b"1}"}


def test_siblings_of_a_tree_are_judged_in_their_own_states() -> None:
    """sp-backend-without-rollback: branches hold one number each; their order is of no account."""
    root = walk(ids(b"a"))[-1]
    branches = {b"</": {b"e", b"end"}, b"</end>": {b"{", b'{"'}, b"<": {b"/"}}
    forward = {p: REPLY.advance(root, PIECES.index(p)) for p in branches}
    backward = {p: REPLY.advance(root, PIECES.index(p)) for p in reversed(branches)}
    assert forward == backward
    for piece, allowed in branches.items():
        assert legal(forward[piece]) == allowed


def test_a_token_refused_at_its_last_byte_leaves_no_trace() -> None:
    """sp-failed-accept-leaves-traces: `endx` fits but for its last byte."""
    state = walk(ids(b"</"))[-1]
    rows = legal(state)
    assert b"end" in rows
    with pytest.raises(TokenRejected):
        REPLY.advance(state, PIECES.index(b"endx"))
    assert legal(state) == rows
    assert walk(ids(b"end", b">"), state)[-1] == walk(ids(b"</end>"))[-1]


@pytest.mark.parametrize("length", [0, 3])
def test_laws_under_a_real_mask_keep_to_the_mask(tiny: Any, length: int) -> None:
    """sp-draft-length-zero, sp-illegal-draft-on-the-plain-target: what is written is legal."""
    m = tiny("automaton", 4, 2)
    law = oracle.output_law(oracle.block_law, m.target, m.draft, length, 4, m.ends)
    for text in law:
        for i, token in enumerate(text):
            assert m.mask(text[:i])[token]
    assert np.isclose(sum(law.values()), 1.0)
