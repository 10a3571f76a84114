"""The collected tokenizer cases: faults that other engines had, one by one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import structspec
from structspec.errors import TokenRejected, Unsatisfiable
from structspec.masks.constraint import Constraint
from structspec.vocab import Vocabulary

PATH = Path(__file__).parents[1] / "corpus" / "tokenizer.jsonl"
CASES = [json.loads(line) for line in PATH.read_text(encoding="utf-8").splitlines() if line.strip()]


def bind(case: dict[str, Any], *, assume_all_bytes: bool) -> Constraint:
    """The constraint of a case, with exactly the tokens of the case.

    The cases ask what the *text* allows. A constraint also leaves out what its vocabulary cannot
    finish, and some of these tiny vocabularies cannot finish anything, hence `assume_all_bytes`.
    """
    if "pattern" in case:
        grammar = structspec.compile(case["pattern"], syntax="regex")
    else:
        grammar = structspec.compile(case["schema"])
    tokens: list[bytes | None] = [bytes.fromhex(token) for token in case["tokens"]]
    width = case.get("logit_width", len(tokens))
    special = {int(i): name for i, name in case.get("special", {}).items()}
    vocab = Vocabulary(tokens, case.get("eos_ids", ()), special, width)
    return grammar.bind(vocab, assume_all_bytes=assume_all_bytes)


def complete(c: Constraint, tokens: list[int]) -> bool:
    state = c.start
    for token in tokens:
        try:
            state = c.advance(state, token)
        except TokenRejected:
            return False
    return c.accepting(state)


def test_all_cases_are_here() -> None:
    assert len(CASES) == 24


def after(c: Constraint, case: dict[str, Any]) -> int | None:
    """The state after the ids of `after`; None if they are not allowed and need not be."""
    state = c.start
    try:
        for token in case.get("after", ()):
            state = c.advance(state, token)
    except TokenRejected:
        assert case.get("only_if_reachable"), "the ids in `after` must be allowed"
        return None
    return state


@pytest.mark.parametrize("case", CASES, ids=[case["id"] for case in CASES])
def test_the_mask_allows_and_forbids_what_the_case_says(case: dict[str, Any]) -> None:
    c = bind(case, assume_all_bytes=True)
    state = after(c, case)
    if state is not None:
        allowed = set(c.allowed(state).tolist())
        assert set(case.get("must_allow", ())) <= allowed
        assert not set(case.get("must_forbid", ())) & allowed
    for tokens in case.get("accepted_sequences", ()):
        assert complete(c, tokens), tokens
    for tokens in case.get("refused_sequences", ()):
        assert not complete(c, tokens), tokens


@pytest.mark.parametrize("case", CASES, ids=[case["id"] for case in CASES])
def test_with_the_tokens_of_the_case_alone_nothing_forbidden_comes_and_all_can_be_finished(
    case: dict[str, Any],
) -> None:
    try:
        c = bind(case, assume_all_bytes=False)
    except Unsatisfiable as error:
        assert not set(error.missing) & c_bytes(case)
        return
    for tokens in case.get("accepted_sequences", ()):
        assert complete(c, tokens), tokens
    for tokens in case.get("refused_sequences", ()):
        assert not complete(c, tokens), tokens
    try:
        state = after(c, case)
    except AssertionError:  # the ids in `after` lead where these tokens cannot finish
        return
    if state is None:
        return
    allowed = set(c.allowed(state).tolist())
    assert not set(case.get("must_forbid", ())) & allowed
    for token in allowed - set(c.vocab.eos_ids):
        following, left = c.advance(state, token), 50
        while not c.accepting(following) and left:
            needed = c.distance(following)
            following = min((c.advance(following, t) for t in c.allowed(following)), key=c.distance)
            assert c.distance(following) < needed
            left -= 1
        assert c.accepting(following)


def c_bytes(case: dict[str, Any]) -> set[int]:
    return set(b"".join(bytes.fromhex(token) for token in case["tokens"]))
