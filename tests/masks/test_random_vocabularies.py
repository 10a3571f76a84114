"""Masks, distances and transitions of small random vocabularies against a search by definition."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from automata_reference import CHARACTERS, LETTERS, RandomGrammars
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st

from structspec.automata import network as network_module
from structspec.automata.automaton import DEAD, Automaton, byte_costs
from structspec.automata.network import build_network
from structspec.errors import BudgetExceeded, TokenRejected, Unsatisfiable
from structspec.masks.constraint import END, Constraint
from structspec.vocab import Vocabulary

SETTINGS = settings(
    max_examples=150,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
)
FAR = 1 << 30
WIDE = 300  # states that the search by definition may visit


class Definition:
    """Exact token distances by breadth-first search on an automaton that knows no vocabulary."""

    def __init__(self, automaton: Automaton, vocab: Vocabulary) -> None:
        self.automaton = automaton
        self.texts = sorted({t for t in vocab.tokens if t})
        self._known: dict[int, int | None] = {}

    def distance(self, state: int) -> int | None:
        """Tokens to a complete text, FAR if there is none, None if the search is too wide."""
        if state not in self._known:
            self._known[state] = self._search(state)
        return self._known[state]

    def _search(self, state: int) -> int | None:
        if state == DEAD:
            return FAR
        level, seen, depth = [state], {state}, 0
        while level:
            if any(map(self.automaton.accepting, level)):
                return depth
            following = {
                new
                for here in level
                for text in self.texts
                if (new := self.automaton.advance(here, text)) != DEAD
            }
            level, depth = sorted(following - seen), depth + 1
            seen |= following
            if len(seen) > WIDE:
                return None
        return FAR


def random_vocabulary(rng: random.Random, covered: bool) -> Vocabulary:
    pieces = [bytes((b,)) for b in LETTERS] + [chr(c).encode() for c in CHARACTERS[3:]]
    pieces += [b"\xc3", b"\xa9", b"\xf0\x90"]
    tokens: list[bytes | None] = []
    for _ in range(rng.randint(2, 12)):
        weights = [6] * 3 + [1] * (len(pieces) - 3)
        tokens.append(b"".join(rng.choices(pieces, weights, k=rng.choice((1, 1, 2, 2, 3, 4)))))
    if covered:
        tokens += [bytes((b,)) for b in sorted(set(b"".join(t or b"" for t in tokens)))]
    tokens += [*rng.sample(tokens, 2), None, b""]
    rng.shuffle(tokens)
    ends = [rng.randrange(len(tokens) + 3) for _ in range(rng.randint(0, 2))]
    ends = [e for e in ends if e >= len(tokens) or not covered or len(tokens[e] or b"") != 1]
    specials = {i: f"<{i}>" for i in range(len(tokens)) if tokens[i] is None}
    return Vocabulary(tokens, ends, specials, logit_width=len(tokens) + rng.choice((3, 40)))


def check_state(c: Constraint, definition: Definition, state: int, plain: int) -> None:
    """Everything that the surface says about one state; `plain` is it without a vocabulary."""
    tokens, automaton = c.vocab.tokens, definition.automaton
    allowed = set(c.allowed(state).tolist())
    accepting = automaton.accepting(plain)
    assert c.accepting(state) == accepting
    assert (allowed & set(c.vocab.eos_ids)) == (set(c.vocab.eos_ids) if accepting else set())
    text_ids = allowed - set(c.vocab.eos_ids)
    for token, data in enumerate(tokens):
        needed = definition.distance(automaton.advance(plain, data)) if data else FAR
        if needed is not None:
            assert (token in text_ids) == (needed < FAR), (token, data)
        if token not in allowed:
            with pytest.raises(TokenRejected) as caught:
                c.advance(state, token)
            assert set(caught.value.expected) <= allowed
    assert all(token < len(tokens) and tokens[token] for token in text_ids)
    for token in range(len(tokens), c.vocab.size + 2):
        if token not in c.vocab.eos_ids:
            with pytest.raises(TokenRejected):
                c.advance(state, token)
    if accepting:
        for token in c.vocab.eos_ids:
            assert c.advance(state, token) == END
    check_distances(c, definition, state, plain, text_ids)
    forced = c.forced(state)
    assert c.suggest(state).startswith(forced) or len(c.suggest(state)) < len(forced)
    for token in text_ids:
        data = tokens[token] or b""
        assert data.startswith(forced) or forced.startswith(data), (forced, data)
    if forced:
        assert not accepting
        # (without single bytes no token may go on from the middle of the forced ones)
        assert not c._covered or c.advance_bytes(state, forced) is not None


def check_distances(
    c: Constraint, definition: Definition, state: int, plain: int, text_ids: set[int]
) -> None:
    distance = c.distance(state)
    exact = definition.distance(plain)
    assert (distance == 0) == c.accepting(state)
    if exact is not None:
        assert exact <= distance
        if c.distance_is_exact(state):
            assert exact == distance
    after = {token: c.distance(c.advance(state, token)) for token in text_ids}
    if distance:
        assert min(after.values()) <= distance - 1
    ends = set(c.vocab.eos_ids) if c.accepting(state) else set()
    for left in [0, 1, 2, *range(max(0, distance - 1), distance + 3), 60]:
        kept = {token for token, needed in after.items() if needed <= left - 1}
        assert set(c.allowed(state, left).tolist()) == kept | ends, left


def walk(seed: int, covered: bool) -> None:
    try:
        compare(seed, covered)
    except BudgetExceeded:  # a search among the states of a recursive grammar may be too wide
        assert not covered


def compare(seed: int, covered: bool) -> None:
    rng = random.Random(seed)
    grammar = RandomGrammars(rng).grammar(rng.randint(1, 3), rng.randint(1, 3))
    vocab = random_vocabulary(rng, covered)
    note(repr(grammar))
    note(repr((vocab.tokens, vocab.eos_ids, vocab.size)))
    network = build_network(grammar)
    plain = Automaton(network, byte_costs(network))
    definition = Definition(plain, vocab)
    try:
        c = Constraint(network, vocab)
    except Unsatisfiable as error:
        assert definition.distance(plain.start) in (FAR, None)
        assert not set(error.missing) & vocab.written_bytes
        return
    for _ in range(2):
        state, here = c.start, plain.start
        for _ in range(5):
            check_state(c, definition, state, here)
            text_ids = [t for t in c.allowed(state).tolist() if t not in vocab.eos_ids]
            if not text_ids:
                break
            token = rng.choice(text_ids)
            state, here = c.advance(state, token), plain.advance(here, vocab.tokens[token] or b"")
    finish_in_time(c, rng)


def finish_in_time(c: Constraint, rng: random.Random) -> None:
    """Any path through masks with a budget of distance(start) (or more) is complete at its end."""
    pick: list[Callable[[list[int]], int]] = [rng.choice, max, min]
    for choose in pick:
        left = c.distance(c.start) + rng.choice((0, 0, 1, 3))
        state = c.start
        while left > 0:
            text_ids = [t for t in c.allowed(state, left).tolist() if t not in c.vocab.eos_ids]
            if not text_ids:
                break
            state, left = c.advance(state, choose(text_ids)), left - 1
        assert c.accepting(state)


@SETTINGS
@given(st.integers(0, 2**40))
def test_vocabularies_with_all_single_bytes_match_the_definition(seed: int) -> None:
    walk(seed, covered=True)


@SETTINGS
@given(st.integers(0, 2**40))
def test_vocabularies_without_single_bytes_match_the_definition(seed: int) -> None:
    walk(seed, covered=False)


@SETTINGS
@given(st.integers(0, 2**40), st.booleans())
def test_counters_and_frames_match_the_definition_too(seed: int, covered: bool) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(network_module, "_INLINE_WEIGHT", -1)
        patch.setattr(network_module, "_EXPAND_WEIGHT", -1)
        walk(seed, covered)
