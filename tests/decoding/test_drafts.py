"""Untrained drafts: legal, within the budget, deterministic, and worth something."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from structspec.drafting import (
    CombinedDraft,
    Draft,
    DraftBuilder,
    ForcedDraft,
    ForkDraft,
    LookupDraft,
    Request,
    draft_source,
)
from structspec.errors import DraftError
from structspec.packed import is_set
from structspec.vocab import Vocabulary

Bind = Callable[[str, Vocabulary], Any]
WORDS = [b"San", b" San", b" Francisco", b"Fr", b"an", b"c", b"is", b"co", b" ", b'"', b",", b"x"]
SINGLES = [bytes([b]) for b in sorted(set(b"".join(WORDS))) if bytes([b]) not in WORDS]
EOS = len(WORDS) + len(SINGLES)


@pytest.fixture(scope="module")
def vocab() -> Vocabulary:
    return Vocabulary([*WORDS, *SINGLES, None], eos_ids=[EOS])


def ids(vocab: Vocabulary, *tokens: bytes) -> list[int]:
    return [vocab.tokens.index(token) for token in tokens]


def propose(source: Any, constraint: Any, context: list[int], output: int, left: int) -> Draft:
    """The draft behind `context`, whose last `output` ids are the text so far."""
    state = constraint.start
    for token in context[len(context) - output :]:
        state = constraint.advance(state, token)
    drafter = source.begin(Request(constraint, context[: len(context) - output]))
    return drafter.propose(state, context, left, 0)


def check(draft: Draft, constraint: Any, state: int, left: int) -> None:
    """The invariants that every draft promises."""
    for token, reached, mask in zip(draft.tokens, draft.states, draft.masks, strict=True):
        assert np.array_equal(mask, constraint.mask(state, left))
        assert is_set(mask, token)
        state, left = constraint.advance(state, token), left - 1
        assert state == reached


def test_forced_text_is_drafted_whole_and_canonically(bind: Bind, vocab: Vocabulary) -> None:
    constraint = bind('"San Francisco"[xc]', vocab)
    draft = propose(ForcedDraft(), constraint, [EOS], 0, 20)
    assert list(draft.tokens) == ids(vocab, b'"', b"San", b" Francisco", b'"')
    assert draft.q is None
    check(draft, constraint, constraint.start, 20)


def test_a_single_legal_token_is_drafted_where_bytes_are_not_forced(bind: Bind) -> None:
    # "ab" and "ac" share "a", but this vocabulary writes only one of them
    vocab = Vocabulary([b"ab", b"d", None], eos_ids=[2])
    draft = propose(ForcedDraft(), bind("(ab|ac)d", vocab), [2], 0, 9)
    assert draft.tokens == (0, 1)


def test_the_budget_cuts_a_forced_draft(bind: Bind, vocab: Vocabulary) -> None:
    constraint = bind("San Francisco[xc]", vocab)
    full = propose(ForcedDraft(), constraint, [EOS], 0, 3)
    assert list(full.tokens) == ids(vocab, b"San", b" Francisco")
    check(full, constraint, constraint.start, 3)
    assert len(propose(ForcedDraft(limit=1), constraint, [EOS], 0, 9)) == 1


def test_end_tokens_are_not_drafted(bind: Bind, vocab: Vocabulary) -> None:
    constraint = bind("x*", vocab)
    context = [*ids(vocab, b"x"), EOS, *ids(vocab, b"x")]
    draft = propose(LookupDraft(min_bytes=0), constraint, context, 1, 5)
    assert draft.tokens == ()
    builder = DraftBuilder(constraint, constraint.start, 5)
    assert not builder.add(EOS)
    assert builder.end(EOS) and not builder.add(ids(vocab, b"x")[0])
    assert builder.build().tokens == (EOS,)


def test_lookup_copies_what_followed_the_longest_match(bind: Bind, vocab: Vocabulary) -> None:
    constraint = bind("[ -z]*", vocab)
    context = ids(vocab, b"c", b"an", b"x", b"is", b"an", b"co", b"c", b"an")
    draft = propose(LookupDraft(limit=2), constraint, context, 1, 9)
    # the bigram (c, an) wins over the later occurrence of (an) alone
    assert list(draft.tokens) == ids(vocab, b"x", b"is")
    check(draft, constraint, constraint.advance(constraint.start, context[-1]), 9)


def test_lookup_stops_before_the_first_illegal_token(bind: Bind, vocab: Vocabulary) -> None:
    constraint = bind("[a-w]*", vocab)
    context = ids(vocab, b"c", b"an", b"is", b"x", b"an", b"c")
    assert list(propose(LookupDraft(), constraint, context, 1, 9).tokens) == ids(
        vocab, b"an", b"is"
    )


def test_lookup_passes_over_an_illegal_match_to_an_older_one(bind: Bind, vocab: Vocabulary) -> None:
    constraint = bind("[a-w]*", vocab)
    context = ids(vocab, b"c", b"an", b"x", b"c", b"x", b"c")
    assert ids(vocab, b"an")[0] == propose(LookupDraft(), constraint, context, 1, 9).tokens[0]


def test_lookup_finds_text_that_other_tokens_spell(bind: Bind, vocab: Vocabulary) -> None:
    constraint = bind("[ -z]*", vocab)
    # the prompt has " San", the output writes "San": no n-gram matches
    context = ids(vocab, b" San", b" Francisco", b",", b"x", b'"', b"San")
    draft = propose(LookupDraft(), constraint, context, 1, 9)
    assert draft.tokens[0] == ids(vocab, b" Francisco")[0]
    assert propose(LookupDraft(min_bytes=0), constraint, context, 1, 9).tokens == ()


def test_lookup_copies_nothing_across_a_control_token(bind: Bind, vocab: Vocabulary) -> None:
    constraint = bind("[ -z]*", vocab)
    context = [*ids(vocab, b" San", b" Francisco"), EOS, *ids(vocab, b"x", b"San")]
    text = vocab.decode(propose(LookupDraft(), constraint, context, 1, 9).tokens)
    assert b" Francisco".startswith(text)


def test_combined_continues_behind_a_forced_span(bind: Bind, vocab: Vocabulary) -> None:
    constraint = bind('"(San|Fr)[ a-zF]*"', vocab)
    prompt = ids(vocab, b'"', b"San", b" Francisco", b'"', b"x")
    draft = propose(CombinedDraft(), constraint, prompt, 0, 12)
    assert list(draft.tokens[:3]) == ids(vocab, b'"', b"San", b" Francisco")
    check(draft, constraint, constraint.start, 12)


def test_combined_adapts_the_number_of_its_guesses(bind: Bind, vocab: Vocabulary) -> None:
    constraint = bind("[ -z]*", vocab)
    context = ids(vocab, *[b"x", b"c"] * 20)
    drafter = CombinedDraft(guesses=4, max_guesses=8).begin(Request(constraint, context))
    sizes = []
    for right in (4, 8, 0, 0, 0, 0):
        draft = drafter.propose(constraint.start, context, 50, 0)
        sizes.append(len(draft))
        drafter.observe(draft, min(right, len(draft)))
    assert sizes == [4, 8, 8, 4, 2, 1]


def test_a_draft_depends_on_the_text_alone(bind: Bind, vocab: Vocabulary) -> None:
    constraint = bind('"(San|Fr)[ a-zF]*"', vocab)
    prompt = ids(vocab, b'"', b"San", b" Francisco", b'"', b"x")
    assert propose(CombinedDraft(), constraint, prompt, 0, 12) == propose(
        CombinedDraft(), constraint, prompt, 0, 12
    )


def test_draft_names_are_resolved_and_unknown_ones_listed() -> None:
    assert isinstance(draft_source("auto"), CombinedDraft)
    assert draft_source("none") is None and draft_source(None) is None
    source = LookupDraft()
    assert draft_source(source) is source
    with pytest.raises(DraftError, match="auto, forced, forks, lookup, none"):
        draft_source("lookups")
    with pytest.raises(DraftError, match="begin"):
        draft_source(3)  # type: ignore[arg-type]


def test_forks_hold_every_way_that_the_grammar_leaves(bind: Bind) -> None:
    vocab = Vocabulary([b"t", b"true", b"f", b"false", b"x", b"y", b",", b"al", None], eos_ids=[8])
    constraint = bind("x(true|false),(x|y)", vocab)
    drafter = ForkDraft().begin(Request(constraint, [8]))
    paths = drafter.propose_tree(constraint.start, [8], 20, 0)
    texts = {vocab.decode(path.tokens) for path in paths}
    # `x` is forced; both words follow, each with the comma that is forced behind it
    assert texts == {b"x", b"xtrue,", b"xfalse,"}
    for path in paths:
        check(path, constraint, constraint.start, 20)
    behind = constraint.start
    for token in paths[1].tokens:
        behind = constraint.advance(behind, token)
    last = drafter.propose_tree(behind, [8, *paths[1].tokens], 1, 1)
    assert {path.tokens for path in last} == {(4,), (5,)}


def test_forks_keep_to_their_budgets(bind: Bind, vocab: Vocabulary) -> None:
    constraint = bind("(San|Fr|x|c)*", vocab)
    for nodes in (1, 2, 3):
        drafter = ForkDraft(nodes=nodes).begin(Request(constraint, [EOS]))
        paths = drafter.propose_tree(constraint.start, [EOS], 20, 0)
        assert 1 <= sum(len(path) for path in paths) <= nodes + 32
    drafter = ForkDraft(branches=1).begin(Request(constraint, [EOS]))
    assert drafter.propose_tree(constraint.start, [EOS], 20, 0) == [Draft()]
