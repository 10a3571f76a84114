"""Masks beside the automaton alone, along random texts; vocabularies of pieces of JSON."""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np

from structspec.automata.automaton import DEAD, Automaton
from structspec.masks.constraint import Constraint
from structspec.vocab import Vocabulary

PIECES = [
    *'{}[]:," \n0123456789-.eE+\\/_tfnxyzaéß中🙂',
    *(
        "true",
        "false",
        "null",
        '":',
        '": ',
        '",',
        '", "',
        '"}',
        '"]',
        '"},',
        "},",
        "],",
        "[{",
        '{"',
    ),
    *("[[", "]]", '["', ": ", ", ", "  ", "    ", "\n  ", "\n\n", "0.", "1e", "12", "100", '\\"'),
    *("name", "na", "me", "alpha", "alp", "beta", "be", "gamma", "kind", "value", "item", "items"),
    *(
        "abc",
        "ab",
        "cd",
        "GET",
        "/api",
        "user",
        "2024",
        "-01",
        "T00",
        "é中",
        "中文",
        "\\u00",
        "\\n",
    ),
]


def vocabulary(seed: int, size: int, pieces: Sequence[str] = PIECES) -> Vocabulary:
    """All bytes, and texts of one to four pieces; large enough for whole subtrees at once."""
    rng = random.Random(seed)
    tokens: list[bytes | None] = [bytes((b,)) for b in range(256)]
    while len(tokens) < size:
        data = "".join(rng.choice(pieces) for _ in range(rng.choice((1, 2, 2, 3, 4)))).encode()
        tokens.append(data[rng.randint(0, 1) :] or data if rng.random() < 0.1 else data)
    return Vocabulary([*tokens, None], [len(tokens)])


def check(constraint: Constraint, seed: int, steps: int) -> None:
    """Masks along random texts hold a token iff the automaton alone takes its bytes."""
    tokens = constraint.vocab.tokens
    apart = Automaton(constraint._network, constraint._costs)
    rng = random.Random(seed)
    state, reference = constraint.start, apart.start
    for _ in range(steps):
        bits = np.unpackbits(constraint.mask(state).view(np.uint8), bitorder="little")
        after = [apart.advance(reference, t) if t else DEAD for t in tokens]
        wrong = [
            t for t, a in zip(range(len(tokens)), after, strict=True) if bits[t] != (a != DEAD)
        ]
        wrong = [t for t in wrong if t not in constraint.vocab.eos_ids]
        assert not wrong, [tokens[t] for t in wrong[:5]]
        cost = apart.cost(reference)
        assert constraint.distance(state) == cost
        for left in (cost, cost + 2):
            row = constraint.mask(state, left + 1)
            limited = np.unpackbits(row.view(np.uint8), bitorder="little")
            for t, a in enumerate(after):
                if t not in constraint.vocab.eos_ids:
                    assert limited[t] == (a != DEAD and apart.cost(a) <= left), (tokens[t], left)
        allowed = [t for t, a in enumerate(after) if a != DEAD]
        if not allowed:
            break
        # long tokens and ends of texts, not always one more blank
        chosen = max(rng.sample(allowed, min(4, len(allowed))), key=lambda t: len(tokens[t] or b""))
        state, reference = constraint.advance(state, chosen), after[chosen]
